//! To and from the folders of AbstractVision and AbstractRuntime.
//!
//! ```text
//! AbstractVision's LocalAssetStore      AbstractRuntime's FileArtifactStore
//! <id>.png                              artifacts/blobs/<sha256>.bin
//! <id>.meta.json                        artifacts/refs/<id>.meta
//! ```
//!
//! # Source
//! The layouts that `abstractvision` 0.3.34 and `abstractruntime` 0.13.0 (MIT) write; `tool-contract.md` 1.8 and 2.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;

use cap_fs_ext::FollowSymlinks;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::care::Fault;
use super::disk;
use super::id::{Id, sha256};
use super::record::{Artifact, Meta, More, Origin, SourceRef};
use super::{Store, in_store};
use crate::artifact::file::{self, Existing};
use crate::error::{Code, Error, Result};

/// The endings of records.
const VISION: &str = ".meta.json";
const RUNTIME: &str = ".meta";
/// Bytes of a foreign record that is read.
const RECORD_BYTES: u64 = 4 << 20;
/// Bytes of a foreign artifact that is read.
const BLOB_BYTES: u64 = 1 << 32;

/// Whose folder it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// AbstractVision's `LocalAssetStore`.
    Vision,
    /// AbstractRuntime's `FileArtifactStore`.
    Runtime,
}

impl Form {
    /// The form's name in records.
    fn name(self) -> &'static str {
        match self {
            Self::Vision => "abstractvision",
            Self::Runtime => "abstractruntime",
        }
    }
}

/// What was taken from a folder or brought to one.
#[derive(Debug, Default)]
pub struct Moved {
    /// What is there now.
    pub artifacts: Vec<Artifact>,
    /// What could not be moved, by the name of its file.
    pub faults: Vec<Fault>,
}

/// A record of another store, in our words.
struct Foreign {
    /// Its id there.
    id: String,
    /// The file with the bytes, below the folder.
    file: String,
    /// The digest that they must have.
    sha256: Option<String>,
    meta: Meta,
}

impl Store {
    /// Takes in all artifacts of a folder, whose form is seen from its names. What is damaged there is reported and
    /// left; nothing in the folder is changed.
    ///
    /// # Errors
    /// `file_not_found`, `unsupported_format` if it is no folder of either store; `store_full`, `store_io`.
    pub fn import(&self, path: &Path) -> Result<Moved> {
        let folder = Dir::open_ambient_dir(path, ambient_authority()).map_err(|error| {
            Error::new(Code::FileNotFound, "the folder to import cannot be opened").because(error)
        })?;
        let folder = folder.open_dir("artifacts").unwrap_or(folder);
        let mut moved = Moved::default();
        let mut records = Vec::new();
        for (name, form) in record_names(&folder)? {
            match read_record(&folder, &name, form) {
                Ok(record) => records.push((name, record)),
                Err(error) => moved.faults.push(Fault { name, error }),
            }
        }
        if records.is_empty() && moved.faults.is_empty() {
            let message = "this is no folder of AbstractVision's or AbstractRuntime's artifacts";
            return Err(Error::new(Code::UnsupportedFormat, message)
                .hint("expected ID.meta.json beside ID.png, or artifacts/refs/ID.meta"));
        }
        // Ids of the other store that stand in lineages mean the same artifacts here.
        let ours: HashMap<String, Id> = records
            .iter()
            .filter_map(|(_, record)| Some((record.id.clone(), Id::of(record.sha256.as_deref()?))))
            .collect();
        for (name, mut record) in records {
            record.meta.source_refs.extend(translated(&record.meta, &ours));
            match self.take(&folder, &record) {
                Ok(artifact) => moved.artifacts.push(artifact),
                Err(error) if matches!(error.code, Code::StoreFull | Code::StoreIo) => return Err(error),
                Err(error) => moved.faults.push(Fault { name, error }),
            }
        }
        Ok(moved)
    }

