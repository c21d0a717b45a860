//! Notes that programs and sites leave beside a file of weights: weaker than its tensors, often all there is.
//!
//! # Source
//! Names of keys as these programs write them, no code: A1111's web UI (`*.json`), the answers of Civitai's public
//! interface as its helpers store them (`*.civitai.info`), `StabilityMatrix` (`*.cm-info.json`), `ComfyUI`'s manager of
//! adapters (`*.metadata.json`).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::configs::{config, label};
use crate::family::Evidence;
use crate::family::known::{Claim, Confidence, Finding};
use crate::weights::limits;

/// Ends of names of such notes; `.json` last, since it may be anything.
pub(super) const NOTES: &[&str] = &["civitai.info", "metadata.json", "cm-info.json", "json"];
/// Where the base model stands in them.
const BASE: &[&str] = &["baseModel", "base_model", "BaseModel", "sd version"];
/// Where the words stand that call up what was trained.
const TRIGGERS: &[&str] = &["trainedWords", "TrainedWords", "activation text", "/civitai/trainedWords"];

/// How names of base models begin, without spaces and signs; the first that fits counts. Family, variant, prediction.
#[rustfmt::skip]
static BASES: &[(&str, &str, &str, &str)] = &[
    ("sdxl", "stable-diffusion-xl", "", ""),
    ("ponyv7", "auraflow", "", ""),
    ("pony", "stable-diffusion-xl", "", ""),
    ("illustrious", "stable-diffusion-xl", "", ""),
    ("noobai", "stable-diffusion-xl", "", ""),
    ("sd1", "stable-diffusion", "1", ""),
    ("sd20768", "stable-diffusion", "2", "v"),
    ("sd21768", "stable-diffusion", "2", "v"),
    ("sd2", "stable-diffusion", "2", ""),
    ("sd3", "sd3", "", ""),
    ("flux1", "flux", "", ""),
    ("flux2", "flux2", "", ""),
    ("flux", "flux", "", ""),
    ("chroma", "chroma", "", ""),
    ("qwen", "qwen-image", "", ""),
    ("zimage", "z-image", "", ""),
    ("wan", "wan", "", ""),
    ("ltxv2", "ltx2", "", ""),
    ("ltxv", "ltx", "", ""),
    ("hunyuanvideo", "hunyuan-video", "", ""),
    ("hunyuan1", "hunyuan-dit", "", ""),
    ("hidream", "hidream", "", ""),
    ("lumina", "lumina2", "", ""),
    ("auraflow", "auraflow", "", ""),
    ("pixart", "pixart", "", ""),
    ("kolors", "kolors", "", ""),
    ("svd", "stable-video-diffusion", "", ""),
    ("mochi", "mochi", "", ""),
    ("cogvideox", "cogvideox", "", ""),
    ("anima", "anima", "", ""),
];

/// Adds what the notes beside a file say; a note that cannot be read is mentioned and believed nothing.
pub(super) fn read_beside(finding: &mut Finding, file: &Path) {
    read_yaml(finding, file);
    for end in NOTES {
        let path = file.with_extension(end);
        match config(&path) {
            Ok(Some(note)) => read_note(finding, &note, &label(&path)),
            Ok(None) => {}
            Err(error) => finding.notes.push(format!("`{}` beside it is not read: {error}", label(&path))),
        }
    }
}

fn read_note(finding: &mut Finding, note: &Value, name: &str) {
    let at = |key: &str| if key.starts_with('/') { note.pointer(key) } else { note.get(key) };
    for (key, base) in BASE.iter().filter_map(|key| Some((key, at(key)?.as_str()?))) {
        let plain: String = base.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
        let Some((_, family, variant, prediction)) =
            BASES.iter().find(|(begins, ..)| plain.starts_with(begins))
        else {
            continue;
        };
        let because = || Evidence::Metadata(format!("{name} {key} {}", shown(base)));
        for (fact, value) in [("family", family), ("variant", variant), ("prediction", prediction)] {
            finding.claim(Claim::new(fact, *value, because(), Confidence::Likely));
        }
    }
    for (key, words) in TRIGGERS.iter().filter_map(|key| Some((key, at(key)?))) {
        let words = match words {
            Value::String(words) => shown(words),
            Value::Array(words) => {
                shown(&words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "))
            }
            _ => continue,
        };
        let because = Evidence::Metadata(format!("{name} {key}"));
        finding.claim(Claim::new("trigger_words", words, because, Confidence::Likely));
    }
}

/// A line of a note for people: no more than fits, no signs that steer a terminal.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// `name.yaml` beside `name.safetensors`, as Stable Diffusion 2 was published.
fn read_yaml(finding: &mut Finding, file: &Path) {
    let yaml: PathBuf = file.with_extension("yaml");
    let small =
        fs::metadata(&yaml).is_ok_and(|file| file.is_file() && file.len() <= limits::CONFIG_BYTES as u64);
    let Some(text) = small.then(|| fs::read(&yaml).ok()).flatten() else { return };
    let text = String::from_utf8_lossy(&text);
    if text.lines().any(|line| line.trim().replace(['"', '\''], "") == "parameterization: v") {
        let because = Evidence::Config(format!("{} parameterization v", label(&yaml)));
        finding.claim(Claim::new("prediction", "v", because, Confidence::Certain));
    }
}
