//! One walk, planned: every level it visits, and the numbers its sampler needs at each.

use std::sync::Arc;

use candle_core::Tensor;

use super::lens::Lens;
use super::mix::mix;
use super::sampler::Route;
use super::spacing::{single, whole};
use crate::error::{Error, Result};

/// One level of noise, where `x = alpha·x₀ + sigma·ε`, as one call of the network meets it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// Share of the clean picture in `x`.
    pub alpha: f64,
    /// Standard deviation of the noise in `x`.
    pub sigma: f64,
    /// The level as the scheduler's own table counts it; the same as `sigma` but in variance preserving walks, where it
    /// is `sigma / alpha`.
    pub listed: f64,
    /// What the network hears: a training step, whole or fractional, or ¼·ln σ.
    pub time: f64,
    /// What `x` is divided by before the network sees it.
    pub scale: f64,
    /// Which call of the network this is, from 0.
    pub step: usize,
    /// How many calls the whole walk has.
    pub of: usize,
}

impl Default for Level {
    fn default() -> Self {
        Self { alpha: 1.0, sigma: 0.0, listed: 0.0, time: 0.0, scale: 1.0, step: 0, of: 1 }
    }
}

impl Level {
    /// √(α² + σ²): by how much `x` exceeds unit variance.
    ///
    /// Rounded as the reference does where variance explodes: at σ = 4096 the 1 beside σ² is lost there, and a weight of
    /// exactly one instead of nearly one is a bit in every pixel.
    pub(crate) fn norm(&self) -> f64 {
        let square = self.alpha * self.alpha + self.sigma * self.sigma;
        if (square - 1.0).abs() < 1e-6 {
            return 1.0;
        }
        single(single(self.alpha * self.alpha + single(self.sigma * self.sigma)).sqrt())
    }
}

/// Noise that Euler and Heun stir in before a step (arXiv 2206.00364, algorithm 2).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Churn {
    /// Overall amount, spread over the steps.
    pub amount: f64,
    /// Lowest σ that is stirred.
    pub from: f64,
    /// Highest σ that is stirred.
    pub to: f64,
    /// Standard deviation of the noise; also that of the stochastic DPM-Solver.
    pub noise: f64,
}

impl Default for Churn {
    fn default() -> Self {
        Self { amount: 0.0, from: 0.0, to: f64::INFINITY, noise: 1.0 }
    }
}

impl Churn {
    /// γ: by which share σ is raised at this level, in a walk whose table has `listed` levels.
    pub(crate) fn gain(&self, sigma: f64, listed: usize) -> f64 {
        if self.from <= sigma && sigma <= self.to {
            (self.amount / (listed as f64 - 1.0)).min(2f64.sqrt() - 1.0)
        } else {
            0.0
        }
    }
}

/// What a caller may ask of one walk, beyond its number of steps.
///
/// Each field is for some samplers only; the others refuse it, so that nothing is accepted and ignored.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// Share of fresh noise per step, 0 to 1: DDIM, TCD.
    pub eta: Option<f64>,
    /// DDIM derives the noise from the bounded clean estimate.
    pub clip_noise: Option<bool>,
    /// Euler, Heun of flow models, EDM, and the noise factor of the stochastic DPM-Solver.
    pub churn: Option<Churn>,
    /// How many steps the linear multistep sampler remembers, 1 to 4.
    pub order: Option<usize>,
    /// How far a flow model with dynamic shifting moves its levels; see [`super::Settings::mu`].
    pub mu: Option<f64>,
    /// Levels in place of the schedule's own.
    pub sigmas: Option<Vec<f64>>,
    /// Training steps in place of the schedule's own, falling.
    pub timesteps: Option<Vec<f64>>,
    /// In how many steps the teacher of LCM and TCD walked.
    pub original_steps: Option<usize>,
    /// The share of the teacher's steps that LCM and TCD choose from.
    pub strength: Option<f64>,
}

impl Options {
    /// Refuses every option that `class` does not have, and numbers that no sampler can use.
    pub(crate) fn check(&self, class: &str, has: &[&str]) -> Result<()> {
        let given = [
            ("eta", self.eta.is_some()),
            ("clip_noise", self.clip_noise.is_some()),
            ("churn", self.churn.is_some()),
            ("order", self.order.is_some()),
            ("mu", self.mu.is_some()),
            ("sigmas", self.sigmas.is_some()),
            ("timesteps", self.timesteps.is_some()),
            ("original_steps", self.original_steps.is_some()),
            ("strength", self.strength.is_some()),
        ];
        if let Some((name, _)) = given.iter().find(|(name, given)| *given && !has.contains(name)) {
            return Err(Error::argument(name, format!("{class} has no {name}")).hint(if has.is_empty() {
                "it takes no options".into()
            } else {
                format!("it has {}", has.join(", "))
            }));
        }
        within("eta", self.eta, 0.0, 1.0)?;
        within("order", self.order.map(|order| order as f64), 1.0, 4.0)?;
        within("mu", self.mu, -20.0, 20.0)?;
        within("strength", self.strength, f64::MIN_POSITIVE, 1.0)?;
        if let Some(churn) = self.churn {
            within("churn", Some(churn.amount), 0.0, 1e4)?;
            within("churn", Some(churn.noise), 0.0, 100.0)?;
            if churn.from.is_nan() || churn.to.is_nan() {
                return Err(Error::argument("churn", "churn has a bound that is not a number"));
            }
        }
        for sigma in self.sigmas.iter().flatten() {
            within("sigmas", Some(*sigma), 0.0, 1e6)?;
        }
        for (i, time) in self.timesteps.iter().flatten().enumerate() {
            within("timesteps", Some(*time), 0.0, 1e6)?;
            if i > 0 && self.timesteps.as_ref().is_some_and(|list| list[i - 1] <= *time) {
                return Err(Error::argument("timesteps", "timesteps must fall"));
            }
        }
        Ok(())
    }
}

