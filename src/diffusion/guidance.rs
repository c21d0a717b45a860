//! Guidance: several conditions asked in one batch, and folded into one answer.

use candle_core::Tensor;

use super::lens::deviation;
use super::{Level, Predict};
use crate::error::Result;
use crate::event::Watch;

/// How the answers to several conditions become one.
pub trait Guide {
    /// How many conditions are asked at once; with 1 the network is asked as it is.
    fn arity(&self) -> usize;

    /// Folds the answers, in the order in which the conditions were bound.
    ///
    /// # Shapes
    /// `answers`: `arity()` × `[B, …]` → `[B, …]`.
    fn fold(&self, answers: &[Tensor], at: &Level) -> Result<Tensor>;
}

/// Classifier-free guidance over the two conditions *without* and *with* the prompt, in this order.
///
/// # Source
/// Ho & Salimans 2022 (arXiv 2207.12598) eq. 6; the rescaling is Lin et al. 2023 (arXiv 2305.08891) eq. 15 and 16.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Classifier {
    /// How far the answer goes from *without* to *with*; nothing is asked twice at 1 or below.
    pub scale: f64,
    /// How far the answer's contrast is pulled back to that of *with*, 0 to 1.
    pub rescale: f64,
}

impl Guide for Classifier {
    fn arity(&self) -> usize {
        if self.scale > 1.0 { 2 } else { 1 }
    }

    fn fold(&self, answers: &[Tensor], _: &Level) -> Result<Tensor> {
        let [without, with] = answers else { return Ok(answers[0].clone()) };
        let guided = (without + ((with - without)? * self.scale)?)?;
        if self.rescale <= 0.0 {
            return Ok(guided);
        }
        let ratio = (deviation(with)? / deviation(&guided)?)?; // [B, 1]
        let factor = ((ratio * self.rescale)? + (1.0 - self.rescale))?.to_dtype(guided.dtype())?;
        let rows = guided.flatten_from(1)?; // [B, N]
        Ok(rows.broadcast_mul(&factor)?.reshape(guided.shape())?)
    }
}

/// Guidance by a picture and an instruction, over three conditions: *both*, *picture alone* and *neither*.
///
/// # Source
/// Brooks et al. 2023 (arXiv 2211.09800) eq. 3.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Instructed {
    /// How far the answer goes from *picture alone* to *both*.
    pub text: f64,
    /// How far it goes from *neither* to *picture alone*.
    pub picture: f64,
}

impl Guide for Instructed {
    fn arity(&self) -> usize {
        3
    }

    fn fold(&self, answers: &[Tensor], _: &Level) -> Result<Tensor> {
        let [both, picture, neither] = answers else { return Ok(answers[0].clone()) };
        let seen = ((picture - neither)? * self.picture)?;
        Ok(((neither + ((both - picture)? * self.text)?)? + seen)?)
    }
}

/// A network asked under several conditions, seen as one.
///
/// The network must have been bound to `arity()` conditions for every image, all images of the first condition first.
pub struct Guided<'a> {
    network: Box<dyn Predict + 'a>,
    guide: Box<dyn Guide + 'a>,
}

impl<'a> Guided<'a> {
    /// Wraps a bound network.
    pub fn new(network: Box<dyn Predict + 'a>, guide: Box<dyn Guide + 'a>) -> Self {
        Self { network, guide }
    }
}

impl Predict for Guided<'_> {
    fn predict(&mut self, x: &Tensor, at: &Level, watch: &mut Watch<'_>) -> Result<Tensor> {
        let arity = self.guide.arity();
        if arity == 1 {
            return self.network.predict(x, at, watch);
        }
        let asked = Tensor::cat(&vec![x; arity], 0)?; // [arity·B, …]
        let answers = self.network.predict(&asked, at, watch)?.chunk(arity, 0)?; // arity × [B, …]
        self.guide.fold(&answers, at)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    fn values(tensor: &Tensor) -> Vec<f32> {
        tensor.flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn guidance_asks_once_and_extrapolates() {
        let x = Tensor::new(&[[1.0f32, 2.0]], &Device::Cpu).unwrap();
        let mut calls = 0;
        let network = |x: &Tensor, _: &Level| {
            calls += 1;
            assert_eq!(x.dims(), [2, 2]);
            Ok(Tensor::new(&[[0.0f32, 1.0], [1.0, 1.0]], &Device::Cpu)?)
        };
        let mut guided = Guided::new(Box::new(network), Box::new(Classifier { scale: 3.0, rescale: 0.0 }));
        let got = guided.predict(&x, &Level::default(), &mut Watch::quiet()).unwrap();
        assert_eq!(values(&got), [3.0, 1.0]);
        drop(guided);
        assert_eq!(calls, 1);
    }

    #[test]
    fn a_full_rescale_restores_the_contrast() {
        let without = Tensor::new(&[[0.0f32, 0.0, 0.0, 0.0]], &Device::Cpu).unwrap();
        let with = Tensor::new(&[[1.0f32, -1.0, 2.0, 0.5]], &Device::Cpu).unwrap();
        let guide = Classifier { scale: 7.5, rescale: 1.0 };
        let got = guide.fold(&[without, with.clone()], &Level::default()).unwrap();
        let (a, b) = (values(&deviation(&got).unwrap()), values(&deviation(&with).unwrap()));
        assert!((a[0] - b[0]).abs() < 1e-6);
    }

    #[test]
    fn a_picture_and_an_instruction_pull_each_by_its_scale() {
        let value = |value: f32| Tensor::new(&[[value]], &Device::Cpu).unwrap();
        let guide = Instructed { text: 2.0, picture: 3.0 };
        let got = guide.fold(&[value(1.0), value(0.5), value(0.25)], &Level::default()).unwrap();
        assert_eq!(values(&got), [0.25 + 2.0 * 0.5 + 3.0 * 0.25]);
    }

    #[test]
    fn no_guidance_asks_nothing_twice() {
        assert_eq!(Classifier { scale: 1.0, rescale: 0.0 }.arity(), 1);
        assert_eq!(Classifier { scale: 1.1, rescale: 0.0 }.arity(), 2);
    }
}
