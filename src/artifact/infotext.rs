//! How a picture was made, in the one notation that all programs read.
//!
//! ```text
//! a red fox, sunset
//! Negative prompt: blurry
//! Steps: 20, Sampler: Euler a, CFG scale: 7, Seed: 1, Size: 512x512, Model hash: 0123456789, Model: name
//! ```
//!
//! # Source
//! Format as observed in files and in the readers of AUTOMATIC1111, sd-parse and stable-diffusion-image-metadata;
//! `interfaces.md` section 2.4. Written anew: the first of these programs is AGPL.

use std::fmt::{self, Write};
use std::iter::Peekable;
use std::str::CharIndices;

/// The line that begins the second prompt.
const NEGATIVE: &str = "Negative prompt:";

/// Fewer pairs than this are no settings but the last line of a prompt.
const FEWEST_PAIRS: usize = 3;

/// The settings of one picture. [`fmt::Display`] writes them, [`Infotext::parse`] reads them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Infotext {
    /// What should be seen.
    pub prompt: String,
    /// What should not.
    pub negative: String,
    /// Steps of the walk.
    pub steps: Option<usize>,
    /// The sampler, as AUTOMATIC1111 spells it: `Euler a`, `DPM++ 2M`.
    pub sampler: Option<String>,
    /// The spacing of noise levels, as it spells it: `Karras`.
    pub schedule: Option<String>,
    /// How strongly the prompt is followed.
    pub guidance: Option<f64>,
    /// The seed.
    pub seed: Option<u64>,
    /// Columns and rows.
    pub size: Option<(u32, u32)>,
    /// The first ten hexadecimal digits of the sha256 of the weights.
    pub model_hash: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// All else, in order: `Denoising strength`, `Clip skip`, `Version` …
    pub extra: Vec<(String, String)>,
}

impl Infotext {
    /// Reads a text, ours or another program's. Every text means something: at worst it is only a prompt.
    ///
    /// Settings that do not read as what they should be, such as a seed of -1, are kept in `extra`.
    pub fn parse(text: &str) -> Self {
        let mut info = Self::default();
        let mut lines: Vec<&str> = text.trim().lines().map(str::trim_end).collect();
        let settings = lines.last().map(|line| pairs(line)).filter(|pairs| pairs.len() >= FEWEST_PAIRS);
        if let Some(settings) = settings {
            lines.pop();
            for (key, value) in settings {
                info.set(key, value);
            }
        }
        let second = lines.iter().position(|line| line.starts_with(NEGATIVE)).unwrap_or(lines.len());
        let (prompt, negative) = lines.split_at(second);
        info.prompt = prompt.join("\n");
        let negative = negative.join("\n");
        negative.strip_prefix(NEGATIVE).unwrap_or_default().trim_start().clone_into(&mut info.negative);
        info
    }

    fn set(&mut self, key: String, value: String) {
        fn number<T: std::str::FromStr>(value: &str) -> Option<T> {
            value.parse().ok()
        }
        let size = |value: &str| {
            let (width, height) = value.split_once('x')?;
            Some((number(width)?, number(height)?))
        };
        match key.as_str() {
            "Steps" => self.steps = number(&value),
            "Sampler" => self.sampler = Some(value.clone()),
            "Schedule type" => self.schedule = Some(value.clone()),
            "CFG scale" => self.guidance = number(&value).filter(|guidance: &f64| guidance.is_finite()),
            "Seed" => self.seed = number(&value),
            "Size" => self.size = size(&value),
            "Model hash" => self.model_hash = Some(value.clone()),
            "Model" => self.model = Some(value.clone()),
            _ => {}
        }
        let understood = match key.as_str() {
            "Steps" => self.steps.is_some(),
            "CFG scale" => self.guidance.is_some(),
            "Seed" => self.seed.is_some(),
            "Size" => self.size.is_some(),
            key => matches!(key, "Sampler" | "Schedule type" | "Model hash" | "Model"),
        };
        if !understood {
            self.extra.push((key, value));
        }
    }
}

impl fmt::Display for Infotext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.prompt)?;
        if !self.negative.is_empty() {
            write!(f, "\n{NEGATIVE} {}", self.negative)?;
        }
        let mut line = String::new();
        let mut add = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                let comma = if line.is_empty() { "" } else { ", " };
                let _ = write!(line, "{comma}{key}: {}", quoted(&value));
            }
        };
        add("Steps", self.steps.map(|steps| steps.to_string()));
        add("Sampler", self.sampler.clone());
        add("Schedule type", self.schedule.clone());
        add("CFG scale", self.guidance.map(|guidance| guidance.to_string()));
        add("Seed", self.seed.map(|seed| seed.to_string()));
        add("Size", self.size.map(|(width, height)| format!("{width}x{height}")));
        add("Model hash", self.model_hash.clone());
        add("Model", self.model.clone());
        for (key, value) in &self.extra {
            add(key, Some(value.clone()));
        }
        write!(f, "\n{line}")
    }
}

