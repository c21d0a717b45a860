//! Recognises Stable Diffusion 1.x and 2.x and reads the facts off its files.

use serde_json::{Value, json};

use super::super::contract::{Card, Evidence, Fact, Task};
use super::super::parts::Parts;
use super::config::UnetConfig;
use super::{CodecConfig, StableDiffusion};
use crate::codec::{KlConfig, TinyConfig};
use crate::diffusion::Settings;
use crate::error::{Code, Error, Result};
use crate::text::{ClipConfig, Tokenizer};
use crate::weights::{Config, Folder};

/// Pipelines of diffusers that are this network with this encoder.
const PIPELINES: &[&str] = &["StableDiffusionPipeline", "LatentConsistencyModelPipeline"];

/// `None` if these are files of another family.
///
/// # Errors
/// If they are this family's, but broken, or ask for what we do not have.
pub(super) fn detect(parts: &Parts) -> Result<Option<StableDiffusion>> {
    match parts.configs() {
        Some(folder) if !PIPELINES.contains(&folder.class()) => Ok(None),
        Some(folder) => from_configs(parts, folder).map(Some),
        None => from_shapes(parts).map(Some),
    }
}

/// The tokenizer that stands beside the encoder, or CLIP's own.
///
/// # Errors
/// `tokenizer_invalid`; `model_incompatible` if an id does not fit the encoder.
pub fn tokenizer(parts: &Parts, text: &ClipConfig) -> Result<Tokenizer> {
    let config = match parts.file("tokenizer", "tokenizer_config.json")? {
        Some(bytes) => Some(Config::read(&bytes, "tokenizer/tokenizer_config.json")?.value),
        None => None,
    };
    let file = |name: &str| parts.file("tokenizer", name);
    let tokenizer = match (file("vocab.json")?, file("merges.txt")?, file("tokenizer.json")?) {
        (Some(vocab), Some(merges), None) => Tokenizer::from_merges(&vocab, &merges, config.as_ref())?,
        (_, _, Some(whole)) => Tokenizer::from_json(&whole, config.as_ref())?,
        _ if parts.configs().is_some_and(|folder| folder.component("tokenizer").is_some()) => {
            return Err(Error::new(
                Code::ModelNotDownloaded,
                "`tokenizer` has neither vocab.json and merges.txt nor tokenizer.json",
            ));
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
    for (name, classes) in [("unet", UNETS), ("vae", CODECS), ("text_encoder", ENCODERS)] {
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
        CodecConfig::Kl(KlConfig::read(&codec)?)
    };
    let text = ClipConfig::read(&folder.config("text_encoder")?)?;
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
    assemble(parts, Found { unet, text, codec, side, sampler })
}

const UNETS: &[&str] = &["UNet2DConditionModel"];
const CODECS: &[&str] = &["AutoencoderKL", "AutoencoderTiny"];
const ENCODERS: &[&str] = &["CLIPTextModel"];

/// What diffusers' pipelines change in a scheduler's config when they are constructed.
///
/// # Source
/// `huggingface/diffusers src/diffusers/pipelines/stable_diffusion/pipeline_stable_diffusion.py`, `__init__`.
fn as_pipelines_do(pipeline: &str, scheduler: &Value) -> Value {
    let mut scheduler = scheduler.clone();
    if pipeline == "StableDiffusionPipeline" {
        scheduler["steps_offset"] = json!(1);
        if scheduler["clip_sample"] == true || scheduler.get("clip_sample").is_none() {
            scheduler["clip_sample"] = json!(false);
        }
    }
    scheduler
}

/// Everything from the tensors, and what no tensor tells as it was published.
fn from_shapes(parts: &Parts) -> Result<StableDiffusion> {
    let unet = parts.weights("unet")?;
    let config = UnetConfig::from_shapes(unet.inventory())?;
    let codec = CodecConfig::Kl(KlConfig::from_shapes(parts.weights("vae")?.inventory())?);
    let text = ClipConfig::from_shapes(parts.weights("text_encoder")?.inventory())?;
    let told = parts.what_is_told();
    let is_second = told.variant.as_ref().map_or(text.width == 1024, |told| told.value.starts_with('2'));
    // A note that somebody else left is weaker than the tensor that tells, where there is one.
    let has_probe = is_second && unet.inventory().has(PROBE);
    let heard = told.sure_prediction().or(told.prediction.as_ref().filter(|_| !has_probe));
    let (prediction, because) = match heard {
        Some(told) => (prediction_type(&told.value)?, told.because.clone()),
        None if is_second => {
            let (prediction, side) = if probe_v(&unet)? { (V, "above") } else { (EPSILON, "below") };
            (prediction, Evidence::Tensor(format!("{PROBE}: deviation {side} {PROBE_LIMIT}")))
        }
        None => (EPSILON, Evidence::Assumed("Stable Diffusion 1 predicts noise".into())),
    };
    let sample = if is_second && prediction == V { 96 } else { 64 };
    let scheduler = json!({
        "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "num_train_timesteps": 1000,
        "prediction_type": prediction, "set_alpha_to_one": false, "skip_prk_steps": true, "steps_offset": 1,
    });
    let sampler = Fact::new(Settings::read(Some("PNDMScheduler"), &scheduler)?, because.clone());
    assemble(parts, Found { unet: config, text, codec, side: Fact::new(sample, because), sampler })
}

const EPSILON: &str = "epsilon";
const V: &str = "v_prediction";

/// What schedulers call a prediction that somebody named.
fn prediction_type(told: &str) -> Result<&'static str> {
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

/// A bias whose spread tells v-prediction from noise prediction in Stable Diffusion 2.
///
/// # Source
/// `models.md` 3.2, an empirical rule of the field.
const PROBE: &str = "up_blocks.3.attentions.2.transformer_blocks.0.norm1.bias";
const PROBE_LIMIT: f64 = 0.09;

fn probe_v(unet: &crate::weights::Weights) -> Result<bool> {
    if !unet.inventory().has(PROBE) {
        return Err(Error::new(
            Code::ModelIncompatible,
            format!("no tensor `{PROBE}`: it tells v from noise prediction"),
        )
        .hint(
            "import it with --set prediction=epsilon or v, or give the folder of its configs with --config",
        ));
    }
    let bias =
        unet.tensor(PROBE, None, candle_core::DType::F32, &candle_core::Device::Cpu)?.to_vec1::<f32>()?;
    let count = bias.len() as f64;
    let mean = bias.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
    let variance = bias.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / count;
    Ok(variance.sqrt() > PROBE_LIMIT)
}

/// What was read, by whichever way.
struct Found {
    unet: UnetConfig,
    text: ClipConfig,
    codec: CodecConfig,
    side: Fact<usize>,
    sampler: Fact<Settings>,
}

/// Checks that the parts fit each other and writes the card.
fn assemble(parts: &Parts, found: Found) -> Result<StableDiffusion> {
    let Found { unet, text, codec, side, sampler } = found;
    let (latent, factor) = match &codec {
        CodecConfig::Kl(config) => (config.latent, config.factor()),
        CodecConfig::Tiny(config) => (config.latent, config.factor()),
    };
    if let Some(level) = unet.levels.iter().find(|level| level.context != text.width) {
        let message = format!(
            "the denoiser listens to {} channels of text; the encoder gives {}",
            level.context, text.width
        );
        return Err(Error::new(Code::ModelIncompatible, message));
    }
    if unet.input != latent || unet.output != latent {
        let message = format!(
            "the denoiser takes {} and gives {} channels; latents of this codec have {latent}: inpainting, editing \
             and upscaling models are not read yet",
            unet.input, unet.output
        );
        return Err(Error::new(Code::ModelUnsupported, message));
    }
    let hears_guidance = unet.guidance.is_some();
    let variant = match (hears_guidance, text.width) {
        (true, _) => ("latent consistency", "time_embedding.cond_proj is there"),
        (false, 1024) => ("stable-diffusion 2", "text of 1024 channels"),
        (false, 768) => ("stable-diffusion 1", "text of 768 channels"),
        (false, _) => ("stable-diffusion form", "a U-net with CLIP of its own size"),
    };
    let variant = Fact::new(variant.0.into(), Evidence::Tensor(variant.1.into()));
    let variant = match &parts.what_is_told().variant {
        Some(told) => agreed(told, &variant)?,
        None => variant,
    };
    let defaults = defaults(parts)?;
    let asked = |key: &str| defaults.as_ref().filter(|config| config.field(key).is_some());
    let manifest = || Evidence::Manifest(DEFAULTS.into());
    let custom = |pipeline: &str| Evidence::Assumed(format!("the default of diffusers' {pipeline}"));
    let (steps, guidance, pipeline) = if hears_guidance {
        (4, 8.5, "LatentConsistencyModelPipeline")
    } else {
        (50, 7.5, "StableDiffusionPipeline")
    };
    let steps = match asked("steps") {
        Some(config) => Fact::new(config.usize("steps", 1..=500)?, manifest()),
        None => Fact::new(steps, custom(pipeline)),
    };
    let guidance = match asked("guidance") {
        Some(config) => Fact::new(config.number("guidance", 0.0..=100.0)?, manifest()),
        None => Fact::new(guidance, custom(pipeline)),
    };
    let size = parts.what_is_told().size.clone();
    if let Some(Fact { value: [width, height], .. }) = size
        && [width, height].iter().any(|side| *side == 0 || !side.is_multiple_of(factor))
    {
        return Err(Error::argument("size", format!("{width}x{height}: sides are multiples of {factor}")));
    }
    let card = Card {
        family: "stable-diffusion",
        variant,
        tasks: vec![Task::TextToImage],
        latent_channels: latent,
        factor,
        size: size.unwrap_or_else(|| Fact::new([side.value * factor; 2], side.because)),
        steps,
        guidance,
        hears_guidance,
        sampler,
        text_layers: text.layers,
    };
    Ok(StableDiffusion { card, unet, text, codec })
}

/// What the user says of the variant, unless the tensors say that it is another.
fn agreed(told: &Fact<String>, found: &Fact<String>) -> Result<Fact<String>> {
    let runs = match told.value.as_str() {
        "1" => Some("stable-diffusion 1"),
        "2" => Some("stable-diffusion 2"),
        "latent consistency" => Some("latent consistency"),
        _ => None,
    };
    let fits = |name: &&str| {
        found.value == *name || (found.value == "stable-diffusion form" && *name != "latent consistency")
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

fn defaults(parts: &Parts) -> Result<Option<Config>> {
    let Some(folder) = parts.configs() else { return Ok(None) };
    folder.settings(DEFAULTS)
}
