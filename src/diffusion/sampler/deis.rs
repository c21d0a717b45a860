//! DEIS: the exponential integrator whose polynomial runs in ln ρ.

use std::collections::VecDeque;

use candle_core::Tensor;

use super::{Node, Trip};
use crate::diffusion::lens::explain;
use crate::diffusion::mix::mix;
use crate::diffusion::spacing::single;
use crate::error::Result;

/// The numbers of a DEIS walk.
#[derive(Debug, Clone)]
pub(crate) struct Deis {
    /// The highest order of each step.
    pub(crate) orders: Vec<usize>,
    /// The levels, with the last.
    pub(crate) nodes: Vec<Node>,
}

/// Extrapolates the noise over the last answers.
///
/// # Source
/// Zhang & Chen 2022 (arXiv 2204.13902), ρAB-DEIS; the log-ρ form of `huggingface/diffusers
/// src/diffusers/schedulers/scheduling_deis_multistep.py`, Apache-2.0.
pub(crate) fn deis(trip: &mut Trip<'_, '_>, mut x: Tensor, plan: &Deis) -> Result<Tensor> {
    let mut known: VecDeque<Tensor> = VecDeque::with_capacity(3);
    for call in trip.calls() {
        let clean = trip.clean(&x, call)?;
        known.truncate(2);
        known.push_front(explain(&clean, &x, &trip.level(call))?);
        let order = plan.orders[call].min(known.len());
        let (from, to) = (plan.nodes[call], plan.nodes[call + 1]);
        let rho = |back: usize| (plan.nodes[call - back].sigma / plan.nodes[call - back].alpha) as f32;
        let end = (to.sigma / to.alpha) as f32;
        let shares = match order {
            1 => vec![-single(to.sigma) * Node::growth32(Node::gain32(from, to))],
            2 => {
                let pair = |b, c| second(end, b, c) - second(rho(0), b, c);
                vec![pair(rho(0), rho(1)), pair(rho(1), rho(0))]
            }
            _ => {
                let triple = |b, c, d| third(end, b, c, d) - third(rho(0), b, c, d);
                vec![
                    triple(rho(0), rho(1), rho(2)),
                    triple(rho(1), rho(2), rho(0)),
                    triple(rho(2), rho(0), rho(1)),
                ]
            }
        };
        let mut terms = vec![(to.alpha / from.alpha, &x)];
        let unit = if order == 1 { 1.0 } else { to.alpha };
        terms.extend(shares.into_iter().map(|share| unit * share).zip(&known));
        let next = mix(&terms)?;
        x = trip.arrive(call, next, Some(&clean))?;
    }
    Ok(x)
}

/// The antiderivative at `t` of the line that is one at `b` and zero at `c`, in ln ρ.
///
/// In single precision, as the reference: the difference of two of these loses digits, and both walks lose the same.
fn second(t: f32, b: f32, c: f32) -> f64 {
    f64::from(t * (-c.ln() + t.ln() - 1.0) / (b.ln() - c.ln()))
}

/// The antiderivative at `t` of the parabola that is one at `b` and zero at `c` and `d`, in ln ρ.
fn third(t: f32, b: f32, c: f32, d: f32) -> f64 {
    let (log_t, log_b, log_c, log_d) = (t.ln(), b.ln(), c.ln(), d.ln());
    let above =
        t * (log_c * (log_d - log_t + 1.0) - log_d * log_t + log_d + log_t * log_t - 2.0 * log_t + 2.0);
    f64::from(above / ((log_b - log_c) * (log_b - log_d)))
}
