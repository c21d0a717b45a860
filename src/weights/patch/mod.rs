//! Changes to a model's weights, from files that people train: LoRA and its relatives.
//!
//! A file of changes is read once and fitted to a model by the names and shapes of both; its numbers are added while a
//! network reads its weights, tensor by tensor, in f32. No network knows, and the model's own file is never touched.

mod delta;
mod key;
mod target;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use candle_core::Tensor;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::inventory::Inventory;
use super::source::Weights;
use crate::error::{Code, Error, Result};
use delta::{Delta, Noted};
use key::Role;
use target::{Target, Targets};

/// A file of changes.
#[derive(Debug, Clone)]
pub struct Lora {
    file: Weights,
    /// Modules under their names in the file.
    modules: BTreeMap<String, BTreeMap<Role, String>>,
    /// Names that say neither a module nor a role.
    strays: Vec<String>,
}

/// What a file changes in a model.
#[derive(Debug, Clone)]
pub struct Fit {
    /// How many modules were changed.
    pub applied: usize,
    /// Names in the file that mean nothing to this model.
    pub ignored: Vec<String>,
    changes: Vec<(Target, Arc<Delta>)>,
}

impl Lora {
    /// Opens a file; only names and shapes are read.
    ///
    /// # Errors
    /// As [`Weights::open`]; `lora_incompatible` if nothing in it is a change.
    pub fn open(path: &Path) -> Result<Self> {
        Self::read(Weights::open(path)?)
    }

    /// Finds the changes in weights that are open already.
    ///
    /// # Errors
    /// `lora_incompatible` if there are none.
    pub fn read(file: Weights) -> Result<Self> {
        let mut modules: BTreeMap<String, BTreeMap<Role, String>> = BTreeMap::new();
        let mut strays = Vec::new();
        for name in file.inventory().names() {
            match key::read(name) {
                Some((module, role)) => {
                    modules.entry(module).or_default().insert(role, name.to_owned());
                }
                None => strays.push(name.to_owned()),
            }
        }
        if modules.is_empty() {
            let message = format!("`{}` has no tensor that is named as a LoRA's", file.label());
            return Err(Error::new(Code::LoraIncompatible, message));
        }
        Ok(Self { file, modules, strays })
    }

    /// The file, as errors and recipes call it.
    pub fn label(&self) -> &str {
        self.file.label()
    }

    /// sha256 of the file.
    pub fn digest(&self) -> &str {
        self.file.digest()
    }

    /// Finds the modules of a model that it changes; the model is its components by name.
    ///
    /// # Errors
    /// `lora_incompatible` if there are none, or if one has another shape.
    pub fn fit(&self, model: &[(&'static str, Weights)]) -> Result<Fit> {
        let mut targets = Targets::default();
        for (component, weights) in model {
            targets.add(component, weights.inventory());
        }
        let mut fit = Fit { applied: 0, ignored: self.strays.clone(), changes: Vec::new() };
        for (module, names) in &self.modules {
            let Some(target) = targets.find(module) else {
                fit.ignored.extend(names.values().cloned());
                continue;
            };
            let noted = noted(self.file.inventory(), target.component);
            let delta = Delta { file: self.file.clone(), names: names.clone(), noted };
            let weights = model.iter().find(|(component, _)| *component == target.component);
            let shape = weights
                .and_then(|(_, weights)| weights.inventory().shape(&format!("{}.weight", target.module)));
            delta.check(shape.unwrap_or_default())?;
            let has_bias = weights
                .is_some_and(|(_, weights)| weights.inventory().has(&format!("{}.bias", target.module)));
            if delta.has_bias() && !has_bias {
                fit.ignored.extend(
                    names.values().filter(|name| name.ends_with("bias") || name.ends_with("_b")).cloned(),
                );
            }
            fit.changes.push((target.clone(), Arc::new(delta)));
        }
        fit.applied = fit.changes.len();
        if fit.applied == 0 {
            let some: Vec<&str> = fit.ignored.iter().take(3).map(String::as_str).collect();
            let message = format!(
                "`{}` changes nothing in this model: none of its {} names is a module here, such as {}",
                self.label(),
                fit.ignored.len(),
                some.join(", ")
            );
            return Err(Error::new(Code::LoraIncompatible, message)
                .hint("it was made for another model; `latentia show` names the family of both"));
        }
        Ok(fit)
    }
}

/// What the notes of PEFT in a file's header say of the modules of a component.
fn noted(inventory: &Inventory, component: &str) -> Noted {
    let notes = inventory.metadata.get("lora_adapter_metadata");
    let notes: Option<Value> = notes.and_then(|text| serde_json::from_str(text).ok());
    let note = |key: &str| notes.as_ref()?.get(format!("{component}.{key}")).cloned();
    Noted {
        alpha: note("lora_alpha").and_then(|alpha| alpha.as_f64()),
        by_root: note("use_rslora").is_some_and(|by_root| by_root == true),
    }
}

/// How changes meet the weights that they change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Application {
    /// In the weights; beside those that are kept in blocks of small integers, which would have to be made anew.
    #[default]
    Auto,
    /// In the weights, as they are read: nothing to do at run time.
    Fused,
    /// Beside the weights, which stay as they are: two small products more for each, and files are changed in no time.
    /// What is no product of two matrices is in the weights all the same.
    Runtime,
}

/// All changes to one component, by the names of its tensors.
#[derive(Debug, Clone, Default)]
pub struct Patch {
    changes: BTreeMap<String, Vec<(Arc<Delta>, f64)>>,
    application: Application,
}

impl Patch {
    /// No changes so far.
    pub fn new(application: Application) -> Self {
        Self { changes: BTreeMap::new(), application }
    }

    /// Adds what a fitted file changes in a component, in the given strength, after what is there.
    pub fn add(&mut self, component: &str, fit: &Fit, strength: f64) {
        for (target, delta) in fit.changes.iter().filter(|(target, _)| target.component == component) {
            let mut change = |last: &str| {
                let changes = self.changes.entry(format!("{}.{last}", target.module)).or_default();
                changes.push((Arc::clone(delta), strength));
            };
            if delta.has_weight() {
                change("weight");
            }
            if delta.has_bias() {
                change("bias");
            }
        }
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Whether it changes a tensor.
    pub(super) fn changes(&self, name: &str) -> bool {
        self.changes.contains_key(name)
    }

    /// A tensor with its changes.
    pub(super) fn apply(&self, name: &str, mut base: Tensor) -> Result<Tensor> {
        for (delta, strength) in self.changes.get(name).into_iter().flatten() {
            base = if name.strip_suffix(".bias").is_some() {
                delta.apply_to_bias(&base, *strength)?
            } else {
                delta.apply(&base, *strength)?
            };
        }
        Ok(base)
    }

    /// Whether what is added to a tensor is added to its product instead.
    pub(super) fn is_beside(&self, name: &str, in_blocks: impl Fn() -> bool) -> bool {
        let Some(changes) = self.changes.get(name) else { return false };
        let wanted = match self.application {
            Application::Auto => in_blocks(),
            Application::Fused => false,
            Application::Runtime => true,
        };
        wanted && changes.iter().all(|(delta, _)| delta.is_low_rank())
    }

    /// The changes to a tensor of this shape as pairs of matrices: down, and up in its strength.
    ///
    /// # Shapes
    /// `[R, I, …]`, `[O, R]`.
    pub(super) fn beside(&self, name: &str, shape: &[usize]) -> Result<Vec<[Tensor; 2]>> {
        let changes = self.changes.get(name).into_iter().flatten();
        changes.map(|(delta, strength)| delta.pair(shape, *strength)).collect()
    }
}
