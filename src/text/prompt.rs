//! Prompts as web UIs write them: weighted words, breaks, names of adapters.
//!
//! Whatever is malformed, or would mean something there that is not done here, is refused: nothing of a prompt is ignored.
//!
//! # Source
//! The grammar as the wiki of `AUTOMATIC1111/stable-diffusion-webui` describes it, page *Features*: attention, BREAK, extra
//! networks. Its code (AGPL) was not read.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Weight of a pair of parentheses without a number; brackets divide by it.
const STEP: f64 = 1.1;
/// The largest weight, and the largest strength of an adapter.
const LIMIT: f64 = 10.0;
/// How deep brackets may stand in brackets.
const DEPTH: usize = 32;

/// How a prompt is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Syntax {
    /// As words.
    #[default]
    Plain,
    /// As AUTOMATIC1111's web UI reads it: `(x)`, `(x:1.2)`, `[x]`, `\(`, `BREAK`, `<lora:name:0.8>`.
    A1111,
}

/// What becomes of a prompt that is longer than the encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Long {
    /// Its end is cut, which is said.
    #[default]
    Truncate,
    /// It is read in chunks, each from begin to end, which stand side by side.
    Chunk,
}

/// Words of one weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The words.
    pub text: String,
    /// What their states are multiplied with.
    pub weight: f64,
}

/// A prompt, understood.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parsed {
    /// What stands between breaks; each part begins a chunk.
    pub parts: Vec<Vec<Span>>,
    /// Names of adapters and their strengths.
    pub adapters: Vec<(String, f64)>,
}

/// Reads a prompt.
///
/// # Errors
/// `invalid_argument` saying where and what.
pub fn parse(text: &str, syntax: Syntax) -> Result<Parsed> {
    match syntax {
        Syntax::Plain => Ok(Parsed {
            parts: vec![vec![Span { text: text.to_owned(), weight: 1.0 }]],
            adapters: Vec::new(),
        }),
        Syntax::A1111 => {
            Reader { text, at: 0, items: Vec::new(), words: String::new(), open: Vec::new() }.read()
        }
    }
}

/// What a prompt is made of, in order.
enum Item {
    Words(Span),
    Break,
}

/// A bracket that waits for its end.
struct Open {
    bracket: char,
    at: usize,
    /// The first item inside.
    first: usize,
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    items: Vec<Item>,
    words: String,
    open: Vec<Open>,
}

