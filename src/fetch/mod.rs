//! The only room with a telephone: which files a model needs, and how they get here whole.
//!
//! [`plan()`] asks and chooses, [`pull()`] brings. A model has its final name only once every file was hashed; until
//! then its files wait in a folder that nobody takes for a model, and the next pull goes on there.

mod choice;
mod form;
mod guard;
mod hub;
mod listing;
mod manifest;
mod plan;
mod pull;
mod staging;
mod transfer;

pub use hub::{ENDPOINT, Hub, Roots, Token};
pub use listing::{Digest, Listed};
pub use manifest::{Fetched, MANIFEST, Manifest};
pub use plan::{Pinned, Plan, Wanted, check_repository, plan};
pub use pull::{Pulled, pull};
pub use staging::{UNFINISHED, discard, unfinished};
