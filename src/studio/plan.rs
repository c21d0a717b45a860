//! A request with every question answered: what is done, what is stored beside the picture, what repeats it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::canvas::{enlarged_size, working_size};
use super::control::{self, Controlled};
use super::edit::EditPlan;
use super::model::Worn;
use super::request::{PROMPT_BYTES, Request, SIDE, STEPS};
use super::sizes;
use super::taught::Taught;
use crate::diffusion::{Class, Options, Settings, Walk};
use crate::error::{Code, Error, Result};
use crate::event::Watch;
use crate::family::{Card, Prompt, Task};
use crate::text::prompt::{Long, Syntax, parse};
use crate::weights::Application;

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
    /// The files of changes to the weights; absent where there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loras: Vec<Worn>,
    /// How they met the weights; absent where that was left to us.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub lora_application: Application,
    /// The words that it was taught; absent where there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub embeddings: Vec<Taught>,
    /// What the second text encoder read; absent where it read the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_prompt: Option<String>,
    /// How the prompts are written; absent where they are plain words.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub prompt_syntax: Syntax,
    /// What became of prompts that are longer than an encoder; absent where they were cut.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub long_prompt: Long,
    /// Whether noughts took the place of a negative prompt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub silent_negative: bool,
    /// Sizes that the network heard with the prompt and without; absent where it hears none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<[Vec<f64>; 2]>,
    /// The part of the walk that this model walks, as shares of it; absent where it walks all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<[f64; 2]>,
    /// What another model did with the latent then; absent where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refiner: Option<Box<Plan>>,
    /// The side of the codec's tiles in latent pixels; absent where it saw the picture in one piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tile: Option<usize>,
    /// The picture it began from; absent where it is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<EditPlan>,
    /// Control networks that steered it; absent where there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controls: Vec<Controlled>,
    /// Whether they steered the prompt alone, coarse layers more than fine ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub control_guess: bool,
    /// The part of the steps that they steered, as shares; absent where it was all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_window: Option<[f64; 2]>,
    /// The model.
    pub model: ModelId,
    /// How weights were kept in memory.
    pub dtype: String,
    /// The device's class.
    pub device: String,
    /// The engine.
    pub version: String,
}

/// How often the network is asked a step, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// With the prompt.
    Once,
    /// Without and with the prompt, in this order.
    Guided,
    /// With prompt and picture, with the picture alone, with neither.
    Instructed,
}

