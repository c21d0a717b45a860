//! Products and convolutions of SD 1.5's main shapes on one thread: GFLOP/s of processor time, share of the peak that a
//! loop of nothing but the engine's own instruction reaches on the same thread, and the reference in candle.
//!
//! Processor time and the best of several runs, since machines are shared. An argument filters rows by name.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]
#![expect(clippy::disallowed_methods, reason = "numbers to multiply need no seed")]

use std::hint::black_box;

use candle_core::{Device, Result, Tensor};
use latentia::kernel::attention::{Heads, attention};
use latentia::kernel::block::Block;
use latentia::kernel::matrix::{Engine, Finish, Precision, Weight, Window, conv2d, conv2d_on};
use latentia::kernel::norm::GroupNorm;
use latentia::kernel::{group_norm, use_reference};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Name, batch, side of the picture (0: a matrix, of as many rows as the batch says), kernel, stride, input, output.
const SHAPES: &[(&str, [usize; 6])] = &[
    ("linear 8192x320x320", [8192, 0, 1, 1, 320, 320]),
    ("linear 8192x320x2560", [8192, 0, 1, 1, 320, 2560]),
    ("linear 8192x1280x320", [8192, 0, 1, 1, 1280, 320]),
    ("linear 2048x640x640", [2048, 0, 1, 1, 640, 640]),
    ("linear 512x1280x1280", [512, 0, 1, 1, 1280, 1280]),
    ("linear 154x768x320", [154, 0, 1, 1, 768, 320]),
    ("conv3x3 2x64x64 320 to 320", [2, 64, 3, 1, 320, 320]),
    ("conv3x3 2x32x32 640 to 640", [2, 32, 3, 1, 640, 640]),
    ("conv3x3 2x16x16 1280 to 1280", [2, 16, 3, 1, 1280, 1280]),
    ("conv3x3 2x8x8 1280 to 1280", [2, 8, 3, 1, 1280, 1280]),
    ("conv3x3 /2 2x64x64 320 to 320", [2, 64, 3, 2, 320, 320]),
    ("conv3x3 2x64x64 4 to 320", [2, 64, 3, 1, 4, 320]),
    ("conv3x3 1x64x64 512 to 512", [1, 64, 3, 1, 512, 512]),
    ("conv3x3 1x512x512 128 to 128", [1, 512, 3, 1, 128, 128]),
    ("conv3x3 1x512x512 128 to 3", [1, 512, 3, 1, 128, 3]),
];

/// Name, tokens that ask, tokens that are asked, heads, width of a head; of two pictures.
const ATTENTIONS: &[(&str, [usize; 4])] = &[
    ("attention 4096x4096 8x40", [4096, 4096, 8, 40]),
    ("attention 4096x77 8x40", [4096, 77, 8, 40]),
    ("attention 1024x1024 8x80", [1024, 1024, 8, 80]),
    ("attention 256x256 8x160", [256, 256, 8, 160]),
];

fn main() -> Result<()> {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool");
    pool.install(|| {
        for &engine in Engine::available() {
            println!("peak of {engine:?}: {:.0} GFLOP/s", peak(engine));
        }
        SHAPES.iter().filter(|(name, _)| name.contains(&filter)).try_for_each(row)?;
        ATTENTIONS.iter().filter(|(name, _)| name.contains(&filter)).try_for_each(attention_row)?;
        if "group norm".contains(&filter) {
            norm_row()?;
        }
        Ok(())
    })
}

