//! Files that are whole or not there.
//!
//! Written beside their place under another name, forced to disk, then renamed: whoever looks sees the old file, the
//! new file, or none. A failed `fsync` is a failed write and is not tried again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Code, Error, Result};

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
    let shown = name.to_string_lossy();
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        let message = format!("the folder for `{shown}` is not there");
        return Err(Error::new(Code::FileNotFound, message).hint("make it first"));
    }
    if path.is_dir() {
        return Err(taken(&shown, "a folder"));
    }
    if existing == Existing::Keep && path.symlink_metadata().is_ok() {
        return Err(taken(&shown, "a file"));
    }
    let failed = |error: io::Error| failed(&shown, error);
    let draft = Draft::write(folder, &shown, bytes).map_err(failed)?;
    draft.publish(path, existing).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => taken(&shown, "a file"),
        _ => failed(error),
    })?;
    sync_folder(folder).map_err(failed)
}

fn taken(name: &str, what: &str) -> Error {
    Error::new(Code::AlreadyExists, format!("`{name}` is already there, {what}")).hint("choose another name")
}

fn failed(name: &str, error: io::Error) -> Error {
    let code = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Code::StoreFull,
        _ => Code::StoreIo,
    };
    Error::new(code, format!("`{name}` could not be written")).because(error)
}

/// The file under its other name; gone when dropped.
struct Draft(PathBuf);

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Draft {
    fn write(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // Cut, so that a long name does not become too long.
        let start: String = name.chars().take(40).collect();
        let path = folder.join(format!(".{start}.{}-{number}.tmp", std::process::id()));
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        let draft = Self(path);
        file.write_all(bytes)?;
        file.sync_all()?;
        Ok(draft)
    }

    /// Gives the file its name. A link refuses to replace, which a rename does not.
    fn publish(self, path: &Path, existing: Existing) -> io::Result<()> {
        if existing == Existing::Keep {
            match fs::hard_link(&self.0, path) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(error),
                // Not every file system has links; there a race is possible, but no half-written file.
                Err(_) if path.symlink_metadata().is_ok() => return Err(ErrorKind::AlreadyExists.into()),
                Err(_) => {}
            }
        }
        fs::rename(&self.0, path)
    }
}

/// Makes the new name last; only Unix has folders that can be forced to disk.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}
