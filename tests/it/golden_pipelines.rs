//! Pipelines against diffusers, stage by stage and end to end: whatever family folders the fixtures hold.

use std::path::Path;

use candle_core::{DType, Device, Tensor};
use latentia::codec::{AutoencoderKl, AutoencoderTiny, Codec, KlConfig, TinyConfig};
use latentia::diffusion::{Level, Noise, Settings, Visit, sample_visited};
use latentia::event::Watch;
use latentia::family::Parts;
use latentia::family::ldm::config::UnetConfig;
use latentia::family::ldm::{Unet, tokenizer};
use latentia::studio::{DeviceClass, Model, Plan, Precision, Request, Residency, Start, encode, render};
use latentia::text::{ClipConfig, ClipText, TextEncoder};
use latentia::weights::{Config, Folder, Weights};

use crate::fixtures;
use crate::golden::{Account, Case, Outcome, cases, close, distance, name};

/// Pipelines that we have; the others are listed as not yet supported.
const PIPELINES: &[&str] = &["StableDiffusionPipeline", "LatentConsistencyModelPipeline"];
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
];

fn said(error: impl std::fmt::Display) -> String {
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
        return Some(Fared::Ran(parts.and_then(|parts| whole(&Case::open(&golden)?, parts))));
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
    let folder = Folder::open(&path).map_err(said)?;
    let context = text(case, &folder)?;
    schedule(case)?;
    steps(case)?;
    unet(case, &folder, &context)?;
    vae(case, &folder)?;
    whole(case, Parts::open(&path, None).map_err(said)?)
}

/// Token ids and encoder states; hands back the rows that the denoiser is told.
fn text(case: &Case, folder: &Folder) -> Result<Tensor, String> {
    let config = ClipConfig::read(&folder.config("text_encoder").map_err(said)?).map_err(said)?;
    let vb = folder.weights("text_encoder").map_err(said)?.var_builder(DType::F32, &Device::Cpu);
    let encoder = ClipText::new(&config, &vb).map_err(said)?;
    let tokenizer = tokenizer(&Parts::from(folder.clone()), &config).map_err(said)?;
    let mut rows = Vec::new();
    for (call, argument) in ["prompt", "negative_prompt"].into_iter().enumerate() {
        let stage = |what: &str| format!("text_encoder.{call:02}.{what}");
        let Some(ids) = case.get(&stage("in.input_ids")) else { break };
        let count = ids.dim(0).map_err(said)?;
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
        let named = [("out.pooler_output", &features.pooled), ("out.last_hidden_state", &features.last)];
        let layers = features.hidden.iter().enumerate();
        let layers = layers.map(|(layer, state)| (format!("out.hidden_states.{layer}"), state));
        for (key, state) in named.map(|(key, state)| (key.to_owned(), state)).into_iter().chain(layers) {
            if let Some(golden) = case.get(&stage(&key)) {
                close(&stage(&key), state, golden, 1e-5)?;
            }
        }
        let skip = if call == 0 { case.number("clip_skip").unwrap_or(0.0) as usize } else { 0 };
        let state = match skip {
            0 => features.last,
            _ => encoder.finish(&features.hidden[features.hidden.len() - 1 - skip]).map_err(said)?,
        };
        rows.insert(0, state);
    }
    let rows = Tensor::cat(&rows, 0).map_err(said)?;
    if let Some(golden) = case.get("unet.00.in.encoder_hidden_states") {
        let rows = repeat(&rows, golden.dim(0).map_err(said)?)?;
        close("encoder_hidden_states", &rows, golden, 1e-5)?;
        return Ok(rows);
    }
    Ok(rows)
}

/// Each row as often as several pictures of one prompt need it.
fn repeat(rows: &Tensor, count: usize) -> Result<Tensor, String> {
    let times = count / rows.dim(0).map_err(said)?.max(1);
    let index: Vec<u32> = (0..count).map(|row| (row / times.max(1)) as u32).collect();
    let index = Tensor::new(index, &Device::Cpu).map_err(said)?;
    rows.index_select(&index, 0).map_err(said)
}

/// The schedule of a case: its own, or that of the model's folder.
fn settings(case: &Case) -> Result<Settings, String> {
    let scheduler = &case.json["scheduler"];
    Settings::read(scheduler["class"].as_str(), &scheduler["config"]).map_err(said)
}

fn walk(case: &Case) -> Result<latentia::diffusion::Walk, String> {
    let steps = case.number("num_inference_steps").ok_or("no steps")? as usize;
    let options = latentia::diffusion::Options { eta: eta(case), ..Default::default() };
    settings(case)?.walk(steps, &options).map_err(said)
}

