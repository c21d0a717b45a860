//! Pseudo-linear multistep: the noise is averaged over the last calls, and a DDIM step carries the average.

use std::collections::VecDeque;
use std::sync::Arc;

use candle_core::Tensor;

use super::{Node, Trip};
use crate::diffusion::lens::Prediction;
use crate::diffusion::mix::mix;
use crate::diffusion::spacing::whole;
use crate::error::{Code, Error, Result};

/// The numbers of a PNDM walk.
#[derive(Debug, Clone)]
pub(crate) struct Pndm {
    /// ᾱ per training step.
    pub(crate) alphas: Arc<[f64]>,
    /// ᾱ beyond the clean end.
    pub(crate) beyond: f64,
    /// Training steps per step.
    pub(crate) stride: usize,
    /// How many calls the Runge-Kutta beginning has.
    pub(crate) runge_kutta: usize,
}

/// Adams–Bashforth weights, newest first: orders one to four.
const ADAMS: [&[f64]; 4] = [
    &[1.0],
    &[1.5, -0.5],
    &[23.0 / 12.0, -16.0 / 12.0, 5.0 / 12.0],
    &[55.0 / 24.0, -59.0 / 24.0, 37.0 / 24.0, -9.0 / 24.0],
];

/// The average of the last answers.
fn averaged(known: &VecDeque<Tensor>) -> Result<Tensor> {
    let weights = ADAMS[known.len().clamp(1, 4) - 1];
    let terms: Vec<(f64, &Tensor)> = weights.iter().copied().zip(known).collect();
    mix(&terms)
}

/// A beginning of repeated or Runge-Kutta calls, then four answers a step.
///
/// # Source
/// Liu et al. 2022 (arXiv 2202.09778), algorithm 2 and eq. 11; the shorter beginning of `CompVis/latent-diffusion
/// ldm/models/diffusion/plms.py`, MIT.
pub(crate) fn pndm(trip: &mut Trip<'_, '_>, mut x: Tensor, plan: &Pndm) -> Result<Tensor> {
    let (begin, stride) = (trip.calls().start, plan.stride as f64);
    let mut known: VecDeque<Tensor> = VecDeque::with_capacity(4);
    let mut base = x.clone();
    let mut sum: Option<Tensor> = None;
    for call in trip.calls() {
        let (count, time) = (call - begin, trip.level(call).time);
        let raw = trip.raw(&x, call)?;
        let next = if count < plan.runge_kutta {
            let to = if count % 2 == 1 { time } else { time - (plan.stride / 2) as f64 };
            let answer = match (count % 4, sum.take()) {
                (3, Some(sum)) => mix(&[(1.0, &sum), (1.0 / 6.0, &raw)])?,
                (place, before) => {
                    let share = if place == 0 { 1.0 / 6.0 } else { 1.0 / 3.0 };
                    if place == 0 {
                        known.push_front(raw.clone());
                        base = x.clone();
                    }
                    sum = Some(match before {
                        Some(before) => mix(&[(1.0, &before), (share, &raw)])?,
                        None => mix(&[(share, &raw)])?,
                    });
                    raw
                }
            };
            let from = trip.level(count / 4 * 4).time;
            plan.carried(trip, &base, &answer, (from, to))?
        } else if count == 1 {
            // The second level is visited twice: the first step again, with the mean of both answers.
            let mean = mix(&[(0.5, &raw), (0.5, &known[0])])?;
            plan.carried(trip, &base, &mean, (time + stride, time))?
        } else {
            known.truncate(3);
            known.push_front(raw);
            plan.carried(trip, &x, &averaged(&known)?, (time, time - stride))?
        };
        x = trip.arrive(call, next, None)?;
    }
    Ok(x)
}

impl Pndm {
    fn share(&self, time: f64) -> Result<f64> {
        if time < 0.0 {
            return Ok(self.beyond);
        }
        self.alphas.get(whole(time)).copied().ok_or_else(|| {
            Error::new(
                Code::ConfigInvalid,
                format!("the walk visits training step {time}, which does not exist"),
            )
        })
    }

    /// The latent at `to`, if `answer` is the noise or the v of `x` at `from`.
    fn carried(
        &self,
        trip: &Trip<'_, '_>,
        x: &Tensor,
        answer: &Tensor,
        (from, to): (f64, f64),
    ) -> Result<Tensor> {
        let (now, next) = (self.share(from)?, self.share(to)?);
        let (left, left_next) = (1.0 - now, 1.0 - next);
        let slope = -(next - now) / (now * left_next.sqrt() + (now * left * next).sqrt());
        let keep = (next / now).sqrt();
        if trip.lens().prediction == Prediction::V {
            return mix(&[(keep + slope * left.sqrt(), x), (slope * now.sqrt(), answer)]);
        }
        mix(&[(keep, x), (slope, answer)])
    }
}

/// Four answers a step, on a quarter circle, from the first step on.
///
/// # Source
/// `crowsonkb/v-diffusion-pytorch diffusion/sampling.py` `plms_sample`, MIT.
pub(crate) fn ipndm(trip: &mut Trip<'_, '_>, mut x: Tensor, nodes: &[Node]) -> Result<Tensor> {
    let mut known: VecDeque<Tensor> = VecDeque::with_capacity(4);
    for call in trip.calls() {
        let (now, next) = (nodes[call], nodes[call + 1]);
        let raw = trip.raw(&x, call)?;
        known.truncate(3);
        known.push_front(mix(&[(now.sigma, &x), (now.alpha, &raw)])?);
        let noise = averaged(&known)?;
        // Two sums, not one: at the noisy end α is zero and only their difference is finite.
        let rest = mix(&[(1.0, &x), (-now.sigma, &noise)])?;
        let clean = mix(&[(1.0 / now.alpha.max(1e-8), &rest)])?;
        let moved = mix(&[(next.alpha, &clean), (next.sigma, &noise)])?;
        x = trip.arrive(call, moved, Some(&clean))?;
    }
    Ok(x)
}
