//! From a path to what is there: headers and configs are read, tensors are not.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::error::{Code, Error, Result};
use crate::family::known::{
    Claim, Confidence, Configs, Finding, Part, Role, identify, profile, read_class, read_name,
};
use crate::family::{Card, Evidence, Parts, Task, recognise};
use crate::weights::{Weights, limits, read_json};

/// What a path holds.
#[derive(Debug, Clone)]
pub struct Survey {
    /// The path as it was given.
    pub path: PathBuf,
    /// What was found.
    pub finding: Finding,
    /// The files of weights that were opened.
    pub files: Vec<PathBuf>,
}

impl Survey {
    /// What a card says of a model that is open already.
    pub fn of_card(name: &str, card: &Card) -> Self {
        let mut finding = Finding::unknown(Role::Checkpoint);
        let because = card.variant.because.clone();
        finding.claim(Claim::new("family", card.family, because.clone(), Confidence::Certain));
        finding.claim(Claim::new("variant", card.variant.value.clone(), because, Confidence::Certain));
        take_card(&mut finding, card);
        finding.runs = true;
        finding.settle();
        Self { path: PathBuf::from(name), finding, files: Vec::new() }
    }
}

/// What a family of ours says of a model that it can open.
fn take_card(finding: &mut Finding, card: &Card) {
    finding.tasks.clone_from(&card.tasks);
    finding.abilities.clear();
    let size = format!("{}x{}", card.size.value[0], card.size.value[1]);
    finding.claim(Claim::new("size", size, card.size.because.clone(), Confidence::Certain));
    let (steps, guidance) = (card.steps.value.to_string(), card.guidance.value.to_string());
    finding.claim(Claim::new("steps", steps, card.steps.because.clone(), Confidence::Likely));
    finding.claim(Claim::new("guidance", guidance, card.guidance.because.clone(), Confidence::Likely));
}

/// Files that are weights, and in which we read headers.
const WEIGHTS: &[&str] = &["safetensors", "gguf"];

/// Looks at a file, a model's folder or a component's folder.
///
/// `config` is a folder of configs for a file whose shapes cannot tell; `told` is what the user says of the model.
///
/// # Errors
/// `file_not_found`, `model_incompatible` if the folder holds no model, and what is wrong with its files.
pub fn survey(path: &Path, config: Option<&Path>, told: Option<&Value>) -> Result<Survey> {
    let (mut finding, files) = if path.is_dir() {
        let path = snapshot(path).unwrap_or_else(|| path.to_owned());
        if path.join("model_index.json").is_file() { of_pipeline(&path)? } else { of_component(&path)? }
    } else {
        of_file(path, config)?
    };
    let name = label(path);
    read_name(&mut finding, &name);
    if let Some(told) = told.and_then(Value::as_object) {
        for fact in ["family", "variant", "prediction", "size"] {
            if let Some(value) = told.get(fact).and_then(Value::as_str) {
                let because = Evidence::User(format!("said {fact} {value}"));
                finding.claim(Claim::new(fact, value, because, Confidence::Certain));
            }
        }
    }
    finish(&mut finding);
    Ok(Survey { path: path.to_owned(), finding, files })
}

