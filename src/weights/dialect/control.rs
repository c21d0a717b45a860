//! Control networks: the names that their authors gave what is beside the U-net's way down.
//!
//! # Source
//! The names of published files; checked against what `huggingface/diffusers@v0.42.1
//! src/diffusers/loaders/single_file_utils.py`, `convert_controlnet_checkpoint` makes of them (Apache-2.0).

use super::unet;
use crate::error::{Code, Error, Result};
use crate::weights::inventory::Inventory;
use crate::weights::source::Weights;

/// Where a control network may begin in a file.
const PREFIXES: &[&str] = &["control_model.", ""];
/// A module of the authors' that no other network has.
const MARK: &str = "input_hint_block.0.weight";

/// A control network, in whichever names it comes, seen in those of `ControlNetModel`.
///
/// # Errors
/// `model_unsupported` naming a tensor that means nothing to us.
pub fn control(weights: Weights) -> Result<Weights> {
    let all = weights.inventory();
    let Some(prefix) = PREFIXES.iter().find(|prefix| all.has(&format!("{prefix}{MARK}"))) else {
        return Ok(weights);
    };
    let authors = all.without_prefix(prefix);
    let (mut own, mut shared) =
        (Inventory { metadata: all.metadata.clone(), ..Inventory::default() }, Inventory::default());
    for (name, tensor) in &authors.tensors {
        match rename(name, &authors) {
            Some(new) => own.tensors.insert(new, tensor.clone()),
            None => shared.tensors.insert(name.clone(), tensor.clone()),
        };
    }
    let shared = unet::rename(&shared);
    if let Some(stray) = shared.strays.first() {
        let message = format!(
            "`{}` has a tensor `{prefix}{stray}`, which no control network has that is read here",
            weights.label()
        );
        return Err(Error::new(Code::ModelUnsupported, message));
    }
    own.tensors.extend(shared.inventory.tensors);
    Ok(weights.view(own))
}

/// The new name of what only control networks have.
fn rename(name: &str, authors: &Inventory) -> Option<String> {
    let (module, parameter) = name.rsplit_once('.')?;
    if module == "middle_block_out.0" {
        return Some(format!("controlnet_mid_block.{parameter}"));
    }
    if let Some(number) = module.strip_prefix("zero_convs.").and_then(|rest| rest.strip_suffix(".0")) {
        return Some(format!("controlnet_down_blocks.{number}.{parameter}"));
    }
    // Convolutions stand at even numbers, what makes them crooked between them.
    let number: usize = module.strip_prefix("input_hint_block.")?.parse().ok()?;
    let is_last = !authors.has(&format!("input_hint_block.{}.weight", number + 2));
    let place = match number {
        0 => "conv_in".to_owned(),
        _ if is_last => "conv_out".to_owned(),
        _ => format!("blocks.{}", number / 2 - 1),
    };
    Some(format!("controlnet_cond_embedding.{place}.{parameter}"))
}
