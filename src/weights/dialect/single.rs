//! A file as its authors published it: a whole model, or one part of it, in whichever names it comes.

use std::path::Path;

use super::{Renamed, clip, modern_attention, unet, vae};
use crate::error::{Code, Error, Result};
use crate::weights::inventory::Inventory;
use crate::weights::source::Weights;

/// Where the denoiser may begin: whole models of CompVis first, then what people save it as when it is alone.
const UNETS: &[&str] = &["model.diffusion_model.", "diffusion_model.", "model.", "unet.", "net.", ""];
/// Where the autoencoder may begin.
const VAES: &[&str] = &["first_stage_model.", "vae.", ""];
/// Where the text encoder may begin.
const TEXTS: &[&str] =
    &["cond_stage_model.", "text_encoders.clip_l.", "text_encoders.clip_h.", "text_encoder.", ""];
/// Where the second text encoder of Stable Diffusion XL may begin, and the first beside it.
const SECOND_TEXTS: &[(&str, &str)] = &[
    ("conditioner.embedders.1.", "conditioner.embedders.0."),
    ("conditioner.embedders.0.", ""),
    ("text_encoders.clip_g.", "text_encoders.clip_l."),
];
const EMA: &str = "model_ema.";

/// Tables that training left in the file; we compute our own.
///
/// # Source
/// `CompVis/stable-diffusion@21f890f ldm/models/diffusion/ddpm.py`, `register_schedule`.
const TABLES: &[&str] = &[
    "alphas_cumprod",
    "alphas_cumprod_prev",
    "betas",
    "log_one_minus_alphas_cumprod",
    "logvar",
    "posterior_log_variance_clipped",
    "posterior_mean_coef1",
    "posterior_mean_coef2",
    "posterior_variance",
    "sqrt_alphas_cumprod",
    "sqrt_one_minus_alphas_cumprod",
    "sqrt_recip_alphas_cumprod",
    "sqrt_recipm1_alphas_cumprod",
];

/// Tensors that say by being there what the network was trained to predict, and from which noise.
///
/// # Source
/// Files of v-prediction finetunes of Stable Diffusion XL; `models.md` 3.2.
const MARKERS: &[&str] = &["v_pred", "ztsnr"];

/// Whose text encoder is in a single file, by its names and its width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextEncoder {
    /// CLIP as transformers names it: Stable Diffusion 1.
    Clip,
    /// `OpenCLIP`: Stable Diffusion 2.
    OpenClip,
}

/// A model in one file, as its authors published it: denoiser, autoencoder, text encoder, or only some of them.
#[derive(Debug, Clone)]
pub struct Single {
    weights: Weights,
    unet: Option<Weights>,
    vae: Option<Weights>,
    text: Option<(TextEncoder, Weights)>,
    second_text: Option<Weights>,
    strays: Vec<String>,
    ema: usize,
}

impl Single {
    /// Opens a file and finds the parts in it.
    ///
    /// # Errors
    /// As [`Weights::open`]; `model_unsupported` if no part is named as those of Stable Diffusion 1 and 2, by their
    /// authors or by diffusers; `model_incompatible` if a fused tensor cannot be cut.
    pub fn open(path: &Path) -> Result<Self> {
        Self::read(Weights::open(path)?)
    }

    /// Finds the parts in weights that are open already.
    ///
    /// # Errors
    /// As [`Single::open`], except for opening.
    pub fn read(weights: Weights) -> Result<Self> {
        let all = weights.inventory();
        let denoiser = first(all, UNETS, read_unet);
        let codec = first(all, VAES, read_vae);
        let mut second_text = None;
        let mut texts = TEXTS.to_vec();
        if let Some((second, one)) = SECOND_TEXTS.iter().find(|(second, _)| all.has_prefix(second)) {
            second_text = clip::rename(&all.without_prefix(second), weights.label(), true)?
                .map(|(_, found)| (*second, found));
            texts = if one.is_empty() { Vec::new() } else { vec![*one] };
        }
        let mut text = None;
        for prefix in texts.into_iter().filter(|prefix| all.has_prefix(prefix)) {
            text = clip::rename(&all.without_prefix(prefix), weights.label(), false)?
                .map(|found| (prefix, found));
            if text.is_some() {
                break;
            }
        }
        // The second encoder alone in a file has the names of any other.
        let width =
            |part: &Renamed| part.inventory.shape(clip::TOKENS).and_then(|shape| shape.get(1).copied());
        if text.as_ref().is_some_and(|(_, (_, part))| clip::keeps_projection(width(part))) {
            second_text = text.take().map(|(prefix, (_, part))| (prefix, part));
        }
        if denoiser.is_none() && codec.is_none() && text.is_none() && second_text.is_none() {
            let message = format!("`{}` has no part named as in Stable Diffusion", weights.label());
            return Err(Error::new(Code::ModelUnsupported, message).hint(
                "a folder of diffusers is read too, and so is the weights file of one of its components",
            ));
        }
        let found: Vec<(&str, &Renamed)> = denoiser
            .iter()
            .chain(&codec)
            .map(|(prefix, part)| (*prefix, part))
            .chain(text.iter().map(|(prefix, (_, part))| (*prefix, part)))
            .chain(second_text.iter().map(|(prefix, part)| (*prefix, part)))
            .collect();
        let below =
            |name: &&str| name.starts_with(EMA) || found.iter().any(|(prefix, _)| name.starts_with(prefix));
        let mut strays: Vec<String> = all
            .names()
            .filter(|name| !below(name) && !TABLES.contains(name) && !MARKERS.contains(name))
            .map(str::to_owned)
            .collect();
        for (prefix, part) in &found {
            strays.extend(part.strays.iter().map(|name| format!("{prefix}{name}")));
        }
        let view = |part: Renamed| weights.view(part.inventory);
        Ok(Self {
            strays,
            ema: all.with_prefix(EMA).count(),
            unet: denoiser.map(|(_, part)| view(part)),
            vae: codec.map(|(_, part)| modern_attention(view(part))),
            text: text.map(|(_, (kind, part))| (kind, view(part))),
            second_text: second_text.map(|(_, part)| view(part)),
            weights,
        })
    }

