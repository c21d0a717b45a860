//! Changing, removing and proving what is stored.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::disk::{self, Found};
use super::id::Id;
use super::record::Artifact;
use super::{Store, in_store};
use crate::artifact::file;
use crate::error::{Code, Error, Result};

/// Something that is not as it was stored.
#[derive(Debug)]
pub struct Fault {
    /// Which artifact, or which file of a folder that was imported.
    pub name: String,
    /// What is wrong with it.
    pub error: Error,
}

/// What an artifact comes from and what came of it, at any remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    /// What it was made from.
    pub sources: Vec<Id>,
    /// What was made from it.
    pub derived: Vec<Id>,
}

impl Store {
    /// Protects an artifact from [`Store::gc`] and careless removal, or no longer.
    ///
    /// # Errors
    /// As [`Store::meta`].
    pub fn pin(&self, id: &Id, pinned: bool) -> Result<Artifact> {
        self.edit(id, |artifact| artifact.more.pinned = pinned)
    }

    /// Gives an artifact a tag, or takes it away.
    ///
    /// # Errors
    /// As [`Store::meta`]; `invalid_argument` for a key that no query could name.
    pub fn tag(&self, id: &Id, key: &str, value: Option<&str>) -> Result<Artifact> {
        let length = 1..=128;
        if !length.contains(&key.len()) || key.contains('=') || key.chars().any(char::is_control) {
            return Err(Error::argument("tag", "a tag's key has 1 to 128 bytes, none of them `=`"));
        }
        if value.is_some_and(|value| value.len() > 4096) {
            return Err(Error::argument("tag", "a tag's value has 4096 bytes at most"));
        }
        self.edit(id, |artifact| match value {
            Some(value) => drop(artifact.tags.insert(key.to_owned(), value.to_owned())),
            None => drop(artifact.tags.remove(key)),
        })
    }

    /// Removes an artifact for good. One that is pinned, or that others were made from, goes only by `force`.
    ///
    /// # Errors
    /// As [`Store::meta`]; `invalid_argument` if it is to stay.
    pub fn delete(&self, id: &Id, force: bool) -> Result<Artifact> {
        self.meta(id)?;
        let _alone = disk::lock(&self.folder)?;
        let artifact = self.held(id)?;
        let derived = self.index().related(id, true)?.len();
        let reason = if artifact.more.pinned {
            "it is pinned".to_owned()
        } else {
            format!("{derived} others were made from it")
        };
        if !force && (artifact.more.pinned || derived > 0) {
            let message = format!("the artifact {id} stays: {reason}");
            return Err(Error::argument("artifact", message).hint("`--force` removes it all the same"));
        }
        self.remove(&artifact)?;
        Ok(artifact)
    }

    /// What an artifact comes from and what came of it.
    ///
    /// # Errors
    /// `artifact_not_found`.
    pub fn lineage(&self, id: &Id) -> Result<Lineage> {
        self.meta(id)?;
        let index = self.index();
        let related = |derived| index.related(id, derived).map(|ids| ids.into_iter().collect());
        Ok(Lineage { sources: related(false)?, derived: related(true)? })
    }

    /// Reads everything and compares it with its hash; what is damaged goes to quarantine.
    ///
    /// # Errors
    /// `store_io` if the folder cannot be read.
    pub fn verify(&self) -> Result<Vec<Fault>> {
        let mut faults = Vec::new();
        for id in disk::survey(&self.folder)?.into_keys() {
            let read = Id::parse(&id).and_then(|id| self.reader(&id));
            match read {
                Err(error) if error.code != Code::ArtifactNotFound => faults.push(Fault { name: id, error }),
                _ => {}
            }
        }
        faults.sort_by(|a, b| a.name.cmp(&b.name));
        self.refresh()?;
        Ok(faults)
    }

    fn edit(&self, id: &Id, change: impl FnOnce(&mut Artifact)) -> Result<Artifact> {
        self.meta(id)?;
        let _alone = disk::lock(&self.folder)?;
        let mut artifact = self.held(id)?;
        change(&mut artifact);
        self.record(&artifact)?;
        Ok(artifact)
    }

