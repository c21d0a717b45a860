//! Latent diffusion with a U-net and CLIP: Stable Diffusion 1.x, 2.x and XL, and what is trained in their form.

mod conditioner;
pub mod config;
mod detect;
mod peak;
mod shapes;
mod transformer;
pub mod unet;

pub use conditioner::{ClipConditioner, Reads};
pub use detect::tokenizer;
pub use unet::{Heard, Unet};

use std::borrow::Cow;

use candle_core::{DType, Tensor};

use super::contract::{Card, Conditioner, Conditioning, Denoiser, Family, Need, Needs, Place, Variant};
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
    texts: Vec<Encoder>,
    codec: CodecConfig,
}

/// One text encoder and where it lies.
struct Encoder {
    /// The component of its weights, and that of its tokenizer.
    components: [&'static str; 2],
    config: ClipConfig,
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
        Ok(Needs {
            encode,
            denoise: Need {
                weights: kept("unet", at.dtype)?,
                activations: peak::unet(&self.unet, rows, latent),
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
        Ok(Box::new(Unet::new(&self.unet, &vb)?))
    }

    fn codec(&self, parts: &Parts, at: &Place) -> Result<Box<dyn Codec>> {
        let vb = parts.weights("vae")?.var_builder(self.codec_dtype(at), &at.device);
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
        let pooled: Vec<_> = told.iter().filter_map(|row| row.pooled.as_ref()).collect();
        let sizes: Vec<_> = told.iter().map(|row| row.sizes.clone()).collect();
        let mut added = if pooled.is_empty() { None } else { self.hear(&Tensor::cat(&pooled, 0)?, &sizes)? };
        let grains: Vec<usize> = told.iter().filter_map(|row| row.noise_level).collect();
        if let Some(grain) = if grains.is_empty() { None } else { self.hear_grain(&grains)? } {
            added = Some(match added {
                Some(added) => (added + grain)?,
                None => grain,
            });
        }
        let beside: Vec<_> = told.iter().filter_map(|row| row.beside.as_ref()).collect();
        let beside = if beside.is_empty() { None } else { Some(Tensor::cat(&beside, 0)?) };
        Ok(Box::new(Bound { network: self, heard: Heard { text, guidance, added }, beside }))
    }
}

/// The network, told what to draw.
struct Bound<'a> {
    network: &'a Unet,
    heard: Heard,
    beside: Option<Tensor>, // [B, C', h, w]
}

impl Predict for Bound<'_> {
    fn predict(&mut self, x: &Tensor, at: &Level, watch: &mut Watch<'_>) -> Result<Tensor> {
        let x = match &self.beside {
            Some(beside) => Cow::Owned(Tensor::cat(&[x, beside], 1)?),
            None => Cow::Borrowed(x),
        };
        self.network.forward(&x, at.time, &self.heard, watch)
    }
}
