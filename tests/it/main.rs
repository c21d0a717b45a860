//! Everything that is tested from outside, in one binary.

mod fixtures;
mod golden_rng;
mod golden_schedulers;
