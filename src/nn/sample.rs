//! Halving and doubling of pictures.

use candle_core::{Result, Tensor};

use super::{Conv2d, Window};
use crate::weights::VarBuilder;

/// Half the size by a convolution of stride 2.
#[derive(Debug, Clone)]
pub struct Downsample {
    conv: Conv2d,
}

impl Downsample {
    /// Reads `conv` `[C, C, 3, 3]`. `before` zeros stand left and above: 1 in denoisers, 0 in autoencoders.
    pub fn new(channels: usize, before: usize, vb: &VarBuilder) -> Result<Self> {
        let window = Window { size: 3, stride: 2, before, after: 1 };
        Ok(Self { conv: Conv2d::new(channels, channels, window, &vb.pp("conv"))? })
    }

    /// # Shapes
    /// `[B, H, W, C]` → `[B, ⌈H/2⌉, ⌈W/2⌉, C]` (⌊·⌋ without zeros before).
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.conv.forward(x)
    }
}

/// Double the size by repetition, then a convolution.
#[derive(Debug, Clone)]
pub struct Upsample {
    conv: Conv2d,
}

impl Upsample {
    /// Reads `conv` `[C, C, 3, 3]`.
    pub fn new(channels: usize, vb: &VarBuilder) -> Result<Self> {
        Ok(Self { conv: Conv2d::new(channels, channels, Window::same(3), &vb.pp("conv"))? })
    }

    /// # Shapes
    /// `[B, H, W, C]` → `[B, h, w, C]` where `size` is `(h, w)`, 2H or 2H − 1 and 2W or 2W − 1.
    pub fn forward(&self, x: &Tensor, size: (usize, usize)) -> Result<Tensor> {
        self.conv.forward_doubled(x, size.into())
    }
}

/// Every pixel four times.
///
/// # Shapes
/// `[B, H, W, C]` → `[B, 2H, 2W, C]`.
pub fn double(x: &Tensor) -> Result<Tensor> {
    let (b, h, w, c) = x.dims4()?;
    x.reshape((b, h, 1, w, 1, c))?.broadcast_as((b, h, 2, w, 2, c))?.reshape((b, 2 * h, 2 * w, c))
}
