//! Pipelines against diffusers, stage by stage and end to end: whatever family folders the fixtures hold.

use std::path::Path;

use candle_core::{D, DType, Device, Tensor};
use latentia::codec::{AutoencoderKl, AutoencoderTiny, Codec, KlConfig, TinyConfig};
use latentia::diffusion::{Level, Noise, Settings, Visit, sample_visited};
use latentia::event::Watch;
use latentia::family::Parts;
use latentia::family::ldm::config::UnetConfig;
use latentia::family::ldm::{Heard, Unet, tokenizer};
use latentia::text::{ClipConfig, ClipText, TextEncoder};
use latentia::weights::{Application, Config, Folder, Lora, Weights};

use crate::fixtures;
use crate::golden::{Account, Case, Outcome, cases, close, distance, name};
use crate::golden_control;
use crate::golden_whole::whole;

/// Pipelines that we have; the others are listed as not yet supported.
const PIPELINES: &[&str] = &[
    "StableDiffusionPipeline",
    "StableDiffusionImg2ImgPipeline",
    "StableDiffusionInpaintPipeline",
    "StableDiffusionInstructPix2PixPipeline",
    "LatentConsistencyModelPipeline",
    "StableDiffusionXLPipeline",
    "StableDiffusionXLImg2ImgPipeline",
    "StableDiffusionXLInpaintPipeline",
    "StableDiffusionUpscalePipeline",
    "StableDiffusionControlNetPipeline",
    "StableDiffusionControlNetImg2ImgPipeline",
    "StableDiffusionXLControlNetPipeline",
];
/// What `case.json` may say; anything else is an adapter that we do not have.
const KEYS: &[&str] = &[
    "family",
    "case",
    "model",
    "pipeline_class",
    "call",
    "seed",
    "noise_draws",
    "scheduler",
    "output",
    "output_shape",
    "notes",
    "versions",
    "lora",
    "same_golden_for",
    "controlnet",
];

