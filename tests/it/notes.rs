//! What tensors cannot tell: notes beside a file, words in its name, what the user says, and what nobody has checked.

use std::fs;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device};
use latentia::error::Code;
use latentia::family::known::{CHECKED, Guidance, Measure, PROFILES};
use latentia::registry::Catalogue;
use latentia::weights::Weights;
use serde_json::{Value, json};

use crate::fixtures;
use crate::inventories::{inventory, save, sizes, unet};
use crate::show::{copy, home, json, latentia, text};

/// A denoiser of Stable Diffusion 2, whose shapes say nothing of its prediction.
fn second(home: &Path, name: &str) -> PathBuf {
    let path = home.join(name);
    save(&inventory(&unet(sizes(vec![(Measure::Context, 1024), (Measure::Linear, 1)]))), &path);
    path
}

fn show(home: &Path, path: &Path) -> Value {
    json(home, &["show", text(path), "--json"])
}

/// The claims about a fact, as value, kind of evidence and confidence.
fn claims(shown: &Value, fact: &str) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let kind =
        |because: &Value| because.as_object().and_then(|kinds| kinds.keys().next().cloned()).expect("a kind");
    let claims = shown["claims"].as_array().expect("claims").iter().filter(|claim| claim["fact"] == fact);
    claims.map(|claim| (text(&claim["value"]), kind(&claim["because"]), text(&claim["confidence"]))).collect()
}

#[test]
fn a_prediction_that_nothing_tells_is_unknown_until_somebody_says() {
    let home = home();
    let silent = second(home.path(), "model.safetensors");
    let shown = show(home.path(), &silent);
    assert_eq!((&shown["family"], &shown["variant"]), (&json!("stable-diffusion"), &json!("2")));
    assert_eq!(shown["prediction"], Value::Null);
    let said = latentia(home.path(), &["show", text(&silent)]);
    let said = String::from_utf8(said.stdout).expect("text");
    assert!(said.contains("prediction  unknown") && said.contains("--set prediction=v"), "{said}");

    let named = show(home.path(), &second(home.path(), "v2-1_768-ema-pruned.safetensors"));
    assert_eq!(claims(&named, "prediction"), [("v".into(), "name".into(), "guessed".into())]);
    let base = show(home.path(), &second(home.path(), "v2-1_512-ema-pruned.safetensors"));
    assert_eq!(base["prediction"], "epsilon");

    let yaml = second(home.path(), "published.safetensors");
    fs::write(yaml.with_extension("yaml"), "model:\n  params:\n    parameterization: \"v\"\n")
        .expect("written");
    assert_eq!(
        claims(&show(home.path(), &yaml), "prediction"),
        [("v".into(), "config".into(), "certain".into())]
    );

    json(home.path(), &["import", text(&yaml), "--name", "mine", "--set", "prediction=epsilon", "--json"]);
    let shown = json(home.path(), &["show", "mine", "--json"]);
    assert_eq!(shown["prediction"], "epsilon", "the user's word counts");
    assert!(claims(&shown, "prediction").contains(&("epsilon".into(), "user".into(), "certain".into())));
    assert!(
        shown["conflicts"][0].as_str().is_some_and(|text| text.contains("yaml") && text.contains("user"))
    );
}

#[test]
fn what_the_user_says_of_a_model_holds_when_it_draws() {
    let home = home();
    let model = fixtures::compact().join("sd21/model").canonicalize().expect("the sd21 fixture");
    let file =
        fixtures::compact().join("sd21/single_file/sd21.safetensors").canonicalize().expect("the file");
    let set = ["--set", "prediction=epsilon", "--set", "size=72x64", "--json"];
    json(home.path(), &[&["import", text(&model), "--name", "folder"], &set[..]].concat());
    json(
        home.path(),
        &[&["import", text(&file), "--name", "file", "--config", text(&model)], &set[..]].concat(),
    );
    let draw = |name: &str| {
        let output = format!("{}.png", name.rsplit('/').next().expect("a name"));
        let arguments = ["generate", "a cat", "--steps", "2", "-q", "-m", name, "-o", &output, "--json"];
        json(home.path(), &arguments);
        let bytes = fs::read(home.path().join(output)).expect("written");
        let texts = latentia::artifact::png::texts(&bytes).expect("texts");
        let recipe = &texts.iter().find(|(key, _)| key == "latentia").expect("a recipe").1;
        serde_json::from_str::<Value>(recipe).expect("JSON")
    };
    let untold = draw(text(&model));
    assert_eq!(untold["scheduler"]["prediction_type"], "v_prediction");
    for name in ["folder", "file"] {
        let told = draw(name);
        assert_eq!(told["scheduler"]["prediction_type"], "epsilon", "{name}");
        assert_eq!((&told["width"], &told["height"]), (&json!(72), &json!(64)), "{name}");
    }
    let wrong = latentia(home.path(), &["import", text(&file), "--name", "x", "--set", "prediction=guess"]);
    assert_eq!(wrong.status.code(), Some(2), "not a prediction");
}

