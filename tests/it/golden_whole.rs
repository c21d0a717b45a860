//! The recipe from prompt to pixels against diffusers, one picture of a batch at a time.

use std::path::PathBuf;

use candle_core::Tensor;
use latentia::diffusion::{Noise, Visit};
use latentia::event::Watch;
use latentia::family::{Parts, Task};
use latentia::studio::{
    Canvas, ControlPicture, DeviceClass, Edit, Given, Model, Plan, Precision, Request, Residency, Seen,
    Sizes, Start, control_maps, encode, render,
};
use latentia::weights::{Application, Lora};

use crate::golden::{Case, Outcome, close};
use crate::golden_control;
use crate::golden_pipelines::{eta, said, settings};

/// What a case asks for, as a user would.
pub(crate) fn request(case: &Case, (image, count): (usize, usize)) -> Result<Request, String> {
    let side = |side: &str| case.number(side).map(|pixels| pixels as usize);
    let of = |name: &str| {
        let texts = case.texts(name, count);
        texts[image * texts.len() / count].clone()
    };
    let given = |name: &str| case.file(name).map(|path| Given::open(&path)).transpose().map_err(said);
    // Of control networks the pipelines of new pictures call theirs `image`.
    let steers = case.path("controlnet").is_some();
    let is_new = steers && case.file("control_image").is_none();
    let controls = match given(if is_new { "image" } else { "control_image" })? {
        Some(image) if steers => vec![ControlPicture {
            kind: "edges".into(),
            image,
            scale: case.number("controlnet_conditioning_scale").unwrap_or(default_scale(case)),
            model: String::new(),
        }],
        _ => Vec::new(),
    };
    let shares = ["control_guidance_start", "control_guidance_end"].map(|name| case.number(name));
    let edit = match given("image")?.filter(|_| !is_new) {
        Some(image) => Some(Edit {
            mask: given("mask_image")?,
            strength: case.number("strength"),
            image_guidance: case.number("image_guidance_scale"),
            upscales: case.json["pipeline_class"] == "StableDiffusionUpscalePipeline",
            noise_level: case.number("noise_level").map(|level| level as usize),
            ..Edit::of(image)
        }),
        None => None,
    };
    Ok(Request {
        prompt: of("prompt"),
        // XL tells a negative prompt that is not given from an empty one.
        negative: (!case.argument("negative_prompt").is_null()).then(|| of("negative_prompt")),
        second_prompt: case.argument("prompt_2").as_str().map(str::to_owned),
        sizes: sizes(case),
        size: side("width").zip(side("height")).map(|(width, height)| [width, height]).or_else(|| {
            let latents = case.tensor("image")?.dims().to_vec();
            Some([latents[3] * 8, latents[2] * 8])
        }),
        steps: side("num_inference_steps"),
        guidance: case.number("guidance_scale"),
        guidance_rescale: case.number("guidance_rescale"),
        clip_skip: side("clip_skip"),
        edit,
        control_guess: case.argument("guess_mode") == true,
        control_window: shares[0].zip(shares[1]).map(|(from, to)| [from, to]),
        controls,
        ..Request::default()
    })
}

/// The scale of diffusers' pipelines with control networks: that from a picture has another.
fn default_scale(case: &Case) -> f64 {
    let class = case.json["pipeline_class"].as_str().unwrap_or_default();
    if class.ends_with("ControlNetImg2ImgPipeline") { 0.8 } else { 1.0 }
}

/// What XL is told of sizes; diffusers counts rows before columns.
fn sizes(case: &Case) -> Sizes {
    let pair = |name: &str| {
        let side = |index: usize| case.argument(name)[index].as_u64().map(|side| side as usize);
        side(1).zip(side(0)).map(|(x, y)| [x, y])
    };
    Sizes {
        original: pair("original_size"),
        cut: pair("crops_coords_top_left"),
        target: pair("target_size"),
        negative_original: pair("negative_original_size"),
        negative_cut: pair("negative_crops_coords_top_left"),
        negative_target: pair("negative_target_size"),
        score: case.number("aesthetic_score"),
        negative_score: case.number("negative_aesthetic_score"),
    }
}

/// The share of the walk that a case walks, where it says one.
fn span(case: &Case) -> Option<[f64; 2]> {
    let (from, to) = (case.number("denoising_start"), case.number("denoising_end"));
    from.or(to).map(|_| [from.unwrap_or(0.0), to.unwrap_or(1.0)])
}

/// Every picture of a case, from its words to its bytes; with files of changes in the weights, and beside them.
pub(crate) fn whole(case: &Case, parts: Parts, loras: &[(PathBuf, f64)]) -> Outcome {
    if !loras.is_empty() {
        drawn(case, parts.clone(), (loras, Application::Runtime))?;
    }
    drawn(case, parts, (loras, Application::Fused))
}

