//! The files of a store: what they are called, how they are found, read, locked and set aside.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::SystemTime;

use cap_fs_ext::FollowSymlinks;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::id::{Id, hex, sha256};
use super::record::{Artifact, Meta};
use crate::artifact::file;
use crate::error::{Code, Error, Result};

/// Where damaged files go.
pub(super) const QUARANTINE: &str = "quarantine";
/// Held alone by whoever changes something, together by those who look at everything.
const LOCK: &str = ".lock";
/// The ending of a record's name.
const RECORD: &str = ".meta.json";
/// Bytes of a record that is read.
const RECORD_BYTES: u64 = 4 << 20;
/// Bytes that are read into memory at once.
const BLOB_BYTES: u64 = 1 << 32;

/// What lies in the folder under an id.
pub(super) enum Found {
    /// A record; the bytes should be where it says.
    Whole(Box<Artifact>),
    /// Bytes without a record, in the file of this name.
    Bytes(String),
    /// A record that cannot be believed, and why.
    Damaged(String),
    /// Nothing.
    Nothing,
}

/// Opens the folder, made if it is not there.
pub(super) fn open(path: &Path) -> Result<Dir> {
    Dir::create_ambient_dir_all(path, ambient_authority())
        .and_then(|()| Dir::open_ambient_dir(path, ambient_authority()))
        .map_err(|error| lost("the store's folder", error))
}

/// Waits until nobody else is at work, and keeps everybody out until dropped.
pub(super) fn lock(folder: &Dir) -> Result<File> {
    lock_file(folder)
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|error| lost("the store's lock", error))
}

/// Waits until nobody changes anything, and keeps it so until dropped.
pub(super) fn lock_shared(folder: &Dir) -> Result<File> {
    lock_file(folder)
        .and_then(|file| file.lock_shared().map(|()| file))
        .map_err(|error| lost("the store's lock", error))
}

fn lock_file(folder: &Dir) -> io::Result<File> {
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
    Ok(folder.open_with(LOCK, &options)?.into_std())
}

/// The name of an artifact's record.
pub(super) fn record_name(id: &Id) -> String {
    format!("{id}{RECORD}")
}

/// Looks for an id.
pub(super) fn find(folder: &Dir, id: &Id) -> Result<Found> {
    let file = match file::open_in(folder, Path::new(&record_name(id)), FollowSymlinks::No) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(find_bytes(folder, id)?.map_or(Found::Nothing, Found::Bytes));
        }
        Err(error) => return Ok(Found::Damaged(error.to_string())),
    };
    let Some(text) = file::read_all(&file, RECORD_BYTES).map_err(|error| lost("a record", error))? else {
        return Ok(Found::Damaged(format!("it has more than {RECORD_BYTES} bytes")));
    };
    Ok(match serde_json::from_slice::<Artifact>(&text) {
        Ok(artifact) if artifact.is_consistent(id) => Found::Whole(Box::new(artifact)),
        Ok(_) => Found::Damaged("it names another artifact, or a file that is not its own".into()),
        Err(error) => Found::Damaged(error.to_string()),
    })
}

/// The file with the bytes of an id that has no record.
fn find_bytes(folder: &Dir, id: &Id) -> Result<Option<String>> {
    let known = super::media::endings().map(|ending| format!("{id}.{ending}"));
    for name in known {
        if folder.symlink_metadata(&name).is_ok_and(|file| file.is_file()) {
            return Ok(Some(name));
        }
    }
    let prefix = format!("{id}.");
    let names = names(folder)?;
    Ok(names.into_iter().find(|name| name.starts_with(&prefix) && !name.ends_with(RECORD)))
}

/// The names of the folder's entries, in order; what is no UTF-8 is none of ours.
pub(super) fn names(folder: &Dir) -> Result<Vec<String>> {
    let entries = folder.entries().map_err(|error| lost("the store's folder", error))?;
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    Ok(names)
}

