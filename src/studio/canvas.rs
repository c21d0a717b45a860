//! The table of an edit: the given picture with its margins, the part that is redrawn, and where it may change.

use super::plan::Plan;
use super::request::{Margins, SIDE};
use crate::artifact::{Frames, Mask, Photo, Picture, Region};
use crate::error::{Error, Result};

/// A picture laid out for an edit. It follows from the given files and the plan alone.
pub struct Canvas {
    /// The picture with its margins.
    whole: Picture,
    /// What of it is redrawn.
    region: Region,
    /// How much of each pixel of the whole is new; `None` where everything is.
    share: Option<Vec<f32>>,
    /// The region at the size that the network draws.
    picture: Picture,
    /// Where the network may change it.
    mask: Option<Mask>,
    /// To which size what was drawn is brought.
    resized: Option<[usize; 2]>,
}

impl Canvas {
    /// Lays out a picture as a plan says.
    ///
    /// # Errors
    /// `invalid_argument` if the mask has another size than the picture, or opens nothing.
    pub fn lay(image: &Photo, mask: Option<&Photo>, plan: &Plan) -> Result<Self> {
        let Some(edit) = &plan.edit else { return Err(Error::internal("a plan without an edit")) };
        let (width, height) = image.picture.size();
        let kept = Region { x: edit.extend.left, y: edit.extend.top, width, height };
        let whole = with_margins(&image.picture, edit.extend)?;
        let mask = open(mask, kept, edit.extend, whole.size())?.map(|mask| mask.grown(edit.mask_grow));
        let all = Region { x: 0, y: 0, width: whole.size().0, height: whole.size().1 };
        let region = match (edit.mask_crop, mask.as_ref().and_then(Mask::bounds)) {
            (Some(context), Some(bounds)) => around(bounds, context, all, [plan.width, plan.height]),
            _ => all,
        };
        // What is enlarged is seen as it is.
        let picture = if plan.upscales() {
            whole.clone()
        } else {
            whole.cropped(region)?.resized(plan.width, plan.height)?
        };
        let small = mask.as_ref().map(|mask| mask.cut(region, plan.width, plan.height));
        let share = mask.map(|mask| mask.feathered(edit.mask_blur));
        Ok(Self { whole, region, share, picture, mask: small, resized: edit.resized })
    }

    /// What the network sees, at the size that it draws.
    pub fn picture(&self) -> &Picture {
        &self.picture
    }

    /// Where the network may change it.
    pub fn mask(&self) -> Option<&Mask> {
        self.mask.as_ref()
    }

    /// Lays what was drawn into the whole. Pixels outside of the mask keep their bytes.
    ///
    /// # Errors
    /// `internal` if nothing was drawn.
    pub fn finish(&self, drawn: Frames) -> Result<Frames> {
        if let Some([width, height]) = self.resized {
            let drawn = drawn.into_iter().next();
            let drawn = drawn.ok_or_else(|| Error::internal("an edit without a picture"))?;
            return Ok(drawn.resized(width, height)?.into());
        }
        let Some(share) = &self.share else { return Ok(drawn) };
        let Region { x, y, width, height } = self.region;
        let drawn = drawn.into_iter().next().ok_or_else(|| Error::internal("an edit without a picture"))?;
        let drawn = drawn.resized(width, height)?;
        let (columns, rows) = self.whole.size();
        let mut rgb = self.whole.rgb().to_vec();
        for row in 0..height {
            for column in 0..width {
                let at = (y + row) * columns + x + column;
                let new = share[at];
                if new > 0.0 {
                    let from = 3 * (row * width + column);
                    for (old, fresh) in rgb[3 * at..3 * at + 3].iter_mut().zip(&drawn.rgb()[from..]) {
                        let (before, after) = (f32::from(*old), f32::from(*fresh));
                        *old = (before + (after - before) * new).round() as u8;
                    }
                }
            }
        }
        Ok(Picture::sized(columns, rows, rgb)?.into())
    }
}

/// Width and height that the network draws when none are asked for: its own for a part that is cut out, else those of
/// the picture with its margins, less what no latent covers.
///
/// # Errors
/// `invalid_argument` for a picture that is smaller than one latent or larger than the limit.
pub(super) fn working_size(image: &Photo, extend: Margins, factor: usize) -> Result<[usize; 2]> {
    let (width, height) = image.picture.size();
    let whole = [width + extend.left + extend.right, height + extend.top + extend.bottom];
    for (side, name) in whole.iter().zip(["width", "height"]) {
        if !(factor..=SIDE).contains(side) {
            let message = format!("the picture's {name} would be {side}, not from {factor} to {SIDE}");
            return Err(Error::argument("image", message));
        }
    }
    Ok(whole.map(|side| side / factor * factor))
}

