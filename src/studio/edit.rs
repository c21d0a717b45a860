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
}

impl EditPlan {
    /// Answers every question of an edit.
    pub(super) fn settle(edit: &Edit, card: &Card) -> Result<Self> {
        let masked = edit.mask.is_some() || edit.extend != Margins::default();
        let instructed = card.beside == Beside::Picture;
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
            Beside::Nothing | Beside::Masked if edit.image_guidance.is_some() => {
                Some(("image_guidance", "only models that follow instructions weigh the picture"))
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
        Ok(Self {
            image_sha256: edit.image.sha256.clone(),
            mask_sha256: edit.mask.as_ref().map(|mask| mask.sha256.clone()),
            strength: (!instructed).then_some(strength),
            image_guidance: instructed.then_some(image_guidance),
            mask_grow: edit.mask_grow.unwrap_or(0),
            mask_blur: edit.mask_blur.unwrap_or(0),
            mask_crop: edit.mask_crop,
            extend: edit.extend,
        })
    }

    /// Whether parts of the picture stay as they are.
    pub(super) fn keeps_a_part(&self) -> bool {
        self.mask_sha256.is_some() || self.extend != Margins::default()
    }
}
