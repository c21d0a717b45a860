//! How much noise each training step adds, and what is left of the picture after all of them.
//!
//! `torch` computes these tables in single precision, and `1 − ᾱ` near the clean end keeps the rounding of `ᾱ`; so every
//! operation here rounds as the reference does, though the numbers are carried as `f64`.

use std::f64::consts::FRAC_PI_2;

use super::spacing::single;

/// The shape of the curve from the first β to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Curve {
    /// β rises by equal steps.
    Linear,
    /// √β rises by equal steps: latent diffusion.
    ScaledLinear,
    /// ᾱ is a squared cosine: improved DDPM (arXiv 2102.09672) eq. 17.
    Cosine,
    /// ᾱ = e^(−12t).
    Exp,
    /// Log-SNR is Laplace distributed (arXiv 2407.03297).
    Laplace,
    /// β is a logistic curve: `GeoDiff`.
    Sigmoid,
}

/// What a schedule does so that its last step holds no signal (arXiv 2305.08891, algorithm 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZeroSnr {
    /// Nothing: the last step keeps a little signal.
    No,
    /// The β are rescaled; `ᾱ` ends at exactly zero.
    Exact,
    /// The β are rescaled; `ᾱ` ends at 2⁻²⁴, so that σ stays finite.
    Finite,
}

/// What a configuration says about the training noise.
#[derive(Debug, Clone)]
pub(crate) struct Betas {
    /// Number of training steps.
    pub(crate) train: usize,
    /// First β.
    pub(crate) start: f64,
    /// Last β.
    pub(crate) end: f64,
    /// The way between.
    pub(crate) curve: Curve,
    /// All β, if they are listed; then nothing above matters.
    pub(crate) trained: Option<Vec<f64>>,
    /// Whether the last step must hold no signal.
    pub(crate) zero_snr: ZeroSnr,
}

impl Betas {
    /// ᾱ per training step: the share of the picture's variance that is left.
    pub(crate) fn alphas(&self) -> Vec<f64> {
        let betas = self.betas();
        let mut alphas = cumulative(&betas);
        if self.zero_snr != ZeroSnr::No {
            alphas = cumulative(&rescaled(&alphas));
            if let (ZeroSnr::Finite, Some(last)) = (self.zero_snr, alphas.last_mut()) {
                *last = 2f64.powi(-24);
            }
        }
        alphas
    }

    /// ᾱ as `CogVideoX` wants it: double precision, SNR divided by `shift`², zero-SNR applied to ᾱ itself.
    ///
    /// # Source
    /// `huggingface/diffusers src/diffusers/schedulers/scheduling_ddim_cogvideox.py`, Apache-2.0.
    pub(crate) fn shifted_alphas(&self, shift: f64) -> Vec<f64> {
        let mut product = 1.0;
        let double = self.curve == Curve::ScaledLinear && self.trained.is_none();
        let mut alphas: Vec<f64> = if double {
            let betas = self.double_betas();
            betas
                .iter()
                .map(|beta| {
                    product *= 1.0 - beta;
                    product
                })
                .collect()
        } else {
            cumulative(&self.betas())
        };
        for alpha in &mut alphas {
            *alpha /= shift + (1.0 - shift) * *alpha;
        }
        if self.zero_snr != ZeroSnr::No {
            let roots: Vec<f64> = alphas.iter().map(|a| a.sqrt()).collect();
            let (first, last) = (roots[0], roots[roots.len() - 1]);
            let gain = first / (first - last);
            alphas = roots.iter().map(|root| ((root - last) * gain).powi(2)).collect();
        }
        alphas
    }

    fn double_betas(&self) -> Vec<f64> {
        let (start, end) = (self.start.sqrt(), self.end.sqrt());
        let step = if self.train > 1 { (end - start) / (self.train - 1) as f64 } else { 0.0 };
        (0..self.train).map(|i| (start + step * i as f64).powi(2)).collect()
    }

