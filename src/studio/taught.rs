//! Words that a request teaches a model: which word each file stands for, and what a recipe says of it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Model;
use super::plan::Plan;
use crate::error::{Error, Result};
use crate::weights::Embedding;

/// Files of words.
const WORDS: usize = 64;
/// Letters of a word.
const LETTERS: usize = 100;

/// A word that a model was taught for a picture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Taught {
    /// How it stands in the prompt.
    pub word: String,
    /// The file's name.
    pub name: String,
    /// Its sha256.
    pub sha256: String,
}

impl Taught {
    pub(super) fn of((word, embedding): &(String, Embedding)) -> Self {
        Self { word: word.clone(), name: embedding.label().into(), sha256: embedding.digest().into() }
    }
}

impl Model {
    /// Opens files of words and teaches them, to the model and to its refiner; all others are forgotten.
    ///
    /// A word is the one that is asked for, else the file's own, else the file's name without its ending.
    ///
    /// # Errors
    /// `invalid_argument` for what is no word, or twice the same; what [`Embedding::open`] and [`Model::learn`] say.
    pub(super) fn teach(&mut self, asked: &[(Option<String>, PathBuf)]) -> Result<()> {
        let words = read(asked)?;
        self.learn(&words)?;
        match &mut self.refiner {
            Some(refiner) => refiner.learn(&words),
            None => Ok(()),
        }
    }
}

fn read(asked: &[(Option<String>, PathBuf)]) -> Result<Vec<(String, Embedding)>> {
    if asked.len() > WORDS {
        let message = format!("{} files of taught words, at most {WORDS} are read", asked.len());
        return Err(Error::argument("embeddings", message));
    }
    let mut words: Vec<(String, Embedding)> = Vec::with_capacity(asked.len());
    for (word, path) in asked {
        let named = |error| Error { param: Some("embeddings".into()), ..error };
        let embedding = Embedding::open(path).map_err(named)?;
        let stem = || path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let word = word.clone().or_else(|| embedding.word().map(str::to_owned)).unwrap_or_else(stem);
        let wrong = |what: &str| {
            let shown: String = word.chars().take(LETTERS).flat_map(char::escape_default).collect();
            Err(Error::argument(
                "embeddings",
                format!("the word `{shown}` of `{}` {what}", embedding.label()),
            )
            .hint("name another, as in --embedding WORD=FILE"))
        };
        if word.is_empty() || word.chars().count() > LETTERS {
            return wrong(&format!("has not from 1 to {LETTERS} letters"));
        }
        if word.chars().any(|letter| letter.is_whitespace() || letter.is_control()) {
            return wrong("has a space in it");
        }
        if words.iter().any(|(other, _)| other.eq_ignore_ascii_case(&word)) {
            return wrong("is that of another file too");
        }
        words.push((word, embedding));
    }
    Ok(words)
}

/// Refuses to repeat a recipe with other words than its own.
pub(super) fn same(plan: &Plan, model: &Model) -> Result<()> {
    // A file may have got another name.
    let told = |taught: &[Taught]| {
        taught.iter().map(|taught| (taught.word.clone(), taught.sha256.clone())).collect::<Vec<_>>()
    };
    if told(model.learned()) == told(&plan.embeddings) {
        return Ok(());
    }
    let said = |taught: &[Taught]| {
        let names: Vec<_> = taught.iter().map(|taught| format!("{}={}", taught.word, taught.name)).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let (wanted, given) = (said(&plan.embeddings), said(model.learned()));
    let message = format!("the picture was made with other taught words ({wanted}) than are given ({given})");
    Err(Error::argument("embeddings", message))
}
