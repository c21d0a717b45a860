//! What a caller asks for, before anything is settled.

use std::path::PathBuf;

/// Bytes of a prompt.
pub(super) const PROMPT_BYTES: usize = 16 << 10;
/// Steps of a walk.
pub(super) const STEPS: usize = 500;
/// Pictures of one request.
pub(super) const COUNT: usize = 16;
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
    /// A safetensors file whose tensor `latents` is the noise to start from.
    pub latents: Option<PathBuf>,
}
