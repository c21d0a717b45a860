//! What headers' notes and files' names say: weaker than shapes, often all there is.
//!
//! # Source
//! `models.md` 3.2 and 3.4, *metadata worth trusting*.

use super::super::contract::Evidence;
use super::carried::read_carried;
use super::finding::{Claim, Confidence, Finding};
use crate::weights::Inventory;

/// A note in a header: its key, how its value begins, the fact and its value.
type Note = (&'static str, &'static str, &'static str, &'static str);

/// Notes that are trusted.
#[rustfmt::skip]
static NOTES: &[Note] = &[
    ("modelspec.architecture", "stable-diffusion-v1", "family", "stable-diffusion"),
    ("modelspec.architecture", "stable-diffusion-v2", "family", "stable-diffusion"),
    ("modelspec.architecture", "stable-diffusion-xl", "family", "stable-diffusion-xl"),
    ("modelspec.architecture", "stable-diffusion-3", "family", "sd3"),
    ("modelspec.architecture", "flux-1", "family", "flux"),
    ("modelspec.architecture", "Flux", "family", "flux"),
    ("modelspec.architecture", "stable-diffusion-v1", "variant", "1"),
    ("modelspec.architecture", "stable-diffusion-v2", "variant", "2"),
    ("modelspec.architecture", "stable-diffusion-v2-768-v", "prediction", "v"),
    ("modelspec.architecture", "stable-diffusion-v2-512", "prediction", "epsilon"),
    ("modelspec.prediction_type", "epsilon", "prediction", "epsilon"),
    ("modelspec.prediction_type", "v", "prediction", "v"),
    ("ss_base_model_version", "sdxl", "family", "stable-diffusion-xl"),
    ("ss_base_model_version", "sd_v1", "family", "stable-diffusion"),
    ("ss_base_model_version", "sd_v2", "family", "stable-diffusion"),
    ("ss_base_model_version", "sd3", "family", "sd3"),
    ("ss_base_model_version", "flux", "family", "flux"),
    ("ss_v2", "true", "variant", "2"),
    ("ss_network_module", "networks.lora_flux", "family", "flux"),
    ("ss_network_module", "networks.lora_sd3", "family", "sd3"),
    ("ss_network_module", "networks.lora_lumina", "family", "lumina2"),
    ("ss_network_module", "networks.lora_wan", "family", "wan"),
    ("general.architecture", "sd1", "family", "stable-diffusion"),
    ("general.architecture", "sdxl", "family", "stable-diffusion-xl"),
    ("general.architecture", "sd3", "family", "sd3"),
    ("general.architecture", "aura", "family", "auraflow"),
    ("general.architecture", "hidream", "family", "hidream"),
    ("general.architecture", "cosmos", "family", "cosmos-predict2"),
    ("general.architecture", "hyvid", "family", "hunyuan-video"),
    ("general.architecture", "wan", "family", "wan"),
    ("general.architecture", "qwen_image", "family", "qwen-image"),
];

/// A word in a name: the family it means something in, with `/` and how the variant begins where only some of the
/// family mean it so, the fact and its value.
#[rustfmt::skip]
static WORDS: &[(&str, &str, &str, &str)] = &[
    ("lightning", "stable-diffusion-xl", "distillation", "Lightning"),
    ("turbo", "stable-diffusion-xl", "distillation", "Turbo"),
    ("turbo", "sd3", "distillation", "Turbo"),
    ("turbo", "z-image", "kind", "Turbo"),
    ("turbo", "krea2", "kind", "Turbo"),
    ("hyper", "stable-diffusion", "distillation", "Hyper"),
    ("hyper", "stable-diffusion-xl", "distillation", "Hyper"),
    ("lcm", "stable-diffusion", "distillation", "LCM"),
    ("lcm", "stable-diffusion-xl", "distillation", "LCM"),
    ("dmd2", "stable-diffusion-xl", "distillation", "DMD2"),
    ("vpred", "stable-diffusion-xl", "prediction", "v"),
    ("vpred", "stable-diffusion", "prediction", "v"),
    ("768", "stable-diffusion/2", "prediction", "v"),
    ("768v", "stable-diffusion/2", "prediction", "v"),
    ("512", "stable-diffusion/2", "prediction", "epsilon"),
    ("base", "stable-diffusion/2", "prediction", "epsilon"),
    ("kontext", "flux", "kind", "Kontext"),
    ("krea", "flux", "kind", "Krea"),
    ("canny", "flux", "kind", "Canny"),
    ("depth", "flux", "kind", "Depth"),
    ("flash", "chroma", "kind", "Flash"),
    ("hd", "chroma", "kind", "HD"),
    ("edit", "qwen-image", "kind", "Edit"),
    ("2509", "qwen-image", "kind", "Edit 2509"),
    ("2512", "qwen-image", "kind", "2512"),
    ("edit", "longcat", "kind", "Edit"),
    ("base", "flux2", "kind", "base"),
    ("e1", "hidream", "kind", "E1"),
    ("high", "wan", "kind", "the expert of high noise"),
    ("low", "wan", "kind", "the expert of low noise"),
    ("pony", "stable-diffusion-xl", "clip_skip", "1"),
];

/// Adds what the notes in a header say.
pub(super) fn read_notes(finding: &mut Finding, inventory: &Inventory) {
    for (key, begins, fact, value) in NOTES {
        let Some(note) = inventory.metadata.get(*key) else { continue };
        if note.to_lowercase().starts_with(&begins.to_lowercase()) {
            let shown: String = note.chars().take(60).collect();
            finding.claim(Claim::new(
                fact,
                *value,
                Evidence::Metadata(format!("{key} {shown}")),
                Confidence::Likely,
            ));
        }
    }
    read_carried(finding, inventory);
    if let Some(size) = inventory.metadata.get("modelspec.resolution").filter(|text| is_size(text)) {
        let because = Evidence::Metadata("modelspec.resolution".into());
        finding.claim(Claim::new("size", size.as_str(), because, Confidence::Likely));
    }
    for (key, fact) in [
        ("modelspec.license", "licence"),
        ("modelspec.title", "title"),
        ("modelspec.trigger_phrase", "trigger_words"),
    ] {
        if let Some(note) = inventory.metadata.get(key) {
            let shown: String = note.chars().take(120).collect();
            finding.claim(Claim::new(fact, shown, Evidence::Metadata(key.into()), Confidence::Likely));
        }
    }
}

/// Whether a note is a width and a height that a picture can have.
fn is_size(text: &str) -> bool {
    let side = |side: &str| side.parse::<usize>().is_ok_and(|side| (1..=8192).contains(&side));
    text.split_once('x').is_some_and(|(width, height)| side(width) && side(height))
}

/// Adds what words in a file's name say; a name never tells the family.
pub fn read_name(finding: &mut Finding, name: &str) {
    let Some(family) = finding.says("family").map(|claim| claim.value.clone()) else { return };
    let variant = finding.says("variant").map(|claim| claim.value.clone()).unwrap_or_default();
    let lower = name.to_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    for (word, of, fact, value) in WORDS {
        let there = words.contains(word) || (*word == "vpred" && lower.contains("v-pred"));
        let (whose, which) = of.split_once('/').unwrap_or((of, ""));
        if there && whose == family && variant.starts_with(which) {
            finding.claim(Claim::new(fact, *value, Evidence::Name(name.into()), Confidence::Guessed));
        }
    }
}