fn row((name, [batch, side, kernel, stride, input, output]): &(&str, [usize; 6])) -> Result<()> {
    let (height, width, batch) = if *side == 0 { (1, *batch, 1) } else { (*side, *side, *batch) };
    let x = Tensor::randn(0f32, 1.0, (batch, height, width, *input), &Device::Cpu)?;
    let filters = Tensor::randn(0f32, 0.05, (*output, *input, *kernel, *kernel), &Device::Cpu)?;
    let window = Window { stride: *stride, ..Window::same(*kernel) };
    let pixels = batch * height.div_ceil(*stride) * width.div_ceil(*stride);
    let flops = 2.0 * (pixels * input * output * kernel * kernel) as f64;
    print!("{name:32}");
    for &engine in Engine::available() {
        let weight = Weight::new(&filters, None, engine.precision())?;
        let seconds = best(|| black_box(conv2d_on(engine, &x, &weight, window, Finish::Plain)).map(|_| ()))?;
        let rate = flops / seconds / 1e9;
        print!("  {engine:?} {rate:5.0} ({:3.0} %)", 100.0 * rate / peak(engine));
    }
    if *kernel == 3 && *stride == 1 {
        let weight = Weight::filters(&filters, None, Precision::Exact, window)?;
        let seconds = best(|| black_box(conv2d(&x, &weight, window, Finish::Plain)).map(|_| ()))?;
        print!("  as layer {:5.0}", flops / seconds / 1e9);
    }
    let row = input * kernel * kernel;
    if row.is_multiple_of(32) {
        // A scale of 1/256 before 32 small integers.
        let block: Vec<u8> = [0x00, 0x1c].into_iter().chain((0..32).map(|i| i * 7 % 251)).collect();
        let shape = [*output, *input, *kernel, *kernel];
        let blocks = (Block::Q8_0, block.repeat(output * row / 32));
        let weight = Weight::in_blocks(&shape, blocks, None, Engine::fastest(), false)?;
        let seconds = best(|| black_box(conv2d(&x, &weight, window, Finish::Plain)).map(|_| ()))?;
        print!("  Q8_0 {:5.0}", flops / seconds / 1e9);
    }
    use_reference(true);
    let weight = Weight::new(&filters, None, Precision::Exact)?;
    use_reference(false);
    let seconds = best(|| black_box(conv2d(&x, &weight, window, Finish::Plain)).map(|_| ()))?;
    println!("  reference {:4.0}", flops / seconds / 1e9);
    Ok(())
}

fn attention_row((name, [asking, asked, count, depth]): &(&str, [usize; 4])) -> Result<()> {
    let tokens = |length: &usize| Tensor::randn(0f32, 1.0, (2, *length, count * depth), &Device::Cpu);
    let (q, k, v) = (tokens(asking)?, tokens(asked)?, tokens(asked)?);
    let flops = 2.0 * 4.0 * (asking * asked * count * depth) as f64;
    print!("{name:32}");
    for precision in [Precision::F16, Precision::Bf16, Precision::Exact] {
        let heads = Heads { count: *count, causal: false, precision };
        let seconds = best(|| black_box(attention(&q, &k, &v, heads)).map(|_| ()))?;
        print!("  {precision:?} {:5.0}, {:.1} ms", flops / seconds / 1e9, seconds * 1e3);
    }
    println!();
    Ok(())
}

fn norm_row() -> Result<()> {
    for (side, channels) in [(64, 320), (512, 128)] {
        let x = Tensor::randn(0f32, 1.0, (1, side, side, channels), &Device::Cpu)?;
        let scale = Tensor::ones(channels, candle_core::DType::F32, &Device::Cpu)?;
        let norm = GroupNorm { groups: 32, eps: 1e-5, silu: true };
        let seconds = best(|| black_box(group_norm(&x, &scale, &scale, norm)).map(|_| ()))?;
        let rate = (x.elem_count() * 8) as f64 / seconds / 1e9;
        println!(
            "{:32}  {:.2} ms, {rate:.1} GB/s read and written",
            format!("group norm 1x{side}x{side}x{channels}"),
            seconds * 1e3
        );
    }
    Ok(())
}

/// The least processor time of several runs, in seconds.
fn best(mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut least = f64::INFINITY;
    let mut spent = 0.0;
    for _ in 0..40 {
        let began = processor_seconds();
        run()?;
        let took = processor_seconds() - began;
        least = least.min(took);
        spent += took;
        if spent > 0.25 {
            break;
        }
    }
    Ok(least)
}

/// What this thread has computed so far; elsewhere than on Unix, what the clock says.
#[cfg(unix)]
#[expect(unsafe_code, reason = "the standard library does not know a thread's time")]
fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[cfg(not(unix))]
fn processor_seconds() -> f64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0.0, |since| since.as_secs_f64())
}

