//! Latent diffusion with a U-net and CLIP: Stable Diffusion 1.x and 2.x, and what is trained in their form.

mod conditioner;
pub mod config;
mod detect;
mod transformer;
pub mod unet;

pub use conditioner::ClipConditioner;
pub use detect::tokenizer;
pub use unet::Unet;

use candle_core::Tensor;

use super::contract::{Card, Conditioner, Conditioning, Denoiser, Family, Place, Variant};
use super::parts::Parts;
use crate::codec::{AutoencoderKl, AutoencoderTiny, Codec, KlConfig, TinyConfig};
use crate::diffusion::{Level, Predict};
use crate::error::Result;
use crate::event::Watch;
use crate::nn::sinusoid;
use crate::text::{ClipConfig, ClipText};
use config::UnetConfig;

/// The family.
pub struct Ldm;

impl Family for Ldm {
    fn name(&self) -> &'static str {
        "stable-diffusion"
    }

    fn detect(&self, parts: &Parts) -> Result<Option<Box<dyn Variant>>> {
        Ok(detect::detect(parts)?.map(|found| Box::new(found) as Box<dyn Variant>))
    }
}

/// One of the family, with the sizes of its parts.
struct StableDiffusion {
    card: Card,
    unet: UnetConfig,
    text: ClipConfig,
    codec: CodecConfig,
}

/// Either of the codecs that such pipelines carry.
enum CodecConfig {
    Kl(KlConfig),
    Tiny(TinyConfig),
}

impl Variant for StableDiffusion {
    fn card(&self) -> &Card {
        &self.card
    }

    fn conditioner(&self, parts: &Parts, at: &Place) -> Result<Box<dyn Conditioner>> {
        let vb = parts.weights("text_encoder")?.var_builder(at.dtype, &at.device);
        let encoder = ClipText::new(&self.text, &vb)?;
        Ok(Box::new(ClipConditioner::new(detect::tokenizer(parts, &self.text)?, encoder)))
    }

    fn denoiser(&self, parts: &Parts, at: &Place) -> Result<Box<dyn Denoiser>> {
        let vb = parts.weights("unet")?.var_builder(at.dtype, &at.device);
        Ok(Box::new(Unet::new(&self.unet, &vb)?))
    }

    fn codec(&self, parts: &Parts, at: &Place) -> Result<Box<dyn Codec>> {
        let vb = parts.weights("vae")?.var_builder(at.dtype, &at.device);
        Ok(match &self.codec {
            CodecConfig::Kl(config) => Box::new(AutoencoderKl::new(config, &vb)?),
            CodecConfig::Tiny(config) => Box::new(AutoencoderTiny::new(config, &vb)?),
        })
    }
}

impl Denoiser for Unet {
    fn bind<'a>(&'a self, told: &[Conditioning]) -> Result<Box<dyn Predict + 'a>> {
        let contexts: Vec<_> = told.iter().map(|row| &row.context).collect();
        let text = self.listen(&Tensor::cat(&contexts, 0)?)?;
        let guidance = match self.config().guidance {
            Some(width) => {
                // The embedding hears w = guidance − 1, a thousandfold (Luo et al. 2023, arXiv 2310.04378, eq. 14).
                let scales: Vec<_> =
                    told.iter().map(|row| (row.guidance.unwrap_or(1.0) - 1.0) * 1000.0).collect();
                Some(sinusoid(&scales, width, false, 1.0)?)
            }
            None => None,
        };
        Ok(Box::new(Bound { network: self, text, guidance }))
    }
}

/// The network, told what to draw.
struct Bound<'a> {
    network: &'a Unet,
    text: Vec<[Tensor; 2]>,
    guidance: Option<Tensor>, // [B, G]
}

impl Predict for Bound<'_> {
    fn predict(&mut self, x: &Tensor, at: &Level, watch: &mut Watch<'_>) -> Result<Tensor> {
        self.network.forward(x, at.time, &self.text, self.guidance.as_ref(), watch)
    }
}