/// A value that holds what separates values is written as JSON.
fn quoted(value: &str) -> String {
    if value.contains([',', ':', '\n', '\r']) || value.starts_with('"') || value.trim() != value {
        serde_json::Value::from(value).to_string()
    } else {
        value.to_owned()
    }
}

/// The pairs `key: value` of a line, separated by commas; what is no pair is passed over.
fn pairs(line: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let start = rest.trim_start();
        let (pair, length) = match key(start) {
            Some((key, after)) => {
                let after = after.trim_start();
                let (value, length) = value(after);
                (Some((key.to_owned(), value)), start.len() - after.len() + length)
            }
            None => (None, start.find(',').unwrap_or(start.len())),
        };
        pairs.extend(pair);
        rest = start[length..].strip_prefix(',').unwrap_or_default();
    }
    pairs
}

/// A key of at least two letters, digits, blanks, hyphens or slashes, and what follows its colon.
fn key(text: &str) -> Option<(&str, &str)> {
    let (key, rest) = text.split_once(':')?;
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let fits = key.starts_with(word) && key.chars().all(|c| word(c) || matches!(c, ' ' | '-' | '/'));
    (fits && key.chars().count() >= 2).then_some((key, rest))
}

/// A value and its length: JSON in quotes, or all up to the next comma.
fn value(text: &str) -> (String, usize) {
    if let Some(length) = quoted_length(&mut text.char_indices().peekable())
        && let rest = text[length..].trim_start()
        && (rest.is_empty() || rest.starts_with(','))
        && let Ok(value) = serde_json::from_str(&text[..length])
    {
        return (value, text.len() - rest.len());
    }
    let length = text.find(',').unwrap_or(text.len());
    (text[..length].trim_end().to_owned(), length)
}

/// How far a text in quotes goes, with both quotes.
fn quoted_length(chars: &mut Peekable<CharIndices<'_>>) -> Option<usize> {
    chars.next_if(|&(_, c)| c == '"')?;
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some(at + 1),
            '\\' => {
                chars.next();
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Infotext {
        Infotext {
            prompt: "a red fox, sunset\nsecond line: with (weights:1.2)".into(),
            negative: "blurry, bad\nhands".into(),
            steps: Some(20),
            sampler: Some("DPM++ 2M".into()),
            schedule: Some("Karras".into()),
            guidance: Some(7.5),
            seed: Some(u64::MAX),
            size: Some((512, 768)),
            model_hash: Some("0123456789".into()),
            model: Some("v1-5: pruned, \"ema\"".into()),
            extra: vec![
                ("Lora hashes".into(), "a: 1, b: 2\nc".into()),
                ("Version".into(), "latentia 0.1.0".into()),
            ],
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let text = full().to_string();
        assert!(text.ends_with(
            r#"Size: 512x768, Model hash: 0123456789, Model: "v1-5: pruned, \"ema\"", Lora hashes: "a: 1, b: 2\nc", Version: latentia 0.1.0"#
        ));
        assert!(text.contains("\nNegative prompt: blurry, bad\nhands\nSteps: 20, Sampler: DPM++ 2M, Schedule type: Karras, CFG scale: 7.5, Seed: 18446744073709551615, "));
        assert_eq!(Infotext::parse(&text), full());
        let plain = Infotext { negative: String::new(), guidance: Some(7.0), ..full() };
        assert!(plain.to_string().contains("CFG scale: 7, "));
        assert_eq!(Infotext::parse(&plain.to_string()), plain);
    }

    #[test]
    fn texts_of_other_programs_are_read() {
        let info = Infotext::parse(
            "cat, 1:1\r\nNegative prompt: dog\r\nSteps: 28, Sampler: Euler a, CFG scale: 7.0, Seed: -1, Size: 512x512,\
             Clip skip: 2, TI hashes: \"x: \\u00e9\", odd, : , Hires upscale: 2,\r\n",
        );
        assert_eq!((info.prompt.as_str(), info.negative.as_str()), ("cat, 1:1", "dog"));
        assert_eq!((info.steps, info.guidance, info.seed), (Some(28), Some(7.0), None));
        let extra = [("Seed", "-1"), ("Clip skip", "2"), ("TI hashes", "x: é"), ("Hires upscale", "2")];
        assert_eq!(info.extra, extra.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_last_line_with_few_pairs_is_prompt() {
        for text in ["only words", "one: pair, and: two", "", "Negative prompt: x"] {
            let info = Infotext::parse(text);
            assert_eq!(info.extra.len(), 0);
            assert_eq!(info.prompt, if text.starts_with("Neg") { "" } else { text });
        }
        assert_eq!(Infotext::parse("Negative prompt: x").negative, "x");
    }

    #[test]
    fn no_text_panics() {
        let text = full().to_string() + "é\"\\";
        for start in (0..text.len()).filter(|&at| text.is_char_boundary(at)) {
            for end in (start..text.len()).filter(|&at| text.is_char_boundary(at)) {
                let _ = Infotext::parse(&text[start..end]);
            }
        }
    }
}