impl Reader<'_> {
    fn read(mut self) -> Result<Parsed> {
        let mut adapters = Vec::new();
        while let Some(letter) = self.text[self.at..].chars().next() {
            let rest = &self.text[self.at + letter.len_utf8()..];
            match letter {
                '\\' if rest.starts_with(['(', ')', '[', ']', '\\']) => {
                    self.words.extend(rest.chars().next());
                    self.at += 1;
                }
                '(' | '[' => self.enter(letter)?,
                ')' | ']' => self.leave(letter)?,
                '<' => {
                    if let Some((adapter, length)) = self.adapter(rest)? {
                        adapters.push(adapter);
                        self.at += length;
                    } else {
                        self.words.push('<');
                    }
                }
                _ => self.word(letter)?,
            }
            self.at += letter.len_utf8();
        }
        if let Some(open) = self.open.last() {
            return Err(wrong(self.text, open.at, &format!("the {} is never closed", open.bracket)));
        }
        self.flush();
        Ok(Parsed { parts: parts(self.items), adapters })
    }

    /// What was read since the last bracket becomes an item.
    fn flush(&mut self) {
        let text = std::mem::take(&mut self.words);
        if !text.is_empty() {
            self.items.push(Item::Words(Span { text, weight: 1.0 }));
        }
    }

    fn enter(&mut self, bracket: char) -> Result<()> {
        if self.open.len() == DEPTH {
            return Err(wrong(self.text, self.at, &format!("brackets stand more than {DEPTH} deep")));
        }
        self.flush();
        self.open.push(Open { bracket, at: self.at, first: self.items.len() });
        Ok(())
    }

    fn leave(&mut self, bracket: char) -> Result<()> {
        let opener = if bracket == ')' { '(' } else { '[' };
        let open = self.open.pop().filter(|open| open.bracket == opener);
        let Some(open) = open else {
            return Err(wrong(self.text, self.at, &format!("this {bracket} closes nothing")));
        };
        let weight = if bracket == ')' { self.number()?.unwrap_or(STEP) } else { 1.0 / STEP };
        self.flush();
        for item in &mut self.items[open.first..] {
            if let Item::Words(span) = item {
                span.weight *= weight;
                if span.weight.abs() > LIMIT {
                    return Err(wrong(self.text, open.at, &format!("the weight is more than {LIMIT}")));
                }
            }
        }
        Ok(())
    }

    /// The number behind the last colon; other words there are words.
    fn number(&mut self) -> Result<Option<f64>> {
        let Some((words, number)) = self.words.rsplit_once(':') else { return Ok(None) };
        let number = number.trim();
        let is_meant = number.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'+' | b'-'));
        if !number.is_empty() && !is_meant {
            return Ok(None);
        }
        let Some(weight) = number.parse::<f64>().ok().filter(|weight| weight.abs() <= LIMIT) else {
            let what = format!("`{number}` is not a weight from -{LIMIT} to {LIMIT}");
            return Err(wrong(self.text, self.at, &what));
        };
        self.words = words.to_owned();
        Ok(Some(weight))
    }

    fn word(&mut self, letter: char) -> Result<()> {
        let inside = self.open.last().map(|open| open.bracket);
        if inside == Some('[') && matches!(letter, ':' | '|') {
            return Err(wrong(self.text, self.at, "words that change during the walk are not done here"));
        }
        if self.is_word("AND") {
            return Err(wrong(self.text, self.at, "several prompts joined by AND are not done here"));
        }
        if self.is_word("BREAK") {
            self.words.truncate(self.words.trim_end().len());
            self.flush();
            self.items.push(Item::Break);
            self.at += "BREAK".len() - 1;
        } else {
            self.words.push(letter);
        }
        Ok(())
    }

    /// Whether a whole word begins here.
    fn is_word(&self, word: &str) -> bool {
        let part = |letter: char| letter.is_alphanumeric() || letter == '_';
        let Some(rest) = self.text[self.at..].strip_prefix(word) else { return false };
        !self.text[..self.at].ends_with(part) && !rest.starts_with(part)
    }

    /// `lora:NAME[:STRENGTH]>`, and how long that is; none where `<` is only a sign.
    fn adapter(&self, rest: &str) -> Result<Option<((String, f64), usize)>> {
        let Some((kind, tail)) = rest.split_once(':') else { return Ok(None) };
        if kind.is_empty() || !kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Ok(None);
        }
        let wrong = |what: &str| Err(wrong(self.text, self.at, what));
        if !matches!(kind, "lora" | "lyco") {
            return wrong("of <…:…> only <lora:NAME:STRENGTH> is done here");
        }
        let Some((inner, _)) = tail.split_once('>') else { return wrong("this < is never closed") };
        let (name, strength) = inner.split_once(':').unwrap_or((inner, "1"));
        let strength = strength.trim().parse::<f64>().ok().filter(|strength| strength.abs() <= LIMIT);
        match strength {
            Some(strength) if !name.trim().is_empty() => {
                Ok(Some(((name.trim().to_owned(), strength), kind.len() + 1 + inner.len() + 1)))
            }
            _ => wrong("an adapter is <lora:NAME> or <lora:NAME:STRENGTH>, the strength from -10 to 10"),
        }
    }
}

/// Items between breaks; neighbours of one weight are read as one.
fn parts(items: Vec<Item>) -> Vec<Vec<Span>> {
    let mut parts: Vec<Vec<Span>> = vec![Vec::new()];
    for item in items {
        match item {
            Item::Break => parts.push(Vec::new()),
            Item::Words(span) => {
                let Some(part) = parts.last_mut() else { continue };
                match part.last_mut() {
                    Some(last) if (last.weight - span.weight).abs() < 1e-12 => {
                        last.text.push_str(&span.text);
                    }
                    _ => part.push(span),
                }
            }
        }
    }
    parts
}

