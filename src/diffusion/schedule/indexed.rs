//! Schedules that count whole training steps: DDIM and its kin, DDPM, PNDM, LCM and TCD.

use std::sync::Arc;

use super::grid::betas;
use super::{clipping, prediction, thresholding, training_steps};
use crate::diffusion::beta::ZeroSnr;
use crate::diffusion::class::Class;
use crate::diffusion::lens::{Bound, Lens, Prediction};
use crate::diffusion::reader::Reader;
use crate::diffusion::sampler::{Fresh, Pndm, Route, Stride};
use crate::diffusion::spacing::{Spacing, linspace, single, steps, whole};
use crate::diffusion::walk::{Level, Options, Walk};
use crate::error::{Code, Error, Result};

/// How DDPM spreads the noise of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variance {
    Small,
    SmallLog,
    Large,
    Learned,
    LearnedRange,
}

/// A schedule whose levels are entries of the training table.
#[derive(Debug, Clone)]
pub(crate) struct Indexed {
    class: Class,
    train: usize,
    /// ᾱ per training step.
    alphas: Arc<[f64]>,
    /// ᾱ beyond the clean end.
    beyond: f64,
    spacing: Spacing,
    offset: f64,
    lens: Lens,
    variance: Variance,
    original_steps: usize,
    scaling: f64,
    runge_kutta: bool,
}

impl Indexed {
    /// Reads a configuration of one of these classes.
    pub(crate) fn read(class: Class, reader: Reader<'_>) -> Result<Self> {
        use Prediction::{Epsilon, Sample, V};
        let train = training_steps(reader)?;
        let noise = betas(class, reader, train, ZeroSnr::Exact)?;
        let alphas: Arc<[f64]> = if class == Class::CogVideoX {
            noise.shifted_alphas(reader.number("snr_shift_scale", 3.0, 1e-6..=1e6)?).into()
        } else {
            noise.alphas().into()
        };
        let whole = if class == Class::DdimInverse && reader.has("set_alpha_to_zero") {
            reader.flag("set_alpha_to_zero", true)?
        } else {
            reader.flag("set_alpha_to_one", class != Class::Pndm)?
        };
        let bound = match class {
            Class::Pndm | Class::Tcd | Class::CogVideoX => Bound::None,
            Class::DdimInverse => clipping(reader, true)?,
            _ => match thresholding(reader)? {
                Bound::None => clipping(reader, class != Class::Lcm)?,
                threshold => threshold,
            },
        };
        let allowed: &[Prediction] = if class == Class::Pndm { &[Epsilon, V] } else { &[Epsilon, Sample, V] };
        Ok(Self {
            class,
            train,
            beyond: if whole || class == Class::Ddpm { 1.0 } else { alphas[0] },
            alphas,
            spacing: spacing(class, reader)?,
            offset: reader.number("steps_offset", 0.0, -1e5..=1e5)?,
            lens: Lens { prediction: prediction(reader, allowed)?, bound },
            variance: variance(class, reader)?,
            original_steps: reader.whole("original_inference_steps", 50, 1..=train)?,
            scaling: reader.number("timestep_scaling", 10.0, -1e6..=1e6)?,
            runge_kutta: class == Class::Pndm && !reader.flag("skip_prk_steps", false)?,
        })
    }

    /// Plans a walk of `n` steps.
    pub(crate) fn walk(&self, n: usize, options: &Options) -> Result<Walk> {
        let has: &[&str] = match self.class {
            Class::Ddim => &["eta", "clip_noise"],
            Class::Ddpm => &["timesteps"],
            Class::Lcm => &["timesteps", "original_steps", "strength"],
            Class::Tcd => &["eta", "timesteps", "original_steps", "strength"],
            _ => &[],
        };
        options.check(self.class.as_str(), has)?;
        if n > self.train {
            return Err(Error::argument(
                "steps",
                format!("{n} steps, but the model was trained on {}", self.train),
            ));
        }
        let times = self.times(n, options)?;
        let mut levels = Vec::with_capacity(times.len());
        for &time in &times {
            let heard = if self.class == Class::DdimInverse { self.before(time, n) } else { time };
            let share = self.share(heard)?;
            levels.push(Level {
                alpha: share.sqrt(),
                sigma: (1.0 - share).sqrt(),
                listed: (1.0 - share).sqrt(),
                time,
                ..Level::default()
            });
        }
        let route = if self.class == Class::Pndm {
            Route::Pndm(Pndm {
                alphas: self.alphas.clone(),
                beyond: self.beyond,
                stride: self.train / n,
                runge_kutta: if self.runge_kutta { 12 } else { 0 },
            })
        } else {
            let strides: Result<Vec<Stride>> =
                (0..times.len()).map(|i| self.stride(&times, i, n, options)).collect();
            Route::strides(strides?)
        };
        let mut walk = Walk::new(levels, self.lens, route);
        if self.class == Class::DdimInverse {
            walk.noising = Some(self.alphas.clone());
        }
        Ok(walk)
    }

