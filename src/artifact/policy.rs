//! Which files may be read and written for somebody who is not the owner of the machine.
//!
//! One object decides for every path that arrives from outside, in a request or a model's answer. Three things are
//! allowed: what lies in a workspace, what was written through this object, and what the owner named. Everything is
//! opened below the handle of a folder that was opened at the start, so no `..`, no link and no race leads out of it.
//!
//! What is not allowed answers the same whether or not it exists; nothing here opens a connection.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cap_fs_ext::FollowSymlinks;
use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::file::{self, Existing};
use crate::error::{Code, Error, Result};

/// Bytes of a path.
const PATH_BYTES: usize = 4096;
/// Ways of writing a separator or a step upwards that another program down the line may undo.
const ENCODED: &[&str] = &["%2e%2e", "%2f", "%5c", "%00", "%252e", "%252f"];
/// Beginnings of what is fetched or made, not opened.
const SCHEMES: &[&str] = &["data:", "file:", "blob:", "javascript:", "about:"];

/// What may be done in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Files are read; none is written.
    Read,
    /// Files are written; only those that this object wrote are read.
    Write,
    /// Both.
    ReadWrite,
}

/// The rule for paths. Without any folder it allows nothing.
#[derive(Debug, Default)]
pub struct Policy {
    folders: Vec<Folder>,
    /// Single files that the owner named, by their absolute path; and those written here.
    files: Mutex<HashMap<PathBuf, Single>>,
}

/// A folder that is allowed, under every name that it has.
struct Folder {
    names: Vec<PathBuf>,
    handle: Dir,
    access: Access,
}

impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.access, self.names)
    }
}

/// One file that is allowed.
#[derive(Debug)]
struct Single {
    folder: Dir,
    name: PathBuf,
}

impl Policy {
    /// A rule that allows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows a folder and all below it. Relative paths are meant below the first.
    ///
    /// # Errors
    /// `file_not_found` if there is no such folder.
    pub fn allow(mut self, folder: &Path, access: Access) -> Result<Self> {
        let opened = Dir::open_ambient_dir(folder, ambient_authority())
            .and_then(|handle| Ok((handle, std::path::absolute(folder)?, folder.canonicalize()?)));
        let (handle, named, real) = opened.map_err(|error| {
            Error::new(Code::FileNotFound, format!("the folder `{}` cannot be opened", folder.display()))
                .because(error)
        })?;
        let mut names = vec![plain(&named).unwrap_or(named), real];
        names.dedup();
        self.folders.push(Folder { names, handle, access });
        Ok(self)
    }

    /// Allows one file to be read, because the owner named it: on the command line, or in their own words.
    ///
    /// # Errors
    /// `file_not_found`.
    pub fn reference(&self, path: &Path) -> Result<()> {
        let missing = |error: io::Error| {
            let name = path.file_name().unwrap_or_default().display();
            Error::new(Code::FileNotFound, format!("`{name}` cannot be read")).because(error)
        };
        let real = path.canonicalize().map_err(missing)?;
        let named = std::path::absolute(path).map_err(missing)?;
        for name in [path.to_owned(), plain(&named).unwrap_or(named), real.clone()] {
            self.remember(name, &real).map_err(missing)?;
        }
        Ok(())
    }

    /// Reads a file of at most `limit` bytes; `param` is the argument that holds the path.
    ///
    /// # Errors
    /// `path_denied`, `url_not_allowed`, `payload_too_large`; `file_not_found` only where reading is allowed.
    pub fn read(&self, param: &str, path: &str, limit: u64) -> Result<Vec<u8>> {
        let file = self.open(param, path)?;
        whole(param, &file, limit)
    }

