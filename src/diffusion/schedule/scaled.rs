//! Schedules whose `x` grows with σ and is scaled down for the network: Euler, Heun, DPM2, LMS and the stochastic DPM.

use super::grid::{Grid, betas};
use super::{clipping, prediction, training_steps};
use crate::diffusion::beta::{ZeroSnr, linspace32};
use crate::diffusion::class::Class;
use crate::diffusion::lens::{Bound, Lens, Prediction};
use crate::diffusion::ramp::{Ramp, at_step};
use crate::diffusion::reader::Reader;
use crate::diffusion::sampler::{Fresh, Hop, Lms, Route, Stride};
use crate::diffusion::spacing::{Spacing, each, single, steps};
use crate::diffusion::walk::{Level, Options, Walk};
use crate::error::{Error, Result};

/// A schedule of the exploding process: α is 1 everywhere.
#[derive(Debug, Clone)]
pub(crate) struct Scaled {
    class: Class,
    grid: Grid,
    spacing: Spacing,
    offset: f64,
    lens: Lens,
    log_linear: bool,
    continuous: bool,
    ends_at_lowest: bool,
    seed: Option<u64>,
}

/// σ and what the network hears there, step by step, and σ at the end.
struct Table {
    sigmas: Vec<f64>,
    times: Vec<f64>,
}

impl Scaled {
    /// Reads a configuration of one of these classes.
    pub(crate) fn read(class: Class, reader: Reader<'_>) -> Result<Self> {
        use Prediction::{Epsilon, Sample, V};
        let train = training_steps(reader)?;
        let alphas = betas(class, reader, train, ZeroSnr::Finite)?.alphas();
        let euler = class == Class::Euler;
        let allowed: &[Prediction] = match class {
            Class::Euler | Class::Heun | Class::Lms => &[Epsilon, V, Sample],
            _ => &[Epsilon, V],
        };
        let prediction = if euler && reader.choice("prediction_type", ORIGINAL).is_ok_and(|named| named) {
            Sample
        } else {
            prediction(reader, allowed)?
        };
        let continuous = euler
            && reader.choice("timestep_type", &[("discrete", false), ("continuous", true)])?
            && prediction == V;
        let seed = if class == Class::DpmSde && reader.has("noise_sampler_seed") {
            Some(reader.whole("noise_sampler_seed", 0, 0..=usize::MAX)? as u64)
        } else {
            None
        };
        Ok(Self {
            class,
            grid: Grid::read(class, reader, train, &alphas)?,
            spacing: reader.choice("timestep_spacing", SPACINGS)?,
            offset: reader.number("steps_offset", 0.0, -1e5..=1e5)?,
            lens: Lens {
                prediction,
                bound: if class == Class::Heun { clipping(reader, false)? } else { Bound::None },
            },
            log_linear: euler
                && reader.choice("interpolation_type", &[("linear", false), ("log_linear", true)])?,
            continuous,
            ends_at_lowest: euler
                && reader.choice("final_sigmas_type", &[("zero", false), ("sigma_min", true)])?,
            seed,
        })
    }

    /// Plans a walk of `n` steps.
    pub(crate) fn walk(&self, n: usize, options: &Options) -> Result<Walk> {
        let has: &[&str] = match self.class {
            Class::Euler => &["churn", "sigmas", "timesteps"],
            Class::Heun => &["timesteps"],
            Class::Lms => &["order"],
            Class::DpmSde => &["churn"],
            _ => &[],
        };
        options.check(self.class.as_str(), has)?;
        let table = self.table(n, options)?;
        let highest = table.sigmas.iter().copied().fold(0.0, f64::max);
        let mut walk = match self.class {
            Class::Heun => self.doubled(&table, |sigmas, i| (sigmas[i + 1], table.times[i + 1])),
            Class::Kdpm2 | Class::Kdpm2Ancestral | Class::DpmSde => self.with_middles(&table, options),
            _ => self.single_calls(&table, options),
        };
        walk.init_noise_sigma = match self.spacing {
            Spacing::Leading => highest.hypot(1.0),
            Spacing::Linspace | Spacing::Trailing => highest,
        };
        Ok(walk)
    }

