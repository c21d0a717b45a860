//! The sampler of most names: a step is one weighted sum of what is known.

use candle_core::Tensor;

use super::Trip;
use crate::diffusion::lens::{Prediction, slope};
use crate::diffusion::mix::mix;
use crate::diffusion::spacing::single;
use crate::diffusion::walk::{Churn, Level};
use crate::error::{Code, Error, Result};

/// Fresh noise at the end of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fresh {
    /// None is drawn.
    None,
    /// Drawn, and given this standard deviation; zero still takes a draw from the generator.
    Scaled(f64),
    /// The network says the variance in its other half of channels: itself, or its place between two logarithms.
    Learned(Option<(f64, f64)>),
}

/// The weights of one step: `x′ = clean·x̂₀ + noise·ε̂ + x·x + slope·(x − x̂₀)/σ + fresh·z`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stride {
    /// Weight of the clean estimate.
    pub(crate) clean: f64,
    /// Weight of the noise that the network implies.
    pub(crate) noise: f64,
    /// Weight of the latent.
    pub(crate) x: f64,
    /// Weight of the slope: how far σ falls.
    pub(crate) slope: f64,
    /// Fresh noise.
    pub(crate) fresh: Fresh,
    /// Consistency models blend the estimate with the latent first: `(of the estimate, of the latent)`.
    pub(crate) boundary: Option<(f64, f64)>,
}

impl Default for Stride {
    fn default() -> Self {
        Self { clean: 0.0, noise: 0.0, x: 0.0, slope: 0.0, fresh: Fresh::None, boundary: None }
    }
}

impl Stride {
    /// Along the slope from one σ to another.
    pub(crate) fn fall(from: f64, to: f64) -> Self {
        Self { x: 1.0, slope: single(to - from), ..Self::default() }
    }
}

/// Walks by weighted sums, one call a step.
///
/// Euler, its ancestral form, DDIM, DDPM, LCM and TCD differ in nothing but the weights, which the schedule knows before
/// the walk begins.
pub(crate) fn stride(trip: &mut Trip<'_, '_>, mut x: Tensor, strides: &[Stride]) -> Result<Tensor> {
    for call in trip.calls() {
        let (stride, at, lens) = (strides[call], trip.level(call), trip.lens());
        let mut raw = trip.raw(&x, call)?;
        let mut spread = None;
        if let Fresh::Learned(range) = stride.fresh {
            let (answer, said) = split(&raw, x.dim(1)?)?;
            spread = Some(deviation(&said, range)?);
            raw = answer;
        } else if raw.dim(1)? == 2 * x.dim(1)? && strides.iter().any(|s| matches!(s.fresh, Fresh::Learned(_)))
        {
            raw = split(&raw, x.dim(1)?)?.0;
        }
        let mut clean = lens.clean(&raw, &x, &at)?;
        if let Some((of_clean, of_x)) = stride.boundary {
            clean = mix(&[(of_clean, &clean), (of_x, &x)])?;
        }
        let mut next = if stride.slope != 0.0 {
            mix(&[(stride.slope, &slope(&clean, &x, at.sigma)?), (stride.x, &x)])?
        } else if stride.noise == 0.0 {
            mix(&[(stride.clean, &clean), (stride.x, &x)])?
        } else {
            let noise = lens.noise(&raw, &x, &at)?;
            mix(&[(stride.clean, &clean), (stride.noise, &noise), (stride.x, &x)])?
        };
        match (stride.fresh, spread) {
            (Fresh::Scaled(deviation), _) => next = mix(&[(1.0, &next), (deviation, &trip.draw(&x)?)])?,
            (Fresh::Learned(_), Some(spread)) => next = (next + (trip.draw(&x)? * spread)?)?,
            _ => {}
        }
        x = trip.arrive(call, next, Some(&clean))?;
    }
    Ok(x)
}

fn split(raw: &Tensor, channels: usize) -> Result<(Tensor, Tensor)> {
    if raw.dim(1)? != 2 * channels {
        return Err(Error::new(
            Code::ConfigInvalid,
            format!("variance_type is learned, but the network says {} channels for {channels}", raw.dim(1)?),
        ));
    }
    Ok((raw.narrow(1, 0, channels)?, raw.narrow(1, channels, channels)?))
}

/// The standard deviation that a network said (arXiv 2102.09672) eq. 15.
fn deviation(said: &Tensor, range: Option<(f64, f64)>) -> Result<Tensor> {
    Ok(match range {
        None => said.sqrt()?,
        Some((low, high)) => (((said + 1.0)? * (0.25 * (high - low)))? + 0.5 * low)?.exp()?,
    })
}

/// Euler with noise stirred in before each step.
///
/// The network has already been asked when the noise goes in, as the reference does it; the paper stirs first.
///
/// # Source
/// Karras et al. 2022 (arXiv 2206.00364), algorithm 2.
pub(crate) fn churned(
    trip: &mut Trip<'_, '_>,
    mut x: Tensor,
    sigmas: &[f64],
    churn: &Churn,
) -> Result<Tensor> {
    for call in trip.calls() {
        let at = trip.level(call);
        let raw = trip.raw(&x, call)?;
        let gain = churn.gain(at.sigma, sigmas.len());
        let hat = at.sigma * (gain + 1.0);
        if gain > 0.0 {
            let extra = churn.noise * (hat * hat - at.sigma * at.sigma).sqrt();
            x = mix(&[(1.0, &x), (extra, &trip.draw(&x)?)])?;
        }
        // Only v is read at the level that the network was told.
        let heard = if trip.lens().prediction == Prediction::V { at.sigma } else { hat };
        let clean = trip.lens().clean(&raw, &x, &Level { sigma: heard, listed: heard, ..at })?;
        let next = mix(&[(1.0, &x), (sigmas[call + 1] - hat, &slope(&clean, &x, hat)?)])?;
        x = trip.arrive(call, next, Some(&clean))?;
    }
    Ok(x)
}
