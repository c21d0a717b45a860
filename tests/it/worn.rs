//! What a model wears from job to job: LoRA files that come and go, and a refiner; the base stays as it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use latentia::artifact::{Photo, Picture};
use latentia::error::{Code, Result};
use latentia::event::Watch;
use latentia::studio::{DeviceClass, Model, Precision, Request, Residency, Studio};
use latentia::weights::{Application, Embedding, Lora, sha256, synthetic};
use serde_json::Value;

use crate::fixtures;

fn sdxl() -> PathBuf {
    fixtures::compact().join("sdxl/model").canonicalize().expect("the sdxl fixture")
}

/// The bytes of one picture of a model that stays open.
fn drawn(studio: &Studio, model: &mut Model, loras: &[(PathBuf, f64)]) -> Result<Vec<u8>> {
    let request = Request {
        prompt: "a cat".into(),
        steps: Some(2),
        size: Some([64, 64]),
        loras: loras.to_vec(),
        ..Request::default()
    };
    let mut bytes = Vec::new();
    studio.generate(model, &request, &mut Watch::quiet(), |_, picture| {
        bytes = picture.png(true)?;
        Ok(())
    })?;
    Ok(bytes)
}

#[test]
fn a_lora_comes_and_goes_and_the_base_stays() {
    let home = tempfile::tempdir().expect("a folder");
    let studio = Studio::open(home.path());
    let network = sdxl().join("unet/diffusion_pytorch_model.safetensors");
    let digest = || sha256(&fs::read(&network).expect("weights"));
    let untouched = digest();
    let name = sdxl();
    let mut model = studio.model(name.to_str(), None, DeviceClass::Cpu, Precision::F32).expect("a model");
    let plain = drawn(&studio, &mut model, &[]).expect("drawn");
    let lora = fixtures::compact().join("lora_sdxl/kohya.safetensors");
    let worn = drawn(&studio, &mut model, &[(lora.clone(), 0.9)]).expect("drawn");
    let twice = drawn(&studio, &mut model, &[(lora.clone(), 0.9), (lora.clone(), 0.4)]).expect("drawn");
    assert!(plain != worn && worn != twice && plain != twice);
    assert_eq!(drawn(&studio, &mut model, &[]).expect("drawn"), plain, "taken off");
    // A file none of whose keys is a module here is refused, and what the model wears stays.
    let foreign = home.path().join("foreign.safetensors");
    let names = ["lora_down", "lora_up"].map(|part| format!("lora_unet_nowhere.{part}.weight"));
    let shapes = [vec![2, 8], vec![8, 2]];
    synthetic::save(&foreign, 1, names.into_iter().zip(shapes)).expect("saved");
    let error =
        drawn(&studio, &mut model, &[(lora.clone(), 0.9), (foreign.clone(), 1.0)]).expect_err("refused");
    assert_eq!(error.code, Code::LoraIncompatible);
    assert!(model.worn().is_empty());
    assert_eq!(drawn(&studio, &mut model, &[]).expect("drawn"), plain, "after a refusal");
    assert_eq!(drawn(&studio, &mut model, &[(lora, 0.9)]).expect("drawn"), worn, "put on again");
    assert_eq!(digest(), untouched);
}

#[test]
fn what_a_change_does_not_touch_stays_open() {
    let studio = Studio::open(Path::new("nowhere"));
    let sd15 = fixtures::compact().join("sd15/model");
    let mut model = studio.model(sd15.to_str(), None, DeviceClass::Cpu, Precision::F32).expect("a model");
    let here = tempfile::tempdir().expect("a folder");
    let lora = |name: &str, modules: &[(&str, usize)]| {
        let shapes = modules.iter().flat_map(|(module, width)| {
            [("lora_down", vec![2, *width]), ("lora_up", vec![*width, 2])]
                .map(|(part, shape)| (format!("{module}.{part}.weight"), shape))
        });
        let file = here.path().join(name);
        synthetic::save(&file, 1, shapes.collect::<Vec<_>>()).expect("saved");
        Lora::open(&file).expect("a LoRA")
    };
    let network = ("lora_unet_mid_block_attentions_0_transformer_blocks_0_attn1_to_q", 48);
    let text = ("lora_te_text_model_encoder_layers_0_self_attn_q_proj", 32);
    let both = lora("both.safetensors", &[network, text]);
    let (network, text) = (lora("network.safetensors", &[network]), lora("text.safetensors", &[text]));
    let mut watch = Watch::quiet();
    let mut kept = |model: &mut Model, worn: &[(Lora, f64)]| {
        drop(model.text.lease(Residency::Stay).expect("opens"));
        drop(model.network.lease(Residency::Stay).expect("opens"));
        drop(model.codec.lease(Residency::Stay).expect("opens"));
        model.wear(worn, Application::Auto, &mut watch).expect("fits");
        [model.text.is_open(), model.network.is_open(), model.codec.is_open()]
    };
    let is = |lora: &Lora, strength: f64| vec![(lora.clone(), strength)];
    assert_eq!(kept(&mut model, &is(&network, 1.0)), [true, false, true]);
    assert_eq!(kept(&mut model, &is(&network, 1.0)), [true, true, true], "the same again");
    assert_eq!(kept(&mut model, &is(&network, 0.5)), [true, false, true], "weaker");
    assert_eq!(kept(&mut model, &is(&text, 1.0)), [false, false, true], "one goes, one comes");
    assert_eq!(kept(&mut model, &[]), [false, true, true]);
    assert_eq!(kept(&mut model, &is(&both, 1.0)), [false, false, true]);
    // A word changes what reads it alone.
    drop(model.text.lease(Residency::Stay).expect("opens"));
    drop(model.network.lease(Residency::Stay).expect("opens"));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/embeddings/style.safetensors");
    model.learn(&[("zork".into(), Embedding::open(&file).expect("a word"))]).expect("fits");
    assert_eq!([model.text.is_open(), model.network.is_open()], [false, true]);
}

