//! Requests to pictures: the whole public surface of the engine, blocking and without global state.

mod canvas;
mod control;
mod edit;
mod embedded;
mod keep;
mod model;
mod plan;
mod render;
mod request;
mod sizes;
mod slot;
mod start;

pub use canvas::Canvas;
pub use control::{CONTROL_KINDS, Controlled, control_maps};
pub use edit::EditPlan;
pub use model::{DeviceClass, Model, Precision, Source, Worn};
pub use plan::{Asking, Engine, ModelId, Plan};
pub use render::{Visitor, encode, render};
pub use request::{ControlPicture, Edit, Given, Margins, Request, Sizes};
pub use slot::{Lease, Residency, Slot};
pub use start::{Seen, Start};

use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};

use crate::artifact::{Frames, Infotext, png};
use crate::diffusion::Noise;
use crate::error::{Code, Error, Result};
use crate::event::Watch;
use crate::family::known::Role;
use crate::family::{Control, recognise};
use crate::registry::{Catalogue, Registry, Survey};
use crate::weights::{Lora, Weights};

/// Everything that a caller needs: opens models and draws.
#[derive(Debug, Clone)]
pub struct Studio {
    registry: Registry,
}

/// A finished picture and the recipe that repeats it.
#[derive(Debug, Clone)]
pub struct Picture {
    /// The pixels.
    pub frames: Frames,
    /// The recipe.
    pub plan: Plan,
}

impl Studio {
    /// A studio whose installed models lie in `home/models`.
    pub fn open(home: &Path) -> Self {
        Self { registry: Registry::new(home) }
    }

    /// Opens a model by path or name, the embedded one without; only headers and configs are read.
    ///
    /// The models of the binary have names too: `sprites`, and for tests `mock` and `mock-slow`, which have no weights.
    ///
    /// # Errors
    /// `model_not_found`, and what is wrong with the files.
    pub fn model(
        &self,
        name: Option<&str>,
        config: Option<&Path>,
        device: DeviceClass,
        precision: Precision,
    ) -> Result<Model> {
        self.model_with(name, config, &[], device, precision)
    }

    /// The same, where `parts` are files with an autoencoder or a text encoder that the model lacks, or in place of its
    /// own.
    ///
    /// # Errors
    /// As [`Self::model`]; `invalid_argument` for a file without such a part.
    pub fn model_with(
        &self,
        name: Option<&str>,
        config: Option<&Path>,
        parts: &[PathBuf],
        device: DeviceClass,
        precision: Precision,
    ) -> Result<Model> {
        let Some(name) = name else { return Model::open(Source::Embedded, device, precision) };
        // What is installed or lies here comes first.
        if parts.is_empty()
            && self.registry.find(name).is_err()
            && let Some((name, files)) = embedded::built_in(name)
        {
            return Model::from_parts(files?, name, device, precision);
        }
        let opened = self.registry.open(name, config, parts)?;
        let path = std::path::absolute(self.registry.find(name)?).ok();
        let own = path.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        Model::from_parts(opened, own.as_deref().unwrap_or("model"), device, precision)
    }

    /// The model in the binary and what it is, if there is one.
    pub fn embedded(&self) -> Option<(&'static str, Survey)> {
        self.built_in(embedded::NAME)
    }

