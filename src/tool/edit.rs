//! Pictures from pictures.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::drawing::{Batch, Order, Words, any_seed, draw};
use super::input::{Given, Image};
use super::{About, Answer, Desk, Gives, Tool};
use crate::error::{Code, Error, Result};
use crate::event::Watch;
use crate::family::Task;
use crate::studio::Edit;

/// What every editing tool takes besides words.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Source {
    /// The picture to change: a ref to an artifact.
    image_artifact: Option<Map<String, Value>>,
    /// The picture to change, in base64 or as a data URL, in place of a ref.
    image_b64: Option<String>,
    /// The picture to change: a path in the workspace, in place of a ref.
    image_path: Option<String>,
    /// Where to change it: a ref to a picture of the same size, white where it is drawn anew.
    mask_artifact: Option<Map<String, Value>>,
    /// The mask in base64, in place of a ref.
    mask_b64: Option<String>,
    /// The mask: a path in the workspace, in place of a ref.
    mask_path: Option<String>,
    /// More pictures to look at, each a ref, or `{b64}`.
    reference_images: Option<Vec<Map<String, Value>>>,
    /// How much is drawn anew: little near 0, everything at 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    strength: Option<f64>,
    /// How strongly the picture pulls, for models that follow instructions.
    image_guidance_scale: Option<f64>,
    /// Pixels by which the mask grows first.
    mask_grow: Option<u32>,
    /// Pixels inside the mask's edge over which new and old blend.
    mask_blur: Option<u32>,
    /// Draws only the mask and so many pixels around it, at the model's own size.
    mask_crop: Option<u32>,
    /// Margins to draw around the picture, in pixels: {left, top, right, bottom}.
    extend: Option<Map<String, Value>>,
}

impl Source {
    /// What is asked for, in the studio's words.
    fn order(&self, desk: &Desk, words: Words, prompt: String) -> Result<Order> {
        let mut order = words.order(desk, prompt)?;
        let (image, mask) = self.read(desk)?;
        let pixels = |number: Option<u32>| number.map(|number| number as usize);
        let extend = self.extend.clone().map(|margins| serde_json::from_value(Value::Object(margins)));
        let extend = extend.transpose().map_err(|error| {
            Error::argument("extend", "margins are {left, top, right, bottom} in pixels").because(error)
        })?;
        order.request.edit = Some(Edit {
            mask: mask.as_ref().map(|mask| mask.given("mask_b64")).transpose()?,
            strength: self.strength,
            image_guidance: self.image_guidance_scale,
            mask_grow: pixels(self.mask_grow),
            mask_blur: pixels(self.mask_blur),
            mask_crop: pixels(self.mask_crop),
            extend: extend.unwrap_or_default(),
            ..Edit::of(image.given("image_b64")?)
        });
        order.task = Task::ImageToImage;
        let edited = image.source("image").into_iter().chain(mask.and_then(|mask| mask.source("mask")));
        order.sources.splice(0..0, edited);
        Ok(order)
    }

    /// The picture, and the mask of its size.
    fn read(&self, desk: &Desk) -> Result<(Image, Option<Image>)> {
        if self.reference_images.as_ref().is_some_and(|images| !images.is_empty()) {
            let message = "no model here looks at reference images";
            return Err(
                Error::argument("reference_images", message).hint("give one picture as image_artifact")
            );
        }
        let image = Given {
            artifact: self.image_artifact.as_ref(),
            b64: self.image_b64.as_deref(),
            path: self.image_path.as_deref(),
        };
        let mask = Given {
            artifact: self.mask_artifact.as_ref(),
            b64: self.mask_b64.as_deref(),
            path: self.mask_path.as_deref(),
        };
        let image = image.needed(desk, "image")?;
        let mask = mask.image(desk, "mask")?;
        if let Some(mask) = mask.as_ref().filter(|mask| mask.size != image.size) {
            let message = format!(
                "the mask has {}x{} pixels, and the picture {}x{}; they must be the same",
                mask.size.0, mask.size.1, image.size.0, image.size.1
            );
            return Err(Error::argument("mask_b64", message));
        }
        Ok((image, mask))
    }
}

