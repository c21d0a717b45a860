//! Control networks of a request: which pictures steer the walk, how strongly, and in which part of it.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use super::plan::{Asking, Plan, within};
use super::request::{ControlPicture, Request};
use super::{Model, Studio};
use crate::artifact::canny;
use crate::diffusion::Walk;
use crate::error::{Error, Result};
use crate::family::{Conditioning, Control, Hint};

/// Control networks of one request.
const CONTROLS: usize = 4;
/// The largest factor of what a control network adds.
const SCALE: f64 = 2.0;

/// What a control picture may show. Of `canny` the edges are found here; every other is taken as the map that it is.
pub const CONTROL_KINDS: &[&str] = &[
    "canny",
    "edges",
    "depth",
    "normal",
    "pose",
    "lineart",
    "scribble",
    "softedge",
    "mlsd",
    "segmentation",
    "tile",
    "map",
];

/// A control network that steered a walk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controlled {
    /// What its picture shows, one of [`CONTROL_KINDS`].
    pub kind: String,
    /// sha256 of the picture's file.
    pub image_sha256: String,
    /// What it adds is multiplied by this.
    pub scale: f64,
    /// The network's name without the path to it.
    pub model: String,
    /// sha256 of its weights.
    pub model_sha256: String,
}

/// Answers every question about the control networks; their weights are named later, by [`named`].
///
/// # Errors
/// `invalid_argument`.
pub(super) fn settle(request: &Request) -> Result<Vec<Controlled>> {
    let count = request.controls.len();
    if count > CONTROLS {
        return Err(Error::argument(
            "control",
            format!("{count} control pictures, at most {CONTROLS} steer"),
        ));
    }
    if count == 0 {
        for (name, given) in
            [("control_guess", request.control_guess), ("control_window", request.control_window.is_some())]
        {
            if given {
                return Err(
                    Error::argument(name, "there is no control picture").hint("give one with --control")
                );
            }
        }
    }
    if count > 0 && request.edit.as_ref().is_some_and(|edit| edit.mask_crop.is_some()) {
        let message = "a control picture covers the whole picture, and mask_crop draws a part of it";
        return Err(Error::argument("mask_crop", message).hint("leave mask_crop out"));
    }
    if let Some([from, to]) = request.control_window {
        within("control_window", from, 0.0, 1.0)?;
        within("control_window", to, 0.0, 1.0)?;
        if from >= to {
            let message = format!("control_window {from} to {to}: it ends before it begins");
            return Err(Error::argument("control_window", message));
        }
    }
    request.controls.iter().map(controlled).collect()
}

fn controlled(control: &ControlPicture) -> Result<Controlled> {
    if !CONTROL_KINDS.contains(&control.kind.as_str()) {
        let shown: String = control.kind.chars().take(40).flat_map(char::escape_default).collect();
        let message = format!("`{shown}` is no kind of control picture");
        return Err(
            Error::argument("control_kind", message).hint(format!("kinds: {}", CONTROL_KINDS.join(", ")))
        );
    }
    within("control_strength", control.scale, 0.0, SCALE)?;
    Ok(Controlled {
        kind: control.kind.clone(),
        image_sha256: control.image.sha256.clone(),
        scale: control.scale,
        model: String::new(),
        model_sha256: String::new(),
    })
}

/// The same with the networks' names and weights.
pub(super) fn named(controlled: &mut [Controlled], controls: &[Control]) {
    for (controlled, control) in controlled.iter_mut().zip(controls) {
        control.name().clone_into(&mut controlled.model);
        control.weights().digest().clone_into(&mut controlled.model_sha256);
    }
}

/// Whether two recipes are steered alike; a file may have got another name.
pub(super) fn alike(one: &[Controlled], other: &[Controlled]) -> bool {
    let told = |all: &[Controlled]| {
        let nameless = |it: &Controlled| Controlled { model: String::new(), ..it.clone() };
        all.iter().map(nameless).collect::<Vec<_>>()
    };
    told(one) == told(other)
}

/// What the control networks are shown: each picture, or its edges, at the size that is drawn.
///
/// # Shapes
/// `[1, 3, H, W]` in [0, 1], one a picture.
///
/// # Errors
/// What the pixels say.
pub fn control_maps(pictures: &[ControlPicture], plan: &Plan) -> Result<Vec<Tensor>> {
    let map = |control: &ControlPicture| {
        let picture = control.image.photo.picture.resized(plan.width, plan.height)?;
        let picture = if control.kind == "canny" { canny(&picture)? } else { picture };
        Ok(picture.pixels()?.squeeze(2)?.affine(0.5, 0.5)?)
    };
    pictures.iter().map(map).collect()
}

