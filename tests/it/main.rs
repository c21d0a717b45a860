//! Everything that is tested from outside, in one binary.

mod fixtures;
mod hostile;
mod picture;
mod weights;
