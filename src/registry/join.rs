//! Which files go together: the parts that a model lacks, found beside it by what they are.
//!
//! A file that fits is taken only if it is the only one; a choice is the user's. Nothing is copied: models that share
//! a part point to the same file.
//!
//! # Source
//! `models.md` 1.5 and 3.4; the folders are those of `ComfyUI` and of A1111's and Forge's web UIs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::configs::{is_weights, label};
use super::scan::children;
use crate::error::{Error, Result};
use crate::family::Evidence;
use crate::family::known::{Claim, Confidence, Finding, Measure, Part, Role, View, identify};
use crate::weights::{Inventory, Weights};

/// Folders that other programs keep parts in.
const FOLDERS: &[&str] = &["vae", "VAE", "clip", "text_encoders", "text_encoder"];
/// How many files are looked at.
const MOST: usize = 256;
/// How far above the model such folders are looked for.
const ABOVE: usize = 3;

/// Words in names that say whose part it is, where shapes cannot: the word and the family.
const WORDS: &[(&str, &str)] = &[
    ("xl", "stable-diffusion-xl"),
    ("sdxl", "stable-diffusion-xl"),
    ("sd3", "sd3"),
    ("flux", "flux"),
    ("ae", "flux"),
];

/// A part that a denoiser needs beside itself.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    role: Role,
    /// The family or the variant of the part's rule.
    kind: &'static str,
    /// Channels of text that the denoiser hears, or of latents that it gives, where its shapes say.
    width: Option<usize>,
}

impl Wanted {
    fn spoken(self) -> String {
        let what = if self.role == Role::Vae { "autoencoder" } else { "text encoder" };
        format!("{what} {}", self.kind)
    }

    fn is(self, part: &Part) -> bool {
        part.role == self.role && (part.family == self.kind || part.variant == self.kind)
    }
}

/// A file that holds a part.
struct Candidate {
    path: PathBuf,
    part: Part,
    width: Option<usize>,
}

impl Candidate {
    fn open(path: &Path) -> Result<Vec<Self>> {
        let weights = Weights::open(path)?;
        let mut found = identify(weights.inventory());
        found.lies_in(path);
        let is_part = |part: &Part| matches!(part.role, Role::TextEncoder | Role::Vae);
        let candidate =
            |part: Part| Self { path: path.to_owned(), width: width(weights.inventory(), &part), part };
        Ok(found.parts.into_iter().filter(is_part).map(candidate).collect())
    }

    fn fits(&self, wanted: Wanted) -> bool {
        let agrees = wanted.width.zip(self.width).is_none_or(|(wanted, own)| wanted == own);
        wanted.is(&self.part) && agrees
    }

    /// The families that words in its name speak of.
    fn said(&self) -> Vec<&'static str> {
        let name = label(&self.path).to_lowercase();
        let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).collect();
        WORDS.iter().filter(|(word, _)| words.contains(word)).map(|(_, family)| *family).collect()
    }
}

/// Channels of text that an encoder gives, or of latents that an autoencoder takes.
fn width(inventory: &Inventory, part: &Part) -> Option<usize> {
    let view = View::new(inventory, part.place.as_str());
    let (name, axis) = match part.role {
        Role::Vae => ("decoder.conv_in.weight", 1),
        _ => ("token_embedding.weight|*.token_embedding.weight", 1),
    };
    view.find(name)?.1.shape.get(axis).copied()
}

/// Adds the parts of other files: those that are given, then those that lie beside the model and alone fit.
///
/// What is still missing is said, with the files to choose from. Hands back the files whose parts were taken.
///
/// # Errors
/// `invalid_argument` if a given file has no such part; what is wrong with it.
pub(super) fn join(main: &Path, finding: &mut Finding, given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = take_given(finding, given)?;
    let lacking = lacking(finding, main);
    if lacking.is_empty() {
        return Ok(files);
    }
    // What cannot be opened is no part; `import` says what is wrong with it.
    let neighbours: Vec<Candidate> =
        neighbours(main).iter().filter_map(|path| Candidate::open(path).ok()).flatten().collect();
    let family = finding.family.clone().unwrap_or_default();
    for wanted in lacking {
        let fitting: Vec<&Candidate> = neighbours.iter().filter(|candidate| candidate.fits(wanted)).collect();
        let own: Vec<&Candidate> =
            fitting.iter().copied().filter(|one| one.said().contains(&family.as_str())).collect();
        let silent = fitting.iter().copied().filter(|one| one.said().is_empty()).collect();
        let (chosen, by_name) = if own.is_empty() { (silent, false) } else { (own, true) };
        match chosen.as_slice() {
            [only] => {
                let because = if by_name || fitting.len() > 1 {
                    (Evidence::Name(label(&only.path)), Confidence::Guessed)
                } else {
                    (Evidence::Tensor(fit(wanted, only)), Confidence::Likely)
                };
                take(finding, only, because.0, because.1);
                files.push(only.path.clone());
            }
            [] => finding.missing.push(wanted.spoken()),
            several => {
                let names: Vec<String> = several.iter().map(|candidate| label(&candidate.path)).collect();
                let names = names.join(", ");
                let spoken = wanted.spoken();
                finding.missing.push(format!("{spoken}: {names} would fit; say which with --part FILE"));
            }
        }
    }
    files.dedup();
    Ok(files)
}