fn drawn(case: &Case, parts: Parts, (loras, how): (&[(PathBuf, f64)], Application)) -> Outcome {
    let mut model = Model::from_parts(parts, "golden", DeviceClass::Cpu, Precision::F32).map_err(said)?;
    // A refiner goes on from latents that are given as a picture.
    let latents = case.tensor("latents").or_else(|| case.tensor("image"));
    let count = latents.map_or(Ok(1), |latents| latents.dim(0)).map_err(said)?;
    for image in 0..count {
        let request = request(case, (image, count))?;
        let mut watch = Watch::quiet();
        let worn = loras.iter().map(|(path, scale)| Ok((Lora::open(path)?, *scale)));
        let worn =
            worn.collect::<Result<Vec<_>, _>>().map_err(|error: latentia::error::Error| said(error))?;
        model.steer(golden_control::open(case)?.into_iter().collect()).map_err(said)?;
        model.wear(&worn, how, &mut watch).map_err(said)?;
        let engine = model.engine().clone();
        let mut card = model.card().clone();
        if span(case).is_some() {
            card.tasks.push(Task::TextToImage);
        }
        let mut plan = Plan::settle(&request, &card, &engine, &mut watch).map_err(said)?;
        plan.span = span(case);
        plan.scheduler = settings(case)?.to_json();
        plan.eta = eta(case);
        let told = encode(&plan, &mut model, &mut watch).map_err(said)?;
        let seen = see(case, &request, &plan, &mut model)?;
        let one = |x: &Tensor| x.narrow(0, image, 1).map_err(said);
        let draws = case.draws().iter().map(one).collect::<Result<Vec<_>, _>>()?;
        let noise = Noise::given(draws);
        let given = latents.map(one).transpose()?;
        let start = Start::with(&plan, model.card(), seen.as_ref(), noise, given).map_err(said)?;
        let maps = control_maps(&request.controls, &plan).map_err(said)?;
        for map in &maps {
            let golden = case.get("controlnet.00.in.controlnet_cond").ok_or("no control picture")?;
            close("control picture", map, &golden.narrow(0, 0, 1).map_err(said)?, 1e-3)?;
        }
        let start = Start { maps, ..start };
        let frames = walked(case, (image, &plan), &mut model, |model, visitor| {
            render(&plan, model, (&told, start), Residency::Stay, visitor, &mut watch).map_err(said)
        })?;
        if let Some(frames) = frames {
            picture(case, image, &frames)?;
        }
    }
    Ok(())
}

/// What the codec sees of a given picture; the pixels are those that diffusers encoded.
fn see(case: &Case, request: &Request, plan: &Plan, model: &mut Model) -> Result<Option<Seen>, String> {
    let Some(edit) = &request.edit else { return Ok(None) };
    let mask = edit.mask.as_ref().map(|mask| &mask.photo);
    let canvas = Canvas::lay(&edit.image.photo, mask, plan).map_err(said)?;
    // An inpainting network from noise encodes the masked picture alone.
    let first = if plan.begins_from_noise() && case.get("unet.00.in.sample").is_some_and(|x| x.dims()[1] > 8)
    {
        None
    } else {
        case.get("vae.encode.00.in")
    };
    if let Some(golden) = first {
        let pixels = canvas.picture().pixels().and_then(|pixels| Ok(pixels.squeeze(2)?)).map_err(said)?;
        close("vae.encode.00.in", &pixels, golden, 1e-6)?;
    }
    Seen::look(&canvas, plan, model, &mut Watch::quiet()).map(Some).map_err(said)
}

type Shown<'a> = &'a mut dyn FnMut(&Visit<'_>) -> latentia::error::Result<Option<Tensor>>;

/// Walks, comparing every latent with the golden one; the pixels are handed back unless latents are the result.
fn walked(
    case: &Case,
    (image, plan): (usize, &Plan),
    model: &mut Model,
    walk: impl FnOnce(&mut Model, Shown<'_>) -> Result<latentia::artifact::Frames, String>,
) -> Result<Option<latentia::artifact::Frames>, String> {
    let one = |x: &Tensor| x.narrow(0, image, 1).map_err(said);
    let begin = plan.walk(model.card()).map_err(said)?.visited()[0].step;
    let blends = case.file("mask_image").is_some() && model.card().latent_channels == case_channels(case)?;
    let mut failure = None;
    let mut last = None;
    let mut visitor = |visit: &Visit<'_>| {
        let step = visit.step - begin;
        let next = case.get(&format!("step.{:02}.sample", step + 1));
        let golden = next.or_else(|| case.get(&format!("step.{step:02}.prev_sample")).filter(|_| !blends));
        if let Some(golden) = golden {
            let outcome =
                one(golden).and_then(|golden| close(&format!("latent {step}"), visit.x, &golden, 1e-4));
            failure = failure.take().or(outcome.err());
        }
        last = Some(visit.x.clone());
        Ok(None)
    };
    let frames = walk(model, &mut visitor)?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    if case.json["output"].as_str().is_some_and(|output| output.starts_with("latent")) {
        let golden = one(case.get("latents_out").ok_or("no latents_out")?)?;
        close("latents_out", &last.ok_or("no latent")?, &golden, 1e-4)?;
        return Ok(None);
    }
    Ok(Some(frames))
}

/// Channels of what the network saw.
fn case_channels(case: &Case) -> Result<usize, String> {
    case.get("unet.00.in.sample").ok_or("no input of the U-net")?.dim(1).map_err(said)
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
