//! `[IMAGE:…]` in words: where a text names a picture, the text and the pictures are told apart.
//!
//! # Source
//! The grammar of OpenHuman's markers: a data URL or a local path between `[IMAGE:` and `]`; what is empty or has no end
//! stays text; nothing is fetched. Paths pass the same policy as every other.

use super::input::{self, Image};
use super::{Desk, picture};
use crate::error::{Code, Error, Result};

/// What begins a marker.
const BEGIN: &str = "[IMAGE:";
/// Pictures of one text.
const IMAGES: usize = 4;
/// Bytes of one picture.
const BYTES: usize = 8 << 20;

/// A text without its markers, and what they name, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marked {
    /// The words, trimmed.
    pub text: String,
    /// What stood in the markers.
    pub images: Vec<String>,
}

impl Marked {
    /// Reads a text.
    ///
    /// # Errors
    /// `invalid_argument` for more pictures than are looked at; `url_not_allowed` for one that would have to be fetched.
    pub fn read(text: &str) -> Result<Self> {
        let mut marked = Self { text: String::new(), images: Vec::new() };
        let mut rest = text;
        while let Some(at) = rest.find(BEGIN) {
            let inner = &rest[at + BEGIN.len()..];
            let Some(end) = inner.find(']') else { break };
            let name = inner[..end].trim();
            marked.text.push_str(&rest[..at]);
            if name.is_empty() {
                marked.text.push_str(&rest[at..=at + BEGIN.len() + end]);
            } else {
                marked.images.push(name.to_owned());
            }
            rest = &inner[end + 1..];
        }
        marked.text.push_str(rest);
        marked.text = marked.text.trim().to_owned();
        if marked.images.len() > IMAGES {
            let message =
                format!("the text names {} pictures; at most {IMAGES} are looked at", marked.images.len());
            return Err(Error::argument("prompt", message));
        }
        let fetched = |name: &&String| {
            let start: String = name.chars().take(8).flat_map(char::to_lowercase).collect();
            start.starts_with("http://") || start.starts_with("https://")
        };
        if marked.images.iter().any(|name| fetched(&name)) {
            let error = Error::new(
                Code::UrlNotAllowed,
                "the text names a picture by its URL, and nothing is fetched",
            );
            return Err(Error { param: Some("prompt".into()), ..error });
        }
        Ok(marked)
    }

    /// The pictures that are named.
    ///
    /// # Errors
    /// What the policy says of a path; `unsupported_media_type`, `payload_too_large`.
    pub(super) fn open(&self, desk: &Desk) -> Result<Vec<Image>> {
        let open = |name: &String| {
            let image = if name.starts_with("data:") {
                input::from_base64("prompt", name)?
            } else {
                input::at_path(desk, "prompt", name)?
            };
            if image.bytes.len() > BYTES {
                let message = format!(
                    "a picture of the text has {} bytes; at most {BYTES} are read",
                    image.bytes.len()
                );
                return Err(Error {
                    param: Some("prompt".into()),
                    ..Error::new(Code::PayloadTooLarge, message)
                });
            }
            picture::decode(&image.bytes)?;
            Ok(image)
        };
        self.images.iter().map(open).collect()
    }

    /// The text with its markers behind it, a line each.
    pub fn written(&self) -> String {
        let lines = self.images.iter().map(|name| format!("{BEGIN}{name}]"));
        let lines = lines.collect::<Vec<_>>().join("\n");
        match (self.text.is_empty(), lines.is_empty()) {
            (_, true) => self.text.clone(),
            (true, false) => lines,
            (false, false) => format!("{}\n\n{lines}", self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_pictures_are_told_apart() {
        let marked =
            Marked::read("make [IMAGE: a.png] like [IMAGE:b c.jpg], not [IMAGE:] or [IMAGE:x").expect("fine");
        assert_eq!(marked.images, ["a.png", "b c.jpg"]);
        assert_eq!(marked.text, "make  like , not [IMAGE:] or [IMAGE:x");
        assert!(marked.written().ends_with("\n\n[IMAGE:a.png]\n[IMAGE:b c.jpg]"));
        assert_eq!(Marked::read("no marker").expect("fine").written(), "no marker");
        assert_eq!(Marked::read("[IMAGE:a]").expect("fine").written(), "[IMAGE:a]");
        assert_eq!(Marked::read(&"[IMAGE:a]".repeat(5)).expect_err("many").code, Code::InvalidArgument);
        assert_eq!(Marked::read("[IMAGE:HTTPS://x/y.png]").expect_err("far").code, Code::UrlNotAllowed);
    }
}
