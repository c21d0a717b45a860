//! The denoiser: `input_blocks`, `middle_block`, `output_blocks` → `down_blocks`, `mid_block`, `up_blocks`.
//!
//! The authors number every step of the way; diffusers numbers levels, and within them residual blocks and attentions.
//! A convolution that halves or doubles the size ends a level, so one walk along the names finds all numbers, whatever
//! the depth and wherever the attentions sit.

use std::collections::{BTreeMap, HashMap};

use super::Renamed;
use crate::weights::inventory::Inventory;

/// Modules outside the blocks.
const OUTSIDE: &[(&str, &str)] = &[
    ("input_blocks.0.0", "conv_in"),
    ("time_embed.0", "time_embedding.linear_1"),
    ("time_embed.2", "time_embedding.linear_2"),
    ("out.0", "conv_norm_out"),
    ("out.2", "conv_out"),
    ("label_emb.0.0", "add_embedding.linear_1"),
    ("label_emb.0.2", "add_embedding.linear_2"),
    ("label_emb", "class_embedding"),
];

/// Modules of a residual block.
const RESNET: &[(&str, &str)] = &[
    ("in_layers.0", "norm1"),
    ("in_layers.2", "conv1"),
    ("emb_layers.1", "time_emb_proj"),
    ("out_layers.0", "norm2"),
    ("out_layers.3", "conv2"),
    ("skip_connection", "conv_shortcut"),
];

/// What one step of the way is.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    Resnet,
    Attention,
    Down,
    Up,
}

impl Step {
    fn read(ldm: &Inventory, path: &str) -> Option<Self> {
        let has = |module: &str| ldm.has(&format!("{path}.{module}.weight"));
        match () {
            () if has("in_layers.0") => Some(Self::Resnet),
            () if has("proj_in") => Some(Self::Attention),
            () if has("op") => Some(Self::Down),
            () if has("conv") => Some(Self::Up),
            () => None,
        }
    }

    /// What diffusers calls a module of this step.
    fn module(self, module: &str) -> Option<&str> {
        match self {
            Self::Resnet => RESNET.iter().find(|(old, _)| *old == module).map(|(_, new)| *new),
            Self::Attention => Some(module),
            Self::Down | Self::Up => matches!(module, "op" | "conv").then_some("conv"),
        }
    }
}

/// Where a walk along the steps has come to.
#[derive(Default)]
struct Walk {
    level: usize,
    resnets: usize,
    attentions: usize,
}

impl Walk {
    /// The name of the next step within its level; a change of size ends the level.
    fn next(&mut self, step: Step) -> String {
        let count = |counter: &mut usize| std::mem::replace(counter, *counter + 1);
        match step {
            Step::Resnet => format!("resnets.{}", count(&mut self.resnets)),
            Step::Attention => format!("attentions.{}", count(&mut self.attentions)),
            Step::Down | Step::Up => {
                *self = Self { level: self.level + 1, ..Self::default() };
                if step == Step::Down { "downsamplers.0".to_owned() } else { "upsamplers.0".to_owned() }
            }
        }
    }
}

/// Every step by its path, with its new path and what it is.
fn steps(ldm: &Inventory) -> BTreeMap<String, (String, Step)> {
    let mut steps = BTreeMap::new();
    for (side, new_side, first) in [("input_blocks", "down_blocks", 1), ("output_blocks", "up_blocks", 0)] {
        let mut walk = Walk::default();
        for block in first..ldm.blocks(side) {
            for child in 0..ldm.blocks(&format!("{side}.{block}")) {
                let path = format!("{side}.{block}.{child}");
                let Some(step) = Step::read(ldm, &path) else { continue };
                let level = walk.level;
                let place = walk.next(step);
                steps.insert(path, (format!("{new_side}.{level}.{place}"), step));
            }
        }
    }
    let mut walk = Walk::default();
    for child in 0..ldm.blocks("middle_block") {
        let path = format!("middle_block.{child}");
        let Some(step) = Step::read(ldm, &path) else { continue };
        steps.insert(path, (format!("mid_block.{}", walk.next(step)), step));
    }
    steps
}

/// The inventory below `model.diffusion_model.` in the names of `UNet2DConditionModel`.
pub(super) fn rename(ldm: &Inventory) -> Renamed {
    let steps = steps(ldm);
    let mut renamed = Renamed::default();
    for (name, tensor) in &ldm.tensors {
        match rename_one(name, &steps) {
            Some(new) => renamed.insert(new, tensor.clone()),
            None => renamed.strays.push(name.clone()),
        }
    }
    renamed
}

