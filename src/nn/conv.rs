//! Convolution as a layer.

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;

use super::activation_dtype;
use crate::kernel::{Window, conv2d, widen};

/// Two-dimensional convolution plus bias, channels-last.
#[derive(Debug, Clone)]
pub struct Conv2d {
    weight: Tensor, // [K·K·I, O]
    bias: Tensor,   // [O]
    window: Window,
}

impl Conv2d {
    /// Reads `weight` `[O, I, K, K]` and `bias` `[O]`.
    pub fn new(input: usize, output: usize, window: Window, vb: &VarBuilder) -> Result<Self> {
        let bias = vb.get(output, "bias")?.to_dtype(activation_dtype(vb))?;
        Self::of(input, output, window, vb, bias)
    }

    /// Reads `weight` `[O, I, K, K]`; the bias is zero.
    pub fn without_bias(input: usize, output: usize, window: Window, vb: &VarBuilder) -> Result<Self> {
        let bias = Tensor::zeros(output, activation_dtype(vb), vb.device())?;
        Self::of(input, output, window, vb, bias)
    }

    fn of(input: usize, output: usize, window: Window, vb: &VarBuilder, bias: Tensor) -> Result<Self> {
        let size = window.size;
        let weight = vb.get((output, input, size, size), "weight")?;
        let weight = weight.permute((2, 3, 1, 0))?.contiguous()?.reshape((size * size * input, output))?;
        Ok(Self { weight, bias, window })
    }

    /// # Shapes
    /// `x` `[B, H, W, I]` → `[B, H', W', O]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        conv2d(x, &widen(&self.weight, x.dtype())?, &self.bias, self.window)
    }
}