#[test]
fn notes_of_other_programs_are_evidence_and_their_errors_are_reported() {
    let home = home();
    let first = inventory(&unet(sizes(Vec::new())));
    for (end, note, family) in [
        (
            "civitai.info",
            json!({ "baseModel": "SD 1.5", "trainedWords": ["sks dog", "best"] }),
            "stable-diffusion",
        ),
        ("json", json!({ "sd version": "SDXL", "activation text": "sks dog, best" }), "stable-diffusion-xl"),
        (
            "metadata.json",
            json!({ "base_model": "Pony", "civitai": { "trainedWords": ["sks dog", "best"] } }),
            "stable-diffusion-xl",
        ),
        ("cm-info.json", json!({ "BaseModel": "Flux.1 D", "TrainedWords": ["sks dog", "best"] }), "flux"),
    ] {
        let path = home.path().join(format!("{}.safetensors", end.replace('.', "_")));
        save(&first, &path);
        fs::write(path.with_extension(end), note.to_string()).expect("written");
        let shown = show(home.path(), &path);
        assert_eq!(shown["family"], "stable-diffusion", "{end}: tensors win");
        assert!(
            claims(&shown, "family").contains(&(family.into(), "metadata".into(), "likely".into())),
            "{end}"
        );
        assert_eq!(claims(&shown, "trigger_words")[0].0, "sks dog, best", "{end}");
        let conflicts = shown["conflicts"].as_array().expect("conflicts");
        assert_eq!(conflicts.is_empty(), family == "stable-diffusion", "{end}: {conflicts:?}");
    }
    // The version within a family, which a note gets wrong more often than the family.
    let path = home.path().join("older.safetensors");
    save(&first, &path);
    fs::write(path.with_extension("civitai.info"), r#"{"baseModel":"SD 2.1 768"}"#).expect("written");
    let shown = show(home.path(), &path);
    assert_eq!(shown["variant"], "1");
    assert!(shown["conflicts"].to_string().contains("variant"), "{}", shown["conflicts"]);
    // One that is no JSON, and one without end.
    for bytes in [b"{\"baseModel\":".to_vec(), vec![b'['; 2 << 20]] {
        fs::write(path.with_extension("civitai.info"), bytes).expect("written");
        let shown = show(home.path(), &path);
        assert!(shown["notes"].to_string().contains("is not read"), "{}", shown["notes"]);
    }
}

#[test]
fn a_note_tells_whose_a_lora_is_where_its_tensors_do_not() {
    let home = home();
    let path = home.path().join("style.safetensors");
    save(&inventory("some.layer.lora_A.weight 4 64\nsome.layer.lora_B.weight 64 4"), &path);
    assert_eq!(show(home.path(), &path)["family"], Value::Null);
    fs::write(path.with_extension("civitai.info"), r#"{"baseModel":"Illustrious"}"#).expect("written");
    let shown = show(home.path(), &path);
    assert_eq!((&shown["role"], &shown["family"]), (&json!("lora"), &json!("stable-diffusion-xl")));
}

/// What diffusers' pipelines take where nobody asks, as `scripts/defaults.py` wrote it down.
fn defaults() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/defaults.json");
    serde_json::from_slice(&fs::read(path).expect("the defaults")).expect("JSON")
}

#[test]
fn facts_count_as_checked_only_where_they_are() {
    let library = defaults();
    for (family, pipeline) in CHECKED {
        let profile = PROFILES.iter().find(|profile| profile.family == *family).expect("a profile");
        let theirs = &library[*pipeline];
        let guidance = if profile.guided == Guidance::TrueClassifier { "true_guidance" } else { "guidance" };
        assert_eq!(theirs["steps"].as_u64(), Some(profile.steps as u64), "{family}");
        assert!(
            theirs[guidance].as_f64().is_some_and(|number| (number - profile.guidance).abs() < 1e-9),
            "{family}"
        );
        for (key, own) in [("frames", profile.frames[0]), ("fps", profile.frames[1])] {
            assert!(theirs[key].as_u64().is_none_or(|number| number == own as u64), "{family} {key}");
        }
    }
    let known = Catalogue::known().to_json();
    for (name, model) in known["models"].as_object().expect("models") {
        let notes = model["notes"].as_str().expect("notes");
        assert!(notes.contains("licence, gate") && notes.contains("not checked"), "{name}: {notes}");
        let profile =
            PROFILES.iter().find(|p| model["x_latentia"]["profile"]["family"] == p.family).expect("one");
        let unchecked = profile.steps > 0 && profile.checked_with().is_none();
        assert_eq!(notes.contains("default steps"), unchecked, "{name}: {notes}");
    }
    let home = home();
    let shown = latentia(home.path(), &["show", text(&second(home.path(), "x.safetensors"))]);
    let shown = String::from_utf8(shown.stdout).expect("text");
    assert!(shown.contains("licence     rail (not checked)"), "{shown}");
    assert!(shown.contains("guidance 7.5 (default of diffusers' StableDiffusionPipeline)"), "{shown}");
}

/// A small safetensors file: names with types, shapes and zeros, and notes in its header.
fn packed(path: &Path, tensors: &[(&str, &str, &[usize], usize)], notes: &Value) {
    let (mut at, mut entries) = (0, serde_json::Map::new());
    for (name, dtype, shape, bytes) in tensors {
        let place = [at, at + bytes];
        entries.insert((*name).into(), json!({ "dtype": dtype, "shape": shape, "data_offsets": place }));
        at += bytes;
    }
    if !notes.is_null() {
        entries.insert("__metadata__".into(), json!({ "_quantization_metadata": notes.to_string() }));
    }
    let header = Value::Object(entries).to_string();
    fs::write(path, [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; at]].concat())
        .expect("written");
}

