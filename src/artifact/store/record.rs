//! What is known of an artifact: the record beside its bytes, and the small ref that travels instead of them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::id::Id;
use super::media;

/// The form of a record, as AbstractVision's `LocalAssetStore` writes it; ours has `x_latentia` besides.
const SCHEMA: &str = "abstractvision.asset.v1";
/// Bytes of JSON that one value of [`Meta::metadata`] may add to a ref.
const REF_VALUE_BYTES: usize = 512;
/// Bytes of JSON that all of them may.
const REF_METADATA_BYTES: usize = 4096;

/// What a writer says of the bytes that it stores; all of it may be left out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Meta {
    /// Such as `image/png`; found from the bytes without.
    pub content_type: Option<String>,
    /// A name for people; made harmless before it is kept.
    pub filename: Option<String>,
    /// Pairs to find it by, such as `kind` = `generated_media`.
    pub tags: BTreeMap<String, String>,
    /// What it was made from.
    pub source_refs: Vec<SourceRef>,
    /// The run, session or job that made it.
    pub run_id: Option<String>,
    /// Small facts that travel in the ref: model, seed, steps …
    pub metadata: Map<String, Value>,
    /// What repeats it, of any size; stays in the store.
    pub recipe: Option<Value>,
    /// When [`super::Store::gc`] may take it away.
    pub expires_at: Option<Timestamp>,
    /// When it was made; now, without.
    pub created_at: Option<Timestamp>,
    /// Where it was imported from.
    pub origins: Vec<Origin>,
}

/// One thing that an artifact was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRef {
    /// What for: `image`, `mask`, `reference`, `control` …
    pub role: String,
    /// Which artifact.
    #[serde(rename = "$artifact")]
    pub artifact: Id,
}

/// Where an artifact was before it came here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The kind of store: `abstractvision`, `abstractruntime`.
    pub store: String,
    /// Its id there; a ref with this id still finds it.
    pub artifact_id: String,
}

/// The record of one artifact. Serialised, it is the file `<id>.meta.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    schema: String,
    /// Its name everywhere.
    #[serde(rename = "artifact_id")]
    pub id: Id,
    /// Such as `image/png`.
    pub content_type: String,
    /// Length in bytes.
    pub size_bytes: u64,
    /// The whole digest.
    pub sha256: String,
    /// When it was stored last, ISO 8601 in UTC.
    pub created_at: String,
    pub(super) content_file: String,
    /// A name for people, one harmless component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// The run, session or job that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Pairs to find it by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Small facts: model, seed, steps …
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// What AbstractVision's form has no place for.
    #[serde(default, rename = "x_latentia")]
    pub more: More,
}

/// The part of a record that is ours.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct More {
    /// Columns of a picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Rows of a picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// Whether it stays until it is unpinned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// When [`super::Store::gc`] may take it away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// What it was made from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub source_refs: Vec<SourceRef>,
    /// What repeats it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Value>,
    /// Where it was imported from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<Origin>,
}

impl Artifact {
    /// The record of new bytes.
    pub(super) fn new(sha256: String, bytes: &[u8], meta: &Meta) -> Self {
        let id = Id::of(&sha256);
        let found = media::look(bytes);
        let content_type = meta.content_type.clone().unwrap_or(found.content_type);
        Self {
            schema: SCHEMA.into(),
            content_file: format!("{id}.{}", media::ending(&content_type)),
            id,
            content_type,
            size_bytes: bytes.len() as u64,
            sha256,
            created_at: spoken(meta.created_at.unwrap_or_else(Timestamp::now)),
            filename: meta.filename.as_deref().and_then(media::safe_name),
            run_id: meta.run_id.clone(),
            tags: meta.tags.clone(),
            metadata: meta.metadata.clone(),
            more: More {
                width: found.size.map(|size| size.0),
                height: found.size.map(|size| size.1),
                pinned: false,
                expires_at: meta.expires_at,
                source_refs: meta.source_refs.clone(),
                recipe: meta.recipe.clone(),
                origins: meta.origins.clone(),
            },
        }
    }

    /// The same bytes stored again: what is said now wins, what is not said now stays, and a pin stays.
    pub(super) fn renew(mut self, old: Self) -> Self {
        self.content_file = old.content_file;
        self.filename = self.filename.or(old.filename);
        self.run_id = self.run_id.or(old.run_id);
        self.tags = old.tags.into_iter().chain(self.tags).collect();
        self.metadata = old.metadata.into_iter().chain(self.metadata).collect();
        let more = old.more;
        self.more.pinned = more.pinned;
        // What was to stay for good is not made to expire by being made again.
        self.more.expires_at = self.more.expires_at.zip(more.expires_at).map(|(new, old)| new.max(old));
        self.more.recipe = self.more.recipe.or(more.recipe);
        self.more.source_refs = joined(more.source_refs, self.more.source_refs);
        self.more.origins = joined(more.origins, self.more.origins);
        self
    }

    /// Whether a record, which anybody may have written, names its own file and no other.
    pub(super) fn is_consistent(&self, id: &Id) -> bool {
        let ending = self.content_file.strip_prefix(id.as_str()).and_then(|rest| rest.strip_prefix('.'));
        self.id == *id
            && self.sha256.len() == 64
            && ending.is_some_and(|ending| {
                (1..=8).contains(&ending.len()) && ending.bytes().all(|b| b.is_ascii_alphanumeric())
            })
    }

    /// The name of the file with the bytes: id and ending.
    pub fn file_name(&self) -> &str {
        &self.content_file
    }

    /// Microseconds since 1970 of [`Self::created_at`]; what cannot be read is oldest.
    pub(super) fn created(&self) -> i64 {
        self.created_at.parse::<Timestamp>().map_or(0, Timestamp::as_microsecond)
    }

    /// What is sent instead of the bytes: AbstractVision's ref, with the size of a picture and a `uri`.
    ///
    /// Small whatever the record holds: of `metadata` only short values are repeated, and of those 4 KiB at most.
    pub fn reference(&self) -> Value {
        let mut value = json!({
            "$artifact": self.id,
            "content_type": self.content_type,
            "sha256": self.sha256,
            "size_bytes": self.size_bytes,
            "uri": format!("latentia://artifacts/{}", self.id),
        });
        if let Some(filename) = &self.filename {
            value["filename"] = filename.as_str().into();
        }
        if let (Some(width), Some(height)) = (self.more.width, self.more.height) {
            value["width"] = width.into();
            value["height"] = height.into();
        }
        let mut left = REF_METADATA_BYTES;
        let mut metadata = Map::new();
        for (key, fact) in &self.metadata {
            let bytes = fact.to_string().len();
            if bytes <= REF_VALUE_BYTES && key.len() + bytes <= left {
                left -= key.len() + bytes;
                metadata.insert(key.clone(), fact.clone());
            }
        }
        if !metadata.is_empty() {
            value["metadata"] = metadata.into();
        }
        value
    }
}

/// Both lists without repetition.
fn joined<T: PartialEq>(mut list: Vec<T>, more: Vec<T>) -> Vec<T> {
    for item in more {
        if !list.contains(&item) {
            list.push(item);
        }
    }
    list
}

/// A time as AbstractVision writes it.
fn spoken(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6f+00:00").to_string()
}
