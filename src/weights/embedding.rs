//! Words that people teach a model: files of textual inversion, a few vectors that stand where a word stood.

use std::collections::BTreeMap;
use std::path::Path;

use candle_core::{DType, Device, Tensor};

use super::source::Weights;
use crate::error::{Code, Error, Result};

/// Vectors of one word: as many as fit between a prompt's begin and end.
const MOST: usize = 75;
/// Names of tensors that say nothing of the word.
const NAMELESS: [&str; 3] = ["emb_params", "*", "<*>"];

/// A file of one taught word.
///
/// # Source
/// The names that web UIs (`emb_params`, `clip_l`, `clip_g`), diffusers (the word itself) and its training scripts
/// (`text_encoders_0`) write; `*` is what the paper's code called every word.
#[derive(Debug, Clone)]
pub struct Embedding {
    file: Weights,
    /// What its only tensor is called, where that is a word.
    word: Option<String>,
    /// By the component that reads them, `[N, D]` in f32.
    vectors: BTreeMap<&'static str, Tensor>,
}

impl Embedding {
    /// Reads a file.
    ///
    /// # Errors
    /// As [`Weights::open`]; `invalid_argument` if its tensors are not a word's; `weights_corrupt` if a number is not
    /// finite.
    pub fn open(path: &Path) -> Result<Self> {
        Self::read(Weights::open(path)?)
    }

    /// Finds the word in weights that are open already.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn read(file: Weights) -> Result<Self> {
        let names: Vec<String> = file.inventory().names().map(str::to_owned).collect();
        let mut word = None;
        let places: Vec<(&'static str, &String)> = match names.as_slice() {
            [name] if place(name).is_none() => {
                word = Some(name.clone()).filter(|name| !NAMELESS.contains(&name.as_str()));
                vec![("text_encoder", name)]
            }
            names => {
                let placed = names.iter().map(|name| Some((place(name)?, name)));
                placed.collect::<Option<_>>().unwrap_or_default()
            }
        };
        let mut vectors = BTreeMap::new();
        for (component, name) in &places {
            vectors.insert(*component, read(&file, name)?);
        }
        if vectors.is_empty() || vectors.len() < names.len() {
            let some: Vec<&str> = names.iter().take(3).map(String::as_str).collect();
            let message = format!(
                "`{}` is no taught word: it has {} tensors, such as {}",
                file.label(),
                names.len(),
                some.join(", ")
            );
            return Err(Error::argument("embeddings", message)
                .hint("expected one tensor, or clip_l and clip_g; `latentia show` says what a file is"));
        }
        let counts: Vec<usize> = vectors.values().map(|vectors: &Tensor| vectors.dims()[0]).collect();
        if counts.windows(2).any(|pair| pair[0] != pair[1]) {
            let message = format!("`{}` has {counts:?} vectors for the encoders", file.label());
            return Err(Error::argument("embeddings", message).hint("a word has equally many for each"));
        }
        Ok(Self { file, word, vectors })
    }

    /// The file, as errors and recipes call it.
    pub fn label(&self) -> &str {
        self.file.label()
    }

    /// sha256 of the file.
    pub fn digest(&self) -> &str {
        self.file.digest()
    }

    /// The word as the file says it, if it does.
    pub fn word(&self) -> Option<&str> {
        self.word.as_deref()
    }

    /// The vectors that an encoder reads for the word, `[N, D]`.
    pub fn vectors(&self, component: &str) -> Option<&Tensor> {
        self.vectors.get(component)
    }

    /// Checks that the encoders of a model, by component, read vectors like these.
    ///
    /// # Errors
    /// `model_incompatible` naming what was expected and found.
    pub fn fit(&self, encoders: &[(&'static str, Weights)]) -> Result<()> {
        let unlike = |what: String| {
            let message = format!("`{}` was not made for this model: {what}", self.label());
            Err(Error { param: Some("embeddings".into()), ..Error::new(Code::ModelIncompatible, message) }
                .hint("a word is read by models of the family that it was taught to alone"))
        };
        if encoders.is_empty() {
            return unlike("the model has no text encoder".into());
        }
        for (component, weights) in encoders {
            let Some(vectors) = self.vectors.get(component) else {
                return unlike(format!("it has no vectors for {component}"));
            };
            let inventory = weights.inventory();
            let table = inventory.names().find(|name| name.ends_with("token_embedding.weight"));
            let width = table.and_then(|name| inventory.shape(name)?.get(1).copied()).unwrap_or(0);
            let own = vectors.dims()[1];
            if own != width {
                return unlike(format!("its vectors are {own} wide, {component} reads {width}"));
            }
        }
        // A refiner has the second encoder of its base alone.
        let is_here = |component: &str| encoders.iter().any(|(own, _)| *own == component);
        let strays = self.vectors.keys().find(|component| !is_here(component));
        match strays {
            Some(component) if is_here("text_encoder") => {
                unlike(format!("it has vectors for {component}, which the model lacks"))
            }
            _ => Ok(()),
        }
    }
}

/// Which encoder reads a tensor, where its name says that.
fn place(name: &str) -> Option<&'static str> {
    match name {
        "clip_l" | "text_encoders_0" => Some("text_encoder"),
        "clip_g" | "text_encoders_1" => Some("text_encoder_2"),
        _ => None,
    }
}

