//! Rules as data: what a file must have to be of a kind, and the small matcher that reads them.
//!
//! A name in a rule may hold `*`, which stands for anything, and `|` between spellings of several authors. A name that
//! begins with `/` is looked for in the whole file, every other one behind the prefix that was voted for.

use serde::Serialize;

use super::super::contract::Task;
use super::unet::{Measure, Sizes};
use crate::weights::{Inventory, TensorInfo};

/// What a file of weights is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Small changes to another network's matrices.
    Lora,
    /// A network beside another, which steers it by a picture.
    Controlnet,
    /// Other additions to a network: image prompts, motion modules.
    Adapter,
    /// Words that were taught to a text encoder.
    Embedding,
    /// Pixels to latents and back.
    Vae,
    /// Words or pictures to features.
    TextEncoder,
    /// Small pictures to large ones, without a prompt.
    Upscaler,
    /// A network that takes noise away, alone.
    Denoiser,
    /// A denoiser with its encoders or its autoencoder in one file or folder.
    Checkpoint,
    /// Something else, such as a safety checker.
    Other,
}

/// One condition of a rule.
#[derive(Debug, Clone, Copy)]
pub enum When {
    /// A tensor of this name is there.
    Has(&'static str),
    /// None is.
    No(&'static str),
    /// Axis, counted from 0, or from the end below 0, has this size.
    Dim(&'static str, i8, usize),
    /// The tensor is there and that axis has another size.
    NotDim(&'static str, i8, usize),
    /// The tensor has so many axes.
    Rank(&'static str, usize),
    /// So many numbered children follow one another below the prefix.
    Blocks(&'static str, usize),
    /// The width that a U-net's shapes give.
    Is(Measure, usize),
    /// The condition does not hold.
    Not(&'static When),
}

/// What files of one kind look like, and what is known of them.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// What such a file is for.
    pub role: Role,
    /// The family's name.
    pub family: &'static str,
    /// Which of the family; empty where these conditions cannot tell.
    pub variant: &'static str,
    /// All must hold.
    pub when: &'static [When],
    /// What it can be asked for, alone or in the pipeline it belongs to.
    pub tasks: &'static [Task],
    /// More than the task's name says: `inpaint`, `edit`, `control`.
    pub abilities: &'static [&'static str],
    /// What the network's output means; empty where nothing in the file tells.
    pub prediction: &'static str,
    /// Width and height it was trained for; 0 where that is not one size.
    pub size: [usize; 2],
    /// What a user should know.
    pub note: &'static str,
    /// Whether its network runs here.
    pub runs: bool,
}

/// A denoiser of this family and variant.
pub(super) const fn denoiser(family: &'static str, variant: &'static str, when: &'static [When]) -> Rule {
    part(Role::Denoiser, family, variant, when)
}

/// A file of this role.
pub(super) const fn part(
    role: Role,
    family: &'static str,
    variant: &'static str,
    when: &'static [When],
) -> Rule {
    Rule {
        role,
        family,
        variant,
        when,
        tasks: &[],
        abilities: &[],
        prediction: "",
        size: [0, 0],
        note: "",
        runs: false,
    }
}

impl Rule {
    /// What it can be asked for.
    pub(super) const fn tasks(self, tasks: &'static [Task]) -> Self {
        Self { tasks, ..self }
    }

    /// What the task's name does not say.
    pub(super) const fn can(self, abilities: &'static [&'static str]) -> Self {
        Self { abilities, ..self }
    }

    /// What the network's output means.
    pub(super) const fn predicts(self, prediction: &'static str) -> Self {
        Self { prediction, ..self }
    }

    /// The size it was trained for.
    pub(super) const fn size(self, width: usize, height: usize) -> Self {
        Self { size: [width, height], ..self }
    }

    /// Predicts a velocity, trained at this size.
    pub(super) const fn flow(self, width: usize, height: usize) -> Self {
        self.predicts("flow").size(width, height)
    }

    /// What a user should know.
    pub(super) const fn note(self, note: &'static str) -> Self {
        Self { note, ..self }
    }

    /// Its network runs here.
    pub(super) const fn runs(self) -> Self {
        Self { runs: true, ..self }
    }

    /// Whether all conditions hold.
    pub fn fits(&self, view: &View<'_>) -> bool {
        self.when.iter().all(|when| when.holds(view))
    }

    /// How many of its conditions ask for a tensor that is there: a vote for the view's prefix.
    pub(super) fn hits(&self, view: &View<'_>) -> usize {
        self.when
            .iter()
            .filter(|when| matches!(when, When::Has(_) | When::Dim(..)) && when.holds(view))
            .count()
    }
}

impl When {
    fn holds(&self, view: &View<'_>) -> bool {
        let axis = |name: &str, at: i8| {
            let shape = &view.find(name)?.1.shape;
            let at =
                if at < 0 { shape.len().checked_sub(usize::from(at.unsigned_abs()))? } else { at as usize };
            shape.get(at).copied()
        };
        match *self {
            Self::Has(name) => view.find(name).is_some(),
            Self::No(name) => view.find(name).is_none(),
            Self::Dim(name, at, size) => axis(name, at) == Some(size),
            Self::NotDim(name, at, size) => axis(name, at).is_some_and(|found| found != size),
            Self::Rank(name, rank) => view.find(name).is_some_and(|(_, tensor)| tensor.shape.len() == rank),
            Self::Blocks(prefixes, count) => prefixes.split('|').any(|prefix| view.blocks(prefix) == count),
            Self::Is(measure, size) => view.sizes.as_ref().and_then(|sizes| sizes.get(measure)) == Some(size),
            Self::Not(when) => !when.holds(view),
        }
    }

    /// The condition as evidence: the tensor that was found, with its shape.
    pub(super) fn spoken(&self, view: &View<'_>) -> Option<String> {
        let found = |name: &str| {
            let (name, tensor) = view.find(name)?;
            Some(format!("{name} {:?}", tensor.shape))
        };
        match *self {
            Self::Has(name) | Self::Dim(name, ..) | Self::NotDim(name, ..) | Self::Rank(name, _) => {
                found(name)
            }
            Self::No(name) => Some(format!("no {}", name.split('|').next().unwrap_or(name))),
            Self::Blocks(prefix, count) => {
                Some(format!("{count} blocks in {}", prefix.split('|').next().unwrap_or(prefix)))
            }
            Self::Is(measure, size) => Some(format!("{} {size}", measure.spoken())),
            Self::Not(_) => None,
        }
    }
}

/// The tensors behind one prefix of a file, without copying them.
#[derive(Debug, Clone)]
pub struct View<'a> {
    inventory: &'a Inventory,
    prefix: String,
    sizes: Option<Sizes>,
}

impl<'a> View<'a> {
    /// The tensors whose names begin so.
    pub fn new(inventory: &'a Inventory, prefix: impl Into<String>) -> Self {
        let mut view = Self { inventory, prefix: prefix.into(), sizes: None };
        view.sizes = Sizes::read(&view);
        view
    }

    /// What all names begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The sizes of a U-net, if this is one.
    pub fn sizes(&self) -> Option<&Sizes> {
        self.sizes.as_ref()
    }

    /// The tensors, by full name.
    pub fn tensors(&self) -> impl Iterator<Item = (&'a String, &'a TensorInfo)> {
        let prefix = self.prefix.clone();
        let from = self.inventory.tensors.range(self.prefix.clone()..);
        from.take_while(move |(name, _)| name.starts_with(&prefix))
    }

    /// The first tensor of that name, by full name; see the module for what a name may hold.
    pub fn find(&self, pattern: &str) -> Option<(&'a str, &'a TensorInfo)> {
        pattern.split('|').find_map(|spelling| match spelling.strip_prefix('/') {
            Some(rest) => find(self.inventory, rest),
            None => find(self.inventory, &format!("{}{spelling}", self.prefix)),
        })
    }

    /// All tensors that a name with `*` fits.
    pub fn all(&self, pattern: &str) -> Vec<(&'a str, &'a TensorInfo)> {
        let fits = |name: &str| {
            let rest = &name[self.prefix.len()..];
            pattern.split('|').any(|spelling| glob(spelling.as_bytes(), rest.as_bytes()))
        };
        self.tensors().filter(|(name, _)| fits(name)).map(|(name, tensor)| (name.as_str(), tensor)).collect()
    }

    /// How many numbered children follow one another below `prefix`.
    pub fn blocks(&self, prefix: &str) -> usize {
        self.inventory.blocks(&format!("{}{prefix}", self.prefix))
    }
}

fn find<'a>(inventory: &'a Inventory, pattern: &str) -> Option<(&'a str, &'a TensorInfo)> {
    let Some((head, _)) = pattern.split_once('*') else {
        return inventory.tensors.get_key_value(pattern).map(|(name, tensor)| (name.as_str(), tensor));
    };
    let below = inventory.tensors.range(head.to_owned()..).take_while(|(name, _)| name.starts_with(head));
    let mut fitting = below.filter(|(name, _)| glob(pattern.as_bytes(), name.as_bytes()));
    fitting.next().map(|(name, tensor)| (name.as_str(), tensor))
}

/// Whether `*` can be filled so that the pattern is the text.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = ((0, 0), None);
    while at.1 < text.len() {
        match pattern.get(at.0) {
            Some(b'*') => {
                from = Some(at);
                at.0 += 1;
            }
            Some(letter) if *letter == text[at.1] => at = (at.0 + 1, at.1 + 1),
            _ => match from {
                Some((star, began)) => {
                    from = Some((star, began + 1));
                    at = (star + 1, began + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at.0..].iter().all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, fits) in [
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "abcd", false),
            ("*.to_k.weight", "x.attn2.to_k.weight", true),
            ("*a*b*", "xxayybzz", true),
            ("*a*b*", "b", false),
            ("a", "a", true),
            ("*", "", true),
        ] {
            assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), fits, "{pattern} {text}");
        }
    }
}
