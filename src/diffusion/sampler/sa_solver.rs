//! SA-Solver: stochastic Adams, a predictor and a corrector that share their noise.

use std::collections::VecDeque;

use candle_core::Tensor;

use super::{Node, Trip};
use crate::diffusion::lens::{Bound, explain};
use crate::diffusion::mix::mix;
use crate::error::Result;

/// The numbers of an SA-Solver walk.
#[derive(Debug, Clone)]
pub(crate) struct SaSolver {
    /// Whether the clean estimate is extrapolated, or the noise.
    pub(crate) data: bool,
    /// The highest order of the predictor.
    pub(crate) predictor: usize,
    /// The highest order of the corrector.
    pub(crate) corrector: usize,
    /// Whether the last steps are of lower order.
    pub(crate) lower_order_final: bool,
    /// τ per step: how stochastic it is.
    pub(crate) taus: Vec<f64>,
    /// The levels, with the last.
    pub(crate) nodes: Vec<Node>,
}

/// The step before, for the corrector.
struct Before {
    x: Tensor,
    fresh: Tensor,
    order: usize,
}

/// Predicts, asks, and corrects the step before.
///
/// # Source
/// Xue et al. 2023 (arXiv 2309.05019), algorithm 1; second-order terms of `huggingface/diffusers
/// src/diffusers/schedulers/scheduling_sasolver.py`, Apache-2.0.
pub(crate) fn sa_solver(trip: &mut Trip<'_, '_>, mut x: Tensor, plan: &SaSolver) -> Result<Tensor> {
    let memory = plan.predictor.max(plan.corrector - 1);
    let n = plan.taus.len();
    let mut known: VecDeque<Tensor> = VecDeque::with_capacity(memory + 1);
    let mut before: Option<Before> = None;
    for call in trip.calls() {
        let (answer, clean) = ask(trip, &x, call, plan.data)?;
        let count = known.len();
        known.push_front(answer);
        if let Some(Before { x: base, fresh, order }) = &before {
            let places: Vec<f64> = (0..*order).map(|j| plan.nodes[call - j].lambda).collect();
            let step = Step { plan, from: call - 1, places, corrects: true };
            x = step.taken(base, &known, fresh)?;
        }
        known.truncate(memory);
        let fresh = trip.draw(&x)?;
        let (mut ahead, mut behind) = (plan.predictor.min(count + 1), plan.corrector.min(count + 2));
        if plan.lower_order_final {
            ahead = ahead.min(n - call);
            behind = behind.min(n - call + 1);
        }
        let places: Vec<f64> = (0..ahead).map(|j| plan.nodes[call - j].lambda).collect();
        let step = Step { plan, from: call, places, corrects: false };
        let next = step.taken(&x, &known, &fresh)?;
        before = Some(Before { x, fresh, order: behind });
        x = trip.arrive(call, next, clean.as_ref())?;
    }
    Ok(x)
}

fn ask(trip: &mut Trip<'_, '_>, x: &Tensor, call: usize, data: bool) -> Result<(Tensor, Option<Tensor>)> {
    let (lens, at) = (trip.lens(), trip.level(call));
    let raw = trip.raw(x, call)?;
    if !data && lens.bound == Bound::None {
        return Ok((lens.noise(&raw, x, &at)?, None));
    }
    let clean = lens.clean(&raw, x, &at)?;
    let answer = if data { clean.clone() } else { explain(&clean, x, &at)? };
    Ok((answer, Some(clean)))
}

/// One Adams step: where it begins, and at which λ the answers were given.
struct Step<'a> {
    plan: &'a SaSolver,
    from: usize,
    places: Vec<f64>,
    corrects: bool,
}

