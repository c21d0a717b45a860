//! Which models are on this machine, what they are, and what they can be asked for.

mod catalogue;
mod entry;
mod pulled;
mod scan;
mod shelf;
mod survey;

pub use catalogue::{Catalogue, Listed};
pub use entry::{Entry, check_name};
pub use scan::{Layout, Sighting, layout, scan};
pub use shelf::{Licence, Offer, Recorded, Terms, offer, offers, terms, wanted};
pub use survey::{Survey, survey};

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::artifact::Existing;
use crate::error::{Code, Error, Result};
use crate::fetch::{MANIFEST, discard};
use crate::weights::{Inventory, Weights, sha256};

/// What makes a folder a model in diffusers' layout.
const INDEX: &str = "model_index.json";

/// Models installed below one folder: folders in diffusers' layout, `.safetensors` files, and entries that point to
/// models elsewhere.
#[derive(Debug, Clone)]
pub struct Registry {
    models: PathBuf,
}

/// Where an installed model lies, and what was said of it.
#[derive(Debug, Clone)]
pub struct Place {
    /// The folder or file.
    pub path: PathBuf,
    /// Its entry, if it was imported.
    pub entry: Option<Entry>,
}

impl Registry {
    /// The models in `home/models`; the folder need not exist.
    pub fn new(home: &Path) -> Self {
        Self { models: home.join("models") }
    }

    /// The names of what is installed, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.models).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| {
                let path = entry.path();
                let name = entry.file_name().into_string().ok()?;
                if path.is_dir() {
                    let whole = [INDEX, MANIFEST].iter().any(|file| path.join(file).is_file());
                    return whole.then_some(name);
                }
                let stem = name.strip_suffix(".safetensors").or_else(|| name.strip_suffix(".json"));
                stem.map(str::to_owned)
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// A path as it is, or the place of an installed model.
    ///
    /// # Errors
    /// `model_not_found` with the names that are installed.
    pub fn find(&self, model: &str) -> Result<PathBuf> {
        self.place(model).map(|place| place.path)
    }

    /// The folder of configs that a model was imported with.
    pub fn config(&self, model: &str) -> Option<PathBuf> {
        if Path::new(model).exists() {
            return None;
        }
        self.place(model).ok()?.entry?.config
    }

    /// A path as it is, or the place of an installed model with its entry.
    ///
    /// # Errors
    /// `model_not_found`; `config_invalid` for a broken entry; `model_not_downloaded` if what it points to is gone.
    pub fn place(&self, model: &str) -> Result<Place> {
        let path = Path::new(model);
        if path.exists() {
            return Ok(Place { path: path.to_owned(), entry: None });
        }
        let plain = path.components().count() == 1 && self.names().iter().any(|name| name == model);
        if plain {
            let folder = self.models.join(model);
            let file = self.models.join(format!("{model}.safetensors"));
            if folder.is_dir() {
                return Ok(Place { path: pulled::inside(folder)?, entry: None });
            }
            if file.is_file() {
                return Ok(Place { path: file, entry: None });
            }
            let entry = Entry::read(&self.entry(model))?;
            if !entry.path.exists() {
                let message = format!("`{model}` was imported from a place where it is no more");
                return Err(Error::new(Code::ModelNotDownloaded, message)
                    .hint(format!("import it again, or `latentia rm {model}`")));
            }
            return Ok(Place { path: entry.path.clone(), entry: Some(entry) });
        }
        if let Some(name) = pulled::named(&self.models, model) {
            return self.place(&name);
        }
        if let Some(error) = pulled::remedy(model) {
            return Err(error);
        }
        let names = self.names();
        let installed = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Err(Error {
            param: Some("model".into()),
            ..Error::new(
                Code::ModelNotFound,
                format!("there is no file, folder or installed model `{model}`"),
            )
        }
        .hint(format!("installed models: {installed}; without -m the embedded model draws")))
    }

    fn entry(&self, name: &str) -> PathBuf {
        self.models.join(format!("{name}.json"))
    }

    /// What a path or an installed model is.
    ///
    /// # Errors
    /// As [`Self::place`] and [`survey()`].
    pub fn survey(&self, model: &str, config: Option<&Path>) -> Result<Survey> {
        let Place { path, entry } = self.place(model)?;
        let told = entry.as_ref().map(|entry| Value::Object(entry.told.clone()));
        let own = entry.as_ref().and_then(|entry| entry.config.as_deref());
        survey(&path, config.or(own), told.as_ref())
    }

