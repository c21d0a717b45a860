//! Recognises Stable Diffusion 1.x, 2.x and XL and reads the facts off its files.

use serde_json::{Value, json};

use super::super::contract::{Beside, Card, Evidence, Fact, Grain, Sizes, Task};
use super::super::parts::Parts;
use super::config::UnetConfig;
use super::{CodecConfig, Encoder, StableDiffusion, shapes};
use crate::codec::{KlConfig, TinyConfig};
use crate::diffusion::Settings;
use crate::error::{Code, Error, Result};
use crate::text::{ClipConfig, Tokenizer};
use crate::weights::{Config, Folder};

/// Pipelines of diffusers that are this network with this encoder.
const PIPELINES: &[&str] = &[
    "StableDiffusionPipeline",
    "StableDiffusionImg2ImgPipeline",
    "StableDiffusionInpaintPipeline",
    "StableDiffusionInstructPix2PixPipeline",
    "LatentConsistencyModelPipeline",
    "LatentConsistencyModelImg2ImgPipeline",
    "StableDiffusionXLPipeline",
    "StableDiffusionXLImg2ImgPipeline",
    "StableDiffusionXLInpaintPipeline",
    UPSCALER,
];
const UPSCALER: &str = "StableDiffusionUpscalePipeline";
/// The scale of the upscaler's latents, which diffusers' pipeline insists on.
pub(super) const UPSCALER_SCALE: f64 = 0.08333;

/// `None` if these are files of another family.
///
/// # Errors
/// If they are this family's, but broken, or ask for what we do not have.
pub(super) fn detect(parts: &Parts) -> Result<Option<StableDiffusion>> {
    match parts.configs() {
        Some(folder) if !PIPELINES.contains(&folder.class()) => Ok(None),
        Some(folder) => from_configs(parts, folder).map(Some),
        None => shapes::read(parts).map(Some),
    }
}

/// The tokenizer of a component that stands beside the encoder, or CLIP's own.
///
/// # Errors
/// `tokenizer_invalid`; `model_incompatible` if an id does not fit the encoder.
pub fn tokenizer(parts: &Parts, component: &str, text: &ClipConfig) -> Result<Tokenizer> {
    let config = match parts.file(component, "tokenizer_config.json")? {
        Some(bytes) => Some(Config::read(&bytes, format!("{component}/tokenizer_config.json"))?.value),
        None => None,
    };
    let file = |name: &str| parts.file(component, name);
    let tokenizer = match (file("vocab.json")?, file("merges.txt")?, file("tokenizer.json")?) {
        (Some(vocab), Some(merges), None) => Tokenizer::from_merges(&vocab, &merges, config.as_ref())?,
        (_, _, Some(whole)) => Tokenizer::from_json(&whole, config.as_ref())?,
        _ if parts.configs().is_some_and(|folder| folder.component(component).is_some()) => {
            let message = format!("`{component}` has neither vocab.json and merges.txt nor tokenizer.json");
            return Err(Error::new(Code::ModelNotDownloaded, message));
        }
        _ => Tokenizer::clip(text.width != 768)?,
    };
    if tokenizer.vocabulary() > text.vocabulary || tokenizer.length() > text.positions {
        let message = format!(
            "the tokenizer has {} ids and {} positions; the text encoder has {} and {}",
            tokenizer.vocabulary(),
            tokenizer.length(),
            text.vocabulary,
            text.positions,
        );
        return Err(Error::new(Code::ModelIncompatible, message));
    }
    Ok(tokenizer)
}

