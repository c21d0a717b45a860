//! What is remembered of a model that was fetched: where it came from, and what every file hashed to.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::choice::INDEX;
use super::listing::{is_weights, stays_inside};
use super::staging::{lost, write_whole};
use super::transfer::sha256;
use crate::error::{Code, Error, Result};

/// The file's name in the model's folder.
pub const MANIFEST: &str = "pulled.json";

/// A manifest, at most.
const BYTES: u64 = 8 << 20;

/// Where a model came from. It is written when every file is whole, so a folder that has it is a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The repository.
    pub repository: String,
    /// The revision that was asked for.
    pub revision: String,
    /// The commit that it was.
    pub commit: String,
    /// Which of several forms of the weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The licence that its makers name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// Its files.
    pub files: Vec<Fetched>,
}

/// A file as it was fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetched {
    /// Its path in the model's folder.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// What its bytes hash to.
    pub sha256: String,
}

impl Manifest {
    /// The manifest of a folder; `None` if it has none.
    ///
    /// # Errors
    /// `config_invalid` for one that is broken.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(MANIFEST);
        let Ok(data) = path.metadata() else { return Ok(None) };
        let broken = |why: &str| {
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            Error::new(Code::ConfigInvalid, format!("`{MANIFEST}` of `{name}` {why}"))
                .hint("`latentia rm` the model and pull it again")
        };
        if data.len() > BYTES {
            return Err(broken("is too large"));
        }
        let bytes = std::fs::read(&path).map_err(|error| broken("cannot be read").because(error))?;
        let manifest: Self = serde_json::from_slice(&bytes)
            .map_err(|error| broken("is not what a pull writes").because(error))?;
        if manifest.files.iter().all(|file| stays_inside(&file.path)) {
            Ok(Some(manifest))
        } else {
            Err(broken("names a file outside of the model"))
        }
    }

    /// Writes it into a folder whose files are whole.
    ///
    /// # Errors
    /// `store_io`, `store_full`.
    pub(super) fn save(&self, folder: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::internal("a manifest has no JSON").because(error))?;
        write_whole(&folder.join(MANIFEST), &text)
    }

    /// The one file of weights, for a model that is a file and no folder of parts.
    pub fn lone_weights(&self) -> Option<&str> {
        if self.files.iter().any(|file| file.path == INDEX || file.path.ends_with(".index.json")) {
            return None;
        }
        let mut weights = self.files.iter().map(|file| file.path.as_str()).filter(|path| is_weights(path));
        weights.next().filter(|_| weights.next().is_none())
    }

    /// The first file whose bytes are not those that were fetched; reads all of them.
    ///
    /// # Errors
    /// `store_io` for one that cannot be read.
    pub fn changed(&self, folder: &Path) -> Result<Option<&Fetched>> {
        for file in &self.files {
            let now = sha256(&folder.join(&file.path)).map_err(|error| lost(&error, &file.path))?;
            if now != file.sha256 {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    /// The first file that is not there, or has another size than it had.
    pub fn damaged(&self, folder: &Path) -> Option<&Fetched> {
        let whole = |file: &Fetched| {
            folder.join(&file.path).metadata().is_ok_and(|data| data.is_file() && data.len() == file.bytes)
        };
        self.files.iter().find(|file| !whole(file))
    }
}