    /// The name of the model that draws where none is named, if this binary brings it.
    pub fn embedded_name(&self) -> Option<&'static str> {
        cfg!(feature = "embedded").then_some(embedded::NAME)
    }

    /// What is installed and what is known, with the installed models that cannot be read and why.
    ///
    /// # Errors
    /// What reading the headers of files says.
    pub fn catalogue(&self) -> Result<(Catalogue, Vec<(String, Error)>)> {
        let mut catalogue = Catalogue::known();
        let mut broken = Vec::new();
        if let Some((name, survey)) = self.embedded() {
            catalogue.install(name, &survey)?;
        }
        for name in self.registry.names() {
            match self.registry.survey(&name, None, &[]) {
                Ok(survey) => catalogue.install(&name, &survey)?,
                Err(error) => broken.push((name, error)),
            }
        }
        Ok((catalogue, broken))
    }

    /// The LoRA adapters that are installed, each with the family that it is for, if that is known.
    pub fn adapters(&self) -> Vec<(String, Option<String>)> {
        self.of_role(Role::Lora)
    }

    /// The names of the control networks that are installed.
    pub fn control_networks(&self) -> Vec<String> {
        self.of_role(Role::Controlnet).into_iter().map(|(name, _)| name).collect()
    }

    fn of_role(&self, role: Role) -> Vec<(String, Option<String>)> {
        let survey = |name: String| {
            let finding = self.registry.survey(&name, None, &[]).ok()?.finding;
            (finding.role == role).then_some((name, finding.family))
        };
        self.registry.names().into_iter().filter_map(survey).collect()
    }

    /// A model of the binary by its name and what it is.
    pub fn built_in(&self, name: &str) -> Option<(&'static str, Survey)> {
        let (name, parts) = embedded::built_in(name)?;
        let parts = parts.ok()?;
        let card = recognise(&parts).ok()?;
        Some((name, Survey::of_card(name, card.card(), &parts).ok()?))
    }

    /// Draws what is asked for, handing over each picture as it is finished.
    ///
    /// # Errors
    /// `invalid_argument` before any work; `cancelled`, after which what was handed over stays; what `finished` says.
    pub fn generate(
        &self,
        model: &mut Model,
        request: &Request,
        watch: &mut Watch<'_>,
        finished: impl FnMut(usize, &Picture) -> Result<()>,
    ) -> Result<()> {
        let count = request.count.unwrap_or(1);
        if !(1..=request::COUNT).contains(&count) {
            let message = format!("count {count} is not from 1 to {}", request::COUNT);
            return Err(Error::argument("count", message));
        }
        let mut plan = Plan::settle(request, model.card(), &model.engine().clone(), watch)?;
        let controls = self.open_controls(&request.controls)?;
        control::named(&mut plan.controls, &controls);
        model.steer(controls)?;
        model.wear(&open_loras(&request.loras)?, watch)?;
        plan.loras = model.worn().to_vec();
        match (&model.refiner, request.refiner_from) {
            (Some(_), _) if request.edit.is_some() => {
                return Err(Error::argument(
                    "refiner",
                    "a refiner ends new pictures; edit one with it as the model",
                ));
            }
            (Some(refiner), from) => {
                plan = plan.refined(request, (refiner.card(), refiner.engine()), from.unwrap_or(0.8))?;
            }
            (None, Some(_)) => return Err(Error::argument("refiner_from", "there is no refiner")),
            (None, None) => {}
        }
        let given = request.latents.as_deref().map(|file| given_latents(file, &plan, model)).transpose()?;
        plan.latents_sha256 = given.as_ref().map(|(_, digest)| digest.clone());
        let edit = request.edit.as_ref();
        let mask = edit.and_then(|edit| edit.mask.as_ref());
        let canvas = edit.map(|edit| lay(&edit.image, mask, &plan)).transpose()?;
        let maps = control_maps(&request.controls, &plan)?;
        let begin = Begin { count, latents: given.map(|(latents, _)| latents), canvas, maps };
        draw(model, &plan, begin, watch, finished)
    }

    /// Opens the control networks of a request, by path or name.
    ///
    /// # Errors
    /// `model_not_found`, and what is wrong with the files; they name the argument.
    fn open_controls(&self, asked: &[ControlPicture]) -> Result<Vec<Control>> {
        let named = |error| Error { param: Some("control_model".into()), ..error };
        let open = |asked: &ControlPicture| Control::open(&self.registry.find(&asked.model).map_err(named)?);
        asked.iter().map(open).collect()
    }

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
        let controls = self.open_controls(&sources.controls)?;
        let given = Request { controls: sources.controls.clone(), ..Request::default() };
        let mut steered = control::settle(&given)?;
        control::named(&mut steered, &controls);
        if !control::alike(&steered, &plan.controls) {
            let message =
                "the picture was made under other control (pictures, networks or strengths) than is given";
            return Err(Error::argument("control", message).hint(match plan.controls.as_slice() {
                [] => "it was made without; leave --control out".to_owned(),
                controls => controls
                    .iter()
                    .map(|it| {
                        format!("--control {}=PICTURE:{} --control-model {}", it.kind, it.scale, it.model)
                    })
                    .collect::<Vec<_>>()
                    .join(" "),
            }));
        }
        model.steer(controls)?;
        model.wear(&open_loras(&sources.loras)?, watch)?;
        // A file may have got another name.
        let told =
            |worn: &[Worn]| worn.iter().map(|lora| (lora.sha256.clone(), lora.scale)).collect::<Vec<_>>();
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
        let image = sources.image.as_ref();
        let canvas = image.map(|image| lay(image, sources.mask.as_ref(), &plan)).transpose()?;
        if (plan.dtype.as_str(), plan.device.as_str()) != (&model.engine().dtype, &model.engine().device) {
            watch
                .note(format!("the picture was made on {} in {}; bytes may differ", plan.device, plan.dtype));
        }
        let maps = control_maps(&sources.controls, &plan)?;
        let begin = Begin { count: 1, latents: latents.map(|(latents, _)| latents), canvas, maps };
        draw(model, &plan, begin, watch, finished)
    }
}

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
    /// The pictures and networks that steered it.
    pub controls: Vec<ControlPicture>,
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

