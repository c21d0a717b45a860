//! DPM-Solver and DPM-Solver++, deterministic and stochastic, looking back or beginning anew.

use std::collections::VecDeque;

use candle_core::Tensor;

use super::{Node, Trip};
use crate::diffusion::lens::{Bound, explain};
use crate::diffusion::mix::mix;
use crate::error::Result;

/// What is taken as constant over a step, and whether noise is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// The clean estimate: DPM-Solver++ (arXiv 2211.01095).
    Data,
    /// The noise: DPM-Solver (arXiv 2206.00927).
    Noise,
    /// The clean estimate, stochastic.
    DataSde,
    /// The noise, stochastic.
    NoiseSde,
}

impl Algorithm {
    fn is_noise(self) -> bool {
        matches!(self, Self::Noise | Self::NoiseSde)
    }

    fn is_stochastic(self) -> bool {
        matches!(self, Self::DataSde | Self::NoiseSde)
    }
}

/// The numbers of a DPM-Solver walk.
#[derive(Debug, Clone)]
pub(crate) struct Multistep {
    /// What is constant.
    pub(crate) algorithm: Algorithm,
    /// Which second-order term: the derivative's own integral, or half the first.
    pub(crate) heun: bool,
    /// The highest order of each step.
    pub(crate) orders: Vec<usize>,
    /// The levels, with the last.
    pub(crate) nodes: Vec<Node>,
}

/// Integrals of the exponential over one step, per order of the derivative, with their signs.
struct Integrals {
    x: f64,
    zeroth: f64,
    half: f64,
    first: f64,
    second: f64,
    fresh: f64,
}

impl Integrals {
    fn new(algorithm: Algorithm, from: Node, to: Node) -> Self {
        let h = to.lambda - from.lambda;
        let (alpha, sigma) = (to.alpha, to.sigma);
        match algorithm {
            Algorithm::Data => {
                let e = (-h).exp_m1();
                Self {
                    x: sigma / from.sigma,
                    zeroth: -alpha * e,
                    half: -0.5 * alpha * e,
                    first: alpha * (e / h + 1.0),
                    second: -alpha * ((e + h) / (h * h) - 0.5),
                    fresh: 0.0,
                }
            }
            Algorithm::Noise => {
                let h = Node::gain32(from, to);
                let e = Node::growth32(h);
                Self {
                    x: alpha / from.alpha,
                    zeroth: -sigma * e,
                    half: -0.5 * sigma * e,
                    first: -sigma * (e / h - 1.0),
                    second: -sigma * ((e - h) / (h * h) - 0.5),
                    fresh: 0.0,
                }
            }
            Algorithm::DataSde => {
                let e = -(-2.0 * h).exp_m1();
                Self {
                    x: sigma / from.sigma * (-h).exp(),
                    zeroth: alpha * e,
                    half: 0.5 * alpha * e,
                    first: alpha * (1.0 - e / (2.0 * h)),
                    second: alpha * ((e - 2.0 * h) / (4.0 * h * h) - 0.5),
                    fresh: sigma * e.sqrt(),
                }
            }
            Algorithm::NoiseSde => {
                let h = Node::gain32(from, to);
                let e = Node::growth32(h);
                Self {
                    x: alpha / from.alpha,
                    zeroth: -2.0 * sigma * e,
                    half: -sigma * e,
                    first: -2.0 * sigma * (e / h - 1.0),
                    second: f64::NAN,
                    fresh: sigma * (2.0 * h).exp_m1().sqrt(),
                }
            }
        }
    }
}

/// The quantity that the algorithm takes as constant.
fn ask(
    trip: &mut Trip<'_, '_>,
    x: &Tensor,
    call: usize,
    algorithm: Algorithm,
) -> Result<(Tensor, Option<Tensor>)> {
    let (lens, at) = (trip.lens(), trip.level(call));
    let raw = trip.raw(x, call)?;
    if !algorithm.is_noise() {
        let clean = lens.clean(&raw, x, &at)?;
        return Ok((clean.clone(), Some(clean)));
    }
    if lens.bound == Bound::None {
        return Ok((lens.noise(&raw, x, &at)?, None));
    }
    let clean = lens.clean(&raw, x, &at)?;
    Ok((explain(&clean, x, &at)?, Some(clean)))
}