    /// The training step that a whole stride before `time`; the inverse walk hears it.
    fn before(&self, time: f64, n: usize) -> f64 {
        (time - (self.train / n) as f64).min((self.train - 1) as f64)
    }

    /// ᾱ at a training step, beyond the clean end where it is negative.
    fn share(&self, time: f64) -> Result<f64> {
        if time < 0.0 {
            return Ok(self.beyond);
        }
        self.alphas.get(whole(time)).copied().ok_or_else(|| {
            Error::new(
                Code::ConfigInvalid,
                format!(
                    "{}: the walk visits training step {time}, but the last is {}",
                    self.class,
                    self.alphas.len() - 1
                ),
            )
            .hint("fewer steps, or a smaller steps_offset")
        })
    }

    fn times(&self, n: usize, options: &Options) -> Result<Vec<f64>> {
        if let Some(times) = &options.timesteps {
            if options.strength.is_some() || options.original_steps.is_some() {
                return Err(Error::argument(
                    "timesteps",
                    "timesteps leave nothing to choose by strength or original steps",
                ));
            }
            return Ok(times.iter().map(|time| time.trunc()).collect());
        }
        match self.class {
            Class::Lcm | Class::Tcd => self.distilled_times(n, options),
            Class::Pndm => self.pndm_times(n),
            Class::DdimInverse => {
                let mut times = steps(self.spacing, n, self.train, self.offset, true);
                times.reverse();
                Ok(times)
            }
            _ => Ok(steps(self.spacing, n, self.train, self.offset, true)),
        }
    }

    /// Every k-th of the teacher's steps.
    fn distilled_times(&self, n: usize, options: &Options) -> Result<Vec<f64>> {
        let strength = options.strength.unwrap_or(1.0);
        let mut teacher: Vec<f64> = match (self.class, options.original_steps) {
            (Class::Tcd, Some(_)) => (0..whole(self.train as f64 * strength)).map(|t| t as f64).collect(),
            (_, chosen) => {
                let original = chosen.unwrap_or(self.original_steps);
                if original == 0 || original > self.train {
                    return Err(Error::argument(
                        "original_steps",
                        format!("{original} original steps are not from 1 to {}", self.train),
                    ));
                }
                let stride = (self.train / original) as f64;
                (1..=whole(original as f64 * strength)).map(|i| i as f64 * stride - 1.0).collect()
            }
        };
        if n > teacher.len() {
            return Err(Error::argument(
                "steps",
                format!("{n} steps, but the teacher of this model walked {}", teacher.len()),
            ));
        }
        teacher.reverse();
        let places = linspace(0.0, teacher.len() as f64, n + 1);
        Ok(places[..n].iter().map(|place| teacher[whole(place.floor())]).collect())
    }

    /// The first levels of PNDM are visited twice, or four times by its Runge-Kutta beginning.
    fn pndm_times(&self, n: usize) -> Result<Vec<f64>> {
        let falling = steps(self.spacing, n, self.train, self.offset, true);
        if !self.runge_kutta {
            let mut times = falling;
            if n > 1 {
                times.insert(2, times[1]);
            }
            return Ok(times);
        }
        if n < 4 {
            return Err(Error::argument(
                "steps",
                format!("{n} steps, but the Runge-Kutta beginning needs 4"),
            )
            .hint("set skip_prk_steps in the scheduler's configuration"));
        }
        let half = (self.train / n / 2) as f64;
        let doubled: Vec<f64> = falling[..4]
            .iter()
            .flat_map(|time| [time + half, *time])
            .skip(1)
            .flat_map(|time| [time, time])
            .collect();
        Ok([&doubled[1..doubled.len() - 1], &falling[3..]].concat())
    }

    /// The weights of step `i`.
    fn stride(&self, times: &[f64], i: usize, n: usize, options: &Options) -> Result<Stride> {
        let time = times[i];
        let stride = (self.train / n) as f64;
        match self.class {
            Class::DdimInverse => {
                let next = self.share(time)?;
                Ok(Stride { clean: next.sqrt(), noise: (1.0 - next).sqrt(), ..Stride::default() })
            }
            Class::CogVideoX => {
                let (now, next) = (self.share(time)?, self.share(time - stride)?);
                let keep = ((1.0 - next) / (1.0 - now)).sqrt();
                Ok(Stride { clean: next.sqrt() - now.sqrt() * keep, x: keep, ..Stride::default() })
            }
            Class::Ddpm => self.posterior(time, times.get(i + 1).copied().unwrap_or(-1.0)),
            Class::Lcm => self.consistency(time, times.get(i + 1).copied().unwrap_or(time), i + 1 == n),
            Class::Tcd => {
                let next = times.get(i + 1).copied().unwrap_or(0.0);
                self.trajectory(next, options.eta.unwrap_or(0.3), i + 1 == n)
            }
            _ => self.implicit(time, time - stride, options),
        }
    }

