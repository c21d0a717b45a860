//! Every engine of this processor against the oracle, on sizes that end anywhere.

use candle_core::{Device, Result, Shape, Tensor};

use super::super::block::Block;
use super::weight::Sizes;
use super::{Activation, Engine, Finish, Precision, Weight, Window, conv2d, conv2d_seen, linear, run};

/// Seeded by formula, so that the case is the same everywhere.
fn wave(shape: impl Into<Shape>, phase: usize) -> Result<Tensor> {
    let shape = shape.into();
    let value = |i: usize| (((i + phase) * 37 % 1009) as f32 * 0.7).sin();
    let values: Vec<f32> = (0..shape.elem_count()).map(value).collect();
    Tensor::from_vec(values, shape, &Device::Cpu)
}

/// Every engine that can run a precision.
fn engines(precision: Precision) -> impl Iterator<Item = Engine> {
    let runs = move |engine: &Engine| [Precision::Exact, precision].contains(&engine.precision());
    Engine::available().iter().copied().filter(runs)
}

/// What an engine may differ by from the oracle whose largest result is `scale`: by the order of its sums, or by short
/// sums in f16, whose error goes with what `inner` products of about a half would sum to if their signs were random.
fn allowed(engine: Engine, inner: usize, scale: f32) -> f32 {
    let root = (inner as f32).sqrt();
    if engine.precision() == Precision::F16 {
        3e-3 * scale.max(root / 2.0)
    } else {
        (1e-6 + 1e-7 * root) * scale
    }
}

/// Compares every engine with the oracle; sums in another order may differ a little.
fn check(x: &Tensor, seen: [usize; 2], filters: &Tensor, window: Window, finish: Finish<'_>) -> Result<()> {
    let gated = matches!(finish, Finish::Geglu);
    let bias = wave(filters.dim(0)?, 3)?;
    let [output, input, side, _] = *filters.dims() else { panic!("filters") };
    for precision in [Precision::Exact, Precision::Bf16, Precision::F16] {
        let weights = if gated {
            vec![Weight::gated(filters, Some(&bias), precision)?]
        } else {
            let packed = Weight::new(filters, Some(&bias), precision)?;
            vec![packed, Weight::filters(filters, Some(&bias), precision, window)?]
        };
        let sizes = Sizes { input, output, side, gated, precision, places: false };
        let oracle = Weight::oracle(filters, Some(&bias), sizes)?;
        let oracle = conv2d_seen(x, seen, &oracle, window, finish)?;
        let scale = oracle.abs()?.max_all()?.to_scalar::<f32>()?.max(1.0);
        for (engine, weight) in engines(precision).flat_map(|e| weights.iter().map(move |w| (e, w))) {
            let ours = run(engine, x, seen, weight, window, finish)?;
            let case = format!("{engine:?} {precision:?} {:?} {filters:?} {window:?} {finish:?}", x.dims());
            assert_eq!(ours.dims(), oracle.dims(), "{case}");
            let error = (ours - &oracle)?.abs()?.max_all()?.to_scalar::<f32>()?;
            assert!(error < allowed(engine, input * side * side, scale), "{case}: {error} of {scale}");
        }
    }
    Ok(())
}

#[test]
fn every_engine_equals_the_reference_for_every_window() -> Result<()> {
    let windows = [
        Window::same(1),
        Window::same(3),
        Window { size: 3, stride: 2, before: 1, after: 1 },
        Window { size: 3, stride: 2, before: 0, after: 1 },
        Window { size: 1, stride: 2, before: 0, after: 0 },
    ];
    for window in windows {
        for (height, width, input, output) in [
            (9, 7, 6, 10),
            (2, 5, 3, 33),
            (13, 40, 16, 4),
            (8, 16, 40, 64),
            (1, 1, 4, 1),
            (5, 100, 1, 3),
            (21, 40, 48, 64),
            (7, 5, 272, 33),
        ] {
            if window.output(height).is_none() {
                continue;
            }
            let x = wave((2, height, width, input), 0)?;
            let filters = wave((output, input, window.size, window.size), 11)?;
            check(&x, [height, width], &filters, window, Finish::Plain)?;
        }
    }
    Ok(())
}

