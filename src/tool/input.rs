//! Pictures that come in: a ref to an artifact, base64, or a path that the policy allows. Never a URL.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_PAD_INDIFFERENT;
use serde_json::{Map, Value, json};

use super::Desk;
use super::answer::id_of;
use super::picture;
use crate::artifact::store::{Artifact, Id, SourceRef};
use crate::error::{Code, Error, Result};
use crate::studio;

/// Arguments that no schema shows, and that are answered all the same: the task by name.
pub(super) const HIDDEN: &[&str] = &["task"];

/// A picture that someone gave.
#[derive(Debug, Clone)]
pub(super) struct Image {
    /// The file's bytes.
    pub(super) bytes: Vec<u8>,
    /// Such as `image/png`.
    pub(super) content_type: &'static str,
    /// Columns and rows.
    pub(super) size: (u32, u32),
    /// The artifact that it is, if it came by ref.
    pub(super) artifact: Option<Id>,
}

/// How one picture may be given; at most one of them is.
#[derive(Debug, Default)]
pub(super) struct Given<'a> {
    pub(super) artifact: Option<&'a Map<String, Value>>,
    pub(super) b64: Option<&'a str>,
    pub(super) path: Option<&'a str>,
}

/// Refuses what would have to be fetched, before any other check.
pub(super) fn refused(arguments: &Value) -> Option<Error> {
    let is_url = |value: &Value| {
        let text =
            value.as_str().unwrap_or_default().trim_start().get(..8).unwrap_or_default().to_ascii_lowercase();
        ["http://", "https://", "file://", "ftp://"].iter().any(|scheme| text.starts_with(scheme))
    };
    let (name, _) = arguments.as_object()?.iter().find(|(name, value)| {
        !value.is_null()
            && (name.ends_with("_url")
                || (name.ends_with("_b64") || name.ends_with("_path")) && is_url(value))
    })?;
    let error = Error::new(Code::UrlNotAllowed, format!("`{name}` is a URL, and nothing is fetched"));
    let error = Error { param: Some(name.clone()), ..error };
    Some(error.hint("store the picture first and give its ref, or give its bytes in base64"))
}

impl Image {
    /// The pixels, in the studio's words.
    ///
    /// # Errors
    /// `image_corrupt`, `image_too_large`, naming the argument.
    pub(super) fn given(&self, name: &str) -> Result<studio::Given> {
        studio::Given::read(&self.bytes).map_err(|error| Error { param: Some(name.into()), ..error })
    }

    /// Where it is stored, if it is.
    pub(super) fn source(&self, role: &str) -> Option<SourceRef> {
        Some(SourceRef { role: role.into(), artifact: self.artifact.clone()? })
    }
}

impl Given<'_> {
    /// The picture, if one is given.
    ///
    /// # Errors
    /// `invalid_argument` naming the argument and the accepted forms; what the store and the policy say;
    /// `unsupported_media_type`, `image_corrupt`.
    pub(super) fn image(&self, desk: &Desk, name: &str) -> Result<Option<Image>> {
        let count = usize::from(self.artifact.is_some())
            + usize::from(self.b64.is_some())
            + usize::from(self.path.is_some());
        if count > 1 {
            let message = format!(
                "{name}: several pictures are given; give one of {name}_artifact, {name}_b64, {name}_path"
            );
            return Err(Error::argument(&format!("{name}_artifact"), message));
        }
        if let Some(reference) = self.artifact {
            return at_ref(desk, &format!("{name}_artifact"), reference).map(Some);
        }
        if let Some(text) = self.b64 {
            return from_base64(&format!("{name}_b64"), text).map(Some);
        }
        self.path.map(|path| at_path(desk, &format!("{name}_path"), path)).transpose()
    }

    /// The picture, which must be given.
    ///
    /// # Errors
    /// As [`Self::image`]; `invalid_argument` without one.
    pub(super) fn needed(&self, desk: &Desk, name: &str) -> Result<Image> {
        self.image(desk, name)?.ok_or_else(|| {
            let message = format!("either {name}_artifact or {name}_b64 is required");
            Error::argument(&format!("{name}_artifact"), message)
        })
    }
}

/// The artifact of a ref.
///
/// # Errors
/// `invalid_argument` if it is no ref; `artifact_not_found`; `artifact_mismatch` if its hash is another.
pub(super) fn resolve(desk: &Desk, name: &str, reference: &Map<String, Value>) -> Result<Artifact> {
    let id = ["$artifact", "artifact_id", "id"].iter().find_map(|key| reference.get(*key));
    let id = id.and_then(Value::as_str).filter(|id| !id.is_empty()).ok_or_else(|| {
        let message = format!("{name}: expected an artifact ref, an object with a text `$artifact`");
        Error::argument(name, message)
    })?;
    let error = |error: Error| match error.code {
        // What can be no id is no artifact of ours.
        Code::InvalidArgument => {
            let message = format!("{name}: there is no such artifact");
            Error { param: Some(name.into()), ..Error::new(Code::ArtifactNotFound, message) }
        }
        _ => Error { param: Some(name.into()), ..error },
    };
    let mut plain = json!({ "$artifact": id });
    if let Some(sha256) = reference.get("sha256") {
        plain["sha256"] = sha256.clone();
    }
    desk.store().resolve(&plain).map_err(error)
}