impl Asking {
    /// Which of the conditions have the prompt.
    pub fn with_prompt(self) -> &'static [bool] {
        match self {
            Self::Once => &[true],
            Self::Guided => &[false, true],
            Self::Instructed => &[true, false, false],
        }
    }
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
        check_lengths(request)?;
        check_syntax(request, card)?;
        let task = match &request.edit {
            Some(edit) if edit.upscales => Task::ImageUpscale,
            Some(_) => Task::ImageToImage,
            None => Task::TextToImage,
        };
        card.must_do(task)?;
        let ([width, height], resized) = size(request, card)?;
        let steps = request.steps.unwrap_or(card.steps.value);
        within("steps", steps as f64, 1.0, STEPS as f64)?;
        let guidance = request.guidance.unwrap_or(card.guidance.value);
        within("guidance", guidance, 0.0, 100.0)?;
        let guidance_rescale = request.guidance_rescale.unwrap_or(0.0);
        within("guidance_rescale", guidance_rescale, 0.0, 1.0)?;
        let clip_skip = clip_skip(request, card)?;
        if request.second_prompt.is_some() && card.text_encoders < 2 {
            return Err(Error::argument("second_prompt", "this model has one text encoder"));
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
        // A score is meant for the refiner where there is one.
        let asked =
            if request.refiner_from.is_some() { request.sizes.of_base() } else { request.sizes.clone() };
        let settings = match &request.sampler {
            Some(name) => Settings::named(name, &card.sampler.value)?,
            None => card.sampler.value.clone(),
        };
        let plan = Self {
            task: task.name().into(),
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
            loras: Vec::new(),
            lora_application: request.lora_application,
            embeddings: Vec::new(),
            span: None,
            refiner: None,
            tile: None,
            silent_negative: card.silent_negative && request.negative.is_none(),
            second_prompt: request.second_prompt.clone(),
            prompt_syntax: request.prompt_syntax,
            long_prompt: request.long_prompt,
            sizes: sizes::settle(&asked, card, [width, height])?,
            edit: request.edit.as_ref().map(|edit| EditPlan::settle(edit, card, resized)).transpose()?,
            controls: control::settle(request)?,
            control_guess: request.control_guess,
            control_window: request.control_window,
            model: ModelId { name: engine.model.clone(), sha256: BTreeMap::new() },
            dtype: engine.dtype.clone(),
            device: engine.device.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
        };
        plan.steered_calls(&plan.walk(card)?)?;
        Ok(plan)
    }

    /// Whether it makes a picture larger, and nothing else.
    pub fn upscales(&self) -> bool {
        self.task == Task::ImageUpscale.name()
    }

    /// Width and height of the picture that comes of it, which may lie in a larger one.
    pub fn result_size(&self) -> [usize; 2] {
        self.edit.as_ref().and_then(|edit| edit.resized).unwrap_or([self.width, self.height])
    }

    /// The schedule and solver.
    ///
    /// # Errors
    /// `config_invalid` if the recipe was changed by hand.
    pub fn settings(&self) -> Result<Settings> {
        Settings::read(None, &self.scheduler)
    }

    /// The plan of a model that ends the walk which this one begins, from the share `from` on.
    ///
    /// # Errors
    /// As [`Self::settle`]; `model_incompatible` if the two have other latents.
    pub fn refined(mut self, request: &Request, (card, engine): (&Card, &Engine), from: f64) -> Result<Self> {
        within("refiner_from", from, 0.01, 0.99)?;
        let settings = card.sampler.value.clone();
        let sizes = sizes::settle(&request.sizes.of_refiner(), card, [self.width, self.height])?;
        let ends = Self {
            sampler: settings.class().to_string(),
            scheduler: settings.to_json(),
            eta: None,
            silent_negative: card.silent_negative && request.negative.is_none(),
            second_prompt: None,
            loras: Vec::new(),
            controls: Vec::new(),
            control_guess: false,
            control_window: None,
            sizes,
            span: Some([from, 1.0]),
            model: ModelId { name: engine.model.clone(), sha256: BTreeMap::new() },
            dtype: engine.dtype.clone(),
            device: engine.device.clone(),
            edit: None,
            ..self.clone()
        };
        ends.walk(card)?;
        self.span = Some([0.0, from]);
        self.refiner = Some(Box::new(ends));
        Ok(self)
    }

    /// Whether the walk goes on from a latent that another model left.
    pub fn continues(&self) -> bool {
        self.span.is_some_and(|[from, _]| from > 0.0)
    }

    /// The walk: all of it, a part of it, or of a given picture its last part.
    ///
    /// # Errors
    /// `config_invalid` if the recipe was changed by hand; `invalid_argument` if no step would be left.
    pub fn walk(&self, card: &Card) -> Result<Walk> {
        let settings = self.settings()?;
        let mut options = Options { eta: self.eta, ..Options::default() };
        if let Some([from, to]) = self.span {
            let all = self.scheduler["num_train_timesteps"].as_f64().unwrap_or(1000.0);
            let time = |share: f64| (all - share * all).round_ties_even();
            let least = (to < 1.0).then(|| time(to));
            return settings.walk(self.steps, &options)?.between(self.continues().then(|| time(from)), least);
        }
        let Some(strength) = self.edit.as_ref().and_then(|edit| edit.strength) else {
            return settings.walk(self.steps, &options);
        };
        if card.hears_guidance && matches!(settings.class(), Class::Lcm | Class::Tcd) {
            // Pipelines of distilled models choose all their steps from the last part of the teacher's.
            options.strength = Some(strength);
            return settings.walk(self.steps, &options);
        }
        // Where pipelines of diffusers would refuse, since the share of few steps is less than one, one is walked.
        let walked = ((self.steps as f64 * strength) as usize).max(usize::from(strength > 0.0));
        if walked == 0 {
            let message = format!("strength {strength} leaves none of {} steps", self.steps);
            return Err(
                Error::argument("strength", message).hint("take more steps, or a strength nearer to 1")
            );
        }
        settings.walk(self.steps, &options)?.without_first(self.steps - walked.min(self.steps))
    }

    /// Whether nothing of a given picture is left where the walk begins.
    pub fn begins_from_noise(&self) -> bool {
        self.edit.as_ref().is_none_or(|edit| match edit.strength {
            Some(strength) => strength >= 1.0 && edit.keeps_a_part(),
            None => true,
        })
    }

    /// How often the network is asked a step, and for what.
    pub fn asking(&self, card: &Card) -> Asking {
        let picture = self.edit.as_ref().and_then(|edit| edit.image_guidance);
        match picture {
            _ if self.guidance <= 1.0 || card.hears_guidance => Asking::Once,
            Some(scale) if scale < 1.0 => Asking::Once,
            Some(_) => Asking::Instructed,
            None => Asking::Guided,
        }
    }

    /// Names of adapters in the prompt, with their strengths.
    ///
    /// # Errors
    /// `invalid_argument` if the recipe was changed by hand.
    pub fn named_adapters(&self) -> Result<Vec<(String, f64)>> {
        Ok(parse(&self.prompt, self.prompt_syntax)?.adapters)
    }

    /// The prompts in the order of the batch.
    pub fn prompts(&self, card: &Card) -> Vec<Prompt> {
        let positive = Prompt {
            text: self.prompt.clone(),
            second: self.second_prompt.clone(),
            clip_skip: self.clip_skip,
            silent: false,
            syntax: self.prompt_syntax,
            long: self.long_prompt,
        };
        // The negative prompt is never skipped, as in diffusers.
        let negative = Prompt {
            text: self.negative_prompt.clone(),
            second: None,
            clip_skip: 0,
            silent: self.silent_negative,
            syntax: self.prompt_syntax,
            long: self.long_prompt,
        };
        match self.asking(card) {
            Asking::Once => vec![positive],
            Asking::Guided => vec![negative, positive],
            Asking::Instructed => vec![positive, negative.clone(), negative],
        }
    }

    /// The shape of one latent, `[1, C, h, w]`.
    pub fn latent(&self, card: &Card) -> [usize; 4] {
        [1, card.latent_channels, self.height / card.factor, self.width / card.factor]
    }
}