/// What the authors call every module of a denoiser that has our names, by our names.
pub(in crate::weights) fn modules(ours: &Inventory) -> HashMap<String, String> {
    let mut paths = HashMap::new();
    let count = |path: String| ours.blocks(&path);
    let levels = ours.blocks("down_blocks");
    let mut number = 1;
    for level in 0..levels {
        let block = format!("down_blocks.{level}");
        for layer in 0..count(format!("{block}.resnets")) {
            paths.insert(format!("{block}.resnets.{layer}"), format!("input_blocks.{number}.0"));
            paths.insert(format!("{block}.attentions.{layer}"), format!("input_blocks.{number}.1"));
            number += 1;
        }
        paths.insert(format!("{block}.downsamplers.0.conv"), format!("input_blocks.{number}.0.op"));
        number += 1;
    }
    number = 0;
    for level in 0..ours.blocks("up_blocks") {
        let block = format!("up_blocks.{level}");
        let attends = count(format!("{block}.attentions")) > 0;
        for layer in 0..count(format!("{block}.resnets")) {
            paths.insert(format!("{block}.resnets.{layer}"), format!("output_blocks.{number}.0"));
            paths.insert(format!("{block}.attentions.{layer}"), format!("output_blocks.{number}.1"));
            number += 1;
        }
        let (last, child) = (number.max(1) - 1, 1 + usize::from(attends));
        paths.insert(format!("{block}.upsamplers.0.conv"), format!("output_blocks.{last}.{child}.conv"));
    }
    for (child, module) in ["resnets.0", "attentions.0", "resnets.1"].into_iter().enumerate() {
        paths.insert(format!("mid_block.{module}"), format!("middle_block.{child}"));
    }
    paths.extend(OUTSIDE.iter().map(|(theirs, ours)| ((*ours).to_owned(), (*theirs).to_owned())));
    let theirs = |module: &str| {
        let ends = module.match_indices('.').map(|(at, _)| at).chain([module.len()]);
        let (end, path) = ends.rev().find_map(|end| Some((end, paths.get(&module[..end])?)))?;
        let within = module[end..].trim_start_matches('.');
        let named = RESNET.iter().find(|(_, ours)| *ours == within && module.contains(".resnets."));
        let within = named.map_or(within, |(theirs, _)| theirs);
        Some(if within.is_empty() { path.clone() } else { format!("{path}.{within}") })
    };
    let modules = ours.names().filter_map(|name| name.strip_suffix(".weight"));
    modules.filter_map(|module| Some((module.to_owned(), theirs(module)?))).collect()
}

fn rename_one(name: &str, steps: &BTreeMap<String, (String, Step)>) -> Option<String> {
    let (module, parameter) = name.rsplit_once('.')?;
    if let Some((_, new)) = OUTSIDE.iter().find(|(old, _)| *old == module) {
        return Some(format!("{new}.{parameter}"));
    }
    // A step's path has two parts in the middle and three elsewhere.
    let parts = if module.starts_with("middle_block.") { 2 } else { 3 };
    let (end, _) = module.match_indices('.').nth(parts - 1)?;
    let (path, step) = steps.get(&module[..end])?;
    Some(format!("{path}.{}.{parameter}", step.module(&module[end + 1..])?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::inventory::{Scalar, TensorInfo};

    /// Stable Diffusion 1.5 in full depth, a weight for each step: levels of two blocks, the last without attention.
    fn sd15() -> Inventory {
        let mut names = vec!["input_blocks.0.0.weight".to_owned()];
        for block in 1..12 {
            if block % 3 == 0 {
                names.push(format!("input_blocks.{block}.0.op.weight"));
                continue;
            }
            names.push(format!("input_blocks.{block}.0.in_layers.0.weight"));
            if block < 9 {
                names.push(format!("input_blocks.{block}.1.proj_in.weight"));
            }
        }
        for block in 0..12 {
            names.push(format!("output_blocks.{block}.0.in_layers.0.weight"));
            if block > 2 {
                names.push(format!("output_blocks.{block}.1.proj_in.weight"));
            }
            if block % 3 == 2 && block < 11 {
                let child = if block > 2 { 2 } else { 1 };
                names.push(format!("output_blocks.{block}.{child}.conv.weight"));
            }
        }
        for (child, module) in ["in_layers.0", "proj_in", "in_layers.0"].into_iter().enumerate() {
            names.push(format!("middle_block.{child}.{module}.weight"));
        }
        let tensor = TensorInfo::new(Scalar::F16, vec![1], 0, 0..2);
        Inventory {
            tensors: names.into_iter().map(|name| (name, tensor.clone())).collect(),
            ..Inventory::default()
        }
    }

    #[test]
    fn every_step_of_a_real_depth_finds_its_level() {
        let inventory = sd15();
        let steps = steps(&inventory);
        for (old, new) in [
            ("input_blocks.1.0", "down_blocks.0.resnets.0"),
            ("input_blocks.3.0", "down_blocks.0.downsamplers.0"),
            ("input_blocks.4.1", "down_blocks.1.attentions.0"),
            ("input_blocks.8.1", "down_blocks.2.attentions.1"),
            ("input_blocks.11.0", "down_blocks.3.resnets.1"),
            ("middle_block.1", "mid_block.attentions.0"),
            ("middle_block.2", "mid_block.resnets.1"),
            ("output_blocks.2.1", "up_blocks.0.upsamplers.0"),
            ("output_blocks.3.1", "up_blocks.1.attentions.0"),
            ("output_blocks.8.2", "up_blocks.2.upsamplers.0"),
            ("output_blocks.10.0", "up_blocks.3.resnets.1"),
            ("output_blocks.11.1", "up_blocks.3.attentions.2"),
        ] {
            assert_eq!(steps[old].0, new);
        }
        let renamed = rename(&inventory);
        assert_eq!(renamed.strays, [""; 0]);
        let back = modules(&renamed.inventory);
        for name in inventory.names().filter_map(|name| name.strip_suffix(".weight")) {
            assert!(back.values().any(|theirs| theirs == name), "{name} is not found again");
        }
        assert_eq!(renamed.inventory.tensors.len(), inventory.tensors.len(), "no two share a name");
        assert_eq!(renamed.inventory.blocks("up_blocks"), 4);
    }
}
