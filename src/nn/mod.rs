//! Layers that any family may use, channels-last throughout.
//!
//! A layer is a struct read from a `VarBuilder` and a `forward`, and fused forms of it that callers ask for by name.
//! Activations and small vectors (biases, norms) are f32 on the CPU whatever the weights are in; matrices of bf16 stay
//! bf16 and round what they are multiplied with, sums are f32 always.

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

use candle_core::{DType, Result, Tensor};
use candle_nn::VarBuilder;

use crate::kernel::block::Block;
use crate::kernel::matrix::{Engine, Precision, Weight};

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

/// Reads `weight` of this shape as the kernels want it: in blocks of small integers where it comes so.
fn weight(shape: &[usize], bias: Option<&Tensor>, form: Form, vb: &VarBuilder) -> Result<Weight> {
    const BLOCKS: &str = "weight.blocks";
    let (gated, precision) = (matches!(form, Form::Gated), precision(vb));
    if vb.device().is_cpu() && vb.contains_tensor(BLOCKS) {
        let bytes = vb.get_with_hints_dtype(shape, BLOCKS, candle_nn::Init::Const(0.0), DType::U8)?;
        let mut bytes = bytes.to_vec1::<u8>()?;
        let Some(block) = bytes.first().and_then(|kind| Block::of(u32::from(*kind))) else {
            candle_core::bail!("`{}` has blocks of no known type", vb.prefix())
        };
        bytes.remove(0);
        return Weight::in_blocks(shape, (block, bytes), bias, precision, gated);
    }
    let weight = vb.get(shape, "weight")?;
    match form {
        Form::Matrix => Weight::new(&weight, bias, precision),
        Form::Gated => Weight::gated(&weight, bias, precision),
        Form::Filters(window) => Weight::filters(&weight, bias, precision, window),
    }
}

/// What a weight is for.
#[derive(Debug, Clone, Copy)]
enum Form {
    Matrix,
    Gated,
    Filters(Window),
}

/// What products of this builder's matrices are computed in on the CPU: in the type of the weights.
fn precision(vb: &VarBuilder) -> Precision {
    Precision::of(vb.dtype())
}
