//! The config that a file of weights carries in its header: LTX's, as its makers publish it.

use std::path::{Path, PathBuf};

use latentia::family::known::identify;
use serde_json::{Value, json};

use crate::inventories::{inventory, save};
use crate::show::{home, json, latentia, text};

/// A file of LTX-Video whose tensors and whose config are of these sizes.
fn ltx(home: &Path, name: &str, blocks: usize, config: &str, version: Option<&str>) -> PathBuf {
    let lines = format!(
        "model.diffusion_model.patchify_proj.weight 2048 128
         model.diffusion_model.adaln_single.linear.weight 12288 2048
         model.diffusion_model.caption_projection.linear_1.weight 2048 4096
         model.diffusion_model.transformer_blocks.{{{blocks}}}.scale_shift_table 6 2048
         vae.decoder.up_blocks.0.res_blocks.0.conv1.conv.weight 512 512 3 3 3"
    );
    let mut inventory = inventory(&lines);
    inventory.metadata.insert("config".into(), config.into());
    if let Some(version) = version {
        inventory.metadata.insert("model_version".into(), version.into());
    }
    let path = home.join(name);
    save(&inventory, &path);
    path
}

/// What the makers write: the transformer's sizes, and the blocks of the autoencoder in the form of its first release.
fn config(layers: u64, blocks: &Value) -> Value {
    json!({
        "transformer": {
            "_class_name": "Transformer3DModel", "num_layers": layers, "num_attention_heads": 32,
            "attention_head_dim": 64, "in_channels": 128, "caption_channels": 4096, "cross_attention_dim": 2048,
        },
        "vae": {
            "_class_name": "CausalVideoAutoencoder", "latent_channels": 128, "patch_size": 4, "blocks": blocks,
        },
    })
}

fn first_blocks() -> Value {
    json!([
        ["res_x", 4],
        ["compress_all", 1],
        ["res_x_y", 1],
        ["res_x", 3],
        ["compress_all", 1],
        ["res_x_y", 1],
        ["res_x", 3],
        ["compress_all", 1],
        ["res_x", 3],
        ["res_x", 4]
    ])
}

fn claim(shown: &Value, fact: &str, kind: &str) -> Option<String> {
    let claims = shown["claims"].as_array().expect("claims");
    let mut claims =
        claims.iter().filter(|claim| claim["fact"] == fact && claim["because"][kind].is_string());
    claims.next().and_then(|claim| claim["value"].as_str().map(str::to_owned))
}

#[test]
fn sizes_rules_and_release_are_read_from_the_files_own_config() {
    let home = home();
    let own = config(28, &first_blocks()).to_string();
    let shown = json(
        home.path(),
        &["show", text(&ltx(home.path(), "a.safetensors", 28, &own, Some("0.9.1"))), "--json"],
    );
    assert_eq!((&shown["family"], &shown["variant"]), (&json!("ltx"), &json!("2B")));
    assert_eq!((&shown["multiple"], &shown["every"]), (&json!(32), &json!(8)), "4 of a patch, halved thrice");
    assert_eq!(claim(&shown, "family", "metadata").as_deref(), Some("ltx"));
    assert_eq!(claim(&shown, "variant", "metadata").as_deref(), Some("2B"));
    assert_eq!(claim(&shown, "version", "metadata").as_deref(), Some("0.9.1"));
    assert_eq!(shown["conflicts"], json!([]));

    // Another autoencoder: blocks that halve only sides or only time, as later releases have them.
    let blocks = json!([
        ["res_x", {}],
        ["compress_space_res", {}],
        ["compress_time_res", {}],
        ["compress_all_res", {}]
    ]);
    let mut other = config(28, &json!(null));
    other["vae"]["encoder_blocks"] = blocks;
    other["vae"]["patch_size"] = 2.into();
    other["allowed_inference_steps"] = json!([1.0, 0.98, 0.9, 0.7]);
    let path = ltx(home.path(), "b.safetensors", 28, &other.to_string(), None);
    let shown = json(home.path(), &["show", text(&path), "--json"]);
    assert_eq!((&shown["multiple"], &shown["every"]), (&json!(8), &json!(4)));
    assert_eq!(claim(&shown, "distillation", "metadata").as_deref(), Some("distilled"));
    assert_eq!(claim(&shown, "steps", "metadata").as_deref(), Some("4"));
    let said = String::from_utf8(latentia(home.path(), &["show", text(&path)]).stdout).expect("text");
    assert!(said.contains("sides       multiples of 8\nframes      a multiple of 4, and one"), "{said}");
    // The registry gives the same rules to those who ask.
    json(home.path(), &["import", text(&path), "--name", "mine", "--json"]);
    let params =
        json(home.path(), &["models", "--json"])["models"]["mine"]["tasks"]["text_to_video"]["params"]
            .clone();
    assert_eq!(
        (&params["width"]["multiple_of"], &params["num_frames"]["description"]),
        (&json!(8), &json!("4 k + 1"))
    );
}

