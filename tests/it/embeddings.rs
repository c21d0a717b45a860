//! Taught words against what diffusers says of them (`scripts/golden_embeddings.py`), and the command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use candle_core::Device;
use latentia::error::Code;
use latentia::event::Watch;
use latentia::family::Parts;
use latentia::studio::{DeviceClass, Model, Plan, Precision, Request, encode};
use latentia::weights::Embedding;
use serde_json::Value;

use crate::fixtures;
use crate::golden::{close, distance};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/embeddings")
}

fn model(name: &str) -> Model {
    let parts = Parts::open(&fixtures::compact().join(name).join("model"), None).expect("a model");
    Model::from_parts(parts, "golden", DeviceClass::Cpu, Precision::F32).expect("a model")
}

fn open(file: &str) -> Embedding {
    Embedding::open(&folder().join(file).with_extension("safetensors")).expect("a word")
}

#[test]
fn taught_words_are_read_as_diffusers_reads_them() {
    let golden =
        candle_core::safetensors::load(folder().join("golden.safetensors"), &Device::Cpu).expect("golden");
    let cases = fixtures::read_json(&folder().join("cases.json")).expect("cases");
    let mut worst = 0f64;
    for (name, case) in cases.as_object().expect("cases") {
        let mut model = model(case["model"].as_str().expect("a model"));
        let word = |pair: &Value| {
            let embedding = open(pair[1].as_str().expect("a file"));
            let word = pair[0].as_str().or_else(|| embedding.word()).expect("a word").to_owned();
            (word, embedding)
        };
        let words: Vec<_> = case["words"].as_array().expect("words").iter().map(word).collect();
        let prompt = case["prompt"].as_str().expect("a prompt").to_owned();
        let request = Request { prompt, guidance: Some(1.0), ..Request::default() };
        let mut watch = Watch::quiet();
        let plan = Plan::settle(&request, model.card(), &model.engine().clone(), &mut watch).expect("a plan");
        let before = encode(&plan, &mut model, &mut watch).expect("encoded");
        model.learn(&words).expect("fits");
        let told = encode(&plan, &mut model, &mut watch).expect("encoded");
        let context = &golden[&format!("{name}.context")];
        close(&format!("{name} context"), &told[0].context, context, 1e-5).unwrap();
        worst = worst.max(distance(&told[0].context, context));
        if let Some(pooled) = golden.get(&format!("{name}.pooled")) {
            close(name, told[0].pooled.as_ref().expect("pooled"), pooled, 1e-5).unwrap();
        }
        // What is forgotten is read letter by letter again.
        assert!(distance(&before[0].context, context) > 1e-2, "{name}");
        model.learn(&[]).expect("forgets");
        let after = encode(&plan, &mut model, &mut watch).expect("encoded");
        assert!(distance(&after[0].context, &before[0].context) < 1e-12, "{name}");
    }
    println!("embeddings: {} cases, worst {worst:.2e}", cases.as_object().map_or(0, serde_json::Map::len));
}

#[test]
fn what_does_not_fit_leaves_the_model_as_it_was() {
    let mut model = model("sdxl");
    model.learn(&[("zork".into(), open("xl"))]).expect("fits");
    let error = model.learn(&[("style".into(), open("style"))]).expect_err("one encoder");
    assert_eq!((error.code, error.param.as_deref()), (Code::ModelIncompatible, Some("embeddings")));
    assert_eq!(model.learned().len(), 1);
}

fn generate(folder: &Path, arguments: &[&str]) -> Output {
    let model = fixtures::compact().join("sd15/model").canonicalize().expect("the sd15 fixture");
    let mut command = Command::new(env!("CARGO_BIN_EXE_latentia"));
    command.current_dir(folder).env("LATENTIA_HOME", folder).stdin(Stdio::null());
    command.args(["generate", "--json", "-q", "-m"]).arg(model).args(arguments).output().expect("runs")
}

#[test]
fn the_command_teaches_repeats_and_refuses_by_name() {
    let here = tempfile::tempdir().expect("a folder");
    for name in ["style", "toy", "xl", "golden"] {
        let file = folder().join(name).with_extension("safetensors");
        fs::copy(file, here.path().join(name).with_extension("safetensors")).expect("copied");
    }
    let drawn = |name: &str, arguments: &[&str]| {
        let output = generate(here.path(), &[arguments, &["-o", name]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        fs::read(here.path().join(name)).expect("written")
    };
    let asked = ["a cat in Style", "--steps", "2", "--prompt-syntax", "a1111"];
    let plain = drawn("plain.png", &asked);
    let taught = drawn("taught.png", &[&asked[..], &["--embedding", "style.safetensors"]].concat());
    let named = drawn("named.png", &[&asked[..], &["--embedding", "cat=style.safetensors"]].concat());
    let pixels = |bytes: &[u8]| latentia::artifact::Photo::read(bytes).expect("a picture").picture;
    assert!(pixels(&plain) != pixels(&taught) && pixels(&taught) != pixels(&named));
    let again = ["--from", "taught.png", "--embedding", "style=style.safetensors"];
    assert_eq!(drawn("again.png", &again), taught);
    let text = String::from_utf8_lossy(&taught).into_owned();
    assert!(text.contains("TI hashes: \"style: ") || text.contains("TI hashes: style"), "no hash");
    for (arguments, code, param) in [
        (&["--from", "taught.png"][..], "invalid_argument", "embeddings"),
        (&["a", "--embedding", "nowhere.safetensors"], "file_not_found", "embeddings"),
        (&["a", "--embedding", "golden.safetensors"], "invalid_argument", "embeddings"),
        (&["a", "--embedding", "xl.safetensors"], "model_incompatible", "embeddings"),
        (&["a", "--embedding", "a b=toy.safetensors"], "invalid_argument", "embeddings"),
        (
            &["a", "--embedding", "x=toy.safetensors", "--embedding", "X=style.safetensors"],
            "invalid_argument",
            "embeddings",
        ),
        (&["a", "-m", "mock", "--embedding", "toy.safetensors"], "model_incompatible", "embeddings"),
    ] {
        let output = if arguments.contains(&"mock") {
            let mut command = Command::new(env!("CARGO_BIN_EXE_latentia"));
            command.current_dir(here.path()).env("LATENTIA_HOME", here.path()).stdin(Stdio::null());
            command.args(["generate", "--json", "-q"]).args(arguments).output().expect("runs")
        } else {
            generate(here.path(), arguments)
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error: Value = serde_json::from_str(text.lines().last().unwrap_or("")).expect("an error object");
        let error = &error["error"];
        assert_eq!((&error["code"], &error["param"]), (&code.into(), &param.into()), "{arguments:?} {error}");
    }
    assert_eq!(generate(here.path(), &["a", "--embedding", "=toy.safetensors"]).status.code(), Some(2));
}
