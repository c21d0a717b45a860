//! Linear multistep: Adams–Bashforth on uneven levels.

use std::collections::VecDeque;

use candle_core::Tensor;

use super::Trip;
use crate::diffusion::lens::slope;
use crate::diffusion::mix::mix;
use crate::error::Result;

/// The numbers of a linear multistep walk.
#[derive(Debug, Clone)]
pub(crate) struct Lms {
    /// σ per step, with the last.
    pub(crate) sigmas: Vec<f64>,
    /// How many slopes are remembered.
    pub(crate) order: usize,
}

/// Integrates the polynomial through the last slopes.
///
/// # Source
/// `crowsonkb/k-diffusion k_diffusion/sampling.py` `sample_lms`, MIT; the integrals are exact here.
pub(crate) fn lms(trip: &mut Trip<'_, '_>, mut x: Tensor, plan: &Lms) -> Result<Tensor> {
    let mut slopes: VecDeque<Tensor> = VecDeque::with_capacity(plan.order);
    for call in trip.calls() {
        let clean = trip.clean(&x, call)?;
        slopes.truncate(plan.order - 1);
        slopes.push_front(slope(&clean, &x, plan.sigmas[call])?);
        let order = plan.order.min(call + 1);
        let mut terms = vec![(1.0, &x)];
        terms.extend(
            slopes
                .iter()
                .take(order)
                .enumerate()
                .map(|(j, slope)| (weight(&plan.sigmas, call, order, j), slope)),
        );
        let next = mix(&terms)?;
        x = trip.arrive(call, next, Some(&clean))?;
    }
    Ok(x)
}

/// ∫ of the `j`-th Lagrange polynomial over the last `order` levels, from this level to the next.
fn weight(sigmas: &[f64], call: usize, order: usize, j: usize) -> f64 {
    // Gauss–Legendre with three points is exact up to degree five; the polynomials have degree three at most.
    let nodes = [(-(0.6f64.sqrt()), 5.0 / 9.0), (0.0, 8.0 / 9.0), (0.6f64.sqrt(), 5.0 / 9.0)];
    let (from, to) = (sigmas[call], sigmas[call + 1]);
    let (middle, half) = (0.5 * (from + to), 0.5 * (to - from));
    let polynomial = |sigma: f64| -> f64 {
        (0..order)
            .filter(|&k| k != j)
            .map(|k| (sigma - sigmas[call - k]) / (sigmas[call - j] - sigmas[call - k]))
            .product()
    };
    nodes.iter().map(|(place, share)| share * polynomial(middle + half * place)).sum::<f64>() * half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_one_step_are_its_length() {
        let sigmas = [9.0, 7.0, 4.0, 2.0, 0.5];
        for order in 1..=4 {
            let sum: f64 = (0..order).map(|j| weight(&sigmas, 3, order, j)).sum();
            assert!((sum - (0.5 - 2.0)).abs() < 1e-12);
        }
        // Even levels give the textbook 3/2 and −1/2.
        let even = [3.0, 2.0, 1.0];
        assert!((weight(&even, 1, 2, 0) + 1.5).abs() < 1e-12);
        assert!((weight(&even, 1, 2, 1) - 0.5).abs() < 1e-12);
    }
}
