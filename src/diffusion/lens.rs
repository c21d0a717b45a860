//! What a network's answer means: the clean estimate and the noise that explains the rest.

use candle_core::{D, DType, Tensor};

use super::Level;
use super::mix::{divided, mix};
use super::spacing::whole;
use crate::error::Result;

/// What a network was trained to say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Prediction {
    /// The noise ε.
    Epsilon,
    /// The clean picture x₀.
    Sample,
    /// v = α·ε − σ·x₀ of the variance preserving process (arXiv 2202.00512).
    V,
    /// ε − x₀, the velocity of a straight line (arXiv 2209.03003).
    Velocity,
    /// F of the preconditioning `x₀ = c_skip·x ± c_out·F` (arXiv 2206.00364) eq. 7.
    Edm {
        /// Standard deviation of the data.
        data: f64,
        /// −1 for networks that were trained with the sign of v.
        sign: f64,
    },
}

/// What is done to a clean estimate that leaves the range of pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bound {
    /// Nothing: latents have no range.
    None,
    /// Cut at ± this.
    Clip(f64),
    /// Dynamic thresholding: Imagen (arXiv 2205.11487) section 2.3.
    Threshold {
        /// The quantile of |x₀| that is kept.
        ratio: f64,
        /// The largest range that is kept.
        most: f64,
    },
}

/// Reads raw outputs.
///
/// `x = α·x₀ + σ·ε` holds at every level of every process, so one formula per prediction serves them all; the networks
/// that hear a scaled `x` differ by the norm `√(α² + σ²)`, which is 1 where variance is preserved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lens {
    /// What the network says.
    pub prediction: Prediction,
    pub(crate) bound: Bound,
}

impl Lens {
    /// The clean estimate x₀, bounded if the configuration says so.
    ///
    /// # Shapes
    /// `raw` and `x` `[B, …]` → `[B, …]`.
    pub fn clean(&self, raw: &Tensor, x: &Tensor, at: &Level) -> Result<Tensor> {
        self.bounded(self.unbounded(raw, x, at)?)
    }

    /// The noise ε that the answer implies, whatever bound x₀ has.
    pub fn noise(&self, raw: &Tensor, x: &Tensor, at: &Level) -> Result<Tensor> {
        let norm = at.norm();
        match self.prediction {
            Prediction::Epsilon => Ok(raw.clone()),
            Prediction::V => mix(&[(at.alpha / norm, raw), (at.sigma / (norm * norm), x)]),
            Prediction::Velocity => mix(&[(1.0, x), (1.0 - at.listed, raw)]),
            Prediction::Sample | Prediction::Edm { .. } => explain(&self.unbounded(raw, x, at)?, x, at),
        }
    }

    /// Applies the bound to a clean estimate.
    pub(crate) fn bounded(&self, clean: Tensor) -> Result<Tensor> {
        match self.bound {
            Bound::None => Ok(clean),
            Bound::Clip(range) => Ok(clean.clamp(-range, range)?),
            Bound::Threshold { ratio, most } => threshold(&clean, ratio, most),
        }
    }

    fn unbounded(&self, raw: &Tensor, x: &Tensor, at: &Level) -> Result<Tensor> {
        let norm = at.norm();
        match self.prediction {
            Prediction::Epsilon => mix(&[(1.0 / at.alpha, x), (-at.sigma / at.alpha, raw)]),
            Prediction::Sample => Ok(raw.clone()),
            Prediction::V => mix(&[(at.alpha / (norm * norm), x), (-at.sigma / norm, raw)]),
            Prediction::Velocity => mix(&[(1.0, x), (-at.listed, raw)]),
            Prediction::Edm { data, sign } => {
                let whole = at.sigma.hypot(data);
                mix(&[((data / whole).powi(2), x), (sign * at.sigma * data / whole, raw)])
            }
        }
    }
}

/// The noise that explains the rest of `x`: (x − α·x₀) / σ.
pub(crate) fn explain(clean: &Tensor, x: &Tensor, at: &Level) -> Result<Tensor> {
    if at.sigma == 0.0 {
        // The weighted sum says what is wrong.
        return mix(&[(f64::INFINITY, x)]);
    }
    divided(&mix(&[(1.0, x), (-at.alpha, clean)])?, at.sigma)
}

