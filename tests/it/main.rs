//! Everything that is tested from outside, in one binary.

#![allow(clippy::print_stdout, reason = "golden tests say how many cases passed")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod artifacts;
mod carried;
mod changes;
mod command;
mod control;
mod corpus;
mod edit;
mod embeddings;
mod fixtures;
mod formats;
mod golden;
mod golden_control;
mod golden_formats;
mod golden_pipelines;
mod golden_rng;
mod golden_schedulers;
mod golden_tokenizers;
mod golden_whole;
mod hostile;
mod hostile_files;
mod hostile_models;
mod hub;
mod inventories;
mod joined;
mod notes;
mod overrides;
mod picture;
mod policy;
mod prompts;
mod published;
mod show;
mod store;
mod store_hard;
mod tools;
mod twisted;
mod upscale;
mod weights;
mod worn;
