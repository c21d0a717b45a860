//! Broken models, as a user meets them: put into a good folder, then asked to draw.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use latentia::error::{Code, Error, Result};
use latentia::event::Watch;
use latentia::studio::{DeviceClass, Precision, Request, Studio};
use serde_json::Value;

use crate::fixtures;
use crate::fixtures::read_json;

/// A copy of a good model, to be spoilt.
struct Victim(tempfile::TempDir);

impl Victim {
    fn new() -> Self {
        let copy = tempfile::tempdir().expect("a folder");
        copy_folder(&fixtures::compact().join("sd15/model"), copy.path());
        Self(copy)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// Adds the keys that a config has not: the sizes of the corpus' good config are those of another model.
    fn extend(&self, file: &str, changes: &[u8]) {
        let (base, more) =
            (read_json(&self.path(file)).expect("JSON"), serde_json::from_slice(changes).expect("JSON"));
        let (Value::Object(base), Value::Object(mut more)) = (base, more) else { panic!("objects") };
        more.extend(base);
        fs::write(self.path(file), serde_json::to_vec(&more).expect("JSON")).expect("written");
    }

    /// Lays the keys of `changes` over a config, as the corpus means it.
    fn merge(&self, file: &str, changes: &[u8]) {
        let path = self.path(file);
        let overlay: Option<Value> = serde_json::from_slice(changes).ok();
        let base = read_json(&path).ok();
        let merged = match (base, overlay) {
            (Some(Value::Object(mut base)), Some(Value::Object(overlay))) => {
                base.extend(overlay);
                serde_json::to_vec(&base).expect("JSON")
            }
            _ => changes.to_vec(),
        };
        fs::write(path, merged).expect("written");
    }

    fn draw(&self) -> Result<()> {
        draw(self.0.path(), "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!")
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("the sd15 fixture").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::write(target, fs::read(entry.path()).expect("read")).expect("written");
        }
    }
}

fn draw(model: &Path, prompt: &str) -> Result<()> {
    let studio = Studio::open(Path::new("nowhere"));
    let mut model = studio.model(model.to_str(), None, DeviceClass::Cpu, Precision::Auto)?;
    let request = Request { prompt: prompt.into(), steps: Some(1), ..Request::default() };
    studio.generate(&mut model, &request, &mut Watch::quiet(), |_, picture| picture.png(true).map(|_| ()))
}

/// Which config of the folder a case of the corpus replaces.
fn target(file: &str) -> &'static str {
    let places = [
        ("unet_", "unet/config.json"),
        ("vae_", "vae/config.json"),
        ("text_", "text_encoder/config.json"),
        ("scheduler_", "scheduler/scheduler_config.json"),
        ("model_index", "model_index.json"),
        ("config_", "unet/config.json"),
    ];
    let name = file.rsplit('/').next().unwrap_or(file);
    places.iter().find(|(start, _)| name.starts_with(start)).map_or("unet/config.json", |(_, place)| place)
}

/// The error a spoilt model gives, or how it misbehaved.
fn outcome(victim: &Victim) -> std::result::Result<Option<Error>, String> {
    let began = Instant::now();
    let drawn = catch_unwind(AssertUnwindSafe(|| victim.draw())).map_err(|_| "panicked".to_owned())?;
    if began.elapsed() > Duration::from_secs(10) {
        return Err(format!("took {:?}", began.elapsed()));
    }
    Ok(drawn.err())
}

