//! What of a given picture may change: an edit with every question answered.

use serde::{Deserialize, Serialize};

use super::plan::within;
use super::request::{Edit, Margins};
use crate::error::{Error, Result};
use crate::family::{Beside, Card};

/// What of a picture may change, and how far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EditPlan {
    /// sha256 of the picture's file.
    pub image_sha256: String,
    /// sha256 of the mask's file, null without.
    pub mask_sha256: Option<String>,
    /// How much of the walk is walked; null where the model always walks all of it.
    pub strength: Option<f64>,
    /// How strongly the picture pulls; null where the model cannot be told.
    pub image_guidance: Option<f64>,
    /// Pixels by which the mask grows.
    pub mask_grow: usize,
    /// Pixels inside the mask's edge over which new and old blend.
    pub mask_blur: usize,
    /// Pixels around the mask that are drawn with it; null where all is drawn.
    pub mask_crop: Option<usize>,
    /// Margins that are drawn anew.
    pub extend: Margins,
    /// How much noise was on the picture that the network saw; absent where it sees no pixels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_level: Option<usize>,
    /// To which size the drawn picture was brought; absent where it is that of the picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resized: Option<[usize; 2]>,
}

impl EditPlan {
    /// Answers every question of an edit; `resized` is the size wanted where another is drawn.
    pub(super) fn settle(edit: &Edit, card: &Card, resized: Option<[usize; 2]>) -> Result<Self> {
        let masked = edit.mask.is_some() || edit.extend != Margins::default();
        let instructed = card.beside == Beside::Picture;
        let upscales = card.beside == Beside::Pixels;
        let refused = match card.beside {
            Beside::Masked if !masked => {
                Some(("mask", "this model redraws where a mask allows, and there is no mask"))
            }
            Beside::Picture if masked => {
                Some(("mask", "this model follows an instruction for the whole picture"))
            }
            Beside::Picture if edit.strength.is_some() => {
                Some(("strength", "this model always walks from noise: it sees the picture itself"))
            }
            Beside::Nothing | Beside::Masked | Beside::Pixels if edit.image_guidance.is_some() => {
                Some(("image_guidance", "only models that follow instructions weigh the picture"))
            }
            Beside::Pixels if masked => Some(("mask", "this model enlarges the whole picture")),
            Beside::Pixels if edit.strength.is_some() => Some((
                "strength",
                "this model always walks from noise; noise_level says how much it may invent",
            )),
            Beside::Nothing | Beside::Masked | Beside::Picture if edit.noise_level.is_some() => {
                Some(("noise_level", "only models that upscale put noise on the picture"))
            }
            _ => None,
        };
        if let Some((name, what)) = refused {
            return Err(Error::argument(name, what));
        }
        let pixels = [edit.mask_grow, edit.mask_blur, edit.mask_crop];
        for (name, value) in ["mask_grow", "mask_blur", "mask_crop"].into_iter().zip(pixels) {
            let Some(value) = value else { continue };
            if !masked {
                return Err(Error::argument(name, "there is no mask"));
            }
            within(name, value as f64, 0.0, 1024.0)?;
        }
        let strength = edit.strength.unwrap_or(card.strength[usize::from(masked)]);
        within("strength", strength, 0.0, 1.0)?;
        let image_guidance = edit.image_guidance.unwrap_or(1.5);
        within("image_guidance", image_guidance, 0.0, 100.0)?;
        let noise_level =
            card.grain.as_ref().map(|grain| (edit.noise_level.unwrap_or(grain.usual), grain.most));
        if let Some((level, most)) = noise_level {
            within("noise_level", level as f64, 0.0, most as f64)?;
        }
        Ok(Self {
            image_sha256: edit.image.sha256.clone(),
            mask_sha256: edit.mask.as_ref().map(|mask| mask.sha256.clone()),
            strength: (!instructed && !upscales).then_some(strength),
            image_guidance: instructed.then_some(image_guidance),
            mask_grow: edit.mask_grow.unwrap_or(0),
            mask_blur: edit.mask_blur.unwrap_or(0),
            mask_crop: edit.mask_crop,
            extend: edit.extend,
            noise_level: noise_level.map(|(level, _)| level),
            resized,
        })
    }

    /// Whether parts of the picture stay as they are.
    pub(super) fn keeps_a_part(&self) -> bool {
        self.mask_sha256.is_some() || self.extend != Margins::default()
    }
}
