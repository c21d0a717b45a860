//! Artifacts: what is known of them, and their bytes, whole or in part.

use std::collections::HashMap;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, Response as HttpResponse, StatusCode, header};
use http_range_header::parse_range_header;
use serde_json::{Value, json};

use super::App;
use super::reply::{Answer, blocking, json_of};
use crate::artifact::store::{Artifact, Id, Query as Wanted};
use crate::error::{Code, Error, Result};

/// An id in an address; what can be none is not found.
fn id_of(text: &str) -> Result<Id> {
    Id::parse(text).map_err(|_| Error::new(Code::ArtifactNotFound, "there is no such artifact"))
}

/// `GET /v1/artifacts?limit=&after=`: refs, newest first.
pub(super) async fn list(State(app): State<App>, Query(query): Query<HashMap<String, String>>) -> Answer {
    let limit = query.get("limit").map_or(Ok(20), |text| text.parse::<usize>()).ok();
    let limit = limit.filter(|limit| (1..=100).contains(limit));
    let limit = limit.ok_or_else(|| Error::argument("limit", "limit is not from 1 to 100"))?;
    let after = query.get("after").cloned();
    let page =
        blocking(move || app.desk.store().list(&Wanted { limit: Some(limit), after, ..Wanted::default() }))
            .await?;
    let refs: Vec<Value> = page.artifacts.iter().map(Artifact::reference).collect();
    Ok(json_of(StatusCode::OK, &json!({ "object": "list", "data": refs, "next": page.next })))
}

/// `GET /v1/artifacts/{id}`: the record.
pub(super) async fn meta(State(app): State<App>, Path(id): Path<String>) -> Answer {
    let artifact = blocking(move || app.desk.store().meta(&id_of(&id)?)).await?;
    let mut value = json!(artifact);
    value["ref"] = artifact.reference();
    Ok(json_of(StatusCode::OK, &value))
}

/// `GET /v1/artifacts/{id}/content`: the bytes, checked against their hash, or the part that `Range` names.
pub(super) async fn content(State(app): State<App>, Path(id): Path<String>, headers: HeaderMap) -> Answer {
    let (artifact, bytes) = blocking(move || {
        let id = id_of(&id)?;
        Ok((app.desk.store().meta(&id)?, app.desk.store().get(&id)?))
    })
    .await?;
    let etag = format!("\"{}\"", artifact.sha256);
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let matches =
        |sent: &str| sent == "*" || sent.split(',').any(|one| one.trim().trim_start_matches("W/") == etag);
    let response = HttpResponse::builder()
        .header(header::ETAG, &etag)
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::CACHE_CONTROL, "private, max-age=31536000, immutable")
        // What a stranger stored is never run as a page of this server.
        .header(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
        .header(header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'")
        .header(header::CONTENT_DISPOSITION, disposition(&artifact))
        .header(header::CONTENT_TYPE, header_of(&artifact.content_type));
    if text(header::IF_NONE_MATCH).is_some_and(matches) {
        return finish(response.status(StatusCode::NOT_MODIFIED).body(Body::empty()));
    }
    // A part of another version is of no use.
    let ranged = text(header::RANGE).filter(|_| text(header::IF_RANGE).is_none_or(|sent| sent == etag));
    let whole = bytes.len() as u64;
    let Some(range) = ranged.and_then(|range| parse_range_header(range).ok()) else {
        return finish(response.header(header::CONTENT_LENGTH, whole).body(Body::from(bytes)));
    };
    match range.validate(whole).as_deref() {
        Ok([one]) => {
            let (start, end) = (*one.start(), *one.end());
            let part = bytes.get(start as usize..=end as usize).unwrap_or_default().to_vec();
            let response = response
                .status(StatusCode::PARTIAL_CONTENT)
                .header(header::CONTENT_RANGE, format!("bytes {start}-{end}/{whole}"))
                .header(header::CONTENT_LENGTH, part.len());
            finish(response.body(Body::from(part)))
        }
        // Several parts in one answer are allowed to be sent as the whole.
        Ok(_) => finish(response.header(header::CONTENT_LENGTH, whole).body(Body::from(bytes))),
        Err(_) => {
            let response = response
                .status(StatusCode::RANGE_NOT_SATISFIABLE)
                .header(header::CONTENT_RANGE, format!("bytes */{whole}"));
            finish(response.body(Body::empty()))
        }
    }
}

fn finish(response: std::result::Result<HttpResponse<Body>, axum::http::Error>) -> Answer {
    Ok(response.map_err(|error| Error::internal("an answer could not be written").because(error))?)
}

fn header_of(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("application/octet-stream"))
}

/// A name for whoever saves the file: letters that no header trips over.
fn disposition(artifact: &Artifact) -> HeaderValue {
    let name = artifact.filename.as_deref().unwrap_or(artifact.id.as_str());
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "._- ".contains(c) { c } else { '_' }).collect();
    header_of(&format!("inline; filename=\"{plain}\""))
}