fn wrong(text: &str, at: usize, what: &str) -> Error {
    let letter = text[..at].chars().count() + 1;
    Error::argument("prompt", format!("letter {letter} of the prompt: {what}"))
        .hint(r"write \( \) \[ \] for brackets that mean nothing, or take the plain syntax")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    fn spans(text: &str) -> Vec<(String, f64)> {
        let parsed = parse(text, Syntax::A1111).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(parsed.parts.len(), 1, "{text}");
        let rounded = |weight: f64| (weight * 1e6).round() / 1e6;
        parsed.parts.concat().into_iter().map(|span| (span.text, rounded(span.weight))).collect()
    }

    #[test]
    fn weights_are_those_of_the_description() {
        for (text, expected) in [
            ("a cat", &[("a cat", 1.0)][..]),
            ("a (cat)", &[("a ", 1.0), ("cat", 1.1)]),
            ("a ((cat))", &[("a ", 1.0), ("cat", 1.21)]),
            ("[cat] x", &[("cat", 0.909_091), (" x", 1.0)]),
            ("(cat:1.5)", &[("cat", 1.5)]),
            ("(cat : 0.25 )", &[("cat ", 0.25)]),
            ("(a (b:2) c:0.5)", &[("a ", 0.5), ("b", 1.0), (" c", 0.5)]),
            ("(a: b)", &[("a: b", 1.1)]),
            (r"\(a\) \[b\] \\ \c", &[(r"(a) [b] \ \c", 1.0)]),
            (r"(a \(b\):1.2)", &[("a (b)", 1.2)]),
            ("a:1.2 < b", &[("a:1.2 < b", 1.0)]),
            ("(([x]))", &[("x", 1.1)]),
            ("()", &[]),
            ("(é:1.3)ü", &[("é", 1.3), ("ü", 1.0)]),
            ("BREAKFAST SANDY", &[("BREAKFAST SANDY", 1.0)]),
        ] {
            let expected: Vec<_> =
                expected.iter().map(|(text, weight)| ((*text).to_owned(), *weight)).collect();
            assert_eq!(spans(text), expected, "{text}");
        }
    }

    #[test]
    fn breaks_and_adapters_leave_the_words() {
        let parsed =
            parse("a cat <lora:some style:0.7>, red BREAK blue <lora:b>", Syntax::A1111).expect("fine");
        let texts: Vec<String> =
            parsed.parts.iter().map(|part| part.iter().map(|span| span.text.as_str()).collect()).collect();
        assert_eq!(texts, ["a cat , red", " blue "]);
        assert_eq!(parsed.adapters, [("some style".to_owned(), 0.7), ("b".to_owned(), 1.0)]);
        let inside = parse("(a BREAK b:2)", Syntax::A1111).expect("fine");
        assert_eq!(inside.parts.len(), 2);
        assert!(inside.parts.concat().iter().all(|span| (span.weight - 2.0).abs() < 1e-9));
        let plain = parse("(a) BREAK <lora:x>", Syntax::Plain).expect("fine");
        assert_eq!((plain.parts[0][0].text.as_str(), plain.adapters.len()), ("(a) BREAK <lora:x>", 0));
    }

    #[test]
    fn what_is_malformed_or_not_done_is_refused() {
        let deep = "(".repeat(100_000);
        let high = format!("{}x{}", "(".repeat(30), ")".repeat(30));
        let wide = format!("{}x{}", "(".repeat(33), ")".repeat(33));
        for text in [
            "(a",
            "a)",
            "[a",
            "a]",
            "(a]",
            "[a)",
            "(a:)",
            "(a:1.2.3)",
            "(a:11)",
            "(a:-)",
            "((a:9):9)",
            "<lora:a",
            "<lora:>",
            "<lora::1>",
            "<lora:a:x>",
            "<lora:a:nan>",
            "<lora:a:1:2>",
            "<lora:a:99>",
            "<hypernet:a:1>",
            "[a:b:0.5]",
            "[a|b]",
            "a AND b",
            "\u{1f600}(",
            &deep,
            &high,
            &wide,
        ] {
            let error = parse(text, Syntax::A1111).expect_err(&text[..text.len().min(40)]);
            assert_eq!((error.code, error.param.as_deref()), (Code::InvalidArgument, Some("prompt")));
        }
    }
}
