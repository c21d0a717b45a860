//! DPM2 and its ancestral form: the slope half-way in ln σ carries the whole step.

use candle_core::Tensor;

use super::Trip;
use crate::diffusion::lens::slope;
use crate::diffusion::mix::mix;
use crate::error::Result;

/// One step by way of its middle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Hop {
    /// σ half-way; zero where the step goes all the way down at once.
    pub(crate) middle: f64,
    /// σ that the slope leads to.
    pub(crate) down: f64,
    /// Standard deviation of the fresh noise that leads back up.
    pub(crate) up: f64,
}

/// Two calls a step, the last step but one.
///
/// # Source
/// Karras et al. 2022 (arXiv 2206.00364), algorithm 2 with other middles; `crowsonkb/k-diffusion
/// k_diffusion/sampling.py` `sample_dpm_2` and `sample_dpm_2_ancestral`, MIT.
pub(crate) fn midpoint(
    trip: &mut Trip<'_, '_>,
    mut x: Tensor,
    hops: &[Hop],
    ancestral: bool,
) -> Result<Tensor> {
    let (begin, calls) = (trip.calls().start, trip.calls().end);
    for (step, hop) in hops.iter().enumerate().skip(begin / 2) {
        let call = 2 * step;
        let from = trip.level(call).sigma;
        let clean = trip.clean(&x, call)?;
        let middle = mix(&[(1.0, &x), (hop.middle - from, &slope(&clean, &x, from)?)])?;
        let middle = trip.arrive(call, middle, Some(&clean))?;
        if call + 1 == calls {
            return Ok(middle);
        }
        let clean = trip.clean(&middle, call + 1)?;
        let mut next = mix(&[(1.0, &x), (hop.down - from, &slope(&clean, &middle, hop.middle)?)])?;
        if ancestral {
            next = mix(&[(1.0, &next), (hop.up, &trip.draw(&x)?)])?;
        }
        x = trip.arrive(call + 1, next, Some(&clean))?;
    }
    Ok(x)
}
