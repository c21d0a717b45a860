//! Layers that any family may use, channels-last throughout.
//!
//! A layer is a struct read from a `VarBuilder` and a `forward`. Matrices stay in the dtype they were opened with;
//! small vectors (biases, norms) take the dtype of the activations, which is f32 on the CPU, so that half-precision
//! weights halve the memory and nothing is computed in half precision where the CPU would be slow and wrong.

mod attention;
mod conv;
mod embed;
mod linear;
mod norm;
mod resnet;
mod sample;

pub use attention::{Attention, AttentionShape, KeyValue};
pub use conv::Conv2d;
pub use embed::{TimeEmbedding, sinusoid};
pub use linear::Linear;
pub use norm::{GroupNorm, LayerNorm};
pub use resnet::{Resnet, ResnetShape};
pub use sample::{Downsample, Upsample, double};

pub use crate::kernel::Window;
pub use crate::kernel::attention::{Heads, attention as attend};

use candle_core::{DType, Result, Tensor};
use candle_nn::VarBuilder;

/// What a network of this builder computes in: f32 on the CPU, the weights' dtype elsewhere.
pub fn activation_dtype(vb: &VarBuilder) -> DType {
    if vb.device().is_cpu() { DType::F32 } else { vb.dtype() }
}

/// The activation functions that configs name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// x·σ(x).
    Silu,
    /// x·Φ(x) with the error function.
    Gelu,
    /// x·σ(1.702x), CLIP's.
    QuickGelu,
    /// max(x, 0).
    Relu,
}

impl Activation {
    /// The spelling of transformers' and diffusers' configs.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "silu" | "swish" => Self::Silu,
            "gelu" => Self::Gelu,
            "quick_gelu" => Self::QuickGelu,
            "relu" => Self::Relu,
            _ => return None,
        })
    }

    /// Applies it to every element.
    pub fn forward(self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Silu => x.silu(),
            Self::Gelu => x.gelu_erf(),
            Self::QuickGelu => x * candle_nn::ops::sigmoid(&(x * 1.702)?)?,
            Self::Relu => x.relu(),
        }
    }
}
