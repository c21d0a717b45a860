//! CLIP's byte-pair tokenizer, on the `tokenizers` crate.
//!
//! A `tokenizer.json` is data from strangers: its vocabulary and merges are taken, its regular expressions and
//! normalisers are only compared with CLIP's own and never run.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::Value;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::{Lowercase, NFC, Replace, Sequence as Normalizers, replace::ReplacePattern};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence as Splitters;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior, Tokenizer as Engine};

use crate::error::{Code, Error, Result};
use crate::weights::read_json;

/// How CLIP cuts a text into words.
const WORDS: &str =
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";
/// The spelling of files written by older converters, equal in effect.
const OLD_WORDS: &str = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";
const BEGIN: &str = "<|startoftext|>";
const END: &str = "<|endoftext|>";
const MIB: usize = 1024 * 1024;

/// The merges of the vocabulary that every CLIP model was trained with, for files that bring none.
///
/// # Source
/// `openai/CLIP clip/bpe_simple_vocab_16e6.txt.gz`, MIT, as spread in `merges.txt` of CLIP's model folders.
static CLIP_MERGES: &[u8] = include_bytes!("../../models/clip/merges.txt");

/// The ids of one prompt, padded to the encoder's length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// Begin, words, end, then padding.
    pub ids: Vec<u32>,
    /// How many ids come before the padding.
    pub length: usize,
    /// The end of the prompt that did not fit.
    pub cut: Option<String>,
}

/// Text to ids.
pub struct Tokenizer {
    engine: Engine,
    begin: u32,
    end: u32,
    pad: u32,
    length: usize,
    vocabulary: usize,
    /// Words that were taught, with the ids that they stand for; longer ones first.
    taught: Vec<(String, Range<u32>)>,
}

impl Tokenizer {
    /// From the two files of a model folder; `config` is its `tokenizer_config.json`, where the padding token stands.
    ///
    /// # Errors
    /// `tokenizer_invalid` naming the file and what is wrong with it.
    pub fn from_merges(vocab: &[u8], merges: &[u8], config: Option<&Value>) -> Result<Self> {
        let vocab = json(vocab, "vocab.json")?;
        let Some(vocab) = vocab.as_object() else {
            return Err(invalid("vocab.json is not an object of ids"));
        };
        let vocab = vocab
            .iter()
            .map(|(token, id)| Ok((token.clone(), id_of(id, token)?)))
            .collect::<Result<HashMap<_, _>>>()?;
        Self::build(vocab, read_merges(merges)?, config)
    }

    /// From a `tokenizer.json` of the `tokenizers` library.
    ///
    /// # Errors
    /// `tokenizer_invalid` if it is anything but a CLIP tokenizer.
    pub fn from_json(bytes: &[u8], config: Option<&Value>) -> Result<Self> {
        let root = json(bytes, "tokenizer.json")?;
        let model = &root["model"];
        // Early converters left the type out.
        if model.get("type").is_some_and(|name| name != "BPE") || model["end_of_word_suffix"] != "</w>" {
            return Err(invalid("tokenizer.json: the model is not CLIP's BPE with the suffix </w>"));
        }
        allow_normalizer(&root["normalizer"])?;
        allow_pre_tokenizer(&root["pre_tokenizer"])?;
        let (Some(vocab), Some(merges)) = (model["vocab"].as_object(), model["merges"].as_array()) else {
            return Err(invalid("tokenizer.json: model.vocab or model.merges is missing"));
        };
        let mut vocab = vocab
            .iter()
            .map(|(token, id)| Ok((token.clone(), id_of(id, token)?)))
            .collect::<Result<HashMap<_, _>>>()?;
        for added in root["added_tokens"].as_array().into_iter().flatten() {
            let Some(token) = added["content"].as_str() else {
                return Err(invalid("tokenizer.json: an added token has no content"));
            };
            vocab.insert(token.to_owned(), id_of(&added["id"], token)?);
        }
        let merges = merges.iter().map(merge_of).collect::<Result<Vec<_>>>()?;
        Self::build(vocab, merges, config)
    }

    /// The vocabulary of all published CLIP models: 49,408 ids. `pad` is `!` for OpenCLIP, the end token for CLIP-L.
    ///
    /// # Errors
    /// Never for the built-in data; kept a `Result` because it is read like any other.
    pub fn clip(pad_with_exclamation_mark: bool) -> Result<Self> {
        let merges = read_merges(CLIP_MERGES)?;
        let bytes = byte_letters();
        let mut tokens: Vec<String> = bytes.iter().map(char::to_string).collect();
        tokens.extend(bytes.iter().map(|letter| format!("{letter}</w>")));
        tokens.extend(merges.iter().map(|(left, right)| format!("{left}{right}")));
        tokens.extend([BEGIN.to_owned(), END.to_owned()]);
        let vocab = tokens.into_iter().enumerate().map(|(id, token)| (token, id as u32)).collect();
        let pad = if pad_with_exclamation_mark { "!" } else { END };
        Self::build(vocab, merges, Some(&serde_json::json!({ "pad_token": pad })))
    }