    fn betas(&self) -> Vec<f64> {
        if let Some(trained) = &self.trained {
            return trained.iter().map(|&beta| single(beta)).collect();
        }
        let n = self.train;
        match self.curve {
            Curve::Linear => linspace32(self.start, self.end, n),
            Curve::ScaledLinear => {
                let roots = linspace32(self.start.sqrt(), self.end.sqrt(), n);
                roots.iter().map(|root| single(root * root)).collect()
            }
            Curve::Sigmoid => {
                let (span, start) = (single(self.end - self.start), single(self.start));
                let logistic = |x: f64| single(1.0 / (1.0 + (-x).exp()));
                linspace32(-6.0, 6.0, n).iter().map(|&x| single(single(logistic(x) * span) + start)).collect()
            }
            Curve::Cosine => from_left(n, |t| ((t + 0.008) / 1.008 * FRAC_PI_2).cos().powi(2)),
            Curve::Exp => from_left(n, |t| (-12.0 * t).exp()),
            Curve::Laplace => from_left(n, |t| {
                let side = (0.5f64 - t).signum();
                let log_snr = -0.5 * side * (1.0 - 2.0 * (0.5 - t).abs() + 1e-6).ln();
                let snr = log_snr.exp();
                (snr / (1.0 + snr)).sqrt()
            }),
        }
    }
}

/// β from what is left after each step, at most 0.999.
fn from_left(n: usize, left: impl Fn(f64) -> f64) -> Vec<f64> {
    let at = |i: usize| left(i as f64 / n as f64);
    (0..n).map(|i| single((1.0 - at(i + 1) / at(i)).min(0.999))).collect()
}

/// `torch.linspace` in single precision: from both ends towards the middle.
pub(crate) fn linspace32(start: f64, end: f64, n: usize) -> Vec<f64> {
    let (start, end) = (start as f32, end as f32);
    if n == 1 {
        return vec![f64::from(start)];
    }
    let step = (end - start) / (n - 1) as f32;
    let value = |i: usize| {
        if i < n / 2 { start + step * i as f32 } else { end - step * (n - i - 1) as f32 }
    };
    (0..n).map(|i| f64::from(value(i))).collect()
}

/// ∏(1 − β), accumulated in double and stored in single precision.
fn cumulative(betas: &[f64]) -> Vec<f64> {
    let mut product = 1.0;
    betas
        .iter()
        .map(|beta| {
            product *= single(1.0 - beta);
            single(product)
        })
        .collect()
}

/// The β whose √ᾱ is moved and stretched until it ends at zero.
fn rescaled(alphas: &[f64]) -> Vec<f64> {
    let roots: Vec<f64> = alphas.iter().map(|a| single(a.sqrt())).collect();
    let (first, last) = (roots[0], roots[roots.len() - 1]);
    let gain = single(first / single(first - last));
    let bars: Vec<f64> = roots
        .iter()
        .map(|root| {
            let root = single(single(root - last) * gain);
            single(root * root)
        })
        .collect();
    let ratio = |i: usize| if i == 0 { bars[0] } else { single(bars[i] / bars[i - 1]) };
    (0..bars.len()).map(|i| single(1.0 - ratio(i))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stable_diffusion(zero_snr: ZeroSnr) -> Betas {
        Betas { train: 1000, start: 0.00085, end: 0.012, curve: Curve::ScaledLinear, trained: None, zero_snr }
    }

    #[test]
    fn stable_diffusion_keeps_half_a_percent_and_zero_snr_nothing() {
        let alphas = stable_diffusion(ZeroSnr::No).alphas();
        assert!((alphas[0] - 0.999_15).abs() < 1e-7);
        assert!((alphas[999] - 0.004_660).abs() < 1e-5);
        assert!(stable_diffusion(ZeroSnr::Exact).alphas()[999].abs() < f64::MIN_POSITIVE);
        assert!((stable_diffusion(ZeroSnr::Finite).alphas()[999] - 2f64.powi(-24)).abs() < f64::EPSILON);
    }

    #[test]
    fn cosine_betas_do_not_vanish() {
        // Integer division in another crate once made 999 of 1000 of them zero.
        let betas = Betas { curve: Curve::Cosine, ..stable_diffusion(ZeroSnr::No) }.betas();
        assert!(betas.iter().all(|&beta| beta > 0.0));
        assert!((betas[999] - 0.999).abs() < 1e-6);
    }
}
