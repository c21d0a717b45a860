#![doc = include_str!("README.md")]

pub mod error;
pub mod event;

pub mod artifact;
pub mod diffusion;
pub mod weights;
