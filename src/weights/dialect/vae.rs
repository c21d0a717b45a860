//! The autoencoder: `down`, `mid`, `up` → `down_blocks`, `mid_block`, `up_blocks`.
//!
//! The authors number the decoder's levels from the picture inwards, diffusers in the order of computing; the
//! attention's maps are convolutions of one pixel there and linear here, which are the same bytes.

use super::{Renamed, flat};
use crate::weights::inventory::Inventory;

/// The inventory below `first_stage_model.` in the names of `AutoencoderKL`.
pub(super) fn rename(ldm: &Inventory) -> Renamed {
    let levels = ldm.blocks("decoder.up");
    let mut renamed = Renamed::default();
    for (name, tensor) in &ldm.tensors {
        match rename_one(name, levels) {
            Some(new) if new.contains(".attentions.") => renamed.insert(new, flat(tensor)),
            Some(new) => renamed.insert(new, tensor.clone()),
            None => renamed.strays.push(name.clone()),
        }
    }
    renamed
}

fn rename_one(name: &str, levels: usize) -> Option<String> {
    let parts: Vec<&str> = name.split('.').collect();
    Some(match parts[..] {
        ["quant_conv" | "post_quant_conv", _] | ["encoder" | "decoder", "conv_in" | "conv_out", _] => {
            name.to_owned()
        }
        [side @ ("encoder" | "decoder"), "norm_out", parameter] => {
            format!("{side}.conv_norm_out.{parameter}")
        }
        [side @ ("encoder" | "decoder"), "mid", block, module, parameter] => {
            let (block, module) = match block {
                "block_1" => ("resnets.0", resnet(module)),
                "block_2" => ("resnets.1", resnet(module)),
                "attn_1" => ("attentions.0", attention(module)?),
                _ => return None,
            };
            format!("{side}.mid_block.{block}.{module}.{parameter}")
        }
        ["encoder", "down", level, ref rest @ ..] => format!("encoder.down_blocks.{level}.{}", within(rest)?),
        ["decoder", "up", level, ref rest @ ..] => {
            let level = levels.checked_sub(level.parse::<usize>().ok()?.checked_add(1)?)?;
            format!("decoder.up_blocks.{level}.{}", within(rest)?)
        }
        _ => return None,
    })
}

/// The part of a name behind its level.
fn within(parts: &[&str]) -> Option<String> {
    match *parts {
        ["block", number, module, parameter] => {
            Some(format!("resnets.{number}.{}.{parameter}", resnet(module)))
        }
        ["downsample", "conv", parameter] => Some(format!("downsamplers.0.conv.{parameter}")),
        ["upsample", "conv", parameter] => Some(format!("upsamplers.0.conv.{parameter}")),
        _ => None,
    }
}

fn resnet(module: &str) -> &str {
    if module == "nin_shortcut" { "conv_shortcut" } else { module }
}

fn attention(module: &str) -> Option<&'static str> {
    match module {
        "norm" => Some("group_norm"),
        "q" => Some("to_q"),
        "k" => Some("to_k"),
        "v" => Some("to_v"),
        "proj_out" => Some("to_out.0"),
        _ => None,
    }
}