/// Looks back: each step uses the answers of the steps before it.
///
/// # Source
/// Lu et al. 2022 (arXiv 2211.01095), algorithm 2; `huggingface/diffusers
/// src/diffusers/schedulers/scheduling_dpmsolver_multistep.py`, Apache-2.0, for the third order and the stochastic forms.
pub(crate) fn multistep(trip: &mut Trip<'_, '_>, mut x: Tensor, plan: &Multistep) -> Result<Tensor> {
    let mut known: VecDeque<Tensor> = VecDeque::with_capacity(3);
    for call in trip.calls() {
        let (answer, clean) = ask(trip, &x, call, plan.algorithm)?;
        known.truncate(2);
        known.push_front(answer);
        let order = plan.orders[call].min(known.len());
        let place = |back: usize| plan.nodes[call - back].lambda;
        let weights = Integrals::new(plan.algorithm, plan.nodes[call], plan.nodes[call + 1]);
        let h = plan.nodes[call + 1].lambda - place(0);
        let mut shares = vec![weights.zeroth];
        if order >= 2 {
            let r0 = (place(0) - place(1)) / h;
            if order == 2 {
                let first = if plan.heun { weights.first } else { weights.half } / r0;
                shares = vec![weights.zeroth + first, -first];
            } else {
                let r1 = (place(1) - place(2)) / h;
                shares = third(&weights, r0, r1);
            }
        }
        let mut terms = vec![(weights.x, &x)];
        terms.extend(shares.into_iter().zip(&known));
        let mut next = mix(&terms)?;
        if plan.algorithm.is_stochastic() {
            next = mix(&[(1.0, &next), (weights.fresh, &trip.draw(&x)?)])?;
        }
        x = trip.arrive(call, next, clean.as_ref())?;
    }
    Ok(x)
}

/// Shares of the last three answers: first and second differences, written out.
fn third(weights: &Integrals, r0: f64, r1: f64) -> Vec<f64> {
    // D₁₀ = (m₀ − m₁)/r₀, D₁₁ = (m₁ − m₂)/r₁, D₁ = D₁₀ + r₀/(r₀+r₁)·(D₁₀ − D₁₁), D₂ = (D₁₀ − D₁₁)/(r₀+r₁).
    let sum = r0 + r1;
    let recent = weights.first * (1.0 + r0 / sum) + weights.second / sum;
    let older = -weights.first * r0 / sum - weights.second / sum;
    vec![weights.zeroth + recent / r0, older / r1 - recent / r0, -older / r1]
}

/// Begins anew: within a round of up to three calls, all steps start from the latent of the first.
///
/// # Source
/// Lu et al. 2022 (arXiv 2206.00927), algorithms 1 and 2; `huggingface/diffusers
/// src/diffusers/schedulers/scheduling_dpmsolver_singlestep.py`, Apache-2.0.
pub(crate) fn singlestep(trip: &mut Trip<'_, '_>, mut x: Tensor, plan: &Multistep) -> Result<Tensor> {
    let mut known: VecDeque<Tensor> = VecDeque::with_capacity(3);
    let mut base = x.clone();
    for call in trip.calls() {
        let (answer, clean) = ask(trip, &x, call, plan.algorithm)?;
        known.truncate(2);
        known.push_front(answer);
        let order = plan.orders[call].min(known.len());
        if order == 1 {
            base = x.clone();
        }
        let first = plan.nodes[call + 1 - order];
        let to = plan.nodes[call + 1];
        let weights = Integrals::new(plan.algorithm, first, to);
        let along =
            |back: usize| (plan.nodes[call - back].lambda - first.lambda) / (to.lambda - first.lambda);
        let shares = match order {
            1 => vec![weights.zeroth],
            2 => {
                let slope = if plan.heun { weights.first } else { weights.half } / along(0);
                vec![slope, weights.zeroth - slope]
            }
            _ => round_of_three(&weights, along(0), along(1), plan.heun),
        };
        let mut terms = vec![(weights.x, &base)];
        terms.extend(shares.into_iter().zip(&known));
        let mut next = mix(&terms)?;
        if plan.algorithm.is_stochastic() {
            next = mix(&[(1.0, &next), (weights.fresh, &trip.draw(&x)?)])?;
        }
        x = trip.arrive(call, next, clean.as_ref())?;
    }
    Ok(x)
}

/// Shares of the three answers of a round, newest first.
fn round_of_three(weights: &Integrals, r0: f64, r1: f64, heun: bool) -> Vec<f64> {
    // D₁₀ = (m₁ − m₂)/r₁, D₁₁ = (m₀ − m₂)/r₀.
    let (early, late) = if heun {
        let gap = r0 - r1;
        ((weights.first * r0 - 2.0 * weights.second) / gap, (2.0 * weights.second - weights.first * r1) / gap)
    } else {
        (0.0, weights.first)
    };
    vec![late / r0, early / r1, weights.zeroth - late / r0 - early / r1]
}
