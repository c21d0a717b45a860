//! What a pull would bring, before it brings anything.

use std::io::Read;

use serde_json::Value;

use super::choice::{INDEX, choose};
use super::hub::{Ask, Failure, Hub};
use super::listing::{Digest, LISTING_BYTES, Listed, Listing, stays_inside};
use super::pull::while_listening;
use super::transfer::{Sums, check_head};
use crate::error::{Code, Error, Result};
use crate::event::Watch;

/// A `model_index.json`, at most.
const INDEX_BYTES: usize = 1 << 20;

/// What the user asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// `organisation/name`.
    pub repository: String,
    /// A branch, a tag or a commit.
    pub revision: String,
    /// A precision of a pipeline, or a file of a repository of several.
    pub variant: Option<String>,
    /// What somebody has recorded of the files: they must be these.
    pub pinned: Vec<Pinned>,
}

/// A file that was recorded before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinned {
    /// Its path in the repository.
    pub path: String,
    /// Its size.
    pub bytes: Option<u64>,
    /// What its bytes hash to.
    pub sha256: Option<String>,
}

/// What would be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The repository.
    pub repository: String,
    /// The revision that was asked for.
    pub revision: String,
    /// The commit that it is.
    pub commit: String,
    /// Which form of the weights, if there are several.
    pub variant: Option<String>,
    /// Whether the makers ask for an agreement.
    pub gated: bool,
    /// The licence that its makers name, in their word.
    pub licence: Option<String>,
    /// The files, each with its size and digest.
    pub files: Vec<Listed>,
    /// Files of weights that were left out because they can run code.
    pub pickles: usize,
}

impl Plan {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The path of a file in requests.
    pub(super) fn address(&self, file: &str) -> String {
        format!("/{}/resolve/{}/{}", self.repository, self.commit, encoded(file, "/"))
    }
}

/// Asks the hub, and chooses what one model needs; nothing is written.
///
/// # Errors
/// `invalid_argument` for names that cannot be; `model_not_found`, `hub_auth_required`; `path_denied` and
/// `download_corrupt` for listings that are wrong; `unsupported_format` if there are only pickles; `download_failed`.
pub fn plan(hub: &Hub, wanted: &Wanted, watch: &mut Watch<'_>) -> Result<Plan> {
    check_repository(&wanted.repository)?;
    check_revision(&wanted.revision)?;
    while_listening(hub, watch, || settle(hub, wanted))
}

fn settle(hub: &Hub, wanted: &Wanted) -> Result<Plan> {
    let Wanted { repository, revision, variant, pinned } = wanted;
    let path = format!("/api/models/{repository}/revision/{}?blobs=true", encoded(revision, ""));
    let listing = read(hub, &path, repository, LISTING_BYTES)?;
    let mut listing = Listing::read(repository, &listing)?;
    let mut plan = Plan {
        repository: repository.clone(),
        revision: revision.clone(),
        commit: std::mem::take(&mut listing.commit),
        variant: None,
        gated: listing.gated,
        licence: listing.licence.take(),
        files: Vec::new(),
        pickles: 0,
    };
    let index = listing.files.iter().find(|file| file.path == INDEX);
    let index = index.map(|file| index_of(hub, &plan, file)).transpose()?;
    let choice = choose(&listing.files, index.as_ref(), variant.as_deref())
        .map_err(|error| error.within(repository))?;
    plan.files = choice.files;
    plan.variant = choice.variant;
    plan.pickles = choice.pickles;
    for file in &plan.files {
        if file.digest.is_none() {
            let message = format!("the hub names no digest for `{}`, so it cannot be checked", file.path);
            return Err(Error::new(Code::DownloadCorrupt, message));
        }
    }
    hold(pinned, &mut plan.files)?;
    Ok(plan)
}

/// Reads a repository's index of parts, and compares it with its digest.
fn index_of(hub: &Hub, plan: &Plan, file: &Listed) -> Result<Value> {
    let corrupt = |why: &str| Error::new(Code::DownloadCorrupt, format!("`{}` {why}", file.path));
    if file.bytes > INDEX_BYTES as u64 {
        return Err(corrupt("is too large to be an index"));
    }
    let address = plan.address(&file.path);
    hub.patiently(|| check_head(hub, plan, file, &address))?;
    let bytes = read(hub, &address, &file.path, INDEX_BYTES)?;
    let mut sums = Sums::new(file.bytes);
    sums.update(&bytes);
    if !file.digest.as_ref().is_some_and(|digest| sums.finish(digest).1) {
        return Err(corrupt("does not hash to what the hub lists"));
    }
    // Python writes minus infinity as a bare word.
    let text = String::from_utf8_lossy(&bytes).replace(": -Infinity", ": null");
    serde_json::from_str(&text).map_err(|error| corrupt("is not JSON").because(error))
}