/// Everything from the configs that came with the weights.
fn from_configs(parts: &Parts, folder: &Folder) -> Result<StableDiffusion> {
    let unsupported = |what: String| Error::new(Code::ModelUnsupported, what);
    let encoders = TEXTS.iter().filter(|[name, _]| folder.component(name).is_some());
    let encoders: Vec<[&'static str; 2]> = encoders.copied().collect();
    let first = encoders.first().map_or("text_encoder", |[name, _]| name);
    let named = encoders.iter().skip(1).map(|[name, _]| (*name, ENCODERS));
    for (name, classes) in [("unet", UNETS), ("vae", CODECS), (first, ENCODERS)].into_iter().chain(named) {
        let Some(component) = folder.component(name) else {
            return Err(Error::new(
                Code::ModelIncompatible,
                format!("model_index.json has no component `{name}`"),
            ));
        };
        if !classes.contains(&component.class.as_str()) {
            let message = format!("`{name}` is a {}; known here: {}", component.class, classes.join(", "));
            return Err(unsupported(message));
        }
    }
    let unet = UnetConfig::read(&folder.config("unet")?)?;
    let codec = folder.config("vae")?;
    let tiny = folder.component("vae").is_some_and(|component| component.class == "AutoencoderTiny");
    let codec = if tiny {
        CodecConfig::Tiny(TinyConfig::read(&codec)?)
    } else {
        let read = KlConfig::read(&codec)?;
        let scale = if folder.class() == UPSCALER { UPSCALER_SCALE } else { read.scale };
        CodecConfig::Kl(KlConfig { scale, ..read })
    };
    let mut texts = Vec::with_capacity(encoders.len());
    for components in encoders {
        let config = folder.config(components[0])?;
        let projects = folder.component(components[0]).is_some_and(|it| it.class == PROJECTING);
        let config =
            if projects { ClipConfig::with_projection(&config)? } else { ClipConfig::read(&config)? };
        texts.push(Encoder { components, config });
    }
    let sample = folder.config("unet")?.opt_usize("sample_size", 1..=4096)?.unwrap_or(64);
    let side = Fact::new(sample, Evidence::Config("unet/config.json sample_size".into()));
    let scheduler = folder.config("scheduler")?;
    let Some(class) = folder.component("scheduler").map(|component| component.class.clone()) else {
        return Err(Error::new(Code::ModelIncompatible, "model_index.json has no component `scheduler`"));
    };
    let mut scheduler = as_pipelines_do(folder.class(), &scheduler.value);
    let mut because = Evidence::Config("scheduler/scheduler_config.json".into());
    let by_user = |told: &&Fact<String>| matches!(told.because, Evidence::User(_));
    if let Some(told) = parts.what_is_told().prediction.as_ref().filter(by_user) {
        scheduler["prediction_type"] = json!(prediction_type(&told.value)?);
        because = told.because.clone();
    }
    let sampler = Fact::new(Settings::read(Some(&class), &scheduler)?, because);
    let silent = folder.index().opt_bool("force_zeros_for_empty_prompt")?.unwrap_or(true);
    let grain = grain(folder)?;
    assemble(parts, Found { unet, texts, codec, side, sampler, silent, grain })
}

/// The noise that an upscaler's folder says is put on a given picture.
fn grain(folder: &Folder) -> Result<Option<Grain>> {
    const SCHEDULER: &str = "low_res_scheduler";
    let Some(component) = folder.component(SCHEDULER) else { return Ok(None) };
    let schedule = Settings::read(Some(&component.class), &folder.config(SCHEDULER)?.value)?;
    let most = folder.index().opt_usize("max_noise_level", 0..=1 << 16)?.unwrap_or(GRAIN_MOST);
    Ok(Some(Grain { schedule, usual: GRAIN.min(most), most }))
}

/// The noise level of diffusers' upscaling pipeline, and the highest.
pub(super) const GRAIN: usize = 20;
pub(super) const GRAIN_MOST: usize = 350;

/// Text encoders by their components, each with that of its tokenizer.
pub(super) const TEXTS: &[[&str; 2]] = &[["text_encoder", "tokenizer"], ["text_encoder_2", "tokenizer_2"]];
const PROJECTING: &str = "CLIPTextModelWithProjection";
const UNETS: &[&str] = &["UNet2DConditionModel"];
const CODECS: &[&str] = &["AutoencoderKL", "AutoencoderTiny"];
const ENCODERS: &[&str] = &["CLIPTextModel", PROJECTING];

/// What diffusers' pipelines change in a scheduler's config when they are constructed.
///
/// # Source
/// `huggingface/diffusers src/diffusers/pipelines/stable_diffusion/pipeline_stable_diffusion.py`, `__init__`.
fn as_pipelines_do(pipeline: &str, scheduler: &Value) -> Value {
    let mut scheduler = scheduler.clone();
    match pipeline {
        "StableDiffusionPipeline" | "StableDiffusionImg2ImgPipeline" => {
            scheduler["steps_offset"] = json!(1);
            if scheduler["clip_sample"] == true || scheduler.get("clip_sample").is_none() {
                scheduler["clip_sample"] = json!(false);
            }
        }
        "StableDiffusionInpaintPipeline" => {
            scheduler["steps_offset"] = json!(1);
            if scheduler.get("skip_prk_steps").is_some() {
                scheduler["skip_prk_steps"] = json!(true);
            }
        }
        _ => {}
    }
    scheduler
}

pub(super) const EPSILON: &str = "epsilon";
pub(super) const V: &str = "v_prediction";

/// What schedulers call a prediction that somebody named.
pub(super) fn prediction_type(told: &str) -> Result<&'static str> {
    match told {
        "epsilon" => Ok(EPSILON),
        "v" => Ok(V),
        "sample" => Ok("sample"),
        other => Err(Error::argument(
            "prediction",
            format!("Stable Diffusion predicts epsilon, v or sample, not {other}"),
        )),
    }
}

