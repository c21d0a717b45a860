//! `show`, `models`, `import`, `rm`, `verify` and `du` as a user types them.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use latentia::family::known::Measure;
use latentia::registry::{Catalogue, Registry};
use serde_json::{Value, json};

use crate::corpus::{Ended, run};
use crate::fixtures;
use crate::inventories::{inventory, save, sizes, unet};

pub(crate) fn latentia(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_latentia"));
    command.current_dir(home).env("LATENTIA_HOME", home).stdin(Stdio::null());
    command.args(arguments).output().expect("runs")
}

/// The JSON of a command that succeeds.
pub(crate) fn json(home: &Path, arguments: &[&str]) -> Value {
    let output = latentia(home, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

pub(crate) fn home() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// What each model of the fixtures is: folder, family, a word of the variant, a task, the size.
const MODELS: &[(&str, &str, &str, &str, [u64; 2])] = &[
    ("cogvideox", "cogvideox", "", "text_to_video", [720, 480]),
    ("cogvideox_5b", "cogvideox", "", "text_to_video", [720, 480]),
    ("flux2_klein", "flux2", "klein", "image_to_image", [1024, 1024]),
    ("flux_dev", "flux", "dev", "text_to_image", [1024, 1024]),
    ("flux_schnell", "flux", "schnell", "text_to_image", [1024, 1024]),
    ("hunyuan_video", "hunyuan-video", "T2V", "text_to_video", [1280, 720]),
    ("ltx", "ltx", "", "image_to_video", [704, 512]),
    ("pix2pix", "stable-diffusion", "pix2pix", "image_to_image", [64, 64]),
    ("pixart_sigma", "pixart", "Sigma", "text_to_image", [128, 128]),
    ("qwen_image", "qwen-image", "", "text_to_image", [1328, 1328]),
    ("sana", "sana", "", "text_to_image", [64, 64]),
    ("sd15", "stable-diffusion", "", "text_to_image", [64, 64]),
    ("sd15_realvocab", "stable-diffusion", "", "text_to_image", [64, 64]),
    ("sd15_inpaint", "stable-diffusion", "inpaint", "image_to_image", [64, 64]),
    ("sd15_lcm", "stable-diffusion", "latent consistency", "text_to_image", [64, 64]),
    ("sd21", "stable-diffusion", "", "text_to_image", [64, 64]),
    ("sd3", "sd3", "", "text_to_image", [128, 128]),
    ("sd35", "sd3", "3.5", "text_to_image", [128, 128]),
    ("sdxl", "stable-diffusion-xl", "", "image_to_image", [64, 64]),
    ("sdxl_refiner", "stable-diffusion-xl", "refiner", "image_to_image", [64, 64]),
    ("svd", "stable-video-diffusion", "", "image_to_video", [64, 64]),
    ("upscale_x4", "stable-diffusion", "x4", "image_upscale", [32, 32]),
    ("wan21_i2v", "wan", "2.1 I2V", "image_to_video", [832, 480]),
    ("wan21_t2v", "wan", "T2V", "text_to_video", [832, 480]),
    ("wan22_a14b", "wan", "A14B", "text_to_video", [832, 480]),
    ("wan22_ti2v", "wan", "TI2V", "image_to_video", [832, 480]),
    ("z_image", "z-image", "Turbo", "text_to_image", [1024, 1024]),
    ("zero123", "zero123", "", "multi_view_image", [64, 64]),
];

#[test]
fn show_names_every_model_folder_of_the_fixtures() {
    let home = home();
    for (folder, family, variant, task, size) in MODELS {
        let path = fixtures::folder().join(folder).join("model");
        if !path.is_dir() {
            continue;
        }
        let shown = json(home.path(), &["show", text(&path), "--json"]);
        assert_eq!(shown["family"], *family, "{folder}");
        assert!(shown["variant"].as_str().unwrap_or("").contains(variant), "{folder}: {}", shown["variant"]);
        assert!(
            shown["tasks"].as_array().expect("tasks").contains(&json!(task)),
            "{folder}: {}",
            shown["tasks"]
        );
        assert_eq!(shown["size"], json!(size), "{folder}");
        assert_eq!(shown["conflicts"], json!([]), "{folder}");
        assert_eq!(shown["missing"], json!([]), "{folder}");
        let claims = shown["claims"].as_array().expect("claims");
        assert!(
            claims.iter().any(|claim| claim["fact"] == "family" && claim["because"].is_object()),
            "{folder}"
        );
    }
}

/// Single files and folders of one component: the path, a folder of configs or nothing, role, family.
const FILES: &[(&str, &str, &str, &str)] = &[
    ("sd15/single_file/sd15.safetensors", "sd15/model", "checkpoint", "stable-diffusion"),
    ("sd21/single_file/sd21.safetensors", "sd21/model", "checkpoint", "stable-diffusion"),
    ("sdxl/single_file/sdxl.safetensors", "sdxl/model", "checkpoint", "stable-diffusion-xl"),
    ("sd3/single_file/sd3.safetensors", "", "checkpoint", "sd3"),
    ("flux_dev/single_file/flux1.safetensors", "", "denoiser", "flux"),
    ("flux_dev/single_file/ae.safetensors", "", "vae", "flux-vae"),
    ("flux_dev/flux1-fp8.safetensors", "", "denoiser", "flux"),
    ("flux_dev/flux1-Q8_0.gguf", "", "denoiser", "flux"),
    ("flux_dev/flux1-Q4_0.gguf", "", "denoiser", "flux"),
    ("wan21_t2v/wan-Q8_0.gguf", "", "denoiser", "wan"),
    ("wan21_t2v/single_file/wan.safetensors", "", "denoiser", "wan"),
    ("wan21_i2v/transformer_flf2v", "", "denoiser", "wan"),
    ("lora_sd15/kohya.safetensors", "sd15/model", "lora", "stable-diffusion"),
    ("lora_sd15/peft.safetensors", "sd15/model", "lora", "stable-diffusion"),
    ("lora_sd15/diffusers_old.safetensors", "sd15/model", "lora", "stable-diffusion"),
    ("lora_sdxl/kohya.safetensors", "", "lora", "stable-diffusion-xl"),
    ("lora_sdxl/peft.safetensors", "sdxl/model", "lora", "stable-diffusion-xl"),
    ("lora_flux/kohya.safetensors", "", "lora", "flux"),
    ("lora_flux/peft.safetensors", "", "lora", "flux"),
    ("lora_flux/comfy.safetensors", "", "lora", "flux"),
    ("ip_adapter/ip-adapter_sd15.safetensors", "", "adapter", "ip-adapter"),
    ("ip_adapter/image_encoder", "", "text_encoder", "clip-vision"),
    ("animatediff/motion_adapter", "", "adapter", "animatediff"),
    ("controlnet/controlnet", "", "controlnet", "controlnet"),
    ("sdxl_controlnet/controlnet", "", "controlnet", "controlnet"),
    ("sd15/taesd/model", "", "vae", "tiny-vae"),
    ("flux_dev/model/text_encoder_2", "", "text_encoder", "t5"),
    ("qwen_image/model/text_encoder", "", "text_encoder", "qwen2.5-vl"),
];

#[test]
fn show_names_every_single_file_of_the_fixtures() {
    let home = home();
    for (file, config, role, family) in FILES {
        let path = fixtures::folder().join(file);
        if !path.exists() {
            continue;
        }
        let config = fixtures::folder().join(config);
        let mut arguments = vec!["show", text(&path), "--json"];
        if config != fixtures::folder().join("") {
            arguments.extend(["--config", text(&config)]);
        }
        let shown = json(home.path(), &arguments);
        assert_eq!(
            (shown["role"].as_str(), shown["family"].as_str()),
            (Some(*role), Some(*family)),
            "{file}"
        );
        assert_eq!(shown["conflicts"], json!([]), "{file}");
        let claims = shown["claims"].as_array().expect("claims");
        let because = claims.iter().find(|claim| claim["fact"] == "family").map(|claim| &claim["because"]);
        assert!(because.is_some_and(Value::is_object), "{file}: {claims:?}");
        if ["checkpoint", "denoiser"].contains(role) {
            assert!(!shown["tasks"].as_array().expect("tasks").is_empty(), "{file}");
            assert!(shown["size"].is_array() && shown["memory"]["denoiser"].as_u64() > Some(0), "{file}");
        }
    }
}

#[test]
fn no_model_and_no_file_of_the_fixtures_is_left_out() {
    let folder = fixtures::folder();
    for family in fixtures::families() {
        let name = family.file_name().and_then(|name| name.to_str()).expect("a name");
        let known = MODELS.iter().any(|(model, ..)| *model == name);
        assert!(known || !family.join("model/model_index.json").is_file(), "{name} is not asked about");
        // Files two levels deep: single files, adapters, control networks.
        let below = |folder: &Path| -> Vec<PathBuf> {
            fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
        };
        let inner = below(&family).into_iter().filter(|path| path.is_dir() && !path.ends_with("model"));
        for file in below(&family).into_iter().chain(inner.flat_map(|inner| below(&inner))) {
            let weights = file.extension().is_some_and(|end| end == "safetensors" || end == "gguf");
            let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or("");
            let relative = file.strip_prefix(&folder).expect("below").to_str().expect("UTF-8").to_owned();
            let asked = FILES.iter().any(|(known, ..)| relative.starts_with(known));
            assert!(
                !weights || asked || ["golden", "inputs", "types"].contains(&stem),
                "{relative} is not asked about"
            );
        }
    }
}

/// A file of Flux whose header is true and whose ten gigabytes are a hole.
fn sparse(path: &Path) -> u64 {
    let mut entries = serde_json::Map::new();
    let mut at = 0_u64;
    let mut add = |name: String, shape: &[u64]| {
        let bytes = 2 * shape.iter().product::<u64>();
        entries.insert(name, json!({ "dtype": "BF16", "shape": shape, "data_offsets": [at, at + bytes] }));
        at += bytes;
    };
    for (name, shape) in [
        ("img_in.weight", [3072, 64].as_slice()),
        ("txt_in.weight", &[3072, 4096]),
        ("vector_in.in_layer.weight", &[3072, 768]),
        ("guidance_in.in_layer.weight", &[3072, 256]),
    ] {
        add(name.into(), shape);
    }
    for block in 0..19 {
        add(format!("double_blocks.{block}.img_attn.norm.key_norm.scale"), &[128]);
        add(format!("double_blocks.{block}.img_attn.qkv.weight"), &[9216, 3072]);
        add(format!("double_blocks.{block}.img_mlp.0.weight"), &[12288, 3072]);
        add(format!("double_blocks.{block}.img_mlp.2.weight"), &[3072, 12288]);
        add(format!("double_blocks.{block}.txt_mlp.0.weight"), &[12288, 3072]);
    }
    for block in 0..38 {
        add(format!("single_blocks.{block}.linear1.weight"), &[21504, 3072]);
    }
    let header = Value::Object(entries).to_string();
    let mut file = File::create(path).expect("made");
    file.write_all(&(header.len() as u64).to_le_bytes()).expect("written");
    file.write_all(header.as_bytes()).expect("written");
    let whole = 8 + header.len() as u64 + at;
    file.set_len(whole).expect("a hole");
    whole
}

#[test]
fn ten_gigabytes_are_shown_at_once_and_cost_no_memory() {
    let home = home();
    let path = home.path().join("flux1-dev.safetensors");
    assert!(sparse(&path) > 9_000_000_000);
    let mut least = Duration::MAX;
    // The best of some: a busy machine delays, and the bound is of what `show` does.
    for _ in 0..10 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_latentia"));
        command.env("LATENTIA_HOME", home.path()).args(["show", text(&path), "--json"]);
        let Ended { output, took, peak_mib } = run(&mut command);
        let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!((&shown["family"], &shown["variant"]), (&json!("flux"), &json!("dev")));
        assert!(peak_mib < 64, "{peak_mib} MiB");
        assert!(peak_mib > 0 || !cfg!(target_os = "linux"), "nothing was measured");
        least = least.min(took);
        if least < Duration::from_millis(200) {
            return;
        }
    }
    panic!("took {least:?}");
}

#[test]
fn a_model_is_imported_drawn_with_verified_and_forgotten() {
    let home = home();
    let model = fixtures::folder().join("sd15/model").canonicalize().expect("the sd15 fixture");
    let imported = json(home.path(), &["import", text(&model), "--name", "mine", "--json"]);
    assert_eq!(imported["imported"][0]["name"], "mine");
    let entry = home.path().join("models/mine.json");
    assert!(entry.is_file());
    let again = latentia(home.path(), &["import", text(&model), "--name", "mine"]);
    assert_eq!(again.status.code(), Some(5), "the name is taken");
    let drawn =
        latentia(home.path(), &["generate", "a cat", "-m", "mine", "--steps", "1", "-q", "-o", "a.png"]);
    assert!(drawn.status.success(), "{}", String::from_utf8_lossy(&drawn.stderr));
    let listed = json(home.path(), &["models", "--json"]);
    assert_eq!(listed["models"]["mine"]["x_latentia"]["runs"], true);
    assert_eq!(listed["models"]["mine"]["tasks"]["text_to_image"]["requires"]["backend"], "latentia");
    let verified = json(home.path(), &["verify", "mine", "--full", "--json"]);
    assert_eq!(verified["recorded"], true);
    assert!(verified["files"].as_array().expect("files").iter().all(|file| file["compared"] == true));
    assert_eq!(json(home.path(), &["verify", "mine", "--full", "--json"])["recorded"], false);
    let used = json(home.path(), &["du", "--json"]);
    assert_eq!((used["bytes_here"].as_u64(), used["models"][0]["here"].as_bool()), (Some(0), Some(false)));
    json(home.path(), &["rm", "mine", "--json"]);
    assert!(!entry.exists() && model.join("model_index.json").is_file(), "only the entry is gone");
    assert_eq!(latentia(home.path(), &["show", "mine"]).status.code(), Some(3));
}

#[test]
fn files_that_lie_here_are_deleted_only_when_told() {
    let home = home();
    let models = home.path().join("models");
    fs::create_dir_all(&models).expect("made");
    sparse(&models.join("flux.safetensors"));
    assert_eq!(latentia(home.path(), &["rm", "flux"]).status.code(), Some(2));
    assert!(models.join("flux.safetensors").exists());
    json(home.path(), &["rm", "flux", "--yes", "--json"]);
    assert!(!models.join("flux.safetensors").exists());
}

#[test]
fn what_the_user_says_is_kept_and_shown_as_such() {
    let home = home();
    let path = home.path().join("x.safetensors");
    sparse(&path);
    json(home.path(), &["import", text(&path), "--name", "x", "--set", "family=chroma", "--json"]);
    let shown = json(home.path(), &["show", "x", "--json"]);
    assert_eq!(shown["family"], "chroma");
    assert!(
        shown["claims"].as_array().expect("claims").iter().any(|claim| claim["because"]["user"].is_string())
    );
    assert!(!shown["conflicts"].as_array().expect("conflicts").is_empty(), "the tensors say flux");
}

#[test]
fn a_changed_header_is_found() {
    let home = home();
    let path = home.path().join("x.safetensors");
    let whole = sparse(&path);
    json(home.path(), &["import", text(&path), "--name", "x", "--json"]);
    assert_eq!(sparse(&path), whole);
    json(home.path(), &["verify", "x", "--json"]);
    let other =
        fs::read(fixtures::folder().join("sd21/single_file/sd21.safetensors")).expect("the sd21 fixture");
    fs::write(&path, other).expect("written");
    assert_eq!(latentia(home.path(), &["verify", "x"]).status.code(), Some(5));
}

#[test]
fn folders_of_other_programs_are_looked_through() {
    let home = home();
    let comfy = home.path().join("ComfyUI/models");
    for folder in ["checkpoints", "diffusion_models", "vae", "loras"] {
        fs::create_dir_all(comfy.join(folder)).expect("made");
    }
    sparse(&comfy.join("diffusion_models/flux1-dev.safetensors"));
    fs::write(comfy.join("loras/broken.safetensors"), b"no").expect("written");
    let found = json(home.path(), &["import", "ComfyUI", "--json"]);
    assert_eq!(found["layout"], "a ComfyUI folder");
    assert_eq!(found["imported"][0]["name"], "flux1-dev");
    assert_eq!(found["others"][0]["error"]["code"], "weights_corrupt");

    let hub = home.path().join("hub/models--org--tiny");
    let revision = "0123456789abcdef0123456789abcdef01234567";
    fs::create_dir_all(hub.join("refs")).expect("made");
    fs::write(hub.join("refs/main"), revision).expect("written");
    copy(&fixtures::folder().join("sd15/model"), &hub.join("snapshots").join(revision));
    let found = json(home.path(), &["import", "hub", "--json"]);
    assert_eq!(
        (&found["layout"], &found["imported"][0]["name"]),
        (&json!("a hub cache"), &json!("org-tiny"))
    );
    assert_eq!(json(home.path(), &["show", "org-tiny", "--json"])["family"], "stable-diffusion");
}

/// A denoiser of Stable Diffusion 1, whole as far as `show` goes.
fn denoiser(path: &Path) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    save(&inventory(&unet(sizes(Vec::new()))), path);
}