    fn table(&self, n: usize, options: &Options) -> Result<Table> {
        let grid = &self.grid;
        if options.sigmas.is_some() && options.timesteps.is_some() {
            return Err(Error::argument("sigmas", "sigmas and timesteps cannot both be given"));
        }
        if let Some(given) = &options.sigmas {
            if given.len() < 2 {
                return Err(Error::argument(
                    "sigmas",
                    "sigmas must name at least two levels, the last where it ends",
                ));
            }
            let sigmas: Vec<f64> = given.iter().map(|&sigma| single(sigma)).collect();
            let times = sigmas[..sigmas.len() - 1].iter().map(|&sigma| self.heard(sigma)).collect();
            return Ok(Table { sigmas, times });
        }
        if options.timesteps.is_some() && (grid.ramp != Ramp::Training || self.continuous) {
            return Err(Error::argument(
                "timesteps",
                "timesteps cannot be given where a table of sigmas decides",
            ));
        }
        if n > grid.train {
            return Err(Error::argument(
                "steps",
                format!("{n} steps, but the model was trained on {}", grid.train),
            ));
        }
        let mut times = match &options.timesteps {
            Some(times) => times.clone(),
            None => steps(self.spacing, n, grid.train, self.offset, false),
        };
        if self.class != Class::DpmSde {
            each(&mut times, single);
        }
        let mut sigmas: Vec<f64> = if self.log_linear {
            let (low, high) = (grid.sigmas[0].ln(), grid.sigmas[grid.sigmas.len() - 1].ln());
            linspace32(high, low, n + 1).into_iter().map(|log| single(log.exp())).collect()
        } else {
            times.iter().map(|&time| at_step(&grid.sigmas, time)).collect()
        };
        if let Some(ramped) = grid.ramped(sigmas[0], sigmas[sigmas.len() - 1], n) {
            times = ramped.iter().map(|&sigma| grid.clock.at(sigma)).collect();
            if matches!(self.class, Class::Kdpm2 | Class::Kdpm2Ancestral) && grid.ramp == Ramp::Karras {
                each(&mut times, f64::round_ties_even);
            }
            sigmas = ramped;
        }
        sigmas.push(if self.ends_at_lowest { grid.sigmas[0] } else { 0.0 });
        each(&mut sigmas, single);
        if self.continuous {
            times = sigmas[..sigmas.len() - 1].iter().map(|&sigma| self.heard(sigma)).collect();
        }
        times.truncate(n);
        Ok(Table { sigmas, times })
    }

    fn heard(&self, sigma: f64) -> f64 {
        if self.continuous { 0.25 * sigma.ln() } else { self.grid.clock.at(sigma) }
    }

    /// Euler, its ancestral form and LMS: one call a step.
    fn single_calls(&self, table: &Table, options: &Options) -> Walk {
        let sigmas = &table.sigmas;
        let levels = table.times.iter().zip(sigmas).map(|(&time, &sigma)| level(sigma, time)).collect();
        let route = match self.class {
            Class::Lms => Route::Lms(Lms { sigmas: sigmas.clone(), order: options.order.unwrap_or(4) }),
            Class::EulerAncestral => {
                let stride = |i: usize| {
                    let (down, up) = ancestral(sigmas[i], sigmas[i + 1]);
                    Stride { fresh: Fresh::Scaled(up), ..Stride::fall(sigmas[i], down) }
                };
                Route::strides((0..table.times.len()).map(stride).collect())
            }
            _ => euler_route(sigmas, table.times.len(), options),
        };
        let mut walk = Walk::new(levels, self.lens, route);
        walk.sigmas.clone_from(sigmas);
        walk
    }