fn generate(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_latentia"));
    command.current_dir(folder).env("LATENTIA_HOME", folder).stdin(Stdio::null());
    command.args(["generate", "--json", "-q"]).args(arguments).output().expect("runs")
}

fn answer(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    serde_json::from_str(text.lines().last().unwrap_or("")).unwrap_or_else(|_| panic!("no object: {text}"))
}

#[test]
fn changes_at_run_time_draw_what_changes_in_the_weights_draw() {
    let here = tempfile::tempdir().expect("a folder");
    let model = sdxl();
    let model = model.to_str().expect("UTF-8");
    let lora = format!("{}:0.9", fixtures::compact().join("lora_sdxl/kohya.safetensors").display());
    let drawn = |name: &str, more: &[&str]| {
        let arguments = ["a cat", "-m", model, "--steps", "2", "--size", "64x64", "-o", name];
        let output = generate(here.path(), &[&arguments[..], more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let recipe = answer(&output)["images"][0]["recipe"].clone();
        let bytes = fs::read(here.path().join(name)).expect("written");
        (Photo::read(&bytes).expect("a picture").picture, recipe)
    };
    let apart = |one: &Picture, other: &Picture| {
        let pairs = one.rgb().iter().zip(other.rgb());
        pairs.map(|(one, other)| one.abs_diff(*other)).max().unwrap_or(0)
    };
    let with = |mode: &'static str| ["--lora", &lora, "--lora-mode", mode].map(str::to_owned);
    let drawn_with = |name: &str, mode: &'static str, more: &[&str]| {
        let words = with(mode);
        drawn(name, &[&words.iter().map(String::as_str).collect::<Vec<_>>()[..], more].concat())
    };
    let (plain, _) = drawn("plain.png", &[]);
    let (fused, _) = drawn_with("fused.png", "fused", &[]);
    let (beside, recipe) = drawn_with("beside.png", "runtime", &[]);
    assert_eq!(recipe["lora_application"], "runtime");
    assert!(apart(&fused, &beside) <= 1, "{}", apart(&fused, &beside));
    assert!(apart(&fused, &plain) > 4, "{}", apart(&fused, &plain));

    // The recipe is enough to do it the same way again.
    let again = ["--from", "beside.png", "-o", "again.png", "-m", model, "--lora", &lora];
    assert!(generate(here.path(), &again).status.success());
    let read = |name: &str| fs::read(here.path().join(name)).expect("written");
    assert_eq!(read("again.png"), read("beside.png"));

    // Blocks stay what they are where nothing else is said.
    let (auto, _) = drawn_with("auto.png", "auto", &["--quantize", "q8_0"]);
    let (blocks, _) = drawn_with("blocks.png", "runtime", &["--quantize", "q8_0"]);
    assert_eq!(auto, blocks);
    assert!(apart(&blocks, &fused) <= 24, "{}", apart(&blocks, &fused));
}

#[test]
fn a_refiner_ends_what_the_base_begins_and_is_wanted_again() {
    let Some(refiner) = fixtures::fixture("sdxl_refiner") else { return };
    let refiner = refiner.join("model").canonicalize().expect("a model");
    let (base, refiner) = (sdxl(), refiner.to_str().expect("UTF-8").to_owned());
    let base = base.to_str().expect("UTF-8");
    let here = tempfile::tempdir().expect("a folder");
    let with = |more: &[&str]| {
        let arguments = [&["a cat", "-m", base, "--steps", "4", "--size", "64x64"], more].concat();
        generate(here.path(), &arguments)
    };
    let refined = with(&["--refiner", &refiner, "--refiner-from", "0.5", "-o", "a.png"]);
    assert!(refined.status.success(), "{}", String::from_utf8_lossy(&refined.stderr));
    let recipe = &answer(&refined)["images"][0]["recipe"];
    assert_eq!(recipe["span"], serde_json::json!([0.0, 0.5]));
    assert_eq!(recipe["refiner"]["span"], serde_json::json!([0.5, 1.0]));
    assert!(with(&["-o", "b.png"]).status.success());
    let read = |name: &str| fs::read(here.path().join(name)).expect("written");
    assert_ne!(read("a.png"), read("b.png"));
    let again = |more: &[&str]| {
        generate(here.path(), &[&["--from", "a.png", "-m", base, "-o", "c.png"], more].concat())
    };
    let repeated = again(&["--refiner", &refiner]);
    assert!(repeated.status.success(), "{}", String::from_utf8_lossy(&repeated.stderr));
    assert_eq!(read("a.png"), read("c.png"));
    for (output, code, param) in [
        (again(&[]), "invalid_argument", "refiner"),
        (with(&["--refiner", &refiner, "--refiner-from", "1.5"]), "invalid_argument", "refiner_from"),
        (with(&["--refiner", "nowhere"]), "model_not_found", ""),
    ] {
        let error = &answer(&output)["error"];
        assert_eq!(error["code"], code, "{error}");
        assert!(param.is_empty() || error["param"] == param, "{error}");
    }
    assert_eq!(with(&["--refiner-from", "0.5"]).status.code(), Some(2), "a share of no refiner");
}
