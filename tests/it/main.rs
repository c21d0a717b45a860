//! Everything that is tested from outside, in one binary.

mod command;
mod fixtures;
mod golden;
mod golden_pipelines;
mod golden_rng;
mod golden_schedulers;
mod golden_tokenizers;
mod hostile;
mod hostile_models;
mod inventories;
mod picture;
mod show;
mod weights;
