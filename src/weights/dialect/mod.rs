//! Names: what the authors of a model called its tensors, and what we call them.
//!
//! Networks read the names of diffusers and transformers. A file of another dialect is not converted but seen through
//! an [`Inventory`] that says the same bytes otherwise: a new name, a shape without its ones, a third of the rows.
//! Which block is which is read off the names that are there, never assumed from a family.
//!
//! # Source
//! The two sets of names: `CompVis/stable-diffusion@21f890f ldm/modules` (`CreativeML` Open RAIL-M, read only),
//! `mlfoundations/open_clip src/open_clip/transformer.py` (MIT), `huggingface/diffusers@v0.42.1 src/diffusers/models`
//! (Apache-2.0), checked tensor by tensor against the fixtures.

mod clip;
mod unet;
mod vae;

use std::path::Path;

use super::inventory::{Inventory, TensorInfo};
use super::source::Weights;
use crate::error::{Code, Error, Result};

const UNET: &str = "model.diffusion_model.";
const VAE: &str = "first_stage_model.";
const TEXT: &str = "cond_stage_model.";
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

/// Whose text encoder is in a single file, by its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextEncoder {
    /// CLIP as transformers names it: Stable Diffusion 1.
    Clip,
    /// `OpenCLIP`: Stable Diffusion 2.
    OpenClip,
}

/// A whole model in one file, as its authors published it: denoiser, autoencoder, text encoder.
#[derive(Debug, Clone)]
pub struct Single {
    weights: Weights,
    unet: Option<Renamed>,
    vae: Option<Renamed>,
    text: Option<(TextEncoder, Renamed)>,
    strays: Vec<String>,
    ema: usize,
}

/// An inventory in our names, and what was left over.
#[derive(Debug, Clone, Default)]
struct Renamed {
    inventory: Inventory,
    /// Names that mean nothing to us.
    strays: Vec<String>,
}

impl Renamed {
    fn insert(&mut self, name: String, tensor: TensorInfo) {
        self.inventory.tensors.insert(name, tensor);
    }
}

impl Single {
    /// Opens a file and finds the parts in it.
    ///
    /// # Errors
    /// As [`Weights::open`]; `model_unsupported` if no part is named as in the single files of Stable Diffusion 1
    /// and 2; `model_incompatible` if a fused tensor cannot be cut.
    pub fn open(path: &Path) -> Result<Self> {
        Self::read(Weights::open(path)?)
    }

    /// Finds the parts in weights that are open already.
    ///
    /// # Errors
    /// As [`Single::open`], except for opening.
    pub fn read(weights: Weights) -> Result<Self> {
        let all = weights.inventory();
        let part = |prefix: &str, rename: fn(&Inventory) -> Renamed| {
            all.has_prefix(prefix).then(|| rename(&all.without_prefix(prefix)))
        };
        let (unet, vae) = (part(UNET, unet::rename), part(VAE, vae::rename));
        let text = clip::rename(&all.without_prefix(TEXT), weights.label())?;
        if unet.is_none() && vae.is_none() && text.is_none() {
            let message = format!("`{}` has no part named as in Stable Diffusion 1 or 2", weights.label());
            return Err(Error::new(Code::ModelUnsupported, message).hint(
                "a folder of diffusers is read too, and so is the weights file of one of its components",
            ));
        }
        let below = |name: &&str| [UNET, VAE, TEXT, EMA].iter().any(|prefix| name.starts_with(prefix));
        let others = all.names().filter(|name| !below(name) && !TABLES.contains(name));
        let parts = [(UNET, unet.as_ref()), (VAE, vae.as_ref()), (TEXT, text.as_ref().map(|(_, part)| part))];
        let mut strays: Vec<String> = others.map(str::to_owned).collect();
        for (prefix, part) in parts {
            strays.extend(part.iter().flat_map(|part| &part.strays).map(|name| format!("{prefix}{name}")));
        }
        let ema = all.with_prefix(EMA).count();
        Ok(Self { weights, unet, vae, text, strays, ema })
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

    /// The denoiser in the names of `UNet2DConditionModel`.
    ///
    /// # Errors
    /// `model_not_downloaded` if it is not in this file.
    pub fn unet(&self) -> Result<Weights> {
        self.part("denoiser", self.unet.as_ref())
    }

    /// The autoencoder in the names of `AutoencoderKL`.
    ///
    /// # Errors
    /// `model_not_downloaded` if it is not in this file.
    pub fn vae(&self) -> Result<Weights> {
        self.part("autoencoder", self.vae.as_ref())
    }

    /// The text encoder in the names of `CLIPTextModel`; `OpenCLIP` without its last block, which SD 2 does not use.
    ///
    /// # Errors
    /// `model_not_downloaded` if it is not in this file.
    pub fn text_encoder(&self) -> Result<Weights> {
        self.part("text encoder", self.text.as_ref().map(|(_, part)| part))
    }

    fn part(&self, what: &str, part: Option<&Renamed>) -> Result<Weights> {
        let part = part.ok_or_else(|| {
            let message = format!("`{}` has no {what}", self.weights.label());
            Error::new(Code::ModelNotDownloaded, message).hint(format!("name a file that has the {what}"))
        })?;
        Ok(self.weights.view(part.inventory.clone()))
    }
}

/// An autoencoder of its own, in whichever names it comes, seen in the names of `AutoencoderKL`.
pub fn vae(weights: Weights) -> Weights {
    let inventory = weights.inventory();
    if inventory.has_prefix("decoder.up.") || inventory.has_prefix("encoder.down.") {
        return weights.view(vae::rename(inventory).inventory);
    }
    modern_attention(weights)
}

/// The attention of an autoencoder as diffusers names it now; older folders say `query`, `proj_attn` …
///
/// # Source
/// `huggingface/diffusers@v0.42.1 src/diffusers/models/modeling_utils.py`, deprecated attention blocks, Apache-2.0.
pub(super) fn modern_attention(weights: Weights) -> Weights {
    const NAMES: &[(&str, &str)] =
        &[("query", "to_q"), ("key", "to_k"), ("value", "to_v"), ("proj_attn", "to_out.0")];
    let renamed = |name: &str| {
        let (module, parameter) = name.rsplit_once('.')?;
        let (block, last) = module.rsplit_once('.')?;
        let (_, new) = NAMES.iter().find(|(old, _)| *old == last)?;
        let (parent, number) = block.rsplit_once('.')?;
        let inside = parent.ends_with(".attentions") && number.bytes().all(|digit| digit.is_ascii_digit());
        inside.then(|| format!("{block}.{new}.{parameter}"))
    };
    if !weights.inventory().names().any(|name| renamed(name).is_some()) {
        return weights;
    }
    let mut inventory = Inventory { metadata: weights.inventory().metadata.clone(), ..Inventory::default() };
    for (name, tensor) in &weights.inventory().tensors {
        match renamed(name) {
            Some(new) => inventory.tensors.insert(new, flat(tensor)),
            None => inventory.tensors.insert(name.clone(), tensor.clone()),
        };
    }
    weights.view(inventory)
}

/// A convolution of one pixel is a linear map: `[O, I, 1, 1]` → `[O, I]`.
fn flat(tensor: &TensorInfo) -> TensorInfo {
    let mut tensor = tensor.clone();
    if let [outputs, inputs, 1, 1] = tensor.shape[..] {
        tensor.shape = vec![outputs, inputs];
    }
    tensor
}
