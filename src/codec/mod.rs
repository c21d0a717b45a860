//! Pixels to latents and back.
//!
//! Latents outside this room are normalised: only a codec knows its scale and shift.

mod edge;
pub mod kl;
mod tile;
pub mod tiny;

pub use kl::{AutoencoderKl, KlConfig};
pub use tile::Tiled;
pub use tiny::{AutoencoderTiny, TinyConfig};

use candle_core::Tensor;

use crate::error::Result;
use crate::event::Watch;

/// What an encoder says of a picture: a Gaussian over normalised latents.
#[derive(Debug, Clone)]
pub struct Posterior {
    /// `[B, C, h, w]`.
    pub mean: Tensor,
    /// `[B, C, h, w]`; `None` where the codec is certain.
    pub deviation: Option<Tensor>,
    /// Normalised latent = (latent − shift)·scale.
    scale: f64,
    shift: f64,
}

impl Posterior {
    /// What a codec says that is certain and whose latents are normal as they are.
    pub fn certain(mean: Tensor) -> Self {
        Self { mean, deviation: None, scale: 1.0, shift: 0.0 }
    }

    /// One latent of the Gaussian.
    ///
    /// # Shapes
    /// `noise` as `mean`, standard normal.
    ///
    /// # Errors
    /// If the shapes differ.
    pub fn sample(&self, noise: &Tensor) -> Result<Tensor> {
        match &self.deviation {
            Some(deviation) => Ok((&self.mean + (deviation * noise)?)?),
            None => Ok(self.mean.clone()),
        }
    }

    /// The mean as the codec's own weights count it, for networks that were trained to see that.
    ///
    /// # Errors
    /// What the tensors say.
    pub fn unscaled(&self) -> Result<Tensor> {
        Ok(((&self.mean / self.scale)? + self.shift)?)
    }
}

/// An autoencoder. A still is a clip of one frame.
pub trait Codec: Send + Sync {
    /// # Shapes
    /// `pixels` `[B, 3, T, H, W]` in [-1, 1] → normalised latents `[B·T, C, h, w]`.
    ///
    /// # Errors
    /// `cancelled`, and what the tensors say.
    fn encode(&self, pixels: &Tensor, watch: &mut Watch<'_>) -> Result<Posterior>;

    /// # Shapes
    /// Normalised `latent` `[B, C, h, w]` → pixels `[B, 3, 1, H, W]`, about [-1, 1], not clamped.
    ///
    /// # Errors
    /// `cancelled`, and what the tensors say.
    fn decode(&self, latent: &Tensor, watch: &mut Watch<'_>) -> Result<Tensor>;
}