#[test]
fn ways_of_packing_that_are_known_by_name_only_are_named_and_refused() {
    let home = home();
    let path = home.path().join("packed.safetensors");
    let layers = |format: &str| json!({ "format_version": "1.0", "layers": { "a": { "format": format } } });
    let rotated = json!({ "layers": { "a": { "format": "float8_e4m3fn", "convrot": true } } });
    let block: &[(&str, &str, &[usize], usize)] =
        &[("a.weight", "U8", &[4, 8], 32), ("a.weight_scale", "U8", &[4], 4)];
    let float: &[(&str, &str, &[usize], usize)] =
        &[("a.weight", "F8_E4M3", &[4, 8], 32), ("a.weight_scale", "F32", &[], 4)];
    for (tensors, notes, named) in [
        (block, layers("nvfp4"), "nvfp4"),
        (block, layers("int8_tensorwise"), "int8_tensorwise"),
        (float, layers("mxfp8"), "mxfp8"),
        (float, rotated, "float8_e4m3fn, rotated"),
    ] {
        packed(&path, tensors, &notes);
        assert_eq!(show(home.path(), &path)["unread"], json!([named]));
        let weights = Weights::open(&path).expect("opens");
        assert_eq!(weights.inventory().names().collect::<Vec<_>>(), ["a.weight"], "{named}");
        let error = weights.tensor("a.weight", None, DType::F32, &Device::Cpu).expect_err("not read");
        assert_eq!(error.code, Code::ModelIncompatible);
        assert!(
            error.message.contains(named) && error.message.contains("known and not readable yet"),
            "{error}"
        );
    }
    // Plain fp8 under the same notes is read, with its scale.
    packed(&path, float, &layers("float8_e4m3fn"));
    let weights = Weights::open(&path).expect("opens");
    assert!(weights.tensor("a.weight", Some(&[4, 8]), DType::F32, &Device::Cpu).is_ok());
    assert_eq!(show(home.path(), &path)["unread"], json!([]));
    // Notes that are no JSON do not pass for none.
    packed(&path, float, &json!({ "layers": "x".repeat(2 << 20) }));
    assert_eq!(Weights::open(&path).expect_err("too long").code, Code::WeightsCorrupt);
    for (integers, beside, named) in [
        ("a.qweight", "a.wscales", "SVDQuant of nunchaku"),
        ("a.qweight", "a.qzeros", "GPTQ or AWQ"),
        ("a.weight._data", "a.weight._scale", "quanto"),
    ] {
        packed(&path, &[(integers, "I8", &[4, 8], 32), (beside, "F32", &[4], 16)], &Value::Null);
        assert_eq!(show(home.path(), &path)["unread"], json!([named]));
    }
}

