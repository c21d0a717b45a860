//! What a family promises: to recognise its checkpoints, to say the facts about them, and to open their parts.

use candle_core::{DType, Device, Tensor};
use serde::Serialize;

use crate::codec::Codec;
use crate::diffusion::{Options, Predict, Settings};
use crate::error::{Code, Error, Result};
use crate::event::Watch;

use super::Parts;
use super::control::{Control, Hint, refused};
use crate::text::{Long, Syntax};

/// A value and how we know it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fact<T> {
    /// The value.
    pub value: T,
    /// How we know it.
    pub because: Evidence,
}

impl<T> Fact<T> {
    /// A value with its evidence.
    pub fn new(value: T, because: Evidence) -> Self {
        Self { value, because }
    }
}

/// How we know a fact.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// The name, shape or values of a tensor.
    Tensor(String),
    /// A key of a configuration file.
    Config(String),
    /// The file of defaults that came with the model.
    Manifest(String),
    /// A note in the header of a file of weights.
    Metadata(String),
    /// A word in a file's name.
    Name(String),
    /// What the user said.
    User(String),
    /// Nothing but custom.
    Assumed(String),
}

/// What a model can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// A picture from words.
    TextToImage,
    /// A picture from a picture, where a mask allows.
    ImageToImage,
    /// A larger picture of a picture.
    ImageUpscale,
    /// Views of a thing.
    MultiViewImage,
    /// A clip from words.
    TextToVideo,
    /// A clip from a picture.
    ImageToVideo,
}

impl Task {
    /// Every task.
    pub const ALL: &[Self] = &[
        Self::TextToImage,
        Self::ImageToImage,
        Self::ImageUpscale,
        Self::MultiViewImage,
        Self::TextToVideo,
        Self::ImageToVideo,
    ];

    /// Its name in requests, recipes and registries.
    pub fn name(self) -> &'static str {
        match self {
            Self::TextToImage => "text_to_image",
            Self::ImageToImage => "image_to_image",
            Self::ImageUpscale => "image_upscale",
            Self::MultiViewImage => "multi_view_image",
            Self::TextToVideo => "text_to_video",
            Self::ImageToVideo => "image_to_video",
        }
    }
}

/// What a network sees beside the noisy latent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Beside {
    /// Nothing: a given picture is where the walk begins, and a mask blends after every step.
    #[default]
    Nothing,
    /// Where it may draw, and the latent of the rest: inpainting models.
    Masked,
    /// The latent of the whole picture, unscaled: models that follow instructions.
    Picture,
    /// The pixels of a picture as small as the latent, with noise on them: upscaling models.
    Pixels,
}

/// The noise on the picture that an upscaling model sees, which tells it how much of that to believe.
#[derive(Debug, Clone, Serialize)]
pub struct Grain {
    /// Puts it there; levels are its training steps.
    pub schedule: Settings,
    /// The level when none is asked for.
    pub usual: usize,
    /// The highest level.
    pub most: usize,
}

impl Grain {
    /// A picture with the noise of a level.
    ///
    /// # Shapes
    /// `clean` and unit `noise` alike → the same.
    ///
    /// # Errors
    /// `config_invalid` if the schedule has no such training step.
    pub fn noised(&self, clean: &Tensor, noise: &Tensor, level: usize) -> Result<Tensor> {
        let options = Options { timesteps: Some(vec![level as f64]), ..Options::default() };
        self.schedule.walk(1, &options)?.noised(clean, noise, 0)
    }
}

/// Which numbers a network hears of the picture's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sizes {
    /// None.
    #[default]
    None,
    /// Of the training picture, where it was cut, and of the picture wanted.
    Target,
    /// Of the training picture, where it was cut, and how beautiful it is.
    Score,
}

/// Everything that is known of a checkpoint before it is loaded.
#[derive(Debug, Clone, Serialize)]
pub struct Card {
    /// The family's name.
    pub family: &'static str,
    /// Which of the family it is, in the field's words.
    pub variant: Fact<String>,
    /// What it can be asked for.
    pub tasks: Vec<Task>,
    /// What the network sees beside the noisy latent.
    pub beside: Beside,
    /// Channels of a latent.
    pub latent_channels: usize,
    /// Pixels to a latent's side; sizes must be multiples of it.
    pub factor: usize,
    /// Width and height when none is asked for.
    pub size: Fact<[usize; 2]>,
    /// Steps when none are asked for.
    pub steps: Fact<usize>,
    /// Guidance when none is asked for.
    pub guidance: Fact<f64>,
    /// Whether the network hears the guidance itself instead of being asked twice.
    pub hears_guidance: bool,
    /// The model's own schedule and solver.
    pub sampler: Fact<Settings>,
    /// Layers of the text encoder that `clip_skip` may skip.
    pub text_layers: usize,
    /// How many text encoders read the prompt.
    pub text_encoders: usize,
    /// Whether noughts take the place of a negative prompt that is not given.
    pub silent_negative: bool,
    /// Which numbers it hears of the picture's size.
    pub sizes: Sizes,
    /// How far it goes from a given picture when nothing is said: of all of it, and inside a mask.
    pub strength: [f64; 2],
    /// The noise on the picture that it sees, where it sees pixels.
    pub grain: Option<Grain>,
    /// Whether it reads prompts in chunks and weighs their words.
    pub weighs_words: bool,
}

