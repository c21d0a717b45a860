//! `latentia tools call`: what a workflow gets on standard output.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{Bench, assert_is_png, assert_is_ref};

fn error(value: &Value) -> (&str, &str) {
    (value["error"]["code"].as_str().unwrap_or("none"), value["error"]["param"].as_str().unwrap_or(""))
}

#[test]
fn a_call_prints_a_small_ref_to_a_stored_picture() {
    let bench = Bench::new();
    let ask = json!({ "prompt": "a red cube", "model": "mock", "size": "64x48", "seed": 7, "filename": "../a b.png" });
    let reference = bench.call("vision_text_to_image", &ask);
    assert_is_ref(&reference);
    assert_eq!((&reference["width"], &reference["height"]), (&json!(64), &json!(48)));
    assert_eq!(reference["filename"], "a b.png");
    let metadata = &reference["metadata"];
    for (key, value) in
        [("seed", json!(7)), ("steps", json!(4)), ("model", json!("mock")), ("task", json!("text_to_image"))]
    {
        assert_eq!(metadata[key], value);
    }
    let id = reference["$artifact"].as_str().unwrap();
    assert_is_png(&fs::read(bench.path("store").join(format!("{id}.png"))).unwrap());
    let again = bench.call("t2i", &ask);
    assert_eq!(again["$artifact"], reference["$artifact"], "the same ask is the same picture");
    let other =
        bench.call("t2i", &json!({ "prompt": "a red cube", "model": "mock", "size": "64x48", "seed": 8 }));
    assert_ne!(other["$artifact"], reference["$artifact"]);
    let run = json!({ "prompt": "a", "model": "mock", "size": "16x16", "run_id": "run-1" });
    let run = bench.call("t2i", &run);
    assert_eq!((&run["run_id"], &run["artifact_id"]), (&json!("run-1"), &run["$artifact"]));
    let meta = fs::read_to_string(bench.path("store").join(format!("{id}.meta.json"))).unwrap();
    let meta: Value = serde_json::from_str(&meta).unwrap();
    assert_eq!(meta["tags"]["kind"], "generated_media");
    assert_eq!(meta["tags"]["task"], "text_to_image");
}

/// C34: seeds count up, or are given one a picture.
#[test]
fn a_batch_is_an_array_of_refs_in_the_order_of_seeds() {
    let bench = Bench::new();
    let seeds = |ask: Value| -> Vec<u64> {
        let refs = bench.call("vision_text_to_image_batch", &ask);
        let refs = refs.as_array().unwrap_or_else(|| panic!("{refs}")).clone();
        refs.iter().for_each(assert_is_ref);
        refs.iter().map(|one| one["metadata"]["seed"].as_u64().unwrap()).collect()
    };
    assert_eq!(
        seeds(json!({ "prompt": "a", "model": "mock", "size": "32x32", "seed": 5, "count": 3 })),
        [5, 6, 7]
    );
    assert_eq!(
        seeds(json!({ "prompt": "a", "model": "mock", "size": "32x32", "seeds": [9, 2, 3], "count": 3 })),
        [9, 2, 3]
    );
    assert!(seeds(json!({ "prompt": "a", "model": "mock", "size": "32x32" }))[0] < 1_000_000_000);
    for ask in [
        json!({ "prompt": "a", "seeds": [1, 2] }),
        json!({ "prompt": "a", "count": 0 }),
        json!({ "prompt": "a", "count": 17 }),
        json!({ "prompt": "a", "seeds": [], "count": 1 }),
    ] {
        assert_eq!(error(&bench.call("vision_text_to_image_batch", &ask)).0, "invalid_argument", "{ask}");
    }
}

#[test]
fn the_embedded_model_draws_by_default_and_prompts_may_stay_private() {
    let bench = Bench::new();
    let ask = json!({ "prompt": "a secret fox", "steps": 1, "seed": 1 });
    let output = bench.call_raw("vision_text_to_image", ask.to_string().as_bytes(), &["--private-prompts"]);
    let reference: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reference["metadata"]["model"], "sprites");
    for entry in fs::read_dir(bench.path("store")).unwrap().flatten().filter(|entry| entry.path().is_file()) {
        let bytes = fs::read(entry.path()).unwrap();
        let found = bytes.windows(10).any(|window| window == b"secret fox");
        assert!(!found, "{:?} holds the prompt", entry.file_name());
    }
}