    /// Remembers a model where it lies; nothing is copied.
    ///
    /// # Errors
    /// `invalid_argument` for the name; `already_exists`; what is wrong with its files.
    pub fn import(
        &self,
        path: &Path,
        name: &str,
        config: Option<&Path>,
        told: Map<String, Value>,
    ) -> Result<Survey> {
        check_name(name)?;
        if self.names().iter().any(|known| known == name) {
            let message = format!("a model of the name `{name}` is installed already");
            return Err(Error::new(Code::AlreadyExists, message).hint("choose another with --name"));
        }
        let whole = |path: &Path| {
            fs::canonicalize(path).map_err(|error| {
                Error::new(Code::FileNotFound, format!("there is no `{}`", path.display())).because(error)
            })
        };
        let path = whole(path)?;
        let config = config.map(whole).transpose()?;
        let found = survey(&path, config.as_deref(), Some(&Value::Object(told.clone())))?;
        let mut headers = Map::new();
        for file in &found.files {
            headers.insert(below(&path, file), header(file)?.into());
        }
        let entry = Entry { path, config, told, headers, sha256: Map::new() };
        entry.save(&self.entry(name), Existing::Keep)?;
        Ok(found)
    }

    /// Forgets a model; deletes files only where they lie in the models' folder, and only with `files`.
    ///
    /// # Errors
    /// `model_not_found`; `invalid_argument` if files would have to be deleted without `files`.
    pub fn remove(&self, name: &str, files: bool) -> Result<Vec<PathBuf>> {
        check_name(name)?;
        if !self.names().iter().any(|known| known == name) {
            // What a pull has begun and not ended is no model, but it takes room.
            if let Some(waiting) = discard(&self.models, name)? {
                return Ok(vec![waiting]);
            }
            return Err(Error {
                param: Some("name".into()),
                ..Error::new(Code::ModelNotFound, format!("no model `{name}` is installed"))
            });
        }
        let failed = |error| Error::new(Code::StoreIo, format!("`{name}` cannot be removed")).because(error);
        let (folder, file) = (self.models.join(name), self.models.join(format!("{name}.safetensors")));
        if (folder.is_dir() || file.is_file()) && !files {
            return Err(Error::argument(
                "yes",
                format!("`{name}` lies here, and its files would be deleted"),
            )
            .hint("say --yes to delete them"));
        }
        let mut removed: Vec<PathBuf> = discard(&self.models, name)?.into_iter().collect();
        // A link is forgotten, never followed.
        if folder.symlink_metadata().is_ok_and(|data| data.is_dir()) {
            fs::remove_dir_all(&folder).map_err(failed)?;
            removed.push(folder);
        } else if folder.symlink_metadata().is_ok_and(|data| data.is_symlink()) {
            fs::remove_file(&folder).map_err(failed)?;
            removed.push(folder);
        }
        for path in [file, self.entry(name)] {
            if path.symlink_metadata().is_ok() {
                fs::remove_file(&path).map_err(failed)?;
                removed.push(path);
            }
        }
        Ok(removed)
    }

    /// Reads an installed model's headers again and compares them with what was recorded; with `full`, every byte.
    ///
    /// The first full reading records the digests.
    ///
    /// # Errors
    /// `weights_corrupt` naming the file that has changed; what is wrong with the files.
    pub fn verify(&self, name: &str, full: bool) -> Result<Value> {
        if let Some(files) = pulled::verify(&self.models.join(name), full)? {
            return Ok(json!({ "model": name, "files": files, "recorded": false }));
        }
        let Place { path, entry } = self.place(name)?;
        let told = entry.as_ref().map(|entry| Value::Object(entry.told.clone()));
        let config = entry.as_ref().and_then(|entry| entry.config.as_deref());
        let found = survey(&path, config, told.as_ref())?;
        let mut entry = entry;
        let mut files = Vec::new();
        let mut fresh = false;
        for file in &found.files {
            let shown = below(&path, file);
            let now = header(file)?;
            let recorded = entry.as_ref().and_then(|entry| entry.headers.get(&shown)?.as_str());
            if recorded.is_some_and(|recorded| recorded != now) {
                return Err(changed(name, &shown, "its header is not the one that was imported"));
            }
            let compared = recorded.is_some();
            let mut digest = None;
            if full {
                let now = Weights::open(file)?.digest().to_owned();
                if let Some(entry) = &mut entry {
                    match entry.sha256.get(&shown).and_then(Value::as_str) {
                        Some(recorded) if recorded != now => {
                            return Err(changed(name, &shown, "its sha256 is not the recorded one"));
                        }
                        Some(_) => {}
                        None => {
                            entry.sha256.insert(shown.clone(), now.clone().into());
                            fresh = true;
                        }
                    }
                }
                digest = Some(now);
            }
            files
                .push(json!({ "file": shown, "header_sha256": now, "compared": compared, "sha256": digest }));
        }
        if let (true, Some(entry)) = (fresh, &entry) {
            entry.save(&self.entry(name), Existing::Replace)?;
        }
        Ok(json!({ "model": name, "files": files, "recorded": fresh }))
    }