/// Opens files of changes to the weights.
fn open_loras(asked: &[(PathBuf, f64)]) -> Result<Vec<(Lora, f64)>> {
    let named = |error| Error { param: Some("loras".into()), ..error };
    if asked.len() > request::LORAS {
        let message = format!("{} LoRA files, at most {} are applied", asked.len(), request::LORAS);
        return Err(Error::argument("loras", message));
    }
    if let Some((_, scale)) = asked.iter().find(|(_, scale)| !(-10.0..=10.0).contains(scale)) {
        return Err(Error::argument("loras", format!("the strength {scale} is not from -10 to 10")));
    }
    asked.iter().map(|(path, scale)| Ok((Lora::open(path).map_err(named)?, *scale))).collect()
}

/// How many pictures, and what they begin from.
struct Begin {
    count: usize,
    latents: Option<Tensor>,
    canvas: Option<Canvas>,
    maps: Vec<Tensor>,
}

fn lay(image: &Given, mask: Option<&Given>, plan: &Plan) -> Result<Canvas> {
    Canvas::lay(&image.photo, mask.map(|mask| &mask.photo), plan)
}

/// One picture after the other, seeds counting up; the prompt and a given picture are read once.
fn draw(
    model: &mut Model,
    plan: &Plan,
    begin: Begin,
    watch: &mut Watch<'_>,
    mut finished: impl FnMut(usize, &Picture) -> Result<()>,
) -> Result<()> {
    let Begin { count, latents, canvas, maps } = begin;
    model.begin_digests();
    let told = encode(plan, model, watch)?;
    let seen = canvas.as_ref().map(|canvas| Seen::look(canvas, plan, model, watch)).transpose()?;
    for index in 0..count {
        let mut plan = Plan { seed: plan.seed.wrapping_add(index as u64), ..plan.clone() };
        let residency = if index + 1 < count { Residency::Stay } else { Residency::Phase };
        let noise = Noise::seeded(plan.seed, 1);
        let start = Start::with(&plan, model.card(), seen.as_ref(), noise, latents.clone())?;
        let start = Start { maps: maps.clone(), ..start };
        let drawn = render(&plan, model, (&told, start), residency, &mut |_| Ok(None), watch)?;
        let frames = match &canvas {
            Some(canvas) => canvas.finish(drawn)?,
            None => drawn,
        };
        plan.model.sha256.clone_from(model.digests()?);
        if let (Some(ends), Some(refiner)) = (&mut plan.refiner, &mut model.refiner) {
            ends.model.sha256.clone_from(refiner.digests()?);
        }
        finished(index, &Picture { frames, plan })?;
    }
    Ok(())
}