/// The last part of a path.
fn label(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Settles the facts, and looks up what is known of the family.
fn finish(finding: &mut Finding) {
    finding.settle();
    let Some(family) = finding.family.clone() else { return };
    let variant = finding.variant.clone().unwrap_or_default();
    if matches!(finding.role, Role::Denoiser | Role::Checkpoint) {
        finding.profile = profile(&family, &variant);
    }
    let Some(profile) = finding.profile else { return };
    // A folder's index names its own parts, and what it lacks is known already.
    if finding.parts.iter().any(|part| part.role == Role::Denoiser && !part.place.contains('.'))
        && finding.parts.len() > 1
        && finding.role == Role::Checkpoint
    {
        finding.runs &= finding.missing.is_empty();
        return;
    }
    let encoders: Vec<&Part> = finding.parts.iter().filter(|part| part.role == Role::TextEncoder).collect();
    let mut missing = Vec::new();
    for wanted in profile.encoders {
        let here = encoders.iter().any(|part| part.variant == *wanted || part.family == *wanted);
        if !here && encoders.len() < profile.encoders.len() {
            missing.push(format!("text encoder {wanted}"));
        }
    }
    if !profile.codec.is_empty() && !finding.parts.iter().any(|part| part.role == Role::Vae) {
        missing.push(format!("autoencoder {}", profile.codec));
    }
    finding.missing.extend(missing);
    finding.runs &= finding.missing.is_empty();
    if finding.runs {
        // Of what such a network could do, this is what can be asked for today.
        finding.tasks.retain(|task| *task == Task::TextToImage);
        finding.abilities.clear();
    }
}

/// One file, with the configs of a folder if shapes cannot tell.
fn of_file(path: &Path, config: Option<&Path>) -> Result<(Finding, Vec<PathBuf>)> {
    let weights = Weights::open(path)?;
    let mut finding = identify(weights.inventory());
    let beside = path.with_extension("");
    let beside = beside.join("model_index.json").is_file().then_some(beside);
    let folder = config.map(Path::to_owned).or(beside);
    if let Some(folder) = &folder {
        let configs = configs(folder)?;
        let class = class_of(&configs).ok_or_else(|| no_model(folder))?;
        told_by(&mut finding, &class, &configs);
    }
    // Without configs, recognising Stable Diffusion 2 would read a tensor, which is for loading.
    let first = finding.runs && finding.says("variant").is_some_and(|claim| claim.value == "1");
    if finding.role == Role::Checkpoint && (folder.is_some() || first) {
        match Parts::open(path, config).and_then(|parts| recognise(&parts)) {
            Ok(variant) => {
                take_card(&mut finding, variant.card());
                finding.runs = true;
            }
            Err(error) => {
                finding.runs = false;
                finding.notes.push(format!("not runnable here yet: {error}"));
            }
        }
    }
    sidecar(path, &mut finding)?;
    Ok((finding, vec![path.to_owned()]))
}

/// A class and its settings beside the tensors of a file.
fn told_by(finding: &mut Finding, class: &str, configs: &Configs) {
    let (role, runs) = (finding.role, finding.runs);
    let known = read_class(finding, class, configs);
    if matches!(role, Role::Denoiser | Role::Checkpoint) {
        read_settings(finding, configs);
    }
    finding.role = role;
    finding.runs = runs;
    if known && finding.says("family").is_some() {
        finding.telling.clear();
    }
    if !known {
        finding.notes.push(format!("the class {class} is not known"));
    }
    // Parts of a network draw nothing alone.
    if !matches!(role, Role::Denoiser | Role::Checkpoint | Role::Upscaler) {
        finding.tasks.clear();
    }
}

/// `name.yaml` beside `name.safetensors`, as Stable Diffusion 2 was published.
fn sidecar(path: &Path, finding: &mut Finding) -> Result<()> {
    let yaml = path.with_extension("yaml");
    let small =
        fs::metadata(&yaml).is_ok_and(|file| file.is_file() && file.len() <= limits::CONFIG_BYTES as u64);
    if small {
        let text = fs::read(&yaml).map_err(|error| unreadable(&yaml, error))?;
        let text = String::from_utf8_lossy(&text);
        if text.lines().any(|line| line.trim().replace(['"', '\''], "") == "parameterization: v") {
            let because = Evidence::Config(format!("{} parameterization v", label(&yaml)));
            finding.claim(Claim::new("prediction", "v", because, Confidence::Certain));
        }
    }
    Ok(())
}

fn unreadable(path: &Path, error: std::io::Error) -> Error {
    Error::new(Code::StoreIo, format!("`{}` cannot be read", label(path))).because(error)
}

fn no_model(path: &Path) -> Error {
    Error::new(Code::ModelIncompatible, format!("`{}` holds no model", label(path)))
        .hint("name a folder with model_index.json or config.json, or a file of weights; `latentia import` looks deeper")
}

/// `models--org--name` of the hub's cache: the snapshot that `refs/main` names, else the only one.
fn snapshot(path: &Path) -> Option<PathBuf> {
    let snapshots = path.join("snapshots");
    if let Ok(revision) = fs::read_to_string(path.join("refs/main")) {
        let revision = revision.trim();
        if !revision.is_empty() && revision.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Some(snapshots.join(revision)).filter(|path| path.is_dir());
        }
    }
    let mut entries = fs::read_dir(&snapshots).ok()?.flatten().map(|entry| entry.path());
    entries.next().filter(|path| path.is_dir())
}