pub(crate) fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[test]
fn golden_pipelines() {
    let mut failures = Vec::new();
    for family in fixtures::families() {
        let mut account = Account::default();
        let mut any = false;
        for folder in cases(&family) {
            let name = name(&folder);
            let Some(fared) = case(&folder) else { continue };
            any = true;
            match fared {
                Fared::Ran(outcome) => account.note(&name, outcome),
                Fared::NotYet => account.unsupported(&name),
            }
        }
        if any {
            failures.extend(account.print(&crate::golden::name(&family)));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// How a case fared.
enum Fared {
    Ran(Outcome),
    NotYet,
}

/// The outcome of a case; `None` if it is no case of a pipeline.
fn case(folder: &Path) -> Option<Fared> {
    let json = fixtures::read_json(&folder.join("case.json")).ok()?;
    if json["class"] == "AutoencoderTiny" {
        return Some(Fared::Ran(Case::open(folder).and_then(|case| tiny(&case))));
    }
    if json.get("same_weights_as").is_some() {
        let golden = folder.join(json["golden"].as_str()?).parent()?.to_owned();
        let class = fixtures::read_json(&golden.join("case.json")).ok()?;
        if !PIPELINES.contains(&class["pipeline_class"].as_str()?) {
            return Some(Fared::NotYet);
        }
        let file = folder.join(json["file"].as_str().unwrap_or_default());
        let configs = folder.join(json["same_weights_as"].as_str().unwrap_or_default());
        let parts = Parts::open(&file, Some(&configs)).map_err(said);
        return Some(Fared::Ran(parts.and_then(|parts| whole(&Case::open(&golden)?, parts, &[]))));
    }
    let pipeline = json["pipeline_class"].as_str()?;
    let ours = json.as_object()?.keys().all(|key| KEYS.contains(&key.as_str()));
    if !ours || !PIPELINES.contains(&pipeline) {
        return Some(Fared::NotYet);
    }
    Some(Fared::Ran(Case::open(folder).and_then(|case| stages(&case))))
}

/// Every stage with the golden input, then the whole.
fn stages(case: &Case) -> Outcome {
    let path = case.path("model").ok_or("no model")?;
    let plain = Parts::open(&path, None).map_err(said)?;
    let parts = plain.changed(&loras(case)?, Application::Fused).map_err(said)?.0;
    let told = text(case, &parts)?;
    schedule(case)?;
    steps(case)?;
    golden_control::calls(case, &told.context, &told.pooled)?;
    unet(case, &parts, &told)?;
    vae(case, &parts)?;
    whole(case, plain.clone(), &case.loras())?;
    match case.path("same_golden_for") {
        Some(file) => whole(case, plain, &[(file, case.loras()[0].1)]),
        None => Ok(()),
    }
}

/// The files of changes of a case, with their strengths.
fn loras(case: &Case) -> Result<Vec<(Lora, f64)>, String> {
    case.loras().iter().map(|(path, scale)| Ok((Lora::open(path).map_err(said)?, *scale))).collect()
}

fn configs(parts: &Parts) -> Result<&Folder, String> {
    parts.configs().ok_or_else(|| "no configs".to_owned())
}

/// What the denoiser is told of the prompts: the tokens of all encoders, and the whole prompts of the last.
struct Told {
    context: Tensor,
    pooled: Tensor,
}

/// Token ids and encoder states; hands back the rows that the denoiser is told.
fn text(case: &Case, parts: &Parts) -> Result<Told, String> {
    let folder = configs(parts)?;
    let mut told = None;
    for (name, words) in [("text_encoder", "tokenizer"), ("text_encoder_2", "tokenizer_2")] {
        if folder.component(name).is_none() {
            continue;
        }
        let next = encoder(case, parts, [name, words])?;
        told = Some(match told {
            Some(Told { context, .. }) => {
                let context = Tensor::cat(&[context, next.context], D::Minus1).map_err(said)?;
                Told { context, pooled: next.pooled }
            }
            None => next,
        });
    }
    let told = told.ok_or("no text encoder")?;
    if let Some(golden) = case.get("unet.00.in.encoder_hidden_states") {
        let rows = golden.dim(0).map_err(said)?;
        let (context, pooled) = (repeat(&told.context, rows)?, repeat(&told.pooled, rows)?);
        close("encoder_hidden_states", &context, golden, 1e-5)?;
        if let Some(golden) = case.get("unet.00.in.added_cond_kwargs.text_embeds") {
            close("text_embeds", &pooled, golden, 1e-5)?;
        }
        return Ok(Told { context, pooled });
    }
    Ok(told)
}

/// One encoder's rows.
fn encoder(case: &Case, parts: &Parts, [component, words]: [&str; 2]) -> Result<Told, String> {
    let folder = configs(parts)?;
    let is_xl = folder.component("text_encoder_2").is_some();
    let config = folder.config(component).map_err(said)?;
    let projects = folder.component(component).is_some_and(|it| it.class.ends_with("WithProjection"));
    let config = if projects { ClipConfig::with_projection(&config) } else { ClipConfig::read(&config) };
    let config = config.map_err(said)?;
    let vb = parts.weights(component).map_err(said)?.var_builder(DType::F32, &Device::Cpu);
    let encoder = ClipText::new(&config, &vb).map_err(said)?;
    let tokenizer = tokenizer(parts, words, &config).map_err(said)?;
    let mut rows = Vec::new();
    for (call, argument) in ["prompt", "negative_prompt"].into_iter().enumerate() {
        let stage = |what: &str| format!("{component}.{call:02}.{what}");
        let Some(ids) = case.get(&stage("in.input_ids")) else { break };
        let count = ids.dim(0).map_err(said)?;
        let second = format!("{argument}_2");
        let argument =
            if words == "tokenizer_2" && case.argument(&second).is_string() { &second } else { argument };
        let texts = case.texts(argument, count);
        let tokens =
            texts.iter().map(|text| tokenizer.encode(text)).collect::<Result<Vec<_>, _>>().map_err(said)?;
        let ours: Vec<u32> = tokens.iter().flat_map(|tokens| tokens.ids.clone()).collect();
        let golden: Vec<u32> =
            ids.to_dtype(DType::U32).and_then(|ids| ids.flatten_all()?.to_vec1()).map_err(said)?;
        if ours != golden {
            return Err(format!("token ids of {argument} differ: {ours:?} for {golden:?}"));
        }
        let features = encoder.encode(&tokens).map_err(said)?;
        let whole = if projects { "out.text_embeds" } else { "out.pooler_output" };
        let named = [(whole, &features.pooled), ("out.last_hidden_state", &features.last)];
        let layers = features.hidden.iter().enumerate();
        let layers = layers.map(|(layer, state)| (format!("out.hidden_states.{layer}"), state));
        for (key, state) in named.map(|(key, state)| (key.to_owned(), state)).into_iter().chain(layers) {
            if let Some(golden) = case.get(&stage(&key)) {
                close(&stage(&key), state, golden, 1e-5)?;
            }
        }
        let skip = if call == 0 { case.number("clip_skip").unwrap_or(0.0) as usize } else { 0 };
        let hidden = |skip: usize| &features.hidden[features.hidden.len() - 1 - skip];
        let state = match skip {
            _ if is_xl => hidden(skip + 1).clone(),
            0 => features.last.clone(),
            _ => encoder.finish(hidden(skip)).map_err(said)?,
        };
        rows.insert(0, (state, features.pooled));
    }
    // No negative prompt, and noughts in its place.
    let guided = case.number("guidance_scale").is_some_and(|scale| scale > 1.0);
    if let ([(state, pooled)], true, true) = (rows.as_slice(), is_xl, guided) {
        let silent = (state.zeros_like().map_err(said)?, pooled.zeros_like().map_err(said)?);
        rows.insert(0, silent);
    }
    // Instruct-pix2pix asks with the prompt first, then twice without.
    if case.number("image_guidance_scale").is_some() {
        rows = vec![rows[1].clone(), rows[0].clone(), rows[0].clone()];
    }
    let (context, pooled): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    let cat = |rows: &[Tensor]| Tensor::cat(rows, 0).map_err(said);
    Ok(Told { context: cat(&context)?, pooled: cat(&pooled)? })
}

/// Each row as often as several pictures of one prompt need it.
fn repeat(rows: &Tensor, count: usize) -> Result<Tensor, String> {
    let times = count / rows.dim(0).map_err(said)?.max(1);
    let index: Vec<u32> = (0..count).map(|row| (row / times.max(1)) as u32).collect();
    let index = Tensor::new(index, &Device::Cpu).map_err(said)?;
    rows.index_select(&index, 0).map_err(said)
}

/// The schedule of a case: its own, or that of the model's folder.
pub(crate) fn settings(case: &Case) -> Result<Settings, String> {
    let scheduler = &case.json["scheduler"];
    Settings::read(scheduler["class"].as_str(), &scheduler["config"]).map_err(said)
}

fn walk(case: &Case) -> Result<latentia::diffusion::Walk, String> {
    let steps = case.number("num_inference_steps").ok_or("no steps")? as usize;
    let options = latentia::diffusion::Options { eta: eta(case), ..Default::default() };
    let walk = settings(case)?.walk(steps, &options).map_err(said)?;
    let time = |share: f64| (1000.0 - share * 1000.0).round_ties_even();
    let (from, to) = (case.number("denoising_start").map(time), case.number("denoising_end").map(time));
    if from.or(to).is_some() {
        return walk.between(from, to).map_err(said);
    }
    let strength = case.number("strength").unwrap_or(1.0);
    walk.without_first(steps - (steps as f64 * strength) as usize).map_err(said)
}

/// `eta` counts for DDIM and TCD, where pipelines make it 0 by default; they drop it for the other schedulers.
pub(crate) fn eta(case: &Case) -> Option<f64> {
    match case.json["scheduler"]["class"].as_str() {
        Some("DDIMScheduler" | "TCDScheduler") => Some(case.number("eta").unwrap_or(0.0)),
        _ => None,
    }
}

fn schedule(case: &Case) -> Outcome {
    let walk = walk(case)?;
    let list = |values: &[f64]| Tensor::new(values, &Device::Cpu).map_err(said);
    for (key, ours) in [("sched.timesteps", walk.timesteps()), ("sched.sigmas", walk.sigmas.clone())] {
        if let Some(golden) = case.get(key) {
            close(key, &list(&ours)?, golden, 1e-5)?;
        }
    }
    if let Some(golden) = case.get("sched.init_noise_sigma") {
        let golden = golden.flatten_all().map_err(said)?;
        close("sched.init_noise_sigma", &list(&[walk.init_noise_sigma])?, &golden, 1e-5)?;
    }
    Ok(())
}

/// The sampler, fed the golden model outputs: every step must land where diffusers' did.
fn steps(case: &Case) -> Outcome {
    let walk = walk(case)?;
    let mut call = 0;
    let mut network = |_: &Tensor, _: &Level| {
        let output = case.get(&format!("step.{call:02}.model_output")).cloned();
        call += 1;
        output.ok_or_else(|| latentia::error::Error::internal("more calls than diffusers made"))
    };
    let mut failure = None;
    let begin = walk.visited()[0].step;
    let mut visitor = |visit: &Visit<'_>| {
        let step = visit.step - begin;
        if let Some(golden) = case.get(&format!("step.{step:02}.prev_sample")) {
            let outcome = close(&format!("step.{step:02}"), visit.x, golden, 1e-4);
            failure = failure.take().or(outcome.err());
        }
        // Where a mask was blended in, the next step began elsewhere.
        Ok(case.get(&format!("step.{:02}.sample", step + 1)).cloned())
    };
    let x = match case.tensor("latents") {
        Some(latents) => walk.start(latents).map_err(said)?,
        None => case.get("step.00.sample").ok_or("no first sample")?.clone(),
    };
    let mut noise = Noise::given(case.draws_in("step"));
    sample_visited(&mut network, x, &walk, &mut noise, &mut visitor, &mut Watch::quiet()).map_err(said)?;
    failure.map_or(Ok(()), Err)
}

fn unet(case: &Case, parts: &Parts, told: &Told) -> Outcome {
    let folder = configs(parts)?;
    let config = UnetConfig::read(&folder.config("unet").map_err(said)?).map_err(said)?;
    let vb = parts.weights("unet").map_err(said)?.var_builder(DType::F32, &Device::Cpu);
    let network = Unet::new(&config, &vb).map_err(said)?;
    let sizes = match case.get("unet.00.in.added_cond_kwargs.time_ids") {
        Some(ids) => ids.to_dtype(DType::F64).and_then(|ids| ids.to_vec2()).map_err(said)?,
        None => Vec::new(),
    };
    let heard = Heard {
        text: network.trunk().listen(&told.context).map_err(said)?,
        guidance: case.get("unet.00.in.timestep_cond").cloned(),
        added: match case.get("unet.00.in.class_labels") {
            Some(labels) => {
                let labels = labels.to_vec1::<i64>().map_err(said)?;
                let labels: Vec<usize> = labels.into_iter().map(|label| label as usize).collect();
                network.trunk().hear_grain(&labels).map_err(said)?
            }
            None if sizes.is_empty() => None,
            None => network.trunk().hear(&told.pooled, &sizes).map_err(said)?,
        },
    };
    let mut calls = 0;
    while let Some(golden) = case.get(&format!("unet.{calls:02}.out")) {
        let at = |what: &str| case.get(&format!("unet.{calls:02}.in.{what}")).ok_or("no input of the U-net");
        let time = at("timestep")?.to_dtype(DType::F64).and_then(|t| t.flatten_all()?.get(0)?.to_scalar());
        let x = at("sample")?;
        let added = golden_control::residuals(case, calls, x.dim(0).map_err(said)?)?;
        let told = (&heard, added.as_ref());
        let ours = network.forward(x, time.map_err(said)?, told, &mut Watch::quiet()).map_err(said)?;
        close(&format!("unet.{calls:02}"), &ours, golden, 1e-5)?;
        calls += 1;
    }
    if calls == 0 { Err("no call of the U-net".into()) } else { Ok(()) }
}

fn vae(case: &Case, parts: &Parts) -> Outcome {
    let folder = configs(parts)?;
    let config = folder.config("vae").map_err(said)?;
    let vb = parts.weights("vae").map_err(said)?.var_builder(DType::F32, &Device::Cpu);
    let tiny = folder.component("vae").is_some_and(|component| component.class == "AutoencoderTiny");
    let (codec, scale, shift): (Box<dyn Codec>, f64, f64) = if tiny {
        let config = TinyConfig::read(&config).map_err(said)?;
        (Box::new(AutoencoderTiny::new(&config, &vb).map_err(said)?), config.scale, 0.0)
    } else {
        let config = KlConfig::read(&config).map_err(said)?;
        (Box::new(AutoencoderKl::new(&config, &vb).map_err(said)?), config.scale, config.shift)
    };
    let mut calls = 0;
    while let Some(golden) = case.get(&format!("vae.decode.{calls:02}.out")) {
        let z = case.get(&format!("vae.decode.{calls:02}.in")).ok_or("no input of the decoder")?;
        let normal = (z - shift).and_then(|z| z * scale).map_err(said)?;
        let ours = codec.decode(&normal, &mut Watch::quiet()).map_err(said)?.squeeze(2).map_err(said)?;
        close(&format!("vae.decode.{calls:02}"), &ours, golden, 1e-5)?;
        calls += 1;
    }
    Ok(())
}

/// The tiny codec, both ways.
fn tiny(case: &Case) -> Outcome {
    let folder = case.path("model").ok_or("no model")?;
    let bytes = std::fs::read(folder.join("config.json")).map_err(said)?;
    let config = TinyConfig::read(&Config::read(&bytes, "config.json").map_err(said)?).map_err(said)?;
    let weights = Weights::open(&folder.join("diffusion_pytorch_model.safetensors")).map_err(said)?;
    let codec =
        AutoencoderTiny::new(&config, &weights.var_builder(DType::F32, &Device::Cpu)).map_err(said)?;
    let get = |key: &str| case.get(key).ok_or_else(|| format!("no {key}"));
    let mut watch = Watch::quiet();
    let ours = codec.decode(get("decode.in")?, &mut watch).map_err(said)?.squeeze(2).map_err(said)?;
    close("decode", &ours, get("decode.out")?, 1e-5)?;
    let pixels = get("encode.in")?.unsqueeze(2).map_err(said)?;
    close("encode", &codec.encode(&pixels, &mut watch).map_err(said)?.mean, get("encode.out")?, 1e-5)
}

#[test]
fn a_comparison_that_should_fail_fails() {
    let x = Tensor::new(&[1f32, 2.0], &Device::Cpu).unwrap();
    let y = Tensor::new(&[1f32, 2.1], &Device::Cpu).unwrap();
    assert!(close("x", &x, &y, 1e-2).is_err());
    assert!(close("x", &x, &y, 1e-1).is_ok());
    assert!(distance(&(&x / 0.0).unwrap(), &y).is_infinite());
}
