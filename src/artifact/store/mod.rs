//! Where finished work is kept: files named by what is in them, each with a record beside it.
//!
//! The folder is one that AbstractVision's `LocalAssetStore` reads and writes: `<id>.png` with `<id>.meta.json`. Those
//! files are the truth. An index beside them is only for searching and is made again when it is lost; a lock file keeps
//! processes from stepping on each other, because whoever writes holds it alone.
//!
//! Bytes come first, then the record, each written whole or not at all and forced to disk before [`Store::put`] returns:
//! what was acknowledged is there after a power cut. Bytes are hashed again whenever they are read; what is not what it
//! was is put into `quarantine/` and never served.

mod care;
mod disk;
mod exchange;
mod gc;
mod id;
mod index;
mod media;
mod record;

pub use care::{Fault, Lineage};
pub use exchange::{Form, Moved};
pub use gc::{Sweep, Swept};
pub use id::Id;
pub use index::{Page, Query};
pub use media::safe_name;
pub use record::{Artifact, Meta, More, Origin, SourceRef};

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cap_std::fs::Dir;
use serde_json::Value;

use self::disk::Found;
use self::index::Index;
use super::file::{self, Existing};
use crate::error::{Code, Error, Result};

/// A folder of artifacts. May be shared by threads, and by processes that each open their own.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    folder: Dir,
    index: Mutex<Index>,
    quota_bytes: Option<u64>,
}

impl Store {
    /// Opens a folder, made if it is not there, and learns what has changed in it since.
    ///
    /// # Errors
    /// `store_io`, `store_full`.
    pub fn open(path: &Path) -> Result<Self> {
        let folder = disk::open(path)?;
        let index = {
            let _alone = disk::lock(&folder)?;
            Mutex::new(Index::open(path)?)
        };
        let store = Self { path: path.to_owned(), folder, index, quota_bytes: None };
        store.refresh()?;
        Ok(store)
    }

    /// The same store, which takes no more than so many bytes in all.
    #[must_use]
    pub fn with_quota(mut self, bytes: u64) -> Self {
        self.quota_bytes = Some(bytes);
        self
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps bytes and what is said of them. When this returns, both are on the disk.
    ///
    /// Bytes that are here already are not written again; their record is renewed: what is said now wins, what was said
    /// before and is not said now stays.
    ///
    /// # Errors
    /// `store_full`, `store_io`; `artifact_mismatch` if other bytes have the same id.
    pub fn put(&self, bytes: &[u8], meta: &Meta) -> Result<Artifact> {
        let new = Artifact::new(id::sha256(bytes), bytes, meta);
        let _alone = disk::lock(&self.folder)?;
        let old = self.present(&new)?;
        let artifact = match old {
            Some(old) if old.sha256 == new.sha256 => new.renew(old),
            Some(_) => {
                let message = format!("the id {} belongs to other bytes", new.id);
                return Err(Error::new(Code::ArtifactMismatch, message));
            }
            None => {
                self.check_room(new.size_bytes)?;
                let name = Path::new(&new.content_file);
                file::write_in(&self.folder, name, bytes, Existing::Keep).map_err(in_store)?;
                new
            }
        };
        self.record(&artifact)?;
        Ok(artifact)
    }

    /// The bytes, proven to be those that were stored.
    ///
    /// # Errors
    /// `artifact_not_found`; `artifact_corrupt`, after which they are in quarantine.
    pub fn get(&self, id: &Id) -> Result<Vec<u8>> {
        self.proven(id, |mut file| disk::read(&mut file))
    }

    /// The open file, proven to hold the bytes that were stored; for what is too large to have in memory.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn reader(&self, id: &Id) -> Result<File> {
        self.proven(id, |mut file| {
            let digest = disk::digest(&mut file)?;
            file.seek(SeekFrom::Start(0))?;
            Ok((digest, file))
        })
    }

    /// What is known of an artifact.
    ///
    /// # Errors
    /// `artifact_not_found`; `artifact_corrupt` if its record is, after which the bytes are still here, by their id.
    pub fn meta(&self, id: &Id) -> Result<Artifact> {
        match disk::find(&self.folder, id)? {
            Found::Whole(artifact) => Ok(*artifact),
            Found::Bytes(name) => self.adopt(id, &name),
            Found::Nothing if disk::in_quarantine(&self.folder, id) => {
                Err(Error::new(Code::ArtifactCorrupt, format!("the artifact {id} was damaged"))
                    .hint("it is in the store's quarantine; make it again"))
            }
            Found::Nothing => Err(Error::new(Code::ArtifactNotFound, format!("there is no artifact {id}"))
                .hint("`latentia artifacts list` says what there is")),
            Found::Damaged(why) => self.condemn_record(id, &why),
        }
    }

