//! Looks through folders that other programs keep models in, and says what it recognises.

use std::fs;
use std::path::{Path, PathBuf};

use super::INDEX;
use super::configs::{is_weights, snapshot};
use super::survey::{Given, Survey, survey};
use crate::error::Error;

/// How deep folders are followed, and how many things are looked at.
const DEPTH: usize = 8;
const MOST: usize = 50_000;
/// Folders that hold many files and no models.
const SKIPPED: &[&str] = &["venv", "site-packages", "node_modules", "__pycache__"];

/// Whose folder it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One model.
    Model,
    /// `models/checkpoints`, `models/diffusion_models` …
    ComfyUi,
    /// `models/Stable-diffusion`.
    WebUi,
    /// `models--org--name/snapshots`.
    HubCache,
    /// Anything else.
    Folder,
}

impl Layout {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "a model",
            Self::ComfyUi => "a ComfyUI folder",
            Self::WebUi => "an A1111 or Forge folder",
            Self::HubCache => "a hub cache",
            Self::Folder => "a folder",
        }
    }
}

/// Whose folder this is, by the names in it.
pub fn layout(path: &Path) -> Layout {
    let has = |name: &str| path.join(name).is_dir();
    if path.is_file() || path.join(INDEX).is_file() {
        Layout::Model
    } else if has("snapshots") {
        if snapshot(path).is_none_or(|folder| is_one(&folder)) { Layout::Model } else { Layout::HubCache }
    } else if has("models/checkpoints")
        || has("models/diffusion_models")
        || has("models/unet")
        || has("checkpoints")
    {
        Layout::ComfyUi
    } else if has("models/Stable-diffusion") || has("Stable-diffusion") {
        Layout::WebUi
    } else if children(path).iter().any(|child| is_hub(child))
        || children(&path.join("hub")).iter().any(|child| is_hub(child))
    {
        Layout::HubCache
    } else if is_one(path) {
        // Last: the web UIs keep settings of their own under this name.
        Layout::Model
    } else {
        Layout::Folder
    }
}

/// Whether a folder is one model or one part, and no place for several.
fn is_one(folder: &Path) -> bool {
    [INDEX, "config.json"].iter().any(|name| folder.join(name).is_file())
}

/// Where in a folder of this layout models lie.
fn roots(path: &Path, layout: Layout) -> Vec<PathBuf> {
    let below: &[&str] = match layout {
        Layout::ComfyUi => &["models"],
        Layout::WebUi => &["models", "embeddings", "extensions"],
        Layout::HubCache if path.join("snapshots").is_dir() => return snapshot(path).into_iter().collect(),
        Layout::HubCache if !children(path).iter().any(|child| is_hub(child)) => &["hub"],
        _ => &[],
    };
    let there: Vec<PathBuf> = below.iter().map(|name| path.join(name)).filter(|path| path.is_dir()).collect();
    if there.is_empty() { vec![path.to_owned()] } else { there }
}

/// One thing that was found.
#[derive(Debug)]
pub struct Sighting {
    /// Where.
    pub path: PathBuf,
    /// A name for it, from the folder or the file.
    pub name: String,
    /// What it is, or why that cannot be said.
    pub found: Result<Survey, Error>,
}

/// Everything below a folder that looks like a model or a part of one, in order of path; and whether all of the folder
/// was looked at.
pub fn scan(path: &Path, layout: Layout) -> (Vec<Sighting>, bool) {
    let mut sightings = Vec::new();
    let mut left = MOST;
    for root in roots(path, layout) {
        walk(&root, 0, &mut left, &mut sightings);
    }
    (sightings, left > 0)
}

fn walk(folder: &Path, depth: usize, left: &mut usize, sightings: &mut Vec<Sighting>) {
    if depth > DEPTH {
        return;
    }
    for path in children(folder) {
        let Some(rest) = left.checked_sub(1) else { return };
        *left = rest;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let skipped = name.starts_with('.') || SKIPPED.contains(&name.as_ref());
        if path.is_dir() && skipped {
            continue;
        }
        if path.is_dir() && is_hub(&path) {
            match snapshot(&path) {
                // A repository of single files, each of which is a model or a part.
                Some(folder) if !is_one(&folder) => walk(&folder, depth + 1, left, sightings),
                _ if path.join("snapshots").is_dir() => sightings.push(sight(path)),
                _ => {}
            }
        } else if path.join(INDEX).is_file() {
            sightings.push(sight(path));
        } else if path.is_dir() {
            // A linked folder could lead back here.
            if path.symlink_metadata().is_ok_and(|data| data.is_dir()) {
                walk(&path, depth + 1, left, sightings);
            }
        } else if is_weights(&path) {
            sightings.push(sight(path));
        }
    }
}

fn sight(path: PathBuf) -> Sighting {
    let found = survey(&path, &Given::default());
    let stem = if path.is_dir() { path.file_name() } else { path.file_stem() };
    let stem = stem.unwrap_or_default().to_string_lossy();
    let stem = stem.strip_prefix("models--").map_or(stem.to_string(), |rest| rest.replace("--", "-"));
    let fits = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') { c } else { '-' };
    let name: String = stem.trim_start_matches('.').chars().map(fits).take(100).collect();
    Sighting { path, name, found }
}

fn is_hub(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("models--"))
}

/// What is in a folder, sorted; nothing if it cannot be read.
pub(super) fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Bytes of a file, or of all files below a folder; links count as what they point to, linked folders as nothing.
pub(super) fn bytes(path: &Path) -> u64 {
    fn below(path: &Path, depth: usize) -> u64 {
        if path.is_dir() {
            let real = path.symlink_metadata().is_ok_and(|data| data.is_dir());
            if depth > DEPTH || !real {
                return 0;
            }
            return children(path).iter().map(|child| below(child, depth + 1)).sum();
        }
        fs::metadata(path).map_or(0, |data| data.len())
    }
    // Snapshots of the hub's cache are links into its blobs.
    let blobs = path.join("blobs");
    below(if blobs.is_dir() { &blobs } else { path }, 0)
}
