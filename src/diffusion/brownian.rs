//! A Brownian path over σ that gives the same increments in whatever order they are asked for.

use candle_core::{Device, Tensor};

use super::noise::Noise;
use super::seed_sequence::SeedSequence;
use super::spacing::single;
use super::torch_rng::TorchRng;
use crate::error::Result;

/// The deepest halving; the places of the tree are rounded to a millionth long before.
const DEPTH: u64 = 64;

/// A path per image, sampled where it is asked for.
///
/// A tree of halves: the value in the middle of an interval follows from its ends and from noise whose seed is the place
/// in the tree, so it depends on nothing else. Seeds and halves are those of `torchsde`, which the reference walks on.
///
/// # Source
/// Li et al. 2020 (arXiv 2001.01328), algorithm 3; `google-research/torchsde torchsde/_brownian/brownian_interval.py`,
/// Apache-2.0, as a halfway tree with a tolerance of 1e-6 and without Lévy area.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    seeds: Vec<u64>,
    low: f64,
    high: f64,
    shape: Vec<usize>,
    device: Device,
}

impl Path {
    /// A path between two levels, shaped like `x`; `seed` takes the place of the images' own.
    pub(crate) fn new(noise: &Noise, seed: Option<u64>, (low, high): (f64, f64), x: &Tensor) -> Self {
        let own = noise.seeds();
        let seeds = match seed {
            Some(seed) => (0..own.len() as u64).map(|i| seed.wrapping_add(i)).collect(),
            None => own.to_vec(),
        };
        Self { seeds, low, high, shape: x.dims().to_vec(), device: x.device().clone() }
    }

    /// The increment from one level down to another, scaled to unit variance; a given draw where `noise` plays back.
    ///
    /// # Shapes
    /// → `[B, …]`, as the path.
    pub(crate) fn between(&self, noise: &mut Noise, from: f64, to: f64) -> Result<Tensor> {
        if self.seeds.is_empty() {
            return noise.draw(&self.shape, &self.device);
        }
        let count: usize = self.shape[1..].iter().product();
        let (a, b) = (from.min(to), from.max(to));
        let scale = -1.0 / (b - a).max(f64::MIN_POSITIVE).sqrt();
        let mut values = Vec::with_capacity(count * self.seeds.len());
        for &seed in &self.seeds {
            let (start, end) = (self.value(seed, a, count), self.value(seed, b, count));
            values.extend(start.iter().zip(&end).map(|(start, end)| ((end - start) * scale) as f32));
        }
        Ok(Tensor::from_vec(values, self.shape.as_slice(), &self.device)?)
    }

    /// The path at a level, from zero at the lowest.
    fn value(&self, seed: u64, place: f64, count: usize) -> Vec<f64> {
        let (mut start, mut end) = (rounded(self.low), rounded(self.high));
        let place = rounded(place.clamp(self.low, self.high));
        let mut low = vec![0.0; count];
        let length = (self.high - self.low).max(0.0).sqrt();
        let mut rise: Vec<f64> = normals(seed, &[], count).into_iter().map(|z| z * length).collect();
        let mut key = 0;
        for depth in 0..DEPTH {
            if place <= start {
                return low;
            }
            if place >= end {
                break;
            }
            let middle = rounded(0.5 * (start + end));
            let (left, right) = (middle - start, end - middle);
            let share = left / (end - start);
            let spread = (left * right / (end - start)).max(0.0).sqrt();
            let noise = normals(seed, &[key, depth], count);
            let is_left = place <= middle;
            for ((low, rise), z) in low.iter_mut().zip(&mut rise).zip(noise) {
                let half = share * *rise + spread * z;
                if is_left {
                    *rise = half;
                } else {
                    *low += half;
                    *rise -= half;
                }
            }
            key = 2 * key + u64::from(!is_left);
            if is_left {
                end = middle;
            } else {
                start = middle;
            }
        }
        low.iter().zip(&rise).map(|(low, rise)| low + rise).collect()
    }
}

/// To six decimals, as Python rounds.
fn rounded(x: f64) -> f64 {
    format!("{x:.6}").parse().unwrap_or(x)
}

/// Unit noise of a place in the tree.
fn normals(seed: u64, place: &[u64], count: usize) -> Vec<f64> {
    let seed = SeedSequence::new(seed, place).first();
    TorchRng::new(seed.into()).randn(count).into_iter().map(f64::from).collect()
}

/// A level as it comes back from single precision logarithms and out of them, the way it reaches the path.
pub(crate) fn through_logarithm(sigma: f64) -> f64 {
    single(single(sigma.ln()).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn increments_add_up_and_have_the_right_variance() {
        let count = 40_000;
        let path = Path { seeds: vec![7], low: 0.0, high: 1.0, shape: vec![1, count], device: Device::Cpu };
        let [a, b, c] = [0.1, 0.35, 0.8].map(|place| path.value(7, place, count));
        let variance = |from: &[f64], to: &[f64]| {
            from.iter().zip(to).map(|(x, y)| (y - x).powi(2)).sum::<f64>() / count as f64
        };
        for (from, to, length) in [(&a, &b, 0.25), (&b, &c, 0.45), (&a, &c, 0.7)] {
            assert!((variance(from, to) / length - 1.0).abs() < 0.03, "{length}");
        }
        let product: f64 = (0..count).map(|i| (b[i] - a[i]) * (c[i] - b[i])).sum::<f64>() / count as f64;
        assert!(product.abs() < 0.01, "increments must be independent: {product}");
    }

    #[test]
    fn the_path_is_that_of_torchsde() {
        // torchsde 0.2.6: BrownianInterval(0.03, 14.6, size=(4,), entropy=5, tol=1e-6, pool_size=24, halfway_tree=True)
        // from 1 to 3.
        let path = Path { seeds: vec![5], low: 0.03, high: 14.6, shape: vec![1, 4], device: Device::Cpu };
        let got = path.between(&mut Noise::seeded(0, 1), 3.0, 1.0).unwrap().flatten_all().unwrap();
        for (got, want) in
            got.to_vec1::<f32>().unwrap().into_iter().zip([1.545_667, 1.651_388, -1.123_942, 0.022_413])
        {
            assert!((f64::from(-got) * 2f64.sqrt() - want).abs() < 1e-5, "{got} {want}");
        }
    }
}