fn read(file: &Weights, name: &str) -> Result<Tensor> {
    let vectors = file.tensor(name, None, DType::F32, &Device::Cpu)?;
    let vectors = match vectors.dims() {
        [_] => vectors.unsqueeze(0)?,
        [count, width] if (1..=MOST).contains(count) && *width > 0 => vectors,
        shape => {
            let message = format!("`{}`: `{name}` has the shape {shape:?}", file.label());
            let hint = format!("expected one vector or up to {MOST}, all as wide as a token");
            return Err(Error::argument("embeddings", message).hint(hint));
        }
    };
    if !vectors.sqr()?.sum_all()?.to_scalar::<f32>()?.is_finite() {
        let message = format!("`{}`: `{name}` has numbers that are not finite", file.label());
        return Err(Error::new(Code::WeightsCorrupt, message).hint("fetch the file again"));
    }
    Ok(vectors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn embedding(shapes: &[(&str, &[usize])]) -> Result<Embedding> {
        let shapes = shapes.iter().map(|(name, shape)| ((*name).to_owned(), shape.to_vec()));
        Embedding::read(Weights::synthetic(1, shapes))
    }

    fn encoder(component: &'static str, width: usize) -> (&'static str, Weights) {
        let name = "text_model.embeddings.token_embedding.weight".to_owned();
        (component, Weights::synthetic(1, [(name, vec![10, width])]))
    }

    #[test]
    fn every_form_is_read() -> Result<()> {
        for (name, word) in
            [("emb_params", None), ("*", None), ("<*>", None), ("<cat-toy>", Some("<cat-toy>"))]
        {
            let read = embedding(&[(name, &[3, 8])])?;
            assert_eq!(read.word(), word);
            assert_eq!(read.vectors("text_encoder").map(Tensor::dims), Some(&[3, 8][..]));
            assert_eq!(embedding(&[(name, &[8])])?.vectors["text_encoder"].dims(), [1, 8]);
        }
        for names in [["clip_l", "clip_g"], ["text_encoders_0", "text_encoders_1"]] {
            let read = embedding(&[(names[0], &[2, 8]), (names[1], &[2, 12])])?;
            assert_eq!(read.vectors("text_encoder_2").map(Tensor::dims), Some(&[2, 12][..]));
            read.fit(&[encoder("text_encoder", 8), encoder("text_encoder_2", 12)])?;
            read.fit(&[encoder("text_encoder_2", 12)])?;
        }
        Ok(())
    }

    #[test]
    fn what_is_no_word_is_refused() {
        for shapes in [
            &[][..],
            &[("clip_l", &[2, 8][..]), ("clip_g", &[3, 12])],
            &[("clip_l", &[2, 8]), ("t5xxl", &[2, 12])],
            &[("a", &[2, 8]), ("b", &[2, 8])],
            &[("a", &[2, 8, 1])],
            &[("a", &[76, 8])],
        ] {
            let error = embedding(shapes).expect_err("no word");
            assert_eq!((error.code, error.param.as_deref()), (Code::InvalidArgument, Some("embeddings")));
        }
        let bad = [f32::NAN, 1.0].map(f32::to_le_bytes).concat();
        let header = br#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header, &bad].concat();
        let file = Weights::from_bytes("bad.safetensors", bytes).expect("a file");
        assert_eq!(Embedding::read(file).expect_err("not finite").code, Code::WeightsCorrupt);
    }

    #[test]
    fn what_was_taught_to_another_model_is_refused() -> Result<()> {
        let one = embedding(&[("emb_params", &[2, 8])])?;
        let two = embedding(&[("clip_l", &[2, 8]), ("clip_g", &[2, 12])])?;
        for (word, encoders) in [
            (&one, vec![]),
            (&one, vec![encoder("text_encoder", 16)]),
            (&one, vec![encoder("text_encoder", 8), encoder("text_encoder_2", 12)]),
            (&two, vec![encoder("text_encoder", 8)]),
        ] {
            let error = word.fit(&encoders).expect_err("another model");
            assert_eq!(error.code, Code::ModelIncompatible);
        }
        one.fit(&[encoder("text_encoder", 8)])
    }
}
