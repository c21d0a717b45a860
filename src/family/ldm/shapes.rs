//! Reads Stable Diffusion off its tensors, where no config came with them.

use serde_json::json;

use super::super::contract::{Evidence, Fact, Grain};
use super::super::parts::Parts;
use super::config::UnetConfig;
use super::detect::{EPSILON, Found, GRAIN, GRAIN_MOST, TEXTS, UPSCALER_SCALE, V, assemble, prediction_type};
use super::{CodecConfig, Encoder, StableDiffusion};
use crate::codec::KlConfig;
use crate::diffusion::Settings;
use crate::error::{Code, Error, Result};
use crate::text::ClipConfig;

/// Everything from the tensors, and what no tensor tells as it was published.
pub(super) fn read(parts: &Parts) -> Result<StableDiffusion> {
    let unet = parts.weights("unet")?;
    let config = UnetConfig::from_shapes(unet.inventory())?;
    let codec = KlConfig::from_shapes(parts.weights("vae")?.inventory())?;
    let mut texts = Vec::new();
    for &components in TEXTS.iter().filter(|[name, _]| parts.components().contains(name)) {
        let config = ClipConfig::from_shapes(parts.weights(components[0])?.inventory())?;
        texts.push(Encoder { components, config });
    }
    if config.added.is_some() {
        return read_xl(parts, config, codec, texts);
    }
    let codec = CodecConfig::Kl(codec);
    let [Encoder { config: text, .. }] = texts.as_slice() else {
        return Err(parts.weights("text_encoder").err().unwrap_or_else(|| {
            Error::new(Code::ModelIncompatible, "Stable Diffusion 1 and 2 have one text encoder")
        }));
    };
    if config.grains.is_some() {
        return read_upscaler(parts, config, codec, texts);
    }
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
    // Twice the codec's channels: instruct-pix2pix, published with Euler's ancestral sampler.
    let class =
        if config.input == 2 * config.output { "EulerAncestralDiscreteScheduler" } else { "PNDMScheduler" };
    let sampler = Fact::new(Settings::read(Some(class), &scheduler)?, because.clone());
    let side = Fact::new(sample, because);
    assemble(parts, Found { unet: config, texts, codec, side, sampler, silent: false, grain: None })
}

/// The upscaler of Stable Diffusion 2, which was published in one form.
///
/// # Source
/// `stabilityai/stable-diffusion-x4-upscaler`: `scheduler`, `low_res_scheduler` and `unet/config.json`.
fn read_upscaler(
    parts: &Parts,
    unet: UnetConfig,
    codec: CodecConfig,
    texts: Vec<Encoder>,
) -> Result<StableDiffusion> {
    let because = || Evidence::Assumed("the x4 upscaler was published with this schedule".into());
    let betas = json!({
        "beta_start": 0.0001, "beta_end": 0.02, "beta_schedule": "scaled_linear", "num_train_timesteps": 1000,
    });
    let (mut scheduler, told) = (betas.clone(), &parts.what_is_told().prediction);
    let (prediction, why) = match told {
        Some(told) => (prediction_type(&told.value)?, told.because.clone()),
        None => (V, because()),
    };
    scheduler["prediction_type"] = prediction.into();
    scheduler["clip_sample"] = false.into();
    scheduler["set_alpha_to_one"] = false.into();
    scheduler["steps_offset"] = 1.into();
    let codec = match codec {
        CodecConfig::Kl(config) => CodecConfig::Kl(KlConfig { scale: UPSCALER_SCALE, ..config }),
        tiny @ CodecConfig::Tiny(_) => tiny,
    };
    let grain =
        Grain { schedule: Settings::read(Some("DDPMScheduler"), &betas)?, usual: GRAIN, most: GRAIN_MOST };
    let found = Found {
        unet,
        texts,
        codec,
        side: Fact::new(128, because()),
        sampler: Fact::new(Settings::read(Some("DDIMScheduler"), &scheduler)?, why),
        silent: false,
        grain: Some(grain),
    };
    assemble(parts, found)
}

/// Stable Diffusion XL from its tensors: two of them may say by being there that it predicts v, and from pure noise.
///
/// # Source
/// `models.md` 2.1 and 3.2: the published configs of base and refiner, and what v-prediction finetunes carry.
fn read_xl(parts: &Parts, unet: UnetConfig, codec: KlConfig, texts: Vec<Encoder>) -> Result<StableDiffusion> {
    for marker in ["edm_mean", "edm_vpred.sigma_max"] {
        if parts.is_marked(marker) {
            let message = format!("`{marker}` says that this model has a schedule that is not read yet");
            return Err(Error::new(Code::ModelUnsupported, message));
        }
    }
    let marked = parts.is_marked("v_pred").then_some((V, Evidence::Tensor("v_pred".into())));
    let (prediction, because) = match (&parts.what_is_told().prediction, marked) {
        (Some(told), None) => (prediction_type(&told.value)?, told.because.clone()),
        (Some(told), Some(_)) if matches!(told.because, Evidence::User(_)) => {
            (prediction_type(&told.value)?, told.because.clone())
        }
        (_, Some(marked)) => marked,
        (None, None) => (EPSILON, Evidence::Assumed("Stable Diffusion XL predicts noise".into())),
    };
    let to_noise = parts.is_marked("ztsnr");
    let scheduler = json!({
        "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "num_train_timesteps": 1000,
        "prediction_type": prediction, "steps_offset": 1, "rescale_betas_zero_snr": to_noise,
        "timestep_spacing": if to_noise { "trailing" } else { "leading" },
    });
    let sampler = Fact::new(Settings::read(Some("EulerDiscreteScheduler"), &scheduler)?, because);
    let side = Fact::new(128, Evidence::Assumed("Stable Diffusion XL was trained at 1024x1024".into()));
    // The refiner, which has one encoder, was trained with the words of an empty prompt.
    let silent = texts.len() > 1;
    let codec = CodecConfig::Kl(KlConfig { scale: 0.13025, ..codec });
    assemble(parts, Found { unet, texts, codec, side, sampler, silent, grain: None })
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
