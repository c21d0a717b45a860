//! Words to what the U-net listens to.

use super::super::contract::{Conditioner, Conditioning, Prompt};
use crate::error::{Error, Result};
use crate::event::Watch;
use crate::text::{ClipText, TextEncoder, Tokenizer, Tokens};

/// CLIP's tokenizer and text network.
pub struct ClipConditioner {
    tokenizer: Tokenizer,
    encoder: ClipText,
}

impl ClipConditioner {
    /// Joins the two; the tokenizer's ids must fit the encoder.
    pub fn new(tokenizer: Tokenizer, encoder: ClipText) -> Self {
        Self { tokenizer, encoder }
    }

    /// The ids of a prompt.
    ///
    /// # Errors
    /// `tokenizer_invalid`.
    pub fn tokens(&self, text: &str) -> Result<Tokens> {
        self.tokenizer.encode(text)
    }

    /// The text network.
    pub fn encoder(&self) -> &ClipText {
        &self.encoder
    }
}

impl Conditioner for ClipConditioner {
    fn condition(&self, prompts: &[Prompt], watch: &mut Watch<'_>) -> Result<Vec<Conditioning>> {
        let mut tokens = Vec::with_capacity(prompts.len());
        for prompt in prompts {
            if prompt.clip_skip >= self.encoder.layers() {
                let message = format!(
                    "clip_skip {}: the encoder has {} layers",
                    prompt.clip_skip,
                    self.encoder.layers()
                );
                return Err(Error::argument("clip_skip", message));
            }
            let ids = self.tokenizer.encode(&prompt.text)?;
            if let Some(cut) = &ids.cut {
                watch.note(format!(
                    "the prompt is longer than {} tokens; this was cut: {cut:?}",
                    ids.ids.len()
                ));
            }
            tokens.push(ids);
        }
        watch.check()?;
        let features = self.encoder.encode(&tokens)?;
        let mut told = Vec::with_capacity(prompts.len());
        for (row, prompt) in prompts.iter().enumerate() {
            let context = match prompt.clip_skip {
                0 => features.last.narrow(0, row, 1)?,
                skip => {
                    let hidden = &features.hidden[features.hidden.len() - 1 - skip];
                    self.encoder.finish(&hidden.narrow(0, row, 1)?)?
                }
            };
            let pooled = Some(features.pooled.narrow(0, row, 1)?);
            told.push(Conditioning { context, pooled, guidance: None });
        }
        Ok(told)
    }
}
