//! The tables of noise levels that people choose by name: Karras, exponential, beta, Lu, and the shift of flow models.

use super::beta_quantile::beta_quantile;
use super::spacing::{interpolate, linspace, single};

/// How levels are spread between the highest and the lowest σ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ramp {
    /// Where the training steps put them.
    Training,
    /// Equal steps of σ^(1/7): Karras et al. 2022 (arXiv 2206.00364) eq. 5.
    Karras,
    /// Equal steps of ln σ.
    Exponential,
    /// Quantiles of Beta(0.6, 0.6): arXiv 2407.12173.
    Beta,
    /// Equal steps of λ: Lu et al. 2022 (arXiv 2211.01095).
    Lu,
}

/// `n` levels from `high` to `low`, spread as `ramp` says; `None` where the training steps decide.
pub(crate) fn ramp(kind: Ramp, high: f64, low: f64, n: usize) -> Option<Vec<f64>> {
    match kind {
        Ramp::Training => None,
        Ramp::Karras => Some(karras(high, low, 7.0, &linspace(0.0, 1.0, n))),
        Ramp::Exponential => Some(linspace(high.ln(), low.ln(), n).into_iter().map(f64::exp).collect()),
        Ramp::Beta => Some(
            linspace(0.0, 1.0, n).iter().map(|t| low + beta_quantile(1.0 - t, 0.6) * (high - low)).collect(),
        ),
        Ramp::Lu => {
            let (high, low) = (single(high.ln()), single(low.ln()));
            Some(linspace(0.0, 1.0, n).iter().map(|t| (high + t * (low - high)).exp()).collect())
        }
    }
}

/// Karras levels at the given places of a ramp from 0 (noisy) to 1 (clean).
pub(crate) fn karras(high: f64, low: f64, rho: f64, places: &[f64]) -> Vec<f64> {
    let (high, low) = (high.powf(1.0 / rho), low.powf(1.0 / rho));
    places.iter().map(|t| (high + t * (low - high)).powf(rho)).collect()
}

/// σ per training step, from ᾱ.
pub(crate) fn sigmas(alphas: &[f64]) -> Vec<f64> {
    alphas.iter().map(|a| single(single(single(1.0 - a) / a).sqrt())).collect()
}

/// The training step, fractional, at which a network heard this much noise.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    logs: Vec<f64>,
}

impl Clock {
    /// Reads the clock off σ per training step.
    pub(crate) fn new(sigmas: &[f64]) -> Self {
        Self { logs: sigmas.iter().map(|sigma| single(sigma.ln())).collect() }
    }

    /// The fractional training step of `sigma`, held at both ends.
    pub(crate) fn at(&self, sigma: f64) -> f64 {
        let log = sigma.max(1e-10).ln();
        if self.logs.len() < 2 {
            return 0.0;
        }
        let below = self.logs.iter().rposition(|&known| log >= known).unwrap_or(0);
        let low = below.min(self.logs.len() - 2);
        let (a, b) = (self.logs[low], self.logs[low + 1]);
        let weight = ((a - log) / (a - b)).clamp(0.0, 1.0);
        (1.0 - weight) * low as f64 + weight * (low + 1) as f64
    }
}

/// σ at a fractional training step, linear in σ.
pub(crate) fn at_step(sigmas: &[f64], step: f64) -> f64 {
    interpolate(sigmas, step)
}

/// How flow models move their levels towards the noisy end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Shift {
    /// `s·σ / (1 + (s − 1)·σ)`: SD3 (arXiv 2403.03206) eq. 23.
    Factor(f64),
    /// `e^μ / (e^μ + 1/σ − 1)`: μ depends on the size of the picture.
    Exponential(f64),
    /// `μ / (μ + 1/σ − 1)`.
    Linear(f64),
}

impl Shift {
    /// One level, moved.
    pub(crate) fn apply(self, sigma: f64) -> f64 {
        match self {
            Self::Factor(shift) => shift * sigma / (1.0 + (shift - 1.0) * sigma),
            Self::Exponential(mu) => mu.exp() / (mu.exp() + (1.0 / sigma - 1.0)),
            Self::Linear(mu) => mu / (mu + (1.0 / sigma - 1.0)),
        }
    }
}

/// Stretches levels so that the last one is `terminal`.
pub(crate) fn stretch(sigmas: &mut [f64], terminal: f64) {
    let Some(&last) = sigmas.last() else { return };
    let scale = (1.0 - last) / (1.0 - terminal);
    for sigma in sigmas {
        *sigma = 1.0 - (1.0 - *sigma) / scale;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ramp_begins_high_and_ends_low() {
        for kind in [Ramp::Karras, Ramp::Exponential, Ramp::Beta, Ramp::Lu] {
            let levels = ramp(kind, 14.6, 0.03, 9).unwrap();
            assert!(
                (levels[0] - 14.6).abs() < 1e-5 && (levels[8] - 0.03).abs() < 1e-5,
                "{kind:?} {levels:?}"
            );
            assert!(levels.windows(2).all(|pair| pair[0] > pair[1]), "{kind:?} {levels:?}");
        }
    }

    #[test]
    fn the_clock_finds_the_step_it_was_read_from() {
        let table = [0.1, 0.2, 0.4, 0.8];
        let clock = Clock::new(&table);
        assert!((clock.at(0.2) - 1.0).abs() < 1e-6);
        assert!((clock.at((0.2f64 * 0.4).sqrt()) - 1.5).abs() < 1e-6);
        assert!(clock.at(0.0).abs() < 1e-12);
        assert!((clock.at(99.0) - 3.0).abs() < 1e-12);
    }

    #[test]
    fn a_shift_of_one_changes_nothing_and_a_stretch_ends_where_told() {
        assert!((Shift::Factor(1.0).apply(0.3) - 0.3).abs() < 1e-12);
        assert!((Shift::Factor(3.0).apply(0.5) - Shift::Exponential(3f64.ln()).apply(0.5)).abs() < 1e-12);
        let mut levels = [1.0, 0.5, 0.25];
        stretch(&mut levels, 0.1);
        assert!((levels[2] - 0.1).abs() < 1e-12 && (levels[0] - 1.0).abs() < 1e-12);
    }
}
