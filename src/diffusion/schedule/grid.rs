//! What the schedules with a training table of σ share: the table, the ramp over it, and its clock.

use crate::diffusion::beta::{Betas, Curve, ZeroSnr};
use crate::diffusion::class::Class;
use crate::diffusion::ramp::{Clock, Ramp, ramp, sigmas};
use crate::diffusion::reader::Reader;
use crate::error::Result;

/// Reads the training noise; `zero` says how this family of classes rescales it where the configuration asks.
pub(crate) fn betas(class: Class, reader: Reader<'_>, train: usize, zero: ZeroSnr) -> Result<Betas> {
    let scaled = matches!(class, Class::CogVideoX | Class::Lcm | Class::Tcd);
    let latent =
        scaled || matches!(class, Class::Heun | Class::Kdpm2 | Class::Kdpm2Ancestral | Class::DpmSde);
    let (start, end) = if latent { (0.00085, 0.012) } else { (0.0001, 0.02) };
    let mut curves = vec![
        ("linear", Curve::Linear),
        ("scaled_linear", Curve::ScaledLinear),
        ("squaredcos_cap_v2", Curve::Cosine),
    ];
    if scaled {
        curves.swap(0, 1);
    }
    match class {
        Class::Ddpm => curves.extend([("laplace", Curve::Laplace), ("sigmoid", Curve::Sigmoid)]),
        Class::Heun => curves.push(("exp", Curve::Exp)),
        _ => {}
    }
    let rescale = reader.flag("rescale_betas_zero_snr", false)?;
    Ok(Betas {
        train,
        start: reader.number("beta_start", start, 1e-9..=0.999)?,
        end: reader.number("beta_end", end, 1e-9..=0.999)?,
        curve: reader.choice("beta_schedule", &curves)?,
        trained: reader.numbers("trained_betas", 0.0..=1.0)?,
        zero_snr: if rescale { zero } else { ZeroSnr::No },
    })
}

/// σ per training step and how a walk spreads its own levels over them.
#[derive(Debug, Clone)]
pub(crate) struct Grid {
    /// Number of training steps.
    pub(crate) train: usize,
    /// σ per training step, rising.
    pub(crate) sigmas: Vec<f64>,
    /// The clock over them.
    pub(crate) clock: Clock,
    /// How levels are spread.
    pub(crate) ramp: Ramp,
    high: Option<f64>,
    low: Option<f64>,
}

impl Grid {
    /// Reads the ramp of a class and makes its table from ᾱ.
    pub(crate) fn read(class: Class, reader: Reader<'_>, train: usize, alphas: &[f64]) -> Result<Self> {
        let sigmas = sigmas(alphas);
        let ramp = read_ramp(class, reader)?;
        let own = matches!(class, Class::Lms | Class::DpmSde) && ramp == Ramp::Karras || ramp == Ramp::Lu;
        let end = |key| if own { Ok(None) } else { reader.maybe(key, 1e-9..=1e6) };
        Ok(Self {
            train,
            clock: Clock::new(&sigmas),
            sigmas,
            ramp,
            high: end("sigma_max")?,
            low: end("sigma_min")?,
        })
    }

    /// `n` levels from `high` to `low` unless the configuration names its own ends; `None` without a ramp.
    pub(crate) fn ramped(&self, high: f64, low: f64, n: usize) -> Option<Vec<f64>> {
        ramp(self.ramp, self.high.unwrap_or(high), self.low.unwrap_or(low), n)
    }

    /// `n` levels from the noisiest training step to the cleanest.
    pub(crate) fn ramped_over_all(&self, n: usize) -> Option<Vec<f64>> {
        self.ramped(self.sigmas[self.sigmas.len() - 1], self.sigmas[0], n)
    }
}

/// Which table of levels the flags choose; at most one may.
pub(crate) fn read_ramp(class: Class, reader: Reader<'_>) -> Result<Ramp> {
    if class == Class::EulerAncestral {
        return Ok(Ramp::Training);
    }
    let mut chosen = Vec::new();
    for (key, kind) in [
        ("use_karras_sigmas", Ramp::Karras),
        ("use_exponential_sigmas", Ramp::Exponential),
        ("use_beta_sigmas", Ramp::Beta),
    ] {
        if reader.flag(key, false)? {
            chosen.push((key, kind));
        }
    }
    let lu = class == Class::DpmMultistep && reader.flag("use_lu_lambdas", false)?;
    match (&chosen[..], lu) {
        ([], false) => Ok(Ramp::Training),
        // The reference looks at Karras first, then at Lu.
        ([(_, Ramp::Karras)], _) => Ok(Ramp::Karras),
        ([] | [_], true) => Ok(Ramp::Lu),
        ([(_, kind)], false) => Ok(*kind),
        ([.., (key, _)], _) => Err(reader.refuse(
            key,
            "cannot be combined with another of use_karras_sigmas, use_exponential_sigmas, use_beta_sigmas",
        )),
    }
}
