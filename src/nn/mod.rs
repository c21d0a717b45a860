//! Layers that any family may use, channels-last throughout.
//!
//! A layer is a struct read from a [`VarBuilder`] and a `forward`, and fused forms of it that callers ask for by name.
//! Activations and small vectors (biases, norms) are f32 on the CPU whatever the weights are in; matrices of bf16 stay
//! bf16 and round what they are multiplied with, sums are f32 always.

mod adapted;
mod attention;
mod conv;
mod embed;
mod linear;
mod norm;
mod resnet;
mod sample;

pub use attention::{Attention, AttentionShape, KeyValue, heads_of};
pub use conv::Conv2d;
pub use embed::{TimeEmbedding, sinusoid};
pub use linear::{Geglu, Linear};
pub use norm::{GroupNorm, LayerNorm};
pub use resnet::{Resnet, ResnetShape};
pub use sample::{Downsample, Upsample, double};

pub use crate::kernel::attention::{Heads, attention as attend};
pub use crate::kernel::matrix::{Activation, Window};

use candle_core::DType;

use crate::kernel::matrix::{Engine, Precision};
use crate::weights::VarBuilder;

/// What a network of this builder computes in: f32 on the CPU, the weights' dtype elsewhere.
pub fn activation_dtype(vb: &VarBuilder) -> DType {
    if vb.device().is_cpu() { DType::F32 } else { vb.dtype() }
}

/// The type of weights that this processor computes with fastest.
pub fn fastest_dtype() -> DType {
    match Engine::fastest() {
        Precision::Exact => DType::F32,
        Precision::Bf16 => DType::BF16,
        Precision::F16 => DType::F16,
    }
}

/// What products of this builder's matrices are computed in on the CPU: in the type of the weights.
fn precision(vb: &VarBuilder) -> Precision {
    Precision::of(vb.dtype())
}
