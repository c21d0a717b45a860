//! The text encoder: CLIP is named as we name it but for a prefix; `OpenCLIP` is named by other people.

use super::{Renamed, TextEncoder};
use crate::error::{Code, Error, Result};
use crate::weights::inventory::{Inventory, TensorInfo};

/// The full depth and the width of `OpenCLIP` ViT-H, whose last block Stable Diffusion 2 does not use.
///
/// # Source
/// `mlfoundations/open_clip src/open_clip/model_configs/ViT-H-14.json`, MIT; "penultimate" in
/// `Stability-AI/stablediffusion configs/stable-diffusion/v2-inference.yaml`, MIT.
const VIT_H: (usize, usize) = (24, 1024);

/// The width of `OpenCLIP` bigG, the second encoder of Stable Diffusion XL, which reads its states before the last block
/// but the whole prompt after it.
const BIG_G: usize = 1280;

/// Where the blocks of `OpenCLIP` stand, what names of transformers begin with, and its table of words.
const BLOCKS: &str = "transformer.resblocks";
const INNER: &str = "text_model.";
const WORDS: &str = "embeddings.token_embedding.weight";
/// The table of words in our names.
pub(super) const TOKENS: &str = "text_model.embeddings.token_embedding.weight";

/// Modules outside the blocks: ours, theirs.
const OUTSIDE: &[(&str, &str)] = &[
    ("positional_embedding", "text_model.embeddings.position_embedding.weight"),
    ("token_embedding.weight", "text_model.embeddings.token_embedding.weight"),
    ("ln_final.weight", "text_model.final_layer_norm.weight"),
    ("ln_final.bias", "text_model.final_layer_norm.bias"),
];

/// Modules of a block.
const BLOCK: &[(&str, &str)] = &[
    ("ln_1", "layer_norm1"),
    ("ln_2", "layer_norm2"),
    ("mlp.c_fc", "mlp.fc1"),
    ("mlp.c_proj", "mlp.fc2"),
    ("attn.out_proj", "self_attn.out_proj"),
];

/// The projection into the space shared with pictures: heard by Stable Diffusion XL alone.
const PROJECTION: &[&str] = &["text_projection", "text_projection.weight"];

/// What the encoder does not need for drawing: a causal mask, and a list of positions that counts from nought.
const UNUSED: &[&str] = &["logit_scale", "attn_mask", "text_model.embeddings.position_ids"];

/// An inventory in the names of `CLIPTextModel`; `None` if there is no text encoder.
///
/// Below `cond_stage_model.` both kinds have one more prefix; alone in a file they often have none. With `keep_all`
/// nothing is left out that Stable Diffusion 2 does not use.
pub(super) fn rename(
    theirs: &Inventory,
    label: &str,
    keep_all: bool,
) -> Result<Option<(TextEncoder, Renamed)>> {
    for prefix in ["model.", ""] {
        if theirs.has(&format!("{prefix}token_embedding.weight"))
            && theirs.has_prefix(&format!("{prefix}{BLOCKS}."))
        {
            let renamed = open_clip(&theirs.without_prefix(prefix), label, keep_all)?;
            return Ok(Some((TextEncoder::OpenClip, renamed)));
        }
    }
    // Some merges lost the inner prefix.
    let spelt = |(outer, inner): &(&str, &str)| theirs.has(&format!("{outer}{inner}{WORDS}"));
    let spellings = [("transformer.", INNER), ("transformer.", ""), ("", INNER), ("", "")];
    let Some((outer, inner)) = spellings.into_iter().find(spelt) else { return Ok(None) };
    let clip = theirs.without_prefix(outer);
    let width = clip.shape(&format!("{inner}{WORDS}")).and_then(|shape| shape.get(1).copied());
    let is_open = width == Some(VIT_H.1);
    // As transformers names it, the whole of ViT-H has the block that Stable Diffusion 2 leaves out.
    let last = format!("{INNER}encoder.layers.{}.", VIT_H.0 - 1);
    let is_whole = is_open && clip.blocks(&format!("{inner}encoder.layers")) == VIT_H.0;
    let mut renamed = Renamed::default();
    for (name, tensor) in clip.tensors {
        let new = if inner.is_empty() { format!("{INNER}{name}") } else { name.clone() };
        if UNUSED.contains(&name.as_str()) || UNUSED.contains(&new.as_str()) {
            continue;
        }
        if PROJECTION.contains(&name.as_str()) {
            if keeps_projection(width) {
                renamed.insert(name, tensor);
            }
            continue;
        }
        if !new.starts_with(INNER) {
            renamed.strays.push(format!("{outer}{name}"));
        } else if !(is_whole && new.starts_with(&last)) {
            renamed.insert(new, tensor);
        }
    }
    let kind = if is_open { TextEncoder::OpenClip } else { TextEncoder::Clip };
    Ok(Some((kind, renamed)))
}

