//! Pictures from words: what the tools take, and how a request becomes artifacts.

use std::hash::{BuildHasher, Hasher};
use std::path::PathBuf;
use std::time::Instant;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::control::Control;
use super::gate::PictureFormat;
use super::place::Place;
use super::{About, Answer, Desk, Gives, Tool};
use crate::artifact::store::{Artifact, Meta, SourceRef};
use crate::error::{Code, Error, Result};
use crate::event::Watch;
use crate::family::Task;
use crate::studio::{Picture, Request};
use crate::weights::sha256;

/// Pictures of one call.
const COUNT: usize = 16;

/// What every drawing tool takes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Words {
    /// What not to draw.
    pub(super) negative_prompt: Option<String>,
    /// Columns of pixels.
    pub(super) width: Option<u32>,
    /// Rows of pixels.
    pub(super) height: Option<u32>,
    /// Steps from noise to picture: more take longer.
    pub(super) steps: Option<u32>,
    /// How strongly the prompt pulls; 1 does without the negative prompt.
    pub(super) guidance_scale: Option<f64>,
    /// The same seed gives the same picture; one is drawn, and told, without.
    pub(super) seed: Option<u64>,
    /// LoRA adapters, each `{source, scale, weight_name, subfolder, adapter_name, target_role}`.
    pub(super) lora_adapters: Option<Vec<Map<String, Value>>>,
    /// Width and height in one: 512x768. In place of both.
    pub(super) size: Option<String>,
    /// The model, by name.
    pub(super) model: Option<String>,
    /// The sampler: `euler`, `euler_a`, `dpmpp_2m_karras`, `unipc`, `ddim`, `lcm` …; the model's own without.
    pub(super) sampler: Option<String>,
    /// Share of fresh noise a step, for samplers that take one.
    pub(super) eta: Option<f64>,
    /// Brings the guided estimate back to its own deviation: 0 not at all, 1 wholly.
    pub(super) guidance_rescale: Option<f64>,
    /// Last layers of the text encoder to leave out.
    pub(super) clip_skip: Option<u32>,
    /// A name for people, kept with the artifact.
    pub(super) filename: Option<String>,
    /// Also writes the picture as a file: a path in the workspace that is not taken.
    pub(super) output_path: Option<String>,
    /// The run that asks, kept with the artifact.
    pub(super) run_id: Option<String>,
    /// Whether a small copy to look at comes with the answer, where the caller can see; it does without.
    pub(super) preview: Option<bool>,
    #[serde(flatten)]
    pub(super) control: Control,
}

/// How many pictures.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Batch {
    /// How many pictures; the one numbered i from 0 has seed + i.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 16))]
    count: u32,
    /// A seed a picture, in place of `seed`; as many as `count`.
    #[serde(default)]
    seeds: Option<Vec<u64>>,
}

fn one() -> u32 {
    1
}

/// Draws one picture.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct TextToImage {
    /// What to draw.
    pub(super) prompt: String,
    #[serde(flatten)]
    pub(super) words: Words,
}

impl Tool for TextToImage {
    const ABOUT: About = About {
        name: "vision_text_to_image",
        description: "Draws a picture from words with a local model, stores it, and returns a small ref to it.",
        when_to_use: "When a new picture is wanted and nothing is given but words.",
        tags: &["vision", "generate", "image"],
        task: Some(Task::TextToImage),
        gives: Gives::Ref,
    };

    fn run(self, desk: &Desk, watch: &mut Watch<'_>) -> Result<Answer> {
        let seed = self.words.seed.unwrap_or_else(any_seed);
        let mut answer = draw(desk, &self.words.order(desk, self.prompt)?, &[seed], watch)?;
        answer.value = answer.refs().pop().unwrap_or_default();
        Ok(answer)
    }
}

/// Draws several pictures.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct TextToImageBatch {
    /// What to draw.
    pub(super) prompt: String,
    #[serde(flatten)]
    pub(super) words: Words,
    #[serde(flatten)]
    pub(super) batch: Batch,
}

impl Tool for TextToImageBatch {
    const ABOUT: About = About {
        name: "vision_text_to_image_batch",
        description: "Draws several pictures of the same words, each with its own seed, and returns their refs in order.",
        when_to_use: "When someone wants variants to choose from.",
        tags: &["vision", "generate", "image", "batch"],
        task: Some(Task::TextToImage),
        gives: Gives::Refs,
    };

    fn run(self, desk: &Desk, watch: &mut Watch<'_>) -> Result<Answer> {
        let seeds = self.batch.seeds(self.words.seed)?;
        draw(desk, &self.words.order(desk, self.prompt)?, &seeds, watch)
    }
}

