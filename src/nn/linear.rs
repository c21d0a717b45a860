//! A matrix and a bias over the last dimension.

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;

use super::activation_dtype;
use crate::kernel::{Window, conv2d, widen};

/// y = x·Wᵀ + b.
#[derive(Debug, Clone)]
pub struct Linear {
    weight: Tensor, // [I, O], turned once so that every product reads rows
    bias: Tensor,   // [O]
}

impl Linear {
    /// Reads `weight` `[O, I]` and `bias` `[O]`.
    pub fn new(input: usize, output: usize, vb: &VarBuilder) -> Result<Self> {
        Self::of(input, output, vb, true)
    }

    /// Reads `weight` `[O, I]`; the bias is zero.
    pub fn without_bias(input: usize, output: usize, vb: &VarBuilder) -> Result<Self> {
        Self::of(input, output, vb, false)
    }

    /// Reads `weight` `[O, I, 1, 1]` and `bias` `[O]`: a convolution that sees one pixel.
    pub fn pointwise(input: usize, output: usize, vb: &VarBuilder) -> Result<Self> {
        let weight = vb.get((output, input, 1, 1), "weight")?.reshape((output, input))?.t()?.contiguous()?;
        Ok(Self { weight, bias: vb.get(output, "bias")?.to_dtype(activation_dtype(vb))? })
    }

    fn of(input: usize, output: usize, vb: &VarBuilder, bias: bool) -> Result<Self> {
        let weight = vb.get((output, input), "weight")?.t()?.contiguous()?;
        let dtype = activation_dtype(vb);
        let bias = if bias {
            vb.get(output, "bias")?.to_dtype(dtype)?
        } else {
            Tensor::zeros(output, dtype, vb.device())?
        };
        Ok(Self { weight, bias })
    }

    /// # Shapes
    /// `x` `[…, I]` → `[…, O]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (input, output) = self.weight.dims2()?;
        let mut shape = x.dims().to_vec();
        let rows = x.elem_count() / input;
        let weight = widen(&self.weight, x.dtype())?;
        let y = conv2d(&x.reshape((1, 1, rows, input))?, &weight, &self.bias, Window::same(1))?;
        if let Some(last) = shape.last_mut() {
            *last = output;
        }
        y.reshape(shape)
    }
}
