//! `latentia edit`: pictures from a picture.

use std::path::{Path, PathBuf};

use clap::Args;

use super::drawing::{self, Drawing};
use crate::error::{Error, Result};
use crate::studio::{self, Given, Margins};

/// The arguments of `latentia edit`.
#[derive(Debug, Args)]
pub(super) struct Edit {
    /// What the picture should become.
    #[arg(required_unless_present = "from")]
    pub(super) prompt: Option<String>,
    /// The picture to begin from: PNG, JPEG, WebP or GIF.
    #[arg(short, long, value_name = "FILE")]
    image: PathBuf,
    /// A picture of the same size: only where it is white, or transparent if it has transparent pixels, is redrawn.
    #[arg(long, value_name = "FILE")]
    mask: Option<PathBuf>,
    /// How far from the picture, above 0 to 1. [default: 0.8, with a mask 1]
    #[arg(long, conflicts_with = "from", allow_negative_numbers = true)]
    strength: Option<f64>,
    /// How strongly the picture pulls, for models that follow instructions. [default: 1.5]
    #[arg(long, value_name = "SCALE", conflicts_with = "from", allow_negative_numbers = true)]
    image_guidance: Option<f64>,
    /// Pixels by which the mask grows first.
    #[arg(long, value_name = "PIXELS", conflicts_with = "from")]
    mask_grow: Option<usize>,
    /// Pixels inside the mask's edge over which new and old blend.
    #[arg(long, value_name = "PIXELS", conflicts_with = "from")]
    mask_blur: Option<usize>,
    /// Draws only the mask and so many pixels around it, at the size of --size or the model's own.
    #[arg(long, value_name = "PIXELS", conflicts_with = "from")]
    mask_crop: Option<usize>,
    /// Margins to draw anew, such as left=128,bottom=64.
    #[arg(long, value_name = "SIDE=PIXELS,…", value_parser = read_margins, conflicts_with = "from")]
    extend: Option<Margins>,
    #[command(flatten)]
    pub(super) drawing: Drawing,
}

impl Edit {
    /// What the edit begins from, in the studio's words.
    pub(super) fn edit(&self) -> Result<studio::Edit> {
        Ok(studio::Edit {
            mask: self.mask.as_deref().map(|path| given("mask", path)).transpose()?,
            strength: self.strength,
            image_guidance: self.image_guidance,
            mask_grow: self.mask_grow,
            mask_blur: self.mask_blur,
            mask_crop: self.mask_crop,
            extend: self.extend.unwrap_or_default(),
            ..studio::Edit::of(given("image", &self.image)?)
        })
    }
}

pub(super) fn run(arguments: &Edit) -> Result<()> {
    drawing::run(&arguments.drawing, arguments.prompt.as_deref(), Some(arguments.edit()?))
}

/// A file that an argument names.
pub(super) fn given(argument: &str, path: &Path) -> Result<Given> {
    Given::open(path).map_err(|error| Error { param: Some(argument.into()), ..error })
}

/// `left=128,top=64`.
fn read_margins(text: &str) -> std::result::Result<Margins, String> {
    let mut margins = Margins::default();
    for part in text.split(',') {
        let (side, pixels) = part.split_once('=').unwrap_or((part, ""));
        let margin = match side.trim() {
            "left" => &mut margins.left,
            "top" => &mut margins.top,
            "right" => &mut margins.right,
            "bottom" => &mut margins.bottom,
            _ => return Err(format!("{part:?} is not SIDE=PIXELS with left, top, right or bottom")),
        };
        if *margin > 0 {
            return Err(format!("{} is there twice", side.trim()));
        }
        *margin = pixels
            .trim()
            .parse()
            .ok()
            .filter(|pixels| (1..=8192).contains(pixels))
            .ok_or_else(|| format!("{part:?}: the margin must be from 1 to 8192 pixels"))?;
    }
    Ok(margins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins_are_read_as_people_write_them() {
        let wide = Margins { left: 128, bottom: 64, ..Margins::default() };
        assert_eq!(read_margins("left=128,bottom=64"), Ok(wide));
        for wrong in ["", "left", "left=0", "left=-1", "middle=3", "left=1,left=2"] {
            assert!(read_margins(wrong).is_err(), "{wrong}");
        }
    }
}