    fn take(&self, folder: &Dir, record: &Foreign) -> Result<Artifact> {
        let damaged =
            |why: &str| Error::new(Code::ArtifactCorrupt, format!("the artifact was not imported: {why}"));
        let bytes =
            read(folder, &record.file, BLOB_BYTES)?.ok_or_else(|| damaged("its bytes are not there"))?;
        if record.sha256.as_ref().is_some_and(|expected| *expected != sha256(&bytes)) {
            return Err(damaged("its bytes have another sha256 than its record says"));
        }
        self.put(&bytes, &record.meta)
    }

    /// Writes artifacts into a folder of this form; all of them, if none is named. What is there already stays.
    ///
    /// # Errors
    /// `artifact_not_found`, `artifact_corrupt`; `store_full`, `store_io` for the folder.
    pub fn export(&self, path: &Path, form: Form, ids: &[Id]) -> Result<Moved> {
        let artifacts = match ids {
            [] => self.everything()?,
            ids => ids.iter().map(|id| self.meta(id)).collect::<Result<_>>()?,
        };
        let folder = disk::open(path)?;
        let mut moved = Moved::default();
        for artifact in artifacts {
            let bytes = match self.get(&artifact.id) {
                Ok(bytes) => bytes,
                Err(error) => {
                    moved.faults.push(Fault { name: artifact.id.to_string(), error });
                    continue;
                }
            };
            match form {
                Form::Vision => {
                    keep(&folder, &artifact.content_file, &bytes)?;
                    keep(&folder, &disk::record_name(&artifact.id), &pretty(&artifact)?)?;
                }
                Form::Runtime => export_to_runtime(&folder, &artifact, &bytes)?,
            }
            moved.artifacts.push(artifact);
        }
        Ok(moved)
    }
}

/// The names of a folder's records, each with whose it is.
fn record_names(folder: &Dir) -> Result<Vec<(String, Form)>> {
    let mut found = Vec::new();
    for name in disk::names(folder)? {
        let form = if name.ends_with(VISION) { Form::Vision } else { Form::Runtime };
        if form == Form::Vision || name.ends_with(RUNTIME) {
            found.push((name, form));
        }
    }
    if let Ok(refs) = folder.open_dir("refs") {
        let names = disk::names(&refs)?.into_iter().filter(|name| name.ends_with(RUNTIME));
        found.extend(names.map(|name| (format!("refs/{name}"), Form::Runtime)));
    }
    Ok(found)
}

/// A file's bytes; `None` if it is not there, an error if it is no file or too large.
fn read(folder: &Dir, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
    let opened = file::open_in(folder, Path::new(name), FollowSymlinks::No);
    let bytes = match opened.and_then(|file| file::read_all(&file, limit)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::new(Code::ArtifactCorrupt, "a file cannot be read").because(error)),
    };
    bytes
        .map(Some)
        .ok_or_else(|| Error::new(Code::PayloadTooLarge, format!("a file has more than {limit} bytes")))
}

