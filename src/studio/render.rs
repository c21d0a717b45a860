//! The whole journey of a picture. There is no second recipe.

use std::time::Instant;

use candle_core::{DType, Tensor};

use super::model::Model;
use super::plan::{Asking, Plan};
use super::slot::Residency;
use super::start::Start;
use crate::artifact::Frames;
use crate::diffusion::{Classifier, Guide, Guided, Instructed, Visit, sample_visited};
use crate::error::{Code, Error, Result};
use crate::event::{Event, Stage, Watch};
use crate::family::{Card, Conditioning};

/// Sees every step of the walk.
pub type Visitor<'a> = &'a mut dyn FnMut(&Visit<'_>) -> Result<Option<Tensor>>;

/// From a plan to pixels.
///
/// `told` is what [`encode`] made of the plan's prompts: it is the same for every picture of a request.
///
/// # Errors
/// `cancelled`; `non_finite_output` naming the phase; what the parts say.
pub fn render(
    plan: &Plan,
    model: &mut Model,
    (told, mut start): (&[Conditioning], Start),
    residency: Residency,
    visitor: Visitor<'_>,
    watch: &mut Watch<'_>,
) -> Result<Frames> {
    let mut latent = denoise(plan, model, (told, &mut start), residency, visitor, watch)?;
    if let (Some(plan), Some(refiner)) = (&plan.refiner, &mut model.refiner) {
        let told = encode(plan, refiner, watch)?;
        let mut start = start.after(latent);
        latent = denoise(plan, refiner, (&told, &mut start), residency, visitor, watch)?;
    }
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
    if let Some([with, without]) = &plan.sizes {
        let asked = plan.asking(model.card()).with_prompt();
        told.iter_mut().zip(asked).for_each(|(row, asked)| {
            row.sizes.clone_from(if *asked { with } else { without });
        });
    }
    Ok(told)
}

/// The walk: from noise to a normalised latent, `[1, C, h, w]`.
fn denoise(
    plan: &Plan,
    model: &mut Model,
    (told, start): (&[Conditioning], &mut Start),
    residency: Residency,
    visitor: Visitor<'_>,
    watch: &mut Watch<'_>,
) -> Result<Tensor> {
    let walk = plan.walk(model.card())?;
    let guide = plan.guide(model.card());
    let asking = plan.asking(model.card());
    let network = stage(Stage::Load, "opening the network", watch, |_| model.network.lease(residency))?;
    let walked = stage(Stage::Denoise, "denoising", watch, |watch| {
        let mut told = told.to_vec();
        told.iter_mut().zip(&start.beside).for_each(|(row, beside)| row.beside = Some(beside.clone()));
        plan.steer(&mut told, &start.maps, (asking, &walk))?;
        let mut guided = Guided::new(network.bind(&told)?, guide);
        let x = start.latent(plan, &walk)?;
        let mut noise = start.noise.clone();
        let start = &*start;
        let mut kept = |visit: &Visit<'_>| {
            let kept = start.kept(visit.x, &walk, visit.step)?;
            let shown = Visit { x: kept.as_ref().unwrap_or(visit.x), ..*visit };
            Ok(visitor(&shown)?.or(kept))
        };
        let latent = sample_visited(&mut guided, x, &walk, &mut noise, &mut kept, watch)?;
        Ok((latent, noise))
    })?;
    let (latent, noise) = walked;
    start.noise = noise;
    if !finite(&latent)? {
        let message = "denoising gave numbers that are not finite";
        return Err(Error::new(Code::NonFiniteOutput, message).hint(
            "check the weights with another copy, or take --dtype f32; another sampler may also help",
        ));
    }
    Ok(latent)
}

impl Plan {
    /// How the answers to what the network is asked become one.
    fn guide(&self, card: &Card) -> Box<dyn Guide> {
        let picture = self.edit.as_ref().and_then(|edit| edit.image_guidance).unwrap_or(1.0);
        match self.asking(card) {
            Asking::Once => Box::new(Classifier { scale: 1.0, rescale: 0.0 }),
            Asking::Guided => Box::new(Classifier { scale: self.guidance, rescale: self.guidance_rescale }),
            Asking::Instructed => Box::new(Instructed { text: self.guidance, picture }),
        }
    }
}

/// Whether every number is one.
fn finite(x: &Tensor) -> Result<bool> {
    // A sum of squares is finite only if every term is.
    Ok(x.to_dtype(DType::F64)?.sqr()?.sum_all()?.to_scalar::<f64>()?.is_finite())
}

/// Runs one stage between its two events.
pub(super) fn stage<T>(
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
