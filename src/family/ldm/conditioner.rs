//! Words to what the U-net listens to.

use candle_core::{D, DType, Tensor};

use super::super::contract::{Conditioner, Conditioning, Prompt};
use crate::error::{Error, Result};
use crate::event::Watch;
use crate::text::{Chunks, ClipText, Features, TextEncoder, Tokenizer, Tokens};

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

    /// What one encoder makes of all prompts, `[1, n·L, D]` each, and the whole prompts, `[1, P]`; `lines` has n chunks a
    /// prompt.
    fn read(&self, number: usize, prompts: &[Prompt], lines: &[Chunks]) -> Result<Vec<(Tensor, Tensor)>> {
        let encoder = &self.readers[number].1;
        let tokens: Vec<Tokens> = lines.iter().flat_map(|line| line.tokens.clone()).collect();
        let features = encoder.encode(&tokens)?;
        let mut rows = Vec::with_capacity(prompts.len());
        let mut row = 0;
        for (prompt, line) in prompts.iter().zip(lines) {
            let state = |(chunk, weights): (usize, &Vec<f32>)| {
                weighed(&self.state(encoder, &features, row + chunk, prompt.clip_skip)?, weights)
            };
            let states = line.weights.iter().enumerate().map(state).collect::<Result<Vec<_>>>()?;
            // The first chunk speaks for the whole prompt.
            rows.push((Tensor::cat(&states, 1)?, features.pooled.narrow(0, row, 1)?));
            row += line.tokens.len();
        }
        Ok(rows)
    }

    /// Every prompt as every encoder reads it, all in equally many chunks; what had to be cut is noted.
    fn lines(&self, prompts: &[Prompt], watch: &mut Watch<'_>) -> Result<Vec<Vec<Chunks>>> {
        let mut lines = Vec::with_capacity(self.readers.len());
        for (number, (tokenizer, _)) in self.readers.iter().enumerate() {
            let mut read = Vec::with_capacity(prompts.len());
            for prompt in prompts {
                let line = Chunks::read(tokenizer, spoken(prompt, number), prompt.syntax, prompt.long)?;
                if let Some(cut) = &line.cut {
                    let length = tokenizer.length();
                    watch.note(format!("the prompt is longer than {length} tokens; this was cut: {cut:?}"));
                }
                read.push(line);
            }
            lines.push(read);
        }
        let most = lines.iter().flatten().map(|line| line.tokens.len()).max().unwrap_or(1);
        for ((tokenizer, _), lines) in self.readers.iter().zip(&mut lines) {
            lines.iter_mut().for_each(|line| line.fill(tokenizer, most));
        }
        Ok(lines)
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

/// A state whose tokens are multiplied with their weights, at the mean that it had.
///
/// # Shapes
/// `[1, L, D]` → the same.
///
/// # Source
/// The wiki of `AUTOMATIC1111/stable-diffusion-webui` and what is known of its numbers: words are weighed in the encoder's
/// last state, the mean over all of a chunk is restored.
fn weighed(state: &Tensor, weights: &[f32]) -> Result<Tensor> {
    if weights.iter().all(|weight| (weight - 1.0).abs() < f32::EPSILON) {
        return Ok(state.clone());
    }
    let weights = Tensor::from_slice(weights, (1, weights.len(), 1), state.device())?;
    let weighed = state.broadcast_mul(&weights.to_dtype(state.dtype())?)?;
    let mean = |x: &Tensor| x.to_dtype(DType::F64)?.mean_all()?.to_scalar::<f64>();
    Ok((&weighed * (mean(state)? / mean(&weighed)?))?)
}

impl Conditioner for ClipConditioner {
    fn condition(&self, prompts: &[Prompt], watch: &mut Watch<'_>) -> Result<Vec<Conditioning>> {
        let lines = self.lines(prompts, watch)?;
        let mut read = Vec::with_capacity(lines.len());
        for (number, lines) in lines.iter().enumerate() {
            watch.check()?;
            read.push(self.read(number, prompts, lines)?);
        }
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
            told.push(Conditioning { pooled, ..Conditioning::of(context) });
        }
        Ok(told)
    }
}
