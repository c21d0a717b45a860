//! Latent diffusion with a U-net and CLIP: Stable Diffusion 1.x, 2.x and XL, and what is trained in their form.

mod bound;
mod conditioner;
pub mod config;
pub mod control;
mod detect;
mod peak;
mod shapes;
mod transformer;
pub mod trunk;
pub mod unet;

pub use bound::Network;
pub use conditioner::{ClipConditioner, Reads};
pub use control::{ControlConfig, ControlNet, Steering};
pub use detect::tokenizer;
pub use trunk::{Heard, Trunk};
pub use unet::{Residuals, Unet};

use candle_core::DType;

use super::contract::{Card, Conditioner, Denoiser, Family, Need, Needs, Place, Variant};
use super::control::Control;
use super::parts::Parts;
use crate::codec::{AutoencoderKl, AutoencoderTiny, Codec, KlConfig, TinyConfig};
use crate::error::Result;
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
    texts: Vec<Encoder>,
    codec: CodecConfig,
}

/// One text encoder and where it lies.
struct Encoder {
    /// The component of its weights, and that of its tokenizer.
    components: [&'static str; 2],
    config: ClipConfig,
}

/// The sizes of a control network, from its config or its shapes.
fn control_config(control: &Control) -> Result<ControlConfig> {
    match control.config() {
        Some(config) => ControlConfig::read(config),
        None => ControlConfig::from_shapes(control.weights().inventory()),
    }
}

/// Either of the codecs that such pipelines carry.
enum CodecConfig {
    Kl(KlConfig),
    Tiny(TinyConfig),
}

impl StableDiffusion {
    /// What the codec's weights are kept in: the decoders of SD XL and of its upscaler overflow in f16.
    fn codec_dtype(&self, at: &Place) -> DType {
        let is_large = self.unet.added.is_some() || self.unet.grains.is_some();
        let overflows = matches!(&self.codec, CodecConfig::Kl(config) if config.upcast) && is_large;
        if overflows && at.dtype == DType::F16 { DType::F32 } else { at.dtype }
    }
}

impl Variant for StableDiffusion {
    fn card(&self) -> &Card {
        &self.card
    }

    fn needs(&self, parts: &Parts, at: &Place, rows: usize, latent: [usize; 2]) -> Result<Needs> {
        let kept = |component: &str, dtype: DType| -> Result<u64> {
            Ok(parts.weights(component)?.bytes_kept(dtype))
        };
        let mut encode = Need::default();
        for Encoder { components: [weights, _], config } in &self.texts {
            encode.weights += kept(weights, at.dtype)?;
            encode.activations = encode.activations.max(peak::text(config.width, rows));
        }
        let decoded = match &self.codec {
            CodecConfig::Kl(config) => peak::kl(config, latent),
            CodecConfig::Tiny(config) => peak::tiny(config, latent),
        };
        let controls = parts.controls()?;
        let steering: u64 = controls.iter().map(|control| control.weights().bytes_kept(at.dtype)).sum();
        Ok(Needs {
            encode,
            denoise: Need {
                weights: kept("unet", at.dtype)? + steering,
                activations: peak::unet(&self.unet, rows, latent)
                    + peak::controls(&self.unet, controls.len(), rows, latent),
            },
            decode: Need { weights: kept("vae", self.codec_dtype(at))?, activations: decoded },
        })
    }

    fn conditioner(&self, parts: &Parts, at: &Place) -> Result<Box<dyn Conditioner>> {
        let mut readers = Vec::with_capacity(self.texts.len());
        for Encoder { components: [weights, words], config } in &self.texts {
            let vb = parts.weights(weights)?.var_builder(at.dtype, &at.device);
            let (mut tokenizer, mut encoder) =
                (detect::tokenizer(parts, words, config)?, ClipText::new(config, &vb)?);
            for (word, vectors) in parts.taught_to(weights) {
                tokenizer.learn(word, encoder.learn(vectors)?);
            }
            readers.push((tokenizer, encoder));
        }
        let reads = if self.unet.added.is_some() { Reads::Penultimate } else { Reads::Last };
        Ok(Box::new(ClipConditioner::new(readers, reads)))
    }

    fn denoiser(&self, parts: &Parts, at: &Place) -> Result<Box<dyn Denoiser>> {
        let vb = parts.weights("unet")?.var_builder(at.dtype, &at.device);
        let controls = parts.controls()?;
        let controls = controls.iter().map(|control| {
            let vb = control.weights().var_builder(at.dtype, &at.device);
            Ok(ControlNet::new(&control_config(control)?, &vb)?)
        });
        let controls = controls.collect::<Result<_>>()?;
        Ok(Box::new(Network { unet: Unet::new(&self.unet, &vb)?, controls }))
    }

    fn check_control(&self, control: &Control) -> Result<()> {
        control_config(control)?.must_fit(&self.unet, (self.card.latent_channels, self.card.factor))
    }

    fn codec(&self, parts: &Parts, at: &Place) -> Result<Box<dyn Codec>> {
        let vb = parts.weights("vae")?.var_builder(self.codec_dtype(at), &at.device);
        Ok(match &self.codec {
            CodecConfig::Kl(config) => Box::new(AutoencoderKl::new(config, &vb)?),
            CodecConfig::Tiny(config) => Box::new(AutoencoderTiny::new(config, &vb)?),
        })
    }
}
