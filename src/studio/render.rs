//! The whole journey of a picture. There is no second recipe.

use std::time::Instant;

use candle_core::{DType, Device, Tensor};

use super::model::Model;
use super::plan::Plan;
use super::slot::Residency;
use crate::artifact::Frames;
use crate::diffusion::{Classifier, Guided, Noise, Visit, sample_visited};
use crate::error::{Code, Error, Result};
use crate::event::{Event, Stage, Watch};
use crate::family::Conditioning;

/// Sees every step of the walk.
pub type Visitor<'a> = &'a mut dyn FnMut(&Visit<'_>) -> Result<Option<Tensor>>;

/// Where a walk begins and what it draws on the way.
pub struct Start {
    /// Unit noise, `[1, C, h, w]`.
    pub latents: Tensor,
    /// Where fresh noise comes from.
    pub noise: Noise,
}

impl Plan {
    /// The start that the seed makes: torch's first draw, and the generator that goes on from it.
    ///
    /// # Errors
    /// What the tensors say.
    pub fn start(&self, latent: [usize; 4]) -> Result<Start> {
        let mut noise = Noise::seeded(self.seed, latent[0]);
        let latents = noise.draw(&latent, &Device::Cpu)?;
        Ok(Start { latents, noise })
    }
}

/// From a plan to pixels.
///
/// `told` is what [`encode`] made of the plan's prompts: it is the same for every picture of a request.
///
/// # Errors
/// `cancelled`; `non_finite_output` naming the phase; what the parts say.
pub fn render(
    plan: &Plan,
    model: &mut Model,
    (told, start): (&[Conditioning], Start),
    residency: Residency,
    visitor: Visitor<'_>,
    watch: &mut Watch<'_>,
) -> Result<Frames> {
    let latent = denoise(plan, model, (told, start), residency, visitor, watch)?;
    let pixels = stage(Stage::Decode, "decoding", watch, |watch| {
        model.codec.lease(residency)?.decode(&latent, watch)
    })?;
    Frames::from_pixels(&pixels.squeeze(2)?)
}

/// The prompts as the network hears them, with the guidance where it hears that too.
///
/// # Errors
/// `cancelled`, `tokenizer_invalid`, and what opening the encoder says.
pub fn encode(plan: &Plan, model: &mut Model, watch: &mut Watch<'_>) -> Result<Vec<Conditioning>> {
    let prompts = plan.prompts(model.card());
    let hears_guidance = model.card().hears_guidance;
    let mut told = stage(Stage::Encode, "reading the prompt", watch, |watch| {
        model.text.lease(Residency::Phase)?.condition(&prompts, watch)
    })?;
    if hears_guidance {
        told.iter_mut().for_each(|row| row.guidance = Some(plan.guidance));
    }
    Ok(told)
}

/// The walk: from noise to a normalised latent, `[1, C, h, w]`.
fn denoise(
    plan: &Plan,
    model: &mut Model,
    (told, mut start): (&[Conditioning], Start),
    residency: Residency,
    visitor: Visitor<'_>,
    watch: &mut Watch<'_>,
) -> Result<Tensor> {
    let walk = plan.settings()?.walk(plan.steps, &plan.options())?;
    let network = stage(Stage::Load, "opening the network", watch, |_| model.network.lease(residency))?;
    let latent = stage(Stage::Denoise, "denoising", watch, |watch| {
        let scale = if told.len() > 1 { plan.guidance } else { 1.0 };
        let guide = Classifier { scale, rescale: plan.guidance_rescale };
        let mut guided = Guided::new(network.bind(told)?, Box::new(guide));
        let x = walk.start(&start.latents)?;
        sample_visited(&mut guided, x, &walk, &mut start.noise, visitor, watch)
    })?;
    if !finite(&latent)? {
        let message = "denoising gave numbers that are not finite";
        return Err(Error::new(Code::NonFiniteOutput, message).hint(
            "check the weights with another copy, or take --dtype f32; another sampler may also help",
        ));
    }
    Ok(latent)
}

/// Whether every number is one.
fn finite(x: &Tensor) -> Result<bool> {
    // A sum of squares is finite only if every term is.
    Ok(x.to_dtype(DType::F64)?.sqr()?.sum_all()?.to_scalar::<f64>()?.is_finite())
}

/// Runs one stage between its two events.
fn stage<T>(
    stage: Stage,
    what: &str,
    watch: &mut Watch<'_>,
    work: impl FnOnce(&mut Watch<'_>) -> Result<T>,
) -> Result<T> {
    let began = Instant::now();
    watch.say(Event::Began { stage, what: what.into() })?;
    let done = work(watch)?;
    watch.say(Event::Ended { stage, took: began.elapsed() })?;
    Ok(done)
}
