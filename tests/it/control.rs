//! Pictures that steer: edges as `OpenCV` finds them, networks summed as diffusers sums them, and what a user is refused.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use candle_core::{DType, Device, Tensor};
use latentia::artifact::{Photo, Picture, canny, png};
use latentia::diffusion::{Noise, Visit};
use latentia::error::Code;
use latentia::event::Watch;
use latentia::family::{Control, Parts};
use latentia::studio::{
    ControlPicture, DeviceClass, Given, Model, Plan, Precision, Residency, Start, control_maps, encode,
    render,
};
use serde_json::Value;

use crate::command::{folder, latentia, ok};
use crate::fixtures;
use crate::golden::{Case, close};
use crate::golden_whole::request;

fn made() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/control")
}

fn compact(part: &str) -> PathBuf {
    fixtures::compact().join(part).canonicalize().expect("a compact fixture")
}

fn photo(path: &Path) -> Picture {
    Photo::read(&fs::read(path).expect("there")).expect("a picture").picture
}

#[test]
fn edges_are_those_of_opencv() {
    let ours = canny(&photo(&made().join("photo.png"))).expect("edges");
    let golden = photo(&made().join("edges.png"));
    let pairs = ours.rgb().iter().zip(golden.rgb());
    let off = pairs.filter(|(ours, golden)| ours != golden).count() / 3;
    assert_eq!(off, 0, "{off} of {} pixels differ", golden.rgb().len() / 3);
}

fn mirrored(picture: &Picture) -> Picture {
    let width = picture.width() as usize;
    let rows = picture.rgb().chunks_exact(3 * width);
    let rgb = rows.flat_map(|row| row.chunks_exact(3).rev().flatten().copied()).collect();
    Picture::new(picture.width(), picture.height(), rgb).expect("a picture")
}

#[test]
fn what_two_networks_add_is_summed() {
    let case = Case::open(&compact("controlnet/canny")).expect("a case");
    let parts = Parts::open(&case.path("model").expect("a model"), None).expect("opens");
    let mut model = Model::from_parts(parts, "golden", DeviceClass::Cpu, Precision::F32).expect("known");
    let network = Control::open(&compact("controlnet/controlnet")).expect("a control network");
    model.steer(vec![network.clone(), network]).expect("fits");
    let mut asked = request(&case, (0, 1)).expect("a request");
    let second = mirrored(&asked.controls[0].image.photo.picture);
    let second = Given::read(&png::encode(&second, &[]).expect("encoded")).expect("a picture");
    asked.controls.push(ControlPicture { image: second, scale: 0.5, ..asked.controls[0].clone() });
    let mut watch = Watch::quiet();
    let plan = Plan::settle(&asked, model.card(), &model.engine().clone(), &mut watch).expect("settled");
    let told = encode(&plan, &mut model, &mut watch).expect("encoded");
    let latents = case.tensor("latents").cloned();
    let noise = Noise::given(Vec::new());
    let start = Start::with(&plan, model.card(), None, noise, latents).expect("a start");
    let start = Start { maps: control_maps(&asked.controls, &plan).expect("maps"), ..start };
    let mut last: Option<Tensor> = None;
    let mut visitor = |visit: &Visit<'_>| {
        last = Some(visit.x.clone());
        Ok(None)
    };
    render(&plan, &mut model, (&told, start), Residency::Phase, &mut visitor, &mut watch).expect("drawn");
    let golden = fixtures::tensors(&made().join("two.safetensors"));
    close("two networks", &last.expect("walked"), &golden["latents"], 1e-4).unwrap();
}

#[test]
fn a_file_in_the_names_of_its_authors_is_the_same_network() {
    let here = folder();
    let ours = compact("controlnet/controlnet");
    let tensors = fixtures::tensors(&ours.join("diffusion_pytorch_model.safetensors"));
    let names = fs::read_to_string(made().join("names.txt")).expect("the names");
    let pairs = names.lines().filter_map(|line| line.split_once(' '));
    let theirs: HashMap<_, _> =
        pairs.map(|(theirs, ours)| (format!("control_model.{theirs}"), tensors[ours].clone())).collect();
    assert_eq!(theirs.len(), tensors.len());
    let path = here.path().join("makers.safetensors");
    candle_core::safetensors::save(&theirs, &path).expect("saved");
    let read = Control::open(&path).expect("opens");
    let names: Vec<_> = read.weights().inventory().names().collect();
    assert_eq!(names, Control::open(&ours).expect("opens").weights().inventory().names().collect::<Vec<_>>());
    for name in names {
        let tensor = read.weights().tensor(name, None, DType::F32, &Device::Cpu).expect("there");
        close(name, &tensor, &tensors[name].to_dtype(DType::F32).expect("f32"), 0.0).unwrap();
    }
    let mut more = theirs;
    more.insert("control_model.difference".into(), Tensor::zeros(1, DType::F32, &Device::Cpu).expect("made"));
    candle_core::safetensors::save(&more, &path).expect("saved");
    let error = Control::open(&path).expect_err("a tensor that means nothing");
    assert_eq!(error.code, Code::ModelUnsupported);
    assert!(error.message.contains("difference"), "{error}");
}