/// The tensor `latents` of a safetensors file and the sha256 of the file.
fn given_latents(file: &Path, plan: &Plan, model: &Model) -> Result<(Tensor, String)> {
    let weights = Weights::open(file).map_err(|error| Error { param: Some("latents".into()), ..error })?;
    let shape = plan.latent(model.card());
    let latents = weights
        .tensor("latents", Some(&shape), DType::F32, &Device::Cpu)
        .map_err(|error| Error { param: Some("latents".into()), ..error })?;
    Ok((latents, weights.digest().to_owned()))
}

/// The PNG keyword of the recipe.
const RECIPE: &str = "latentia";

impl Picture {
    /// The bytes of a PNG file, with the recipe as web UIs read it (`parameters`) and as we do (`latentia`).
    ///
    /// # Errors
    /// `internal` if the pixels cannot be encoded.
    pub fn png(&self, metadata: bool) -> Result<Vec<u8>> {
        let Some(picture) = self.frames.pictures().first() else {
            return Err(Error::internal("a picture without pixels"));
        };
        if !metadata {
            return png::encode(picture, &[]);
        }
        let recipe = serde_json::to_string(&self.plan)
            .map_err(|e| Error::internal("a recipe has no JSON").because(e))?;
        let infotext = self.infotext()?.to_string();
        png::encode(picture, &[("parameters", &infotext), (RECIPE, &recipe)])
    }

    /// The recipe in the words of web UIs.
    fn infotext(&self) -> Result<Infotext> {
        let plan = &self.plan;
        let mut extra = Vec::new();
        if plan.clip_skip > 0 {
            // Web UIs count from the last layer, which is 1.
            extra.push(("Clip skip".to_owned(), (plan.clip_skip + 1).to_string()));
        }
        if plan.guidance_rescale > 0.0 {
            extra.push(("CFG rescale".to_owned(), plan.guidance_rescale.to_string()));
        }
        if !plan.loras.is_empty() {
            let hash = |lora: &Worn| format!("{}: {}", lora.name, &lora.sha256[..lora.sha256.len().min(12)]);
            let hashes: Vec<_> = plan.loras.iter().map(hash).collect();
            extra.push(("Lora hashes".to_owned(), hashes.join(", ")));
        }
        if let Some(edit) = &plan.edit {
            if let Some(strength) = edit.strength {
                extra.push(("Denoising strength".to_owned(), strength.to_string()));
            }
            if let Some(scale) = edit.image_guidance {
                extra.push(("Image CFG scale".to_owned(), scale.to_string()));
            }
            if edit.mask_blur > 0 {
                extra.push(("Mask blur".to_owned(), edit.mask_blur.to_string()));
            }
        }
        extra.push(("Version".to_owned(), format!("latentia {}", plan.version)));
        let (sampler, schedule) = plan.settings()?.spoken();
        let pixels = |side: usize| u32::try_from(side).unwrap_or(u32::MAX);
        Ok(Infotext {
            prompt: plan.prompt.clone(),
            negative: plan.negative_prompt.clone(),
            steps: Some(plan.steps),
            sampler: Some(sampler),
            schedule: schedule.map(str::to_owned),
            guidance: Some(plan.guidance),
            seed: Some(plan.seed),
            size: Some((pixels(plan.width), pixels(plan.height))),
            model_hash: Some(plan.model.digest().chars().take(10).collect()),
            model: Some(plan.model.name.clone()),
            extra,
        })
    }
}

impl Plan {
    /// The recipe in a picture that latentia drew.
    ///
    /// # Errors
    /// `file_not_found`, `image_corrupt`; `invalid_argument` if the picture has no recipe.
    pub fn from_picture(picture: &Path) -> Result<Self> {
        let texts = png::texts(&request::read_picture(picture)?)?;
        let Some((_, recipe)) = texts.iter().find(|(keyword, _)| keyword == RECIPE) else {
            return Err(Error::argument("from", "the picture has no recipe of latentia")
                .hint("pictures drawn with --no-metadata, and those of other programs, cannot be repeated"));
        };
        serde_json::from_str(recipe)
            .map_err(|error| Error::argument("from", "the picture's recipe is damaged").because(error))
    }
}