/// `eta` counts for DDIM and TCD, where pipelines make it 0 by default; they drop it for the other schedulers.
fn eta(case: &Case) -> Option<f64> {
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
    let mut visitor = |visit: &Visit<'_>| {
        if let Some(golden) = case.get(&format!("step.{:02}.prev_sample", visit.step)) {
            let outcome = close(&format!("step.{:02}", visit.step), visit.x, golden, 1e-4);
            failure = failure.take().or(outcome.err());
        }
        Ok(None)
    };
    let x = walk.start(case.tensor("latents").ok_or("no latents")?).map_err(said)?;
    let mut noise = Noise::given(case.draws());
    sample_visited(&mut network, x, &walk, &mut noise, &mut visitor, &mut Watch::quiet()).map_err(said)?;
    failure.map_or(Ok(()), Err)
}

fn unet(case: &Case, folder: &Folder, context: &Tensor) -> Outcome {
    let config = UnetConfig::read(&folder.config("unet").map_err(said)?).map_err(said)?;
    let vb = folder.weights("unet").map_err(said)?.var_builder(DType::F32, &Device::Cpu);
    let network = Unet::new(&config, &vb).map_err(said)?;
    let told = network.listen(context).map_err(said)?;
    let condition = case.get("unet.00.in.timestep_cond");
    let mut calls = 0;
    while let Some(golden) = case.get(&format!("unet.{calls:02}.out")) {
        let at = |what: &str| case.get(&format!("unet.{calls:02}.in.{what}")).ok_or("no input of the U-net");
        let time = at("timestep")?.to_dtype(DType::F64).and_then(|t| t.flatten_all()?.get(0)?.to_scalar());
        let ours = network
            .forward(at("sample")?, time.map_err(said)?, &told, condition, &mut Watch::quiet())
            .map_err(said)?;
        close(&format!("unet.{calls:02}"), &ours, golden, 1e-5)?;
        calls += 1;
    }
    if calls == 0 { Err("no call of the U-net".into()) } else { Ok(()) }
}

fn vae(case: &Case, folder: &Folder) -> Outcome {
    let config = folder.config("vae").map_err(said)?;
    let vb = folder.weights("vae").map_err(said)?.var_builder(DType::F32, &Device::Cpu);
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

/// The recipe from prompt to pixels, one picture of the batch at a time.
fn whole(case: &Case, parts: Parts) -> Outcome {
    let mut model = Model::from_parts(parts, "golden", DeviceClass::Cpu, Precision::F32).map_err(said)?;
    let latents = case.tensor("latents").ok_or("no latents")?;
    let count = latents.dim(0).map_err(said)?;
    let (prompts, negatives) = (case.texts("prompt", count), case.texts("negative_prompt", count));
    for image in 0..count {
        let size = |side: &str| case.number(side).map(|pixels| pixels as usize).ok_or("no size");
        let request = Request {
            prompt: prompts[image * prompts.len() / count].clone(),
            negative: Some(negatives[image * negatives.len() / count].clone()),
            size: Some([size("width")?, size("height")?]),
            steps: case.number("num_inference_steps").map(|steps| steps as usize),
            guidance: case.number("guidance_scale"),
            guidance_rescale: case.number("guidance_rescale"),
            clip_skip: case.number("clip_skip").map(|skip| skip as usize),
            ..Request::default()
        };
        let mut watch = Watch::quiet();
        let engine = model.engine().clone();
        let mut plan = Plan::settle(&request, model.card(), &engine, &mut watch).map_err(said)?;
        plan.scheduler = settings(case)?.to_json();
        plan.eta = eta(case);
        let told = encode(&plan, &mut model, &mut watch).map_err(said)?;
        let one = |x: &Tensor| x.narrow(0, image, 1).map_err(said);
        let draws = case.draws().iter().map(one).collect::<Result<Vec<_>, _>>()?;
        let start = Start { latents: one(latents)?, noise: Noise::given(draws) };
        let mut last = None;
        let mut visitor = |visit: &Visit<'_>| {
            last = Some((visit.step, visit.x.clone()));
            Ok(None)
        };
        let frames = render(&plan, &mut model, (&told, start), Residency::Stay, &mut visitor, &mut watch)
            .map_err(said)?;
        if let Some((step, ours)) = &last
            && let Some(golden) = case.get(&format!("step.{step:02}.prev_sample"))
        {
            close("the last latent", ours, &one(golden)?, 1e-4)?;
        }
        if case.json["output"] == "latent" {
            let ours = last.map(|(_, x)| x).ok_or("no latent")?;
            close("latents_out", &ours, &one(case.get("latents_out").ok_or("no latents_out")?)?, 1e-4)?;
        } else {
            picture(case, image, &frames)?;
        }
    }
    Ok(())
}

/// Within one level on 99.9 % of the values.
fn picture(case: &Case, image: usize, frames: &latentia::artifact::Frames) -> Outcome {
    let golden = case.picture(image)?;
    let ours = frames.pictures()[0].rgb();
    if ours.len() != golden.len() {
        return Err(format!("the picture has {} bytes, not {}", ours.len(), golden.len()));
    }
    let off = ours.iter().zip(&golden).filter(|(a, b)| a.abs_diff(**b) > 1).count();
    if off * 1000 > golden.len() {
        return Err(format!(
            "{off} of {} values of the picture are off by more than one level",
            golden.len()
        ));
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