fn within(name: &str, value: Option<f64>, low: f64, high: f64) -> Result<()> {
    match value {
        Some(value) if !(low..=high).contains(&value) => {
            Err(Error::argument(name, format!("{name} {value} is not from {low} to {high}")))
        }
        _ => Ok(()),
    }
}

/// A planned walk: made by [`super::Settings::walk`], walked by [`super::sample`].
///
/// It holds numbers only, no tensor and no state; what one walk remembers lives on the sampler's stack.
#[derive(Debug, Clone)]
pub struct Walk {
    /// Every call of the network, in order; some samplers call twice a step.
    pub levels: Vec<Level>,
    /// The scheduler's own table of levels, one or more longer than `levels`; empty where it has none.
    pub sigmas: Vec<f64>,
    /// What unit noise is multiplied with to begin a walk.
    pub init_noise_sigma: f64,
    /// Reads the network's answers.
    pub lens: Lens,
    pub(crate) begin: usize,
    pub(crate) end: usize,
    pub(crate) calls_per_step: usize,
    pub(crate) noising: Option<Arc<[f64]>>,
    /// The network also says a variance, in as many more channels, which the sampler does not use.
    pub(crate) halves: bool,
    pub(crate) route: Route,
}

impl Walk {
    /// A walk of unit noise that calls once a step; the levels are numbered here.
    pub(crate) fn new(mut levels: Vec<Level>, lens: Lens, route: Route) -> Self {
        let of = levels.len();
        for (step, level) in levels.iter_mut().enumerate() {
            (level.step, level.of) = (step, of);
        }
        Self {
            levels,
            sigmas: Vec::new(),
            init_noise_sigma: 1.0,
            lens,
            begin: 0,
            end: of,
            calls_per_step: 1,
            noising: None,
            halves: false,
            route,
        }
    }

    /// What the network hears, call by call.
    pub fn timesteps(&self) -> Vec<f64> {
        self.levels.iter().map(|level| level.time).collect()
    }

    /// The levels that this walk visits: all, or those that were left.
    pub fn visited(&self) -> &[Level] {
        &self.levels[self.begin..self.end]
    }

    /// Leaves out all but the last `steps` steps, to begin from a noised picture instead of noise.
    ///
    /// # Errors
    /// `invalid_argument` if the walk has fewer steps, or none would be left.
    pub fn last(mut self, steps: usize) -> Result<Self> {
        let all = self.levels.len().div_ceil(self.calls_per_step);
        if steps == 0 || steps > all {
            return Err(Error::argument("strength", format!("{steps} of {all} steps would be walked"))
                .hint("a strength nearer to 1 leaves more steps"));
        }
        self.begin = (all - steps) * self.calls_per_step;
        Ok(self)
    }

    /// Leaves out the first `steps` steps, as pipelines do that begin from a noised picture: they cut so many from the
    /// list of calls, of which PNDM has one more than steps.
    ///
    /// # Errors
    /// `invalid_argument` if none would be left.
    pub fn without_first(self, steps: usize) -> Result<Self> {
        let call = steps * self.calls_per_step;
        self.from_call(call)
    }

    /// Leaves out what comes before call `call` of the network.
    ///
    /// # Errors
    /// `invalid_argument` if there is no such call.
    pub fn from_call(mut self, call: usize) -> Result<Self> {
        if call >= self.levels.len() {
            return Err(Error::argument(
                "strength",
                format!("there is no call {call} of {}", self.levels.len()),
            ));
        }
        self.begin = call;
        Ok(self)
    }

    /// Only the part of the walk between two times, for networks that share one: from below `above` on, until the time is
    /// less than `least`.
    ///
    /// # Errors
    /// `invalid_argument` if no call is between them.
    pub fn between(mut self, above: Option<f64>, least: Option<f64>) -> Result<Self> {
        if let Some(above) = above {
            let mut calls = self.levels.iter().filter(|level| level.time < above).count();
            // A step that calls twice is not torn apart.
            calls += usize::from(self.calls_per_step == 2 && calls.is_multiple_of(2));
            self.begin = self.levels.len().saturating_sub(calls);
        }
        if let Some(least) = least {
            self.end = self.levels.iter().filter(|level| level.time >= least).count();
        }
        if self.begin >= self.end {
            return Err(
                Error::argument("steps", "no step is in this part of the walk").hint("take more steps")
            );
        }
        Ok(self)
    }

    /// Noise at the strength with which a full walk begins.
    ///
    /// # Shapes
    /// `noise` `[B, …]` of unit variance → the same.
    pub fn start(&self, noise: &Tensor) -> Result<Tensor> {
        mix(&[(self.init_noise_sigma, noise)])
    }

    /// A clean picture with the noise it has before call `step`; the picture itself after the last.
    ///
    /// # Shapes
    /// `clean` and `noise` `[B, …]` → the same.
    pub fn noised(&self, clean: &Tensor, noise: &Tensor, step: usize) -> Result<Tensor> {
        let Some(level) = self.levels.get(step) else { return Ok(clean.clone()) };
        let (alpha, sigma) = match &self.noising {
            // Where a step calls twice, a picture is noised to the step's end, not to its middle.
            None if self.calls_per_step == 2 => (level.alpha, self.sigmas.get(step).copied().unwrap_or(0.0)),
            None => (level.alpha, level.sigma),
            Some(table) => {
                let share = table.get(whole(level.time)).copied().unwrap_or(1.0);
                (share.sqrt(), (1.0 - share).sqrt())
            }
        };
        mix(&[(alpha, clean), (sigma, noise)])
    }
}
