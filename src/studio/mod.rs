//! Requests to pictures: the whole public surface of the engine, blocking and without global state.

mod canvas;
mod control;
mod edit;
mod embedded;
mod keep;
mod memory;
mod model;
mod plan;
mod render;
mod repeat;
mod request;
mod resident;
mod sizes;
mod slot;
mod start;
mod taught;

pub use canvas::Canvas;
pub use control::{CONTROL_KINDS, Controlled, control_maps};
pub use edit::EditPlan;
pub use memory::{Forecast, Phase, Tiling, spoken_bytes};
pub use model::{DeviceClass, Model, Precision, Source, Worn};
pub use plan::{Asking, Engine, ModelId, Plan};
pub use render::{Visitor, encode, render};
pub use repeat::Sources;
pub use request::{ControlPicture, Edit, Given, Margins, Request, Sizes};
pub use slot::{Lease, Residency, Slot};
pub use start::{Seen, Start};
pub use taught::Taught;

use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};

use crate::artifact::{Frames, Infotext, png};
use crate::diffusion::Noise;
use crate::error::{Code, Error, Result};
use crate::event::Watch;
use crate::family::known::Role;
use crate::family::recognise;
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

    /// The files of the adapters that a prompt names, with their strengths; never by a path.
    fn named_adapters(&self, plan: &Plan) -> Result<Vec<(PathBuf, f64)>> {
        let named = plan.named_adapters()?;
        if named.is_empty() {
            return Ok(Vec::new());
        }
        let here: Vec<String> = self.adapters().into_iter().map(|(name, _)| name).collect();
        let file = |(name, strength): (String, f64)| {
            if here.contains(&name) {
                return Ok((self.registry.find(&name)?, strength));
            }
            let shown: String = name.chars().take(80).flat_map(char::escape_default).collect();
            let error = Error::new(
                Code::ModelNotFound,
                format!("the prompt names the adapter `{shown}`, which is not here"),
            );
            let names = if here.is_empty() { "none".to_owned() } else { here.join(", ") };
            Err(Error { param: Some("prompt".into()), ..error }
                .hint(format!("adapters here: {names}; `latentia import FILE` remembers one")))
        };
        named.into_iter().map(file).collect()
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
    /// `invalid_argument` and `insufficient_memory` before any work; `cancelled`, after which what was handed over stays; what `finished` says.
    pub fn generate(
        &self,
        model: &mut Model,
        request: &Request,
        watch: &mut Watch<'_>,
        finished: impl FnMut(usize, &Picture) -> Result<()>,
    ) -> Result<()> {
        let (mut plan, forecast) = self.plan(model, request, watch)?;
        forecast.must_fit(&plan, model)?;
        let count = request.count.unwrap_or(1);
        let given = request.latents.as_deref().map(|file| given_latents(file, &plan, model)).transpose()?;
        plan.latents_sha256 = given.as_ref().map(|(_, digest)| digest.clone());
        let edit = request.edit.as_ref();
        let mask = edit.and_then(|edit| edit.mask.as_ref());
        let canvas = edit.map(|edit| lay(&edit.image, mask, &plan)).transpose()?;
        if let Some(side) = plan.tile {
            watch.note(format!("the picture is decoded in tiles of {side} latent pixels"));
        }
        let maps = control_maps(&request.controls, &plan)?;
        let stays = count > 1 && forecast.can_stay();
        let begin = Begin { count, stays, latents: given.map(|(latents, _)| latents), canvas, maps };
        draw(model, &plan, begin, watch, finished)
    }

    /// The recipe of a request and what it takes in memory; nothing is loaded.
    ///
    /// # Errors
    /// `invalid_argument`; `lora_incompatible`.
    pub fn plan(
        &self,
        model: &mut Model,
        request: &Request,
        watch: &mut Watch<'_>,
    ) -> Result<(Plan, Forecast)> {
        let count = request.count.unwrap_or(1);
        if !(1..=request::COUNT).contains(&count) {
            let message = format!("count {count} is not from 1 to {}", request::COUNT);
            return Err(Error::argument("count", message));
        }
        let mut plan = Plan::settle(request, model.card(), &model.engine().clone(), watch)?;
        let controls = self.open_controls(&request.controls)?;
        control::named(&mut plan.controls, &controls);
        model.steer(controls)?;
        let mut loras = request.loras.clone();
        loras.extend(self.named_adapters(&plan)?);
        model.wear(&open_loras(&loras)?, plan.lora_application, watch)?;
        plan.loras = model.worn().to_vec();
        model.teach(&request.embeddings)?;
        plan.embeddings = model.learned().to_vec();
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
        let forecast = memory::settle(&mut plan, model, request.tiling, request.memory_limit)?;
        Ok((plan, forecast))
    }
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
    /// Whether the parts stay for the next picture, all of them at once.
    stays: bool,
    latents: Option<Tensor>,
    canvas: Option<Canvas>,
    maps: Vec<Tensor>,
}

fn lay(image: &Given, mask: Option<&Given>, plan: &Plan) -> Result<Canvas> {
    Canvas::lay(&image.photo, mask.map(|mask| &mask.photo), plan)
}

/// Draws, and lets all parts go however that ends.
fn draw(
    model: &mut Model,
    plan: &Plan,
    begin: Begin,
    watch: &mut Watch<'_>,
    finished: impl FnMut(usize, &Picture) -> Result<()>,
) -> Result<()> {
    let drawn = draw_all(model, plan, begin, watch, finished);
    if model.residency() == Residency::Phase {
        model.close();
    }
    drawn
}

/// One picture after the other, seeds counting up; the prompt and a given picture are read once.
fn draw_all(
    model: &mut Model,
    plan: &Plan,
    begin: Begin,
    watch: &mut Watch<'_>,
    mut finished: impl FnMut(usize, &Picture) -> Result<()>,
) -> Result<()> {
    let Begin { count, stays, latents, canvas, maps } = begin;
    model.begin_digests();
    let told = encode(plan, model, watch)?;
    let seen = canvas.as_ref().map(|canvas| Seen::look(canvas, plan, model, watch)).transpose()?;
    for index in 0..count {
        let mut plan = Plan { seed: plan.seed.wrapping_add(index as u64), ..plan.clone() };
        let residency = if stays && index + 1 < count { Residency::Stay } else { model.residency() };
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
        if !plan.embeddings.is_empty() {
            let hash = |taught: &Taught| {
                format!("{}: {}", taught.word, &taught.sha256[..taught.sha256.len().min(12)])
            };
            let hashes: Vec<_> = plan.embeddings.iter().map(hash).collect();
            extra.push(("TI hashes".to_owned(), hashes.join(", ")));
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
            size: Some(plan.result_size().map(pixels).into()),
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
