//! What a caller asks for, before anything is settled.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::memory::Tiling;
use crate::artifact::policy::Policy;
use crate::artifact::{FILE_BYTES, Photo};
use crate::error::Result;
use crate::text::{Long, Syntax};
use crate::weights::{Application, sha256};

/// Bytes of a prompt.
pub(super) const PROMPT_BYTES: usize = 16 << 10;
/// Steps of a walk.
pub(super) const STEPS: usize = 500;
/// Pictures of one request.
pub(super) const COUNT: usize = 16;
/// Files of changes to the weights.
pub(super) const LORAS: usize = 8;
/// Pixels of a side.
pub(super) const SIDE: usize = 8192;

/// A picture that someone wants; everything but the prompt has a default.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// What to draw.
    pub prompt: String,
    /// What not to draw.
    pub negative: Option<String>,
    /// Width and height in pixels.
    pub size: Option<[usize; 2]>,
    /// Steps of the walk.
    pub steps: Option<usize>,
    /// How strongly the prompt pulls; 1 asks the network once a step.
    pub guidance: Option<f64>,
    /// How far the guided estimate is brought back to the deviation of the prompted one, 0 to 1.
    pub guidance_rescale: Option<f64>,
    /// A sampler's name; the model's own without.
    pub sampler: Option<String>,
    /// Share of fresh noise a step, for samplers that take one.
    pub eta: Option<f64>,
    /// Last layers of the text encoder to leave out.
    pub clip_skip: Option<usize>,
    /// Seed of the first picture; 0 without.
    pub seed: Option<u64>,
    /// Pictures, seeded one after the other; 1 without.
    pub count: Option<usize>,
    /// What the second text encoder reads; the prompt without.
    pub second_prompt: Option<String>,
    /// How prompts are written.
    pub prompt_syntax: Syntax,
    /// What becomes of prompts that are longer than an encoder.
    pub long_prompt: Long,
    /// The sizes that the network hears, where it hears any.
    pub sizes: Sizes,
    /// Files of changes to the weights, like LoRA, each with its strength; applied one after the other.
    pub loras: Vec<(PathBuf, f64)>,
    /// How they meet the weights.
    pub lora_application: Application,
    /// Files of taught words (textual inversion), each with its word, or without where the file says it.
    pub embeddings: Vec<(Option<String>, PathBuf)>,
    /// The share of the walk after which a refiner takes over, where there is one; 0.8 without.
    pub refiner_from: Option<f64>,
    /// A safetensors file whose tensor `latents` is the noise to start from.
    pub latents: Option<PathBuf>,
    /// The picture to begin from; a new one without.
    pub edit: Option<Edit>,
    /// Pictures that steer the walk, each through a network of its own; what these add is summed.
    pub controls: Vec<ControlPicture>,
    /// Whether the control pictures are followed even where the prompt says nothing, and not at all without it.
    pub control_guess: bool,
    /// The part of the steps that they steer, as shares; all without.
    pub control_window: Option<[f64; 2]>,
    /// When the codec works in tiles.
    pub tiling: Tiling,
    /// Bytes of memory that the job may take at most; what is free without.
    pub memory_limit: Option<u64>,
}

/// A picture that steers, and the network that reads it.
#[derive(Debug, Clone)]
pub struct ControlPicture {
    /// What the picture shows, one of [`super::CONTROL_KINDS`]; of `canny` the edges are found first.
    pub kind: String,
    /// The picture; it is brought to the size that is drawn.
    pub image: Given,
    /// What the network adds is multiplied by this, 0 to 2.
    pub scale: f64,
    /// The control network: a path, or the name of an installed one.
    pub model: String,
}

/// What SD XL is told of the pictures it was trained on; the size that is drawn where nothing is said.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sizes {
    /// Width and height of the training picture.
    pub original: Option<[usize; 2]>,
    /// Where it was cut: left and top.
    pub cut: Option<[usize; 2]>,
    /// Width and height of the picture wanted.
    pub target: Option<[usize; 2]>,
    /// The first, without the prompt.
    pub negative_original: Option<[usize; 2]>,
    /// The second, without the prompt.
    pub negative_cut: Option<[usize; 2]>,
    /// The third, without the prompt.
    pub negative_target: Option<[usize; 2]>,
    /// How beautiful the picture is, for the refiner; 6 without.
    pub score: Option<f64>,
    /// The same without the prompt; 2.5 without.
    pub negative_score: Option<f64>,
}

impl Sizes {
    /// Those that a model with scores hears of them.
    pub(super) fn of_refiner(&self) -> Self {
        Self { target: None, negative_target: None, ..self.clone() }
    }

    /// Those that a model without scores hears of them.
    pub(super) fn of_base(&self) -> Self {
        Self { score: None, negative_score: None, ..self.clone() }
    }
}

/// The picture that an edit begins from, and what of it may change; everything but the picture has a default.
#[derive(Debug, Clone)]
pub struct Edit {
    /// The picture.
    pub image: Given,
    /// Whether the picture is to become larger, and nothing else.
    pub upscales: bool,
    /// How much noise is put on the picture first, for models that upscale: more lets them invent more.
    pub noise_level: Option<usize>,
    /// Where it may change: white, or transparent where the mask has transparent pixels; everywhere without.
    pub mask: Option<Given>,
    /// How much of the walk is walked, above 0 to 1: at 1 little of the picture is left, or nothing inside a mask.
    pub strength: Option<f64>,
    /// How strongly the picture pulls, for models that follow instructions.
    pub image_guidance: Option<f64>,
    /// Pixels by which the mask grows first.
    pub mask_grow: Option<usize>,
    /// Pixels inside the mask's edge over which new and old blend.
    pub mask_blur: Option<usize>,
    /// Draws only the mask and so many pixels around it, at the size that is asked for or the model's own.
    pub mask_crop: Option<usize>,
    /// Margins that are drawn anew.
    pub extend: Margins,
}

impl Edit {
    /// An edit of a whole picture.
    pub fn of(image: Given) -> Self {
        Self {
            image,
            upscales: false,
            noise_level: None,
            mask: None,
            strength: None,
            image_guidance: None,
            mask_grow: None,
            mask_blur: None,
            mask_crop: None,
            extend: Margins::default(),
        }
    }

    /// A larger picture of a picture.
    pub fn upscale(image: Given) -> Self {
        Self { upscales: true, ..Self::of(image) }
    }
}

/// A picture that somebody gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The picture.
    pub photo: Photo,
    /// The sha256 of its file.
    pub sha256: String,
}

impl Given {
    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// What [`Photo::read`] says.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        Ok(Self { photo: Photo::read(bytes)?, sha256: sha256(bytes) })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// `file_not_found`, and what [`Photo::read`] says, naming the file.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Self::read(&read_picture(path)?).map_err(|error| error.within(format_args!("`{name}`")))
    }
}

/// The bytes of a picture that the owner names.
pub(super) fn read_picture(path: &Path) -> Result<Vec<u8>> {
    let policy = Policy::new();
    policy.reference(path)?;
    policy.read_path("from", path, FILE_BYTES as u64)
}

/// Pixels on each side of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Margins {
    /// On the left.
    #[serde(default)]
    pub left: usize,
    /// Above.
    #[serde(default)]
    pub top: usize,
    /// On the right.
    #[serde(default)]
    pub right: usize,
    /// Below.
    #[serde(default)]
    pub bottom: usize,
}
