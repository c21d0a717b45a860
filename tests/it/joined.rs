//! Models whose parts lie in files of their own: which go together, and what is drawn with them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use candle_core::{Device, Tensor};
use serde_json::{Value, json};

use crate::fixtures;
use crate::formats::gguf;
use crate::inventories::{FLUX, inventory, save as save_header};
use crate::show::{copy, home, json, latentia, text};

/// The tensors of a file.
fn load(path: &Path) -> HashMap<String, Tensor> {
    candle_core::safetensors::load(path, &Device::Cpu).expect("a file of weights")
}

/// Those below a prefix, named behind another.
fn below(all: &HashMap<String, Tensor>, old: &str, new: &str) -> HashMap<String, Tensor> {
    let renamed = |(name, tensor): (&String, &Tensor)| {
        Some((format!("{new}{}", name.strip_prefix(old)?), tensor.clone()))
    };
    all.iter().filter_map(renamed).collect()
}

fn save(tensors: &HashMap<String, Tensor>, path: &Path) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    candle_core::safetensors::save(tensors, path).expect("saved");
}

/// The picture of a model, and its recipe.
fn draw(home: &Path, more: &[&str]) -> Vec<u8> {
    let mut arguments = vec!["generate", "a cat", "--steps", "2", "-q", "--no-metadata", "-o", "-"];
    arguments.extend(more);
    let output = latentia(home, &arguments);
    assert!(output.status.success(), "{more:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// A single file and its configs, if these fixtures have them; those of `sd21` are always there.
fn model(family: &str) -> Option<(PathBuf, PathBuf)> {
    let whole = |path: PathBuf| path.canonicalize().ok();
    let file = fixtures::fixture(&format!("{family}/single_file/{family}.safetensors"));
    Some((whole(file?)?, whole(fixtures::folder().join(family).join("model"))?))
}

/// The parts of a single file in files of their own: the denoiser as it is called alone, the others in the folders of
/// `ComfyUI`.
fn split(file: &Path, comfy: &Path, unet: &str, text: (&str, &str), vae: &str) -> PathBuf {
    let all = load(file);
    let main = comfy.join("models/unet/mine.safetensors");
    save(&below(&all, "model.diffusion_model.", unet), &main);
    save(&below(&all, "first_stage_model.", vae), &comfy.join("models/vae/codec.safetensors"));
    save(&below(&all, text.0, text.1), &comfy.join("models/text_encoders/words.safetensors"));
    main
}

#[test]
fn parts_in_files_of_their_own_are_found_and_draw_the_same_picture() {
    for (family, unet, text_names, vae) in [
        ("sd15", "", ("cond_stage_model.transformer.", ""), ""),
        ("sd15", "model.diffusion_model.", ("cond_stage_model.", "cond_stage_model."), "first_stage_model."),
        (
            "sd15",
            "diffusion_model.",
            ("cond_stage_model.transformer.", "text_encoders.clip_l.transformer."),
            "vae.",
        ),
        ("sd21", "", ("cond_stage_model.model.", ""), ""),
    ] {
        let Some((file, configs)) = model(family) else { continue };
        let home = home();
        let main = split(&file, home.path(), unet, text_names, vae);
        let config = ["--config", text(&configs)];
        let whole = draw(home.path(), &[&["-m", text(&file)], &config[..]].concat());
        assert_eq!(
            draw(home.path(), &[&["-m", text(&main)], &config[..]].concat()),
            whole,
            "{family} {unet}"
        );

        let shown = json(home.path(), &[&["show", text(&main), "--json"], &config[..]].concat());
        assert_eq!(
            (&shown["missing"], &shown["runs"]),
            (&json!([]), &json!(true)),
            "{family} {unet}: {shown}"
        );
        let roles: Vec<&str> = shown["parts"]
            .as_array()
            .expect("parts")
            .iter()
            .filter_map(|part| part["role"].as_str())
            .collect();
        for role in ["denoiser", "vae", "text_encoder"] {
            assert!(roles.contains(&role), "{family} {unet}: {roles:?}");
        }
        let files: Vec<&str> = shown["files"]
            .as_array()
            .expect("files")
            .iter()
            .filter_map(|file| file["path"].as_str())
            .collect();
        assert!(
            ["mine", "codec", "words"].iter().all(|name| files.iter().any(|file| file.contains(name))),
            "{files:?}"
        );
        assert!(evidence(&shown, "part").iter().any(|value| value.contains("codec.safetensors")), "{shown}");
    }
}

/// What is claimed of a fact.
fn evidence(shown: &Value, fact: &str) -> Vec<String> {
    let claims = shown["claims"].as_array().expect("claims");
    let of = claims.iter().filter(|claim| claim["fact"] == fact);
    of.map(|claim| claim["value"].as_str().expect("a value").to_owned()).collect()
}

#[test]
fn parts_as_diffusers_names_them_are_joined_too() {
    let home = home();
    let configs = fixtures::compact().join("sd15/model").canonicalize().expect("the sd15 fixture");
    let folder = draw(home.path(), &["-m", text(&configs)]);
    let part = |component: &str, file: &str| text(&configs.join(component).join(file)).to_owned();
    let main = part("unet", "diffusion_pytorch_model.safetensors");
    let parts =
        [part("vae", "diffusion_pytorch_model.safetensors"), part("text_encoder", "model.safetensors")];
    let drawn = draw(
        home.path(),
        &["-m", &main, "--config", text(&configs), "--part", &parts[0], "--part", &parts[1]],
    );
    assert_eq!(drawn, folder);
}

#[test]
fn a_choice_is_the_users_and_is_remembered() {
    let home = home();
    let (file, configs) = model("sd21").expect("the sd21 fixture");
    let main = split(&file, home.path(), "", ("cond_stage_model.model.", ""), "");
    let codec = home.path().join("models/vae/codec.safetensors");
    let other = home.path().join("models/vae/other.safetensors");
    fs::copy(&codec, &other).expect("copied");
    let config = ["--config", text(&configs)];
    let shown = json(home.path(), &[&["show", text(&main), "--json"], &config[..]].concat());
    let missing = shown["missing"][0].as_str().expect("a missing part");
    assert!(missing.contains("codec.safetensors, other.safetensors would fit"), "{missing}");
    assert_eq!(shown["runs"], false);
    let refused = latentia(home.path(), &[&["generate", "x", "-m", text(&main)], &config[..]].concat());
    assert_eq!(refused.status.code(), Some(3), "{}", String::from_utf8_lossy(&refused.stderr));

    let whole = draw(home.path(), &[&["-m", text(&file)], &config[..]].concat());
    let import = ["import", text(&main), "--name", "mine", "--part", text(&other), "--json"];
    json(home.path(), &[&import, &config[..]].concat());
    assert_eq!(draw(home.path(), &["-m", "mine"]), whole);
    let entry = fs::read_to_string(home.path().join("models/mine.json")).expect("an entry");
    assert!(entry.contains("other.safetensors") && entry.contains("words.safetensors"), "{entry}");

    // A second model with the same parts: they lie there once.
    let size = |path: &Path| fs::metadata(path).expect("there").len();
    let import = ["import", text(&main), "--name", "again", "--part", text(&other), "--json"];
    json(home.path(), &[&import, &config[..]].concat());
    let words = home.path().join("models/text_encoders/words.safetensors");
    let used = json(home.path(), &["du", "--json"]);
    assert_eq!(used["bytes"], size(&main) + size(&other) + size(&words));

    // A picture says which files made it, and one with another codec is not the same recipe.
    let with_recipe = ["generate", "a cat", "--steps", "1", "-m", "mine", "-q", "-o", "a.png", "--json"];
    let made = json(home.path(), &with_recipe);
    assert!(made["images"].is_array());
    let repeated =
        latentia(home.path(), &["generate", "--from", "a.png", "-m", "again", "-q", "-o", "b.png"]);
    assert!(repeated.status.success(), "{}", String::from_utf8_lossy(&repeated.stderr));
}

#[test]
fn a_file_that_is_no_part_is_refused_by_name() {
    let home = home();
    let (file, configs) = model("sd21").expect("the sd21 fixture");
    let main = split(&file, home.path(), "", ("cond_stage_model.model.", ""), "");
    let arguments = ["show", text(&main), "--config", text(&configs), "--part", text(&main), "--json"];
    let refused = latentia(home.path(), &arguments);
    let error: Value = serde_json::from_slice(&refused.stdout).expect("an error");
    assert_eq!(
        (&error["error"]["code"], &error["error"]["param"]),
        (&json!("invalid_argument"), &json!("part"))
    );
}

#[test]
fn gguf_files_draw_whole_and_joined() {
    let home = home();
    let (file, configs) = model("sd21").expect("the sd21 fixture");
    let config = ["--config", text(&configs)];
    let whole = draw(home.path(), &[&["-m", text(&file)], &config[..]].concat());
    // As stable-diffusion.cpp writes them: all parts under their authors' names, no architecture.
    let all = load(&file);
    let export = home.path().join("export.gguf");
    fs::write(&export, gguf(&all, None)).expect("written");
    let shown = json(home.path(), &[&["show", text(&export), "--json"], &config[..]].concat());
    assert_eq!((&shown["role"], &shown["runs"]), (&json!("checkpoint"), &json!(true)), "{shown}");
    assert_eq!(draw(home.path(), &[&["-m", text(&export)], &config[..]].concat()), whole);
    // As ComfyUI's users have them: the denoiser alone, bare names, parts in folders of their own.
    let main = split(&file, home.path(), "", ("cond_stage_model.model.", ""), "");
    let alone = main.with_extension("gguf");
    fs::write(&alone, gguf(&below(&all, "model.diffusion_model.", ""), Some("sd1"))).expect("written");
    fs::remove_file(&main).expect("removed");
    assert_eq!(draw(home.path(), &[&["-m", text(&alone)], &config[..]].concat()), whole);
}

#[test]
fn parts_of_families_that_do_not_run_yet_are_found_as_well() {
    let home = home();
    let comfy = home.path().join("ComfyUI/models");
    let put = |path: &str, lines: &str| {
        let path = comfy.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        save_header(&inventory(lines), &path);
        path
    };
    let main = put("diffusion_models/flux1-dev.safetensors", FLUX);
    let t5 = "encoder.block.{24}.layer.0.SelfAttention.q.weight 4096 4096
        encoder.block.{24}.layer.1.DenseReluDense.wi_1.weight 10240 4096";
    put("text_encoders/t5xxl_fp16.safetensors", t5);
    put(
        "clip/clip_l.safetensors",
        "text_model.embeddings.token_embedding.weight 49408 768
        text_model.encoder.layers.{12}.mlp.fc1.weight 3072 768",
    );
    put("vae/ae.safetensors", "decoder.conv_in.weight 512 16 3 3");
    put("vae/sdxl_vae.safetensors", "decoder.conv_in.weight 512 4 3 3");
    let shown = json(home.path(), &["show", text(&main), "--json"]);
    assert_eq!(shown["missing"], json!([]), "{shown}");
    assert_eq!(shown["parts"].as_array().map(Vec::len), Some(4));
    assert!(
        evidence(&shown, "part").contains(&"t5 T5-XXL from t5xxl_fp16.safetensors".to_owned()),
        "{shown}"
    );
    let memory = |phase: &str| shown["memory"][phase].as_u64().expect("bytes");
    let phases = ["text_encoder", "denoiser", "decoder"].map(memory);
    assert_eq!(phases.into_iter().max(), Some(memory("peak")), "one phase at a time");
    let width = if shown["memory"]["dtype"] == "f32" { 4 } else { 2 };
    let numbers = |part: &Value| part["parameters"].as_u64().expect("a count");
    let encoders =
        shown["parts"].as_array().expect("parts").iter().filter(|part| part["role"] == "text_encoder");
    assert_eq!(memory("text_encoder"), width * encoders.map(numbers).sum::<u64>());

    put("text_encoders/t5xxl_fp8.safetensors", t5);
    let shown = json(home.path(), &["show", text(&main), "--json"]);
    let missing = shown["missing"][0].as_str().expect("a choice");
    assert!(missing.contains("t5xxl_fp16.safetensors, t5xxl_fp8.safetensors would fit"), "{missing}");
    let found = json(home.path(), &["import", "ComfyUI", "--json"]);
    assert_eq!(found["imported"][0]["name"], "flux1-dev");
    let entry = fs::read_to_string(home.path().join("models/flux1-dev.json")).expect("an entry");
    assert!(
        entry.contains("clip_l.safetensors") && entry.contains("ae.safetensors") && !entry.contains("t5xxl")
    );
}

#[test]
fn a_folder_of_the_hubs_cache_draws_and_its_variants_are_weights() {
    let home = home();
    let (_, configs) = model("sd21").expect("the sd21 fixture");
    let hub = home.path().join("hub/models--org--tiny");
    let snapshot = hub.join("snapshots/0123456789abcdef0123456789abcdef01234567");
    copy(&configs, &snapshot);
    let whole = draw(home.path(), &["-m", text(&configs)]);
    assert_eq!(draw(home.path(), &["-m", text(&hub)]), whole);
    // As `variant="fp16"` saves them.
    for (component, name) in
        [("unet", "diffusion_pytorch_model"), ("vae", "diffusion_pytorch_model"), ("text_encoder", "model")]
    {
        let folder = snapshot.join(component);
        fs::rename(
            folder.join(format!("{name}.safetensors")),
            folder.join(format!("{name}.fp16.safetensors")),
        )
        .expect("renamed");
    }
    assert_eq!(draw(home.path(), &["-m", text(&hub)]), whole);
    let shown = json(home.path(), &["show", text(&hub), "--json"]);
    assert_eq!((&shown["missing"], &shown["runs"]), (&json!([]), &json!(true)));
    // Two snapshots and nothing that says which: no guess.
    copy(&configs, &hub.join("snapshots/1123456789abcdef0123456789abcdef01234567"));
    assert!(!latentia(home.path(), &["show", text(&hub)]).status.success());
}

#[test]
#[cfg(unix)]
fn links_keep_their_names_and_what_they_point_to_counts_once() {
    use std::os::unix::fs::symlink;

    let home = home();
    let (file, configs) = model("sd21").expect("the sd21 fixture");
    let main = split(&file, home.path(), "", ("cond_stage_model.model.", ""), "");
    let blob = home.path().join("blobs/0123456789abcdef");
    fs::create_dir_all(blob.parent().expect("a folder")).expect("made");
    fs::rename(&main, &blob).expect("moved");
    symlink(&blob, &main).expect("linked");
    // A second name of the same autoencoder is no choice.
    let codec = home.path().join("models/vae/codec.safetensors");
    symlink(&codec, home.path().join("models/vae/same.safetensors")).expect("linked");
    json(home.path(), &["import", text(&main), "--config", text(&configs), "--json"]);
    let shown = json(home.path(), &["show", "mine", "--json"]);
    assert_eq!((&shown["missing"], &shown["runs"]), (&json!([]), &json!(true)), "{shown}");
    assert!(evidence(&shown, "part").iter().any(|value| value.contains("codec.safetensors")), "{shown}");
}

#[test]
fn a_part_stands_in_place_of_a_models_own_and_a_whole_model_lends_its_parts() {
    let home = home();
    let (file, configs) = model("sd21").expect("the sd21 fixture");
    let config = ["--config", text(&configs)];
    let whole = draw(home.path(), &[&["-m", text(&file)], &config[..]].concat());
    // An autoencoder that is twice as bright, for a single file and for a folder.
    let mut codec = below(&load(&file), "first_stage_model.", "");
    let last = codec.get_mut("decoder.conv_out.weight").expect("the last map");
    *last = last.affine(2.0, 0.0).expect("twice");
    let bright = home.path().join("bright.safetensors");
    save(&codec, &bright);
    let changed = draw(home.path(), &[&["-m", text(&file), "--part", text(&bright)], &config[..]].concat());
    assert_ne!(changed, whole);
    assert_eq!(draw(home.path(), &["-m", text(&configs), "--part", text(&bright)]), changed);
    let shown = json(home.path(), &["show", text(&configs), "--part", text(&bright), "--json"]);
    let codecs: Vec<&Value> =
        shown["parts"].as_array().expect("parts").iter().filter(|part| part["role"] == "vae").collect();
    assert_eq!(codecs.len(), 1);
    assert!(
        codecs[0]["path"].as_str().is_some_and(|path| path.ends_with("bright.safetensors")),
        "{codecs:?}"
    );
    // A denoiser alone takes the rest from a whole model, whose own denoiser draws nothing.
    let mut network = below(&load(&file), "model.diffusion_model.", "");
    let last = network.get_mut("out.2.weight").expect("the last map");
    *last = last.affine(0.5, 0.0).expect("half");
    let alone = home.path().join("alone/network.safetensors");
    save(&network, &alone);
    let lent = draw(home.path(), &[&["-m", text(&alone), "--part", text(&file)], &config[..]].concat());
    assert_ne!(lent, whole);
}
