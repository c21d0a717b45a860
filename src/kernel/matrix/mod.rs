//! The matrix product and the convolution, which are one operator: channels-last, with what follows fused in.
//!
//! y = finish(x·Wᵀ + bias). The weight is packed once at load ([`Weight`]); `band` lays a part of the picture so that
//! a convolution reads like a product; `cpu` names the instruction sets (`amx`, `avx512`, `avx2`, `portable`), `job`
//! cuts the work for the threads, `half` rounds, `winograd` spares multiplications of 3x3, `finish` writes. `reference` is the same in plain candle.

mod band;
mod blocks;
pub mod cpu;
mod finish;
mod half;
mod job;
mod pack;
mod portable;
mod reference;
mod weight;
mod window;
mod winograd;

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_fp16;
#[cfg(test)]
mod tests;

pub use cpu::Engine;
pub use finish::Activation;
pub(in crate::kernel) use half::{Half, largest, widen};
pub(in crate::kernel) use weight::{BLOCK, Row};
pub use weight::{Kept, Precision, Weight, packed_bytes};
pub use window::Window;

use ::half::{bf16, f16};
use candle_core::{Layout, Result, Storage, Tensor};

use super::Shared;
use band::Picture;
use finish::{Finisher, Then};
use job::Widened;
use weight::Store;

