//! From pixels to a file that tells how it was made, and to a place where it is found again.
//!
//! [`Frames`] are what a codec's tensor becomes, [`png`] and [`infotext`] what is in the file, [`write()`] how it gets to
//! disk: whole, or not at all; [`store`] keeps what is sent as a ref, and [`policy`] says which
//! files others may name. Nothing here knows a model, a sampler or a request: strings and numbers come in.

mod file;
mod frames;
pub mod infotext;
pub mod png;
pub mod policy;
pub mod store;

pub use file::{Existing, write};
pub use frames::{Frames, Picture};
pub use infotext::Infotext;