/// Every config of a folder: that of each component by its name, the index or the component's own under "".
fn configs(folder: &Path) -> Result<Configs> {
    let mut configs = BTreeMap::new();
    let mut read = |key: &str, path: PathBuf| -> Result<()> {
        if let Some(value) = config(&path)? {
            configs.insert(key.to_owned(), value);
        }
        Ok(())
    };
    for name in ["model_index.json", "config.json"] {
        let path = folder.join(name);
        if path.is_file() {
            read("", path)?;
            break;
        }
    }
    for entry in fs::read_dir(folder).map_err(|error| unreadable(folder, error))?.flatten() {
        let component = entry.file_name().to_string_lossy().into_owned();
        for name in ["config.json", "scheduler_config.json"] {
            read(&component, entry.path().join(name))?;
        }
    }
    Ok(configs)
}

/// One config, if it is there.
fn config(path: &Path) -> Result<Option<Value>> {
    if !path.is_file() {
        return Ok(None);
    }
    let size = fs::metadata(path).map_err(|error| unreadable(path, error))?.len();
    if size > limits::CONFIG_BYTES as u64 {
        return Err(Error::new(Code::ConfigInvalid, format!("`{}` has {size} bytes", label(path))));
    }
    let bytes = fs::read(path).map_err(|error| unreadable(path, error))?;
    // Python writes minus infinity as a bare word.
    let text = String::from_utf8_lossy(&bytes).replace(": -Infinity", ": \"-Infinity\"");
    read_json(text.as_bytes(), limits::CONFIG_BYTES, &label(path)).map(Some)
}

/// The class that the folder's own config names.
fn class_of(configs: &Configs) -> Option<String> {
    let own = configs.get("")?;
    let class = own.get("_class_name").and_then(Value::as_str);
    let first = || own.get("architectures")?.get(0)?.as_str();
    class.or_else(first).map(str::to_owned)
}

/// Prediction and size, where configs say them.
fn read_settings(finding: &mut Finding, configs: &Configs) {
    if let Some(scheduler) = configs.get("scheduler") {
        let text = |key: &str| scheduler.get(key).and_then(Value::as_str).unwrap_or("");
        let flow = text("_class_name").starts_with("FlowMatch")
            || scheduler.get("use_flow_sigmas") == Some(&json!(true));
        let (value, key) = match text("prediction_type") {
            _ if flow => ("flow", "use_flow_sigmas"),
            "v_prediction" => ("v", "prediction_type"),
            "flow_prediction" => ("flow", "prediction_type"),
            other => (other, "prediction_type"),
        };
        let because = Evidence::Config(format!("scheduler {} {key} {value}", text("_class_name")));
        finding.claim(Claim::new("prediction", value, because, Confidence::Certain));
    }
    let levels = |key: &str| configs.get("vae")?.get(key)?.as_array().map(Vec::len);
    let levels = levels("block_out_channels").or_else(|| levels("encoder_block_out_channels"));
    let factor = levels.and_then(|levels| 1_u64.checked_shl(u32::try_from(levels).ok()?.checked_sub(1)?));
    for component in ["unet", "transformer"] {
        let sample = configs.get(component).and_then(|config| config.get("sample_size")?.as_u64());
        if let (Some(sample), Some(factor)) = (sample, factor) {
            let side = sample.saturating_mul(factor);
            let because = Evidence::Config(format!("{component} sample_size {sample}, vae x{factor}"));
            finding.claim(Claim::new("size", format!("{side}x{side}"), because, Confidence::Certain));
        }
    }
}

