//! A prompt cut into what an encoder reads at a time, with a weight for every token.

use super::prompt::{Long, Span, Syntax, parse};
use super::{Tokenizer, Tokens};
use crate::error::Result;

/// A prompt as one encoder reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunks {
    /// Each from begin to end, as long as the encoder; at least one.
    pub tokens: Vec<Tokens>,
    /// What the state of each token is multiplied with, chunk by chunk.
    pub weights: Vec<Vec<f32>>,
    /// What did not fit.
    pub cut: Option<String>,
}

impl Chunks {
    /// Cuts a prompt at its breaks, and where a chunk is full or the prompt ends, as `long` says.
    ///
    /// # Errors
    /// What [`parse`] and [`Tokenizer::words`] say.
    pub fn read(tokenizer: &Tokenizer, text: &str, syntax: Syntax, long: Long) -> Result<Self> {
        let mut chunks = Self { tokens: Vec::new(), weights: Vec::new(), cut: None };
        for part in parse(text, syntax)?.parts {
            let mut words = Vec::new();
            for (number, span) in part.iter().enumerate() {
                let read = tokenizer.words(&span.text)?.into_iter();
                words.extend(read.map(|(id, from)| (id, span.weight as f32, (number, from))));
            }
            if let (Long::Truncate, Some((.., at))) = (long, words.get(tokenizer.room())) {
                let rest = rest(&part, *at);
                chunks.cut = Some(chunks.cut.map_or_else(|| rest.clone(), |cut| format!("{cut} … {rest}")));
                words.truncate(tokenizer.room());
            }
            let mut words = words.as_slice();
            while !words.is_empty() {
                let (chunk, rest) = words.split_at(full(tokenizer, words));
                words = rest;
                let ids: Vec<u32> = chunk.iter().map(|(id, ..)| *id).collect();
                let weights: Vec<f32> = chunk.iter().map(|(_, weight, _)| *weight).collect();
                chunks.push(tokenizer, &ids, &weights);
            }
        }
        chunks.fill(tokenizer, 1);
        Ok(chunks)
    }

    /// Adds chunks without words until there are so many.
    pub fn fill(&mut self, tokenizer: &Tokenizer, count: usize) {
        while self.tokens.len() < count {
            self.push(tokenizer, &[], &[]);
        }
    }

    /// Begin, end and padding weigh 1.
    fn push(&mut self, tokenizer: &Tokenizer, ids: &[u32], weights: &[f32]) {
        let mut all = vec![1.0; tokenizer.length()];
        all.iter_mut().skip(1).zip(weights).for_each(|(place, weight)| *place = *weight);
        self.tokens.push(tokenizer.frame(ids));
        self.weights.push(all);
    }
}

/// How many ids a chunk takes: all, or as many as there is room for, without a part of a word that was taught.
fn full(tokenizer: &Tokenizer, words: &[(u32, f32, (usize, usize))]) -> usize {
    let room = tokenizer.room().max(1);
    let Some((id, _, place)) = words.get(room) else { return words.len() };
    if !tokenizer.is_taught(*id) {
        return room;
    }
    let parts = words[..room].iter().rev().take_while(|(_, _, other)| other == place).count();
    if parts < room { room - parts } else { room }
}

/// The words from a place on.
fn rest(part: &[Span], (number, from): (usize, usize)) -> String {
    let mut text = part[number].text.get(from..).unwrap_or_default().to_owned();
    text.extend(part[number + 1..].iter().map(|span| span.text.as_str()));
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, syntax: Syntax, long: Long) -> Chunks {
        Chunks::read(&Tokenizer::clip(false).expect("a tokenizer"), text, syntax, long).expect("fine")
    }

    #[test]
    fn a_plain_prompt_is_what_it_always_was() {
        let tokenizer = Tokenizer::clip(false).expect("a tokenizer");
        for text in ["", "a photo of a cat", &"cat dog, ".repeat(60)] {
            let chunks = read(text, Syntax::Plain, Long::Truncate);
            let whole = tokenizer.encode(text).expect("fine");
            assert_eq!(chunks.cut, whole.cut);
            assert_eq!(chunks.tokens, [Tokens { cut: None, ..whole }]);
        }
    }

    #[test]
    fn a_long_prompt_is_read_in_chunks_of_75_words() {
        let chunks = read(&"cat ".repeat(160), Syntax::Plain, Long::Chunk);
        let lengths: Vec<usize> = chunks.tokens.iter().map(|tokens| tokens.length).collect();
        assert_eq!((lengths, chunks.cut), (vec![77, 77, 12], None));
        assert!(chunks.tokens.iter().all(|tokens| tokens.ids.len() == 77 && tokens.ids[0] == 49_406));
    }

    #[test]
    fn a_taught_word_stands_by_itself_and_in_one_chunk() {
        let mut tokenizer = Tokenizer::clip(false).expect("a tokenizer");
        tokenizer.learn("Zork", 49_408..49_411);
        let words = |text: &str| tokenizer.words(text).expect("fine");
        let ids = |text: &str| words(text).into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids("zork")[..], [49_408, 49_409, 49_410]);
        assert!(ids("zorks azork zork7").iter().all(|id| *id < 49_408));
        assert_eq!(
            words("é zork, zork").iter().map(|(_, from)| *from).collect::<Vec<_>>(),
            [0, 3, 3, 3, 7, 9, 9, 9]
        );
        let text = format!("{}zork", "cat ".repeat(74));
        let lengths = |long| {
            let chunks = Chunks::read(&tokenizer, &text, Syntax::Plain, long).expect("fine");
            chunks.tokens.iter().map(|tokens| tokens.length).collect::<Vec<_>>()
        };
        assert_eq!(lengths(Long::Chunk), [76, 5]);
        assert_eq!(lengths(Long::Truncate), [77]);
    }

    #[test]
    fn a_break_begins_a_chunk_and_weights_stand_at_their_words() {
        let chunks = read("a (cat:1.5) BREAK dog BREAK", Syntax::A1111, Long::Truncate);
        assert_eq!(chunks.tokens.len(), 2);
        assert_eq!(chunks.weights[0][..5], [1.0, 1.0, 1.5, 1.0, 1.0]);
        assert!(chunks.weights[1].iter().all(|weight| (weight - 1.0).abs() < 1e-6));
        let cut = read(&format!("{}(dog:1.2) end", "cat ".repeat(75)), Syntax::A1111, Long::Truncate);
        assert_eq!(cut.cut.as_deref(), Some("dog end"));
    }
}
