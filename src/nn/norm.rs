//! Normalisation layers.

use candle_core::{Result, Tensor};

use super::activation_dtype;
use crate::kernel;
use crate::weights::VarBuilder;

/// Group normalisation over a whole picture, channels-last.
#[derive(Debug, Clone)]
pub struct GroupNorm {
    weight: Tensor, // [C]
    bias: Tensor,   // [C]
    groups: usize,
    eps: f64,
}

impl GroupNorm {
    /// Reads `weight` and `bias` `[C]`.
    pub fn new(groups: usize, channels: usize, eps: f64, vb: &VarBuilder) -> Result<Self> {
        let dtype = activation_dtype(vb);
        Ok(Self {
            weight: vb.get(channels, "weight")?.to_dtype(dtype)?,
            bias: vb.get(channels, "bias")?.to_dtype(dtype)?,
            groups,
            eps,
        })
    }

    /// # Shapes
    /// `x` `[B, …, C]` → the same.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.run(x, false)
    }

    /// Normalises and applies SiLU in one pass.
    pub fn forward_silu(&self, x: &Tensor) -> Result<Tensor> {
        self.run(x, true)
    }

    fn run(&self, x: &Tensor, silu: bool) -> Result<Tensor> {
        let norm = kernel::norm::GroupNorm { groups: self.groups, eps: self.eps, silu };
        kernel::group_norm(x, &self.weight, &self.bias, norm)
    }
}

/// Layer normalisation over the last dimension.
#[derive(Debug, Clone)]
pub struct LayerNorm {
    weight: Tensor, // [D]
    bias: Tensor,   // [D]
    eps: f64,
}

impl LayerNorm {
    /// Reads `weight` and `bias` `[D]`.
    pub fn new(width: usize, eps: f64, vb: &VarBuilder) -> Result<Self> {
        let dtype = activation_dtype(vb);
        Ok(Self {
            weight: vb.get(width, "weight")?.to_dtype(dtype)?,
            bias: vb.get(width, "bias")?.to_dtype(dtype)?,
            eps,
        })
    }

    /// # Shapes
    /// `x` `[…, D]` → the same.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        kernel::layer_norm(x, &self.weight, &self.bias, self.eps)
    }
}
