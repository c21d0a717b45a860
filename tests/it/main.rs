//! Everything that is tested from outside, in one binary.

mod fixtures;
mod picture;
mod weights;