#[test]
fn a_class_may_stand_on_the_network_of_another_family() {
    let home = home();
    for (class, measures) in [
        ("Zero123PlusPipeline", vec![(Measure::Context, 1024), (Measure::Linear, 1)]),
        ("Zero1to3StableDiffusionPipeline", vec![(Measure::Input, 8)]),
    ] {
        let model = home.path().join(class);
        let weights = model.join("unet/diffusion_pytorch_model.safetensors");
        fs::create_dir_all(model.join("unet")).expect("made");
        save(&inventory(&unet(sizes(measures))), &weights);
        let index = json!({ "_class_name": class, "unet": ["diffusers", "UNet2DConditionModel"] });
        fs::write(model.join("model_index.json"), index.to_string()).expect("written");
        let shown = json(home.path(), &["show", text(&model), "--json"]);
        assert_eq!((&shown["family"], &shown["tasks"]), (&json!("zero123"), &json!(["multi_view_image"])));
        assert_eq!((&shown["conflicts"], &shown["runs"]), (&json!([]), &json!(false)));
        assert!(
            shown["notes"].to_string().contains("shaped like that of stable-diffusion"),
            "{}",
            shown["notes"]
        );
        assert_ne!(
            json(home.path(), &["show", text(&weights), "--json"])["family"],
            "zero123",
            "weights alone"
        );
    }
}