/// GFLOP/s of a loop of the engine's instruction on registers alone.
fn peak(engine: Engine) -> f64 {
    const ROUNDS: usize = 50_000;
    let (instruction, flops): (fn(usize), f64) = match engine {
        #[cfg(target_arch = "x86_64")]
        Engine::Amx => (loops::amx, 4.0 * 16.0 * 16.0 * 64.0),
        #[cfg(target_arch = "x86_64")]
        Engine::Avx512Fp16 => (loops::avx512_fp16, 24.0 * 64.0),
        #[cfg(target_arch = "x86_64")]
        Engine::Avx512Bf16 => (loops::avx512_bf16, 24.0 * 64.0),
        #[cfg(target_arch = "x86_64")]
        Engine::Avx512 => (loops::avx512, 24.0 * 32.0),
        #[cfg(target_arch = "x86_64")]
        Engine::Avx2 | Engine::Portable => (loops::avx2, 12.0 * 16.0),
        #[cfg(not(target_arch = "x86_64"))]
        _ => return f64::NAN,
    };
    let seconds = best(|| {
        instruction(ROUNDS);
        Ok(())
    });
    ROUNDS as f64 * flops / seconds.unwrap_or(f64::NAN) / 1e9
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, clippy::wildcard_imports, reason = "the processor's own instructions")]
mod loops {
    use std::arch::asm;
    use std::arch::x86_64::*;
    use std::hint::black_box;

    /// Each round updates as many registers as the engine's kernel holds.
    macro_rules! rounds {
        ($name:ident, $feature:literal, $registers:literal, $zero:ident, $step:expr) => {
            pub(super) fn $name(rounds: usize) {
                #[target_feature(enable = $feature)]
                fn inner(rounds: usize) {
                    let mut held = [$zero(); $registers];
                    for _ in 0..rounds {
                        for held in &mut held {
                            *held = $step(*held);
                        }
                    }
                    black_box(held);
                }
                // SAFETY: called for an engine that was found on this processor.
                unsafe { inner(rounds) }
            }
        };
    }
    rounds!(avx512, "avx512f", 24, _mm512_setzero_ps, |held| {
        let one = _mm512_set1_ps(black_box_once());
        _mm512_fmadd_ps(one, one, held)
    });
    rounds!(avx2, "avx2,fma", 12, _mm256_setzero_ps, |held| {
        let one = _mm256_set1_ps(black_box_once());
        _mm256_fmadd_ps(one, one, held)
    });
    rounds!(avx512_bf16, "avx512f,avx512bf16", 24, _mm512_setzero_ps, |held| {
        // SAFETY: a register of bits is a register of bf16.
        let ones = unsafe { std::mem::transmute::<__m512i, __m512bh>(_mm512_set1_epi32(0x3f80_3f80)) };
        _mm512_dpbf16_ps(held, ones, ones)
    });

    fn black_box_once() -> f32 {
        0.999
    }

    pub(super) fn avx512_fp16(rounds: usize) {
        #[target_feature(enable = "avx512f,avx512fp16")]
        fn inner(rounds: usize) {
            macro_rules! each {
                ($($sum:literal)*) => {
                    concat!($("vfmadd231ph zmm", $sum, ", zmm30, zmm31\n"),*)
                };
            }
            // SAFETY: touches registers that the compiler may lose; numbers are zero or small.
            unsafe {
                asm!(
                    "2:",
                    each!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23),
                    "dec rcx",
                    "jnz 2b",
                    inout("rcx") rounds => _,
                    clobber_abi("C"),
                );
            }
        }
        // SAFETY: called for an engine that was found on this processor.
        unsafe { inner(rounds) }
    }

    pub(super) fn amx(rounds: usize) {
        let mut shape = [0u8; 64];
        shape[0] = 1;
        for tile in 0..8 {
            shape[16 + 2 * tile] = 64;
            shape[48 + tile] = 16;
        }
        // SAFETY: the engine was found, so the process may use the tiles; they are released at the end.
        unsafe {
            asm!(
                "ldtilecfg [{shape}]",
                "2:",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "dec {rounds}",
                "jnz 2b",
                "tilerelease",
                shape = in(reg) shape.as_ptr(),
                rounds = inout(reg) rounds => _,
            );
        }
    }
}