fn read_record(folder: &Dir, name: &str, form: Form) -> Result<Foreign> {
    let damaged = |why: &str| Error::new(Code::ArtifactCorrupt, format!("the record is damaged: {why}"));
    let text = read(folder, name, RECORD_BYTES)?.ok_or_else(|| damaged("it is gone"))?;
    let record: Map<String, Value> =
        serde_json::from_slice(&text).map_err(|error| damaged("it is no JSON object").because(error))?;
    let text = |key: &str| record.get(key).and_then(Value::as_str).map(str::to_owned);
    let own =
        text("artifact_id").filter(|id| is_plain(id)).ok_or_else(|| damaged("it has no artifact_id"))?;
    let object = |key: &str| record.get(key).and_then(Value::as_object).cloned().unwrap_or_default();
    let mut meta = Meta {
        content_type: text("content_type"),
        filename: text("filename"),
        tags: object("tags")
            .into_iter()
            .filter_map(|(key, tag)| Some((key, tag.as_str()?.to_owned())))
            .collect(),
        run_id: text("run_id"),
        metadata: object("metadata"),
        created_at: text("created_at").and_then(|time| time.parse::<Timestamp>().ok()),
        ..Meta::default()
    };
    let (file, sha256) = match form {
        Form::Vision => {
            let file = text("content_file").filter(|file| is_plain(file) && file.starts_with(&own));
            (file.ok_or_else(|| damaged("it names no file of its own"))?, text("sha256"))
        }
        Form::Runtime => match text("blob_id") {
            Some(blob) if is_plain(&blob) => (format!("blobs/{blob}.bin"), Some(blob)),
            Some(_) => return Err(damaged("it names no file of its own")),
            None => (format!("{own}.bin"), None),
        },
    };
    if let Some(more) = record.get("x_latentia") {
        let more: More =
            serde_json::from_value(more.clone()).map_err(|error| damaged("x_latentia").because(error))?;
        meta.source_refs = more.source_refs;
        meta.recipe = more.recipe;
        meta.expires_at = more.expires_at;
        meta.origins = more.origins;
    }
    if form == Form::Runtime {
        meta.filename = meta.filename.or_else(|| meta.tags.get("filename").cloned());
    }
    if let Some(descriptor) = record.get("descriptor").filter(|descriptor| descriptor.is_object()) {
        meta.recipe = Some(json!({ "descriptor": descriptor }));
    }
    if sha256.as_deref().is_none_or(|sha256| !sha256.starts_with(&own)) {
        meta.origins.push(Origin { store: form.name().into(), artifact_id: own.clone() });
    }
    Ok(Foreign { id: own, file, sha256, meta })
}

/// Whether a word of a record is fit to be part of a file's name.
fn is_plain(word: &str) -> bool {
    let fit = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    (1..=200).contains(&word.len()) && !word.starts_with('.') && word.bytes().all(fit)
}

/// The sources that AbstractRuntime's descriptor names, as far as they were imported too.
fn translated(meta: &Meta, ours: &HashMap<String, Id>) -> Vec<SourceRef> {
    let sources = meta.recipe.as_ref().map(|recipe| &recipe["descriptor"]["source_refs"]);
    let sources = sources.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let translate = |source: &Value| {
        let id = ["$artifact", "artifact_id", "id"].iter().find_map(|key| source[*key].as_str())?;
        let role =
            ["role", "purpose", "kind"].iter().find_map(|key| source[*key].as_str()).unwrap_or("source");
        Some(SourceRef { role: role.to_owned(), artifact: ours.get(id)?.clone() })
    };
    sources.iter().filter_map(translate).collect()
}

/// Blob and record of one artifact as AbstractRuntime keeps them; it makes its catalogue from them when it opens.
fn export_to_runtime(folder: &Dir, artifact: &Artifact, bytes: &[u8]) -> Result<()> {
    let open = |name: &str| {
        folder
            .create_dir_all(name)
            .and_then(|()| folder.open_dir(name))
            .map_err(|error| in_store(file::failed(name, error)))
    };
    let mut tags = artifact.tags.clone();
    tags.entry("sha256".into()).or_insert_with(|| artifact.sha256.clone());
    if let Some(filename) = &artifact.filename {
        tags.entry("filename".into()).or_insert_with(|| filename.clone());
    }
    let record = json!({
        "artifact_id": artifact.id,
        "blob_id": artifact.sha256,
        "content_type": artifact.content_type,
        "size_bytes": artifact.size_bytes,
        "created_at": artifact.created_at,
        "run_id": artifact.run_id,
        "tags": tags,
        "metadata": artifact.metadata,
        "x_latentia": artifact.more,
    });
    keep(&open("artifacts/blobs")?, &format!("{}.bin", artifact.sha256), bytes)?;
    keep(&open("artifacts/refs")?, &format!("{}.meta", artifact.id), &pretty(&record)?)
}

fn pretty(value: &impl serde::Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec_pretty(value).map_err(|error| Error::internal("a record has no JSON").because(error))
}

/// Writes a file that is not there yet.
fn keep(folder: &Dir, name: &str, bytes: &[u8]) -> Result<()> {
    match file::write_in(folder, Path::new(name), bytes, Existing::Keep) {
        Err(error) if error.code == Code::AlreadyExists => Ok(()),
        other => other,
    }
}
