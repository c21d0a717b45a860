//! The model in the binary.

use crate::error::Result;
use crate::family::Parts;

/// What it is called in recipes and on the command line.
pub(super) const NAME: &str = "sprites";

#[cfg(feature = "embedded")]
macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_bytes!(concat!("../../models/sprites/", $path)).as_slice())),*]
    };
}

#[cfg(feature = "embedded")]
static FILES: crate::weights::Embedded = files![
    "model_index.json",
    "latentia.json",
    "scheduler/scheduler_config.json",
    "text_encoder/config.json",
    "text_encoder/model.safetensors",
    "tokenizer/merges.txt",
    "tokenizer/tokenizer_config.json",
    "tokenizer/vocab.json",
    "unet/config.json",
    "unet/diffusion_pytorch_model.safetensors",
    "vae/config.json",
    "vae/diffusion_pytorch_model.safetensors",
];

/// Its files.
///
/// # Errors
/// Never for what was built with it.
#[cfg(feature = "embedded")]
pub(super) fn parts() -> Result<Parts> {
    Parts::embedded(FILES)
}

/// Its files are not in this binary.
///
/// # Errors
/// `model_not_downloaded` always.
#[cfg(not(feature = "embedded"))]
pub(super) fn parts() -> Result<Parts> {
    Err(crate::error::Error::new(
        crate::error::Code::ModelNotDownloaded,
        "this binary was built without the embedded model",
    )
    .hint("name a model with -m, or build with --features embedded"))
}
