//! A Brownian path over σ that gives the same increments in whatever order they are asked for.

use candle_core::{Device, Tensor};

use super::noise::Noise;
use super::torch_rng::TorchRng;
use crate::error::Result;

/// How often the interval is halved: to a millionth of its length.
const DEPTH: u32 = 20;

/// A path per image, sampled where it is asked for.
///
/// A virtual Brownian tree: the value in the middle of an interval follows from its ends and from noise whose seed is the
/// place in the tree, so it depends on nothing else. It is our own; `torchsde`, which the reference uses, draws other
/// numbers of the same law.
///
/// # Source
/// Li et al. 2020 (arXiv 2001.01328), algorithm 3.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    seeds: Vec<u64>,
    low: f64,
    span: f64,
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
        Self {
            seeds,
            low,
            span: (high - low).max(f64::MIN_POSITIVE),
            shape: x.dims().to_vec(),
            device: x.device().clone(),
        }
    }

    /// The increment between two levels, scaled to unit variance; a given draw where `noise` plays back.
    ///
    /// # Shapes
    /// → `[B, …]`, as the path.
    pub(crate) fn between(&self, noise: &mut Noise, from: f64, to: f64) -> Result<Tensor> {
        if self.seeds.is_empty() {
            return noise.draw(&self.shape, &self.device);
        }
        let count: usize = self.shape[1..].iter().product();
        let place = |sigma: f64| ((sigma - self.low) / self.span).clamp(0.0, 1.0);
        let (a, b) = (place(from.min(to)), place(from.max(to)));
        let scale = 1.0 / (b - a).max(f64::MIN_POSITIVE).sqrt();
        let mut values = Vec::with_capacity(count * self.seeds.len());
        for &seed in &self.seeds {
            let (low, high) = (value(seed, a, count), value(seed, b, count));
            // The reference walks from high to low, and its increment is that of the path run upwards, turned.
            values.extend(low.iter().zip(&high).map(|(low, high)| ((high - low) * scale) as f32));
        }
        Ok(Tensor::from_vec(values, self.shape.as_slice(), &self.device)?)
    }
}

/// The path at a place between 0 and 1.
fn value(seed: u64, place: f64, count: usize) -> Vec<f64> {
    let mut low = vec![0.0; count];
    let mut high: Vec<f64> = normals(seed, 0, count);
    let (mut start, mut length, mut node) = (0.0, 1.0, 1u64);
    for _ in 0..DEPTH {
        if place <= start {
            return low;
        }
        if place >= start + length {
            return high;
        }
        let spread = 0.5 * f64::sqrt(length);
        let mut middle = normals(seed, node, count);
        for ((middle, low), high) in middle.iter_mut().zip(&low).zip(&high) {
            *middle = 0.5 * (low + high) + spread * *middle;
        }
        length *= 0.5;
        if place < start + length {
            high = middle;
            node *= 2;
        } else {
            low = middle;
            start += length;
            node = 2 * node + 1;
        }
    }
    let share = (place - start) / length;
    low.iter().zip(&high).map(|(low, high)| low + share * (high - low)).collect()
}

/// Unit noise of a place in the tree.
fn normals(seed: u64, node: u64, count: usize) -> Vec<f64> {
    // SplitMix64 (Steele et al. 2014) spreads neighbouring places over the generator's seeds.
    let mut mixed = seed.wrapping_add(node.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    TorchRng::new(mixed ^ (mixed >> 31)).randn(count).into_iter().map(f64::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn increments_add_up_and_have_the_right_variance() {
        let count = 40_000;
        let (a, b, c) = (value(7, 0.1, count), value(7, 0.35, count), value(7, 0.8, count));
        let variance = |from: &[f64], to: &[f64]| {
            from.iter().zip(to).map(|(x, y)| (y - x).powi(2)).sum::<f64>() / count as f64
        };
        for (from, to, length) in [(&a, &b, 0.25), (&b, &c, 0.45), (&a, &c, 0.7)] {
            assert!((variance(from, to) / length - 1.0).abs() < 0.03, "{length}");
        }
        let product: f64 = (0..count).map(|i| (b[i] - a[i]) * (c[i] - b[i])).sum::<f64>() / count as f64;
        assert!(product.abs() < 0.01, "increments must be independent: {product}");
    }
}
