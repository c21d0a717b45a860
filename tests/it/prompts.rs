//! Weighed, broken and long prompts against numbers made with transformers alone (`scripts/golden_prompts.py`).

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use candle_core::{Device, Tensor};
use latentia::event::Watch;
use latentia::family::{Conditioning, Parts};
use latentia::studio::{DeviceClass, Model, Plan, Precision, Request, encode};
use latentia::text::{Long, Syntax};
use serde_json::Value;

use crate::fixtures;
use crate::golden::{close, distance};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/prompts")
}

/// What the network is told, without a negative prompt and with one.
fn told(model: &str, request: &Request) -> Vec<Conditioning> {
    let parts = Parts::open(&fixtures::compact().join(model).join("model"), None).expect("a model");
    let mut model = Model::from_parts(parts, "golden", DeviceClass::Cpu, Precision::F32).expect("a model");
    let mut watch = Watch::quiet();
    let plan = Plan::settle(request, model.card(), &model.engine().clone(), &mut watch).expect("a plan");
    encode(&plan, &mut model, &mut watch).expect("encoded")
}

fn request(call: &Value) -> Request {
    Request {
        prompt: call["prompt"].as_str().expect("a prompt").to_owned(),
        prompt_syntax: if call["prompt_syntax"] == "a1111" { Syntax::A1111 } else { Syntax::Plain },
        long_prompt: if call["long_prompt"] == "chunk" { Long::Chunk } else { Long::Truncate },
        clip_skip: call["clip_skip"].as_u64().map(|layers| layers as usize),
        guidance: Some(1.0),
        ..Request::default()
    }
}

#[test]
fn weighed_and_long_prompts_are_encoded_as_web_uis_do() {
    let golden =
        candle_core::safetensors::load(folder().join("golden.safetensors"), &Device::Cpu).expect("golden");
    let cases = fixtures::read_json(&folder().join("cases.json")).expect("cases");
    let mut worst = 0f64;
    for (name, case) in cases.as_object().expect("cases") {
        let model = case["model"].as_str().expect("a model");
        let asked = request(&case["call"]);
        let context: &Tensor = &golden[&format!("{name}.context")];
        let alone = told(model, &asked);
        close(&format!("{name} context"), &alone[0].context, context, 1e-5).unwrap();
        worst = worst.max(distance(&alone[0].context, context));
        let pooled = alone[0].pooled.as_ref().expect("pooled");
        close(&format!("{name} pooled"), pooled, &golden[&format!("{name}.pooled")], 1e-5).unwrap();
        // Beside a negative prompt it is the same, and that one has equally many chunks.
        let guided = told(model, &Request { guidance: Some(5.0), negative: Some("blurry".into()), ..asked });
        assert_eq!(guided[0].context.dims(), guided[1].context.dims(), "{name}");
        close(name, &guided[1].context, context, 1e-5).unwrap();
    }
    println!("prompts: {} cases, worst {worst:.2e}", cases.as_object().map_or(0, serde_json::Map::len));
}

fn generate(folder: &std::path::Path, arguments: &[&str]) -> Output {
    let model = fixtures::compact().join("sd15/model").canonicalize().expect("the sd15 fixture");
    let mut command = Command::new(env!("CARGO_BIN_EXE_latentia"));
    command.current_dir(folder).env("LATENTIA_HOME", folder).stdin(Stdio::null());
    command.args(["generate", "--json", "-q", "-m"]).arg(model).args(arguments).output().expect("runs")
}

#[test]
fn the_command_reads_the_syntax_only_when_asked_and_refuses_what_is_malformed() {
    let here = tempfile::tempdir().expect("a folder");
    let drawn = |prompt: &str, more: &[&str], name: &str| {
        let arguments = [&[prompt, "--steps", "2", "-o", name], more].concat();
        let output = generate(here.path(), &arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (
            fs::read(here.path().join(name)).expect("written"),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    let a1111 = &["--prompt-syntax", "a1111"][..];
    let (heavy, _) = drawn("a (cat:1.8)", a1111, "a.png");
    let (plain, _) = drawn("a (cat:1.8)", &[], "b.png");
    let pixels = |bytes: &[u8]| latentia::artifact::Photo::read(bytes).expect("a picture").picture;
    assert_ne!(pixels(&heavy), pixels(&plain));
    let again = generate(here.path(), &["--from", "a.png", "-o", "c.png"]);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    assert_eq!(fs::read(here.path().join("c.png")).expect("written"), heavy);
    let long = "a photo of a cat ".repeat(30);
    let (_, cut) = drawn(&long, &[], "d.png");
    assert!(cut.contains("was cut"), "{cut}");
    let (_, whole) = drawn(&long, &["--long-prompt", "chunk"], "e.png");
    assert!(!whole.contains("was cut"), "{whole}");
    for (arguments, code, param) in [
        (&["a (cat", "--prompt-syntax", "a1111"][..], "invalid_argument", "prompt"),
        (&["a cat", "--negative", "dog)", "--prompt-syntax", "a1111"], "invalid_argument", "negative"),
        (&["a <lora:../x:1>", "--prompt-syntax", "a1111"], "model_not_found", "prompt"),
        (&["a cat", "--negative", "<lora:x>", "--prompt-syntax", "a1111"], "invalid_argument", "negative"),
        (&["a cat", "-m", "mock", "--prompt-syntax", "a1111"], "invalid_argument", "prompt_syntax"),
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
        assert_eq!(
            (&error["error"]["code"], &error["error"]["param"]),
            (&code.into(), &param.into()),
            "{arguments:?}"
        );
    }
}