    /// Two calls a step, the second where `second` says; the last step makes only the first.
    fn doubled(&self, table: &Table, second: impl Fn(&[f64], usize) -> (f64, f64)) -> Walk {
        let (sigmas, n) = (&table.sigmas, table.times.len());
        let mut levels = Vec::with_capacity(2 * n);
        let mut listed = vec![sigmas[0]];
        for i in 0..n {
            levels.push(level(sigmas[i], table.times[i]));
            if i + 1 < n {
                let (sigma, time) = second(sigmas, i);
                levels.push(level(sigma, time));
                listed.extend([sigmas[i + 1]; 2]);
            }
        }
        listed.push(sigmas[n]);
        let mut walk = Walk::new(levels, self.lens, Route::heun(listed.len()));
        walk.sigmas = listed;
        walk.calls_per_step = 2;
        walk
    }

    /// DPM2, its ancestral form and the stochastic DPM: the second call is half-way in ln σ.
    fn with_middles(&self, table: &Table, options: &Options) -> Walk {
        let times = &table.times;
        let target = |sigmas: &[f64], i: usize| match self.class {
            Class::Kdpm2Ancestral => ancestral(sigmas[i], sigmas[i + 1]),
            _ => (sigmas[i + 1], 0.0),
        };
        let middle = |sigmas: &[f64], i: usize| half_way(sigmas[i], target(sigmas, i).0);
        let mut walk =
            self.doubled(table, |sigmas, i| (middle(sigmas, i), self.grid.clock.at(middle(sigmas, i))));
        let hops = (0..times.len())
            .map(|i| {
                let (down, up) = target(&table.sigmas, i);
                Hop { middle: walk.levels.get(2 * i + 1).map_or(0.0, |level| level.sigma), down, up }
            })
            .collect();
        if self.class == Class::DpmSde {
            let churn = options.churn.unwrap_or_default();
            walk.route = Route::DpmSde { sigmas: table.sigmas.clone(), seed: self.seed, noise: churn.noise };
        } else {
            walk.sigmas.push(table.sigmas[times.len()]);
            walk.sigmas.push(table.sigmas[times.len()]);
            walk.route = Route::Midpoint { hops, ancestral: self.class == Class::Kdpm2Ancestral };
        }
        walk
    }
}

const ORIGINAL: &[(&str, bool)] = &[("epsilon", false), ("original_sample", true)];

const SPACINGS: &[(&str, Spacing)] =
    &[("linspace", Spacing::Linspace), ("leading", Spacing::Leading), ("trailing", Spacing::Trailing)];

/// A level of the exploding process.
fn level(sigma: f64, time: f64) -> Level {
    Level {
        sigma,
        listed: sigma,
        time,
        scale: single(single(single(sigma * sigma) + 1.0).sqrt()),
        ..Level::default()
    }
}

/// The strides of Euler from each level to the next, stirred if the caller wants it.
pub(crate) fn euler_route(sigmas: &[f64], n: usize, options: &Options) -> Route {
    match options.churn {
        Some(churn) if churn.amount > 0.0 => Route::Churned { sigmas: sigmas.to_vec(), churn },
        _ => Route::strides((0..n).map(|i| Stride::fall(sigmas[i], sigmas[i + 1])).collect()),
    }
}

/// Half-way in ln σ, by way of single precision logarithms: the Brownian path is so rough that the last digit shows.
fn half_way(from: f64, to: f64) -> f64 {
    let (from, to) = (single(from.ln()), single(to.ln()));
    single(single(from + single(0.5 * single(to - from))).exp())
}

/// To which level to go down, and how much fresh noise leads back up to `to`.
///
/// # Source
/// `crowsonkb/k-diffusion k_diffusion/sampling.py` `get_ancestral_step`, MIT, at η = 1, without its differences of squares.
pub(crate) fn ancestral(from: f64, to: f64) -> (f64, f64) {
    let ratio = to / from;
    (to * ratio, to * (1.0 - ratio * ratio).max(0.0).sqrt())
}
