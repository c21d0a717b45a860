//! Models that a pull brought: a folder with a manifest beside its files.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::configs::is_weights;
use super::shelf::offer;
use super::{INDEX, changed};
use crate::error::{Code, Error, Result};
use crate::fetch::{Fetched, Manifest, check_repository};

/// Where the model in a pulled folder is: the folder, or the one file of weights in it.
pub(super) fn inside(folder: PathBuf) -> Result<PathBuf> {
    if folder.join(INDEX).is_file() || folder.join("config.json").is_file() {
        return Ok(folder);
    }
    let lone =
        Manifest::read(&folder)?.and_then(|manifest| manifest.lone_weights().map(|file| folder.join(file)));
    Ok(lone.unwrap_or(folder))
}

/// The name of the model that was pulled from a repository, or from the repository of a name in the catalogue.
pub(super) fn named(models: &Path, model: &str) -> Option<String> {
    let repository = offer(model).map_or(model, |offer| offer.repository.as_str());
    check_repository(repository).ok()?;
    let entries = fs::read_dir(models).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| {
            let manifest = Manifest::read(&entry.path()).ok().flatten();
            manifest.is_some_and(|manifest| manifest.repository.eq_ignore_ascii_case(repository))
        })
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names.into_iter().next()
}

/// The error of a model that is not here and could be pulled: a name in the catalogue, or what looks like a repository.
pub(super) fn remedy(model: &str) -> Option<Error> {
    let path = Path::new(model);
    let repository =
        check_repository(model).is_ok() && !is_weights(path) && !path.parent().is_some_and(Path::exists);
    let listed = offer(model);
    if listed.is_none() && !repository {
        return None;
    }
    let name = listed.map_or(model, |offer| offer.name.as_str());
    let message = format!("`{model}` is not on this machine, and nothing is downloaded unasked");
    let error = Error { param: Some("model".into()), ..Error::new(Code::ModelNotDownloaded, message) };
    Some(error.hint(format!("fetch it with `latentia pull {name}`")))
}

/// Compares a pulled model's files with its manifest: sizes, and with `full` every byte; `None` if it was not pulled.
pub(super) fn verify(folder: &Path, full: bool) -> Result<Option<Vec<Value>>> {
    let Some(manifest) = Manifest::read(folder)? else { return Ok(None) };
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let again = |error: Error| {
        error.hint(format!("`latentia rm {name}`, then `latentia pull {}`", manifest.repository))
    };
    if let Some(file) = manifest.damaged(folder) {
        return Err(again(changed(&name, &file.path, "it is not there whole")));
    }
    if full && let Some(file) = manifest.changed(folder)? {
        return Err(again(changed(&name, &file.path, "its sha256 is not the one that was fetched")));
    }
    let file = |file: &Fetched| json!({ "file": file.path, "compared": true, "sha256": full.then_some(&file.sha256) });
    Ok(Some(manifest.files.iter().map(file).collect()))
}