#[test]
fn long_inner_dimensions_are_summed_part_by_part() -> Result<()> {
    for (input, output) in [(1000, 40), (2080, 9)] {
        let x = wave((1, 3, 7, input), 0)?;
        check(&x, [3, 7], &wave((output, input, 1, 1), 5)?, Window::same(1), Finish::Plain)?;
        check(&x, [3, 7], &wave((output, input, 3, 3), 5)?, Window::same(3), Finish::Plain)?;
    }
    Ok(())
}

#[test]
fn every_finish_equals_the_reference() -> Result<()> {
    use Activation::{Gelu, QuickGelu, Relu, Silu};
    let (batch, height, width, input) = (3, 6, 11, 32);
    let x = wave((batch, height, width, input), 1)?;
    for output in [8, 32, 70] {
        let residual = wave((batch, height, width, output), 2)?;
        let signal = wave((batch, output), 4)?;
        let mut finishes =
            vec![Finish::Plain, Finish::Add(&residual), Finish::PerImage(&signal), Finish::Geglu];
        finishes.extend([Silu, Gelu, QuickGelu, Relu].map(Finish::Apply));
        for finish in finishes {
            for side in [1, 3] {
                let filters = wave((output, input, side, side), 9)?;
                check(&x, [height, width], &filters, Window::same(side), finish)?;
            }
        }
    }
    Ok(())
}

#[test]
fn a_doubled_picture_is_never_made() -> Result<()> {
    let x = wave((2, 4, 5, 32), 0)?;
    let filters = wave((40, 32, 3, 3), 2)?;
    for seen in [[8, 10], [7, 10], [8, 9], [7, 9]] {
        check(&x, seen, &filters, Window::same(3), Finish::Plain)?;
    }
    Ok(())
}

#[test]
fn half_precision_weights_are_widened_without_loss() -> Result<()> {
    use candle_core::DType;
    let (x, wide) = (wave((2, 5, 24), 0)?, wave((40, 24), 3)?);
    for dtype in [DType::F16, DType::BF16] {
        let half = wide.to_dtype(dtype)?;
        let weight = Weight::new(&half, None, Precision::Exact)?;
        let same = Weight::new(&half.to_dtype(DType::F32)?, None, Precision::Exact)?;
        let (ours, oracle) = (linear(&x, &weight, Finish::Plain)?, linear(&x, &same, Finish::Plain)?);
        assert_eq!(ours.flatten_all()?.to_vec1::<f32>()?, oracle.flatten_all()?.to_vec1::<f32>()?);
    }
    Ok(())
}

#[test]
fn numbers_far_outside_the_range_of_f16_lose_nothing_by_it() -> Result<()> {
    let (x, filters) = (wave((1, 3, 7, 40), 0)?, wave((33, 40, 3, 3), 5)?);
    for (pictures, weights) in [(1e9, 1.0), (1e-9, 1.0), (3e4, 5e4), (1e3, 1e-3), (1.0, 1e6)] {
        let (x, filters) = ((&x * pictures)?, (&filters * weights)?);
        let exact = Weight::new(&filters, None, Precision::Exact)?;
        let half = Weight::new(&filters, None, Precision::F16)?;
        let exact = conv2d(&x, &exact, Window::same(3), Finish::Plain)?;
        let half = conv2d(&x, &half, Window::same(3), Finish::Plain)?;
        let largest = exact.abs()?.max_all()?.to_scalar::<f32>()?;
        let error = (half - exact)?.abs()?.max_all()?.to_scalar::<f32>()?;
        assert!(error < 3e-3 * largest, "{pictures} and {weights}: {error} of {largest}");
    }
    Ok(())
}