#[test]
fn a_folder_packed_by_a_library_that_is_not_read_says_so_and_does_not_run() {
    let home = home();
    let model = home.path().join("model");
    copy(&fixtures::compact().join("sd21/model"), &model);
    assert_eq!(show(home.path(), &model)["runs"], true);
    let config = model.join("unet/config.json");
    let mut unet: Value = serde_json::from_slice(&fs::read(&config).expect("read")).expect("JSON");
    unet["quantization_config"] = json!({ "quant_method": "torchao" });
    fs::write(&config, unet.to_string()).expect("written");
    let shown = show(home.path(), &model);
    assert_eq!((&shown["unread"], &shown["runs"]), (&json!(["unet: torchao"]), &json!(false)));
}

#[test]
fn pickles_in_a_folder_are_named_with_the_remedy() {
    let home = home();
    let model = home.path().join("model");
    copy(&fixtures::compact().join("sd21/model"), &model);
    let unet = model.join("unet");
    fs::rename(unet.join("diffusion_pytorch_model.safetensors"), unet.join("diffusion_pytorch_model.bin"))
        .expect("renamed");
    let shown = show(home.path(), &model);
    assert!(shown["missing"].to_string().contains("diffusion_pytorch_model.bin"), "{}", shown["missing"]);
    let refused = latentia(home.path(), &["generate", "x", "-m", text(&model), "--json"]);
    let error: Value = serde_json::from_slice(&refused.stdout).expect("an error");
    assert_eq!(error["error"]["code"], "unsupported_format");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("convert it to .safetensors"));
}

#[test]
fn the_registry_says_everything_of_every_installed_model() {
    let home = home();
    let model = fixtures::compact().join("sd21/model").canonicalize().expect("the sd21 fixture");
    json(home.path(), &["import", text(&model), "--name", "mine", "--json"]);
    json(home.path(), &["verify", "mine", "--full", "--json"]);
    let known = json(home.path(), &["models", "--json"]);
    let embedded = cfg!(feature = "embedded").then_some("sprites");
    for name in ["mine"].into_iter().chain(embedded) {
        let found = &known["models"][name]["x_latentia"]["found"];
        assert!(!found["claims"].as_array().expect("evidence").is_empty(), "{name}");
        assert_eq!(found["missing"], json!([]), "{name}");
        assert!(found["prediction"].is_string(), "{name}");
        assert!(found["licence"].is_object(), "{name}");
        assert_eq!(found["parts"].as_array().map(Vec::len), Some(3), "{name}");
        for phase in ["text_encoder", "denoiser", "decoder", "peak"] {
            assert!(found["memory"][phase].as_u64() > Some(0), "{name} {phase}");
        }
        for file in found["files"].as_array().expect("files") {
            assert_eq!(file["sha256"].as_str().map(str::len), Some(64), "{name}: {file}");
        }
    }
}

#[test]
fn a_pruned_merge_says_which_parts_it_lacks() {
    let home = home();
    let path = home.path().join("merge.safetensors");
    let sizes = sizes(vec![
        (Measure::Context, 2048),
        (Measure::Added, 2816),
        (Measure::Depth, 10),
        (Measure::Levels, 3),
    ]);
    let denoiser = unet(sizes);
    let lines: String = denoiser.lines().flat_map(|line| ["model.diffusion_model.", line, "\n"]).collect();
    let words = "conditioner.embedders.0.transformer.text_model.embeddings.token_embedding.weight 49408 768
        conditioner.embedders.0.transformer.text_model.encoder.layers.{12}.mlp.fc1.weight 3072 768";
    save(&inventory(&format!("{lines}{words}")), &path);
    let shown = show(home.path(), &path);
    assert_eq!((&shown["family"], &shown["role"]), (&json!("stable-diffusion-xl"), &json!("checkpoint")));
    assert_eq!(shown["missing"], json!(["text encoder OpenCLIP-bigG", "autoencoder sd-vae"]));
}