/// A folder with an index: the class first, then every component's tensors against it.
fn of_pipeline(folder: &Path) -> Result<(Finding, Vec<PathBuf>)> {
    let configs = configs(folder)?;
    let class = class_of(&configs).ok_or_else(|| no_model(folder))?;
    let mut finding = Finding::unknown(Role::Checkpoint);
    let mut files = Vec::new();
    let index = configs.get("").and_then(Value::as_object).cloned().unwrap_or_default();
    let named = |value: &Value| value.get(1).and_then(Value::as_str).is_some();
    for name in index.iter().filter(|(_, value)| named(value)).map(|(name, _)| name) {
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let component = folder.join(name);
        if !plain || weightless(name) {
            continue;
        }
        match weights_of(&component) {
            Some(file) => {
                let weights = Weights::open(&file)?;
                let found = identify(weights.inventory());
                absorb(&mut finding, found, name);
                files.push(file);
            }
            None => finding.missing.push(format!("weights of {name}")),
        }
    }
    told_by(&mut finding, &class, &configs);
    match Parts::open(folder, None).and_then(|parts| recognise(&parts)) {
        Ok(variant) => {
            take_card(&mut finding, variant.card());
            finding.runs = finding.missing.is_empty();
        }
        Err(error) => {
            finding.runs = false;
            finding.notes.push(format!("not runnable here yet: {error}"));
        }
    }
    Ok((finding, files))
}

/// Components that are settings and words, or that judge finished pictures: nothing that drawing needs.
fn weightless(name: &str) -> bool {
    let kinds = ["scheduler", "tokenizer", "feature_extractor", "processor", "watermarker", "safety_checker"];
    kinds.iter().any(|kind| name.contains(kind))
}

/// Takes the facts of one component into the whole.
fn absorb(whole: &mut Finding, component: Finding, name: &str) {
    let denoiser = name.starts_with("unet") || name.starts_with("transformer");
    for mut part in component.parts {
        name.clone_into(&mut part.place);
        if denoiser {
            part.role = Role::Denoiser;
        }
        whole.parts.push(part);
    }
    if denoiser && name != "transformer_2" {
        whole.tasks = component.tasks;
        whole.abilities = component.abilities;
        whole.notes.extend(component.notes);
        for claim in component.claims {
            whole.claim(claim);
        }
    }
}

/// A component's folder, or any folder with one set of weights.
fn of_component(folder: &Path) -> Result<(Finding, Vec<PathBuf>)> {
    let configs = configs(folder)?;
    let Some(file) = weights_of(folder) else { return Err(no_model(folder)) };
    let mut finding = identify(Weights::open(&file)?.inventory());
    if let Some(class) = class_of(&configs) {
        let before = finding.says("family").is_some();
        let mut known = finding.clone();
        told_by(&mut known, &class, &configs);
        // Encoders' classes say less than their shapes.
        if known.says("family").is_some() || !before {
            finding = known;
        }
    }
    Ok((finding, vec![file]))
}

/// The weights of a folder: an index, the plain file, else the only file there is.
fn weights_of(folder: &Path) -> Option<PathBuf> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    let index = names.iter().find(|name| name.ends_with(".safetensors.index.json"));
    let plain = || {
        names.iter().find(|name| {
            ["diffusion_pytorch_model.safetensors", "model.safetensors"].contains(&name.as_str())
        })
    };
    let weights = |name: &&String| {
        Path::new(name)
            .extension()
            .is_some_and(|ending| WEIGHTS.iter().any(|known| ending.eq_ignore_ascii_case(known)))
    };
    let chosen = index.or_else(plain).or_else(|| names.iter().find(weights))?;
    Some(folder.join(chosen))
}

/// Whether a name ends as files of weights do.
pub(super) fn is_weights(path: &Path) -> bool {
    path.extension().is_some_and(|ending| WEIGHTS.iter().any(|known| ending.eq_ignore_ascii_case(known)))
}