/// Width and height that a model draws which makes a picture's sides `factor` times longer, and those that are wanted if
/// they are shorter.
///
/// # Errors
/// `invalid_argument` for a picture that would leave the limit, or a size that it cannot be brought to.
pub(super) fn enlarged_size(
    image: &Photo,
    wanted: Option<[usize; 2]>,
    factor: usize,
) -> Result<([usize; 2], Option<[usize; 2]>)> {
    let (width, height) = image.picture.size();
    let drawn = [width * factor, height * factor];
    if drawn.iter().any(|side| *side > SIDE) {
        let message = format!(
            "the picture has {width}x{height} pixels; {factor} times as many a side would be more than {SIDE}"
        );
        return Err(Error::argument("image", message).hint("make the picture smaller first"));
    }
    let Some(wanted) = wanted.filter(|wanted| *wanted != drawn) else { return Ok((drawn, None)) };
    let fits = wanted.iter().zip(drawn).all(|(side, most)| (1..=most).contains(side));
    if fits && (wanted[0] >= width || wanted[1] >= height) {
        return Ok((drawn, Some(wanted)));
    }
    let message = format!(
        "{}x{} is not larger than the picture's {width}x{height}, or than this model makes it, {}x{}",
        wanted[0], wanted[1], drawn[0], drawn[1]
    );
    Err(Error::argument("size", message))
}

/// Everything that may change: the mask and the margins; `None` if there is neither.
fn open(
    mask: Option<&Photo>,
    kept: Region,
    extend: Margins,
    (width, height): (usize, usize),
) -> Result<Option<Mask>> {
    let around = (extend != Margins::default()).then(|| Mask::around(width, height, kept));
    let Some(mask) = mask.map(Mask::of) else { return Ok(around) };
    if mask.size() != (kept.width, kept.height) {
        let (columns, rows) = mask.size();
        let message =
            format!("the mask has {columns}x{rows} pixels, the picture {}x{}", kept.width, kept.height);
        return Err(Error::argument("mask", message).hint("a mask covers the picture pixel by pixel"));
    }
    if mask.bounds().is_none() {
        return Err(Error::argument("mask", "the mask opens no pixel")
            .hint("white pixels are redrawn, or transparent ones where the mask has any"));
    }
    Ok(Some(match around {
        Some(around) => around.with(&mask, kept.x, kept.y),
        None => mask,
    }))
}

/// The picture with margins of the colours at its edges.
fn with_margins(picture: &Picture, extend: Margins) -> Result<Picture> {
    if extend == Margins::default() {
        return Ok(picture.clone());
    }
    let (width, height) = picture.size();
    let (columns, rows) = (width + extend.left + extend.right, height + extend.top + extend.bottom);
    let mut rgb = Vec::with_capacity(3 * columns * rows);
    for row in 0..rows {
        let row = row.saturating_sub(extend.top).min(height - 1);
        for column in 0..columns {
            let column = column.saturating_sub(extend.left).min(width - 1);
            let at = 3 * (row * width + column);
            rgb.extend_from_slice(&picture.rgb()[at..at + 3]);
        }
    }
    Picture::sized(columns, rows, rgb)
}

/// The bounds with `context` pixels on every side, widened to the shape that is drawn as far as there is room.
fn around(bounds: Region, context: usize, all: Region, drawn: [usize; 2]) -> Region {
    let stretch = |start: usize, length: usize, wanted: usize, limit: usize| {
        let wanted = wanted.clamp(length, limit.max(length));
        let start = start.saturating_sub((wanted - length) / 2).min(limit - wanted);
        (start, wanted)
    };
    let (x, width) = stretch(bounds.x, bounds.width, bounds.width + 2 * context, all.width);
    let (y, height) = stretch(bounds.y, bounds.height, bounds.height + 2 * context, all.height);
    let (x, width) = stretch(x, width, (height * drawn[0]).div_ceil(drawn[1]), all.width);
    let (y, height) = stretch(y, height, (width * drawn[1]).div_ceil(drawn[0]), all.height);
    Region { x, y, width, height }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_has_its_context_and_the_shape_that_is_drawn() {
        let all = Region { x: 0, y: 0, width: 100, height: 60 };
        let bounds = Region { x: 40, y: 20, width: 10, height: 10 };
        let cut = around(bounds, 5, all, [64, 64]);
        assert_eq!(cut, Region { x: 35, y: 15, width: 20, height: 20 });
        let wide = around(bounds, 5, all, [128, 64]);
        assert_eq!(wide, Region { x: 25, y: 15, width: 40, height: 20 });
        let corner = around(Region { x: 0, y: 50, width: 10, height: 10 }, 5, all, [64, 64]);
        assert_eq!(corner, Region { x: 0, y: 40, width: 20, height: 20 });
    }

    #[test]
    fn margins_take_the_colours_of_the_edge() {
        let picture = Picture::new(2, 1, vec![1, 1, 1, 9, 9, 9]).expect("a picture");
        let wide = with_margins(&picture, Margins { left: 1, right: 2, ..Margins::default() });
        let reds: Vec<u8> = wide.expect("wide").rgb().iter().step_by(3).copied().collect();
        assert_eq!(reds, [1, 1, 9, 9, 9]);
    }
}