#[test]
fn configs_and_tokenizers_of_the_corpus_are_refused_with_their_codes() {
    let Some(corpus) = fixtures::hostile() else { return };
    let manifest = read_json(&corpus.join("manifest.json")).expect("a manifest");
    let (mut right, mut wrong) = (0, Vec::new());
    for case in manifest["cases"].as_array().expect("cases") {
        let id = case["id"].as_str().expect("an id");
        let (config, tokenizer) = (id.starts_with("cfg-"), id.starts_with("tok-"));
        if !config && !tokenizer {
            continue;
        }
        let file = case["file"].as_str().expect("a file");
        let bytes = fs::read(corpus.join(file)).expect("the file");
        let victim = Victim::new();
        if config && case["expect"]["class"] == "accept" {
            victim.extend(target(file), &bytes);
        } else if config {
            victim.merge(target(file), &bytes);
        } else {
            fs::write(victim.path("tokenizer/tokenizer.json"), bytes).expect("written");
        }
        let codes: Vec<_> =
            case["expect"]["codes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let class = case["expect"]["class"].as_str().unwrap_or("");
        match (outcome(&victim), class) {
            (Ok(None), "accept" | "either") => right += 1,
            (Ok(Some(error)), "reject" | "either") if codes.contains(&error.code.as_str()) => right += 1,
            (Ok(found), _) => {
                let found = found.map_or("a picture".into(), |e| format!("{} ({e})", e.code.as_str()));
                wrong.push(format!("{id}: {found}, expected {class} {codes:?}"));
            }
            (Err(what), _) => wrong.push(format!("{id}: {what}")),
        }
    }
    println!("hostile models: {right} right, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A fault that a user meets: what was done to the folder, and the code that must come of it.
type Fault = (&'static str, fn(&Victim), Code);

/// Rewrites the denoiser's bytes from the header on.
fn poison(victim: &Victim, change: impl Fn(&mut [u8])) {
    let path = victim.path("unet/diffusion_pytorch_model.safetensors");
    let mut bytes = fs::read(&path).expect("read");
    let header = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    change(&mut bytes[8 + header as usize..]);
    fs::write(path, bytes).expect("written");
}

const FAULTS: &[Fault] = &[
    (
        "truncated weights",
        |v| {
            let path = v.path("unet/diffusion_pytorch_model.safetensors");
            let bytes = fs::read(&path).expect("read");
            fs::write(path, &bytes[..bytes.len() / 2]).expect("written");
        },
        Code::WeightsCorrupt,
    ),
    (
        "missing weights",
        |v| {
            fs::remove_file(v.path("vae/diffusion_pytorch_model.safetensors")).expect("removed");
        },
        Code::ModelNotDownloaded,
    ),
    (
        "a network of another width",
        |v| v.merge("unet/config.json", br#"{"cross_attention_dim": 48}"#),
        Code::ModelIncompatible,
    ),
    (
        "channels that groups do not divide",
        |v| v.merge("unet/config.json", br#"{"norm_num_groups": 7}"#),
        Code::ConfigInvalid,
    ),
    (
        "an unknown block",
        |v| v.merge("unet/config.json", br#"{"down_block_types": ["A","B","C","D"]}"#),
        Code::ModelUnsupported,
    ),
    (
        "an unknown scheduler",
        |v| {
            v.merge("model_index.json", br#"{"scheduler": ["diffusers", "GuessScheduler"]}"#);
            v.merge("scheduler/scheduler_config.json", br#"{"_class_name": "GuessScheduler"}"#);
        },
        Code::ConfigInvalid,
    ),
    (
        "an unknown pipeline",
        |v| v.merge("model_index.json", br#"{"_class_name": "GuessPipeline"}"#),
        Code::ModelUnsupported,
    ),
    ("weights that are not numbers", |v| poison(v, |bytes| bytes.fill(0xff)), Code::NonFiniteOutput),
    (
        "no tokenizer files",
        |v| fs::remove_file(v.path("tokenizer/merges.txt")).expect("removed"),
        Code::ModelNotDownloaded,
    ),
    (
        "a tokenizer larger than its encoder",
        |v| {
            v.merge("text_encoder/config.json", br#"{"vocab_size": 900}"#);
        },
        Code::ModelIncompatible,
    ),
];

#[test]
fn each_fault_of_a_model_gets_its_code() {
    for (what, spoil, code) in FAULTS {
        let victim = Victim::new();
        spoil(&victim);
        match outcome(&victim) {
            Ok(Some(error)) => {
                assert_eq!(error.code, *code, "{what}: {error}");
                assert!(!error.message.is_empty());
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    assert!(outcome(&Victim::new()).is_ok_and(|error| error.is_none()), "the good model draws");
}

#[test]
fn a_prompt_without_end_is_refused() {
    let error = draw(&fixtures::compact().join("sd15/model"), &"a ".repeat(10_000)).expect_err("too long");
    assert_eq!(error.code, Code::PromptTooLong);
}