/// What follows the bias.
#[derive(Debug, Clone, Copy)]
pub enum Finish<'a> {
    /// Nothing.
    Plain,
    /// A tensor of the result's shape is added.
    Add(&'a Tensor),
    /// A signal `[B, O]`, one row for all pixels of an image, is added.
    PerImage(&'a Tensor),
    /// A function of every number.
    Apply(Activation),
    /// value·gelu(gate), of a weight packed by [`Weight::gated`]; half as many channels come out.
    Geglu,
}

/// A matrix over the last dimension.
///
/// # Shapes
/// `x` `[…, I]` → `[…, O]`. With [`Finish::PerImage`] the first dimension counts images.
pub fn linear(x: &Tensor, weight: &Weight, finish: Finish<'_>) -> Result<Tensor> {
    let mut shape = x.dims().to_vec();
    if shape.last() != Some(&weight.sizes.input) {
        candle_core::bail!("{shape:?} does not fit a weight of {:?}", weight.sizes)
    }
    let images = shape.first().copied().unwrap_or(1).max(1);
    let pixels = x.elem_count() / images / weight.sizes.input.max(1);
    let y = conv2d(&x.reshape((images, 1, pixels, ()))?, weight, Window::same(1), finish)?;
    if let Some(last) = shape.last_mut() {
        *last = weight.width();
    }
    y.reshape(shape)
}

/// A convolution.
///
/// # Shapes
/// `x` `[B, H, W, I]` → `[B, H', W', O]`.
pub fn conv2d(x: &Tensor, weight: &Weight, window: Window, finish: Finish<'_>) -> Result<Tensor> {
    let (_, height, width, _) = x.dims4()?;
    conv2d_seen(x, [height, width], weight, window, finish)
}

/// A convolution of the picture with every pixel repeated to a square of four, which itself is never made.
///
/// # Shapes
/// `x` `[B, H, W, I]`, seen as `[B, h, w, I]` where `seen` is `[h, w]`, 2H or 2H − 1 and 2W or 2W − 1.
pub fn conv2d_doubled(
    x: &Tensor,
    seen: [usize; 2],
    weight: &Weight,
    window: Window,
    finish: Finish<'_>,
) -> Result<Tensor> {
    let (_, height, width, _) = x.dims4()?;
    if seen[0].div_ceil(2) != height || seen[1].div_ceil(2) != width {
        candle_core::bail!("{height}x{width} pixels cannot be doubled to {}x{}", seen[0], seen[1])
    }
    conv2d_seen(x, seen, weight, window, finish)
}

fn conv2d_seen(
    x: &Tensor,
    seen: [usize; 2],
    weight: &Weight,
    window: Window,
    finish: Finish<'_>,
) -> Result<Tensor> {
    let sizes = weight.sizes;
    let (_, _, _, input) = x.dims4()?;
    if input != sizes.input || window.size != sizes.side || window.stride == 0 {
        candle_core::bail!("{input} channels under {window:?} do not fit a weight of {sizes:?}")
    }
    if sizes.gated != matches!(finish, Finish::Geglu) {
        candle_core::bail!("a gated weight and Finish::Geglu go together")
    }
    match &*weight.store {
        Store::Plain { weight, bias } => reference::conv2d(x, seen, (weight, bias), sizes, window, finish),
        _ => run(Engine::best(sizes.precision), x, seen, weight, window, finish),
    }
}

/// A convolution on a given engine, for benches; `x` and `weight` as [`conv2d`] takes them, on the CPU.
pub fn conv2d_on(
    engine: Engine,
    x: &Tensor,
    weight: &Weight,
    window: Window,
    finish: Finish<'_>,
) -> Result<Tensor> {
    let (_, height, width, _) = x.dims4()?;
    run(engine, x, [height, width], weight, window, finish)
}

/// The same on a given engine.
fn run(
    engine: Engine,
    x: &Tensor,
    seen: [usize; 2],
    weight: &Weight,
    window: Window,
    finish: Finish<'_>,
) -> Result<Tensor> {
    let (images, height, width, input) = x.dims4()?;
    let (Some(rows), Some(columns)) = (window.output(seen[0]), window.output(seen[1])) else {
        candle_core::bail!("a {0}x{0} kernel does not fit {1}x{2} pixels", window.size, seen[0], seen[1])
    };
    let shape = (images, rows, columns, weight.width());
    super::count(images * rows * columns * weight.sizes.output * weight.sizes.side * weight.sizes.stretch());
    let then = match finish {
        Finish::Add(more) if more.elem_count() != images * rows * columns * shape.3 => {
            candle_core::bail!("{:?} cannot be added to {shape:?}", more.dims())
        }
        Finish::PerImage(signal) if signal.dims() != [images, shape.3] => {
            candle_core::bail!("a signal of {:?} for {shape:?}", signal.dims())
        }
        Finish::Add(tensor) | Finish::PerImage(tensor) => Some(tensor.contiguous()?),
        _ => None,
    };
    let x = x.contiguous()?;
    let (storage, layout) = x.storage_and_layout();
    let extra = then.as_ref().map(Tensor::storage_and_layout);
    let extra = match &extra {
        Some((storage, layout)) => numbers(storage, layout)?,
        None => &[],
    };
    let then = match finish {
        Finish::Plain => Then::Nothing,
        Finish::Add(_) => Then::Add(extra),
        Finish::PerImage(_) => Then::PerImage { signal: extra, pixels: rows * columns },
        Finish::Apply(activation) => Then::Apply(activation),
        Finish::Geglu => Then::Geglu,
    };
    let picture = Picture {
        x: numbers(&storage, layout)?,
        stored: [height, width],
        seen,
        input,
        window,
        out: [rows, columns],
    };
    let count = images * rows * columns * shape.3;
    let mut y = Vec::with_capacity(count);
    if count > 0 {
        let output = Shared(y.as_mut_ptr());
        let finisher = |bias| Finisher { then, bias, width: shape.3, output };
        product(engine, &picture, images, weight, finisher)?;
    }
    #[expect(unsafe_code, reason = "the output is written before it has a length")]
    // SAFETY: the tasks cover every pixel and every panel, and so every element, exactly once.
    unsafe {
        y.set_len(count);
    }
    Tensor::from_vec(y, shape, &candle_core::Device::Cpu)
}

/// The same with the tensors unwrapped.
fn product<'a>(
    engine: Engine,
    picture: &Picture<'_>,
    images: usize,
    weight: &'a Weight,
    finisher: impl Fn(&'a [f32]) -> Finisher<'a>,
) -> Result<()> {
    let sizes = weight.sizes;
    match (&*weight.store, engine.precision()) {
        (Store::F32(panels), _) => {
            job::exact(engine, picture, images, (panels, sizes.stretch()), None, &finisher(&panels.bias));
        }
        (Store::Bf16(panels), Precision::Bf16) => {
            job::halved(engine, picture, images, panels, sizes, &finisher(&panels.bias));
        }
        (Store::F16(panels), Precision::F16) => {
            job::halved(engine, picture, images, panels, sizes, &finisher(&panels.bias));
        }
        (Store::Bf16(panels), _) => {
            let (wide, round) = ((&Widened(panels), sizes.padded_stretch()), Some(job::round_to_bf16 as _));
            job::exact(engine, picture, images, wide, round, &finisher(&panels.bias));
        }
        (Store::F16(panels), _) => {
            let wide = (&Widened(panels), sizes.padded_stretch());
            job::exact(engine, picture, images, wide, None, &finisher(&panels.bias));
        }
        (Store::Blocks(blocks), Precision::Exact) => {
            job::exact(engine, picture, images, (blocks, sizes.stretch()), None, &finisher(&blocks.bias));
        }
        (Store::Blocks(blocks), Precision::Bf16) => {
            job::halved::<bf16>(engine, picture, images, blocks, sizes, &finisher(&blocks.bias));
        }
        (Store::Blocks(blocks), Precision::F16) => {
            job::halved::<f16>(engine, picture, images, blocks, sizes, &finisher(&blocks.bias));
        }
        (Store::Places(panels), _) if picture.window == Window::same(3) => {
            winograd::product(engine, picture, images, panels, &finisher(&panels.bias));
        }
        (Store::Places(_), _) => {
            candle_core::bail!("a weight packed for {:?} under {:?}", Window::same(3), picture.window)
        }
        (Store::Plain { .. }, _) => candle_core::bail!("a plain weight runs on no engine"),
    }
    Ok(())
}

/// The numbers of a contiguous tensor on the CPU.
fn numbers<'a>(storage: &'a Storage, layout: &Layout) -> Result<&'a [f32]> {
    match storage {
        Storage::Cpu(storage) => super::slice(storage, layout),
        _ => candle_core::bail!("a tensor is not on the CPU"),
    }
}
