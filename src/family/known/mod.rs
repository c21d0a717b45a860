//! What is known of models beyond those whose networks run here: tables of shapes, classes and facts.
//!
//! A family with its own folder recognises what it can open; these tables give the facts for the rest, so that a
//! model is called what it is even where it cannot draw yet. They are data: a row says what must be there, and a small
//! matcher reads it. Every fact carries its evidence; where nothing tells, nothing is claimed.

mod adapter;
mod carried;
mod checked;
mod finding;
mod hint;
mod identify;
mod image;
mod part;
mod pipeline;
mod profile;
mod rule;
mod unet;
mod video;

pub use checked::{CHECKED, UNCHECKED};
pub use finding::{Claim, Confidence, Finding, Part, spoken};
pub use hint::read_name;
pub use identify::identify;
pub use pipeline::{Configs, read_class};
pub use profile::{Guidance, PROFILES, Profile, profile};
pub use rule::{Role, Rule, View, When};
pub use unet::{Measure, Sizes};

/// Every denoiser that is known, for those who list them.
pub fn denoisers() -> impl Iterator<Item = &'static Rule> {
    unet::UNETS.iter().chain(image::IMAGES).chain(video::VIDEOS)
}

/// The variants of a family that rows of the tables or classes of folders name, sorted; none for a family that nobody
/// knows.
pub fn variants(family: &str) -> Vec<&'static str> {
    let of_rules = rules().filter(|rule| rule.family == family).map(|rule| rule.variant);
    let mut variants: Vec<&str> = of_rules.chain(pipeline::variants(family)).collect();
    variants.sort_unstable();
    variants.dedup();
    variants
}

/// The row of a denoiser that draws: this variant of the family, else the family's first.
pub fn row(family: &str, variant: &str) -> Option<&'static Rule> {
    let of = || denoisers().filter(|rule| rule.family == family && !rule.tasks.is_empty());
    of().find(|rule| rule.variant == variant).or_else(|| of().next())
}

/// Every rule there is, of whatever role.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    let parts = part::VAES.iter().chain(part::ENCODERS).chain(part::UPSCALERS);
    let parts = parts.chain(part::EMBEDDINGS).chain(part::OTHERS);
    denoisers().chain(parts).chain(adapter::CONTROLS).chain(adapter::ADAPTERS).chain(adapter::LORAS)
}
