//! Larger pictures of pictures: the network's attentions, the command and the tool.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use candle_core::{DType, Device};
use latentia::artifact::{Photo, Picture, png};
use latentia::event::Watch;
use latentia::family::ldm::config::UnetConfig;
use latentia::family::ldm::{Heard, Unet};
use latentia::weights::{Config, Weights};
use serde_json::{Value, json};

use crate::fixtures;
use crate::golden::close;
use crate::tools::Bench;

#[test]
fn levels_whose_first_attention_asks_the_text_are_those_of_diffusers() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/crossed");
    let bytes = fs::read(folder.join("config.json")).expect("a config");
    let config = UnetConfig::read(&Config::read(&bytes, "config.json").expect("JSON")).expect("a U-net");
    assert_eq!(config.levels.iter().map(|level| level.crosses).collect::<Vec<_>>(), [true, true, false]);
    let weights = Weights::open(&folder.join("unet.safetensors")).expect("weights");
    let network = Unet::new(&config, &weights.var_builder(DType::F32, &Device::Cpu)).expect("a network");
    let golden =
        candle_core::safetensors::load(folder.join("golden.safetensors"), &Device::Cpu).expect("golden");
    let labels = golden["class_labels"].to_vec1::<i64>().expect("labels");
    let labels: Vec<usize> = labels.into_iter().map(|label| label as usize).collect();
    let heard = Heard {
        text: network.trunk().listen(&golden["encoder_hidden_states"]).expect("listens"),
        guidance: None,
        added: network.trunk().hear_grain(&labels).expect("hears"),
    };
    let ours =
        network.forward(&golden["sample"], 500.0, (&heard, None), &mut Watch::quiet()).expect("a call");
    close("crossed", &ours, &golden["out"], 1e-5).unwrap();
    let error = network.trunk().hear_grain(&[10]).expect_err("there are ten");
    assert_eq!(error.param.as_deref(), Some("noise_level"));
}

/// A picture of 20 by 12 pixels, each its own, and the upscaler of the fixtures.
fn given() -> Option<(Vec<u8>, PathBuf)> {
    let model = fixtures::fixture("upscale_x4")?.join("model").canonicalize().expect("a model");
    let pixel = |at: u32| [(at * 7 % 251) as u8, (at * 13 % 241) as u8, (at * 29 % 239) as u8];
    let picture = Picture::new(20, 12, (0..240).flat_map(pixel).collect()).expect("a picture");
    Some((png::encode(&picture, &[]).expect("encoded"), model))
}

fn upscale(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_latentia"));
    command.current_dir(folder).env("LATENTIA_HOME", folder).stdin(Stdio::null());
    command.args(["upscale", "in.png", "--json", "-q"]).args(arguments).output().expect("runs")
}

#[test]
fn the_command_enlarges_repeats_itself_and_refuses_by_name() {
    let Some((bytes, model)) = given() else { return };
    let here = tempfile::tempdir().expect("a folder");
    fs::write(here.path().join("in.png"), bytes).expect("written");
    let model = model.to_str().expect("UTF-8");
    let drawn = |arguments: &[&str], name: &str| {
        let output = upscale(here.path(), &[arguments, &["-m", model, "-o", name]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let bytes = fs::read(here.path().join(name)).expect("written");
        (Photo::read(&bytes).expect("a picture").picture.size(), bytes)
    };
    let (size, first) = drawn(&["a cat", "--steps", "2", "--seed", "4"], "a.png");
    assert_eq!(size, (80, 48));
    assert_eq!(drawn(&["--from", "a.png"], "b.png").1, first);
    let (_, rough) = drawn(&["a cat", "--steps", "2", "--seed", "4", "--noise-level", "200"], "c.png");
    assert_ne!(rough, first);
    assert_eq!(
        drawn(&["--steps", "1", "--size", "40x24"], "d.png").0,
        (40, 24),
        "without a prompt, and smaller"
    );
    for (arguments, code, param) in [
        (&["--noise-level", "351"][..], "invalid_argument", "noise_level"),
        (&["--size", "81x48"], "invalid_argument", "size"),
        (&["--size", "10x6"], "invalid_argument", "size"),
    ] {
        let output = upscale(here.path(), &[arguments, &["-m", model]].concat());
        assert_eq!(refused(&output), (code.into(), param.into()), "{arguments:?}");
    }
    let sd15 = fixtures::compact().join("sd15/model").canonicalize().expect("the sd15 fixture");
    let output = upscale(here.path(), &["-m", sd15.to_str().expect("UTF-8")]);
    assert_eq!(refused(&output), ("unsupported_task".into(), "task".into()));
}

fn refused(output: &Output) -> (String, String) {
    let line = String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned();
    let error: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no error object: {line}"));
    let text = |key: &str| error["error"][key].as_str().unwrap_or_default().to_owned();
    (text("code"), text("param"))
}

#[test]
fn the_tool_draws_where_a_model_can() {
    let Some((bytes, model)) = given() else { return };
    let bench = Bench::new();
    let image = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
    let call = |more: Value| {
        let mut ask = json!({ "image_b64": image, "seed": 3 });
        ask.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        let model = model.to_str().expect("UTF-8");
        let output = bench.call_raw("vision_image_upscale", ask.to_string().as_bytes(), &["--model", model]);
        serde_json::from_slice::<Value>(&output.stdout).expect("an answer")
    };
    for (more, size) in [
        (json!({}), [80, 48]),
        (json!({ "scale": 2.0 }), [40, 24]),
        (json!({ "resolution": "36" }), [60, 36]),
        (json!({ "resolution": "4x" }), [80, 48]),
    ] {
        let answer = call(more);
        assert!(answer["$artifact"].is_string(), "{answer}");
        assert_eq!(json!([answer["width"], answer["height"]]), json!(size), "{answer}");
    }
    for (more, param) in [
        (json!({ "scale": 8.0 }), "size"),
        (json!({ "softness": 0.5 }), "softness"),
        (json!({ "scale": 2.0, "resolution": "2x" }), "resolution"),
        (json!({ "resolution": "large" }), "resolution"),
    ] {
        let answer = call(more);
        assert_eq!(
            (&answer["error"]["code"], &answer["error"]["param"]),
            (&json!("invalid_argument"), &json!(param))
        );
    }
}
