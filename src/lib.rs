#![doc = include_str!("README.md")]

pub mod artifact;
pub mod codec;
pub mod diffusion;
pub mod error;
pub mod event;
pub mod face;
pub mod family;
pub mod fetch;
pub mod kernel;
pub mod nn;
pub mod registry;
pub mod studio;
pub mod text;
pub mod tool;
pub mod weights;
