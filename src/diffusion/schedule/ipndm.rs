//! The improved pseudo-linear multistep schedule, which counts time from 1 to 0 on a quarter circle.

use std::f64::consts::{FRAC_PI_2, PI};

use super::training_steps;
use crate::diffusion::beta::linspace32;
use crate::diffusion::class::Class;
use crate::diffusion::lens::{Bound, Lens, Prediction};
use crate::diffusion::reader::Reader;
use crate::diffusion::sampler::{Node, Route};
use crate::diffusion::spacing::single;
use crate::diffusion::walk::{Level, Options, Walk};
use crate::error::{Error, Result};

/// An IPNDM schedule.
#[derive(Debug, Clone)]
pub(crate) struct Ipndm {
    trained: Option<Vec<f64>>,
}

impl Ipndm {
    /// Reads a configuration of this class.
    pub(crate) fn read(reader: Reader<'_>) -> Result<Self> {
        training_steps(reader)?;
        Ok(Self { trained: reader.numbers("trained_betas", 0.0..=1.0)? })
    }

    /// Plans a walk of `n` steps.
    pub(crate) fn walk(&self, n: usize, options: &Options) -> Result<Walk> {
        options.check(Class::Ipndm.as_str(), &[])?;
        let sigmas: Vec<f64> = if let Some(trained) = &self.trained {
            trained.iter().map(|&beta| single(beta)).collect()
        } else {
            let sine = |place: f64| single(single(single(place * PI) / 2.0).sin());
            linspace32(1.0, 0.0, n + 1).into_iter().map(|place| single(sine(place) * sine(place))).collect()
        };
        if sigmas.len() != n + 1 {
            return Err(Error::argument(
                "steps",
                format!("{n} steps, but trained_betas name {}", sigmas.len().saturating_sub(1)),
            ));
        }
        let alphas = sigmas.iter().map(|sigma| single(single(1.0 - single(sigma * sigma)).sqrt()));
        let nodes: Vec<Node> = alphas.zip(&sigmas).map(|(alpha, &sigma)| Node::new(alpha, sigma)).collect();
        let level = |node: &Node| Level {
            alpha: node.alpha,
            sigma: node.sigma,
            listed: node.sigma,
            time: single(node.sigma.atan2(node.alpha) / FRAC_PI_2),
            ..Level::default()
        };
        let levels = nodes[..n].iter().map(level).collect();
        let lens = Lens { prediction: Prediction::V, bound: Bound::None };
        Ok(Walk::new(levels, lens, Route::Ipndm(nodes)))
    }
}
