//! Which models are on this machine.

use std::path::{Path, PathBuf};

use crate::error::{Code, Error, Result};

/// Models installed below one folder, each a folder in diffusers' layout or a `.safetensors` file.
#[derive(Debug, Clone)]
pub struct Registry {
    models: PathBuf,
}

impl Registry {
    /// The models in `home/models`; the folder need not exist.
    pub fn new(home: &Path) -> Self {
        Self { models: home.join("models") }
    }

    /// The names of what is installed, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.models).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| {
                let path = entry.path();
                let name = entry.file_name().into_string().ok()?;
                if path.is_dir() {
                    return path.join("model_index.json").is_file().then_some(name);
                }
                name.strip_suffix(".safetensors").map(str::to_owned)
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
        let path = Path::new(model);
        if path.exists() {
            return Ok(path.to_owned());
        }
        let plain = path.components().count() == 1 && self.names().iter().any(|name| name == model);
        if plain {
            let folder = self.models.join(model);
            return Ok(if folder.is_dir() {
                folder
            } else {
                self.models.join(format!("{model}.safetensors"))
            });
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
}
