//! Schedules of networks that are preconditioned as Karras et al. 2022 (arXiv 2206.00364) do.

use super::scaled::euler_route;
use super::solver::Dpm;
use super::thresholding;
use crate::diffusion::beta::linspace32;
use crate::diffusion::class::Class;
use crate::diffusion::lens::{Bound, Lens, Prediction};
use crate::diffusion::ramp::karras;
use crate::diffusion::reader::Reader;
use crate::diffusion::sampler::{Node, Route};
use crate::diffusion::spacing::{linspace, single};
use crate::diffusion::walk::{Level, Options, Walk};
use crate::error::Result;

/// An EDM schedule: two ends and a curve, no training steps.
#[derive(Debug, Clone)]
pub(crate) struct Edm {
    class: Class,
    low: f64,
    high: f64,
    data: f64,
    rho: f64,
    exponential: bool,
    ends_at_lowest: bool,
    lens: Lens,
    dpm: Option<Dpm>,
}

impl Edm {
    /// Reads a configuration of one of these classes.
    pub(crate) fn read(class: Class, reader: Reader<'_>) -> Result<Self> {
        let data = reader.number("sigma_data", 0.5, 1e-6..=1e6)?;
        let sign = reader.choice("prediction_type", &[("epsilon", 1.0), ("v_prediction", -1.0)])?;
        let is_dpm = class == Class::EdmDpmMultistep;
        let bound = if is_dpm { thresholding(reader)? } else { Bound::None };
        let (low, high) =
            (reader.number("sigma_min", 0.002, 1e-9..=1e6)?, reader.number("sigma_max", 80.0, 1e-9..=1e6)?);
        if low >= high {
            return Err(reader.refuse("sigma_min", "must be below sigma_max"));
        }
        Ok(Self {
            class,
            low,
            high,
            data,
            rho: reader.number("rho", 7.0, 1e-3..=1e3)?,
            exponential: reader.choice("sigma_schedule", &[("karras", false), ("exponential", true)])?,
            ends_at_lowest: reader.choice("final_sigmas_type", &[("zero", false), ("sigma_min", true)])?,
            lens: Lens { prediction: Prediction::Edm { data, sign }, bound },
            dpm: if is_dpm { Some(Dpm::read(class, reader)?) } else { None },
        })
    }

    /// Plans a walk of `n` steps.
    pub(crate) fn walk(&self, n: usize, options: &Options) -> Result<Walk> {
        let has: &[&str] = if self.dpm.is_some() { &[] } else { &["churn"] };
        options.check(self.class.as_str(), has)?;
        let mut sigmas = self.sigmas(n);
        sigmas.push(match (self.ends_at_lowest, &self.dpm) {
            (false, _) => 0.0,
            (true, None) => sigmas[n - 1],
            (true, Some(_)) => single(self.low),
        });
        let level = |&sigma: &f64| Level {
            sigma,
            listed: sigma,
            time: single(0.25 * sigma.ln()),
            scale: sigma.hypot(self.data),
            ..Level::default()
        };
        let levels = sigmas[..n].iter().map(level).collect();
        let route = match &self.dpm {
            None => euler_route(&sigmas, n, options),
            Some(dpm) => {
                let nodes: Vec<Node> = sigmas.iter().map(|&sigma| Node::new(1.0, sigma)).collect();
                Route::Multistep(dpm.plan(nodes))
            }
        };
        let mut walk = Walk::new(levels, self.lens, route);
        walk.sigmas = sigmas;
        walk.init_noise_sigma = self.high.hypot(1.0);
        Ok(walk)
    }

    /// σ of each step; the multistep class computes them in single precision.
    fn sigmas(&self, n: usize) -> Vec<f64> {
        if self.exponential {
            let logs = linspace32(self.low.ln(), self.high.ln(), n);
            return logs.into_iter().rev().map(|log| single(log.exp())).collect();
        }
        if self.dpm.is_none() {
            return karras(self.high, self.low, self.rho, &linspace(0.0, 1.0, n))
                .into_iter()
                .map(single)
                .collect();
        }
        let (high, low) = (self.high.powf(1.0 / self.rho), self.low.powf(1.0 / self.rho));
        let span = single(low - high);
        let at = |t: &f64| single(single(single(high) + single(t * span)).powf(self.rho));
        linspace32(0.0, 1.0, n).iter().map(at).collect()
    }
}
