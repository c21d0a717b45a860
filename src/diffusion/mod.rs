//! The mathematics of the walk from noise to a latent.
//!
//! A configuration becomes [`Settings`], settings and a number of steps become a [`Walk`], and [`sample`] walks it: it
//! asks a [`Predict`] at every level and hands back the latent. Levels are `f64` on the host; only latents are tensors.
//! Each sampler is written once. A step is a weighted sum of what is known, `x = α·x₀ + σ·ε` holds at every level, and
//! what differs between the exploding, the preserving and the straight process is only `α(σ)`, a column of numbers.
//!
//! ```text
//! scheduler_config.json → Settings ─ steps, options → Walk ─ sample(net, x, walk, noise) → latent
//!                    name ┘                            net: Guided(network) : Predict
//! ```
//!
//! No model, device, dtype or file is known here.

mod beta;
mod beta_quantile;
mod brownian;
mod class;
#[cfg(test)]
mod gaussian;
mod guidance;
mod lens;
mod mix;
mod names;
mod noise;
mod ramp;
mod reader;
mod recipe;
mod sampler;
mod schedule;
mod seed_sequence;
mod settings;
mod spacing;
mod torch_rng;
mod walk;

use candle_core::Tensor;

pub use class::Class;
pub use guidance::{Classifier, Guide, Guided, Instructed};
pub use lens::{Lens, Prediction};
pub use names::{Name, names};
pub use noise::Noise;
pub use sampler::{Visit, Visitor, sample, sample_visited};
pub use settings::Settings;
pub use torch_rng::TorchRng;
pub use walk::{Churn, Level, Options, Walk};

use crate::error::Result;
use crate::event::Watch;

/// A network already told what to draw.
pub trait Predict {
    /// The raw output for `x` at a level; [`Lens`] knows what it means.
    ///
    /// # Shapes
    /// `x` `[B, …]`, already divided by `at.scale` → `[B, …]`.
    ///
    /// # Errors
    /// Whatever the network says, and `cancelled`.
    fn predict(&mut self, x: &Tensor, at: &Level, watch: &mut Watch<'_>) -> Result<Tensor>;
}

impl<F: FnMut(&Tensor, &Level) -> Result<Tensor>> Predict for F {
    fn predict(&mut self, x: &Tensor, at: &Level, _: &mut Watch<'_>) -> Result<Tensor> {
        self(x, at)
    }
}