    fn build(
        vocab: HashMap<String, u32>,
        merges: Vec<(String, String)>,
        config: Option<&Value>,
    ) -> Result<Self> {
        let config = config.unwrap_or(&Value::Null);
        let find = |token: &str| {
            vocab.get(token).copied().ok_or_else(|| invalid(format!("the vocabulary has no {token}")))
        };
        let named = |key: &str, usual: &str| match &config[key] {
            Value::Null => find(usual),
            Value::String(token) => find(token),
            token => find(token["content"].as_str().unwrap_or(usual)),
        };
        let (begin, end) = (named("bos_token", BEGIN)?, named("eos_token", END)?);
        let pad = named("pad_token", END)?;
        let length = config["model_max_length"].as_u64().filter(|&n| n <= 4096).unwrap_or(77) as usize;
        if length < 3 {
            return Err(invalid(format!("model_max_length is {length}: expected 3 to 4096")));
        }
        let vocabulary = vocab.values().max().map_or(0, |&id| id as usize + 1);
        let engine =
            engine(vocab, merges).map_err(|e| invalid("the merges do not fit the vocabulary").because(e))?;
        Ok(Self { engine, begin, end, pad, length, vocabulary, taught: Vec::new() })
    }

    /// One more than the largest id, which the encoder's embedding must hold.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Ids in all, padding included.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Begin, the words, end, padding; what does not fit is cut and returned as text.
    ///
    /// # Errors
    /// `tokenizer_invalid` if the vocabulary cannot spell the text.
    pub fn encode(&self, text: &str) -> Result<Tokens> {
        let words = self.words(text)?;
        let cut = words.get(self.room()).map(|&(_, from)| text.get(from..).unwrap_or(text).trim().to_owned());
        let ids: Vec<u32> = words.iter().map(|(id, _)| *id).collect();
        Ok(Tokens { cut, ..self.frame(&ids) })
    }

    /// Takes a word, written in any case and standing by itself, for these ids from now on.
    pub fn learn(&mut self, word: &str, ids: Range<u32>) {
        self.taught.push((word.to_owned(), ids));
        self.taught.sort_by_key(|(word, _)| std::cmp::Reverse(word.len()));
    }

    /// Whether an id is a part of a word that was taught.
    pub fn is_taught(&self, id: u32) -> bool {
        self.taught.iter().any(|(_, ids)| ids.contains(&id))
    }

    /// The ids of the words alone, each with the byte where it begins.
    ///
    /// # Errors
    /// `tokenizer_invalid` if the vocabulary cannot spell the text.
    pub fn words(&self, text: &str) -> Result<Vec<(u32, usize)>> {
        let mut words = Vec::new();
        let mut from = 0;
        while let Some((place, ids)) = self.next_taught(text, from) {
            words.extend(self.spell(text, from..place.start)?);
            words.extend(ids.map(|id| (id, place.start)));
            from = place.end;
        }
        words.extend(self.spell(text, from..text.len())?);
        Ok(words)
    }

    /// Where the next taught word stands from a byte on, and its ids.
    fn next_taught(&self, text: &str, from: usize) -> Option<(Range<usize>, Range<u32>)> {
        let places = text[from..].char_indices().map(|(at, _)| from + at);
        places.filter(|_| !self.taught.is_empty()).find_map(|at| {
            let stands = |(word, _): &&(String, Range<u32>)| {
                let end = at + word.len();
                let is_it = text.get(at..end).is_some_and(|part| part.eq_ignore_ascii_case(word));
                is_it && !is_inside(text, at) && !is_inside(text, end)
            };
            let (word, ids) = self.taught.iter().find(stands)?;
            Some((at..at + word.len(), ids.clone()))
        })
    }

    /// The ids of a part of a text.
    fn spell(&self, text: &str, part: Range<usize>) -> Result<impl Iterator<Item = (u32, usize)>> {
        let from = part.start;
        let encoding = self
            .engine
            .encode(&text[part], false)
            .map_err(|e| invalid("the text could not be split into tokens").because(e))?;
        let starts = encoding.get_offsets().iter().map(move |offsets| from + offsets.0);
        Ok(encoding.get_ids().iter().copied().zip(starts).collect::<Vec<_>>().into_iter())
    }

    /// Begin, as many of these ids as there is room for, end, padding.
    pub fn frame(&self, words: &[u32]) -> Tokens {
        let mut ids = Vec::with_capacity(self.length);
        ids.push(self.begin);
        ids.extend(words.iter().take(self.room()));
        ids.push(self.end);
        let length = ids.len();
        ids.resize(self.length, self.pad);
        Tokens { ids, length, cut: None }
    }

    /// Ids of words between begin and end.
    pub fn room(&self) -> usize {
        self.length - 2
    }
}

/// Whether letters or digits meet at a byte, so that no word ends there.
fn is_inside(text: &str, at: usize) -> bool {
    text[..at].ends_with(char::is_alphanumeric) && text[at..].starts_with(char::is_alphanumeric)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Code::TokenizerInvalid, message)
        .hint("take the tokenizer files of the model's original repository")
}

