//! Imported models: one small JSON file a model, which points to where it lies.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::artifact::{Existing, write};
use crate::error::{Code, Error, Result};
use crate::weights::{limits, read_json};

/// What is remembered of an imported model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Where it lies.
    pub path: PathBuf,
    /// A folder of configs, for a file whose shapes cannot tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
    /// Files with parts that it lacks, or in place of its own; other models may point to them too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PathBuf>,
    /// What the user says of it, against what was found: `family`, `variant`, `prediction`, `size`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub told: Map<String, Value>,
    /// Digests of the headers of its files when it was imported, by file name.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub headers: Map<String, Value>,
    /// sha256 of its files, where somebody computed them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub sha256: Map<String, Value>,
}

impl Entry {
    /// Reads an entry.
    ///
    /// # Errors
    /// `config_invalid` if it is not one.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let size = fs::metadata(path).map_or(0, |file| file.len());
        if size > limits::CONFIG_BYTES as u64 {
            return Err(Error::new(Code::ConfigInvalid, format!("`{name}` has {size} bytes")));
        }
        let unreadable = |error| Error::new(Code::StoreIo, format!("`{name}` cannot be read")).because(error);
        let value = read_json(&fs::read(path).map_err(unreadable)?, limits::CONFIG_BYTES, &name)?;
        serde_json::from_value(value).map_err(|error| {
            Error::new(Code::ConfigInvalid, format!("`{name}` is no entry of an imported model"))
                .because(error)
        })
    }

    /// Writes it, whole or not at all.
    ///
    /// # Errors
    /// `store_io`; `already_exists` unless it replaces.
    pub fn save(&self, path: &Path, existing: Existing) -> Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| {
                Error::new(Code::StoreIo, "the models' folder cannot be made").because(error)
            })?;
        }
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::internal("an entry has no JSON").because(error))?;
        write(path, &text, existing)
    }
}

/// Whether a name may be a model's: it becomes a file's name.
///
/// # Errors
/// `invalid_argument`.
pub fn check_name(name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let plain = !name.is_empty() && name.len() <= 128 && !name.starts_with('.') && name.chars().all(fits);
    if plain {
        return Ok(());
    }
    let shown: String = name.chars().take(60).flat_map(char::escape_debug).collect();
    Err(Error::argument("name", format!("`{shown}` is no name for a model"))
        .hint("letters, digits, `-`, `_` and `.`, up to 128"))
}
