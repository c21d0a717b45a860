//! Where pictures go: a file, a folder, or standard output.

use std::io::{IsTerminal, Write, stdout};
use std::path::{Path, PathBuf};

use super::lost_output;
use crate::artifact::{self, Existing};
use crate::error::{Code, Error, Result};
use crate::studio::Plan;

/// Where pictures go.
pub(super) enum Destination {
    /// This file; several pictures get a number before the ending.
    File { path: PathBuf, count: usize },
    /// A folder, with names made of prompt and seed that overwrite nothing.
    Folder(PathBuf),
    /// Standard output.
    Stdout,
}

impl Destination {
    /// Refuses what could not be written, before any work.
    pub(super) fn read(output: Option<&Path>, count: usize) -> Result<Self> {
        let Some(path) = output else { return Ok(Self::Folder(PathBuf::from("."))) };
        if path.as_os_str() == "-" {
            if count != 1 {
                return Err(Error::argument("output", "only one picture fits standard output"));
            }
            if stdout().is_terminal() {
                return Err(
                    Error::argument("output", "a terminal cannot show a PNG").hint("redirect the output")
                );
            }
            return Ok(Self::Stdout);
        }
        if path.is_dir() {
            return Ok(Self::Folder(path.to_owned()));
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !parent.is_dir() {
            let message = format!("there is no folder `{}` to write to", parent.display());
            return Err(Error { param: Some("output".into()), ..Error::new(Code::FileNotFound, message) });
        }
        if !path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("png")) {
            let message =
                format!("`{}` does not end in .png, the only format written so far", path.display());
            return Err(Error::argument("output", message));
        }
        Ok(Self::File { path: path.to_owned(), count })
    }

    /// Writes one picture whole or not at all, and says where.
    pub(super) fn write(&self, index: usize, plan: &Plan, bytes: &[u8]) -> Result<PathBuf> {
        match self {
            Self::Stdout => {
                stdout().write_all(bytes).map_err(lost_output)?;
                Ok(PathBuf::from("-"))
            }
            Self::File { path, count } => {
                let path = if *count == 1 { path.clone() } else { numbered(path, index + 1) };
                artifact::write(&path, bytes, Existing::Replace)?;
                Ok(path)
            }
            Self::Folder(folder) => write_new(folder, plan, bytes),
        }
    }
}

/// `fish.png` → `fish-2.png`.
fn numbered(path: &Path, number: usize) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{number}.png"))
}

/// The words of a prompt as the beginning of a name.
pub(super) fn stem(plan: &Plan) -> String {
    let letters = plan.prompt.to_lowercase();
    let words = letters.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let stem: String = words.collect::<Vec<_>>().join("-").chars().take(48).collect();
    if stem.is_empty() { "picture".into() } else { stem }
}

/// Writes under a name made of prompt and seed, with a number where that name is taken.
fn write_new(folder: &Path, plan: &Plan, bytes: &[u8]) -> Result<PathBuf> {
    let stem = stem(plan);
    for number in 1..10_000 {
        let name = match number {
            1 => format!("{stem}-{}.png", plan.seed),
            _ => format!("{stem}-{}-{number}.png", plan.seed),
        };
        let path = folder.join(name);
        match artifact::write(&path, bytes, Existing::Keep) {
            Ok(()) => return Ok(path.strip_prefix(".").map(Path::to_owned).unwrap_or(path)),
            Err(error) if error.code == Code::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::new(Code::AlreadyExists, format!("10,000 pictures are called `{stem}`"))
        .hint("name one with -o"))
}
