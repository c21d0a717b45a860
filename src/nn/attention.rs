//! Multi-head attention as a layer.

use candle_core::{Result, Tensor};

use super::Linear;
use crate::kernel::attention::{self, Heads};
use crate::kernel::matrix::Precision;
use crate::weights::VarBuilder;

/// Widths of an attention layer.
#[derive(Debug, Clone, Copy)]
pub struct AttentionShape {
    /// Width of the tokens that ask.
    pub width: usize,
    /// Width of the tokens that are asked.
    pub context: usize,
    /// Heads, which divide `width`.
    pub heads: usize,
}

/// Queries from one sequence, keys and values from another or the same.
#[derive(Debug, Clone)]
pub struct Attention {
    query: Linear,
    told: KeyValue,
    output: Linear,
    heads: Heads,
}

/// The projections of the sequence that is asked; for text they are computed once for a whole walk.
#[derive(Debug, Clone)]
pub struct KeyValue {
    key: Linear,
    value: Linear,
}

impl KeyValue {
    /// # Shapes
    /// `context` `[B, M, C]` → key and value, each `[B, M, D]`.
    pub fn project(&self, context: &Tensor) -> Result<[Tensor; 2]> {
        Ok([self.key.forward(context)?, self.value.forward(context)?])
    }
}

impl Attention {
    /// Reads diffusers' names: `to_q`, `to_k`, `to_v` with or without bias, and `to_out.0`.
    pub fn new(shape: AttentionShape, bias: bool, vb: &VarBuilder) -> Result<Self> {
        let AttentionShape { width, context, heads } = shape;
        let read = if bias { Linear::new } else { Linear::without_bias };
        Ok(Self {
            query: read(width, width, &vb.pp("to_q"))?,
            told: KeyValue {
                key: read(context, width, &vb.pp("to_k"))?,
                value: read(context, width, &vb.pp("to_v"))?,
            },
            output: Linear::new(width, width, &vb.pp("to_out.0"))?,
            heads: heads_of(heads, false, vb),
        })
    }

    /// The part that depends on the context only.
    pub fn key_value(&self) -> &KeyValue {
        &self.told
    }

    /// Every token asks every token.
    ///
    /// # Shapes
    /// `x` `[B, L, D]`, `around` as `x` in any grouping, which is added → as `x`.
    pub fn forward(&self, x: &Tensor, around: &Tensor) -> Result<Tensor> {
        self.over(x, &self.told.project(x)?, around)
    }

    /// Every token asks tokens whose keys and values are known.
    ///
    /// # Shapes
    /// `x` `[B, L, D]`, `told` `[B, M, D]` each, `around` as `x` in any grouping, which is added → as `x`.
    pub fn over(&self, x: &Tensor, told: &[Tensor; 2], around: &Tensor) -> Result<Tensor> {
        let [key, value] = told;
        let mixed = attention::attention(&self.query.forward(x)?, key, value, self.heads)?;
        self.output.forward_add(&mixed, around)
    }
}

/// Heads whose products are computed as this builder's matrices are.
pub fn heads_of(count: usize, causal: bool, vb: &VarBuilder) -> Heads {
    // A soft-maxed share has little to lose, but a causal mask goes with short texts that cost nothing.
    let precision = if causal { Precision::Exact } else { super::precision(vb) };
    Heads { count, causal, precision }
}