    /// Bytes that an installed model's files take, and whether they lie in the models' folder.
    ///
    /// # Errors
    /// As [`Self::place`].
    pub fn usage(&self, name: &str) -> Result<(u64, bool)> {
        let Place { path, entry } = self.place(name)?;
        Ok((scan::bytes(&path), entry.is_none()))
    }
}

/// A file's path below the model's own, or its name.
fn below(root: &Path, file: &Path) -> String {
    let path = file.strip_prefix(root).unwrap_or(file);
    let path =
        if path.as_os_str().is_empty() { Path::new(file.file_name().unwrap_or_default()) } else { path };
    path.to_string_lossy().into_owned()
}

fn changed(name: &str, file: &str, what: &str) -> Error {
    Error::new(Code::WeightsCorrupt, format!("`{name}`: `{file}` has changed: {what}"))
        .hint("fetch the file again, or `latentia rm` and `latentia import` the model if the change is meant")
}

/// A digest of names, types, shapes and places: it changes with the file's header and costs no reading of data.
fn header(file: &Path) -> Result<String> {
    let weights = Weights::open(file)?;
    let Inventory { tensors, metadata } = weights.inventory();
    let mut text = String::new();
    for (name, tensor) in tensors {
        text.push_str(
            &json!([name, tensor.scalar.name(), tensor.shape, tensor.range.start, tensor.range.end])
                .to_string(),
        );
    }
    text.push_str(&json!(metadata).to_string());
    Ok(sha256(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_models_are_found_by_name_and_others_listed() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let models = home.path().join("models");
        std::fs::create_dir_all(models.join("whole")).expect("created");
        std::fs::write(models.join("whole/model_index.json"), "{}").expect("written");
        std::fs::create_dir_all(models.join("empty")).expect("created");
        std::fs::write(models.join("file.safetensors"), "").expect("written");
        let registry = Registry::new(home.path());
        assert_eq!(registry.names(), ["file", "whole"]);
        assert_eq!(registry.find("whole").expect("there"), models.join("whole"));
        assert_eq!(registry.find("file").expect("there"), models.join("file.safetensors"));
        let error = registry.find("nowhere").expect_err("not there");
        assert_eq!(error.code, Code::ModelNotFound);
        assert!(error.hint.is_some_and(|hint| hint.contains("file, whole")));
    }

    #[test]
    fn an_entry_points_elsewhere_and_says_when_that_is_gone() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let registry = Registry::new(home.path());
        let model = home.path().join("elsewhere.safetensors");
        std::fs::write(&model, "").expect("written");
        let entry = Entry {
            path: model.clone(),
            config: None,
            told: Map::new(),
            headers: Map::new(),
            sha256: Map::new(),
        };
        entry.save(&home.path().join("models/mine.json"), Existing::Keep).expect("saved");
        assert_eq!(registry.find("mine").expect("there"), model);
        std::fs::remove_file(&model).expect("removed");
        assert_eq!(registry.find("mine").expect_err("gone").code, Code::ModelNotDownloaded);
        assert_eq!(registry.remove("mine", false).expect("removed").len(), 1);
        assert_eq!(registry.find("mine").expect_err("forgotten").code, Code::ModelNotFound);
        assert_eq!(registry.remove("../mine", true).expect_err("no name").code, Code::InvalidArgument);
    }
}
