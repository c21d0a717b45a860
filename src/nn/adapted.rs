//! A weight, and what files of changes add to its product at run time.

use std::sync::Arc;

use candle_core::{D, Result, Tensor};

use crate::kernel::matrix::{Finish, Precision, Weight, Window, conv2d, conv2d_doubled, linear};
use crate::weights::VarBuilder;

/// What a weight is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    Matrix,
    Gated,
    Filters(Window),
}

/// y = W∘x + Σ up·(down∘x): the weight itself, and pairs of low rank beside it.
///
/// # Source
/// Hu et al. 2021 (arXiv 2106.09685) §4.1, eq. 3, before the sum is merged into the weight.
#[derive(Debug, Clone)]
pub(super) struct Adapted {
    weight: Weight,
    /// `[R, I]` or filters, and `[O, R]`.
    pairs: Arc<[[Weight; 2]]>,
}

impl Adapted {
    /// Reads `weight` of this shape as the kernels want it: in blocks of small integers where it comes so, and as another
    /// network has it that is still there.
    pub(super) fn read(
        shape: &[usize],
        bias: Option<&Tensor>,
        (form, precision): (Form, Precision),
        vb: &VarBuilder,
    ) -> Result<Self> {
        let packed = |weight: &Tensor, bias: Option<&Tensor>, form: Form| match form {
            Form::Matrix => Weight::new(weight, bias, precision),
            Form::Gated => Weight::gated(weight, bias, precision),
            Form::Filters(window) => Weight::filters(weight, bias, precision, window),
        };
        let pair = |[down, up]: [Tensor; 2]| {
            let form = if let Form::Filters(_) = form { form } else { Form::Matrix };
            Ok([packed(&down, None, form)?, packed(&up, None, Form::Matrix)?])
        };
        let pairs: Arc<[_]> = vb.beside(shape)?.into_iter().map(pair).collect::<Result<_>>()?;
        // Values and gates stand apart where something is added to them.
        let form = match form {
            Form::Gated if !pairs.is_empty() => Form::Matrix,
            form => form,
        };
        let gated = matches!(form, Form::Gated);
        let weight = vb.shared((precision, gated), || {
            let blocks = if vb.device().is_cpu() { vb.blocks(shape)? } else { None };
            match blocks {
                Some(blocks) => Weight::in_blocks(shape, blocks, bias, precision, gated),
                None => packed(&vb.base(shape)?, bias, form),
            }
        })?;
        Ok(Self { weight, pairs })
    }

    /// As [`linear`].
    pub(super) fn linear(&self, x: &Tensor, finish: Finish<'_>) -> Result<Tensor> {
        self.sum(finish, |weight, finish| linear(x, weight, finish))
    }

    /// As [`conv2d`].
    pub(super) fn conv2d(&self, x: &Tensor, window: Window, finish: Finish<'_>) -> Result<Tensor> {
        self.sum(finish, |weight, finish| conv2d(x, weight, window, finish))
    }

    /// As [`conv2d_doubled`].
    pub(super) fn conv2d_doubled(&self, x: &Tensor, seen: [usize; 2], window: Window) -> Result<Tensor> {
        self.sum(Finish::Plain, |weight, finish| conv2d_doubled(x, seen, weight, window, finish))
    }

    fn sum(
        &self,
        finish: Finish<'_>,
        product: impl Fn(&Weight, Finish<'_>) -> Result<Tensor>,
    ) -> Result<Tensor> {
        if self.pairs.is_empty() {
            return product(&self.weight, finish);
        }
        let first = match finish {
            Finish::Apply(_) | Finish::Geglu => Finish::Plain,
            sum => sum,
        };
        let mut y = product(&self.weight, first)?;
        for [down, up] in &*self.pairs {
            y = linear(&product(down, Finish::Plain)?, up, Finish::Add(&y))?;
        }
        match finish {
            Finish::Apply(activation) => activation.forward(&y),
            Finish::Geglu => {
                let halves = y.chunk(2, D::Minus1)?;
                &halves[0] * halves[1].contiguous()?.gelu_erf()?
            }
            _ => Ok(y),
        }
    }
}
