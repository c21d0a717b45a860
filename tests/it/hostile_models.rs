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
use crate::show::copy;

/// A copy of a good model, to be spoilt.
pub(crate) struct Victim(tempfile::TempDir);

impl Victim {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        copy(&fixtures::compact().join("sd15/model"), folder.path());
        Self(folder)
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// Lays the keys of `changes` over a config, as the corpus means it.
    pub(crate) fn merge(&self, file: &str, changes: &[u8]) {
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

fn draw(model: &Path, prompt: &str) -> Result<()> {
    let studio = Studio::open(Path::new("nowhere"));
    let mut model = studio.model(model.to_str(), None, DeviceClass::Cpu, Precision::Auto)?;
    let request = Request { prompt: prompt.into(), steps: Some(1), ..Request::default() };
    studio.generate(&mut model, &request, &mut Watch::quiet(), |_, picture| picture.png(true).map(|_| ()))
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

/// A fault that a user meets: what was done to the folder, and the code that must come of it.
type Fault = (&'static str, fn(&Victim), Code);

/// Rewrites the denoiser's bytes from the header on.
pub(crate) fn poison(victim: &Victim, change: impl Fn(&mut [u8])) {
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