    /// The file as it is, in its own names.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Whether the denoiser is there.
    pub fn has_unet(&self) -> bool {
        self.unet.is_some()
    }

    /// Whether the autoencoder is there; merges often come without.
    pub fn has_vae(&self) -> bool {
        self.vae.is_some()
    }

    /// Which text encoder is there, if any.
    pub fn has_text_encoder(&self) -> Option<TextEncoder> {
        self.text.as_ref().map(|(kind, _)| *kind)
    }

    /// Tensors whose names mean nothing to us; a loader should mention them.
    pub fn strays(&self) -> &[String] {
        &self.strays
    }

    /// How many tensors are averaged copies for training (`model_ema.`), which drawing does not need.
    pub fn ema(&self) -> usize {
        self.ema
    }

    /// A component by its name in diffusers' folders, if it is in this file.
    pub fn component(&self, name: &str) -> Option<&Weights> {
        match name {
            "unet" => self.unet.as_ref(),
            "vae" => self.vae.as_ref(),
            "text_encoder" => self.text.as_ref().map(|(_, weights)| weights),
            "text_encoder_2" => self.second_text.as_ref(),
            _ => None,
        }
    }

    /// The denoiser in the names of `UNet2DConditionModel`.
    ///
    /// # Errors
    /// `model_not_downloaded` if it is not in this file.
    pub fn unet(&self) -> Result<Weights> {
        self.part("unet")
    }

    /// The autoencoder in the names of `AutoencoderKL`.
    ///
    /// # Errors
    /// `model_not_downloaded` if it is not in this file.
    pub fn vae(&self) -> Result<Weights> {
        self.part("vae")
    }

    /// The text encoder in the names of `CLIPTextModel`; `OpenCLIP` without its last block, which SD 2 does not use.
    ///
    /// # Errors
    /// `model_not_downloaded` if it is not in this file.
    pub fn text_encoder(&self) -> Result<Weights> {
        self.part("text_encoder")
    }

    /// A component by its name in diffusers' folders.
    ///
    /// # Errors
    /// `model_not_downloaded` if it is not in this file.
    pub fn part(&self, name: &str) -> Result<Weights> {
        self.component(name).cloned().ok_or_else(|| {
            let what = match name {
                "unet" => "denoiser",
                "vae" => "autoencoder",
                "text_encoder_2" => "second text encoder",
                _ => "text encoder",
            };
            let message = format!("`{}` has no {what}", self.weights.label());
            Error::new(Code::ModelNotDownloaded, message)
                .hint(format!("name a file that has the {what} with --part FILE"))
        })
    }
}

/// The part behind the first prefix where there is one.
fn first(
    all: &Inventory,
    prefixes: &[&'static str],
    read: impl Fn(&Inventory) -> Option<Renamed>,
) -> Option<(&'static str, Renamed)> {
    let there = prefixes.iter().filter(|prefix| all.has_prefix(prefix));
    there.into_iter().find_map(|prefix| Some((*prefix, read(&all.without_prefix(prefix))?)))
}

/// A denoiser in the names of CompVis, or in ours.
fn read_unet(part: &Inventory) -> Option<Renamed> {
    if part.has("input_blocks.0.0.weight") {
        return Some(unet::rename(part));
    }
    let ours =
        part.has("conv_in.weight") && part.has("conv_out.weight") && part.has_prefix("time_embedding.");
    ours.then(|| Renamed { inventory: part.clone(), strays: Vec::new() })
}

/// An autoencoder in the names of CompVis, or in ours.
fn read_vae(part: &Inventory) -> Option<Renamed> {
    if !part.has("decoder.conv_in.weight") {
        return None;
    }
    if part.has_prefix("decoder.up.") || part.has_prefix("encoder.down.") {
        return Some(vae::rename(part));
    }
    part.has_prefix("decoder.up_blocks.").then(|| Renamed { inventory: part.clone(), strays: Vec::new() })
}
