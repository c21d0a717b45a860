//! The models in the binary: the one that draws where none is named, and those that only tests ask for.

use crate::error::Result;
use crate::family::Parts;
use crate::weights::{Embedded, Folder};

/// What it is called in recipes and on the command line.
pub(super) const NAME: &str = "sprites";

#[cfg(feature = "embedded")]
macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_bytes!(concat!("../../models/sprites/", $path)).as_slice())),*]
    };
}

#[cfg(feature = "embedded")]
static FILES: Embedded = files![
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

/// Models without weights, which draw gradients: at once, and a fifth of a second a step.
const MOCKS: &[(&str, Embedded)] = &[
    ("mock", &[("model_index.json", br#"{ "_class_name": "LatentiaMockPipeline" }"#)]),
    ("mock-slow", &[("model_index.json", br#"{ "_class_name": "LatentiaMockPipeline", "step_ms": 200 }"#)]),
];

/// The files of a model in the binary, its name and what it is called in recipes; `None` for any other name.
pub(super) fn built_in(name: &str) -> Option<(&'static str, Result<Parts>)> {
    if name == NAME {
        return Some((NAME, parts()));
    }
    let (name, files) = MOCKS.iter().find(|(mock, _)| *mock == name)?;
    Some((name, Folder::embedded(files).map(|configs| Parts::synthetic(configs, 0))))
}
