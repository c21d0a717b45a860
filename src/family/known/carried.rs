//! The config that some makers put into the header of a file of weights: LTX's, with the sizes of all its parts.
//!
//! It says what shapes cannot: which release it is, by how much its autoencoder shrinks sides and frames, the steps that a
//! distilled one was taught. What it says of shapes is compared with them.
//!
//! # Source
//! `models.md` 2.3 and 3.4; keys of the published files as `Lightricks/LTX-Video ltx_video/models` reads them,
//! Apache-2.0.

use serde_json::Value;

use super::super::contract::Evidence;
use super::finding::{Claim, Confidence, Finding};
use super::rule::{Role, View};
use crate::weights::{Inventory, limits, read_json};

/// Where such a config stands in the header.
const CONFIG: &str = "config";
/// Where the release stands beside it.
const VERSION: &str = "model_version";

/// A class of one of its parts: the part, the class, the family, and the variants by count of blocks.
type Class = (&'static str, &'static str, &'static str, &'static [(u64, &'static str)]);

/// Those that are known.
#[rustfmt::skip]
static CLASSES: &[Class] = &[
    ("transformer", "Transformer3DModel", "ltx", &[(28, "2B"), (48, "13B")]),
    ("transformer", "AVTransformer3DModel", "ltx2", &[]),
    ("vae", "CausalVideoAutoencoder", "ltx-vae", &[]),
];

/// Adds what a config in the header says, if there is one of a kind that we know.
pub(super) fn read_carried(finding: &mut Finding, inventory: &Inventory) {
    let Some(text) = inventory.metadata.get(CONFIG) else { return };
    let config = match read_json(text.as_bytes(), limits::CONFIG_BYTES, "metadata config") {
        Ok(config) => config,
        Err(error) => {
            finding.notes.push(format!("the config in its header is not read: {error}"));
            return;
        }
    };
    let is_known = |(part, class, ..): &&Class| config[*part]["_class_name"] == **class;
    let known: Vec<_> = CLASSES.iter().filter(is_known).collect();
    if known.is_empty() {
        return;
    }
    let wanted = if finding.role == Role::Vae { "vae" } else { "transformer" };
    for (part, class, family, variants) in known.into_iter().filter(|(part, ..)| *part == wanted) {
        let because = Evidence::Metadata(format!("{CONFIG} {part} {class}"));
        finding.claim(Claim::new("family", *family, because, Confidence::Certain));
        let layers = config[*part]["num_layers"].as_u64();
        if let Some((_, variant)) = variants.iter().find(|(count, _)| Some(*count) == layers) {
            let because = Evidence::Metadata(format!("{CONFIG} {part} num_layers {}", layers.unwrap_or(0)));
            finding.claim(Claim::new("variant", *variant, because, Confidence::Certain));
        }
    }
    if let Some(version) = inventory.metadata.get(VERSION) {
        let shown: String = version.chars().filter(|c| !c.is_control()).take(40).collect();
        let because = Evidence::Metadata(VERSION.into());
        finding.claim(Claim::new("version", shown, because, Confidence::Certain));
    }
    shrinks(finding, &config["vae"]);
    taught(finding, &config["allowed_inference_steps"]);
    compare(finding, inventory, &config["transformer"]);
}

/// By how much the autoencoder shrinks: patches, then one halving a block that compresses.
fn shrinks(finding: &mut Finding, vae: &Value) {
    let blocks = ["encoder_blocks", "blocks", "decoder_blocks"].iter().find_map(|key| vae[*key].as_array());
    let (Some(blocks), Some(patch)) = (blocks, vae["patch_size"].as_u64()) else { return };
    let halvings = |kinds: &[&str]| {
        let name = |block: &Value| block.get(0).and_then(Value::as_str).or(block.as_str()).map(str::to_owned);
        let names = blocks.iter().filter_map(name);
        names.filter(|name| kinds.iter().any(|kind| name.starts_with(kind))).count()
    };
    let (sides, frames) =
        (halvings(&["compress_all", "compress_space"]), halvings(&["compress_all", "compress_time"]));
    if sides > 8 || frames > 8 || !(1..=64).contains(&patch) {
        return;
    }
    let because = |rule: &str| Evidence::Metadata(format!("{CONFIG} vae patch_size {patch}, {rule}"));
    for (fact, value, rule) in [
        ("sides", patch << sides, format!("{sides} blocks that halve sides")),
        ("frames", 1 << frames, format!("{frames} blocks that halve time")),
    ] {
        finding.claim(Claim::new(fact, value.to_string(), because(&rule), Confidence::Certain));
    }
}

/// The levels that a distilled network was taught, and no others.
fn taught(finding: &mut Finding, steps: &Value) {
    let Some(steps) = steps.as_array().filter(|steps| (1..=500).contains(&steps.len())) else { return };
    let because = || Evidence::Metadata(format!("{CONFIG} allowed_inference_steps"));
    finding.claim(Claim::new("distillation", "distilled", because(), Confidence::Certain));
    finding.claim(Claim::new("steps", steps.len().to_string(), because(), Confidence::Certain));
}

/// What the config says of shapes, against the shapes.
fn compare(finding: &mut Finding, inventory: &Inventory, config: &Value) {
    if !matches!(finding.role, Role::Denoiser | Role::Checkpoint) {
        return;
    }
    let Some(place) = finding.parts.first().map(|part| part.place.clone()) else { return };
    let view = View::new(inventory, place);
    let number = |key: &str| config[key].as_u64().and_then(|number| usize::try_from(number).ok());
    let size = |name: &str, axis: usize| view.find(name)?.1.shape.get(axis).copied();
    let width = number("num_attention_heads").zip(number("attention_head_dim"));
    for (what, said, found) in [
        ("blocks", number("num_layers"), Some(view.blocks("transformer_blocks"))),
        ("channels in", number("in_channels"), size("patchify_proj.weight", 1)),
        (
            "the width",
            width.and_then(|(heads, head)| heads.checked_mul(head)),
            size("patchify_proj.weight", 0),
        ),
        ("channels of text", number("caption_channels"), size("caption_projection.linear_1.weight", 1)),
    ] {
        if let (Some(said), Some(found)) = (said, found.filter(|found| *found > 0))
            && said != found
        {
            finding.conflicts.push(format!("{what}: metadata {CONFIG} says {said}, tensors say {found}"));
        }
    }
}
