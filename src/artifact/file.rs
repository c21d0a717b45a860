//! Files that are whole or not there.
//!
//! Written beside their place under another name, forced to disk, then renamed: whoever looks sees the old file, the
//! new file, or none. A failed `fsync` is a failed write and is not tried again.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

use crate::error::{Code, Error, Result};

/// The ending of a file that is not whole yet.
const DRAFT: &str = ".tmp";

/// What becomes of a file that is already there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and writing fails.
    Keep,
    /// It is replaced at one stroke.
    Replace,
}

/// Writes a file whole.
///
/// # Errors
/// `already_exists`, `file_not_found` if the folder is not there, `store_full`, `store_io`.
pub fn write(path: &Path, bytes: &[u8], existing: Existing) -> Result<()> {
    let Some(name) = path.file_name() else {
        return Err(Error::argument("output", "this is no name of a file"));
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let Ok(folder) = Dir::open_ambient_dir(folder, ambient_authority()) else {
        let message = format!("the folder for `{}` is not there", name.display());
        return Err(Error::new(Code::FileNotFound, message).hint("make it first"));
    };
    write_in(&folder, Path::new(name), bytes, existing)
}

/// Writes a file whole into an open folder; `name` is one component.
///
/// # Errors
/// `already_exists`, `store_full`, `store_io`.
pub(super) fn write_in(folder: &Dir, name: &Path, bytes: &[u8], existing: Existing) -> Result<()> {
    let shown = name.to_string_lossy();
    if folder.is_dir(name) {
        return Err(taken(&shown, "a folder"));
    }
    if existing == Existing::Keep && folder.symlink_metadata(name).is_ok() {
        return Err(taken(&shown, "a file"));
    }
    let failed = |error: io::Error| failed(&shown, error);
    let draft = Draft::write(folder, &shown, bytes).map_err(failed)?;
    draft.publish(name, existing).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => taken(&shown, "a file"),
        _ => failed(error),
    })?;
    sync(folder).map_err(failed)
}

/// Opens what is a file and nothing else: a device or a pipe is refused before it can block, and so is a link if
/// `follow` says so. No link leads out of the folder.
pub(super) fn open_in(folder: &Dir, path: &Path, follow: FollowSymlinks) -> io::Result<fs::File> {
    let no_file = || io::Error::new(ErrorKind::InvalidInput, "not a file");
    if matches!(follow, FollowSymlinks::No) && folder.symlink_metadata(path)?.is_symlink() {
        return Err(no_file());
    }
    let mut options = OpenOptions::new();
    options.read(true).follow(follow).nonblock(true);
    let file = folder.open_with(path, &options)?;
    if file.metadata()?.is_file() { Ok(file.into_std()) } else { Err(no_file()) }
}

/// All bytes of an open file; `None` if there are more than `limit`.
pub(super) fn read_all(file: &fs::File, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let size = file.metadata()?.len();
    if size > limit {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    file.take(limit + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}

fn taken(name: &str, what: &str) -> Error {
    Error::new(Code::AlreadyExists, format!("`{name}` is already there, {what}")).hint("choose another name")
}

/// What the system said of a file that could not be written.
pub(super) fn failed(name: &str, error: io::Error) -> Error {
    let code = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Code::StoreFull,
        _ => Code::StoreIo,
    };
    Error::new(code, format!("`{name}` could not be written")).because(error)
}

/// Whether a name is that of a [`Draft`], which nobody but its writer and the sweeper may touch.
pub(super) fn is_draft(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(DRAFT)
}

/// The file under its other name; gone when dropped.
struct Draft<'a> {
    folder: &'a Dir,
    name: PathBuf,
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        let _ = self.folder.remove_file(&self.name);
    }
}

impl<'a> Draft<'a> {
    fn write(folder: &'a Dir, name: &str, bytes: &[u8]) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // Cut, so that a long name does not become too long.
        let start: String = name.chars().take(40).collect();
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let (draft, mut file) = loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = PathBuf::from(format!(".{start}.{}-{number}{DRAFT}", std::process::id()));
            match folder.open_with(&name, &options) {
                Ok(file) => break (Self { folder, name }, file),
                // A process that had our number left it behind, as every first process of a container has number 1.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        };
        file.write_all(bytes)?;
        file.sync_all()?;
        Ok(draft)
    }

    /// Gives the file its name. A link refuses to replace, which a rename does not.
    fn publish(self, name: &Path, existing: Existing) -> io::Result<()> {
        let Self { folder, name: draft } = &self;
        if existing == Existing::Keep {
            match folder.hard_link(draft, folder, name) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(error),
                // Not every file system has links; there a race is possible, but no half-written file.
                Err(_) if folder.symlink_metadata(name).is_ok() => {
                    return Err(ErrorKind::AlreadyExists.into());
                }
                Err(_) => {}
            }
        }
        folder.rename(draft, folder, name)
    }
}

/// Makes new names last; only Unix has folders that can be forced to disk.
pub(super) fn sync(folder: &Dir) -> io::Result<()> {
    // The handle itself names the folder and no more; what is forced to disk must be open for reading.
    if cfg!(unix) { folder.open(".")?.sync_all() } else { Ok(()) }
}
