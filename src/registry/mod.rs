//! Which models are on this machine, what they are, and what they can be asked for.

mod beside;
mod catalogue;
mod configs;
mod entry;
mod join;
mod memory;
mod pulled;
mod scan;
mod shelf;
mod survey;

pub use catalogue::{Catalogue, Listed, canonical};
pub use entry::{Entry, check_name};
pub use memory::{Memory, kept_on_cpu, memory};
pub use scan::{Layout, Sighting, layout, scan};
pub use shelf::{Licence, Offer, Recorded, Terms, offer, offers, terms, wanted};
pub use survey::{Given, Survey, survey};

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::artifact::Existing;
use crate::error::{Code, Error, Result};
use crate::family::Parts;
use crate::fetch::{MANIFEST, discard};
use crate::weights::{Inventory, Weights, sha256};

/// What makes a folder a model in diffusers' layout.
const INDEX: &str = "model_index.json";

/// How files of weights end.
const FILES: &[&str] = &[".safetensors", ".gguf"];

/// Models installed below one folder: folders in diffusers' layout, `.safetensors` and `.gguf` files, and entries that
/// point to models elsewhere.
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

impl Place {
    /// What the model was imported with, and in place of it what is given now.
    fn given<'a>(&'a self, config: Option<&'a Path>, parts: &'a [PathBuf]) -> Given<'a> {
        let entry = self.entry.as_ref();
        let own = entry.map(|entry| entry.parts.as_slice()).unwrap_or_default();
        Given {
            config: config.or_else(|| entry?.config.as_deref()),
            parts: if parts.is_empty() { own } else { parts },
            facts: entry.map(|entry| &entry.told),
        }
    }
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
                let of = |endings: &[&str]| endings.iter().find_map(|ending| name.strip_suffix(ending));
                let entry = || of(&[".json"]).filter(|name| !self.is_note(name));
                of(FILES).or_else(entry).map(str::to_owned)
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Whether a JSON file of this name is a note beside a file of weights, and no entry.
    fn is_note(&self, name: &str) -> bool {
        let ends = beside::NOTES.iter().filter_map(|note| note.strip_suffix(".json"));
        ends.filter_map(|end| name.strip_suffix(end)?.strip_suffix('.')).any(|stem| self.file(stem).is_some())
    }

    /// The name under which a model is installed: the one that is asked for, or that of what was pulled from the
    /// repository of this name.
    fn known_as(&self, model: &str) -> Option<String> {
        let own = self.names().into_iter().find(|name| name == model);
        own.or_else(|| pulled::named(&self.models, model))
    }

    /// A path as it is, or the place of an installed model.
    ///
    /// # Errors
    /// `model_not_found` with the names that are installed.
    pub fn find(&self, model: &str) -> Result<PathBuf> {
        self.place(model).map(|place| place.path)
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
        self.installed(model).and_then(|name| self.named(&name))
    }

    /// The name of an installed model, by that name or its repository's; never a path.
    ///
    /// # Errors
    /// `model_not_found`; `model_not_downloaded` with the command that fetches it.
    pub fn installed(&self, model: &str) -> Result<String> {
        if let Some(name) = self.known_as(model) {
            return Ok(name);
        }
        if let Some(error) = pulled::remedy(model) {
            return Err(error);
        }
        let names = self.names();
        let installed = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let shown: String = model.chars().take(120).flat_map(char::escape_default).collect();
        Err(Error {
            param: Some("model".into()),
            ..Error::new(
                Code::ModelNotFound,
                format!("there is no file, folder or installed model `{shown}`"),
            )
        }
        .hint(format!("installed models: {installed}; without -m the embedded model draws")))
    }

    /// The place of an installed model.
    fn named(&self, model: &str) -> Result<Place> {
        let folder = self.models.join(model);
        if folder.is_dir() {
            return Ok(Place { path: pulled::inside(folder)?, entry: None });
        }
        if let Some(file) = self.file(model) {
            return Ok(Place { path: file, entry: None });
        }
        let entry = Entry::read(&self.entry(model))?;
        if !entry.path.exists() {
            let message = format!("`{model}` was imported from a place where it is no more");
            return Err(Error::new(Code::ModelNotDownloaded, message)
                .hint(format!("import it again, or `latentia rm {model}`")));
        }
        Ok(Place { path: entry.path.clone(), entry: Some(entry) })
    }

    /// The file of weights of this name in the models' folder, if there is one.
    fn file(&self, name: &str) -> Option<PathBuf> {
        let paths = FILES.iter().map(|ending| self.models.join(format!("{name}{ending}")));
        paths.into_iter().find(|path| path.is_file())
    }

    fn entry(&self, name: &str) -> PathBuf {
        self.models.join(format!("{name}.json"))
    }

    /// What a path or an installed model is; `config` and `parts` stand in place of what it was imported with.
    ///
    /// # Errors
    /// As [`Self::place`] and [`survey()`].
    pub fn survey(&self, model: &str, config: Option<&Path>, parts: &[PathBuf]) -> Result<Survey> {
        let place = self.place(model)?;
        let mut found = survey(&place.path, &place.given(config, parts))?;
        found.sha256 = place.entry.map(|entry| entry.sha256).unwrap_or_default();
        Ok(found)
    }

    /// Opens a path or an installed model with all its parts, headers and configs only.
    ///
    /// # Errors
    /// As [`Self::place`], [`survey()`] and [`Parts::open`].
    pub fn open(&self, model: &str, config: Option<&Path>, parts: &[PathBuf]) -> Result<Parts> {
        let place = self.place(model)?;
        let given = place.given(config, parts);
        let whole = configs::snapshot(&place.path).unwrap_or_else(|| place.path.clone());
        let open = Parts::open(&whole, given.config)?;
        let found = if whole.is_dir() {
            Survey::given_with(&place.path, &given)
        } else {
            survey(&place.path, &given)?
        };
        let open = found.joined.iter().try_fold(open, |open, file| open.with(file))?;
        Ok(open.told(found.told()))
    }

    /// Remembers a model where it lies; nothing is copied.
    ///
    /// # Errors
    /// `invalid_argument` for the name; `already_exists`; what is wrong with its files.
    pub fn import(&self, path: &Path, name: &str, given: &Given<'_>) -> Result<Survey> {
        check_name(name)?;
        if self.names().iter().any(|known| known == name) {
            let message = format!("a model of the name `{name}` is installed already");
            return Err(Error::new(Code::AlreadyExists, message).hint("choose another with --name"));
        }
        // Links stay: in a cache of the hub they have the names, and what they point to has none.
        let whole = |path: &Path| {
            fs::metadata(path).and_then(|_| std::path::absolute(path)).map_err(|error| {
                Error::new(Code::FileNotFound, format!("there is no `{}`", path.display())).because(error)
            })
        };
        let path = whole(path)?;
        let config = given.config.map(whole).transpose()?;
        let parts = given.parts.iter().map(|part| whole(part)).collect::<Result<Vec<_>>>()?;
        let found = survey(&path, &Given { config: config.as_deref(), parts: &parts, ..*given })?;
        let mut headers = Map::new();
        for file in &found.files {
            headers.insert(below(&path, file), header(file)?.into());
        }
        let told = given.facts.cloned().unwrap_or_default();
        let parts = found.joined.clone();
        let entry = Entry { path, config, parts, told, headers, sha256: Map::new() };
        entry.save(&self.entry(name), Existing::Keep)?;
        Ok(found)
    }

    /// Forgets a model; deletes files only where they lie in the models' folder, and only with `files`.
    ///
    /// # Errors
    /// `model_not_found`; `invalid_argument` if files would have to be deleted without `files`.
    pub fn remove(&self, name: &str, files: bool) -> Result<Vec<PathBuf>> {
        let own = self.known_as(name);
        if let Some(own) = own.filter(|own| own != name) {
            let message = format!("no model is called `{name}` here; what was pulled from there is `{own}`");
            return Err(Error { param: Some("name".into()), ..Error::new(Code::ModelNotFound, message) }
                .hint(format!("`latentia rm {own}`")));
        }
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
        let (folder, file) = (self.models.join(name), self.file(name));
        if (folder.is_dir() || file.is_some()) && !files {
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
        for path in file.into_iter().chain([self.entry(name)]) {
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
        let own = self.known_as(name).unwrap_or_else(|| name.to_owned());
        if let Some(files) = pulled::verify(&self.models.join(own), full)? {
            return Ok(json!({ "model": name, "files": files, "recorded": false }));
        }
        let place = self.place(name)?;
        let found = survey(&place.path, &place.given(None, &[]))?;
        let Place { path, mut entry } = place;
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

    /// Files and folders that an installed model takes, each with its bytes, and whether they lie in the models'
    /// folder. Parts that several models share come up with each of them.
    ///
    /// # Errors
    /// As [`Self::place`].
    pub fn usage(&self, name: &str) -> Result<(Vec<(PathBuf, u64)>, bool)> {
        let Place { path, entry } = self.place(name)?;
        let parts = entry.iter().flat_map(|entry| entry.parts.iter().cloned());
        let paths = std::iter::once(path).chain(parts);
        Ok((paths.map(|path| (path.clone(), scan::bytes(&path))).collect(), entry.is_none()))
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
        std::fs::write(models.join("blocks.gguf"), "").expect("written");
        let registry = Registry::new(home.path());
        assert_eq!(registry.names(), ["blocks", "file", "whole"]);
        assert_eq!(registry.find("blocks").expect("there"), models.join("blocks.gguf"));
        assert_eq!(registry.find("whole").expect("there"), models.join("whole"));
        assert_eq!(registry.find("file").expect("there"), models.join("file.safetensors"));
        let error = registry.find("nowhere").expect_err("not there");
        assert_eq!(error.code, Code::ModelNotFound);
        assert!(error.hint.is_some_and(|hint| hint.contains("blocks, file, whole")));
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
            parts: Vec::new(),
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
