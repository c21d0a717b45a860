//! A Brownian path over σ that gives the same increments in whatever order they are asked for.

use std::sync::Arc;

use candle_core::{Device, Tensor};
use rayon::prelude::*;

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
    /// Levels that were asked for last and the paths there: steps meet where they end and begin.
    met: Vec<(f64, Arc<[f64]>)>,
}

impl Path {
    /// A path between two levels, shaped like `x`; `seed` takes the place of the images' own.
    pub(crate) fn new(noise: &Noise, seed: Option<u64>, (low, high): (f64, f64), x: &Tensor) -> Self {
        let own = noise.seeds();
        let seeds = match seed {
            Some(seed) => (0..own.len() as u64).map(|i| seed.wrapping_add(i)).collect(),
            None => own.to_vec(),
        };
        Self { seeds, low, high, shape: x.dims().to_vec(), device: x.device().clone(), met: Vec::new() }
    }

    /// The increment from one level down to another, scaled to unit variance; a given draw where `noise` plays back.
    ///
    /// # Shapes
    /// → `[B, …]`, as the path.
    pub(crate) fn between(&mut self, noise: &mut Noise, from: f64, to: f64) -> Result<Tensor> {
        if self.seeds.is_empty() {
            return noise.draw(&self.shape, &self.device);
        }
        let (a, b) = (from.min(to), from.max(to));
        let scale = -1.0 / (b - a).max(f64::MIN_POSITIVE).sqrt();
        let (start, end) = (self.values(a), self.values(b));
        let increments = start.iter().zip(&*end).map(|(start, end)| ((end - start) * scale) as f32);
        let tensor = Tensor::from_iter(increments, &self.device)?.reshape(self.shape.as_slice())?;
        self.met = vec![(a, start), (b, end)];
        Ok(tensor)
    }

    /// The paths of all images at a level; of the two that were asked for last it is known.
    fn values(&self, place: f64) -> Arc<[f64]> {
        if let Some((_, values)) = self.met.iter().find(|(met, _)| met.to_bits() == place.to_bits()) {
            return Arc::clone(values);
        }
        let count = self.shape[1..].iter().product();
        self.seeds.par_iter().flat_map_iter(|&seed| self.value(seed, place, count)).collect::<Vec<_>>().into()
    }

    /// The path of one image at a level, from zero at the lowest.
    fn value(&self, seed: u64, place: f64, count: usize) -> Vec<f64> {
        let (halvings, is_end) = self.halvings(place);
        let length = (self.high - self.low).max(0.0).sqrt();
        let mut low = vec![0.0; count];
        let mut rise: Vec<f64> = normals(seed, &[], count).into_iter().map(|z| z * length).collect();
        let noise: Vec<_> = halvings
            .par_iter()
            .enumerate()
            .map(|(depth, halving)| normals(seed, &[halving.key, depth as u64], count))
            .collect();
        for (halving, noise) in halvings.iter().zip(noise) {
            for ((low, rise), z) in low.iter_mut().zip(&mut rise).zip(noise) {
                let half = halving.share * *rise + halving.spread * z;
                if halving.is_left {
                    *rise = half;
                } else {
                    *low += half;
                    *rise -= half;
                }
            }
        }
        if is_end {
            low.iter_mut().zip(rise).for_each(|(low, rise)| *low += rise);
        }
        low
    }

    /// The way down the tree to a place, and whether it is the end of the last interval, not its start.
    fn halvings(&self, place: f64) -> (Vec<Halving>, bool) {
        let (mut start, mut end) = (rounded(self.low), rounded(self.high));
        let place = rounded(place.clamp(self.low, self.high));
        let (mut way, mut key) = (Vec::new(), 0);
        while start < place && place < end && (way.len() as u64) < DEPTH {
            let middle = rounded(0.5 * (start + end));
            let (left, right) = (middle - start, end - middle);
            let is_left = place <= middle;
            let spread = (left * right / (end - start)).max(0.0).sqrt();
            way.push(Halving { key, share: left / (end - start), spread, is_left });
            key = 2 * key + u64::from(!is_left);
            *(if is_left { &mut end } else { &mut start }) = middle;
        }
        (way, start < place)
    }
}

/// One step down the tree.
struct Halving {
    /// Which interval of its depth.
    key: u64,
    /// The share of the rise that the left half has on average, and how far it strays.
    share: f64,
    spread: f64,
    /// Which half the place is in.
    is_left: bool,
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
        let path = Path {
            seeds: vec![7],
            low: 0.0,
            high: 1.0,
            shape: vec![1, count],
            device: Device::Cpu,
            met: Vec::new(),
        };
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
        let mut path = Path {
            seeds: vec![5],
            low: 0.03,
            high: 14.6,
            shape: vec![1, 4],
            device: Device::Cpu,
            met: Vec::new(),
        };
        let got = path.between(&mut Noise::seeded(0, 1), 3.0, 1.0).unwrap().flatten_all().unwrap();
        for (got, want) in
            got.to_vec1::<f32>().unwrap().into_iter().zip([1.545_667, 1.651_388, -1.123_942, 0.022_413])
        {
            assert!((f64::from(-got) * 2f64.sqrt() - want).abs() < 1e-5, "{got} {want}");
        }
    }
}