/// The slope of the exploding and of the straight process: (x − x₀) / σ.
///
/// Subtracted first and truly divided, as the reference does: where σ is in the thousands, any other order of rounding
/// shows in the picture.
pub(crate) fn slope(clean: &Tensor, x: &Tensor, sigma: f64) -> Result<Tensor> {
    if sigma == 0.0 {
        // The weighted sum says what is wrong.
        return mix(&[(f64::INFINITY, x)]);
    }
    divided(&(x - clean)?, sigma)
}

/// Cuts each sample at a quantile of its own magnitudes, between 1 and `most`, and divides by it.
fn threshold(clean: &Tensor, ratio: f64, most: f64) -> Result<Tensor> {
    let rows = clean.flatten_from(1)?; // [B, N]
    let mut limits = Vec::with_capacity(rows.dim(0)?);
    for mut row in rows.abs()?.to_dtype(DType::F32)?.to_vec2::<f32>()? {
        row.sort_by(f32::total_cmp);
        let place = ratio * (row.len() - 1) as f64;
        let low = place.floor();
        let (a, b) = (row[whole(low)], row[(whole(low) + 1).min(row.len() - 1)]);
        let quantile = f64::from(a) + (place - low) * f64::from(b - a);
        limits.push(quantile.max(1.0).min(most) as f32);
    }
    let limits = Tensor::from_vec(limits, (rows.dim(0)?, 1), rows.device())?.to_dtype(rows.dtype())?; // [B, 1]
    let cut = rows.broadcast_minimum(&limits)?.broadcast_maximum(&limits.neg()?)?;
    Ok(cut.broadcast_div(&limits)?.reshape(clean.shape())?)
}

/// Standard deviation over everything but the batch, as `torch` counts it (n − 1).
///
/// # Shapes
/// `[B, …]` → `[B, 1]`.
pub(crate) fn deviation(x: &Tensor) -> Result<Tensor> {
    Ok(x.flatten_from(1)?.to_dtype(DType::F32)?.var_keepdim(D::Minus1)?.sqrt()?)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    fn values(tensor: &Tensor) -> Vec<f32> {
        tensor.flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn every_prediction_reads_the_same_picture() {
        let clean = Tensor::new(&[[0.5f32, -1.0]], &Device::Cpu).unwrap();
        let noise = Tensor::new(&[[2.0f32, 0.25]], &Device::Cpu).unwrap();
        for (alpha, sigma) in [(0.8, 0.6), (1.0, 7.0), (0.3, 0.7)] {
            let at = Level { alpha, sigma, listed: sigma, ..Level::default() };
            let norm = at.norm();
            let x = mix(&[(alpha, &clean), (sigma, &noise)]).unwrap();
            let v = mix(&[(alpha / norm, &noise), (-sigma / norm, &clean)]).unwrap();
            let mut answers = vec![
                (Prediction::Epsilon, noise.clone()),
                (Prediction::Sample, clean.clone()),
                (Prediction::V, v),
            ];
            if alpha < 0.5 {
                answers.push((Prediction::Velocity, (&noise - &clean).unwrap()));
            }
            for (prediction, raw) in answers {
                let lens = Lens { prediction, bound: Bound::None };
                for (got, want) in [(lens.clean(&raw, &x, &at), &clean), (lens.noise(&raw, &x, &at), &noise)]
                {
                    for (a, b) in values(&got.unwrap()).iter().zip(values(want)) {
                        assert!((a - b).abs() < 1e-5, "{prediction:?} at {alpha} {sigma}: {a} {b}");
                    }
                }
            }
        }
    }

    #[test]
    fn thresholding_never_shrinks_what_is_in_range() {
        let x = Tensor::new(&[[0.5f32, -0.25, 0.1], [8.0, -4.0, 2.0]], &Device::Cpu).unwrap();
        let got = values(&threshold(&x, 0.5, 100.0).unwrap());
        assert_eq!(got, [0.5, -0.25, 0.1, 1.0, -1.0, 0.5]);
    }
}