impl Card {
    /// Refuses what the model cannot be asked for.
    ///
    /// # Errors
    /// `unsupported_task`, saying what it can.
    pub fn must_do(&self, task: Task) -> Result<()> {
        if self.tasks.contains(&task) {
            return Ok(());
        }
        let can: Vec<_> = self.tasks.iter().map(|task| task.name()).collect();
        let message = format!("this model ({}) cannot do {}", self.variant.value, task.name());
        Err(Error { param: Some("task".into()), ..Error::new(Code::UnsupportedTask, message) }
            .hint(format!("it can do {}", can.join(", "))))
    }
}

/// Where a part is opened.
#[derive(Debug, Clone)]
pub struct Place {
    /// On which device.
    pub device: Device,
    /// How weights are kept in memory; computing is in f32 on the CPU.
    pub dtype: DType,
}

/// What one phase takes in memory at its peak, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Need {
    /// Weights, as they are kept.
    pub weights: u64,
    /// What is computed on the way.
    pub activations: u64,
}

impl Need {
    /// Both.
    pub fn total(self) -> u64 {
        self.weights.saturating_add(self.activations)
    }
}

/// What the three phases of a picture take, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Reading the prompt.
    pub encode: Need,
    /// The walk.
    pub denoise: Need,
    /// From latent to pixels; from pixels to a latent takes no more.
    pub decode: Need,
}

/// One prompt as a conditioner reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The words.
    pub text: String,
    /// What the second encoder reads, where it reads something else.
    pub second: Option<String>,
    /// Last layers of the encoder to leave out.
    pub clip_skip: usize,
    /// Noughts take the place of the words.
    pub silent: bool,
    /// How it is written.
    pub syntax: Syntax,
    /// What becomes of it if it is longer than an encoder.
    pub long: Long,
}

/// What a denoiser is told, for one row of a batch.
#[derive(Debug, Clone)]
pub struct Conditioning {
    /// The prompt's tokens, `[1, L, D]`.
    pub context: Tensor,
    /// The prompt as one vector, `[1, D]`.
    pub pooled: Option<Tensor>,
    /// The guidance, where the network hears it.
    pub guidance: Option<f64>,
    /// Sizes and scores that the network hears, where it hears any.
    pub sizes: Vec<f64>,
    /// Further channels that the network sees beside the latent, `[1, C, h, w]`.
    pub beside: Option<Tensor>,
    /// How much noise is on the picture in those channels, where the network hears that.
    pub noise_level: Option<usize>,
    /// What steers this row, one a control network; none where no network does.
    pub hints: Vec<Hint>,
}

impl Conditioning {
    /// Tokens and nothing else.
    pub fn of(context: Tensor) -> Self {
        Self {
            context,
            pooled: None,
            guidance: None,
            sizes: Vec::new(),
            beside: None,
            noise_level: None,
            hints: Vec::new(),
        }
    }
}

/// Words to conditioning.
pub trait Conditioner: Send + Sync {
    /// One conditioning a prompt; a prompt that had to be cut is noted.
    ///
    /// # Errors
    /// `tokenizer_invalid`, `cancelled`.
    fn condition(&self, prompts: &[Prompt], watch: &mut Watch<'_>) -> Result<Vec<Conditioning>>;
}

/// A network that takes noise away.
pub trait Denoiser: Send + Sync {
    /// Tells it what to draw, one conditioning a row, and computes what no step changes.
    ///
    /// # Errors
    /// What the tensors say.
    fn bind<'a>(&'a self, told: &[Conditioning]) -> Result<Box<dyn Predict + 'a>>;
}

/// A kind of model.
pub trait Family: Sync {
    /// Its name in the field.
    fn name(&self) -> &'static str;

    /// Whether these files are one of this family, judged by configs, names and shapes.
    ///
    /// # Errors
    /// `config_invalid`, `model_incompatible` or `model_unsupported` if it is one, but broken or not ours yet.
    fn detect(&self, parts: &Parts) -> Result<Option<Box<dyn Variant>>>;
}

/// A recognised checkpoint.
pub trait Variant: Send + Sync {
    /// All facts.
    fn card(&self) -> &Card;

    /// What each phase takes in memory on the processor for a batch of `rows` latents of this height and width, told from
    /// headers and sizes. Weights that have no file count nothing.
    ///
    /// # Errors
    /// `model_not_downloaded` if a part is not there.
    fn needs(&self, parts: &Parts, at: &Place, rows: usize, latent: [usize; 2]) -> Result<Needs>;

    /// Opens what reads the prompt.
    ///
    /// # Errors
    /// `model_incompatible` naming file and tensor.
    fn conditioner(&self, parts: &Parts, at: &Place) -> Result<Box<dyn Conditioner>>;

    /// Checks that a control network can steer this model, before anything is loaded.
    ///
    /// # Errors
    /// `model_unsupported` where no such network can; `model_incompatible` for one of another model.
    fn check_control(&self, _control: &Control) -> Result<()> {
        Err(refused(&self.card().variant.value))
    }

    /// Opens the denoiser, with its control networks where the parts have some.
    ///
    /// # Errors
    /// `model_incompatible` naming file and tensor.
    fn denoiser(&self, parts: &Parts, at: &Place) -> Result<Box<dyn Denoiser>>;

    /// Opens the codec.
    ///
    /// # Errors
    /// `model_incompatible` naming file and tensor.
    fn codec(&self, parts: &Parts, at: &Place) -> Result<Box<dyn Codec>>;
}
