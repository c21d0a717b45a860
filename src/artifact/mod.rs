//! From pixels to a file that tells how it was made.
//!
//! [`Frames`] are what a codec's tensor becomes, [`png`] and [`infotext`] what is in the file, [`write()`] how it gets to
//! disk: whole, or not at all. Nothing here knows a model, a sampler or a request: strings and numbers come in.

mod file;
mod frames;
pub mod infotext;
pub mod png;

pub use file::{Existing, write};
pub use frames::{Frames, Picture};
pub use infotext::Infotext;
