//! `UniPC`: a predictor, and a corrector that costs no further call.

use std::collections::VecDeque;

use candle_core::Tensor;

use super::{Node, Trip};
use crate::diffusion::mix::mix;
use crate::error::{Error, Result};

/// The numbers of a `UniPC` walk.
#[derive(Debug, Clone)]
pub(crate) struct UniPc {
    /// Whether the clean estimate is extrapolated, or the noise.
    pub(crate) data: bool,
    /// Which B(h): h itself, or e^h − 1.
    pub(crate) bh1: bool,
    /// The highest order of each step.
    pub(crate) orders: Vec<usize>,
    /// The steps that are not corrected.
    pub(crate) uncorrected: Vec<usize>,
    /// The levels, with the last.
    pub(crate) nodes: Vec<Node>,
}

/// One step: where it begins and ends, and where the older answers were given.
struct Span<'a> {
    plan: &'a UniPc,
    from: Node,
    to: Node,
    /// (λ − λ₀)/h of the older answers.
    places: Vec<f64>,
}

/// Predicts, asks, and corrects the step before with what the answer says.
///
/// # Source
/// Zhao et al. 2023 (arXiv 2302.04867), algorithms 5 to 8; `wl-zhao/UniPC uni_pc.py`, MIT.
pub(crate) fn unipc(trip: &mut Trip<'_, '_>, mut x: Tensor, plan: &UniPc) -> Result<Tensor> {
    let mut known: VecDeque<Tensor> = VecDeque::with_capacity(4);
    let mut before: Option<(Tensor, usize)> = None;
    for call in trip.calls() {
        let (lens, at) = (trip.lens(), trip.level(call));
        let raw = trip.raw(&x, call)?;
        let (answer, clean) = if plan.data {
            let clean = lens.clean(&raw, &x, &at)?;
            (clean.clone(), Some(clean))
        } else {
            (lens.noise(&raw, &x, &at)?, None)
        };
        if let Some((base, order)) = &before
            && !plan.uncorrected.contains(&(call - 1))
        {
            x = Span::new(plan, call - 1, *order).corrected(base, &known, &answer)?;
        }
        known.truncate(3);
        known.push_front(answer);
        let order = plan.orders[call].min(known.len());
        let next = Span::new(plan, call, order).predicted(&x, &known)?;
        before = Some((x, order));
        x = trip.arrive(call, next, clean.as_ref())?;
    }
    Ok(x)
}

impl<'a> Span<'a> {
    fn new(plan: &'a UniPc, call: usize, order: usize) -> Self {
        let (from, to) = (plan.nodes[call], plan.nodes[call + 1]);
        let h = to.lambda - from.lambda;
        let places = (1..order).map(|i| (plan.nodes[call - i].lambda - from.lambda) / h).collect();
        Self { plan, from, to, places }
    }

    /// `(weight of the base, weight of m₀, weight of the differences)`, and the right side of the order conditions.
    fn weights(&self, order: usize) -> ((f64, f64, f64), Vec<f64>) {
        let h = self.to.lambda - self.from.lambda;
        let hh = if self.plan.data { -h } else { h };
        let first = hh.exp_m1();
        let scale = if self.plan.bh1 { hh } else { first };
        let mut term = first / hh - 1.0;
        let mut factorial = 1.0;
        let mut right = Vec::with_capacity(order);
        for i in 1..=order {
            right.push(term * factorial / scale);
            factorial *= (i + 1) as f64;
            term = term / hh - 1.0 / factorial;
        }
        let (base, unit) = if self.plan.data {
            (self.to.sigma / self.from.sigma, self.to.alpha)
        } else {
            (self.to.alpha / self.from.alpha, self.to.sigma)
        };
        ((base, -unit * first, -unit * scale), right)
    }

    fn predicted(&self, x: &Tensor, known: &VecDeque<Tensor>) -> Result<Tensor> {
        let order = self.places.len() + 1;
        let ((base, newest, difference), right) = self.weights(order);
        let shares = match order {
            1 => Vec::new(),
            2 => vec![0.5],
            _ => solve(&self.places, &right[..order - 1])?,
        };
        self.sum((base, newest, difference), &shares, None, (x, known))
    }

    fn corrected(&self, x: &Tensor, known: &VecDeque<Tensor>, answer: &Tensor) -> Result<Tensor> {
        let order = self.places.len() + 1;
        let ((base, newest, difference), right) = self.weights(order);
        let mut places = self.places.clone();
        places.push(1.0);
        let shares = if order == 1 { vec![0.5] } else { solve(&places, &right)? };
        self.sum((base, newest, difference), &shares, Some(answer), (x, known))
    }

    /// base·x + newest·m₀ + difference·Σ ρᵢ(mᵢ − m₀)/rᵢ, the last difference being that of the answer ahead.
    fn sum(
        &self,
        (base, newest, difference): (f64, f64, f64),
        shares: &[f64],
        ahead: Option<&Tensor>,
        (x, known): (&Tensor, &VecDeque<Tensor>),
    ) -> Result<Tensor> {
        let mut of_newest = newest;
        let mut terms = vec![(base, x)];
        for (i, share) in shares.iter().enumerate() {
            let (weight, tensor) = match (self.places.get(i), ahead) {
                (Some(place), _) => (difference * share / place, &known[i + 1]),
                (None, Some(ahead)) => (difference * share, ahead),
                (None, None) => return Err(Error::internal("a predictor has no answer ahead")),
            };
            terms.push((weight, tensor));
            of_newest -= weight;
        }
        terms.push((of_newest, &known[0]));
        mix(&terms)
    }
}

/// Solves Σⱼ rⱼ^i·ρⱼ = bᵢ by Gauss with pivots.
fn solve(places: &[f64], right: &[f64]) -> Result<Vec<f64>> {
    let n = places.len();
    let mut rows: Vec<Vec<f64>> =
        (0..).zip(right).map(|(i, b)| places.iter().map(|r| r.powi(i)).chain([*b]).collect()).collect();
    for column in 0..n {
        let pivot = (column..n).max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()));
        let Some(pivot) = pivot.filter(|&p| rows[p][column].abs() > 0.0) else {
            return Err(Error::internal("two levels of the walk coincide"));
        };
        rows.swap(column, pivot);
        let chosen = rows[column].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(row, _)| *row != column) {
            let factor = row[column] / chosen[column];
            for (value, pivot) in row.iter_mut().zip(&chosen) {
                *value -= factor * pivot;
            }
        }
    }
    Ok((0..n).map(|i| rows[i][n] / rows[i][i]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_conditions_are_solved() {
        let shares = solve(&[-1.5, -0.5, 1.0], &[0.2, 0.4, 0.1]).unwrap();
        for (i, want) in [(0, 0.2), (1, 0.4), (2, 0.1)] {
            let got: f64 = [-1.5f64, -0.5, 1.0].iter().zip(&shares).map(|(r, s)| r.powi(i) * s).sum();
            assert!((got - want).abs() < 1e-12);
        }
        assert!(solve(&[1.0, 1.0], &[0.0, 1.0]).is_err());
    }
}
