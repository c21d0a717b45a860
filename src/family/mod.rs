//! The kinds of models. A family is a folder plus a line in [`FAMILIES`].

pub mod contract;
pub mod known;
pub mod ldm;
mod parts;

pub use contract::{
    Beside, Card, Conditioner, Conditioning, Denoiser, Evidence, Fact, Family, Place, Prompt, Sizes, Task,
    Variant,
};
pub use parts::{Parts, Told};

use crate::error::{Code, Error, Result};

/// Every family, asked in this order; each checkpoint belongs to at most one.
pub static FAMILIES: &[&dyn Family] = &[&ldm::Ldm];

/// Finds the family of a model's files.
///
/// # Errors
/// `model_unsupported` if no family knows them; nothing is ever taken for Stable Diffusion by default.
pub fn recognise(parts: &Parts) -> Result<Box<dyn Variant>> {
    for family in FAMILIES {
        if let Some(variant) = family.detect(parts)? {
            return Ok(variant);
        }
    }
    let names: Vec<_> = FAMILIES.iter().map(|family| family.name()).collect();
    Err(Error::new(Code::ModelUnsupported, format!("{} is not a model of a known family", parts.describe()))
        .hint(format!("known families: {}", names.join(", "))))
}
