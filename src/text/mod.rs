//! From words to the features that a denoiser listens to.

mod chunks;
pub mod clip;
pub mod prompt;
pub mod tokenizer;

pub use chunks::Chunks;
pub use clip::{ClipConfig, ClipText};
pub use prompt::{Long, Syntax};
pub use tokenizer::{Tokenizer, Tokens};

use candle_core::{Result, Tensor};

/// What an encoder knows of a batch of prompts.
#[derive(Debug, Clone)]
pub struct Features {
    /// The tokens after each layer, `[B, L, D]`; the first is the embedding.
    pub hidden: Vec<Tensor>,
    /// The last layer after the final norm, `[B, L, D]`.
    pub last: Tensor,
    /// The state of the token that stands for the whole prompt, `[B, D]`, projected where the network does that.
    pub pooled: Tensor,
}

/// A network that reads tokens.
pub trait TextEncoder: Send + Sync {
    /// Encodes prompts of equal length as one batch.
    fn encode(&self, prompts: &[Tokens]) -> Result<Features>;
}