/// Tools whose task no model here can do say what the models here can do.
#[test]
fn a_task_that_is_not_here_is_unsupported_and_says_what_is() {
    let bench = Bench::new();
    for (tool, ask) in [
        ("vision_text_to_video", json!({ "prompt": "a" })),
        ("vision_text_to_video_batch", json!({ "prompt": "a", "count": 2 })),
        ("vision_image_to_video", json!({})),
        ("vision_image_to_video_batch", json!({})),
        ("vision_multi_view_image", json!({ "prompt": "a" })),
        ("vision_image_upscale", json!({ "scale": 2.0 })),
    ] {
        let answer = bench.call(tool, &ask);
        assert_eq!(error(&answer), ("unsupported_task", "task"), "{tool}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("sprites") && message.contains("text_to_image"), "{message}");
    }
    let answer = bench.call("vision_text_to_image", &json!({ "prompt": "a", "model": "sdxl" }));
    assert_eq!(error(&answer), ("model_not_downloaded", "model"));
    assert!(answer["error"]["hint"].as_str().unwrap().contains("latentia pull sdxl"));
    let answer = bench.call("rm_rf", &json!({}));
    assert_eq!(error(&answer), ("invalid_argument", "name"));
}

#[test]
fn arguments_that_do_not_fit_are_named() {
    let bench = Bench::new();
    for (ask, param) in [
        (json!({}), "prompt"),
        (json!({ "prompt": "a", "tallness": 64 }), "tallness"),
        (json!({ "prompt": "a", "width": 64 }), "height"),
        (json!({ "prompt": "a", "size": "64x64", "width": 64, "height": 64 }), "size"),
        (json!({ "prompt": "a", "sampler": "warp" }), "sampler"),
        (json!({ "prompt": "a", "lora_adapters": [{ "scale": 1.0 }] }), "lora_adapters[0].source"),
        (
            json!({ "prompt": "a", "lora_adapters": [{ "source": "x", "subfolder": "y" }] }),
            "lora_adapters[0].subfolder",
        ),
    ] {
        let answer = bench.call("vision_text_to_image", &ask);
        assert_eq!(error(&answer), ("invalid_argument", param), "{ask}: {answer}");
    }
    let ask = json!({ "prompt": "a", "lora_adapters": [{ "source": "../x" }] });
    assert_eq!(
        error(&bench.call("vision_text_to_image", &ask)),
        ("model_not_found", "lora_adapters[0].source")
    );
    let output = bench.call_raw("vision_text_to_image", b"{}", &[]);
    assert_eq!(output.status.code(), Some(2), "the exit code of the table");
}

/// C31: a picture that steers is typed, heeded where a network can read it, and refused elsewhere.
#[test]
fn a_control_picture_steers_where_a_network_reads_it_and_is_refused_elsewhere() {
    let bench = Bench::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fs::copy(root.join("control/photo.png"), bench.path("workspace").join("photo.png")).unwrap();
    let ask = |more: Value| {
        let mut ask = json!({ "prompt": "a", "model": "toy", "steps": 1, "seed": 1, "size": "64x64",
            "control_image_path": "photo.png" });
        ask.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        bench.call("vision_text_to_image", &ask)
    };
    let import = |name: &str, path: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_latentia"));
        command.env("LATENTIA_HOME", bench.path("home")).args(["import", "--name", name]);
        let output = command.arg(root.join("golden").join(path)).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    import("toy", "sd15/model");
    assert_eq!(error(&ask(json!({}))), ("model_not_found", "control_model"), "none is installed");
    import("edges", "controlnet/controlnet/diffusion_pytorch_model.safetensors");
    let steered = ask(json!({ "control_strength": 1.5 }));
    assert_is_ref(&steered);
    let free = ask(json!({ "control_image_path": null }));
    assert_ne!(steered["$artifact"], free["$artifact"], "it steers");
    let id = steered["$artifact"].as_str().unwrap();
    let meta = fs::read_to_string(bench.path("store").join(format!("{id}.meta.json"))).unwrap();
    assert!(meta.contains("\"controls\""), "the recipe says so: {meta}");
    let stored = json!({ "control_image_path": null, "control_image_artifact": { "$artifact": id } });
    assert_is_ref(&ask(stored));
    for (more, refusal) in [
        (json!({ "control_model": "nothing" }), ("model_not_found", "control_model")),
        (json!({ "control_model": "../toy" }), ("model_not_found", "control_model")),
        (json!({ "control_strength": 3 }), ("invalid_argument", "control_strength")),
        (json!({ "control_strength": "much" }), ("invalid_argument", "control_strength")),
        (json!({ "control_kind": "warp" }), ("invalid_argument", "control_kind")),
        (
            json!({ "control_image_path": null, "control_strength": 1 }),
            ("invalid_argument", "control_strength"),
        ),
        (json!({ "model": "mock" }), ("model_unsupported", "control_model")),
    ] {
        assert_eq!(error(&ask(more.clone())), refusal, "{more}");
    }
}

/// C48, C49, C54, C55, C56, C58: the tools of OpenHuman's contract, once they are open.
#[test]
fn pictures_are_saved_viewed_and_described_within_the_workspace() {
    let bench = Bench::new();
    let open = ["--image-generation", "--image-view", "--model", "mock"];
    let call = |name: &str, ask: Value| -> Value {
        let output = bench.call_raw(name, ask.to_string().as_bytes(), &open);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let made = call(
        "image_generation",
        json!({ "prompt": "a", "size": "64x64", "output_path": "fox.webp", "output_format": "webp" }),
    );
    let saved = made["paths"][0].as_str().unwrap();
    assert_eq!(saved, bench.path("workspace").join("fox.webp").to_str().unwrap());
    assert!(fs::read(saved).unwrap().starts_with(b"RIFF"));
    assert_is_ref(&made["artifacts"][0]);
    let made = call("image_generation", json!({ "prompt": "a", "size": "1024x32", "output_format": "jpeg" }));
    assert!(fs::read(made["paths"][0].as_str().unwrap()).unwrap().starts_with(b"\xff\xd8"), "{made}");
    let viewed = call("view_image", json!({ "path": made["paths"][0] }));
    assert_eq!(viewed["delivered"]["width"], 768, "{viewed}");
    assert_eq!(viewed["delivered"]["downscaled"], true);
    let viewed = call("view_image", json!({ "path": made["artifacts"][0]["uri"], "detail": "original" }));
    assert_eq!(
        (&viewed["delivered"]["width"], &viewed["delivered"]["downscaled"]),
        (&json!(1024), &json!(false))
    );
    assert_eq!(viewed["delivered"]["sha256"], made["artifacts"][0]["sha256"]);
    let info = call("image_info", json!({ "path": "fox.webp" }));
    assert_eq!((&info["format"], &info["width"]), (&json!("webp"), &json!(64)));
    assert_eq!(error(&call("view_image", json!({ "path": "/etc/passwd" }))), ("path_denied", "path"));
    assert_eq!(error(&call("view_image", json!({ "path": "nothing.png" }))), ("file_not_found", "path"));
    // What is closed cannot be called either.
    assert_eq!(
        error(&bench.call("view_image", &json!({ "path": "fox.webp" }))),
        ("invalid_argument", "name")
    );
}

/// C15, B14, B24: a picture by ref is changed, the new one names it, and a mask keeps the rest.
#[test]
fn a_picture_is_changed_and_says_what_it_was() {
    let bench = Bench::new();
    let ask = json!({ "prompt": "a", "model": "mock", "size": "64x64", "seed": 1 });
    let first = bench.call("t2i", &ask);
    let ask = json!({ "prompt": "b", "model": "mock", "image_artifact": first, "strength": 0.5, "seed": 2 });
    let second = bench.call("vision_image_to_image", &ask);
    assert_is_ref(&second);
    assert_eq!((&second["width"], &second["metadata"]["task"]), (&json!(64), &json!("image_to_image")));
    assert_ne!(second["$artifact"], first["$artifact"]);
    let id = second["$artifact"].as_str().unwrap();
    let meta = fs::read_to_string(bench.path("store").join(format!("{id}.meta.json"))).unwrap();
    let meta: Value = serde_json::from_str(&meta).unwrap();
    assert_eq!(meta["x_latentia"]["source_refs"][0]["$artifact"], first["$artifact"], "{meta}");
    let ask = json!({ "prompt": "b", "model": "mock", "image_artifact": first, "count": 2, "seed": 3 });
    assert_eq!(bench.call("vision_image_to_image_batch", &ask).as_array().map(Vec::len), Some(2));
    let ask = json!({ "prompt": "b", "model": "mock", "image_artifact": first, "extend": { "left": 16, "down": 1 } });
    assert_eq!(error(&bench.call("i2i", &ask)), ("invalid_argument", "extend"));
    let ask = json!({ "prompt": "b", "model": "mock" });
    assert_eq!(error(&bench.call("i2i", &ask)), ("invalid_argument", "image_artifact"));
}