impl Studio {
    /// Opens the control networks of a request, by path or name.
    ///
    /// # Errors
    /// `model_not_found`, and what is wrong with the files; they name the argument.
    pub(super) fn open_controls(&self, asked: &[ControlPicture]) -> Result<Vec<Control>> {
        let named = |error| Error { param: Some("control_model".into()), ..error };
        let open = |asked: &ControlPicture| Control::open(&self.registry.find(&asked.model).map_err(named)?);
        asked.iter().map(open).collect()
    }

    /// Steers a model as a recipe was steered.
    ///
    /// # Errors
    /// `invalid_argument` for other pictures, networks or strengths than the recipe's.
    pub(super) fn steer_again(&self, model: &mut Model, plan: &Plan, given: &[ControlPicture]) -> Result<()> {
        let controls = self.open_controls(given)?;
        let mut steered = settle(&Request { controls: given.to_vec(), ..Request::default() })?;
        named(&mut steered, &controls);
        if alike(&steered, &plan.controls) {
            return model.steer(controls);
        }
        let message =
            "the picture was made under other control (pictures, networks or strengths) than is given";
        Err(Error::argument("control", message).hint(match plan.controls.as_slice() {
            [] => "it was made without; leave --control out".to_owned(),
            controls => controls
                .iter()
                .map(|it| format!("--control {}=PICTURE:{} --control-model {}", it.kind, it.scale, it.model))
                .collect::<Vec<_>>()
                .join(" "),
        }))
    }
}

impl Plan {
    /// Tells the rows of a batch what steers them: in guess mode those with the prompt, else all.
    ///
    /// # Errors
    /// `invalid_argument` if the window has no call of the walk.
    pub(super) fn steer(
        &self,
        told: &mut [Conditioning],
        maps: &[Tensor],
        (asking, walk): (Asking, &Walk),
    ) -> Result<()> {
        if maps.is_empty() {
            return Ok(());
        }
        let calls = self.steered_calls(walk)?;
        let hint = |(map, control): (&Tensor, &Controlled)| Hint {
            picture: map.clone(),
            scale: control.scale,
            guess: self.control_guess,
            calls: calls.clone(),
        };
        let hints: Vec<_> = maps.iter().zip(&self.controls).map(hint).collect();
        for (row, has_prompt) in told.iter_mut().zip(asking.with_prompt()) {
            if *has_prompt || !self.control_guess {
                row.hints.clone_from(&hints);
            }
        }
        Ok(())
    }

    /// The calls of the walk that lie wholly within the window.
    ///
    /// # Errors
    /// `invalid_argument` if there are none.
    pub(super) fn steered_calls(&self, walk: &Walk) -> Result<std::ops::Range<usize>> {
        let visited = walk.visited();
        let (begin, count) = (visited.first().map_or(0, |level| level.step), visited.len());
        let Some([from, to]) = self.control_window else { return Ok(begin..begin + count) };
        // As diffusers rounds it: `1.0 - float(i / n < start or (i + 1) / n > end)`.
        let within =
            |call: &usize| *call as f64 / count as f64 >= from && (call + 1) as f64 / count as f64 <= to;
        let mut calls = (0..count).filter(within);
        let Some(first) = calls.next() else {
            let message = format!("control_window {from} to {to} has none of the {count} steps");
            return Err(Error::argument("control_window", message).hint("widen it, or take more steps"));
        };
        Ok(begin + first..begin + calls.next_back().unwrap_or(first) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_is_compared_by_its_bytes() {
        let one = Controlled {
            kind: "canny".into(),
            image_sha256: "a".into(),
            scale: 1.0,
            model: "one".into(),
            model_sha256: "b".into(),
        };
        let renamed = Controlled { model: "two".into(), ..one.clone() };
        let weaker = Controlled { scale: 0.5, ..one.clone() };
        assert!(alike(std::slice::from_ref(&one), &[renamed]));
        assert!(!alike(std::slice::from_ref(&one), &[weaker]));
        assert!(!alike(&[one], &[]));
    }
}
