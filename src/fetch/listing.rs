//! What a hub says of a repository: revision, licence, gate, and every file with its size and digest.
//!
//! All of it is a stranger's word. A name is taken apart before it can become a path, a digest is hexadecimal or none,
//! a size is one that a file can have.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Code, Error, Result};

/// The answer to "what is in there", at most.
pub(super) const LISTING_BYTES: usize = 16 << 20;
/// Files of a repository, at most.
const FILES: usize = 100_000;
/// A file, at most: 4 TiB.
const FILE_BYTES: u64 = 4 << 40;

/// What the bytes of a file must hash to, in small hexadecimal letters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Digest {
    /// Of the bytes: what the hub has for large files.
    Sha256(String),
    /// Of git's blob with these bytes (SHA-1): what the hub has for small files.
    Git(String),
}

impl Digest {
    /// Reads 64 hexadecimal digits as one, 40 as the other.
    pub fn read(text: &str) -> Option<Self> {
        let hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        match text.len() {
            64 if hex => Some(Self::Sha256(text.to_owned())),
            40 if hex => Some(Self::Git(text.to_owned())),
            _ => None,
        }
    }

    /// The digits.
    pub fn hex(&self) -> &str {
        match self {
            Self::Sha256(hex) | Self::Git(hex) => hex,
        }
    }
}

/// A file that the hub lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its path in the repository, checked to stay in it.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// What it must hash to, where the hub says so; without, it is not fetched.
    pub digest: Option<Digest>,
}

/// What is in a repository.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) commit: String,
    pub(super) gated: bool,
    /// The licence that its makers name, in their word.
    pub(super) licence: Option<String>,
    pub(super) files: Vec<Listed>,
}

impl Listing {
    /// Reads the hub's answer about `repository`.
    ///
    /// # Errors
    /// `path_denied` for names that lead out of the repository, `download_corrupt` for what is no listing.
    pub(super) fn read(repository: &str, bytes: &[u8]) -> Result<Self> {
        let corrupt = |why: &str| {
            Error::new(Code::DownloadCorrupt, format!("the hub's listing of `{repository}` {why}"))
                .hint("is HF_ENDPOINT the address of a hub?")
        };
        let value: Value =
            serde_json::from_slice(bytes).map_err(|error| corrupt("is not JSON").because(error))?;
        let commit =
            value["sha"].as_str().and_then(Digest::read).ok_or_else(|| corrupt("names no commit"))?;
        let items = value["siblings"].as_array().ok_or_else(|| corrupt("has no files"))?;
        if items.len() > FILES {
            return Err(corrupt(&format!("has {} files, at most {FILES} are read", items.len())));
        }
        let mut files = Vec::with_capacity(items.len());
        for item in items {
            let path = item["rfilename"].as_str().ok_or_else(|| corrupt("has a file without a name"))?;
            if !stays_inside(path) {
                return Err(Error::new(
                    Code::PathDenied,
                    format!("the hub's listing of `{repository}` has a name that leads out of its folder"),
                ));
            }
            let size = item["lfs"]["size"].as_u64().or_else(|| item["size"].as_u64());
            let bytes = size.filter(|size| *size <= FILE_BYTES);
            let bytes = bytes.ok_or_else(|| corrupt(&format!("has no possible size for `{path}`")))?;
            if item["size"].as_u64().is_some_and(|other| other != bytes) {
                return Err(corrupt(&format!("has two sizes for `{path}`")));
            }
            let large = item["lfs"]["sha256"].as_str().or_else(|| item["lfs"]["oid"].as_str());
            let digest = large.or_else(|| item["blobId"].as_str());
            let digest = match digest.map(Digest::read) {
                Some(None) => return Err(corrupt(&format!("has no possible digest for `{path}`"))),
                known => known.flatten(),
            };
            files.push(Listed { path: path.to_owned(), bytes, digest });
        }
        let gated = !matches!(value["gated"], Value::Null | Value::Bool(false));
        let card = &value["cardData"];
        let licence = match card["license"].as_str() {
            // `other` has its name beside it.
            Some("other") => card["license_name"].as_str().or(Some("other")),
            named => named,
        };
        let plain = |text: &&str| text.len() <= 80 && text.chars().all(|c| c.is_ascii_graphic() || c == ' ');
        let licence = licence.filter(plain).map(str::to_owned);
        Ok(Self { commit: commit.hex().to_owned(), gated, licence, files })
    }
}

/// Whether a path of the hub names something below its own folder, on every system.
pub(super) fn stays_inside(path: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty() && part.len() <= 255 && part != "." && part != ".." && !part.ends_with(['.', ' '])
    };
    let plain = |c: char| !c.is_control() && !matches!(c, '\\' | ':' | '<' | '>' | '"' | '|' | '?' | '*');
    path.len() <= 1024
        && path.chars().all(plain)
        && path.split('/').count() <= 16
        && path.split('/').all(part)
}

/// Whether a name ends as weights do that are read here.
pub(super) fn is_weights(path: &str) -> bool {
    matches!(path.rsplit_once('.'), Some((_, "safetensors" | "gguf")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Listing> {
        Listing::read("a/b", text.replace("SHA", &"a".repeat(40)).as_bytes())
    }

    #[test]
    fn names_that_lead_out_are_refused() {
        for name in [
            "../x",
            "/abs/x",
            "a/../../x",
            "a//b",
            "",
            ".",
            "a\\\\b",
            "C:x",
            "a/",
            "x\\u0000",
            "a/..",
            "nul. ",
        ] {
            let text = format!(r#"{{"sha":"SHA","siblings":[{{"rfilename":"{name}","size":1}}]}}"#);
            assert_eq!(read(&text).expect_err("denied").code, Code::PathDenied, "{name}");
        }
        let text = r#"{"sha":"SHA","siblings":[{"rfilename":"unet/a b.json","size":1},{"rfilename":".gitattributes","size":2}]}"#;
        assert_eq!(read(text).expect("names").files.len(), 2);
    }

    #[test]
    fn sizes_digests_and_commits_are_possible_ones() {
        let file = |more: &str| format!(r#"{{"sha":"SHA","siblings":[{{"rfilename":"x"{more}}}]}}"#);
        for more in [
            "",
            r#","size":-1"#,
            r#","size":1e30"#,
            r#","size":18446744073709551615"#,
            r#","size":1,"blobId":"../../x""#,
            r#","size":1,"lfs":{"sha256":"abc","size":1}"#,
            r#","size":1,"lfs":{"size":2}"#,
        ] {
            assert_eq!(read(&file(more)).expect_err("corrupt").code, Code::DownloadCorrupt, "{more}");
        }
        for text in ["", "[]", "{}", r#"{"sha":"../x","siblings":[]}"#, r#"{"sha":"SHA"}"#, "<html>"] {
            assert_eq!(read(text).expect_err("corrupt").code, Code::DownloadCorrupt, "{text}");
        }
    }

    #[test]
    fn licence_and_gate_are_read() {
        let listing =
            |more: &str| read(&format!(r#"{{"sha":"SHA","siblings":[],{more}}}"#)).expect("a listing");
        let open = listing(r#""gated":false,"cardData":{"license":"apache-2.0"}"#);
        assert_eq!((open.gated, open.licence.as_deref()), (false, Some("apache-2.0")));
        let closed = listing(r#""gated":"auto","cardData":{"license":"other","license_name":"own"}"#);
        assert_eq!((closed.gated, closed.licence.as_deref()), (true, Some("own")));
    }
}
