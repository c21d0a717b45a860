//! Clips. No network that makes them runs here yet: the tools have their schemas, and say what the models here can do.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::drawing::Batch;
use super::edit::not_here;
use super::{About, Answer, Desk, Gives, Tool};
use crate::error::Result;
use crate::event::Watch;
use crate::family::Task;

/// What every tool for clips takes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Clip {
    /// What should not be seen.
    negative_prompt: Option<String>,
    /// Columns of pixels.
    width: Option<u32>,
    /// Rows of pixels.
    height: Option<u32>,
    /// Frames a second.
    fps: Option<u32>,
    /// Frames in all.
    num_frames: Option<u32>,
    /// Steps from noise to clip.
    steps: Option<u32>,
    /// How strongly the prompt pulls.
    guidance_scale: Option<f64>,
    /// The same for the second of two experts.
    guidance_2: Option<f64>,
    /// How far steps lean towards noise.
    flow_shift: Option<f64>,
    /// The same seed gives the same clip.
    seed: Option<u64>,
    /// LoRA adapters, each `{source, scale, weight_name, subfolder, adapter_name, target_role}`.
    lora_adapters: Option<Vec<Map<String, Value>>>,
    /// The model, by name.
    model: Option<String>,
}

/// The frame that a clip begins with.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Frame {
    /// The first frame: a ref to an artifact.
    image_artifact: Option<Map<String, Value>>,
    /// The first frame in base64, in place of a ref.
    image_b64: Option<String>,
    /// What should happen.
    prompt: Option<String>,
}

/// Makes a clip from words.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "no model here can do it yet; the fields are its schema")]
pub(super) struct TextToVideo {
    /// What should happen.
    prompt: String,
    #[serde(flatten)]
    clip: Clip,
}

impl Tool for TextToVideo {
    const ABOUT: About = About {
        name: "vision_text_to_video",
        description: "Makes a clip from words and returns a ref to it.",
        when_to_use: "When something should move and nothing is given but words.",
        tags: &["vision", "generate", "video"],
        task: Some(Task::TextToVideo),
        gives: Gives::Ref,
    };

    fn run(self, _: &Desk, _: &mut Watch<'_>) -> Result<Answer> {
        Err(not_here(Self::ABOUT.task))
    }
}

/// Makes several clips from words.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "no model here can do it yet; the fields are its schema")]
pub(super) struct TextToVideoBatch {
    /// What should happen.
    prompt: String,
    #[serde(flatten)]
    clip: Clip,
    #[serde(flatten)]
    batch: Batch,
}

impl Tool for TextToVideoBatch {
    const ABOUT: About = About {
        name: "vision_text_to_video_batch",
        description: "Makes several clips of the same words, each with its own seed, and returns their refs in order.",
        when_to_use: "When someone wants clips to choose from.",
        tags: &["vision", "generate", "video", "batch"],
        task: Some(Task::TextToVideo),
        gives: Gives::Refs,
    };

    fn run(self, _: &Desk, _: &mut Watch<'_>) -> Result<Answer> {
        Err(not_here(Self::ABOUT.task))
    }
}

/// Makes a clip that begins with a picture.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "no model here can do it yet; the fields are its schema")]
pub(super) struct ImageToVideo {
    #[serde(flatten)]
    frame: Frame,
    #[serde(flatten)]
    clip: Clip,
}

impl Tool for ImageToVideo {
    const ABOUT: About = About {
        name: "vision_image_to_video",
        description: "Makes a clip that begins with a picture and returns a ref to it.",
        when_to_use: "When a picture is there and should move.",
        tags: &["vision", "generate", "video"],
        task: Some(Task::ImageToVideo),
        gives: Gives::Ref,
    };

    fn run(self, _: &Desk, _: &mut Watch<'_>) -> Result<Answer> {
        Err(not_here(Self::ABOUT.task))
    }
}

/// Makes several clips that begin with a picture.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "no model here can do it yet; the fields are its schema")]
pub(super) struct ImageToVideoBatch {
    #[serde(flatten)]
    frame: Frame,
    #[serde(flatten)]
    clip: Clip,
    #[serde(flatten)]
    batch: Batch,
}

impl Tool for ImageToVideoBatch {
    const ABOUT: About = About {
        name: "vision_image_to_video_batch",
        description: "Makes several clips that begin with the same picture and returns their refs in order.",
        when_to_use: "When someone wants ways for a picture to move, to choose from.",
        tags: &["vision", "generate", "video", "batch"],
        task: Some(Task::ImageToVideo),
        gives: Gives::Refs,
    };

    fn run(self, _: &Desk, _: &mut Watch<'_>) -> Result<Answer> {
        Err(not_here(Self::ABOUT.task))
    }
}