impl Batch {
    /// A seed a picture.
    ///
    /// # Errors
    /// `invalid_argument` if there are none, too many, or not as many as pictures.
    pub(super) fn seeds(&self, seed: Option<u64>) -> Result<Vec<u64>> {
        let count = self.count as usize;
        if !(1..=COUNT).contains(&count) {
            return Err(Error::argument("count", format!("count {count} is not from 1 to {COUNT}")));
        }
        let Some(seeds) = &self.seeds else {
            let first = seed.unwrap_or_else(any_seed);
            return Ok((0..count as u64).map(|number| first.wrapping_add(number)).collect());
        };
        if seeds.len() != count || seeds.is_empty() {
            let message = format!("{} seeds for {count} pictures; there must be one a picture", seeds.len());
            return Err(Error::argument("seeds", message).hint(format!("say count={}", seeds.len().max(1))));
        }
        Ok(seeds.clone())
    }
}

/// A seed that nobody chose: below 10⁹, so that it can be read out.
pub(super) fn any_seed() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish() % 1_000_000_000
}

/// `512x768` as width and height.
///
/// # Errors
/// `invalid_argument`.
pub(super) fn read_size(text: &str) -> Result<[usize; 2]> {
    let sides = text.split_once(['x', 'X']).and_then(|(width, height)| {
        let side = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        Some([side(width)?, side(height)?])
    });
    sides.ok_or_else(|| {
        let shown: String = text.chars().take(40).flat_map(char::escape_default).collect();
        Error::argument("size", format!("`{shown}` is not a size; write WIDTHxHEIGHT, such as 512x768"))
    })
}

/// A request on its way to the studio.
pub(super) struct Order {
    pub(super) request: Request,
    pub(super) model: Option<String>,
    pub(super) task: Task,
    /// What the picture is made from, as far as that is stored.
    pub(super) sources: Vec<SourceRef>,
    pub(super) filename: Option<String>,
    pub(super) run_id: Option<String>,
    pub(super) target: Target,
}

/// Where pictures go besides the store.
pub(super) enum Target {
    /// Nowhere.
    Store,
    /// A file, in a place for generated pictures if none is named.
    File { path: Option<String>, format: PictureFormat },
}

impl Order {
    /// Words, and the model's defaults for all else.
    pub(super) fn new(prompt: String) -> Self {
        Self {
            request: Request { prompt, ..Request::default() },
            model: None,
            task: Task::TextToImage,
            sources: Vec::new(),
            filename: None,
            run_id: None,
            target: Target::Store,
        }
    }
}

impl Words {
    /// What is asked for, in the studio's words.
    ///
    /// # Errors
    /// `invalid_argument`.
    pub(super) fn order(self, desk: &Desk, prompt: String) -> Result<Order> {
        let adapters = self.lora_adapters.unwrap_or_default();
        let loras = adapters.iter().enumerate().map(|(index, adapter)| lora(desk, index, adapter));
        let loras = loras.collect::<Result<Vec<_>>>()?;
        if self.size.is_some() && (self.width.is_some() || self.height.is_some()) {
            return Err(Error::argument("size", "size is given, and width or height too; give one of them"));
        }
        let size = match (self.size.as_deref(), self.width, self.height) {
            (Some(size), ..) => Some(read_size(size)?),
            (None, Some(width), Some(height)) => Some([width as usize, height as usize]),
            (None, None, None) => None,
            (None, one, _) => {
                let missing = if one.is_some() { "height" } else { "width" };
                return Err(Error::argument(
                    missing,
                    format!("{missing} is missing: give both sides or none"),
                ));
            }
        };
        let target = match self.output_path {
            Some(path) => {
                let format = format_of(&path)?;
                Target::File { path: Some(path), format }
            }
            None => Target::Store,
        };
        let (control, source) = self.control.read(desk)?.unzip();
        let request = Request {
            prompt,
            negative: self.negative_prompt,
            size,
            steps: self.steps.map(|steps| steps as usize),
            guidance: self.guidance_scale,
            guidance_rescale: self.guidance_rescale,
            sampler: self.sampler,
            eta: self.eta,
            clip_skip: self.clip_skip.map(|layers| layers as usize),
            loras,
            controls: control.into_iter().collect(),
            ..Request::default()
        };
        Ok(Order {
            request,
            model: self.model,
            task: Task::TextToImage,
            sources: source.flatten().into_iter().collect(),
            filename: self.filename,
            run_id: self.run_id,
            target,
        })
    }
}

/// An adapter that is installed, and its strength.
fn lora(desk: &Desk, index: usize, adapter: &Map<String, Value>) -> Result<(PathBuf, f64)> {
    let at = |key: &str| format!("lora_adapters[{index}].{key}");
    let source = adapter.get("source").and_then(Value::as_str).filter(|source| !source.trim().is_empty());
    let Some(source) = source else {
        let names: Vec<String> = desk.studio().adapters().into_iter().map(|(name, _)| name).collect();
        return Err(Error::argument(&at("source"), "an adapter needs a `source`, its name").hint(format!(
            "adapters here: {}",
            if names.is_empty() { "none".into() } else { names.join(", ") }
        )));
    };
    let known = ["source", "scale", "adapter_name"];
    let told = |(key, value): &(&String, &Value)| !value.is_null() && !known.contains(&key.as_str());
    if let Some((key, _)) = adapter.iter().find(told) {
        let message = format!("`{}` of an adapter is not heeded here", key.escape_default());
        return Err(Error::argument(&at(key), message).hint("take source and scale"));
    }
    let scale = match adapter.get("scale") {
        None | Some(Value::Null) => 1.0,
        Some(scale) => scale
            .as_f64()
            .ok_or_else(|| Error::argument(&at("scale"), "the scale of an adapter is a number"))?,
    };
    let path = desk.adapter(source).map_err(|error| Error { param: Some(at("source")), ..error })?;
    Ok((path, scale))
}

