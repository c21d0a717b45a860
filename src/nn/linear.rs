//! A matrix and a bias over the last dimension.

use candle_core::{Result, Tensor};

use super::adapted::{Adapted, Form};
use super::{Activation, precision};
use crate::kernel::matrix::{Finish, Precision};
use crate::weights::VarBuilder;

/// y = x·Wᵀ + b.
#[derive(Debug, Clone)]
pub struct Linear {
    weight: Adapted, // [O, I]
}

impl Linear {
    /// Reads `weight` `[O, I]` and `bias` `[O]`.
    pub fn new(input: usize, output: usize, vb: &VarBuilder) -> Result<Self> {
        Self::of(&[output, input], Some(&vb.get(output, "bias")?), vb)
    }

    fn of(shape: &[usize], bias: Option<&Tensor>, vb: &VarBuilder) -> Result<Self> {
        Ok(Self { weight: Adapted::read(shape, bias, (Form::Matrix, precision(vb)), vb)? })
    }

    /// Reads `weight` `[O, I]`; the bias is zero.
    pub fn without_bias(input: usize, output: usize, vb: &VarBuilder) -> Result<Self> {
        Self::of(&[output, input], None, vb)
    }

    /// Reads `weight` `[O, I, 1, 1]` and `bias` `[O]`: a convolution that sees one pixel.
    pub fn pointwise(input: usize, output: usize, vb: &VarBuilder) -> Result<Self> {
        Self::of(&[output, input, 1, 1], Some(&vb.get(output, "bias")?), vb)
    }

    /// As [`Self::new`], computed in f32 whatever the weights are in: for maps that cost nothing and decide much.
    pub fn exact(input: usize, output: usize, vb: &VarBuilder) -> Result<Self> {
        let bias = vb.get(output, "bias")?;
        let weight = Adapted::read(&[output, input], Some(&bias), (Form::Matrix, Precision::Exact), vb)?;
        Ok(Self { weight })
    }

    /// # Shapes
    /// `x` `[…, I]` → `[…, O]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.weight.linear(x, Finish::Plain)
    }

    /// The map plus what went around it.
    ///
    /// # Shapes
    /// `x` `[…, I]`, `around` `[…, O]` in any grouping → `[…, O]`.
    pub fn forward_add(&self, x: &Tensor, around: &Tensor) -> Result<Tensor> {
        self.weight.linear(x, Finish::Add(around))
    }

    /// The map and a function of every number.
    ///
    /// # Shapes
    /// `x` `[…, I]` → `[…, O]`.
    pub fn forward_activated(&self, x: &Tensor, activation: Activation) -> Result<Tensor> {
        self.weight.linear(x, Finish::Apply(activation))
    }
}

/// Two maps of one input, the second of which gates the first: value·gelu(gate).
///
/// # Source
/// GEGLU, Shazeer 2020 (arXiv 2002.05202) §2.
#[derive(Debug, Clone)]
pub struct Geglu {
    weight: Adapted, // [2·D, I]
}

impl Geglu {
    /// Reads `weight` `[2·D, I]` and `bias` `[2·D]`, values before gates.
    pub fn new(input: usize, inner: usize, vb: &VarBuilder) -> Result<Self> {
        let bias = vb.get(2 * inner, "bias")?;
        let form = (Form::Gated, precision(vb));
        Ok(Self { weight: Adapted::read(&[2 * inner, input], Some(&bias), form, vb)? })
    }

    /// # Shapes
    /// `x` `[…, I]` → `[…, D]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.weight.linear(x, Finish::Geglu)
    }
}
