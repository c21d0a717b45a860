//! Names and shapes of the tensors in files, and the tensors themselves.
//!
//! Only this room reads files of weights and configurations, and it believes none of them: headers are checked before
//! a byte is allocated, names before they touch a path, numbers before they become sizes.
//!
//! [`Weights`] is an [`Inventory`] with bytes behind it, from one file, from shards, from the binary or from a formula;
//! safetensors and GGUF files are told apart by their first bytes. Quantised tensors ([`Block`], [`Packing`]) lie in the
//! file as they are until a network asks for one, and come out as numbers.
//! [`Folder`] is a model as diffusers saves it, [`Single`] one as its authors did, in one file; both hand out
//! [`Weights`] in the same names.

mod builder;
mod config;
mod decode;
mod demand;
mod dialect;
mod embedding;
mod folder;
mod gguf;
mod inventory;
pub mod limits;
mod measure;
mod packing;
mod patch;
mod quantise;
mod safetensors;
mod source;
pub mod synthetic;

pub use crate::kernel::block::Block;
pub use builder::{Held, VarBuilder};
pub use config::{Config, read_json};
pub use dialect::{Single, TextEncoder, control, vae};
pub use embedding::Embedding;
pub use folder::{Component, Embedded, Folder, lone_component, weights_among};
pub use gguf::Value;
pub use inventory::{Inventory, Scalar, TensorInfo};
pub use packing::{FourBit, Nested, Packing, Place, Scale};
pub use patch::{Application, Fit, Lora, Patch};
pub use source::{Weights, sha256};