    /// The record as it is now. Under the lock.
    pub(super) fn held(&self, id: &Id) -> Result<Artifact> {
        match disk::find(&self.folder, id)? {
            Found::Whole(artifact) => Ok(*artifact),
            Found::Bytes(name) => disk::describe(&self.folder, id, &name),
            Found::Damaged(_) | Found::Nothing => {
                Err(Error::new(Code::ArtifactNotFound, format!("the artifact {id} is gone")))
            }
        }
    }

    /// Takes the bytes away, then the record: a record without bytes is swept, bytes without a record would come back.
    /// Under the lock.
    pub(super) fn remove(&self, artifact: &Artifact) -> Result<()> {
        for name in [artifact.content_file.clone(), disk::record_name(&artifact.id)] {
            match self.folder.remove_file(Path::new(&name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(disk::lost("an artifact", error));
                }
                _ => {}
            }
        }
        file::sync(&self.folder).map_err(|error| in_store(file::failed("the store's folder", error)))?;
        self.index().change(&[artifact.id.as_str()], &[])
    }

    /// What `read` makes of the bytes, if the digest that it found is theirs.
    pub(super) fn proven<T>(&self, id: &Id, read: impl Fn(File) -> io::Result<(String, T)>) -> Result<T> {
        let artifact = self.meta(id)?;
        let attempt =
            |artifact: &Artifact| disk::open_blob(&self.folder, &artifact.content_file).and_then(&read);
        match attempt(&artifact) {
            Ok((digest, content)) if digest == artifact.sha256 => return Ok(content),
            // Damaged, or changed under our eyes: looked at again when nobody else is at work.
            _ => {}
        }
        let _alone = disk::lock(&self.folder)?;
        let artifact = self.held(id)?;
        let why = match attempt(&artifact) {
            Ok((digest, content)) if digest == artifact.sha256 => return Ok(content),
            Ok((digest, _)) => format!("their sha256 is {digest}, not {}", artifact.sha256),
            Err(error) => match error.kind() {
                ErrorKind::NotFound => "they are not there".to_owned(),
                ErrorKind::InvalidInput => "they are not in a file".to_owned(),
                _ => return Err(disk::lost("an artifact", error)),
            },
        };
        disk::quarantine(&self.folder, &artifact.content_file)?;
        disk::quarantine(&self.folder, &disk::record_name(id))?;
        self.index().change(&[id.as_str()], &[])?;
        Err(Error::new(Code::ArtifactCorrupt, format!("the bytes of {id} are damaged: {why}"))
            .hint("what is left of them is in the store's quarantine; make it again"))
    }

    /// The record that bytes without one should have; bytes whose hash is not their name are set aside.
    pub(super) fn adopt(&self, id: &Id, name: &str) -> Result<Artifact> {
        let described = disk::describe(&self.folder, id, name);
        if described.is_ok() {
            return described;
        }
        let _alone = disk::lock(&self.folder)?;
        let again = self.held(id);
        if again.as_ref().is_err_and(|error| error.code == Code::ArtifactCorrupt) {
            disk::quarantine(&self.folder, name)?;
            self.index().change(&[id.as_str()], &[])?;
        }
        again
    }

    /// Sets a record aside that cannot be believed, and says so; the bytes stay.
    pub(super) fn condemn_record<T>(&self, id: &Id, why: &str) -> Result<T> {
        {
            let _alone = disk::lock(&self.folder)?;
            if matches!(disk::find(&self.folder, id)?, Found::Damaged(_)) {
                disk::quarantine(&self.folder, &disk::record_name(id))?;
            }
        }
        self.refresh()?;
        Err(Error::new(Code::ArtifactCorrupt, format!("the record of {id} is damaged: {why}"))
            .hint("it is in the store's quarantine; ask again for the bytes, which are still there if they are whole"))
    }
}
