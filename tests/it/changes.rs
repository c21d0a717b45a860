//! Files of changes to weights: every kind against the libraries that merge them, and those that must be refused.

use std::path::PathBuf;

use candle_core::{DType, Device};
use latentia::error::{Code, Result};
use latentia::weights::{Lora, Patch, Weights, synthetic};
use serde_json::Value;

use crate::fixtures;
use crate::golden::close;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/changes")
}

/// The weights of a component with a change in some strength.
fn changed(base: &Weights, lora: &Lora, strength: f64) -> Result<Weights> {
    let fit = lora.fit(&[("unet", base.clone())])?;
    let mut patch = Patch::default();
    patch.add("unet", &fit, strength);
    Ok(base.patched(patch))
}

#[test]
fn every_kind_of_change_gives_the_weights_that_lycoris_and_peft_give() {
    let base = Weights::open(&folder().join("base.safetensors")).expect("the base");
    let files = std::fs::read_dir(folder()).expect("the fixtures").flatten().map(|entry| entry.path());
    let mut kinds = 0;
    for golden in files.filter(|path| path.to_string_lossy().ends_with(".golden.safetensors")) {
        let file = golden.to_string_lossy().replace(".golden.", ".");
        let lora = Lora::open(file.as_ref()).unwrap_or_else(|error| panic!("{file}: {error}"));
        let ours = changed(&base, &lora, 1.0).unwrap_or_else(|error| panic!("{file}: {error}"));
        let golden = Weights::open(&golden).expect("golden");
        for name in golden.inventory().names() {
            let read = |weights: &Weights| weights.tensor(name, None, DType::F32, &Device::Cpu);
            let ours = read(&ours).unwrap_or_else(|error| panic!("{file}: {error}"));
            close(&format!("{file} {name}"), &ours, &read(&golden).expect("there"), 1e-5).unwrap();
            let plain = read(&base).expect("there");
            assert!(close(name, &ours, &plain, 1e-3).is_err(), "{file}: {name} was not changed");
            let none = read(&changed(&base, &lora, 0.0).expect("fits")).expect("there");
            close(name, &none, &plain, 1e-6).unwrap();
        }
        kinds += 1;
    }
    assert_eq!(kinds, 13);
}

/// The tensor that the hostile corpus means.
const NAME: &str = "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q.weight";

#[test]
fn hostile_changes_are_refused_and_the_base_stays() {
    let Some(corpus) = fixtures::hostile() else { return };
    let manifest = fixtures::read_json(&corpus.join("manifest.json")).expect("a manifest");
    let home = tempfile::tempdir().expect("a folder");
    let path = home.path().join("base.safetensors");
    synthetic::save(&path, 1, [(NAME.to_owned(), vec![8, 8])]).expect("saved");
    let base = Weights::open(&path).expect("the base");
    let read = |weights: &Weights| {
        let tensor = weights.tensor(NAME, None, DType::F32, &Device::Cpu)?;
        Ok::<_, latentia::error::Error>(tensor.flatten_all()?.to_vec1::<f32>()?)
    };
    let before = read(&base).expect("numbers");
    let mut judged = 0;
    for case in manifest["cases"].as_array().expect("cases") {
        if case["surface"] != "weights/lora" {
            continue;
        }
        judged += 1;
        let file = corpus.join(case["file"].as_str().expect("a file"));
        let outcome =
            Lora::open(&file).and_then(|lora| changed(&base, &lora, 1.0)).and_then(|weights| read(&weights));
        let expected = &case["expect"];
        match (outcome, expected["class"].as_str()) {
            (Ok(numbers), Some("accept")) => assert_ne!(numbers, before, "{}", case["id"]),
            (Err(error), Some("reject")) => {
                let codes = expected["codes"].as_array().into_iter().flatten();
                let known = codes.filter_map(Value::as_str).any(|code| code == error.code.as_str());
                assert!(known, "{}: {error} ({})", case["id"], error.code.as_str());
            }
            (outcome, _) => panic!("{}: {outcome:?}", case["id"]),
        }
        assert_eq!(read(&base).expect("numbers"), before, "{} touched the base", case["id"]);
    }
    assert_eq!(judged, 6);
}

#[test]
fn what_is_no_change_is_said() {
    let error = Lora::open(&folder().join("base.safetensors")).expect_err("no change");
    assert_eq!(error.code, Code::LoraIncompatible);
}
