//! Products and convolutions of SD 1.5's main shapes on one thread: GFLOP/s of processor time, share of the peak that a
//! loop of nothing but the engine's own instruction reaches on the same thread, and the reference in candle.
//!
//! Processor time and the best of several runs, since machines are shared. An argument filters rows by name.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]
#![expect(clippy::disallowed_methods, reason = "numbers to multiply need no seed")]

mod peak;

use std::hint::black_box;
use std::sync::Mutex;

use candle_core::{Device, Result, Tensor};
use latentia::kernel::attention::{Heads, attention};
use latentia::kernel::block::Block;
use latentia::kernel::matrix::{Engine, Finish, Precision, Weight, Window, conv2d, conv2d_on};
use latentia::kernel::norm::GroupNorm;
use latentia::kernel::{group_norm, use_reference};
use peak::{best, peak};
use serde_json::{Value, json};

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
        Ok::<_, candle_core::Error>(())
    })?;
    keep();
    Ok(())
}

/// All that was measured, for `LATENTIA_BASELINE`.
static MEASURED: Mutex<Vec<Value>> = Mutex::new(Vec::new());

/// Remembers one rate in GFLOP/s.
fn measured(name: &str, with: &str, rate: f64) {
    let row = json!({ "name": name, "with": with, "gflops": (rate * 10.0).round() / 10.0 });
    MEASURED.lock().expect("no thread panicked").push(row);
}

/// Writes what was measured to the file that `LATENTIA_BASELINE` names: the baseline of this device.
fn keep() {
    let Some(file) = std::env::var_os("LATENTIA_BASELINE") else { return };
    let rows = MEASURED.lock().expect("no thread panicked");
    let peaks: serde_json::Map<String, Value> = Engine::available()
        .iter()
        .map(|&engine| (format!("{engine:?}"), json!(peak(engine).round())))
        .collect();
    let text = json!({ "threads": 1, "peak_gflops": peaks, "rows": *rows });
    std::fs::write(file, format!("{text:#}\n")).expect("the baseline is written");
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
        measured(name, &format!("{engine:?}"), rate);
    }
    if *kernel == 3 && *stride == 1 {
        let weight = Weight::filters(&filters, None, Precision::Exact, window)?;
        let seconds = best(|| black_box(conv2d(&x, &weight, window, Finish::Plain)).map(|_| ()))?;
        print!("  as layer {:5.0}", flops / seconds / 1e9);
        measured(name, "as layer, f32", flops / seconds / 1e9);
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
        measured(name, "Q8_0", flops / seconds / 1e9);
    }
    use_reference(true);
    let weight = Weight::new(&filters, None, Precision::Exact)?;
    use_reference(false);
    let seconds = best(|| black_box(conv2d(&x, &weight, window, Finish::Plain)).map(|_| ()))?;
    println!("  reference {:4.0}", flops / seconds / 1e9);
    measured(name, "reference", flops / seconds / 1e9);
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
        measured(name, &format!("{precision:?}"), flops / seconds / 1e9);
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
