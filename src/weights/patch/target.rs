//! Which tensor of a model a module of a change means: every spelling of every module that the model has.

use std::collections::HashMap;

use crate::weights::dialect::ldm_modules;
use crate::weights::inventory::Inventory;

/// Modules of a model by every name that files of changes give them.
#[derive(Debug, Default)]
pub(super) struct Targets(HashMap<String, Target>);

/// A module of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// The component, in diffusers' words.
    pub(super) component: &'static str,
    /// The tensor's name without its last part.
    pub(super) module: String,
}

/// What stands before a module's name: with dots kept, and with dots made underscores.
const SPELLINGS: &[(&str, &[&str], &[&str])] = &[
    ("unet", &["unet.", "diffusion_model.", ""], &["lora_unet_", "lycoris_"]),
    ("text_encoder", &["text_encoder.", "clip_l.", "clip_l.transformer."], &["lora_te_", "lora_te1_"]),
    ("text_encoder_2", &["text_encoder_2.", "clip_g.", "clip_g.transformer."], &["lora_te2_"]),
];
const TEXT: &str = "text_model.";

impl Targets {
    /// Adds the modules of a component.
    pub(super) fn add(&mut self, component: &'static str, inventory: &Inventory) {
        let Some((_, dotted, flat)) = SPELLINGS.iter().find(|(name, ..)| *name == component) else { return };
        let theirs = if component == "unet" { ldm_modules(inventory) } else { HashMap::new() };
        for name in inventory.names() {
            let Some(module) = name.strip_suffix(".weight") else { continue };
            let mut spoken = vec![module.to_owned()];
            spoken.extend(theirs.get(module).cloned());
            if component != "unet" {
                // Some files have the inner prefix and some have not, and so have some models.
                let bare = module.strip_prefix(TEXT).unwrap_or(module);
                spoken = vec![format!("{TEXT}{bare}"), bare.to_owned()];
            }
            for spoken in spoken {
                let target = Target { component, module: module.to_owned() };
                let flattened = spoken.replace('.', "_");
                let dotted = dotted.iter().map(|prefix| format!("{prefix}{spoken}"));
                let flat = flat.iter().map(|prefix| format!("{prefix}{flattened}"));
                for name in dotted.chain(flat) {
                    self.0.entry(name).or_insert_with(|| target.clone());
                }
            }
        }
    }

    /// The module of a name in a file.
    pub(super) fn find(&self, name: &str) -> Option<&Target> {
        self.0.get(name)
    }
}
