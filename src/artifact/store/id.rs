//! What an artifact is called: the first half of its digest.

use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// Hexadecimal digits of an id.
const DIGITS: usize = 32;

/// The first 32 hexadecimal digits of the sha256 of an artifact's bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Id(String);

impl Id {
    /// Reads an id: 32 digits, small letters, nothing else, so that it can be part of a file's name.
    ///
    /// # Errors
    /// `invalid_argument`.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() == DIGITS && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Ok(Self(text.to_owned()));
        }
        let shown: String = text.chars().take(40).flat_map(char::escape_default).collect();
        let message = format!("`{shown}` is no artifact's id, which has {DIGITS} hexadecimal digits");
        Err(Error::argument("artifact", message))
    }

    /// The id of bytes with this sha256.
    pub(super) fn of(sha256: &str) -> Self {
        Self(sha256.chars().take(DIGITS).collect())
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Id {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<Id> for String {
    fn from(id: Id) -> Self {
        id.0
    }
}

/// The sha256 of bytes, in hexadecimal.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_32_small_hexadecimal_digits() {
        let digest = sha256(b"");
        assert!(digest.starts_with("e3b0c44298fc1c149afbf4c8996fb924"));
        assert_eq!(Id::of(&digest).as_str(), &digest[..32]);
        let good = "e3b0c44298fc1c149afbf4c8996fb924";
        assert!(Id::parse(good).is_ok());
        for bad in [
            "",
            "..",
            &format!("{good}\n"),
            &good.to_uppercase(),
            &good[1..],
            "../../../../etc/passwd/0123456789",
        ] {
            assert!(Id::parse(bad).is_err(), "{bad:?}");
        }
    }
}
