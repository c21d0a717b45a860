//! Where a walk begins: noise, or a picture and noise.

use candle_core::{DType, Device, Tensor};

use super::canvas::Canvas;
use super::model::Model;
use super::plan::{Asking, Plan};
use super::render::{finite, sound, stage};
use super::slot::{Residency, Slot};
use crate::codec::{Codec, Posterior};
use crate::diffusion::{Noise, Walk};
use crate::error::{Error, Result};
use crate::event::{Stage, Watch};
use crate::family::{Beside, Card};

/// A given picture as the codec sees it: the same for every seed.
pub struct Seen {
    /// The picture, where the walk or the network begins with it.
    picture: Option<Posterior>,
    /// The picture without what may change.
    masked: Option<Posterior>,
    /// The picture itself, `[1, 3, h, w]`, where the network sees that.
    pixels: Option<Tensor>,
    /// 1 where the latent may change, `[1, 1, h, w]`.
    open: Option<Tensor>,
    /// What the codec's draws have the shape of.
    drawn: Option<Vec<usize>>,
}

impl Seen {
    /// Looks at a picture through the codec.
    ///
    /// # Errors
    /// `cancelled`; `invalid_argument` if the mask opens no latent; what the codec says.
    pub fn look(canvas: &Canvas, plan: &Plan, model: &mut Model, watch: &mut Watch<'_>) -> Result<Self> {
        let (beside, factor) = (model.card().beside, model.card().factor);
        if beside == Beside::Pixels {
            let pixels = Some(canvas.picture().pixels()?.squeeze(2)?);
            return Ok(Self { picture: None, masked: None, pixels, open: None, drawn: None });
        }
        let open = canvas.mask().map(|mask| {
            let cells = mask.coarse(factor);
            if !cells.contains(&1.0) {
                return Err(Error::argument("mask", "what the mask opens is too small to be redrawn")
                    .hint("take --mask-grow, or --mask-crop to draw that part larger"));
            }
            let shape = (1, 1, plan.height / factor, plan.width / factor);
            Ok(Tensor::from_vec(cells, shape, &Device::Cpu)?)
        });
        let open = open.transpose()?;
        let pixels = canvas.picture().pixels()?; // [1, 3, 1, H, W]
        // A network that sees the rest of the picture itself needs no latent of it to begin from noise.
        let from_noise = beside == Beside::Masked && plan.begins_from_noise();
        let masked = match (beside, canvas.mask()) {
            (Beside::Masked, Some(mask)) => {
                let shut: Vec<f32> = mask.open().iter().map(|&open| if open { 0.0 } else { 1.0 }).collect();
                let shut = Tensor::from_vec(shut, (1, 1, 1, plan.height, plan.width), &Device::Cpu)?;
                Some(pixels.broadcast_mul(&shut)?)
            }
            _ => None,
        };
        let wanted = [(!from_noise).then_some(pixels), masked];
        let residency = model.residency();
        let look = |codec: &mut Slot<dyn Codec>, residency: Residency, watch: &mut Watch<'_>| {
            stage(Stage::Encode, "reading the picture", watch, |watch| {
                let codec = codec.lease(residency)?;
                let mut encode = |pixels: &Option<Tensor>| {
                    let encode = |pixels| plan.tiled(&*codec, factor, |codec| codec.encode(pixels, watch));
                    pixels.as_ref().map(encode).transpose()
                };
                Ok([encode(&wanted[0])?, encode(&wanted[1])?])
            })
        };
        let seen = look(&mut model.codec, residency, watch)?;
        let is_finite = |seen: &[Option<Posterior>; 2]| {
            seen.iter().flatten().try_fold(true, |all, seen| Ok(all && finite(&seen.mean)?))
        };
        let [picture, masked] =
            sound("reading the picture", (model, watch), seen, is_finite, |exact, watch| {
                look(&mut exact.codec, Residency::Phase, watch)
            })?;
        let draws = [&picture, &masked].into_iter().flatten().find_map(|seen| seen.deviation.as_ref());
        let drawn = draws.map(|deviation| deviation.dims().to_vec());
        Ok(Self { picture, masked, pixels: None, open, drawn })
    }
}

/// Where a walk begins and what it draws on the way.
pub struct Start {
    /// Unit noise, `[1, C, h, w]`.
    pub latents: Tensor,
    /// Where fresh noise comes from.
    pub noise: Noise,
    /// The latent of a given picture, `[1, C, h, w]`.
    pub clean: Option<Tensor>,
    /// 1 where the latent may change, `[1, 1, h, w]`.
    pub open: Option<Tensor>,
    /// What the network sees beside the latent, one a condition; none where it sees nothing.
    pub beside: Vec<Tensor>,
    /// What control networks are shown, from [`super::control_maps`].
    pub maps: Vec<Tensor>,
}