/// Adds the parts of files that the user names; hands these files back.
///
/// # Errors
/// `invalid_argument` if a file has no such part; what is wrong with it.
pub(super) fn take_given(finding: &mut Finding, given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in given {
        let parts = Candidate::open(path).map_err(|error| Error { param: Some("part".into()), ..error })?;
        if parts.is_empty() || !matches!(finding.role, Role::Denoiser | Role::Checkpoint) {
            let message = format!("`{}` has no text encoder and no autoencoder for this model", label(path));
            return Err(Error::argument("part", message));
        }
        for candidate in &parts {
            take(finding, candidate, Evidence::User(format!("named {}", label(path))), Confidence::Certain);
        }
        files.push(path.clone());
    }
    Ok(files)
}

/// Why a file fits, in words.
fn fit(wanted: Wanted, candidate: &Candidate) -> String {
    let channels = candidate.width.map_or(String::new(), |width| format!(", {width} channels"));
    format!("the only file beside it that is {}{channels}", wanted.kind)
}

/// Puts a part in its place.
fn take(finding: &mut Finding, candidate: &Candidate, because: Evidence, confidence: Confidence) {
    let new = &candidate.part;
    let alone = finding.profile.is_none_or(|profile| profile.encoders.len() < 2);
    finding.parts.retain(|old| {
        let same = new.role == Role::Vae || alone || (old.family, old.variant) == (new.family, new.variant);
        old.role != new.role || !same
    });
    let kind = format!("{} {}", new.family, new.variant);
    let value = format!("{} from {}", kind.trim(), label(&candidate.path));
    finding.claim(Claim::new("part", value, because, confidence));
    finding.parts.push(new.clone());
}

/// The parts that the model needs and has not.
fn lacking(finding: &Finding, main: &Path) -> Vec<Wanted> {
    let Some(profile) = finding.profile else { return Vec::new() };
    let denoiser = finding.parts.iter().find(|part| part.role == Role::Denoiser);
    // A model of one component's folder is opened by its index, which names files of its own.
    let inventory = Weights::open(main).ok();
    let view = denoiser
        .zip(inventory.as_ref())
        .map(|(part, weights)| View::new(weights.inventory(), part.place.as_str()));
    let hears = || view.as_ref()?.sizes()?.get(Measure::Context).filter(|width| *width > 0);
    let gives = || view.as_ref()?.find("out.2.weight|conv_out.weight")?.1.shape.first().copied();
    let here: Vec<&Part> = finding.parts.iter().filter(|part| part.role == Role::TextEncoder).collect();
    let mut lacking = Vec::new();
    for kind in profile.encoders {
        let alone = profile.encoders.len() == 1;
        let wanted = Wanted { role: Role::TextEncoder, kind, width: hears().filter(|_| alone) };
        if !here.iter().any(|part| wanted.is(part)) && here.len() < profile.encoders.len() {
            lacking.push(wanted);
        }
    }
    if !profile.codec.is_empty() && !finding.parts.iter().any(|part| part.role == Role::Vae) {
        lacking.push(Wanted { role: Role::Vae, kind: profile.codec, width: gives() });
    }
    lacking
}

/// Files that may hold parts: those in the model's own folder, and those in folders for parts beside it or above. What
/// several links point to comes once.
fn neighbours(main: &Path) -> Vec<PathBuf> {
    let Ok(main) = std::path::absolute(main) else { return Vec::new() };
    let Some(folder) = main.parent().filter(|_| main.is_file()) else { return Vec::new() };
    let mut files: Vec<PathBuf> = children(folder);
    for above in folder.ancestors().take(ABOVE + 1) {
        let folders = FOLDERS.iter().map(|name| above.join(name)).filter(|path| path.is_dir());
        let folders: Vec<PathBuf> = folders.collect();
        for child in folders.iter().flat_map(|folder| children(folder)) {
            if child.is_dir() { files.extend(children(&child)) } else { files.push(child) }
        }
        if !folders.is_empty() {
            break;
        }
    }
    files.sort();
    let mut seen: BTreeSet<PathBuf> = main.canonicalize().into_iter().collect();
    let mut is_new = |path: &PathBuf| path.canonicalize().is_ok_and(|real| seen.insert(real));
    files
        .into_iter()
        .filter(|path| path.is_file() && is_weights(path))
        .filter(|path| is_new(path))
        .take(MOST)
        .collect()
}
