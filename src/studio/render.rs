//! The whole journey of a picture. There is no second recipe.

use std::time::Instant;

use candle_core::{DType, Tensor};

use super::model::{Exact, Model};
use super::plan::{Asking, Plan};
use super::slot::{Residency, Slot};
use super::start::Start;
use crate::artifact::Frames;
use crate::codec::{Codec, Tiled};
use crate::diffusion::{Classifier, Guide, Guided, Instructed, Noise, Visit, sample_visited};
use crate::error::{Code, Error, Result};
use crate::event::{Event, Stage, Watch};
use crate::family::{Card, Conditioner, Conditioning, Denoiser};

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
    Frames::from_pixels(&decode(plan, model, &latent, residency, watch)?.squeeze(2)?)
}

/// From a normalised latent to pixels, `[1, 3, 1, H, W]`, in the plan's tiles.
fn decode(
    plan: &Plan,
    model: &mut Model,
    latent: &Tensor,
    residency: Residency,
    watch: &mut Watch<'_>,
) -> Result<Tensor> {
    let factor = model.card().factor;
    let decode = |codec: &mut Slot<dyn Codec>, residency: Residency, watch: &mut Watch<'_>| {
        stage(Stage::Decode, "decoding", watch, |watch| {
            let codec = codec.lease(residency)?;
            plan.tiled(&*codec, factor, |codec| codec.decode(latent, watch))
        })
    };
    let pixels = decode(&mut model.codec, residency, watch)?;
    sound("decoding", (model, watch), pixels, finite, |exact, watch| {
        decode(&mut exact.codec, Residency::Phase, watch)
    })
}

/// The prompts as the network hears them, with the guidance where it hears that too.
///
/// # Errors
/// `cancelled`, `tokenizer_invalid`, `non_finite_output`, and what opening the encoder says.
pub fn encode(plan: &Plan, model: &mut Model, watch: &mut Watch<'_>) -> Result<Vec<Conditioning>> {
    let prompts = plan.prompts(model.card());
    let hears_guidance = model.card().hears_guidance;
    let residency = model.residency();
    let read = |text: &mut Slot<dyn Conditioner>, residency: Residency, watch: &mut Watch<'_>| {
        stage(Stage::Encode, "reading the prompt", watch, |watch| {
            text.lease(residency)?.condition(&prompts, watch)
        })
    };
    let told = read(&mut model.text, residency, watch)?;
    let heard = |told: &Vec<Conditioning>| {
        told.iter()
            .flat_map(|row| [Some(&row.context), row.pooled.as_ref()])
            .flatten()
            .try_fold(true, |all, told| Ok(all && finite(told)?))
    };
    let mut told = sound("reading the prompt", (model, watch), told, heard, |exact, watch| {
        read(&mut exact.text, Residency::Phase, watch)
    })?;
    if hears_guidance {
        told.iter_mut().for_each(|row| row.guidance = Some(plan.guidance));
    }
    let noise_level = plan.edit.as_ref().and_then(|edit| edit.noise_level);
    told.iter_mut().for_each(|row| row.noise_level = noise_level);
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
    let card = model.card().clone();
    let mut told = told.to_vec();
    told.iter_mut().zip(&start.beside).for_each(|(row, beside)| row.beside = Some(beside.clone()));
    plan.steer(&mut told, &start.maps, (plan.asking(&card), &walk))?;
    let begun = &*start;
    let mut walked = |network: &mut Slot<dyn Denoiser>, residency: Residency, watch: &mut Watch<'_>| {
        let network = stage(Stage::Load, "opening the network", watch, |_| network.lease(residency))?;
        stage(Stage::Denoise, "denoising", watch, |watch| {
            let mut guided = Guided::new(network.bind(&told)?, plan.guide(&card));
            let x = begun.latent(plan, &walk)?;
            let mut noise = begun.noise.clone();
            let mut kept = |visit: &Visit<'_>| {
                let kept = begun.kept(visit.x, &walk, visit.step)?;
                let shown = Visit { x: kept.as_ref().unwrap_or(visit.x), ..*visit };
                Ok(visitor(&shown)?.or(kept))
            };
            let latent = sample_visited(&mut guided, x, &walk, &mut noise, &mut kept, watch)?;
            Ok((latent, noise))
        })
    };
    let made = walked(&mut model.network, residency, watch)?;
    let is_finite = |(latent, _): &(Tensor, Noise)| finite(latent);
    let (latent, noise) = sound("denoising", (model, watch), made, is_finite, |exact, watch| {
        walked(&mut exact.network, Residency::Phase, watch)
    })?;
    start.noise = noise;
    Ok(latent)
}

/// What a phase made, or made again in f32 where it is not finite.
///
/// # Errors
/// `non_finite_output` naming the phase; what `again` says.
pub(super) fn sound<T>(
    phase: &str,
    (model, watch): (&mut Model, &mut Watch<'_>),
    made: T,
    is_finite: impl Fn(&T) -> Result<bool>,
    again: impl FnOnce(&mut Exact, &mut Watch<'_>) -> Result<T>,
) -> Result<T> {
    if is_finite(&made)? {
        return Ok(made);
    }
    drop(made);
    let message = format!("{phase} gave numbers that are not finite");
    let Some(mut exact) = model.exact() else {
        return Err(Error::new(Code::NonFiniteOutput, message)
            .hint("check the weights with another copy; another sampler or less guidance may also help"));
    };
    watch.note(format!("{message}; it is done again in f32"));
    let made = again(&mut exact, watch)?;
    if is_finite(&made)? {
        return Ok(made);
    }
    Err(Error::new(Code::NonFiniteOutput, format!("{message}, in f32 too"))
        .hint("check the weights with another copy; another sampler or less guidance may also help"))
}

impl Plan {
    /// Does something with a codec in the tiles of this plan.
    pub(super) fn tiled<T>(
        &self,
        codec: &dyn Codec,
        factor: usize,
        work: impl FnOnce(&dyn Codec) -> Result<T>,
    ) -> Result<T> {
        match self.tile {
            Some(side) => work(&Tiled::new(codec, side, factor)),
            None => work(codec),
        }
    }

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
pub(super) fn finite(x: &Tensor) -> Result<bool> {
    Ok(x.flatten_all()?.to_dtype(DType::F32)?.to_vec1::<f32>()?.iter().all(|number| number.is_finite()))
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