/// Whether a network of this width is one whose projection is heard.
pub(super) fn keeps_projection(width: Option<usize>) -> bool {
    width == Some(BIG_G)
}

fn open_clip(theirs: &Inventory, label: &str, keep_all: bool) -> Result<Renamed> {
    let depth = theirs.blocks(BLOCKS);
    let width = theirs.shape("token_embedding.weight").and_then(|shape| shape.get(1).copied());
    let already_cut = width == Some(VIT_H.1) && depth + 1 == VIT_H.0;
    let keeps_all = keep_all || already_cut || keeps_projection(width);
    let kept = if keeps_all { depth } else { depth.saturating_sub(1) };
    let mut renamed = Renamed::default();
    for (name, tensor) in &theirs.tensors {
        if UNUSED.contains(&name.as_str()) {
            continue;
        }
        if PROJECTION.contains(&name.as_str()) {
            if keep_all || keeps_projection(width) {
                renamed.insert(name.clone(), tensor.clone());
            }
            continue;
        }
        if let Some((_, new)) = OUTSIDE.iter().find(|(old, _)| old == name) {
            renamed.insert((*new).to_owned(), tensor.clone());
            continue;
        }
        match block(name, BLOCKS) {
            Some((number, _)) if number >= kept && number < depth => {}
            Some((number, within)) => open_clip_block(&mut renamed, number, within, tensor, label)?,
            None => renamed.strays.push(format!("model.{name}")),
        }
    }
    Ok(renamed)
}

/// The number of a block and the rest of the name.
fn block<'a>(name: &'a str, blocks: &str) -> Option<(usize, &'a str)> {
    let (number, within) = name.strip_prefix(blocks)?.strip_prefix('.')?.split_once('.')?;
    Some((number.parse().ok()?, within))
}

fn open_clip_block(
    renamed: &mut Renamed,
    number: usize,
    within: &str,
    tensor: &TensorInfo,
    label: &str,
) -> Result<()> {
    let layer = format!("text_model.encoder.layers.{number}");
    if let Some(parameter) = within.strip_prefix("attn.in_proj_") {
        for (third, module) in ["q_proj", "k_proj", "v_proj"].into_iter().enumerate() {
            let rows = tensor.rows(third, 3).ok_or_else(|| {
                let what = format!("of shape {:?} cannot be cut into query, key and value", tensor.shape);
                Error::new(Code::ModelIncompatible, format!("`{label}`: tensor `{within}` {what}"))
            })?;
            renamed.insert(format!("{layer}.self_attn.{module}.{parameter}"), rows);
        }
        return Ok(());
    }
    let new = within.rsplit_once('.').and_then(|(module, parameter)| {
        let (_, new) = BLOCK.iter().find(|(old, _)| *old == module)?;
        Some(format!("{layer}.{new}.{parameter}"))
    });
    match new {
        Some(name) => renamed.insert(name, tensor.clone()),
        None => renamed.strays.push(format!("model.transformer.resblocks.{number}.{within}")),
    }
    Ok(())
}