/// Changes a picture.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ImageToImage {
    /// What the picture should become.
    prompt: String,
    #[serde(flatten)]
    source: Source,
    #[serde(flatten)]
    words: Words,
}

impl Tool for ImageToImage {
    const ABOUT: About = About {
        name: "vision_image_to_image",
        description: "Changes a picture as words say, with a mask only where it allows, and returns a ref to the new one.",
        when_to_use: "When a picture is there and should be changed, restyled or repaired.",
        tags: &["vision", "edit", "image"],
        task: Some(Task::ImageToImage),
        gives: Gives::Ref,
    };

    fn run(self, desk: &Desk, watch: &mut Watch<'_>) -> Result<Answer> {
        let seed = self.words.seed.unwrap_or_else(any_seed);
        let order = self.source.order(desk, self.words, self.prompt)?;
        let mut answer = draw(desk, &order, &[seed], watch)?;
        answer.value = answer.refs().pop().unwrap_or_default();
        Ok(answer)
    }
}

/// Changes a picture in several ways.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ImageToImageBatch {
    /// What the picture should become.
    prompt: String,
    #[serde(flatten)]
    source: Source,
    #[serde(flatten)]
    words: Words,
    #[serde(flatten)]
    batch: Batch,
}

impl Tool for ImageToImageBatch {
    const ABOUT: About = About {
        name: "vision_image_to_image_batch",
        description: "Changes a picture several times, each time with its own seed, and returns the refs in order.",
        when_to_use: "When someone wants variants of a change to choose from.",
        tags: &["vision", "edit", "image", "batch"],
        task: Some(Task::ImageToImage),
        gives: Gives::Refs,
    };

    fn run(self, desk: &Desk, watch: &mut Watch<'_>) -> Result<Answer> {
        let seeds = self.batch.seeds(self.words.seed)?;
        draw(desk, &self.source.order(desk, self.words, self.prompt)?, &seeds, watch)
    }
}

/// Draws views of one thing from several sides.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "no model here can do it yet; the fields are its schema")]
pub(super) struct MultiViewImage {
    /// What the thing is.
    prompt: String,
    /// A picture of it: a ref to an artifact.
    #[serde(default)]
    reference_image_artifact: Option<Map<String, Value>>,
    /// A picture of it in base64, in place of a ref.
    #[serde(default)]
    reference_image_b64: Option<String>,
    /// The sides, such as `front`, `three_quarter`, `side`, `back`, which are taken without.
    #[serde(default)]
    angles: Option<Vec<String>>,
    /// What not to draw.
    #[serde(default)]
    negative_prompt: Option<String>,
    /// Steps from noise to picture.
    #[serde(default)]
    steps: Option<u32>,
    /// How strongly the prompt pulls.
    #[serde(default)]
    guidance_scale: Option<f64>,
    /// The same seed gives the same pictures.
    #[serde(default)]
    seed: Option<u64>,
    /// The model, by name.
    #[serde(default)]
    model: Option<String>,
}

impl Tool for MultiViewImage {
    const ABOUT: About = About {
        name: "vision_multi_view_image",
        description: "Draws one thing from several sides and returns a ref a view, in the order of the angles.",
        when_to_use: "When views of the same thing are wanted, for a turntable or a model sheet.",
        tags: &["vision", "generate", "image", "multi_view"],
        task: Some(Task::MultiViewImage),
        gives: Gives::Refs,
    };

    fn run(self, _: &Desk, _: &mut Watch<'_>) -> Result<Answer> {
        Err(not_here(Self::ABOUT.task))
    }
}

/// A model says that it can do what no code here does: the registry refuses such models before a tool runs.
pub(super) fn not_here(task: Option<Task>) -> Error {
    let task = task.map(Task::name).unwrap_or_default();
    Error::new(Code::UnsupportedTask, format!("nothing here does {task} yet"))
}
