//! Answers that every route shares: errors as objects, one line a request in the log.

use std::future::{Ready, ready};
use std::hash::{BuildHasher, Hasher};
use std::io::{Write, stderr};
use std::time::Instant;

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::{Code, Error, Result};

/// Seconds to wait before a busy server is asked again.
const RETRY_S: &str = "5";

/// What a handler returns.
pub(super) type Answer = std::result::Result<Response, Refusal>;

/// An error on its way out.
pub(super) struct Refusal(Error);

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        refuse(&self.0)
    }
}

/// JSON with a status.
pub(super) fn json_of(status: StatusCode, value: &Value) -> Response {
    (status, axum::Json(value)).into_response()
}

/// The object of an error, with the status of its code.
pub(super) fn refuse(error: &Error) -> Response {
    let status = StatusCode::from_u16(error.code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut value = error.to_json();
    let id = request_id();
    value["error"]["request_id"] = json!(id);
    let mut response = json_of(status, &value);
    let headers = response.headers_mut();
    let retry = if error.code.retryable() { "true" } else { "false" };
    headers.insert("x-should-retry", HeaderValue::from_static(retry));
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert("x-request-id", id);
    }
    if matches!(error.code, Code::Busy | Code::OutOfMemory) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_S));
    }
    response
}

fn request_id() -> String {
    format!("req_{:016x}", std::collections::hash_map::RandomState::new().build_hasher().finish())
}

/// Work that blocks, away from the threads that wait.
///
/// # Errors
/// What the work says; `internal` if it panics.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Error::internal("a request died").because(error)))
}

/// The server is up.
pub(super) fn health() -> Ready<Response> {
    ready(json_of(StatusCode::OK, &json!({ "status": "ok" })))
}

/// Nothing is there.
pub(super) fn no_route() -> Ready<Response> {
    ready(refuse(
        &Error::new(Code::FileNotFound, "there is nothing at this address")
            .hint("GET /v1/tools lists the tools"),
    ))
}

/// Something is there, but not for this method.
pub(super) fn no_method() -> Ready<Response> {
    ready(refuse(&Error::new(Code::MethodNotAllowed, "this address takes another method")))
}

/// One line a request, without its words: method, path, status, time.
pub(super) async fn log(request: Request, next: Next) -> Response {
    let began = Instant::now();
    let path: String = request.uri().path().chars().take(200).flat_map(char::escape_default).collect();
    let method = request.method().clone();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    let _ = writeln!(stderr(), "{method} {path} {status} {} ms", began.elapsed().as_millis());
    response
}
