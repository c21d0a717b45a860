//! Stable Diffusion 1.5 at its real shape, with weights made by a formula: nothing is downloaded.

use latentia::family::Parts;
use latentia::weights::{Embedded, Folder};

/// The published configs (`models.md` 2.1).
static CONFIGS: Embedded = &[
    ("model_index.json", include_bytes!("model_index.json")),
    ("scheduler/scheduler_config.json", include_bytes!("scheduler.json")),
    ("text_encoder/config.json", include_bytes!("text_encoder.json")),
    ("unet/config.json", include_bytes!("unet.json")),
    ("vae/config.json", include_bytes!("vae.json")),
];

/// The model: real configs, random weights.
pub(crate) fn parts() -> Parts {
    Parts::synthetic(Folder::embedded(CONFIGS).expect("the configs are whole"), 15)
}