/// Every id with the stamp of its record, or of its bytes where there is no record.
pub(super) fn survey(folder: &Dir) -> Result<HashMap<String, String>> {
    let mut found = HashMap::new();
    let mut bare = Vec::new();
    for name in names(folder)? {
        let Some((id, _)) = name.split_once('.').filter(|(id, _)| Id::parse(id).is_ok()) else { continue };
        if name.ends_with(RECORD) {
            found.insert(id.to_owned(), stamp(folder, &name)?);
        } else {
            bare.push(name);
        }
    }
    for name in bare {
        let id = name.split('.').next().unwrap_or_default();
        if !found.contains_key(id) {
            found.insert(id.to_owned(), stamp(folder, &name)?);
        }
    }
    Ok(found)
}

/// What changes when a file does: its size and its time.
pub(super) fn stamp(folder: &Dir, name: &str) -> Result<String> {
    let file = match folder.symlink_metadata(name) {
        Ok(file) => file,
        // Gone since it was listed.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(lost("a record", error)),
    };
    let time = file.modified().map(cap_std::time::SystemTime::into_std);
    let since = time.map(|time| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
    Ok(format!("{}-{}", file.len(), since.unwrap_or_default().as_nanos()))
}

/// The record that bytes without one should have: their hash must be their name.
pub(super) fn describe(folder: &Dir, id: &Id, name: &str) -> Result<Artifact> {
    let mut file = open_blob(folder, name).map_err(|error| lost("an artifact", error))?;
    let time = file.metadata().and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let (digest, bytes) = read(&mut file).map_err(|error| lost("an artifact", error))?;
    if Id::of(&digest) != *id {
        return Err(Error::new(
            Code::ArtifactCorrupt,
            format!("the bytes of {id} are not those that were stored"),
        ));
    }
    let created_at = Timestamp::try_from(time).ok();
    let mut artifact = Artifact::new(digest, &bytes, &Meta { created_at, ..Meta::default() });
    name.clone_into(&mut artifact.content_file);
    Ok(artifact)
}

/// Opens the bytes of an artifact; never through a link.
pub(super) fn open_blob(folder: &Dir, name: &str) -> io::Result<File> {
    file::open_in(folder, Path::new(name), FollowSymlinks::No)
}

/// All bytes and their sha256.
pub(super) fn read(file: &mut File) -> io::Result<(String, Vec<u8>)> {
    let bytes = file::read_all(file, BLOB_BYTES)?.ok_or(ErrorKind::FileTooLarge)?;
    Ok((sha256(&bytes), bytes))
}

/// The sha256 of a file, read from where it stands.
pub(super) fn digest(file: &mut File) -> io::Result<String> {
    let mut hasher = Sha256::new();
    io::copy(file, &mut Hashing(&mut hasher))?;
    Ok(hex(&hasher.finalize()))
}

/// A hasher as something to write to.
struct Hashing<'a>(&'a mut Sha256);

impl io::Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sets a file aside, under a name that is free; one that is not there is no matter.
pub(super) fn quarantine(folder: &Dir, name: &str) -> Result<()> {
    let failed = |error| lost("a damaged file", error);
    folder.create_dir_all(QUARANTINE).map_err(failed)?;
    let mut free = (0_u64..).map(|number| match number {
        0 => format!("{QUARANTINE}/{name}"),
        _ => format!("{QUARANTINE}/{name}.{number}"),
    });
    let Some(free) = free.find(|name| folder.symlink_metadata(name).is_err()) else { return Ok(()) };
    match folder.rename(name, folder, free) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(error)),
        _ => file::sync(folder).map_err(failed),
    }
}

/// Whether the bytes of an id were set aside.
pub(super) fn in_quarantine(folder: &Dir, id: &Id) -> bool {
    let Ok(entries) = folder.read_dir(QUARANTINE) else { return false };
    let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.any(|name| name.starts_with(id.as_str()) && !name.contains(RECORD))
}

/// What the system said, in the store's words.
pub(super) fn lost(what: &str, error: io::Error) -> Error {
    let code = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Code::StoreFull,
        _ => Code::StoreIo,
    };
    Error::new(code, format!("{what} could not be used")).because(error)
}
