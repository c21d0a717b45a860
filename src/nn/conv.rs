//! Convolution as a layer.

use candle_core::{Result, Tensor};

use super::adapted::{Adapted, Form};
use super::{Activation, precision};
use crate::kernel::matrix::{Finish, Window};
use crate::weights::VarBuilder;

/// Two-dimensional convolution plus bias, channels-last.
#[derive(Debug, Clone)]
pub struct Conv2d {
    weight: Adapted, // [O, I, K, K]
    window: Window,
}

impl Conv2d {
    /// Reads `weight` `[O, I, K, K]` and `bias` `[O]`.
    pub fn new(input: usize, output: usize, window: Window, vb: &VarBuilder) -> Result<Self> {
        Self::of(input, output, window, vb, Some(&vb.get(output, "bias")?))
    }

    /// Reads `weight` `[O, I, K, K]`; the bias is zero.
    pub fn without_bias(input: usize, output: usize, window: Window, vb: &VarBuilder) -> Result<Self> {
        Self::of(input, output, window, vb, None)
    }

    fn of(
        input: usize,
        output: usize,
        window: Window,
        vb: &VarBuilder,
        bias: Option<&Tensor>,
    ) -> Result<Self> {
        let shape = [output, input, window.size, window.size];
        let form = (Form::Filters(window), precision(vb));
        Ok(Self { weight: Adapted::read(&shape, bias, form, vb)?, window })
    }

    /// # Shapes
    /// `x` `[B, H, W, I]` → `[B, H', W', O]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.weight.conv2d(x, self.window, Finish::Plain)
    }

    /// The convolution plus what went around it.
    ///
    /// # Shapes
    /// `x` `[B, H, W, I]`, `around` `[B, H', W', O]` → as `around`.
    pub fn forward_add(&self, x: &Tensor, around: &Tensor) -> Result<Tensor> {
        self.weight.conv2d(x, self.window, Finish::Add(around))
    }

    /// The convolution plus a signal that all pixels of an image hear.
    ///
    /// # Shapes
    /// `x` `[B, H, W, I]`, `signal` `[B, O]` → `[B, H', W', O]`.
    pub fn forward_told(&self, x: &Tensor, signal: &Tensor) -> Result<Tensor> {
        self.weight.conv2d(x, self.window, Finish::PerImage(signal))
    }

    /// The convolution and a function of every number.
    ///
    /// # Shapes
    /// `x` `[B, H, W, I]` → `[B, H', W', O]`.
    pub fn forward_activated(&self, x: &Tensor, activation: Activation) -> Result<Tensor> {
        self.weight.conv2d(x, self.window, Finish::Apply(activation))
    }

    /// The convolution of the picture at twice its size.
    ///
    /// # Shapes
    /// `x` `[B, H, W, I]` → `[B, h, w, O]` of the picture `[B, h, w, I]`, where `size` is `[h, w]`, 2H or 2H − 1 and 2W or
    /// 2W − 1.
    pub fn forward_doubled(&self, x: &Tensor, size: [usize; 2]) -> Result<Tensor> {
        self.weight.conv2d_doubled(x, size, self.window)
    }
}