#[test]
fn a_web_uis_folder_is_known_in_spite_of_its_settings() {
    let home = home();
    let root = home.path().join("webui");
    denoiser(&root.join("models/Stable-diffusion/mine.safetensors"));
    denoiser(&root.join("venv/lib/site-packages/other.safetensors"));
    denoiser(&root.join(".git/third.safetensors"));
    fs::create_dir_all(root.join("embeddings")).expect("made");
    save(&inventory("emb_params 4 768"), &root.join("embeddings/word.safetensors"));
    fs::write(root.join("config.json"), r#"{"samples_save":true}"#).expect("written");
    let planned = json(home.path(), &["import", "webui", "--dry-run", "--json"]);
    assert_eq!(json(home.path(), &["du", "--json"])["models"], json!([]), "a dry run remembers nothing");
    let found = json(home.path(), &["import", "webui", "--json"]);
    assert_eq!(planned["imported"], found["imported"]);
    assert_eq!(found["layout"], "an A1111 or Forge folder");
    assert_eq!(found["imported"].as_array().map(Vec::len), Some(1), "{found}");
    assert_eq!((&found["imported"][0]["name"], &found["all"]), (&json!("mine"), &json!(true)));
    assert_eq!(
        (&found["others"][0]["role"], &found["others"][0]["why"]),
        (&json!("embedding"), &json!("no model by itself"))
    );
    // Once more: it is known, and another of the same name is not taken for it.
    denoiser(&root.join("models/Stable-diffusion/sub/mine.safetensors"));
    let elsewhere = self::home();
    let fresh = json(elsewhere.path(), &["import", text(&root), "--dry-run", "--json"]);
    assert_eq!(fresh["imported"].as_array().map(Vec::len), Some(1), "a plan gives a name once: {fresh}");
    let again = json(home.path(), &["import", "webui", "--json"]);
    assert_eq!(again["imported"], json!([]));
    let why: Vec<&str> =
        again["others"].as_array().expect("others").iter().filter_map(|o| o["why"].as_str()).collect();
    assert!(why.contains(&"remembered before") && why.iter().any(|why| why.contains("--name")), "{why:?}");
}

#[test]
fn a_cached_repository_of_single_files_is_looked_into() {
    let home = home();
    let hub = home.path().join("cache/hub/models--org--files");
    let snapshot = hub.join("snapshots/0123456789abcdef0123456789abcdef01234567");
    for name in ["split_files/diffusion_models/one.safetensors", "two.safetensors"] {
        denoiser(&snapshot.join(name));
    }
    for (path, layout) in [("cache", "a hub cache"), ("cache/hub/models--org--files", "a hub cache")] {
        let found = json(home.path(), &["import", path, "--dry-run", "--json"]);
        assert_eq!(found["layout"], layout, "{path}");
        let imported = found["imported"].as_array().expect("a list").iter();
        let names: Vec<&str> = imported.filter_map(|model| model["name"].as_str()).collect();
        assert_eq!(names, ["one", "two"], "{path}");
    }
    // One that was broken off is no model.
    fs::create_dir_all(home.path().join("cache/hub/models--org--begun/blobs")).expect("made");
    assert_eq!(json(home.path(), &["import", "cache", "--dry-run", "--json"])["others"], json!([]));
}

#[test]
fn notes_of_other_programs_in_the_models_folder_are_no_models() {
    let home = home();
    let models = home.path().join("models");
    denoiser(&models.join("mine.safetensors"));
    for note in ["mine.json", "mine.metadata.json", "mine.cm-info.json"] {
        fs::write(models.join(note), r#"{"baseModel":"SD 1.5"}"#).expect("written");
    }
    assert_eq!(Registry::new(home.path()).names(), ["mine"]);
    let listed = json(home.path(), &["models", "--json"]);
    assert_eq!(listed["x_latentia"]["broken"], json!([]));
    assert!(listed["models"]["mine"].is_object());
}

#[test]
fn models_lists_parts_and_says_what_draws_today() {
    let home = home();
    let part = home.path().join("words.safetensors");
    save(&inventory("emb_params 4 768"), &part);
    json(home.path(), &["import", text(&part), "--name", "words", "--json"]);
    let said = String::from_utf8(latentia(home.path(), &["models"]).stdout).expect("text");
    assert!(said.contains("words") && said.contains("embedding, draws nothing alone"), "{said}");
    assert_eq!(json(home.path(), &["models", "--json"])["x_latentia"]["parts"][0]["model"], "words");

    let said = String::from_utf8(latentia(home.path(), &["models", "--available"]).stdout).expect("text");
    let (today, later) = said.split_once("known, not yet runnable here:").expect("both");
    assert!(today.contains("sd15 ") && later.contains("hunyuan-video"), "{said}");
    let available = json(home.path(), &["models", "--available", "--json"]);
    let offers = available["available"].as_array().expect("offers");
    let runs =
        |name: &str| offers.iter().find(|offer| offer["name"] == name).map(|offer| offer["runs"].clone());
    assert_eq!(runs("sd15"), Some(json!(true)));
    assert!(offers.iter().all(|offer| offer["runs"].is_boolean()));
    for offer in offers {
        let name = offer["name"].as_str().expect("a name");
        assert_eq!(today.contains(&format!("\n{name} ")), offer["runs"] == true, "{name}");
    }
}

#[test]
#[cfg(feature = "embedded")]
fn the_embedded_model_has_the_licence_of_its_card() {
    let home = home();
    let listed = json(home.path(), &["models", "--json"]);
    let sprites = &listed["models"]["sprites"];
    assert_eq!(sprites["license"], "permissive");
    let licence = &sprites["x_latentia"]["found"]["licence"];
    assert_eq!(licence["class"], "permissive");
    assert!(
        licence["because"].as_str().is_some_and(|why| why.starts_with("manifest latentia.json")),
        "{licence}"
    );
    let defaults = &sprites["x_latentia"]["found"]["defaults"];
    assert_eq!(
        (&defaults["steps"], &defaults["guidance"]),
        (&json!(20), &json!(3.0)),
        "its own, not its family's"
    );
    // The same in a folder, and of a model that says nothing the family's.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/sprites");
    assert_eq!(json(home.path(), &["show", text(&folder), "--json"])["licence"], *licence);
    let silent = fixtures::compact().join("sd15/model");
    assert_eq!(json(home.path(), &["show", text(&silent), "--json"])["licence"]["class"], "rail");
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("read").flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::write(target, fs::read(path).expect("read")).expect("written");
        }
    }
}

