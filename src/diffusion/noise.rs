//! Where fresh noise comes from: one generator per image, so that a batch changes nothing.

use std::collections::VecDeque;

use candle_core::{DType, Device, Tensor};

use super::torch_rng::TorchRng;
use crate::error::{Error, Result};

/// The noise of one walk.
///
/// Numbers are made on the host whatever the device, as `diffusers` does with a CPU generator, so a seed means the same
/// picture everywhere.
#[derive(Debug, Clone)]
pub struct Noise {
    source: Source,
    seeds: Vec<u64>,
}

#[derive(Debug, Clone)]
enum Source {
    Seeded(Vec<TorchRng>),
    Given(VecDeque<Tensor>),
}

impl Noise {
    /// Image `i` of the batch draws from seed `seed + i`, whatever the batch.
    pub fn seeded(seed: u64, batch: usize) -> Self {
        Self::from_seeds((0..batch as u64).map(|i| seed.wrapping_add(i)).collect())
    }

    /// One seed per image of the batch.
    pub fn from_seeds(seeds: Vec<u64>) -> Self {
        Self { source: Source::Seeded(seeds.iter().map(|&seed| TorchRng::new(seed)).collect()), seeds }
    }

    /// Draws that are played back, in order.
    pub fn given(draws: Vec<Tensor>) -> Self {
        Self { source: Source::Given(draws.into()), seeds: Vec::new() }
    }

    /// How many given draws are left.
    pub fn left(&self) -> usize {
        match &self.source {
            Source::Seeded(_) => 0,
            Source::Given(draws) => draws.len(),
        }
    }

    /// The seeds of the images; none if draws are given.
    pub(crate) fn seeds(&self) -> &[u64] {
        &self.seeds
    }

    /// Unit noise of a shape, in single precision.
    ///
    /// # Shapes
    /// `[B, …]`, `B` as many as there are generators.
    ///
    /// # Errors
    /// `internal` if given draws run out or have another shape, or the batch has another size.
    pub fn draw(&mut self, shape: &[usize], device: &Device) -> Result<Tensor> {
        match &mut self.source {
            Source::Seeded(generators) => {
                if shape.first() != Some(&generators.len()) {
                    return Err(Error::internal(format!(
                        "{} generators for noise {shape:?}",
                        generators.len()
                    )));
                }
                let count: usize = shape[1..].iter().product();
                let mut values = Vec::with_capacity(count * generators.len());
                for generator in generators {
                    values.extend(generator.randn(count));
                }
                Ok(Tensor::from_vec(values, shape, device)?)
            }
            Source::Given(draws) => {
                let draw = draws
                    .pop_front()
                    .ok_or_else(|| Error::internal("the given draws of noise have run out"))?;
                if draw.dims() != shape {
                    return Err(Error::internal(format!("a given draw is {:?}, not {shape:?}", draw.dims())));
                }
                Ok(draw.to_dtype(DType::F32)?.to_device(device)?)
            }
        }
    }

    /// Unit noise shaped and typed like `x`.
    pub(crate) fn like(&mut self, x: &Tensor) -> Result<Tensor> {
        Ok(self.draw(x.dims(), x.device())?.to_dtype(x.dtype())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_the_same_alone_and_in_a_batch() {
        let shape = |batch| [batch, 3, 5, 7];
        let batch = Noise::seeded(40, 3).draw(&shape(3), &Device::Cpu).unwrap();
        let alone = Noise::seeded(42, 1).draw(&shape(1), &Device::Cpu).unwrap();
        let third = batch.narrow(0, 2, 1).unwrap();
        let rows = |t: Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(rows(third), rows(alone));
    }

    #[test]
    fn given_draws_run_out_with_an_error() {
        let one = Tensor::zeros((1, 2), DType::F32, &Device::Cpu).unwrap();
        let mut noise = Noise::given(vec![one]);
        assert!(noise.draw(&[1, 2], &Device::Cpu).is_ok());
        assert!(noise.draw(&[1, 2], &Device::Cpu).is_err());
        assert!(Noise::seeded(0, 2).draw(&[1, 2], &Device::Cpu).is_err());
    }
}