/// What was read, by whichever way.
pub(super) struct Found {
    pub(super) unet: UnetConfig,
    pub(super) texts: Vec<Encoder>,
    pub(super) codec: CodecConfig,
    pub(super) side: Fact<usize>,
    pub(super) sampler: Fact<Settings>,
    pub(super) silent: bool,
    pub(super) grain: Option<Grain>,
}

/// Checks that the parts fit each other and writes the card.
pub(super) fn assemble(parts: &Parts, found: Found) -> Result<StableDiffusion> {
    let Found { unet, texts, codec, side, sampler, silent, grain } = found;
    let width: usize = texts.iter().map(|text| text.config.width).sum();
    let (latent, factor) = match &codec {
        CodecConfig::Kl(config) => (config.latent, config.factor()),
        CodecConfig::Tiny(config) => (config.latent, config.factor()),
    };
    let beside = beside(&unet, latent, grain.as_ref())?;
    if let Some(level) = unet.levels.iter().find(|level| level.context != width) {
        let message =
            format!("the denoiser listens to {} channels of text; the encoder gives {width}", level.context);
        return Err(Error::new(Code::ModelIncompatible, message));
    }
    let sizes = sizes(&unet, texts.last())?;
    let is_xl = sizes != Sizes::None;
    let hears_guidance = unet.guidance.is_some();
    let variant = match (hears_guidance, width) {
        _ if beside == Beside::Pixels => ("x4 upscaler", "conv_in takes a latent and a picture"),
        _ if sizes == Sizes::Score => ("refiner", "add_embedding hears five numbers"),
        _ if is_xl && beside == Beside::Masked => ("inpaint", "conv_in takes two latents and a mask"),
        _ if is_xl => ("base", "add_embedding hears six numbers"),
        (true, _) => ("latent consistency", "time_embedding.cond_proj is there"),
        (false, _) if beside == Beside::Picture => ("instruct-pix2pix", "conv_in takes two latents"),
        (false, 1024) => ("stable-diffusion 2", "text of 1024 channels"),
        (false, 768) => ("stable-diffusion 1", "text of 768 channels"),
        (false, _) => ("stable-diffusion form", "a U-net with CLIP of its own size"),
    };
    let variant = Fact::new(variant.0.into(), Evidence::Tensor(variant.1.into()));
    let variant = match &parts.what_is_told().variant {
        Some(told) => agreed(told, &variant)?,
        None => variant,
    };
    let (steps, guidance) = defaults(parts, pipeline(hears_guidance, is_xl, beside))?;
    let size = parts.what_is_told().size.clone();
    if let Some(Fact { value: [width, height], .. }) = size
        && [width, height].iter().any(|side| *side == 0 || !side.is_multiple_of(factor))
    {
        return Err(Error::argument("size", format!("{width}x{height}: sides are multiples of {factor}")));
    }
    let card = Card {
        family: if is_xl { "stable-diffusion-xl" } else { "stable-diffusion" },
        variant,
        tasks: match beside {
            Beside::Nothing if sizes != Sizes::Score => vec![Task::TextToImage, Task::ImageToImage],
            Beside::Nothing | Beside::Masked | Beside::Picture => vec![Task::ImageToImage],
            Beside::Pixels => vec![Task::ImageUpscale],
        },
        beside,
        latent_channels: latent,
        factor,
        size: size.unwrap_or_else(|| Fact::new([side.value * factor; 2], side.because)),
        steps,
        guidance,
        hears_guidance,
        sampler,
        // The penultimate state is where XL begins to count.
        text_layers: texts.iter().map(|text| text.config.layers).min().unwrap_or(0) - usize::from(is_xl),
        text_encoders: texts.len(),
        silent_negative: is_xl && silent,
        sizes,
        // The defaults of diffusers' pipelines.
        strength: if is_xl { [0.3, 0.9999] } else { [0.8, 1.0] },
        grain: grain.filter(|_| beside == Beside::Pixels),
        weighs_words: true,
    };
    Ok(StableDiffusion { card, unet, texts, codec })
}

