//! Recipes drawn again: only with what they were drawn with.

use std::path::{Path, PathBuf};

use super::model::Worn;
use super::{
    Begin, ControlPicture, Given, Model, Picture, Plan, Studio, control_maps, draw, given_latents, lay,
    open_loras, taught,
};
use crate::error::{Code, Error, Result};
use crate::event::Watch;

/// What a recipe began from, given again to repeat it.
#[derive(Debug, Clone, Default)]
pub struct Sources<'a> {
    /// A file of latents.
    pub latents: Option<&'a Path>,
    /// The picture of an edit.
    pub image: Option<Given>,
    /// Its mask.
    pub mask: Option<Given>,
    /// Files of changes to the weights, with their strengths.
    pub loras: Vec<(PathBuf, f64)>,
    /// Files of taught words, each with its word, or without where the file says it.
    pub embeddings: Vec<(Option<String>, PathBuf)>,
    /// The pictures and networks that steered it.
    pub controls: Vec<ControlPicture>,
}

impl Studio {
    /// Draws a recipe again.
    ///
    /// # Errors
    /// `model_incompatible` if the weights are not the recipe's; `invalid_argument` if it began from given latents or
    /// from a picture and these are not they.
    pub fn repeat(
        &self,
        model: &mut Model,
        mut plan: Plan,
        sources: &Sources<'_>,
        watch: &mut Watch<'_>,
        finished: impl FnMut(usize, &Picture) -> Result<()>,
    ) -> Result<()> {
        let wanted = std::mem::take(&mut plan.model.sha256);
        if wanted != *model.digests()? {
            let message = format!(
                "the picture was made with other weights ({}) than `{}`",
                plan.model.name,
                model.engine().model
            );
            return Err(
                Error::new(Code::ModelIncompatible, message).hint("name the model of the picture with -m")
            );
        }
        same_refiner(&plan, model)?;
        let latents = sources.latents.map(|file| given_latents(file, &plan, model)).transpose()?;
        let digest = latents.as_ref().map(|(_, digest)| digest.clone());
        if digest != plan.latents_sha256 {
            let message = if plan.latents_sha256.is_some() {
                "the picture began from given latents, and these are not they"
            } else {
                "the picture began from its seed, not from given latents"
            };
            return Err(Error::argument("latents", message));
        }
        same_pictures(&plan, sources)?;
        self.steer_again(model, &plan, &sources.controls)?;
        let mut loras = sources.loras.clone();
        loras.extend(self.named_adapters(&plan)?);
        model.wear(&open_loras(&loras)?, plan.lora_application, watch)?;
        same_loras(&plan, model)?;
        model.teach(&sources.embeddings)?;
        taught::same(&plan, model)?;
        let image = sources.image.as_ref();
        let canvas = image.map(|image| lay(image, sources.mask.as_ref(), &plan)).transpose()?;
        if (plan.dtype.as_str(), plan.device.as_str()) != (&model.engine().dtype, &model.engine().device) {
            watch
                .note(format!("the picture was made on {} in {}; bytes may differ", plan.device, plan.dtype));
        }
        let maps = control_maps(&sources.controls, &plan)?;
        let latents = latents.map(|(latents, _)| latents);
        let begin = Begin { count: 1, stays: false, latents, canvas, maps };
        draw(model, &plan, begin, watch, finished)
    }
}

/// Refuses to end a walk with another model than the recipe's.
fn same_refiner(plan: &Plan, model: &mut Model) -> Result<()> {
    let own = model.refiner.as_mut().map(|refiner| refiner.digests().cloned()).transpose()?;
    let message = match (&plan.refiner, own) {
        (None, None) => return Ok(()),
        (Some(ends), Some(own)) if ends.model.sha256 == own => return Ok(()),
        (Some(ends), _) => {
            format!("the picture was ended by the refiner `{}`, which is not given", ends.model.name)
        }
        (None, Some(_)) => "the picture was made without a refiner".to_owned(),
    };
    Err(Error::argument("refiner", message))
}

/// Refuses other pictures than those that it began from.
fn same_pictures(plan: &Plan, sources: &Sources<'_>) -> Result<()> {
    let edit = plan.edit.as_ref();
    for (name, wanted, given) in [
        ("image", edit.map(|edit| &edit.image_sha256), &sources.image),
        ("mask", edit.and_then(|edit| edit.mask_sha256.as_ref()), &sources.mask),
    ] {
        let given = given.as_ref().map(|given| &given.sha256);
        if wanted != given {
            let message = match (wanted, given) {
                (Some(_), Some(_)) => format!("the picture was made with another {name}"),
                (Some(_), None) => format!("the picture was made with an {name}, which is not given"),
                _ => format!("the picture was made without an {name}"),
            };
            return Err(Error::argument(name, message));
        }
    }
    Ok(())
}

/// Refuses other files of changes.
fn same_loras(plan: &Plan, model: &Model) -> Result<()> {
    // A file may have got another name.
    let told = |worn: &[Worn]| worn.iter().map(|lora| (lora.sha256.clone(), lora.scale)).collect::<Vec<_>>();
    if told(model.worn()) != told(&plan.loras) {
        let said = |worn: &[Worn]| {
            let names = worn.iter().map(|lora| format!("`{}` at {}", lora.name, lora.scale));
            let names = names.collect::<Vec<_>>().join(", ");
            if names.is_empty() { "none".to_owned() } else { names }
        };
        let (wanted, given) = (said(&plan.loras), said(model.worn()));
        let message =
            format!("the picture was made with other LoRA files ({wanted}) than are given ({given})");
        return Err(Error::argument("loras", message));
    }
    Ok(())
}