/// The format that a path's ending asks for.
fn format_of(path: &str) -> Result<PictureFormat> {
    let ending =
        path.rsplit(['/', '\\']).next().and_then(|name| name.rsplit_once('.')).map(|(_, ending)| ending);
    match ending.map(str::to_ascii_lowercase).as_deref() {
        Some("png") | None => Ok(PictureFormat::Png),
        Some("webp") => Ok(PictureFormat::Webp),
        Some("jpg" | "jpeg") => Ok(PictureFormat::Jpeg),
        Some(_) => Err(Error::argument("output_path", "the path ends in none of .png, .webp, .jpg")),
    }
}

/// Draws one picture a seed and keeps each as it is finished.
///
/// If one of several fails, those that are finished stay, and the array says what became of the others.
///
/// # Errors
/// What the request, the model, the store and the path say, if nothing was finished.
pub(super) fn draw(desk: &Desk, order: &Order, seeds: &[u64], watch: &mut Watch<'_>) -> Result<Answer> {
    let place = Place::read(desk, order, seeds.len())?;
    let mut answer = Answer { run_id: order.run_id.clone(), ..Answer::default() };
    let began = Instant::now();
    let outcome = desk.with_model(order.model.as_deref(), |studio, model| {
        for run in seeds.chunk_by(|one, next| one.wrapping_add(1) == *next) {
            let request =
                Request { seed: run.first().copied(), count: Some(run.len()), ..order.request.clone() };
            let mut last = Instant::now();
            let mut finished = |_: usize, picture: &Picture| {
                let took = last.elapsed().as_secs_f64();
                last = Instant::now();
                let kept = keep(desk, order, picture, took)?;
                if let Some(place) = &place {
                    answer.paths.push(place.write(desk, answer.paths.len(), picture)?);
                }
                answer.artifacts.push(kept);
                Ok(())
            };
            studio.generate(model, &request, watch, &mut finished)?;
        }
        Ok(())
    });
    let mut refs = answer.refs();
    match outcome {
        Ok(()) => {}
        Err(error) if refs.is_empty() || error.code == Code::Cancelled => {
            return Err(error);
        }
        Err(error) => {
            answer.notes.push(format!("{} of {} pictures are finished: {error}", refs.len(), seeds.len()));
            refs.resize_with(seeds.len(), || error.to_json());
        }
    }
    answer.value = Value::Array(refs);
    answer.said = said(&answer.artifacts, &answer.paths, began.elapsed().as_secs_f64());
    Ok(answer)
}

/// One line for a reader.
fn said(artifacts: &[Artifact], paths: &[String], seconds: f64) -> String {
    let seeds: Vec<String> = artifacts
        .iter()
        .filter_map(|artifact| artifact.metadata.get("seed").map(ToString::to_string))
        .collect();
    let first = artifacts.first();
    let fact = |key: &str| first.and_then(|artifact| artifact.metadata.get(key).cloned()).unwrap_or_default();
    let what =
        if artifacts.len() == 1 { "a picture".to_owned() } else { format!("{} pictures", artifacts.len()) };
    let model = fact("model");
    let mut line = format!(
        "{what} of {}x{} by {}, seed {}, in {seconds:.1} s",
        fact("width"),
        fact("height"),
        model.as_str().unwrap_or_default(),
        seeds.join(", "),
    );
    if !paths.is_empty() {
        line = format!("{line}; saved as {}", paths.join(", "));
    }
    line
}

/// Stores a picture with everything that is known of it.
fn keep(desk: &Desk, order: &Order, picture: &Picture, seconds: f64) -> Result<Artifact> {
    let private = desk.rules().private;
    let meta = picture.meta(order.filename.as_deref(), true)?;
    let mut recipe = meta.recipe.unwrap_or_default();
    if private {
        for key in ["prompt", "negative_prompt", "second_prompt"] {
            if let Some(text) = recipe[key].as_str() {
                recipe[key] = json!({ "sha256": sha256(text.as_bytes()) });
            }
        }
    }
    let mut metadata = meta.metadata;
    let more = json!({
        "source": "latentia",
        "task": order.task.name(),
        "prompt_sha256": sha256(picture.plan.prompt.as_bytes()),
        "seconds": (seconds * 1e3).round() / 1e3,
    });
    metadata.extend(more.as_object().cloned().unwrap_or_default());
    let meta = Meta {
        metadata,
        recipe: Some(recipe),
        run_id: order.run_id.clone(),
        source_refs: order.sources.clone(),
        ..meta
    };
    desk.store().put(&picture.png(!private)?, &meta)
}
