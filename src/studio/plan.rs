//! A request with every question answered: what is done, what is stored beside the picture, what repeats it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::request::{PROMPT_BYTES, Request, SIDE, STEPS};
use crate::diffusion::{Class, Options, Settings};
use crate::error::{Code, Error, Result};
use crate::event::Watch;
use crate::family::{Card, Prompt};

/// The recipe of one picture. Nothing is optional that decides a pixel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What is made.
    pub task: String,
    /// What to draw.
    pub prompt: String,
    /// What not to draw.
    pub negative_prompt: String,
    /// Pixels across.
    pub width: usize,
    /// Pixels down.
    pub height: usize,
    /// Steps of the walk.
    pub steps: usize,
    /// How strongly the prompt pulls.
    pub guidance: f64,
    /// See [`Request::guidance_rescale`].
    pub guidance_rescale: f64,
    /// The sampler as it was asked for, or the class of the model's own.
    pub sampler: String,
    /// The sampler's class and all its settings, as diffusers writes them.
    pub scheduler: Value,
    /// Share of fresh noise a step; null where the sampler takes none.
    pub eta: Option<f64>,
    /// Last layers of the text encoder left out.
    pub clip_skip: usize,
    /// Seed of torch's CPU generator.
    pub seed: u64,
    /// The sha256 of the given start, null where the seed made it.
    pub latents_sha256: Option<String>,
    /// The model.
    pub model: ModelId,
    /// How weights were kept in memory.
    pub dtype: String,
    /// The device's class.
    pub device: String,
    /// The engine.
    pub version: String,
}

/// Which weights made a picture.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelId {
    /// The name it was asked for by, without the path to it.
    pub name: String,
    /// sha256 of each component's weights.
    pub sha256: BTreeMap<String, String>,
}

impl ModelId {
    /// The name to open it by; the embedded model needs none.
    pub fn needed(&self) -> Option<&str> {
        (self.name != super::embedded::NAME).then_some(self.name.as_str())
    }

    /// One hexadecimal digest for the whole model: that of its denoiser, or of its single file.
    pub fn digest(&self) -> &str {
        ["unet", "model"].iter().find_map(|part| self.sha256.get(*part)).map_or("", String::as_str)
    }
}

/// Where and how a model runs, as a plan says it.
#[derive(Debug, Clone)]
pub struct Engine {
    /// The model's name.
    pub model: String,
    /// How weights are kept in memory.
    pub dtype: String,
    /// The device's class.
    pub device: String,
}

impl Plan {
    /// Answers every question of a request: the request first, then the model's facts.
    ///
    /// # Errors
    /// `invalid_argument` naming the argument, what was expected and found; `prompt_too_long`.
    pub fn settle(request: &Request, card: &Card, engine: &Engine, watch: &mut Watch<'_>) -> Result<Self> {
        let negative = request.negative.clone().unwrap_or_default();
        for (name, text) in [("prompt", &request.prompt), ("negative", &negative)] {
            if text.len() > PROMPT_BYTES {
                let message = format!("{name} has {} bytes, at most {} are read", text.len(), PROMPT_BYTES);
                return Err(Error { param: Some(name.into()), ..Error::new(Code::PromptTooLong, message) });
            }
        }
        let [width, height] = request.size.unwrap_or(card.size.value);
        check_side("width", width, card.factor)?;
        check_side("height", height, card.factor)?;
        let steps = request.steps.unwrap_or(card.steps.value);
        within("steps", steps as f64, 1.0, STEPS as f64)?;
        let guidance = request.guidance.unwrap_or(card.guidance.value);
        within("guidance", guidance, 0.0, 100.0)?;
        let guidance_rescale = request.guidance_rescale.unwrap_or(0.0);
        within("guidance_rescale", guidance_rescale, 0.0, 1.0)?;
        let clip_skip = request.clip_skip.unwrap_or(0);
        if clip_skip >= card.text_layers {
            let message = format!(
                "clip_skip {clip_skip}: the text encoder has {} layers to leave out",
                card.text_layers - 1
            );
            return Err(Error::argument("clip_skip", message));
        }
        if card.hears_guidance && guidance_rescale > 0.0 {
            let message = "this model hears the guidance itself, so there is nothing to rescale";
            return Err(Error::argument("guidance_rescale", message));
        }
        if request.negative.is_some() && (card.hears_guidance || guidance <= 1.0) {
            let why = if card.hears_guidance {
                "this model hears the guidance itself"
            } else {
                "guidance is 1 or less"
            };
            watch.note(format!("the negative prompt has no effect: {why}"));
        }
        let settings = match &request.sampler {
            Some(name) => Settings::named(name, &card.sampler.value)?,
            None => card.sampler.value.clone(),
        };
        let plan = Self {
            task: "text_to_image".into(),
            prompt: request.prompt.clone(),
            negative_prompt: negative,
            width,
            height,
            steps,
            guidance,
            guidance_rescale,
            sampler: request.sampler.clone().unwrap_or_else(|| settings.class().to_string()),
            scheduler: settings.to_json(),
            // Pipelines of diffusers walk TCD with eta 0 unless told otherwise; its own default is another.
            eta: request.eta.or((settings.class() == Class::Tcd).then_some(0.0)),
            clip_skip,
            seed: request.seed.unwrap_or(0),
            latents_sha256: None,
            model: ModelId { name: engine.model.clone(), sha256: BTreeMap::new() },
            dtype: engine.dtype.clone(),
            device: engine.device.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
        };
        settings.walk(plan.steps, &plan.options())?;
        Ok(plan)
    }

    /// The schedule and solver.
    ///
    /// # Errors
    /// `config_invalid` if the recipe was changed by hand.
    pub fn settings(&self) -> Result<Settings> {
        Settings::read(None, &self.scheduler)
    }

    /// What the walk is told beyond its steps.
    pub fn options(&self) -> Options {
        Options { eta: self.eta, ..Options::default() }
    }

    /// Whether the network is asked with and without the prompt: classifier-free guidance.
    pub fn asks_twice(&self, card: &Card) -> bool {
        self.guidance > 1.0 && !card.hears_guidance
    }

    /// The prompts in the order of the batch: what not to draw comes first.
    pub fn prompts(&self, card: &Card) -> Vec<Prompt> {
        let positive = Prompt { text: self.prompt.clone(), clip_skip: self.clip_skip };
        if !self.asks_twice(card) {
            return vec![positive];
        }
        // The negative prompt is never skipped, as in diffusers.
        vec![Prompt { text: self.negative_prompt.clone(), clip_skip: 0 }, positive]
    }

    /// The shape of one latent, `[1, C, h, w]`.
    pub fn latent(&self, card: &Card) -> [usize; 4] {
        [1, card.latent_channels, self.height / card.factor, self.width / card.factor]
    }
}

fn check_side(name: &str, pixels: usize, factor: usize) -> Result<()> {
    if pixels >= factor && pixels <= SIDE && pixels.is_multiple_of(factor) {
        return Ok(());
    }
    let near = (pixels / factor * factor).clamp(factor, SIDE / factor * factor);
    let message = format!("{name} {pixels} is not a multiple of {factor} from {factor} to {SIDE}");
    Err(Error::argument(name, message).hint(format!("try {near}")))
}

fn within(name: &str, value: f64, low: f64, high: f64) -> Result<()> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(Error::argument(name, format!("{name} {value} is not from {low} to {high}")))
}