    /// The same for a path that is no text, as the owner's may be.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_path(&self, param: &str, path: &Path, limit: u64) -> Result<Vec<u8>> {
        let file = self.open_checked(path).map_err(|error| at(param, error))?;
        whole(param, &file, limit)
    }

    /// Opens a file to be read; never a folder, a device or a pipe.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn open(&self, param: &str, path: &str) -> Result<File> {
        let opened = checked(path).and_then(|path| self.open_checked(&path));
        opened.map_err(|error| at(param, error))
    }

    fn open_checked(&self, path: &Path) -> Result<File> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = if let Some(single) = files.get(path).or_else(|| files.get(&self.absolute(path)?)) {
            file::open_in(&single.folder, &single.name, FollowSymlinks::No)
        } else {
            let (folder, below) = self.place(path, |access| access != Access::Write).ok_or_else(denied)?;
            file::open_in(&folder.handle, &below, FollowSymlinks::Yes)
        };
        opened.map_err(|error| unreadable(&error))
    }

    /// Writes a file whole where writing is allowed, and says where; it may be read from now on.
    ///
    /// # Errors
    /// `path_denied`, `url_not_allowed`; `already_exists`, `file_not_found` if the folder is not there, `store_full`,
    /// `store_io`.
    pub fn write(&self, param: &str, path: &str, bytes: &[u8], existing: Existing) -> Result<PathBuf> {
        let written = checked(path).and_then(|path| self.write_checked(&path, bytes, existing));
        written.map_err(|error| at(param, error))
    }

    /// Says whether [`Self::write`] would find its place, before any work is done.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn check_output(&self, param: &str, path: &str, existing: Existing) -> Result<()> {
        let place = checked(path).and_then(|path| self.output(&path));
        let (folder, name, _) = place.map_err(|error| at(param, error))?;
        match folder.symlink_metadata(&name) {
            Ok(found) if found.is_dir() => Err(Error::argument(param, "this is a folder, not a file's name")),
            Ok(_) if existing == Existing::Keep => {
                let message = format!("`{}` is already there", name.display());
                Err(at(param, Error::new(Code::AlreadyExists, message).hint("choose another name")))
            }
            _ => Ok(()),
        }
    }

    fn write_checked(&self, path: &Path, bytes: &[u8], existing: Existing) -> Result<PathBuf> {
        let (folder, name, whole) = self.output(path)?;
        if folder.symlink_metadata(&name).is_ok_and(|found| found.is_dir()) {
            return Err(Error::new(Code::InvalidArgument, "this is a folder, not a file's name"));
        }
        file::write_in(&folder, &name, bytes, existing)?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.insert(whole.clone(), Single { folder, name });
        Ok(whole)
    }

    /// The open folder of an output, the file's name in it, and its whole path.
    fn output(&self, path: &Path) -> Result<(Dir, PathBuf, PathBuf)> {
        let (folder, below) = self.place(path, |access| access != Access::Read).ok_or_else(denied)?;
        let name = below.file_name().map(PathBuf::from).ok_or_else(denied)?;
        let parent = below.parent().filter(|parent| !parent.as_os_str().is_empty());
        let handle = match parent {
            Some(parent) => folder.handle.open_dir(parent),
            None => folder.handle.try_clone(),
        };
        let handle = handle.map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                Error::new(Code::FileNotFound, "the folder of the output is not there").hint("make it first")
            }
            _ => denied(),
        })?;
        let whole = folder.names.first().map(|root| root.join(&below)).ok_or_else(denied)?;
        Ok((handle, name, whole))
    }

    /// The allowed folder that a path lies in, and the way from there.
    fn place(&self, path: &Path, may: impl Fn(Access) -> bool) -> Option<(&Folder, PathBuf)> {
        if path.is_relative() {
            let folder = self.folders.first().filter(|folder| may(folder.access))?;
            return Some((folder, path.to_owned())).filter(|(_, below)| !below.as_os_str().is_empty());
        }
        self.folders.iter().filter(|folder| may(folder.access)).find_map(|folder| {
            let below = folder.names.iter().find_map(|root| path.strip_prefix(root).ok())?;
            (!below.as_os_str().is_empty()).then(|| (folder, below.to_owned()))
        })
    }

    /// A relative path as a file that was written is remembered by.
    fn absolute(&self, path: &Path) -> Option<PathBuf> {
        let root = self.folders.first().and_then(|folder| folder.names.first())?;
        path.is_relative().then(|| root.join(path))
    }

    fn remember(&self, path: PathBuf, real: &Path) -> io::Result<()> {
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let folder = Dir::open_ambient_dir(parent, ambient_authority())?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.insert(path, Single { folder, name: name.into() });
        Ok(())
    }
}

/// A path of which every step goes down and every sign means itself.
fn checked(text: &str) -> Result<PathBuf> {
    if text.is_empty() {
        return Err(Error::new(Code::InvalidArgument, "the path is empty"));
    }
    let lower = text.to_ascii_lowercase();
    if lower.contains("://") || SCHEMES.iter().any(|scheme| lower.starts_with(scheme)) {
        return Err(Error::new(Code::UrlNotAllowed, "this is a URL, and nothing is fetched")
            .hint("name a file in the workspace, or an artifact"));
    }
    let trick = text.len() > PATH_BYTES
        || text.chars().any(is_trick)
        || (!cfg!(windows) && text.contains('\\'))
        || (cfg!(windows) && text.match_indices(':').any(|(at, _)| at != 1))
        || ENCODED.iter().any(|encoded| lower.contains(encoded));
    if trick { Err(denied()) } else { plain(Path::new(text)).ok_or_else(denied) }
}

/// Signs that end a path early, cannot be seen, or look like a dot or a separator and become one when normalised.
fn is_trick(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2024}'..='\u{2026}'
            | '\u{2028}'..='\u{202e}' | '\u{2044}' | '\u{2060}'..='\u{206f}' | '\u{2215}' | '\u{29f8}'
            | '\u{fe52}' | '\u{fe68}' | '\u{feff}' | '\u{ff0e}' | '\u{ff0f}' | '\u{ff3c}')
}

/// The path without `.`; `None` if a step goes up.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => return None,
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    Some(plain)
}

/// The one answer to everything that is not allowed.
fn denied() -> Error {
    Error::new(Code::PathDenied, "this path may not be used").hint(
        "allowed are the workspace, files written in this session, and files that were named explicitly",
    )
}

fn whole(param: &str, file: &File, limit: u64) -> Result<Vec<u8>> {
    let bytes = file::read_all(file, limit).map_err(|error| at(param, unreadable(&error)))?;
    let too_large = || Error::new(Code::PayloadTooLarge, format!("the file has more than {limit} bytes"));
    bytes.ok_or_else(|| at(param, too_large()))
}

fn at(param: &str, error: Error) -> Error {
    Error { param: Some(param.into()), ..error }
}

/// What a file that may be read says when it cannot be; that it leads out, or is none, is a denial.
fn unreadable(error: &io::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            Error::new(Code::FileNotFound, "there is no such file").hint("check its name")
        }
        _ => denied(),
    }
}