    /// What a ref points to: ours, AbstractVision's, or with `artifact_id` or `id` in place of `$artifact`.
    ///
    /// Ids of other stores find what was imported from them.
    ///
    /// # Errors
    /// `invalid_argument` if this is no ref, `artifact_not_found`, `artifact_mismatch` if the ref has another hash.
    pub fn resolve(&self, reference: &Value) -> Result<Artifact> {
        let named = ["$artifact", "artifact_id", "id"].iter().find_map(|key| reference.get(key));
        let Some(name) = named.and_then(Value::as_str).filter(|name| !name.is_empty()) else {
            let message = "expected an artifact ref, which has the id in `$artifact`";
            return Err(Error::argument("artifact", message));
        };
        let foreign = self.index().with_origin(name)?;
        let id = Id::parse(foreign.as_deref().unwrap_or(name))?;
        let artifact = self.meta(&id)?;
        match reference.get("sha256").and_then(Value::as_str) {
            Some(sha256) if !sha256.eq_ignore_ascii_case(&artifact.sha256) => {
                let message = format!("the ref says that {id} has another sha256 than it has");
                Err(Error::new(Code::ArtifactMismatch, message).hint("ask for the artifact anew"))
            }
            _ => Ok(artifact),
        }
    }

    /// A page of records, newest first.
    ///
    /// # Errors
    /// `invalid_argument` for an `after` that is none.
    pub fn list(&self, query: &Query) -> Result<Page> {
        self.index().list(query)
    }

    /// How many artifacts there are, and their bytes.
    ///
    /// # Errors
    /// `store_io`.
    pub fn total(&self) -> Result<(u64, u64)> {
        self.index().total()
    }

    /// Learns what others, such as AbstractVision, have changed in the folder since the store was opened.
    ///
    /// # Errors
    /// `store_io`.
    pub fn refresh(&self) -> Result<()> {
        let _shared = disk::lock_shared(&self.folder)?;
        let mut index = self.index();
        let known = index.stamps()?;
        let present = disk::survey(&self.folder)?;
        let gone: Vec<&str> =
            known.keys().map(String::as_str).filter(|id| !present.contains_key(*id)).collect();
        let mut new = Vec::new();
        for (id, stamp) in present.iter().filter(|(id, stamp)| known.get(*id) != Some(*stamp)) {
            let id = Id::parse(id)?;
            // What is damaged is not listed; whoever asks for it, or `verify`, is told.
            match disk::find(&self.folder, &id) {
                Ok(Found::Whole(artifact)) => new.push((*artifact, stamp.clone())),
                Ok(Found::Bytes(name)) => {
                    new.extend(disk::describe(&self.folder, &id, &name).ok().map(|it| (it, stamp.clone())));
                }
                _ => {}
            }
        }
        if gone.is_empty() && new.is_empty() { Ok(()) } else { index.change(&gone, &new) }
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        // The table is only changed in transactions, so a panic elsewhere leaves nothing half done.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is stored under the id of new bytes, if it is whole; what is not goes to quarantine. Under the lock.
    fn present(&self, new: &Artifact) -> Result<Option<Artifact>> {
        let (found, name) = match disk::find(&self.folder, &new.id)? {
            Found::Nothing => return Ok(None),
            Found::Damaged(_) => {
                disk::quarantine(&self.folder, &disk::record_name(&new.id))?;
                return self.present(new);
            }
            Found::Bytes(name) => {
                let mut found = new.clone();
                found.content_file.clone_from(&name);
                (found, name)
            }
            Found::Whole(artifact) => {
                let name = artifact.content_file.clone();
                (*artifact, name)
            }
        };
        let digest = disk::open_blob(&self.folder, &name).and_then(|mut file| disk::digest(&mut file));
        if digest.is_ok_and(|digest| digest == found.sha256) {
            return Ok(Some(found));
        }
        disk::quarantine(&self.folder, &name)?;
        disk::quarantine(&self.folder, &disk::record_name(&new.id))?;
        Ok(None)
    }

    fn check_room(&self, bytes: u64) -> Result<()> {
        let Some(quota) = self.quota_bytes else { return Ok(()) };
        let (_, used) = self.index().total()?;
        if used.saturating_add(bytes) <= quota {
            return Ok(());
        }
        let message = format!("{bytes} bytes do not fit: {used} of {quota} are taken");
        Err(Error::new(Code::StoreFull, message).hint("`latentia artifacts gc --max-bytes N` makes room"))
    }

    /// Writes a record and enters it into the index. Under the lock.
    fn record(&self, artifact: &Artifact) -> Result<()> {
        let name = disk::record_name(&artifact.id);
        let text = serde_json::to_vec_pretty(artifact)
            .map_err(|error| Error::internal("a record has no JSON").because(error))?;
        file::write_in(&self.folder, Path::new(&name), &text, Existing::Replace).map_err(in_store)?;
        let stamp = disk::stamp(&self.folder, &name)?;
        self.index().change(&[], &[(artifact.clone(), stamp)])
    }
}

/// A name that our own store could not write is no mistake of the caller.
fn in_store(error: Error) -> Error {
    match error.code {
        Code::AlreadyExists => Error { code: Code::StoreIo, hint: None, ..error },
        _ => error,
    }
}
