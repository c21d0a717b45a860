//! Words to what the U-net listens to.

use candle_core::{D, Tensor};

use super::super::contract::{Conditioner, Conditioning, Prompt};
use crate::error::{Error, Result};
use crate::event::Watch;
use crate::text::{ClipText, Features, TextEncoder, Tokenizer, Tokens};

/// Which state of the encoders the network listens to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// The last, after the final norm.
    Last,
    /// The one before the last, as it is.
    Penultimate,
}

/// One or two CLIP encoders with their tokenizers; the tokens of both stand side by side.
pub struct ClipConditioner {
    readers: Vec<(Tokenizer, ClipText)>,
    reads: Reads,
}

impl ClipConditioner {
    /// Joins them; a tokenizer's ids must fit its encoder.
    pub fn new(readers: Vec<(Tokenizer, ClipText)>, reads: Reads) -> Self {
        Self { readers, reads }
    }

    /// What one encoder makes of all prompts, `[1, L, D]` each, and the whole prompts, `[1, P]`.
    fn read(
        &self,
        number: usize,
        prompts: &[Prompt],
        watch: &mut Watch<'_>,
    ) -> Result<Vec<(Tensor, Tensor)>> {
        let (tokenizer, encoder) = &self.readers[number];
        let tokens = prompts
            .iter()
            .map(|prompt| ids(tokenizer, spoken(prompt, number), watch))
            .collect::<Result<Vec<_>>>()?;
        watch.check()?;
        let features = encoder.encode(&tokens)?;
        let row = |(row, prompt): (usize, &Prompt)| {
            let context = self.state(encoder, &features, row, prompt.clip_skip)?;
            Ok((context, features.pooled.narrow(0, row, 1)?))
        };
        prompts.iter().enumerate().map(row).collect()
    }

    fn state(&self, encoder: &ClipText, features: &Features, row: usize, skip: usize) -> Result<Tensor> {
        let left_out = match self.reads {
            Reads::Last if skip == 0 => return Ok(features.last.narrow(0, row, 1)?),
            Reads::Last => skip,
            Reads::Penultimate => skip + 1,
        };
        if left_out > encoder.layers() {
            let message = format!("clip_skip {skip}: an encoder has {} layers", encoder.layers());
            return Err(Error::argument("clip_skip", message));
        }
        let hidden = features.hidden[encoder.layers() - left_out].narrow(0, row, 1)?;
        match self.reads {
            Reads::Last => Ok(encoder.finish(&hidden)?),
            Reads::Penultimate => Ok(hidden),
        }
    }
}

/// What an encoder reads of a prompt.
fn spoken(prompt: &Prompt, encoder: usize) -> &str {
    let second = prompt.second.as_deref().filter(|_| encoder > 0);
    second.unwrap_or(&prompt.text)
}

/// The ids of a text; what had to be cut is noted.
fn ids(tokenizer: &Tokenizer, text: &str, watch: &mut Watch<'_>) -> Result<Tokens> {
    let ids = tokenizer.encode(text)?;
    if let Some(cut) = &ids.cut {
        watch.note(format!("the prompt is longer than {} tokens; this was cut: {cut:?}", ids.ids.len()));
    }
    Ok(ids)
}

impl Conditioner for ClipConditioner {
    fn condition(&self, prompts: &[Prompt], watch: &mut Watch<'_>) -> Result<Vec<Conditioning>> {
        let read = (0..self.readers.len())
            .map(|number| self.read(number, prompts, watch))
            .collect::<Result<Vec<_>>>()?;
        let mut told = Vec::with_capacity(prompts.len());
        for (row, prompt) in prompts.iter().enumerate() {
            let states: Vec<_> = read.iter().map(|rows| &rows[row].0).collect();
            let mut context = Tensor::cat(&states, D::Minus1)?; // [1, L, ΣD]
            // The last encoder speaks for the whole prompt.
            let mut pooled = read.last().map(|rows| rows[row].1.clone());
            if prompt.silent {
                context = context.zeros_like()?;
                pooled = pooled.map(|pooled| pooled.zeros_like()).transpose()?;
            }
            told.push(Conditioning {
                context,
                pooled,
                guidance: None,
                sizes: Vec::new(),
                beside: None,
                hints: Vec::new(),
            });
        }
        Ok(told)
    }
}
