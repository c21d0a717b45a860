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
mod control;
mod llama;
mod single;
mod unet;
mod vae;

pub use control::control;
pub use single::{Single, TextEncoder};
pub(super) use unet::modules as ldm_modules;

use super::inventory::{Inventory, TensorInfo};
use super::source::Weights;

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

impl Inventory {
    /// The same in the names of transformers, if it is in those that llama.cpp gives text encoders.
    pub fn in_names_of_transformers(&self) -> Option<Self> {
        llama::rename(self)
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
