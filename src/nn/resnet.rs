//! The residual block that image networks and autoencoders are made of.

use candle_core::{Result, Tensor};

use super::{Conv2d, GroupNorm, Linear, Window};
use crate::weights::VarBuilder;

/// Sizes of a residual block.
#[derive(Debug, Clone, Copy)]
pub struct ResnetShape {
    /// Channels that come in.
    pub input: usize,
    /// Channels that go out.
    pub output: usize,
    /// Width of the time signal, `None` in an autoencoder.
    pub time: Option<usize>,
    /// Groups of the norms.
    pub groups: usize,
    /// Epsilon of the norms.
    pub eps: f64,
}

/// norm, SiLU, conv, plus time, norm, SiLU, conv, plus what came in.
///
/// # Source
/// Ho et al. 2020 (arXiv 2006.11239) appendix B; names of `huggingface/diffusers`
/// `src/diffusers/models/resnet.py` `ResnetBlock2D`.
#[derive(Debug, Clone)]
pub struct Resnet {
    norm1: GroupNorm,
    conv1: Conv2d,
    time: Option<Linear>,
    norm2: GroupNorm,
    conv2: Conv2d,
    shortcut: Option<Conv2d>,
}

impl Resnet {
    /// Reads `norm1`, `conv1`, `time_emb_proj`, `norm2`, `conv2`, and `conv_shortcut` where the widths differ.
    pub fn new(shape: ResnetShape, vb: &VarBuilder) -> Result<Self> {
        let ResnetShape { input, output, time, groups, eps } = shape;
        let time = match time {
            Some(width) => Some(Linear::new(width, output, &vb.pp("time_emb_proj"))?),
            None => None,
        };
        let shortcut = if input == output {
            None
        } else {
            Some(Conv2d::new(input, output, Window::same(1), &vb.pp("conv_shortcut"))?)
        };
        Ok(Self {
            norm1: GroupNorm::new(groups, input, eps, &vb.pp("norm1"))?,
            conv1: Conv2d::new(input, output, Window::same(3), &vb.pp("conv1"))?,
            time,
            norm2: GroupNorm::new(groups, output, eps, &vb.pp("norm2"))?,
            conv2: Conv2d::new(output, output, Window::same(3), &vb.pp("conv2"))?,
            shortcut,
        })
    }

    /// # Shapes
    /// `x` `[B, H, W, I]`, `time` `[B, D]` after its SiLU → `[B, H, W, O]`.
    pub fn forward(&self, x: &Tensor, time: Option<&Tensor>) -> Result<Tensor> {
        // Each value takes the place of the last, which leaves memory.
        let mut h = self.norm1.forward_silu(x)?;
        h = match (&self.time, time) {
            (Some(project), Some(time)) => self.conv1.forward_told(&h, &project.forward(time)?)?,
            _ => self.conv1.forward(&h)?,
        };
        h = self.norm2.forward_silu(&h)?;
        match &self.shortcut {
            Some(shortcut) => self.conv2.forward_add(&h, &shortcut.forward(x)?),
            None => self.conv2.forward_add(&h, x),
        }
    }
}
