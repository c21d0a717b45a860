//! The samplers: functions that walk, each with its state on its own stack.

mod deis;
mod dpm;
mod dpm_sde;
mod heun;
mod lms;
mod midpoint;
mod pndm;
mod sa_solver;
mod stride;
mod unipc;

use candle_core::Tensor;

pub(crate) use deis::Deis;
pub(crate) use dpm::{Algorithm, Multistep};
pub(crate) use lms::Lms;
pub(crate) use midpoint::Hop;
pub(crate) use pndm::Pndm;
pub(crate) use sa_solver::SaSolver;
pub(crate) use stride::{Fresh, Stride};
pub(crate) use unipc::UniPc;

use super::mix::divided;
use super::noise::Noise;
use super::spacing::single;
use super::walk::{Churn, Level, Walk};
use super::{Lens, Predict};
use crate::error::Result;
use crate::event::{Event, Watch};

/// A level as the exponential integrators see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Node {
    /// Share of the clean picture.
    pub(crate) alpha: f64,
    /// Standard deviation of the noise.
    pub(crate) sigma: f64,
    /// λ = ln(α/σ), half the log of the signal-to-noise ratio.
    pub(crate) lambda: f64,
}

impl Node {
    /// h = λ′ − λ as single precision has it.
    ///
    /// Where the noise is extrapolated from a level that has hardly any signal, `α′/α` is in the hundreds, two large terms
    /// cancel, and what is left is the rounding of h; to walk as the reference does, it must be rounded alike.
    pub(crate) fn gain32(from: Self, to: Self) -> f64 {
        let lambda = |node: Self| single(single(single(node.alpha).ln()) - single(single(node.sigma).ln()));
        single(lambda(to) - lambda(from))
    }

    /// e^h − 1 as single precision has it, rounded twice.
    pub(crate) fn growth32(h: f64) -> f64 {
        single(single(h.exp()) - 1.0)
    }

    /// A node, with its λ.
    pub(crate) fn new(alpha: f64, sigma: f64) -> Self {
        Self { alpha, sigma, lambda: alpha.ln() - sigma.ln() }
    }
}

/// Which sampler walks, and the numbers that are its own.
#[derive(Debug, Clone)]
pub(crate) enum Route {
    /// One weighted sum a step: Euler, DDIM, DDPM, LCM and many more.
    Strides(Vec<Stride>),
    /// Euler with noise stirred in.
    Churned { sigmas: Vec<f64>, churn: Churn },
    /// Heun, two calls a step.
    Heun { listed: usize, churn: Churn },
    /// DPM2: the slope half-way.
    Midpoint { hops: Vec<Hop>, ancestral: bool },
    /// Linear multistep.
    Lms(Lms),
    /// DPM-Solver++ on a Brownian path.
    DpmSde { sigmas: Vec<f64>, seed: Option<u64>, noise: f64 },
    /// DPM-Solver that looks back.
    Multistep(Multistep),
    /// DPM-Solver that begins each round anew.
    Singlestep(Multistep),
    /// Predictor and corrector.
    UniPc(UniPc),
    /// Exponential integrator in ρ.
    Deis(Deis),
    /// Stochastic Adams.
    SaSolver(SaSolver),
    /// Pseudo-linear multistep.
    Pndm(Pndm),
    /// Its improvement, on a quarter circle.
    Ipndm(Vec<Node>),
}

impl Route {
    /// A route of weighted sums.
    pub(crate) fn strides(strides: Vec<Stride>) -> Self {
        Self::Strides(strides)
    }

    /// Heun without stirring.
    pub(crate) fn heun(listed: usize) -> Self {
        Self::Heun { listed, churn: Churn::default() }
    }
}

/// What a step looked like when it was done.
#[derive(Debug)]
pub struct Visit<'a> {
    /// Which call of the network came before, from 0.
    pub step: usize,
    /// How many calls the walk has.
    pub of: usize,
    /// The latent after it. `[B, …]`
    pub x: &'a Tensor,
    /// The clean estimate it was made of, where the sampler has one. `[B, …]`
    pub clean: Option<&'a Tensor>,
}