fn json(bytes: &[u8], name: &str) -> Result<Value> {
    read_json(bytes, 64 * MIB, name).map_err(|error| Error { code: Code::TokenizerInvalid, ..error })
}

/// An id that an embedding could hold.
fn id_of(id: &Value, token: &str) -> Result<u32> {
    match id.as_u64() {
        Some(id) if id < 1 << 22 => Ok(id as u32),
        _ => Err(invalid(format!("the id of {token:?} is {id}: expected a whole number below 4,194,304"))),
    }
}

fn merge_of(merge: &Value) -> Result<(String, String)> {
    let pair = match merge {
        Value::String(line) => line.split_once(' '),
        Value::Array(pair) => match pair.as_slice() {
            [Value::String(left), Value::String(right)] => Some((left.as_str(), right.as_str())),
            _ => None,
        },
        _ => None,
    };
    let (left, right) = pair.ok_or_else(|| invalid(format!("{merge} is not a merge of two tokens")))?;
    Ok((left.to_owned(), right.to_owned()))
}

fn read_merges(bytes: &[u8]) -> Result<Vec<(String, String)>> {
    let text = std::str::from_utf8(bytes).map_err(|e| invalid("merges.txt is not UTF-8").because(e))?;
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with("#version"))
        .map(|line| match line.split_once(' ') {
            Some((left, right)) if !right.contains(' ') => Ok((left.to_owned(), right.to_owned())),
            _ => Err(invalid(format!("merges.txt: {line:?} is not two tokens"))),
        })
        .collect()
}

fn engine(vocab: HashMap<String, u32>, merges: Vec<(String, String)>) -> tokenizers::Result<Engine> {
    let bpe = BPE::builder()
        .vocab_and_merges(vocab.into_iter().collect::<Vocab>(), merges)
        .unk_token(END.into())
        .end_of_word_suffix("</w>".into())
        .build()?;
    let mut engine = Engine::new(bpe);
    let space = Replace::new(ReplacePattern::Regex(r"\s+".into()), " ")?;
    engine.with_normalizer(Some(Normalizers::new(vec![NFC.into(), space.into(), Lowercase.into()])))?;
    let words = Split::new(SplitPattern::Regex(WORDS.into()), SplitDelimiterBehavior::Removed, true)?;
    let letters = ByteLevel::new(false, true, true);
    engine.with_pre_tokenizer(Some(Splitters::new(vec![words.into(), letters.into()])));
    engine.add_special_tokens([AddedToken::from(BEGIN, true), AddedToken::from(END, true)])?;
    Ok(engine)
}

/// The letter that stands for each byte, in the order of CLIP's vocabulary: printable ones first, as themselves.
///
/// # Source
/// `openai/gpt-2 src/encoder.py` `bytes_to_unicode`, MIT.
fn byte_letters() -> Vec<char> {
    let printable = |byte: &u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let rest = (0..256u32).filter(|byte| !printable(byte)).count() as u32;
    let letters = (0..256u32).filter(printable).chain(256..256 + rest);
    letters.filter_map(char::from_u32).collect()
}

fn allow_normalizer(normalizer: &Value) -> Result<()> {
    let known = |step: &Value| {
        step["type"] == "NFC"
            || step["type"] == "Lowercase"
            || (step["type"] == "Replace" && step["pattern"]["Regex"] == r"\s+" && step["content"] == " ")
    };
    let steps = normalizer["normalizers"].as_array();
    if normalizer["type"] == "Sequence"
        && steps.is_some_and(|steps| steps.len() <= 3 && steps.iter().all(known))
    {
        return Ok(());
    }
    Err(invalid("tokenizer.json: the normalizer is not CLIP's (NFC, one space for many, lower case)"))
}

fn allow_pre_tokenizer(splitter: &Value) -> Result<()> {
    let words = |step: &Value| {
        let pattern = step["pattern"]["Regex"].as_str();
        step["type"] == "Split" && pattern.is_some_and(|p| p == WORDS || p == OLD_WORDS)
    };
    match splitter["pretokenizers"].as_array().map(Vec::as_slice) {
        Some([first, second]) if words(first) && second["type"] == "ByteLevel" => Ok(()),
        _ => Err(invalid("tokenizer.json: the pre-tokenizer is not CLIP's word pattern")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_vocabulary_is_clips() -> Result<()> {
        let tokenizer = Tokenizer::clip(false)?;
        assert_eq!(tokenizer.vocabulary(), 49_408);
        let tokens = tokenizer.encode("a photo of a cat")?;
        assert_eq!(tokens.ids[..7], [49406, 320, 1125, 539, 320, 2368, 49407]);
        assert_eq!((tokens.ids.len(), tokens.length, tokens.cut), (77, 7, None));
        assert_eq!(Tokenizer::clip(true)?.encode("")?.ids[..3], [49406, 49407, 0]);
        Ok(())
    }

    #[test]
    fn a_long_prompt_gives_back_what_was_cut() -> Result<()> {
        let tokens = Tokenizer::clip(false)?.encode(&"cat ".repeat(80))?;
        assert_eq!(tokens.length, 77);
        assert_eq!(tokens.cut.as_deref(), Some("cat cat cat cat cat"));
        Ok(())
    }
}