/// The picture of a ref.
fn at_ref(desk: &Desk, name: &str, reference: &Map<String, Value>) -> Result<Image> {
    let artifact = resolve(desk, name, reference)?;
    stored(desk, name, &artifact)
}

/// The picture of an artifact.
fn stored(desk: &Desk, name: &str, artifact: &Artifact) -> Result<Image> {
    let bytes =
        desk.store().get(&artifact.id).map_err(|error| Error { param: Some(name.into()), ..error })?;
    Ok(Image { artifact: Some(artifact.id.clone()), ..read(name, bytes)? })
}

/// The picture of a path, or of `latentia://artifacts/ID`.
///
/// # Errors
/// What the policy says; `artifact_not_found`; as [`read`].
pub(super) fn at_path(desk: &Desk, name: &str, path: &str) -> Result<Image> {
    if let Some(id) = id_of(path) {
        let reference = json!({ "$artifact": id });
        let reference = reference.as_object().cloned().unwrap_or_default();
        return at_ref(desk, name, &reference);
    }
    let bytes = desk.paths().read(name, path, picture::FILE_BYTES as u64)?;
    read(name, bytes)
}

/// What bytes show.
fn read(name: &str, bytes: Vec<u8>) -> Result<Image> {
    let named = |error: Error| Error { param: Some(name.into()), ..error };
    let content_type = picture::kind(&bytes).map_err(named)?;
    let size = picture::size(&bytes).map_err(named)?;
    Ok(Image { bytes, content_type, size, artifact: None })
}

/// The picture of a text in base64, or of a data URL.
///
/// # Errors
/// `invalid_argument` with the accepted forms, `unsupported_media_type`, `payload_too_large`, `image_corrupt`.
pub(super) fn from_base64(name: &str, text: &str) -> Result<Image> {
    let wrong = |what: &str| {
        let message = format!("{name}: {what}; expected base64, or a URL such as data:image/png;base64,…");
        Error::argument(name, message)
    };
    let text = text.trim();
    let body = if let Some(rest) = text.strip_prefix("data:") {
        let (head, body) = rest.split_once(',').ok_or_else(|| wrong("the data URL has no comma"))?;
        let kind = head.strip_suffix(";base64").ok_or_else(|| wrong("the data URL is not in base64"))?;
        let kind = kind.split(';').next().unwrap_or_default().to_ascii_lowercase();
        if !["image/png", "image/jpeg", "image/jpg", "image/webp", "image/gif", "application/octet-stream"]
            .contains(&kind.as_str())
        {
            let shown: String = kind.chars().take(40).flat_map(char::escape_default).collect();
            let message = format!("{name}: `{shown}` is no picture that is read here");
            let error = Error::new(Code::UnsupportedMediaType, message).hint("PNG, JPEG, WebP and GIF are");
            return Err(Error { param: Some(name.into()), ..error });
        }
        body
    } else {
        text
    };
    if body.len() / 4 * 3 > picture::FILE_BYTES + 4 {
        let message = format!("{name}: the picture's file is longer than {} bytes", picture::FILE_BYTES);
        return Err(Error { param: Some(name.into()), ..Error::new(Code::PayloadTooLarge, message) });
    }
    let letters: Vec<u8> = body.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    // Strict in its letters, lenient in its padding.
    let bytes = STANDARD_PAD_INDIFFERENT
        .decode(letters)
        .map_err(|error| wrong("this is not base64").because(error))?;
    if bytes.is_empty() {
        return Err(Error { code: Code::UnsupportedMediaType, ..wrong("there are no bytes") });
    }
    read(name, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIXEL: &str =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";

    #[test]
    fn base64_may_be_wrapped_and_unpadded_but_not_wrong() {
        let folded = format!("{}\n {}", &PIXEL[..40], PIXEL[40..].trim_end_matches('='));
        for text in [
            PIXEL,
            &folded,
            &format!("data:image/png;base64,{PIXEL}"),
            &format!("data:image/png;x=y;base64,{PIXEL}"),
        ] {
            let image = from_base64("image_b64", text).expect("a picture");
            assert_eq!((image.size, image.content_type), ((1, 1), "image/png"));
        }
        for (text, code) in [
            ("@@@not base64@@@", Code::InvalidArgument),
            ("", Code::UnsupportedMediaType),
            ("data:image/png;base64", Code::InvalidArgument),
            ("data:image/png,%89PNG", Code::InvalidArgument),
            ("data:text/html;base64,PHNjcmlwdD4=", Code::UnsupportedMediaType),
            ("aGVsbG8=", Code::UnsupportedMediaType),
        ] {
            let error = from_base64("image_b64", text).expect_err("must be refused");
            assert_eq!((error.code, error.param.as_deref()), (code, Some("image_b64")), "{text}");
        }
    }

    #[test]
    fn urls_are_refused_wherever_they_stand() {
        for arguments in [
            json!({ "image_url": "http://127.0.0.1/x.png" }),
            json!({ "image_b64": "https://example.org/x.png" }),
            json!({ "image_path": "FILE:///etc/passwd" }),
        ] {
            assert_eq!(refused(&arguments).map(|error| error.code), Some(Code::UrlNotAllowed), "{arguments}");
        }
        assert!(refused(&json!({ "image_url": null, "prompt": "http://x" })).is_none());
    }
}
