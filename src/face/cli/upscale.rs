//! `latentia upscale`: a larger picture of a picture.

use std::path::PathBuf;

use clap::Args;

use super::drawing::{self, Drawing};
use super::edit::given;
use crate::error::Result;
use crate::studio::Edit;

/// The arguments of `latentia upscale`.
#[derive(Debug, Args)]
pub(super) struct Upscale {
    /// The picture to enlarge: PNG, JPEG, WebP or GIF; --size says how far, as far as the model goes without.
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// What the picture shows.
    prompt: Option<String>,
    /// How much noise is put on the picture first: more lets the model invent more. [default: 20]
    #[arg(long, value_name = "STEP", conflicts_with = "from")]
    noise_level: Option<usize>,
    #[command(flatten)]
    pub(super) drawing: Drawing,
}

pub(super) fn run(arguments: &Upscale) -> Result<()> {
    let image = given("image", &arguments.image)?;
    let edit = Edit { noise_level: arguments.noise_level, ..Edit::upscale(image) };
    drawing::run(&arguments.drawing, arguments.prompt.as_deref(), Some(edit))
}
