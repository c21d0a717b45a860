//! The kinds of models. A family is a folder plus a line in [`FAMILIES`].

pub mod contract;
mod control;
pub mod known;
pub mod ldm;
pub mod mock;
mod parts;

pub use contract::{
    Beside, Card, Conditioner, Conditioning, Denoiser, Evidence, Fact, Family, Grain, Need, Needs, Place,
    Prompt, Sizes, Task, Variant,
};
pub use control::{Control, Hint};
pub use parts::{Parts, Told};

use crate::error::{Code, Error, Result};

/// Every family, asked in this order; each checkpoint belongs to at most one.
pub static FAMILIES: &[&dyn Family] = &[&ldm::Ldm, &mock::Mock];

/// Finds the family of a model's files; where the user says which it is, that one and no other.
///
/// # Errors
/// `model_unsupported` if no family knows them, or the one that the user names does not; nothing is ever taken for
/// Stable Diffusion by default.
pub fn recognise(parts: &Parts) -> Result<Box<dyn Variant>> {
    let told = parts.what_is_told().family.as_ref();
    for family in FAMILIES {
        match (family.detect(parts), told) {
            (Ok(Some(variant)), Some(told)) if told.value != variant.card().family => {}
            (Ok(Some(variant)), _) => return Ok(variant),
            (Err(error), Some(told)) if !runs(&told.value) => drop(error),
            (Err(error), _) => return Err(error),
            (Ok(None), _) => {}
        }
    }
    if let Some(told) = told {
        let message =
            format!("{} does not open as {}, which the user says it is", parts.describe(), told.value);
        let hint = if runs(&told.value) {
            "import it again without --set family=…, under another --name or after `latentia rm`"
        } else {
            "that family is known, but its network does not run yet"
        };
        return Err(Error::new(Code::ModelUnsupported, message).hint(hint));
    }
    let names: Vec<_> = FAMILIES.iter().map(|family| family.name()).collect();
    Err(Error::new(Code::ModelUnsupported, format!("{} is not a model of a known family", parts.describe()))
        .hint(format!("known families: {}", names.join(", "))))
}

/// Whether the network of a family runs.
fn runs(family: &str) -> bool {
    known::denoisers().any(|rule| rule.runs && rule.family == family)
}
