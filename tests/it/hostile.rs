//! Files made by an enemy: each is refused with its code, soon, and nothing panics.
//!
//! The corpus of the reference is fed where this room can judge it: files of weights (`st-*`, `gguf-*`) and what a configuration
//! is before a network reads it (`cfg-*`), in this process; `corpus` feeds the same to the command. What follows it needs
//! no corpus.

use std::fs::{self, File};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use candle_core::{DType, Device};
use latentia::error::{Code, Error, Result};
use latentia::weights::{Folder, Weights, synthetic};
use serde_json::Value;

use crate::fixtures::hostile;

const WEIGHTS: &str = "unet/diffusion_pytorch_model.safetensors";
/// The one tensor that our victim's network asks for.
const TENSOR: (&str, &[usize]) = ("conv_in.weight", &[8, 4, 3, 3]);
/// Judged in `corpus` alone: sizes that a network's reader compares, and numbers that only drawing reveals.
const ELSEWHERE: &[&str] = &["st-27", "cfg-01", "cfg-02", "cfg-03", "cfg-04", "cfg-05", "cfg-08", "cfg-13"];

/// A model in a folder, good until something is put in its place.
struct Victim(tempfile::TempDir);

impl Victim {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        for name in ["unet", "vae", "scheduler", "text_encoder"] {
            fs::create_dir(root.join(name)).expect("made");
        }
        let index =
            br#"{"_class_name":"StableDiffusionPipeline","unet":["diffusers","UNet2DConditionModel"]}"#;
        fs::write(root.join("model_index.json"), index).expect("written");
        for config in ["unet/config.json", "vae/config.json", "scheduler/scheduler_config.json"] {
            fs::write(root.join(config), b"{}").expect("written");
        }
        synthetic::save(&root.join(WEIGHTS), 1, [(TENSOR.0.to_owned(), TENSOR.1.to_vec())]).expect("saved");
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// What a studio does first: open, read the configurations, load the network.
    fn load(&self) -> Result<()> {
        let folder = Folder::open(self.0.path())?;
        for name in ["unet", "vae", "scheduler"] {
            folder.config(name)?;
        }
        let vb = folder.weights("unet")?.var_builder(DType::F32, &Device::Cpu);
        vb.get(TENSOR.1, TENSOR.0).map(|_| ()).map_err(Error::from)
    }
}

/// Where a file of the corpus is put, by its name.
fn place(file: &str) -> &'static str {
    let name = file.rsplit('/').next().unwrap_or(file);
    match name {
        _ if name.contains(".index.") => "unet/model.safetensors.index.json",
        _ if file.contains("/weights/") => WEIGHTS,
        _ if name.starts_with("model_index") => "model_index.json",
        _ if name.starts_with("vae") => "vae/config.json",
        _ if name.starts_with("scheduler") => "scheduler/scheduler_config.json",
        _ => "unet/config.json",
    }
}

/// Puts the input where it does harm; false if this machine cannot make it.
pub(crate) fn materialize(case: &Value, corpus: &Path, target: &Path) -> bool {
    let source = corpus.join(case["file"].as_str().expect("a file"));
    match case["form"].as_str() {
        Some("gzip") => {
            let output = Command::new("gzip").arg("-dc").arg(&source).output();
            output.is_ok_and(|output| output.status.success() && fs::write(target, output.stdout).is_ok())
        }
        Some("recipe") => {
            let recipe = fs::read(&source).expect("readable");
            let recipe: Value = serde_json::from_slice(&recipe).expect("a recipe");
            assert_eq!(recipe["recipe"], "sparse_safetensors");
            sparse(&recipe, target).is_ok()
        }
        _ => fs::write(target, fs::read(source).expect("readable")).is_ok(),
    }
}

/// A file as long as it says, with nothing in it.
fn sparse(recipe: &Value, target: &Path) -> std::io::Result<()> {
    let length: u64 =
        recipe["shape"].as_array().expect("a shape").iter().filter_map(Value::as_u64).product::<u64>() * 4;
    let entry = serde_json::json!({ "dtype": recipe["dtype"], "shape": recipe["shape"], "data_offsets": [0, length] });
    let tensor = recipe["tensor"].as_str().expect("a name");
    let header = serde_json::json!({ tensor: entry }).to_string();
    let mut file = File::create(target)?;
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    file.set_len(8 + header.len() as u64 + length)
}

