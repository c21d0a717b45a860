//! Forms of OpenAI's clients: what comes in parts, as one JSON object.

use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{FromRequest, Multipart, Request};
use axum::http::{StatusCode, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::guard::body;
use crate::error::{Code, Error, Result};
use crate::tool;

/// Where pictures of a form are gathered.
pub(super) const PICTURES: &str = "images";

/// The object that a request sends: JSON as it is; of a form the words as text, the files in base64, and the keys of its
/// field `extra_json` beside them.
///
/// # Errors
/// `malformed_request` also for a field that comes twice, `payload_too_large`.
pub(super) async fn read(request: Request) -> Result<Value> {
    if !is_form(&request) {
        return tool::read_arguments(&body(request.into_body()).await?);
    }
    let mut parts = Multipart::from_request(request, &()).await.map_err(|error| {
        Error::new(Code::MalformedRequest, "the form cannot be read")
            .because(std::io::Error::other(error.body_text()))
    })?;
    let mut sent = Map::new();
    while let Some(part) = parts.next_field().await.map_err(broken)? {
        add(&mut sent, part).await?;
    }
    if let Some(Value::String(extra)) = sent.remove("extra_json") {
        for (name, value) in tool::read_arguments(extra.as_bytes())?.as_object().into_iter().flatten() {
            keep(&mut sent, name, value.clone())?;
        }
    }
    Ok(Value::Object(sent))
}

/// Whether a request is sent in parts.
pub(super) fn is_form(request: &Request) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("multipart/form-data"))
}

async fn add(sent: &mut Map<String, Value>, part: Field<'_>) -> Result<()> {
    let name = part.name().unwrap_or_default().to_owned();
    let is_file = part.file_name().is_some() || matches!(name.as_str(), "image" | "image[]" | "mask");
    let bytes = part.bytes().await.map_err(broken)?;
    if !is_file {
        let text = String::from_utf8(bytes.to_vec()).map_err(|error| {
            Error::new(Code::MalformedRequest, "a field of the form is no UTF-8").because(error)
        })?;
        return keep(sent, &name, text.into());
    }
    let picture = Value::String(STANDARD.encode(&bytes));
    match name.as_str() {
        "image" | "image[]" => match sent.entry(PICTURES).or_insert_with(|| Value::Array(Vec::new())) {
            Value::Array(pictures) => pictures.push(picture),
            _ => return Err(twice(PICTURES)),
        },
        "mask" => keep(sent, "mask_b64", picture)?,
        _ => {
            let shown: String = name.chars().take(80).flat_map(char::escape_default).collect();
            return Err(Error::argument(
                &shown,
                format!("`{shown}` is a file; files are `image` and `mask`"),
            ));
        }
    }
    Ok(())
}

fn keep(sent: &mut Map<String, Value>, name: &str, value: Value) -> Result<()> {
    if sent.insert(name.to_owned(), value).is_some() { Err(twice(name)) } else { Ok(()) }
}

fn twice(name: &str) -> Error {
    let shown: String = name.chars().take(80).flat_map(char::escape_default).collect();
    Error::new(Code::MalformedRequest, format!("the form has `{shown}` twice"))
}

fn broken(error: MultipartError) -> Error {
    let code = if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
        Code::PayloadTooLarge
    } else {
        Code::MalformedRequest
    };
    Error::new(code, "the form broke off or is too long").because(error)
}
