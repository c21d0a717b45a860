//! Schedules of straight lines, `x = (1 − σ)·x₀ + σ·ε`: Euler, Heun and latent consistency for flow matching.

use super::grid::read_ramp;
use super::training_steps;
use crate::diffusion::class::Class;
use crate::diffusion::lens::{Bound, Lens, Prediction};
use crate::diffusion::ramp::{Ramp, Shift, ramp, stretch};
use crate::diffusion::reader::Reader;
use crate::diffusion::sampler::{Fresh, Route, Stride};
use crate::diffusion::spacing::{each, linspace, single};
use crate::diffusion::walk::{Level, Options, Walk};
use crate::error::{Error, Result};

/// How μ grows with the size of the picture.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growth {
    least: (f64, f64),
    most: (f64, f64),
}

impl Growth {
    /// Reads two sizes and the μ of each.
    pub(crate) fn read(reader: Reader<'_>) -> Result<Self> {
        let size = |key, default| reader.number(key, default, 0.0..=1e9);
        let mu = |key, default| reader.number(key, default, -20.0..=20.0);
        Ok(Self {
            least: (size("base_image_seq_len", 256.0)?, mu("base_shift", 0.5)?),
            most: (size("max_image_seq_len", 4096.0)?, mu("max_shift", 1.15)?),
        })
    }

    /// μ for a picture of `tokens` tokens, on the line between the two sizes.
    ///
    /// # Source
    /// `black-forest-labs/flux src/flux/sampling.py` `get_lin_function`, Apache-2.0.
    pub(crate) fn mu(self, tokens: usize) -> f64 {
        let slope = (self.most.1 - self.least.1) / (self.most.0 - self.least.0);
        slope * (tokens as f64 - self.least.0) + self.least.1
    }
}

/// What moves the levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moving {
    /// The factor of the configuration.
    Factor,
    /// e^μ, where μ depends on the size of the picture.
    Exponential,
    /// μ itself.
    Linear,
}

/// A schedule of the straight process.
#[derive(Debug, Clone)]
pub(crate) struct Flow {
    class: Class,
    train: usize,
    /// The factor by which levels move towards the noisy end.
    pub(crate) shift: f64,
    moving: Moving,
    growth: Growth,
    invert: bool,
    terminal: Option<f64>,
    ramp: Ramp,
    high: Option<f64>,
    low: Option<f64>,
    stochastic: bool,
}

impl Flow {
    /// Reads a configuration of one of these classes.
    pub(crate) fn read(class: Class, reader: Reader<'_>) -> Result<Self> {
        let plain = class == Class::FlowHeun;
        let train = training_steps(reader)?;
        let flag = |key| if plain { Ok(false) } else { reader.flag(key, false) };
        if class == Class::FlowLcm {
            reader.absent("scale_factors")?;
        }
        let modes = [("exponential", Moving::Exponential), ("linear", Moving::Linear)];
        let mode = reader.choice("time_shift_type", &modes)?;
        let terminal = if plain { None } else { reader.maybe("shift_terminal", 0.0..=0.999)? };
        Ok(Self {
            class,
            train,
            shift: reader.number("shift", 1.0, 1e-6..=1e4)?,
            moving: if flag("use_dynamic_shifting")? { mode } else { Moving::Factor },
            growth: Growth::read(reader)?,
            invert: flag("invert_sigmas")?,
            terminal: terminal.filter(|terminal| *terminal > 0.0),
            ramp: if plain { Ramp::Training } else { read_ramp(class, reader)? },
            high: if plain { None } else { reader.maybe("sigma_max", 1e-9..=1e6)? },
            low: if plain { None } else { reader.maybe("sigma_min", 1e-9..=1e6)? },
            stochastic: class == Class::FlowEuler && flag("stochastic_sampling")?,
        })
    }

    /// Whether μ takes the place of the factor.
    pub(crate) fn is_dynamic(&self) -> bool {
        self.moving != Moving::Factor
    }

    /// μ for a picture of `tokens` tokens, where the levels depend on its size.
    pub(crate) fn mu(&self, tokens: usize) -> Option<f64> {
        self.is_dynamic().then(|| self.growth.mu(tokens))
    }