/// `latentia generate "a cat" -m sd15 --steps 2 --json …`
fn generate(folder: &Path, more: &[&str]) -> Output {
    let mut command = latentia(folder);
    command.args(["generate", "a cat", "--steps", "2", "--json", "-m"]).arg(compact("sd15/model")).args(more);
    command.output().expect("runs")
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[test]
fn a_picture_steers_and_the_recipe_draws_it_again() {
    let here = folder();
    let image = text(&made().join("photo.png"));
    let network = text(&compact("controlnet/controlnet"));
    let steered = format!("canny={image}:1.5");
    let control = ["--control", &steered, "--control-model", &network];
    ok(&generate(here.path(), &["-o", "plain.png"]));
    ok(&generate(here.path(), &[&control[..], &["-o", "steered.png"]].concat()));
    let window = ["--control-guess", "--control-window", "0,0.5", "-o", "guess.png"];
    let drawn = ok(&generate(here.path(), &[&control[..], &window].concat()));
    let read = |name: &str| photo(&here.path().join(name));
    assert_ne!(read("plain.png"), read("steered.png"));
    assert_ne!(read("guess.png"), read("steered.png"));

    let json: Value = serde_json::from_str(&drawn).expect("JSON");
    let recipe = &json["images"][0]["recipe"];
    let control_of = &recipe["controls"][0];
    assert_eq!(control_of["kind"], "canny");
    assert_eq!(control_of["scale"], 1.5);
    assert_eq!(control_of["model"], "controlnet");
    assert_eq!(control_of["model_sha256"].as_str().map(str::len), Some(64));
    assert_eq!(
        (recipe["control_guess"].as_bool(), &recipe["control_window"]),
        (Some(true), &[0.0, 0.5].into())
    );

    let again = |more: &[&str]| {
        let mut command = latentia(here.path());
        command.args(["generate", "--json", "--from", "guess.png", "-o", "again.png", "-m"]);
        command.arg(compact("sd15/model")).args(more).output().expect("runs")
    };
    ok(&again(&control));
    assert_eq!(read("again.png"), read("guess.png"));
    assert_eq!(refused(&again(&[])), ("invalid_argument".into(), "control".into()));
    let weaker = format!("canny={image}:1");
    let weaker = again(&["--control", &weaker, "--control-model", &network]);
    assert_eq!(refused(&weaker), ("invalid_argument".into(), "control".into()));
}

/// The code and the argument of a refusal.
fn refused(output: &Output) -> (String, String) {
    assert!(!output.status.success());
    let line = String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned();
    let error: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no error object: {line}"));
    let text = |key: &str| error["error"][key].as_str().unwrap_or_default().to_owned();
    (text("code"), text("param"))
}

#[test]
fn what_cannot_steer_is_refused() {
    let here = folder();
    let image = text(&made().join("photo.png"));
    let fitting = text(&compact("controlnet/controlnet"));
    let wide = text(&compact("sdxl_controlnet/controlnet"));
    let unet = text(&compact("sd15/model/unet"));
    let weights = format!("{unet}/diffusion_pytorch_model.safetensors");
    fs::write(here.path().join("torn.png"), b"\x89PNG\r\n\x1a\n").expect("written");
    fs::write(here.path().join("words.png"), b"words").expect("written");
    let canny = |rest: &str| format!("canny={image}{rest}");
    let plain = canny("");
    for (control, more, code, param) in [
        (plain.clone(), &["--control-model", "nothing-like-it"][..], "model_not_found", "control_model"),
        (plain.clone(), &[], "invalid_argument", "control_model"),
        (
            plain.clone(),
            &["--control-model", &fitting, "--control-model", &fitting],
            "invalid_argument",
            "control_model",
        ),
        (plain.clone(), &["--control-model", &wide], "model_incompatible", "control_model"),
        (plain.clone(), &["--control-model", &unet], "model_incompatible", "control_model"),
        (plain.clone(), &["--control-model", &weights], "model_incompatible", "control_model"),
        (canny(":2.5"), &["--control-model", &fitting], "invalid_argument", "control_strength"),
        (canny(":-1"), &["--control-model", &fitting], "invalid_argument", "control_strength"),
        (canny(":NaN"), &["--control-model", &fitting], "invalid_argument", "control_strength"),
        (format!("warp={image}"), &["--control-model", &fitting], "invalid_argument", "control_kind"),
        ("canny=none.png".into(), &["--control-model", &fitting], "file_not_found", "control"),
        ("canny=torn.png".into(), &["--control-model", &fitting], "image_corrupt", "control"),
        ("canny=words.png".into(), &["--control-model", &fitting], "unsupported_media_type", "control"),
        (
            plain.clone(),
            &["--control-model", &fitting, "--control-window", "0.7,0.2"],
            "invalid_argument",
            "control_window",
        ),
        (
            plain.clone(),
            &["--control-model", &fitting, "--control-window", "0.1,0.2"],
            "invalid_argument",
            "control_window",
        ),
    ] {
        let output = generate(here.path(), &[&["--control", &control], more].concat());
        assert_eq!(refused(&output), (code.to_owned(), param.to_owned()), "{control} {more:?}");
    }
    // A model that has no such networks.
    let mut command = latentia(here.path());
    command.args([
        "generate",
        "a cat",
        "--json",
        "-m",
        "mock",
        "--control",
        &plain,
        "--control-model",
        &fitting,
    ]);
    let output = command.output().expect("runs");
    assert_eq!(refused(&output), ("model_unsupported".into(), "control_model".into()));
}

#[test]
fn steering_goes_with_edits_changes_blocks_and_several_pictures() {
    let here = folder();
    let image = text(&made().join("photo.png"));
    let model = text(&compact("sdxl/model"));
    let network = text(&compact("sdxl_controlnet/controlnet"));
    let lora = format!("{}:0.9", text(&compact("lora_sdxl/kohya.safetensors")));
    let steered = format!("edges={image}:1.5");
    let control = ["--control", &steered, "--control-model", &network];
    let call = |words: &[&str], name: &str| {
        let mut command = latentia(here.path());
        command.args(words).args(["--json", "--steps", "2", "--size", "64x64", "-m", &model, "-o", name]);
        ok(&command.output().expect("runs"));
        // Several pictures have numbers.
        let first = if words.contains(&"-n") { name.replace(".png", "-1.png") } else { name.to_owned() };
        photo(&here.path().join(first))
    };
    let generate = |more: &[&[&str]], name: &str| {
        call(&[&["generate", "a cat", "--seed", "7"], more.concat().as_slice()].concat(), name)
    };
    let plain = generate(&[], "plain.png");
    let alone = generate(&[&control], "alone.png");
    assert_ne!(plain, alone);

    // Of several pictures each is the one that its seed gives.
    assert_eq!(generate(&[&control, &["-n", "2"]], "many.png"), alone);
    let second = photo(&here.path().join("many-2.png"));
    let next = call(&[&["generate", "a cat", "--seed", "8"], &control[..]].concat(), "next.png");
    assert_eq!(second, next);

    // A changed model is steered too, and its recipe draws the same again.
    let changed = generate(&[&control, &["--lora", &lora]], "changed.png");
    assert_ne!(changed, alone);
    assert_ne!(changed, generate(&[&["--lora", &lora]], "unsteered.png"));
    let mut command = latentia(here.path());
    command.args(["generate", "--from", "changed.png", "-o", "again.png", "--lora", &lora, "-m", &model]);
    ok(&command.args(control).output().expect("runs"));
    assert_eq!(photo(&here.path().join("again.png")), changed);

    let blocks = generate(&[&control, &["--quantize", "q8_0"]], "blocks.png");
    assert_ne!(blocks, generate(&[&["--quantize", "q8_0"]], "blocks-plain.png"));

    // Of an edit only the mask is steered.
    let mask = here.path().join("mask.png");
    let half = (0..64 * 64 * 3).map(|i| if (i / 3) % 64 < 32 { 255 } else { 0 }).collect();
    let half = Picture::new(64, 64, half).expect("a picture");
    fs::write(&mask, png::encode(&half, &[]).expect("encoded")).expect("written");
    let mask = text(&mask);
    let edit = ["edit", "a cat", "--seed", "7", "-i", "plain.png", "--mask", &mask];
    let unsteered = call(&edit, "edit.png");
    let edited = call(&[&edit[..], &control].concat(), "edit-steered.png");
    let row = |picture: &Picture, from: usize| picture.rgb()[3 * from..3 * (from + 32)].to_vec();
    for y in 0..64 {
        assert_eq!(row(&edited, 64 * y + 32), row(&plain, 64 * y + 32), "row {y} outside the mask");
    }
    assert!((0..64).any(|y| row(&edited, 64 * y) != row(&unsteered, 64 * y)), "the mask is steered");
}