    /// DDIM(η): Song et al. 2021 (arXiv 2010.02502) eq. 12 and 16.
    fn implicit(&self, time: f64, to: f64, options: &Options) -> Result<Stride> {
        let eta = options.eta.unwrap_or(0.0);
        let (now, next) = (self.share(time)?, self.share(to)?);
        let (left, left_next) = (single(1.0 - now), single(1.0 - next));
        let variance = single(single(left_next / left) * single(1.0 - single(now / next)));
        let fresh = single(eta * single(variance.sqrt()));
        let keep = single(left_next - single(fresh * fresh)).max(0.0).sqrt();
        let fresh = if eta > 0.0 { Fresh::Scaled(fresh) } else { Fresh::None };
        if options.clip_noise == Some(true) {
            let (alpha, sigma) = (now.sqrt(), left.sqrt());
            let clean = next.sqrt() - keep * alpha / sigma;
            return Ok(Stride { clean, x: keep / sigma, fresh, ..Stride::default() });
        }
        Ok(Stride { clean: next.sqrt(), noise: keep, fresh, ..Stride::default() })
    }

    /// The posterior of DDPM: Ho et al. 2020 (arXiv 2006.11239) eq. 7.
    fn posterior(&self, time: f64, to: f64) -> Result<Stride> {
        let (now, next) = (self.share(time)?, self.share(to)?);
        let (left, left_next) = (single(1.0 - now), single(1.0 - next));
        let alpha = single(now / next);
        let beta = single(1.0 - alpha);
        let small = (left_next / left * beta).max(1e-20);
        let fresh = if time > 0.0 {
            match self.variance {
                Variance::Small | Variance::SmallLog => Fresh::Scaled(small.sqrt()),
                Variance::Large => Fresh::Scaled(beta.sqrt()),
                Variance::Learned => Fresh::Learned(None),
                Variance::LearnedRange => Fresh::Learned(Some((small.ln(), beta.ln()))),
            }
        } else {
            Fresh::None
        };
        Ok(Stride {
            clean: next.sqrt() * beta / left,
            x: alpha.sqrt() * left_next / left,
            fresh,
            ..Stride::default()
        })
    }

    /// Latent consistency: Luo et al. 2023 (arXiv 2310.04378), boundary condition of arXiv 2303.01469 eq. 5.
    fn consistency(&self, time: f64, to: f64, is_last: bool) -> Result<Stride> {
        const DATA: f64 = 0.5;
        let scaled = time * self.scaling;
        let whole = scaled * scaled + DATA * DATA;
        let boundary = Some((scaled / whole.sqrt(), DATA * DATA / whole));
        if is_last {
            return Ok(Stride { clean: 1.0, boundary, ..Stride::default() });
        }
        let next = self.share(to)?;
        let fresh = Fresh::Scaled((1.0 - next).sqrt());
        Ok(Stride { clean: next.sqrt(), fresh, boundary, ..Stride::default() })
    }

    /// Trajectory consistency: Zheng et al. 2024 (arXiv 2402.19159), algorithm 4: jump past the next level, come back.
    fn trajectory(&self, to: f64, eta: f64, is_last: bool) -> Result<Stride> {
        let aim = (single(1.0 - eta) * to) as f32;
        let (next, aimed) = (self.share(to)?, self.share(f64::from(aim).floor())?);
        let jump = Stride { clean: aimed.sqrt(), noise: (1.0 - aimed).sqrt(), ..Stride::default() };
        if eta <= 0.0 || is_last {
            return Ok(jump);
        }
        let back = single(next / aimed);
        let fresh = Fresh::Scaled(single(1.0 - back).max(0.0).sqrt());
        Ok(Stride { clean: jump.clean * back.sqrt(), noise: jump.noise * back.sqrt(), fresh, ..jump })
    }
}

fn spacing(class: Class, reader: Reader<'_>) -> Result<Spacing> {
    let all =
        [("leading", Spacing::Leading), ("trailing", Spacing::Trailing), ("linspace", Spacing::Linspace)];
    match class {
        // They have their own way and read no spacing.
        Class::Lcm | Class::Tcd => Ok(Spacing::Leading),
        Class::DdimInverse => reader.choice("timestep_spacing", &all[..2]),
        _ => reader.choice("timestep_spacing", &all),
    }
}

fn variance(class: Class, reader: Reader<'_>) -> Result<Variance> {
    if class != Class::Ddpm {
        return Ok(Variance::Small);
    }
    reader.choice(
        "variance_type",
        &[
            ("fixed_small", Variance::Small),
            ("fixed_small_log", Variance::SmallLog),
            ("fixed_large", Variance::Large),
            ("learned", Variance::Learned),
            ("learned_range", Variance::LearnedRange),
        ],
    )
}