/// What the denoiser sees beside the latent, by its channels.
fn beside(unet: &UnetConfig, latent: usize, grain: Option<&Grain>) -> Result<Beside> {
    const PIXELS: usize = 3;
    let kinds = [
        (latent, Beside::Nothing),
        (2 * latent + 1, Beside::Masked),
        (2 * latent, Beside::Picture),
        (latent + PIXELS, Beside::Pixels),
    ];
    let fits = |(input, _): &(usize, Beside)| unet.input == *input && unet.output == latent;
    let hears_grain = unet.grains.is_some() && grain.is_some();
    match kinds.into_iter().find(fits) {
        Some((_, beside))
            if (beside == Beside::Pixels) == hears_grain && hears_grain == unet.grains.is_some() =>
        {
            Ok(beside)
        }
        Some((_, Beside::Pixels)) => Err(Error::new(
            Code::ModelUnsupported,
            "the denoiser sees a picture's pixels, but hears nothing of the noise on them",
        )),
        Some(_) => Err(Error::new(
            Code::ModelUnsupported,
            "the denoiser hears a class (num_class_embeds), and nothing says what the classes are",
        )),
        None => {
            let message = format!(
                "the denoiser takes {} and gives {} channels; latents of this codec have {latent}: depth models are \
                 not read yet",
                unet.input, unet.output
            );
            Err(Error::new(Code::ModelUnsupported, message))
        }
    }
}

/// Which sizes the denoiser hears, by the width that the whole prompt leaves for them.
fn sizes(unet: &UnetConfig, last: Option<&Encoder>) -> Result<Sizes> {
    let Some(added) = unet.added else { return Ok(Sizes::None) };
    let pooled = last.map_or(0, |text| text.config.projection.unwrap_or(text.config.width));
    match added.width.checked_sub(pooled).map(|rest| (rest / added.size, rest % added.size)) {
        Some((6, 0)) => Ok(Sizes::Target),
        Some((5, 0)) => Ok(Sizes::Score),
        _ => {
            let message = format!(
                "the denoiser hears {} numbers beside the time; the prompt has {pooled} and a size {}",
                added.width, added.size
            );
            Err(Error::new(Code::ModelIncompatible, message))
        }
    }
}

/// What the user says of the variant, unless the tensors say that it is another.
fn agreed(told: &Fact<String>, found: &Fact<String>) -> Result<Fact<String>> {
    let runs = match told.value.as_str() {
        "1" | "1 inpaint" => Some("stable-diffusion 1"),
        "2" | "2 inpaint" => Some("stable-diffusion 2"),
        "1 instruct-pix2pix" => Some("instruct-pix2pix"),
        "base" | "v-prediction" => Some("base"),
        "latent consistency" => Some("latent consistency"),
        "inpaint" => Some("inpaint"),
        "x4 upscaler" => Some("x4 upscaler"),
        "refiner" => Some("refiner"),
        _ => None,
    };
    let fits = |name: &&str| {
        let of_its_own_size = found.value == "stable-diffusion form" && name.starts_with("stable-diffusion ");
        found.value == *name || of_its_own_size
    };
    let Some(name) = runs.filter(fits) else {
        let message = format!(
            "the user says that it is variant `{}` of stable-diffusion; its tensors are those of {}",
            told.value, found.value
        );
        return Err(Error::new(Code::ModelIncompatible, message)
            .hint("import it again without --set variant=…, under another --name or after `latentia rm`"));
    };
    Ok(Fact::new(name.into(), told.because.clone()))
}

/// Defaults that the makers of a model recommend, beside its index.
const DEFAULTS: &str = "latentia.json";

/// What the makers say of steps and guidance, else what the pipeline of diffusers does.
fn defaults(
    parts: &Parts,
    (steps, guidance, pipeline): (usize, f64, &str),
) -> Result<(Fact<usize>, Fact<f64>)> {
    let said = match parts.configs() {
        Some(folder) => folder.settings(DEFAULTS)?,
        None => None,
    };
    let asked = |key: &str| said.as_ref().filter(|config| config.field(key).is_some());
    let manifest = || Evidence::Manifest(DEFAULTS.into());
    let custom = || Evidence::Assumed(format!("the default of diffusers' {pipeline}"));
    let steps = match asked("steps") {
        Some(config) => Fact::new(config.usize("steps", 1..=500)?, manifest()),
        None => Fact::new(steps, custom()),
    };
    let guidance = match asked("guidance") {
        Some(config) => Fact::new(config.number("guidance", 0.0..=100.0)?, manifest()),
        None => Fact::new(guidance, custom()),
    };
    Ok((steps, guidance))
}

/// Steps and guidance of the pipeline that draws with such a network, and its name.
fn pipeline(hears_guidance: bool, is_xl: bool, beside: Beside) -> (usize, f64, &'static str) {
    match beside {
        _ if hears_guidance => (4, 8.5, "LatentConsistencyModelPipeline"),
        _ if is_xl => (50, 5.0, "StableDiffusionXLPipeline"),
        Beside::Nothing => (50, 7.5, "StableDiffusionPipeline"),
        Beside::Masked => (50, 7.5, "StableDiffusionInpaintPipeline"),
        Beside::Picture => (100, 7.5, "StableDiffusionInstructPix2PixPipeline"),
        Beside::Pixels => (75, 9.0, UPSCALER),
    }
}
