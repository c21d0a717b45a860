//! The folder that a model's files wait in until all of them are whole, and the lock that gives it to one process.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Code, Error, Result};
use crate::event::Watch;

/// Where models wait, in the models' folder; a name that no model can have.
pub const UNFINISHED: &str = ".pull";

/// The waiting room of one model, ours until dropped.
#[derive(Debug)]
pub(super) struct Staging {
    folder: PathBuf,
    _lock: File,
}

impl Staging {
    /// Enters the room of the model `name`; waits while another process is in it.
    pub(super) fn enter(models: &Path, name: &str, watch: &mut Watch<'_>) -> Result<Self> {
        let room = models.join(UNFINISHED);
        fs::create_dir_all(&room).map_err(|error| lost(&error, UNFINISHED))?;
        let lock = lock_file(&room, name)?;
        let mut told = false;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Self { folder: room.join(name), _lock: lock }),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(lost(&error, &format!("{name}.lock"))),
            }
            if !told {
                watch.note(format!("another process is fetching `{name}`; waiting for it"));
                told = true;
            }
            watch.check()?;
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Where the files wait.
    pub(super) fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// Deletes all that is not among these paths.
    pub(super) fn keep_only(&self, paths: &BTreeSet<String>) -> Result<()> {
        let files = self.files();
        fs::create_dir_all(&files).map_err(|error| lost(&error, "the waiting room"))?;
        sweep(&files, "", paths).map(|_| ()).map_err(|error| lost(&error, "the waiting room"))
    }

    /// Gives the whole model its name, in place of the one that had it.
    pub(super) fn publish(self, place: &Path) -> Result<()> {
        let failed =
            |error: io::Error| lost(&error, &place.file_name().unwrap_or_default().to_string_lossy());
        let old = self.folder.join("old");
        if old.exists() {
            fs::remove_dir_all(&old).map_err(failed)?;
        }
        if place.exists() {
            fs::rename(place, &old).map_err(failed)?;
        }
        fs::rename(self.files(), place).map_err(failed)?;
        sync_folder(place.parent().unwrap_or(place)).map_err(failed)?;
        fs::remove_dir_all(&self.folder).map_err(failed)
    }
}

/// Opens the file whose lock is the right to the room.
fn lock_file(room: &Path, name: &str) -> Result<File> {
    let path = room.join(format!("{name}.lock"));
    let opened = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    opened.map_err(|error| lost(&error, &format!("{name}.lock")))
}

/// Removes what is not to be kept; says whether anything is left.
fn sweep(folder: &Path, prefix: &str, keep: &BTreeSet<String>) -> io::Result<bool> {
    let mut left = false;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if sweep(&entry.path(), &format!("{name}/"), keep)? {
                left = true;
            } else {
                fs::remove_dir(entry.path())?;
            }
        } else if kind.is_file() && keep.contains(&name) {
            left = true;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(left)
}

/// Models that were begun and are not whole, with the bytes that wait.
pub fn unfinished(models: &Path) -> Vec<(String, u64)> {
    fn bytes(path: &Path, depth: usize) -> u64 {
        let Ok(data) = path.symlink_metadata() else { return 0 };
        if !data.is_dir() || depth > 20 {
            return data.len();
        }
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| bytes(&entry.path(), depth + 1)).sum()
    }
    let entries = fs::read_dir(models.join(UNFINISHED)).into_iter().flatten().flatten();
    let mut rooms: Vec<(String, u64)> = entries
        .filter(|entry| entry.path().join("files").is_dir())
        .filter_map(|entry| {
            Some((entry.file_name().into_string().ok()?, bytes(&entry.path().join("files"), 0)))
        })
        .collect();
    rooms.sort();
    rooms
}

/// Gives up a model that was begun; says where its files waited, or nothing if there are none.
///
/// # Errors
/// `busy` while another process is fetching it; `store_io`.
pub fn discard(models: &Path, name: &str) -> Result<Option<PathBuf>> {
    let room = models.join(UNFINISHED);
    let folder = room.join(name);
    if !folder.is_dir() {
        return Ok(None);
    }
    let lock = lock_file(&room, name)?;
    if lock.try_lock().is_err() {
        return Err(Error::new(Code::Busy, format!("another process is fetching `{name}`")));
    }
    fs::remove_dir_all(&folder).map_err(|error| lost(&error, name))?;
    Ok(Some(folder))
}

/// Writes a small file whole or not at all.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let write = || -> io::Result<()> {
        let draft = path.with_file_name(format!(".{name}.tmp"));
        let mut file = File::create(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        sync_folder(path.parent().unwrap_or(path))
    };
    write().map_err(|error| lost(&error, &name))
}

/// Makes new names last; only Unix has folders that can be forced to disk.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// The typed error of a file that could not be read or written; no path is given away.
pub(super) fn lost(error: &io::Error, name: &str) -> Error {
    let code = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Code::StoreFull,
        _ => Code::StoreIo,
    };
    Error::new(code, format!("`{name}` could not be read or written: {}", error.kind()))
        .hint("what has arrived stays; the same command again goes on from there")
}
