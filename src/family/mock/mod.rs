//! A model without weights that draws gradients: for tests of everything around a model, in no time.
//!
//! It walks the one recipe like any other: a prompt becomes a conditioning, every sampler asks its network step by step,
//! guidance folds what it says, and a codec makes pixels. What it draws follows from the prompt and the seed.

use std::time::Duration;

use candle_core::{DType, Device, Tensor};
use serde_json::json;

use super::contract::{
    Beside, Card, Conditioner, Conditioning, Denoiser, Evidence, Fact, Family, Place, Prompt, Sizes, Task,
    Variant,
};
use super::parts::Parts;
use crate::codec::{Codec, Posterior};
use crate::diffusion::{Level, Predict, Settings};
use crate::error::Result;
use crate::event::Watch;
use crate::weights::{sha256, synthetic::numbers};

/// What the index of such a model says it is.
const PIPELINE: &str = "LatentiaMockPipeline";
/// Pixels to a latent's side.
const FACTOR: usize = 8;
/// Numbers that a prompt becomes: one a corner and colour.
const WORDS: usize = 12;
/// What is looked at while a step takes its time.
const NAP: Duration = Duration::from_millis(10);

/// The family.
pub struct Mock;

impl Family for Mock {
    fn name(&self) -> &'static str {
        "mock"
    }

    fn detect(&self, parts: &Parts) -> Result<Option<Box<dyn Variant>>> {
        let Some(folder) = parts.configs().filter(|folder| folder.class() == PIPELINE) else {
            return Ok(None);
        };
        let ms = folder.index().opt_usize("step_ms", 0..=10_000)?.unwrap_or(0);
        let assumed = || Evidence::Assumed("a mock draws anything".into());
        let scheduler = json!({
            "_class_name": "EulerDiscreteScheduler",
            "beta_start": 0.00085,
            "beta_end": 0.012,
            "beta_schedule": "scaled_linear",
            "timestep_spacing": "trailing",
        });
        let card = Card {
            family: "mock",
            variant: Fact::new("gradient".into(), assumed()),
            tasks: vec![Task::TextToImage, Task::ImageToImage],
            beside: Beside::Nothing,
            latent_channels: 3,
            factor: FACTOR,
            size: Fact::new([256, 256], assumed()),
            steps: Fact::new(4, assumed()),
            guidance: Fact::new(1.0, assumed()),
            hears_guidance: false,
            sampler: Fact::new(Settings::read(None, &scheduler)?, assumed()),
            text_layers: 1,
            text_encoders: 1,
            silent_negative: false,
            sizes: Sizes::None,
            strength: [0.8, 1.0],
        };
        Ok(Some(Box::new(Gradient { card, step: Duration::from_millis(ms as u64) })))
    }
}

/// A mock whose steps take so long.
struct Gradient {
    card: Card,
    step: Duration,
}

impl Variant for Gradient {
    fn card(&self) -> &Card {
        &self.card
    }

    fn conditioner(&self, _: &Parts, _: &Place) -> Result<Box<dyn Conditioner>> {
        Ok(Box::new(Words))
    }

    fn denoiser(&self, _: &Parts, _: &Place) -> Result<Box<dyn Denoiser>> {
        Ok(Box::new(Brush { step: self.step }))
    }

    fn codec(&self, _: &Parts, _: &Place) -> Result<Box<dyn Codec>> {
        Ok(Box::new(Blocks))
    }
}

/// A prompt as numbers in [-1, 1].
struct Words;

impl Conditioner for Words {
    fn condition(&self, prompts: &[Prompt], _: &mut Watch<'_>) -> Result<Vec<Conditioning>> {
        let told = |prompt: &Prompt| {
            let drawn = numbers(0, &sha256(prompt.text.as_bytes()), &[WORDS, 3])?;
            let context = Tensor::from_slice(&drawn[..WORDS], (1, 1, WORDS), &Device::Cpu)?;
            Ok(Conditioning {
                context,
                pooled: None,
                guidance: None,
                sizes: Vec::new(),
                beside: None,
                hints: Vec::new(),
            })
        };
        prompts.iter().map(told).collect()
    }
}

/// What takes noise away: it knows the picture from the first step on.
struct Brush {
    step: Duration,
}

impl Denoiser for Brush {
    fn bind<'a>(&'a self, told: &[Conditioning]) -> Result<Box<dyn Predict + 'a>> {
        let words: Vec<_> = told.iter().map(|row| &row.context).collect();
        let words = Tensor::cat(&words, 0)?.squeeze(1)?.to_vec2()?;
        Ok(Box::new(Told { step: self.step, words, clean: None }))
    }
}

/// The brush, told what to draw.
struct Told {
    step: Duration,
    words: Vec<Vec<f32>>,  // [B][WORDS]
    clean: Option<Tensor>, // [B, 3, h, w]
}

impl Predict for Told {
    fn predict(&mut self, x: &Tensor, at: &Level, watch: &mut Watch<'_>) -> Result<Tensor> {
        let mut left = self.step;
        while !left.is_zero() {
            watch.check()?;
            let nap = left.min(NAP);
            std::thread::sleep(nap);
            left -= nap;
        }
        let clean = match self.clean.take() {
            Some(clean) => clean,
            None => gradient(&self.words, x)?,
        };
        // The noise that explains the rest of `x`, which is what such networks are trained to say.
        let rest = ((x * at.scale)? - (&clean * at.alpha)?)?;
        self.clean = Some(clean);
        Ok((rest / at.sigma)?)
    }
}

/// One picture a row: a colour a corner from the prompt, shifted by the noise that the walk begins with.
fn gradient(words: &[Vec<f32>], x: &Tensor) -> Result<Tensor> {
    let (rows, channels, height, width) = x.dims4()?;
    let seed: Vec<f32> = x.get(0)?.flatten_all()?.narrow(0, 0, channels)?.to_dtype(DType::F32)?.to_vec1()?;
    let mut pixels = Vec::with_capacity(rows * channels * height * width);
    let along = |place: usize, length: usize| place as f32 / (length.max(2) - 1) as f32;
    for row in 0..rows {
        let words = &words[row % words.len().max(1)];
        for channel in 0..channels {
            let corner = |number: usize| words[(number * channels + channel) % words.len().max(1)];
            let shift = seed[channel].sin() / 2.0;
            for y in (0..height).map(|y| along(y, height)) {
                for x in (0..width).map(|x| along(x, width)) {
                    let top = corner(0) * (1.0 - x) + corner(1) * x;
                    let bottom = corner(2) * (1.0 - x) + corner(3) * x;
                    pixels.push((top * (1.0 - y) + bottom * y + shift).clamp(-1.0, 1.0));
                }
            }
        }
    }
    Ok(Tensor::from_vec(pixels, (rows, channels, height, width), x.device())?.to_dtype(x.dtype())?)
}

/// A latent is a small picture.
struct Blocks;

impl Codec for Blocks {
    fn encode(&self, pixels: &Tensor, _: &mut Watch<'_>) -> Result<Posterior> {
        let (batch, channels, frames, height, width) = pixels.dims5()?;
        let stills = pixels.permute((0, 2, 1, 3, 4))?.reshape((batch * frames, channels, height, width))?;
        Ok(Posterior::certain(stills.avg_pool2d(FACTOR)?))
    }

    fn decode(&self, latent: &Tensor, _: &mut Watch<'_>) -> Result<Tensor> {
        let (_, _, height, width) = latent.dims4()?;
        Ok(latent.upsample_nearest2d(height * FACTOR, width * FACTOR)?.unsqueeze(2)?)
    }
}