    /// Plans a walk of `n` steps.
    pub(crate) fn walk(&self, n: usize, options: &Options) -> Result<Walk> {
        let has: &[&str] = match self.class {
            Class::FlowHeun => &["churn"],
            _ => &["mu", "sigmas", "timesteps"],
        };
        options.check(self.class.as_str(), has)?;
        if n > self.train {
            return Err(Error::argument(
                "steps",
                format!("{n} steps, but the model was trained on {}", self.train),
            ));
        }
        let mut sigmas = self.sigmas(n, options)?;
        let mut times: Vec<f64> = match &options.timesteps {
            Some(times) => times.iter().map(|&time| single(time)).collect(),
            None => sigmas.iter().map(|sigma| single(sigma * self.train as f64)).collect(),
        };
        if self.invert {
            each(&mut sigmas, |sigma| single(1.0 - sigma));
            times = sigmas.iter().map(|sigma| single(sigma * self.train as f64)).collect();
        }
        let end = if self.invert { 1.0 } else { 0.0 };
        sigmas.push(end);
        Ok(if self.class == Class::FlowHeun {
            doubled(&sigmas, &times, options)
        } else {
            self.single_calls(sigmas, &times)
        })
    }

    fn sigmas(&self, n: usize, options: &Options) -> Result<Vec<f64>> {
        let shift = match (self.moving, options.mu) {
            (Moving::Factor, None) => Shift::Factor(self.shift),
            (Moving::Factor, Some(_)) => {
                return Err(Error::argument(
                    "mu",
                    "mu is for schedules with use_dynamic_shifting, which this is not",
                ));
            }
            (_, None) => {
                return Err(Error::argument("mu", "this schedule has use_dynamic_shifting and needs mu")
                    .hint("it follows from the size of the picture"));
            }
            (Moving::Linear, Some(mu)) => Shift::Linear(mu),
            (Moving::Exponential, Some(mu)) => Shift::Exponential(mu),
        };
        let mut sigmas: Vec<f64> = match (&options.sigmas, &options.timesteps) {
            (Some(sigmas), Some(times)) if sigmas.len() != times.len() => {
                return Err(Error::argument("sigmas", "sigmas and timesteps must be equally many"));
            }
            (Some(sigmas), _) => sigmas.iter().map(|&sigma| single(sigma)).collect(),
            (None, Some(times)) => times.iter().map(|time| single(*time) / self.train as f64).collect(),
            (None, None) => {
                let train = self.train as f64;
                let once = |sigma: f64| {
                    let sigma = single(sigma);
                    if self.is_dynamic() { sigma } else { single(Shift::Factor(self.shift).apply(sigma)) }
                };
                linspace(once(1.0) * train, once(1.0 / train) * train, n).iter().map(|t| t / train).collect()
            }
        };
        if sigmas.len() != n {
            return Err(Error::argument("sigmas", format!("{} sigmas for {n} steps", sigmas.len())));
        }
        each(&mut sigmas, |sigma| shift.apply(sigma));
        if let Some(terminal) = self.terminal {
            stretch(&mut sigmas, terminal);
        }
        let ends = (self.high.unwrap_or(sigmas[0]), self.low.unwrap_or(sigmas[n - 1]));
        let mut sigmas = ramp(self.ramp, ends.0, ends.1, n).unwrap_or(sigmas);
        each(&mut sigmas, single);
        Ok(sigmas)
    }

    fn single_calls(&self, sigmas: Vec<f64>, times: &[f64]) -> Walk {
        let levels = times.iter().zip(&sigmas).map(|(&time, &sigma)| level(sigma, time)).collect();
        let forgetful = self.stochastic || self.class == Class::FlowLcm;
        let strides = sigmas[1..].iter().map(|&next| {
            if forgetful {
                Stride { clean: 1.0 - next, fresh: Fresh::Scaled(next), ..Stride::default() }
            } else {
                Stride { clean: 1.0 - next, noise: next, ..Stride::default() }
            }
        });
        let mut walk = Walk::new(levels, LENS, Route::strides(strides.collect()));
        walk.sigmas = sigmas;
        walk
    }
}

const LENS: Lens = Lens { prediction: Prediction::Velocity, bound: Bound::None };

/// A level of the straight process.
pub(crate) fn level(sigma: f64, time: f64) -> Level {
    Level { alpha: 1.0 - sigma, sigma, listed: sigma, time, ..Level::default() }
}

fn doubled(sigmas: &[f64], times: &[f64], options: &Options) -> Walk {
    let n = times.len();
    let mut levels = Vec::with_capacity(2 * n);
    let mut listed = vec![sigmas[0]];
    for i in 0..n {
        levels.push(level(sigmas[i], times[i]));
        if i + 1 < n {
            levels.push(level(sigmas[i + 1], times[i + 1]));
            listed.extend([sigmas[i + 1]; 2]);
        }
    }
    listed.push(sigmas[n]);
    let mut walk = Walk::new(
        levels,
        LENS,
        Route::Heun { listed: listed.len(), churn: options.churn.unwrap_or_default() },
    );
    walk.sigmas = listed;
    walk.calls_per_step = 2;
    walk
}