/// The verdict on one case; `Err` says what is wrong with us.
fn judge(case: &Value, corpus: &Path) -> Result<bool, String> {
    let victim = Victim::new();
    let accept = case["expect"]["class"] == "accept";
    let target = place(case["file"].as_str().expect("a file"));
    if !materialize(case, corpus, &victim.path(target)) {
        return Ok(false);
    }
    let began = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| {
        let inspected =
            if target == WEIGHTS { Weights::open(&victim.path(target)).map(|_| ()) } else { Ok(()) };
        // Valid weights of another model are still weights: only looking at them must succeed.
        if accept && target == WEIGHTS { inspected } else { inspected.and_then(|()| victim.load()) }
    }));
    let took = began.elapsed();
    let result = result.map_err(|_| "panicked".to_owned())?;
    if took > Duration::from_secs(case["bounds"]["seconds"].as_u64().expect("a bound")) {
        return Err(format!("took {took:?}"));
    }
    match result {
        Ok(()) if accept => Ok(true),
        Ok(()) => Err("was accepted".into()),
        Err(error) => {
            let expected = case["expect"]["codes"].as_array().map(Vec::as_slice).unwrap_or_default();
            let text = error.to_json().to_string();
            if text.contains(&*victim.0.path().to_string_lossy()) {
                return Err(format!("gives a path away: {text}"));
            }
            let fits = expected.iter().any(|code| code == error.code.as_str());
            if fits { Ok(true) } else { Err(format!("gave {}: {text}", error.code.as_str())) }
        }
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "the count belongs in the log")]
fn the_corpus_is_refused_with_its_codes() {
    let Some(corpus) = hostile() else { return };
    let manifest = fs::read(corpus.join("manifest.json")).expect("a manifest");
    let manifest: Value = serde_json::from_slice(&manifest).expect("JSON");
    let (mut right, mut skipped, mut wrong) = (0, Vec::new(), Vec::new());
    for case in manifest["cases"].as_array().expect("cases") {
        let id = case["id"].as_str().expect("an id");
        if !["st-", "gguf-", "cfg-"].iter().any(|kind| id.starts_with(kind)) || ELSEWHERE.contains(&id) {
            continue;
        }
        match judge(case, &corpus) {
            Ok(true) => right += 1,
            Ok(false) => skipped.push(id),
            Err(why) => wrong.push(format!("{id} {why}")),
        }
    }
    eprintln!("hostile: {right} right, {} wrong, {skipped:?} could not be made here", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(right >= 56);
}

/// A file with two tensors, as small as one can be.
fn small() -> Vec<u8> {
    let header = br#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]},"b.weight":{"dtype":"F32","shape":[4],"data_offsets":[12,28]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header);
    bytes.extend(0..28);
    bytes
}

/// Opens and reads everything; what comes out must have the shape it says.
fn read_all(bytes: Vec<u8>) -> Result<()> {
    let weights = Weights::from_bytes("w.safetensors", bytes)?;
    for (name, info) in &weights.inventory().tensors {
        match weights.tensor(name, None, DType::F32, &Device::Cpu) {
            Ok(tensor) => assert_eq!(tensor.dims(), info.shape),
            Err(error) => assert_eq!(error.code, Code::ModelIncompatible, "{error}"),
        }
    }
    Ok(())
}

#[test]
fn no_flipped_or_cut_file_panics() {
    let good = small();
    read_all(good.clone()).expect("good");
    for length in 0..good.len() {
        assert!(read_all(good[..length].to_vec()).is_err(), "cut at {length}");
    }
    // Xorshift (Marsaglia 2003): the same damage in every run.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).expect("31 bits") % below
    };
    let (mut accepted, tries) = (0, 20_000);
    for _ in 0..tries {
        let mut bad = good.clone();
        for _ in 0..=random(3) {
            let at = random(bad.len());
            // Half of the damage is a digit or a sign that JSON likes: deeper than mere noise.
            bad[at] =
                if random(2) == 0 { b"0123456789{}[]\",:-e"[random(19)] } else { bad[at] ^ (1 << random(8)) };
        }
        accepted += usize::from(read_all(bad).is_ok());
    }
    assert!(accepted < tries / 2, "{accepted} of {tries} accepted");
}

#[test]
fn an_index_of_shards_cannot_lead_elsewhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let index = folder.path().join("model.safetensors.index.json");
    let open = |text: &str| {
        fs::write(&index, text).expect("written");
        Weights::open(&index).map(|weights| weights.inventory().tensors.len())
    };
    for file in ["../x", "/etc/passwd", "a/b", r"..\\x", r"C:\\x", "", ".hidden", "..", "x\\u0000"] {
        let error = open(&format!(r#"{{"weight_map":{{"a":"{file}"}}}}"#)).expect_err("must be refused");
        assert_eq!(error.code, Code::PathDenied, "{file}");
    }
    let code = |result: Result<usize, Error>| result.expect_err("must be refused").code;
    assert_eq!(code(open(r#"{"weight_map":{"a":"absent.safetensors"}}"#)), Code::ModelNotDownloaded);
    assert_eq!(code(open(r#"{"weight_map":[]}"#)), Code::ConfigInvalid);
    assert_eq!(code(open(r#"{"weight_map":{"a":1}}"#)), Code::ConfigInvalid);
    assert_eq!(code(open("{")), Code::ConfigInvalid);
    fs::write(folder.path().join("s.safetensors"), small()).expect("written");
    assert_eq!(open(r#"{"weight_map":{"a":"s.safetensors","b.weight":"s.safetensors"}}"#).expect("good"), 2);
    assert_eq!(code(open(r#"{"weight_map":{"c":"s.safetensors"}}"#)), Code::WeightsCorrupt);
    fs::write(folder.path().join("t.safetensors"), small()).expect("written");
    let twice = open(r#"{"weight_map":{"a":"s.safetensors","b.weight":"t.safetensors"}}"#);
    assert_eq!(code(twice), Code::WeightsCorrupt);
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let victim = Victim::new();
    victim.load().expect("good until now");
    if cfg!(unix) {
        assert!(Weights::open(Path::new("/dev/zero")).is_err());
        let pipe = victim.path("pipe.safetensors");
        if Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()) {
            assert_eq!(Weights::open(&pipe).expect_err("a pipe").code, Code::UnsupportedFormat);
        }
    }
    fs::remove_file(victim.path(WEIGHTS)).expect("removed");
    assert_eq!(victim.load().expect_err("no weights").code, Code::ModelNotDownloaded);
    fs::write(victim.path("unet/diffusion_pytorch_model.bin"), b"PK").expect("written");
    assert_eq!(victim.load().expect_err("a pickle").code, Code::UnsupportedFormat);
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    fs::write(victim.path(WEIGHTS), pointer).expect("written");
    let error = victim.load().expect_err("a pointer");
    assert_eq!(error.code, Code::WeightsCorrupt);
    assert!(error.hint.is_some_and(|hint| hint.contains("git lfs pull")));
}