impl Start {
    /// Draws what a walk begins with, in the order in which diffusers draws it: the picture's latent or the noise on it,
    /// the noise, the masked picture's latent.
    ///
    /// # Errors
    /// What the tensors say.
    pub fn new(plan: &Plan, card: &Card, seen: Option<&Seen>, noise: Noise) -> Result<Self> {
        Self::with(plan, card, seen, noise, None)
    }

    /// The same from given noise.
    ///
    /// # Errors
    /// What the tensors say.
    pub fn with(
        plan: &Plan,
        card: &Card,
        seen: Option<&Seen>,
        mut noise: Noise,
        latents: Option<Tensor>,
    ) -> Result<Self> {
        let mut draw = |shape: &[usize]| noise.draw(shape, &Device::Cpu);
        let picture = seen.and_then(|seen| seen.picture.as_ref()).filter(|_| card.beside != Beside::Picture);
        let clean = picture.map(|posterior| sample(posterior, &mut draw)).transpose()?;
        let grainy = match (seen.and_then(|seen| seen.pixels.as_ref()), &card.grain) {
            (Some(pixels), Some(grain)) => {
                let level = plan.edit.as_ref().and_then(|edit| edit.noise_level).unwrap_or(grain.usual);
                Some(grain.noised(pixels, &draw(pixels.dims())?, level)?)
            }
            _ => None,
        };
        let latents = match latents {
            Some(latents) => latents,
            None => draw(&plan.latent(card))?,
        };
        let Some(seen) = seen else {
            return Ok(Self {
                latents,
                noise,
                clean: None,
                open: None,
                beside: Vec::new(),
                maps: Vec::new(),
            });
        };
        let beside = match (card.beside, &seen.open) {
            (Beside::Pixels, _) => {
                let grainy = grainy.ok_or_else(|| Error::internal("no pixels were seen"))?;
                vec![grainy; plan.prompts(card).len()]
            }
            (Beside::Picture, _) => {
                let picture = seen.picture.as_ref().ok_or_else(|| Error::internal("no picture was seen"))?;
                let mode = picture.unscaled()?;
                let nothing = mode.zeros_like()?;
                match plan.asking(card) {
                    Asking::Once => vec![mode],
                    Asking::Guided => vec![mode.clone(), mode],
                    Asking::Instructed => vec![mode.clone(), mode, nothing],
                }
            }
            (Beside::Masked, Some(open)) => {
                let masked = seen.masked.as_ref().ok_or_else(|| Error::internal("no mask was seen"))?;
                let both = Tensor::cat(&[open, &sample(masked, &mut draw)?], 1)?;
                vec![both; plan.prompts(card).len()]
            }
            (_, open) => {
                // Diffusers encodes the masked picture even for networks that do not see it; the draw moves the seed.
                if let (Some(_), Some(shape)) = (open, &seen.drawn) {
                    draw(shape)?;
                }
                Vec::new()
            }
        };
        // A network that sees the rest of the picture is trusted with it, as in diffusers.
        let open = seen.open.clone().filter(|_| card.beside == Beside::Nothing);
        Ok(Self { latents, noise, clean, open, beside, maps: Vec::new() })
    }

    /// Where another model goes on: from a latent, with the same noise.
    pub(super) fn after(self, latents: Tensor) -> Self {
        Self { latents, clean: None, open: None, beside: Vec::new(), maps: Vec::new(), noise: self.noise }
    }

    /// The latent before the first call of a walk.
    pub(super) fn latent(&self, plan: &Plan, walk: &Walk) -> Result<Tensor> {
        match &self.clean {
            _ if plan.continues() => Ok(self.latents.clone()),
            Some(clean) if !plan.begins_from_noise() => {
                walk.noised(clean, &self.latents, walk.visited().first().map_or(0, |level| level.step))
            }
            _ => walk.start(&self.latents),
        }
    }

    /// The latent after a call, with what may not change as it was before: with the noise of the next level.
    pub(super) fn kept(&self, x: &Tensor, walk: &Walk, call: usize) -> Result<Option<Tensor>> {
        let (Some(open), Some(clean)) = (&self.open, &self.clean) else { return Ok(None) };
        let before = walk.noised(clean, &self.latents, call + 1)?;
        let open = open.to_dtype(DType::F32)?;
        let kept = before.broadcast_mul(&open.affine(-1.0, 1.0)?)?;
        Ok(Some((kept + x.broadcast_mul(&open)?)?))
    }
}

/// One latent of a Gaussian; nothing is drawn where the codec is certain.
fn sample(posterior: &Posterior, draw: &mut impl FnMut(&[usize]) -> Result<Tensor>) -> Result<Tensor> {
    match &posterior.deviation {
        Some(deviation) => posterior.sample(&draw(deviation.dims())?),
        None => Ok(posterior.mean.clone()),
    }
}