#[test]
fn hostile_folders_are_refused_and_nothing_panics() {
    let Some(corpus) = fixtures::hostile() else { return };
    let home = home();
    let mut folders: Vec<PathBuf> = vec![corpus.join("open")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            let output = latentia(home.path(), &["show", text(&path), "--json"]);
            let code = output.status.code();
            assert!(code.is_some_and(|code| code != 101), "{}: {:?}", path.display(), output.status);
            assert!(serde_json::from_slice::<Value>(&output.stdout).is_ok(), "{}", path.display());
        }
    }
}

#[test]
fn support_is_refused_with_the_names_of_models_that_can() {
    let catalogue = Catalogue::known();
    assert!(catalogue.supports("FLUX", "t2i"), "aliases in any case");
    let error = catalogue.require_support("flux", "text_to_video").expect_err("no clips");
    assert_eq!(error.code.as_str(), "unsupported_task");
    assert!(error.hint.is_some_and(|hint| hint.contains("Wan-AI/")));
    let error = catalogue.require_support("nobody/knows", "text_to_image").expect_err("unknown");
    assert_eq!(error.code.as_str(), "unsupported_task");
    assert!(Registry::new(Path::new("nowhere")).names().is_empty());
}

#[test]
#[expect(clippy::print_stdout, reason = "a test that did nothing must say so")]
fn no_command_opens_a_socket() {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("skipped: there is no strace");
        return;
    }
    let home = home();
    let model = fixtures::folder().join("sd15/model").canonicalize().expect("the sd15 fixture");
    let commands: &[&[&str]] = &[
        &["import", text(&model), "--name", "m"],
        &["show", "m"],
        &["models", "--known"],
        &["verify", "m"],
        &["du"],
        &["rm", "m"],
    ];
    for arguments in commands {
        let trace = home.path().join("trace");
        let output = Command::new("strace")
            .args(["-f", "-e", "trace=network", "-o", text(&trace), env!("CARGO_BIN_EXE_latentia")])
            .args(*arguments)
            .env("LATENTIA_HOME", home.path())
            .output()
            .expect("runs");
        let said = fs::read_to_string(&trace).unwrap_or_default();
        if said.contains("ptrace") || said.is_empty() {
            println!("skipped: strace may not trace here");
            return;
        }
        assert!(output.status.success(), "{arguments:?}");
        let calls: Vec<&str> =
            said.lines().filter(|line| line.contains("socket(") || line.contains("connect(")).collect();
        assert!(calls.is_empty(), "{arguments:?}: {calls:?}");
    }
}