#[test]
fn a_config_that_contradicts_the_tensors_is_reported_and_never_averaged() {
    let home = home();
    let mut wrong = config(48, &first_blocks());
    wrong["transformer"]["caption_channels"] = 3840.into();
    let path = ltx(home.path(), "a.safetensors", 28, &wrong.to_string(), None);
    let shown = json(home.path(), &["show", text(&path), "--json"]);
    let conflicts = shown["conflicts"].to_string();
    for told in [
        "blocks: metadata config says 48, tensors say 28",
        "channels of text: metadata config says 3840, tensors say 4096",
        "says 13B",
    ] {
        assert!(conflicts.contains(told), "{told}: {conflicts}");
    }
    let mut other = config(28, &first_blocks());
    other["transformer"]["_class_name"] = "AVTransformer3DModel".into();
    let shown = json(
        home.path(),
        &["show", text(&ltx(home.path(), "b.safetensors", 28, &other.to_string(), None)), "--json"],
    );
    assert_eq!(shown["family"], Value::Null, "two sure sources disagree");
    assert!(shown["conflicts"].to_string().contains("ltx2"), "{}", shown["conflicts"]);
}

#[test]
fn a_config_that_is_none_is_mentioned_or_left_alone() {
    let home = home();
    for (config, noted) in
        [("{\"transformer\":", true), ("[1]", false), ("{\"a\":1}", false), ("\"text\"", false)]
    {
        let shown = json(
            home.path(),
            &["show", text(&ltx(home.path(), "a.safetensors", 28, config, None)), "--json"],
        );
        assert_eq!((&shown["family"], &shown["multiple"]), (&json!("ltx"), &Value::Null), "{config}");
        assert_eq!(
            shown["notes"].to_string().contains("config in its header is not read"),
            noted,
            "{config}"
        );
    }
    // Sizes that no autoencoder has say nothing.
    let endless: Vec<Value> = (0..40).map(|_| json!(["compress_all", 1])).collect();
    for blocks in [json!(endless), json!([["compress_all"]]), json!("compress_all")] {
        let mut config = config(28, &blocks);
        config["vae"]["patch_size"] = (1_u64 << 40).into();
        let path = ltx(home.path(), "a.safetensors", 28, &config.to_string(), None);
        assert_eq!(json(home.path(), &["show", text(&path), "--json"])["multiple"], Value::Null, "{blocks}");
    }
}

#[test]
fn an_autoencoder_alone_and_a_release_with_sound_are_told_by_theirs() {
    let mut vae = inventory(
        "decoder.up_blocks.0.res_blocks.0.conv1.conv.weight 1024 1024 3 3 3
         encoder.conv_out.conv.weight 129 2048 3 3 3",
    );
    vae.metadata.insert("config".into(), config(28, &first_blocks()).to_string());
    let mut found = identify(&vae);
    found.settle();
    assert_eq!((found.family.as_deref(), found.multiple), (Some("ltx-vae"), Some(32)));
    assert!(found.conflicts.is_empty(), "{:?}", found.conflicts);

    let mut sound = inventory(
        "patchify_proj.weight 4096 128
         adaln_single.linear.weight 36864 4096
         audio_adaln_single.linear.weight 18432 2048
         transformer_blocks.{48}.attn1.to_gate_logits.weight 32 4096
         transformer_blocks.{48}.scale_shift_table 9 4096",
    );
    let class = json!({ "transformer": { "_class_name": "AVTransformer3DModel", "num_layers": 48,
        "num_attention_heads": 32, "attention_head_dim": 128 } });
    sound.metadata.insert("config".into(), class.to_string());
    sound.metadata.insert("model_version".into(), "2.3.0".into());
    let mut found = identify(&sound);
    found.settle();
    assert_eq!(found.family.as_deref(), Some("ltx2"));
    assert_eq!(found.variant.as_deref(), Some("2.3 or later, 22B"));
    assert_eq!(found.says("version").map(|claim| claim.value.as_str()), Some("2.3.0"));
    assert!(found.conflicts.is_empty(), "{:?}", found.conflicts);
}