/// Reads an answer into memory.
fn read(hub: &Hub, path: &str, what: &str, limit: usize) -> Result<Vec<u8>> {
    hub.patiently(|| {
        let answer = hub.ask(&Ask { path, what, head: false, range: None })?;
        let mut bytes = Vec::new();
        let mut body = answer.into_body().into_reader().take(limit as u64 + 1);
        body.read_to_end(&mut bytes).map_err(|error| {
            let message = format!("the hub's answer about `{what}` broke off: {}", error.kind());
            Failure::passing(Error::new(Code::DownloadFailed, message))
        })?;
        if bytes.len() > limit {
            let message = format!("the hub's answer about `{what}` has more than {limit} bytes");
            return Err(Error::new(Code::DownloadCorrupt, message).into());
        }
        Ok(bytes)
    })
}

/// Compares what somebody has recorded with what the hub lists, and takes over stronger digests.
fn hold(pinned: &[Pinned], files: &mut [Listed]) -> Result<()> {
    for pin in pinned {
        let other = |what: &str| {
            Error::new(
                Code::DownloadCorrupt,
                format!("`{}` on the hub is not the one that was recorded: {what}", pin.path),
            )
            .hint(
                "its makers have changed it; --revision main takes what is there now, whatever was recorded",
            )
        };
        let file = files.iter_mut().find(|file| file.path == pin.path);
        let file = file.ok_or_else(|| other("it is not there"))?;
        if pin.bytes.is_some_and(|bytes| bytes != file.bytes) {
            return Err(other(&format!("it has {} bytes", file.bytes)));
        }
        if let Some(sha256) = &pin.sha256 {
            match &file.digest {
                Some(Digest::Sha256(listed)) if listed != sha256 => return Err(other("its sha256 differs")),
                _ => file.digest = Some(Digest::Sha256(sha256.clone())),
            }
        }
    }
    Ok(())
}

/// Whether a name can be a repository's.
///
/// # Errors
/// `invalid_argument`.
pub fn check_repository(name: &str) -> Result<()> {
    let part = |part: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let start = |c: char| c.is_ascii_alphanumeric() || c == '_';
        (1..=96).contains(&part.len())
            && part.starts_with(start)
            && part.chars().all(fits)
            && !part.contains("..")
    };
    if name.split('/').count() == 2 && name.split('/').all(part) {
        return Ok(());
    }
    let shown: String = name.chars().take(60).flat_map(char::escape_debug).collect();
    Err(Error::argument(
        "model",
        format!("`{shown}` is neither a name that `latentia models --available` lists nor ORGANISATION/NAME"),
    ))
}

fn check_revision(name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    if stays_inside(name) && name.len() <= 200 && name.chars().all(fits) {
        return Ok(());
    }
    Err(Error::argument("revision", "the revision is no branch, tag or commit"))
}

/// A text in an address; `also` are signs that stay as they are.
fn encoded(text: &str, also: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        let sign = char::from(byte);
        if byte.is_ascii_alphanumeric() || matches!(sign, '-' | '_' | '.' | '~') || also.contains(sign) {
            out.push(sign);
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_and_revisions_are_names() {
        for name in ["org/name", "stable-diffusion-v1-5/stable-diffusion-v1-5", "_a/b.c"] {
            assert!(check_repository(name).is_ok(), "{name}");
        }
        for name in ["", "name", "a/b/c", "../x", "a/..", "a/b?c", "a/b c", "-a/b", "a/b#", "a//", "a/%2e"] {
            assert_eq!(check_repository(name).expect_err("no name").code, Code::InvalidArgument, "{name}");
        }
        assert!(check_revision("refs/pr/1").is_ok() && check_revision("v1.0").is_ok());
        for name in ["", "..", "a/../b", "a b", "a?b"] {
            assert!(check_revision(name).is_err(), "{name}");
        }
        assert_eq!(encoded("a b/ü#.txt", "/"), "a%20b/%C3%BC%23.txt");
    }

    #[test]
    fn what_was_recorded_holds() {
        let file =
            |digest: &str| Listed { path: "x".into(), bytes: 1, digest: Digest::read(&digest.repeat(64)) };
        let pin = |bytes, sha256: Option<&str>| {
            vec![Pinned { path: "x".into(), bytes, sha256: sha256.map(|digit| digit.repeat(64)) }]
        };
        assert!(hold(&pin(Some(1), Some("a")), &mut [file("a")]).is_ok());
        for (pinned, mut files) in [
            (pin(Some(2), None), vec![file("a")]),
            (pin(None, Some("b")), vec![file("a")]),
            (pin(None, None), vec![]),
        ] {
            assert_eq!(hold(&pinned, &mut files).expect_err("another").code, Code::DownloadCorrupt);
        }
    }
}