/// Sees every step, and may hand back another latent to go on with.
pub type Visitor<'a> = &'a mut dyn FnMut(&Visit<'_>) -> Result<Option<Tensor>>;

/// Walks from noise to a latent.
///
/// # Shapes
/// `x` `[B, …]`, from [`Walk::start`] or [`Walk::noised`] → the same.
///
/// # Errors
/// What the network says; `cancelled`; `non_finite_output` where the schedule divides by zero.
pub fn sample(
    net: &mut dyn Predict,
    x: Tensor,
    walk: &Walk,
    noise: &mut Noise,
    watch: &mut Watch<'_>,
) -> Result<Tensor> {
    sample_visited(net, x, walk, noise, &mut |_| Ok(None), watch)
}

/// As [`sample`], with a visitor for previews, masks and tests.
///
/// # Shapes
/// `x` `[B, …]` → the same.
///
/// # Errors
/// As [`sample`], and what the visitor says.
pub fn sample_visited(
    net: &mut dyn Predict,
    x: Tensor,
    walk: &Walk,
    noise: &mut Noise,
    visitor: Visitor<'_>,
    watch: &mut Watch<'_>,
) -> Result<Tensor> {
    let mut trip = Trip { net, walk, noise, visitor, watch };
    match &walk.route {
        Route::Strides(strides) => stride::stride(&mut trip, x, strides),
        Route::Churned { sigmas, churn } => stride::churned(&mut trip, x, sigmas, churn),
        Route::Heun { listed, churn } => heun::heun(&mut trip, x, *listed, churn),
        Route::Midpoint { hops, ancestral } => midpoint::midpoint(&mut trip, x, hops, *ancestral),
        Route::Lms(plan) => lms::lms(&mut trip, x, plan),
        Route::DpmSde { sigmas, seed, noise } => dpm_sde::dpm_sde(&mut trip, x, sigmas, *seed, *noise),
        Route::Multistep(plan) => dpm::multistep(&mut trip, x, plan),
        Route::Singlestep(plan) => dpm::singlestep(&mut trip, x, plan),
        Route::UniPc(plan) => unipc::unipc(&mut trip, x, plan),
        Route::Deis(plan) => deis::deis(&mut trip, x, plan),
        Route::SaSolver(plan) => sa_solver::sa_solver(&mut trip, x, plan),
        Route::Pndm(plan) => pndm::pndm(&mut trip, x, plan),
        Route::Ipndm(nodes) => pndm::ipndm(&mut trip, x, nodes),
    }
}

/// One walk under way: everything a sampler speaks to.
pub(crate) struct Trip<'a, 'w> {
    net: &'a mut dyn Predict,
    pub(crate) walk: &'a Walk,
    noise: &'a mut Noise,
    visitor: Visitor<'a>,
    watch: &'a mut Watch<'w>,
}

impl Trip<'_, '_> {
    /// The calls that are left to make.
    pub(crate) fn calls(&self) -> std::ops::Range<usize> {
        self.walk.begin..self.walk.end
    }

    /// The level of a call.
    pub(crate) fn level(&self, call: usize) -> Level {
        self.walk.levels[call]
    }

    /// Reads the network's answers.
    pub(crate) fn lens(&self) -> Lens {
        self.walk.lens
    }

    /// Asks the network.
    pub(crate) fn raw(&mut self, x: &Tensor, call: usize) -> Result<Tensor> {
        let at = &self.walk.levels[call];
        let raw = if (at.scale - 1.0).abs() < f64::EPSILON {
            self.net.predict(x, at, self.watch)?
        } else {
            self.net.predict(&divided(x, at.scale)?, at, self.watch)?
        };
        if self.walk.halves && raw.dim(1)? == 2 * x.dim(1)? {
            return Ok(raw.narrow(1, 0, x.dim(1)?)?);
        }
        Ok(raw)
    }

    /// Asks the network and reads the clean estimate.
    pub(crate) fn clean(&mut self, x: &Tensor, call: usize) -> Result<Tensor> {
        let raw = self.raw(x, call)?;
        self.lens().clean(&raw, x, &self.walk.levels[call])
    }

    /// Fresh noise, shaped like `x`.
    pub(crate) fn draw(&mut self, x: &Tensor) -> Result<Tensor> {
        self.noise.like(x)
    }

    /// Increments of a Brownian path, shaped like `x`.
    pub(crate) fn source(&mut self) -> &mut Noise {
        self.noise
    }

    /// Ends the step of `call`: reports it, shows it, and goes on with what the visitor hands back.
    pub(crate) fn arrive(&mut self, call: usize, x: Tensor, clean: Option<&Tensor>) -> Result<Tensor> {
        let of = self.walk.end;
        let sigma = match self.walk.levels.get(call + 1) {
            Some(next) => next.listed,
            None => self.walk.sigmas.last().copied().unwrap_or(0.0),
        };
        let replaced = (self.visitor)(&Visit { step: call, of, x: &x, clean })?;
        self.watch.say(Event::Step { step: call + 1 - self.walk.begin, of: of - self.walk.begin, sigma })?;
        Ok(replaced.unwrap_or(x))
    }
}
