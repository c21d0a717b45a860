//! Heun: an Euler step, then the mean of the slopes at both its ends.

use candle_core::Tensor;

use super::Trip;
use crate::diffusion::lens::slope;
use crate::diffusion::mix::mix;
use crate::diffusion::walk::Churn;
use crate::error::Result;

/// Two calls a step, the last step but one.
///
/// The slope `(x − x̂₀)/σ` is the noise of the exploding process and the velocity of the straight one.
///
/// # Source
/// Karras et al. 2022 (arXiv 2206.00364), algorithm 1; where noise is stirred in, after the call as the reference does.
pub(crate) fn heun(trip: &mut Trip<'_, '_>, mut x: Tensor, listed: usize, churn: &Churn) -> Result<Tensor> {
    let mut call = trip.calls().start;
    let calls = trip.calls().end;
    while call < calls {
        let from = trip.level(call).sigma;
        let to = trip.walk.levels.get(call + 1).map_or(0.0, |next| next.sigma);
        let gain = churn.gain(from, listed);
        let hat = from * (gain + 1.0);
        let raw = trip.raw(&x, call)?;
        x = stirred(trip, x, (from, hat), churn)?;
        let clean = trip.lens().clean(&raw, &x, &trip.level(call))?;
        let first = slope(&clean, &x, hat)?;
        let mut ahead = trip.arrive(call, mix(&[(1.0, &x), (to - hat, &first)])?, Some(&clean))?;
        call += 1;
        if call < calls {
            let raw = trip.raw(&ahead, call)?;
            ahead = stirred(trip, ahead, (from, hat), churn)?;
            let clean = trip.lens().clean(&raw, &ahead, &trip.level(call))?;
            let both = mix(&[(1.0, &first), (1.0, &slope(&clean, &ahead, to)?)])?;
            let next = mix(&[(1.0, &x), (0.5 * (to - hat), &both)])?;
            ahead = trip.arrive(call, next, Some(&clean))?;
            call += 1;
        }
        x = ahead;
    }
    Ok(x)
}

/// `x` with the noise that raises its level, if it is raised.
fn stirred(trip: &mut Trip<'_, '_>, x: Tensor, (from, hat): (f64, f64), churn: &Churn) -> Result<Tensor> {
    if hat <= from {
        return Ok(x);
    }
    let fresh = trip.draw(&x)?;
    mix(&[(1.0, &x), (churn.noise * (hat * hat - from * from).sqrt(), &fresh)])
}