#[test]
fn weights_in_blocks_give_what_their_numbers_give() -> Result<()> {
    for (block, input) in [(Block::Q8_0, 64), (Block::Q4_0, 32), (Block::Q4K, 256), (Block::Q6K, 512)] {
        for side in [1, 3] {
            let (output, x) = (40, wave((2, 5, 9, input), 0)?);
            let shape = [output, input, side, side];
            let count: usize = shape.iter().product();
            // Any bytes are blocks; scales of about a hundredth keep them numbers.
            let mut bytes: Vec<u8> =
                (0..count / block.numbers() * block.bytes()).map(|i| (i * 89 % 251) as u8).collect();
            for block_bytes in bytes.chunks_exact_mut(block.bytes()) {
                let at = if block == Block::Q6K { block_bytes.len() - 2 } else { 0 };
                block_bytes[at..at + 2].copy_from_slice(&[0x12, 0x21]);
                if block == Block::Q4K {
                    block_bytes[2..4].copy_from_slice(&[0x12, 0x20]);
                }
            }
            let mut numbers = vec![0f32; count];
            assert!(block.decode(&bytes, &mut numbers, |number| number));
            let plain = Tensor::from_vec(numbers, &shape, &Device::Cpu)?;
            let bias = wave(output, 3)?;
            let oracle = Weight::new(&plain, Some(&bias), Precision::Exact)?;
            let oracle = conv2d(&x, &oracle, Window::same(side), Finish::Plain)?;
            let scale = oracle.abs()?.max_all()?.to_scalar::<f32>()?;
            for precision in [Precision::Exact, Precision::F16, Precision::Bf16] {
                let weight =
                    Weight::in_blocks(&shape, (block, bytes.clone()), Some(&bias), precision, false)?;
                for engine in engines(precision).filter(|engine| engine.precision() != Precision::Bf16) {
                    let ours = run(engine, &x, [5, 9], &weight, Window::same(side), Finish::Plain)?;
                    let error = (ours - &oracle)?.abs()?.max_all()?.to_scalar::<f32>()?;
                    let allowed = allowed(engine, input * side * side, scale);
                    assert!(
                        error < 2.0 * allowed,
                        "{block:?} {side} {engine:?} {precision:?}: {error} of {scale}"
                    );
                }
            }
        }
    }
    let (shape, short) = ([2, 64], vec![0; 4 * 34 - 1]);
    assert!(Weight::in_blocks(&shape, (Block::Q8_0, short), None, Precision::Exact, false).is_err());
    let (shape, split) = ([2, 48], vec![0; 3 * 34]);
    assert!(Weight::in_blocks(&shape, (Block::Q8_0, split), None, Precision::Exact, false).is_err());
    Ok(())
}

#[test]
fn any_number_of_threads_gives_the_same_bytes() -> Result<()> {
    let x = wave((2, 24, 24, 32), 0)?;
    for precision in [Precision::Exact, Precision::Bf16, Precision::F16] {
        let weight = Weight::new(&wave((200, 32, 3, 3), 1)?, None, precision)?;
        let bytes = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            let y = pool.install(|| conv2d(&x, &weight, Window::same(3), Finish::Plain))?;
            y.flatten_all()?.to_vec1::<f32>()
        };
        let one = bytes(1)?;
        assert!([2, 3, 16].into_iter().map(bytes).all(|other| other.is_ok_and(|other| other == one)));
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_an_error() -> Result<()> {
    let (x, bias) = (wave((1, 4, 4, 3), 0)?, wave(2, 0)?);
    let filters = wave((2, 6, 3, 3), 0)?;
    let weight = Weight::new(&filters, Some(&bias), Precision::Exact)?;
    assert!(conv2d(&x, &weight, Window::same(3), Finish::Plain).is_err(), "other channels");
    assert!(linear(&x, &weight, Finish::Plain).is_err(), "filters are no matrix");
    assert!(Weight::new(&filters, Some(&wave(3, 0)?), Precision::Exact).is_err(), "a longer bias");
    assert!(
        Weight::new(&wave((2, 6, 3, 1), 0)?, None, Precision::Exact).is_err(),
        "filters that are not square"
    );
    assert!(Weight::gated(&wave((3, 6), 0)?, None, Precision::Exact).is_err(), "values without gates");
    let weight = Weight::new(&wave((2, 3), 0)?, Some(&bias), Precision::Exact)?;
    assert!(linear(&x, &weight, Finish::Add(&bias)).is_err(), "a residual of another shape");
    assert!(linear(&x, &weight, Finish::PerImage(&x)).is_err(), "a signal of another shape");
    assert!(linear(&x, &weight, Finish::Geglu).is_err(), "no gates");
    assert!(linear(&wave((1, 6), 0)?, &weight, Finish::Plain).is_err(), "a wider tensor");
    Ok(())
}
