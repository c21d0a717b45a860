//! From pixels to a file that tells how it was made, from a file that is given to pixels, and to a place where files are
//! found again.
//!
//! [`Frames`] are what a codec's tensor becomes, [`png`] and [`infotext`] what is in the file, [`write()`] how it gets to
//! disk: whole, or not at all. [`Photo`] is a picture that comes in, [`Mask`] where one may change. [`store`] keeps what is
//! sent as a ref, and [`policy`] says which files others may name. Nothing here knows a model, a sampler or a request:
//! strings and numbers come in.

mod canny;
mod file;
mod frames;
pub mod infotext;
mod mask;
mod photo;
pub mod png;
pub mod policy;
mod resample;
pub mod store;

pub use canny::canny;
pub use file::{Existing, write};
pub use frames::{Frames, Picture};
pub use infotext::Infotext;
pub use mask::Mask;
pub use photo::{FILE_BYTES, Photo};
pub use resample::Region;