impl Step<'_> {
    fn taken(&self, x: &Tensor, answers: &VecDeque<Tensor>, fresh: &Tensor) -> Result<Tensor> {
        let (from, to) = (self.plan.nodes[self.from], self.plan.nodes[self.from + 1]);
        let tau = self.plan.taus[self.from];
        let (h, square) = (to.lambda - from.lambda, tau * tau);
        let mut shares = self.integrals(from.lambda, to.lambda, 1.0 + square);
        if self.plan.data && shares.len() == 2 {
            let extra = self.second_order(h, 1.0 + square);
            shares[0] += extra;
            shares[1] -= extra;
        }
        let (keep, gain, noise) = if self.plan.data {
            let gain = (1.0 + square) * to.sigma;
            let noise = to.sigma * (-(-2.0 * square * h).exp_m1()).sqrt();
            ((-square * h).exp() * to.sigma / from.sigma, gain, noise)
        } else {
            (to.alpha / from.alpha, -(1.0 + square) * to.alpha, tau * to.sigma * (2.0 * h).exp_m1().sqrt())
        };
        let mut terms = vec![(keep, x), (noise, fresh)];
        terms.extend(shares.iter().map(|share| gain * share).zip(answers));
        mix(&terms)
    }

    /// ∫ of each Lagrange polynomial times the exponential over the step; the clean form is scaled by e^(−τ²λ) already.
    fn integrals(&self, start: f64, end: f64, rate: f64) -> Vec<f64> {
        let n = self.places.len();
        (0..n)
            .map(|i| {
                // The i-th Lagrange polynomial in u = λ − end, lowest power first.
                let mut polynomial = vec![1.0];
                for j in (0..n).filter(|&j| j != i) {
                    let (root, gap) = (self.places[j] - end, self.places[i] - self.places[j]);
                    let mut product = vec![0.0; polynomial.len() + 1];
                    for (power, coefficient) in polynomial.iter().enumerate() {
                        product[power] -= coefficient * root / gap;
                        product[power + 1] += coefficient / gap;
                    }
                    polynomial = product;
                }
                let moments = (0..).zip(&polynomial);
                let sum: f64 = moments.map(|(k, c)| c * moment(k, start - end, self.slope(rate))).sum();
                // e^(rate·λ)·e^(−τ²·λ_end) = e^(λ_end)·e^(rate·u); e^(−λ) = e^(−λ_end)·e^(−u).
                sum * if self.plan.data { end.exp() } else { (-end).exp() }
            })
            .collect()
    }

    fn slope(&self, rate: f64) -> f64 {
        if self.plan.data { rate } else { -1.0 }
    }

    /// The published correction that makes the second order of the clean form exact at small h.
    fn second_order(&self, h: f64, rate: f64) -> f64 {
        let end = self.plan.nodes[self.from + 1].lambda;
        let rest = h * rate - 1.0 + (-rate * h).exp();
        if self.corrects {
            end.exp() * (h / 2.0 - rest / (rate * rate * h))
        } else {
            let gap = self.places[0] - self.places[1];
            end.exp() * (h * h / 2.0 - rest / (rate * rate)) / gap
        }
    }
}

/// ∫ u^k·e^(a·u) du from `start` (below zero) to 0.
fn moment(k: u32, start: f64, a: f64) -> f64 {
    if k == 0 {
        return -(a * start).exp_m1() / a;
    }
    // By parts; the boundary at zero vanishes.
    -(start.powi(k.cast_signed()) * (a * start).exp()) / a - f64::from(k) / a * moment(k - 1, start, a)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_integrals() {
        for (k, a) in [(0u32, 1.0), (1, 2.0), (2, -1.0), (3, 2.0)] {
            let steps = 20_000;
            let sum: f64 = (0..steps)
                .map(|i| {
                    let u = -0.7 * (f64::from(i) + 0.5) / f64::from(steps);
                    u.powi(k.cast_signed()) * (a * u).exp() * 0.7 / f64::from(steps)
                })
                .sum();
            assert!((moment(k, -0.7, a) - sum).abs() < 1e-8, "{k} {a}");
        }
    }
}