/// Width and height that the network draws, and those that are wanted where they are others.
fn size(request: &Request, card: &Card) -> Result<([usize; 2], Option<[usize; 2]>)> {
    let own = match &request.edit {
        Some(edit) if edit.upscales => return enlarged_size(&edit.image.photo, request.size, card.factor),
        // A part that is cut out is drawn at the model's own size.
        Some(edit) => {
            let whole = working_size(&edit.image.photo, edit.extend, card.factor)?;
            if edit.mask_crop.is_some() { card.size.value } else { whole }
        }
        None => card.size.value,
    };
    let [width, height] = request.size.unwrap_or(own);
    check_side("width", width, card.factor)?;
    check_side("height", height, card.factor)?;
    Ok(([width, height], None))
}

fn check_lengths(request: &Request) -> Result<()> {
    let texts = [
        ("prompt", Some(&request.prompt)),
        ("negative", request.negative.as_ref()),
        ("second_prompt", request.second_prompt.as_ref()),
    ];
    for (name, text) in texts {
        if let Some(text) = text.filter(|text| text.len() > PROMPT_BYTES) {
            let message = format!("{name} has {} bytes, at most {} are read", text.len(), PROMPT_BYTES);
            return Err(Error { param: Some(name.into()), ..Error::new(Code::PromptTooLong, message) });
        }
    }
    Ok(())
}

/// How many of the text encoder's last layers are left out.
fn clip_skip(request: &Request, card: &Card) -> Result<usize> {
    let skip = request.clip_skip.unwrap_or(0);
    if skip >= card.text_layers {
        let message =
            format!("clip_skip {skip}: the text encoder has {} layers to leave out", card.text_layers - 1);
        return Err(Error::argument("clip_skip", message));
    }
    Ok(skip)
}

/// Refuses what cannot be read, or not by this model, before any work.
fn check_syntax(request: &Request, card: &Card) -> Result<()> {
    let settings = [
        ("prompt_syntax", request.prompt_syntax != Syntax::Plain),
        ("long_prompt", request.long_prompt != Long::Truncate),
    ];
    if let Some((name, _)) = settings.iter().find(|(_, asked)| *asked && !card.weighs_words) {
        let message = format!("this model ({}) reads prompts as they are", card.variant.value);
        return Err(Error::argument(name, message));
    }
    parse(&request.prompt, request.prompt_syntax)?;
    for (name, text) in [("negative", &request.negative), ("second_prompt", &request.second_prompt)] {
        let Some(text) = text else { continue };
        let named = |error| Error { param: Some(name.into()), ..error };
        if !parse(text, request.prompt_syntax).map_err(named)?.adapters.is_empty() {
            return Err(Error::argument(name, "adapters are named in the prompt alone"));
        }
    }
    Ok(())
}

/// Whether a setting is what it is where nobody asks.
fn is_usual<T: Default + PartialEq>(setting: &T) -> bool {
    *setting == T::default()
}

fn check_side(name: &str, pixels: usize, factor: usize) -> Result<()> {
    if pixels >= factor && pixels <= SIDE && pixels.is_multiple_of(factor) {
        return Ok(());
    }
    let near = (pixels / factor * factor).clamp(factor, SIDE / factor * factor);
    let message = format!("{name} {pixels} is not a multiple of {factor} from {factor} to {SIDE}");
    Err(Error::argument(name, message).hint(format!("try {near}")))
}

pub(super) fn within(name: &str, value: f64, low: f64, high: f64) -> Result<()> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(Error::argument(name, format!("{name} {value} is not from {low} to {high}")))
}
