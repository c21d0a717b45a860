//! The configs of a folder, and which of its files are its weights.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::error::{Code, Error, Result};
use crate::family::Evidence;
use crate::family::known::{Claim, Confidence, Configs, Finding};
use crate::weights::{limits, read_json, weights_among};

/// The last part of a path.
pub(super) fn label(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

pub(super) fn unreadable(path: &Path, error: std::io::Error) -> Error {
    Error::new(Code::StoreIo, format!("`{}` cannot be read", label(path))).because(error)
}

pub(super) fn no_model(path: &Path) -> Error {
    Error::new(Code::ModelIncompatible, format!("`{}` holds no model", label(path)))
        .hint("name a folder with model_index.json or config.json, or a file of weights; `latentia import` looks deeper")
}

/// `models--org--name` of the hub's cache: the snapshot that `refs/main` names, else the only one.
pub(super) fn snapshot(path: &Path) -> Option<PathBuf> {
    let snapshots = path.join("snapshots");
    if let Ok(revision) = fs::read_to_string(path.join("refs/main")) {
        let revision = revision.trim();
        if !revision.is_empty() && revision.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Some(snapshots.join(revision)).filter(|path| path.is_dir());
        }
    }
    let mut folders =
        fs::read_dir(&snapshots).ok()?.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    folders.next().filter(|_| folders.next().is_none())
}

/// Every config of a folder: that of each component by its name, the index or the component's own under "".
pub(super) fn configs(folder: &Path) -> Result<Configs> {
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
pub(super) fn config(path: &Path) -> Result<Option<Value>> {
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
pub(super) fn class_of(configs: &Configs) -> Option<String> {
    let own = configs.get("")?;
    let class = own.get("_class_name").and_then(Value::as_str);
    let first = || own.get("architectures")?.get(0)?.as_str();
    class.or_else(first).map(str::to_owned)
}

/// Prediction and size, where configs say them.
pub(super) fn read_settings(finding: &mut Finding, configs: &Configs) {
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

/// The weights of a folder: those of a component of diffusers, in whichever variant, else the only file there is.
///
/// # Errors
/// As a folder's reader gives them: none, only pickles, or a choice that nobody has made.
pub(super) fn weights_of(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    let chosen = weights_among(&label(folder), &names);
    if chosen.as_ref().is_err_and(|error| error.code == Code::ModelNotDownloaded) {
        let whole = |name: &&String| is_weights(Path::new(name)) && !name.contains("-of-");
        if let [only] = names.iter().filter(whole).collect::<Vec<_>>().as_slice() {
            return Ok(folder.join(only));
        }
    }
    Ok(folder.join(chosen?))
}

/// Files that are weights, and in which we read headers.
const WEIGHTS: &[&str] = &["safetensors", "gguf"];

/// Whether a name ends as files of weights do.
pub(super) fn is_weights(path: &Path) -> bool {
    path.extension().is_some_and(|ending| WEIGHTS.iter().any(|known| ending.eq_ignore_ascii_case(known)))
}
