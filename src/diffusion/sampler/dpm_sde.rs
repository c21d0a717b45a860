//! DPM-Solver++ (2S) on a Brownian path, the "DPM++ SDE" of other programs.

use candle_core::Tensor;

use super::Trip;
use crate::diffusion::brownian::{Path, through_logarithm};
use crate::diffusion::mix::mix;
use crate::diffusion::schedule::scaled::ancestral;
use crate::error::Result;

/// Two calls a step, the last step but one; both halves of a step see the same Brownian path.
///
/// # Source
/// `crowsonkb/k-diffusion k_diffusion/sampling.py` `sample_dpmpp_sde`, MIT, at η = 1 and r = ½.
pub(crate) fn dpm_sde(
    trip: &mut Trip<'_, '_>,
    mut x: Tensor,
    sigmas: &[f64],
    seed: Option<u64>,
    noise: f64,
) -> Result<Tensor> {
    let (begin, calls) = (trip.calls().start, trip.calls().end);
    let lowest = sigmas.iter().copied().filter(|sigma| *sigma > 0.0).fold(f64::INFINITY, f64::min);
    let mut path = Path::new(trip.source(), seed, (lowest, sigmas[0]), &x);
    for step in begin / 2..sigmas.len() - 1 {
        let (call, from, to) = (2 * step, sigmas[step], sigmas[step + 1]);
        let clean = trip.clean(&x, call)?;
        if call + 1 == calls {
            return trip.arrive(call, clean.clone(), Some(&clean));
        }
        let (start, middle) = (through_logarithm(from), trip.level(call + 1).sigma);
        let next = leap(&x, &clean, (from, middle), noise, &path.between(trip.source(), start, middle)?)?;
        let half = trip.arrive(call, next, Some(&clean))?;
        let clean = trip.clean(&half, call + 1)?;
        let next =
            leap(&x, &clean, (from, to), noise, &path.between(trip.source(), start, through_logarithm(to))?)?;
        x = trip.arrive(call + 1, next, Some(&clean))?;
    }
    Ok(x)
}

/// Down past the next level and up again on the path.
fn leap(x: &Tensor, clean: &Tensor, (from, to): (f64, f64), noise: f64, path: &Tensor) -> Result<Tensor> {
    let (down, up) = ancestral(from, to);
    let kept = down / from;
    mix(&[(kept, x), (1.0 - kept, clean), (up.min(to) * noise, path)])
}
