//! The hostile corpus, kinds `lora` and `img`, as a user and an agent meet it: `generate` with each change, and each picture
//! edited by its path, in base64 and out of the store, all within the seconds and the memory of their case.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use latentia::artifact::store::{Meta, Store};
use serde_json::{Value, json};

use crate::corpus::{cases, judge, within};
use crate::fixtures;
use crate::hostile_models::Victim;
use crate::tools::Bench;

/// The fixture of Stable Diffusion with the U-net that the corpus means.
fn narrow() -> Victim {
    let victim = Victim::new();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/narrow");
    for (from, to) in
        [("config.json", "config.json"), ("unet.safetensors", "diffusion_pytorch_model.safetensors")]
    {
        fs::copy(folder.join(from), victim.path("unet").join(to)).expect("copied");
    }
    victim
}

#[test]
fn hostile_loras_get_their_codes_within_their_bounds_and_leave_the_base_alone() {
    let Some(corpus) = fixtures::hostile() else { return };
    let victim = narrow();
    let model = victim.path("").to_str().expect("UTF-8").to_owned();
    let home = tempfile::tempdir().expect("a folder");
    let draw = |output: &str, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_latentia"));
        command.current_dir(home.path()).env("LATENTIA_HOME", home.path());
        command.args(["generate", "a cat", "--steps", "1", "-q", "--json", "-m", &model, "-o", output]);
        command.args(more);
        command
    };
    let drawn = |name: &str| {
        assert!(draw(name, &[]).output().expect("runs").status.success());
        fs::read(home.path().join(name)).expect("written")
    };
    let before = drawn("before.png");
    let mut judged = 0;
    for case in cases(&corpus, &["lora"]) {
        let file = corpus.join(case["file"].as_str().expect("a file"));
        let lora = format!("{}:1", file.to_str().expect("UTF-8"));
        let output = within(&case, || draw("worn.png", &["--lora", &lora])).and_then(|output| {
            judge(&case, &output)?;
            Ok(output)
        });
        let output = output.unwrap_or_else(|why| panic!("{}: {why}", case["id"]));
        let picture = fs::read(home.path().join("worn.png")).ok();
        assert_eq!(picture.is_some(), output.status.success(), "{}", case["id"]);
        assert_ne!(picture.as_ref(), Some(&before), "{}", case["id"]);
        let _ = fs::remove_file(home.path().join("worn.png"));
        judged += 1;
    }
    assert_eq!(judged, 6);
    assert_eq!(drawn("after.png"), before);
}

/// A picture is asked to be changed by a mock; all that is in question is how it is read.
fn edits(bench: &Bench, file: &Path, bytes: &[u8]) -> [(&'static str, Value); 3] {
    let meta = Meta { content_type: Some("image/png".into()), ..Meta::default() };
    let kept = Store::open(&bench.path("store")).and_then(|store| store.put(bytes, &meta)).expect("kept");
    let base64 = base64::engine::general_purpose::STANDARD.encode(bytes);
    let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
    fs::write(bench.path("workspace").join(name), bytes).expect("written");
    [
        ("path", json!({ "image_path": name })),
        ("base64", json!({ "image_b64": base64 })),
        ("artifact", json!({ "image_artifact": kept.reference() })),
    ]
}

#[test]
fn hostile_pictures_get_their_codes_whichever_way_they_come() {
    let Some(corpus) = fixtures::hostile() else { return };
    let bench = Bench::new();
    let (mut judged, mut wrong) = (0, Vec::new());
    for case in cases(&corpus, &["img"]) {
        let file = corpus.join(case["file"].as_str().expect("a file"));
        let bytes = fs::read(&file).expect("the file");
        for (way, mut ask) in edits(&bench, &file, &bytes) {
            ask["prompt"] = "a".into();
            ask["model"] = "mock".into();
            let arguments = bench.path("home").join("arguments.json");
            fs::write(&arguments, ask.to_string()).expect("written");
            let arguments = format!("@{}", arguments.to_str().expect("UTF-8"));
            let call = || bench.command(&["tools", "call", "i2i", &arguments, "--quiet"]);
            judged += 1;
            if let Err(why) = within(&case, call).and_then(|output| judge(&case, &output)) {
                wrong.push(format!("{} by {way}: {why}", case["id"]));
            }
        }
        // And as the command takes it, from anywhere.
        let file = file.to_str().expect("UTF-8");
        let edit = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_latentia"));
            command.current_dir(bench.path("workspace")).env("LATENTIA_HOME", bench.path("home"));
            command.args(["edit", "a", "-m", "mock", "-q", "--json", "-o", "edited.png", "-i", file]);
            command
        };
        judged += 1;
        if let Err(why) = within(&case, edit).and_then(|output| judge(&case, &output)) {
            wrong.push(format!("{} by the command: {why}", case["id"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(judged, 4 * 24);
}
