//! Who may ask at all: host, origin, token, kind and length of what is sent, before any route sees it.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use super::Options;
use super::reply::refuse;
use crate::error::{Code, Error, Result};
use crate::face::mcp::{HttpService, message};
use crate::tool::REQUEST_BYTES;
use crate::weights::sha256;

/// Where pictures may be sent as files of a form.
const FORMS: &[&str] = &["/v1/images/edits", "/v1/images/variations", "/v1/vision/jobs/images/edits"];

/// The rules.
pub(super) struct Guard {
    hosts: Vec<String>,
    /// Digests have one length, so that comparing tells nothing of the token's.
    token: Option<String>,
}

impl Guard {
    pub(super) fn new(options: &Options, address: SocketAddr) -> Self {
        let mut hosts = vec!["localhost".to_owned(), "127.0.0.1".into(), "[::1]".into()];
        if !address.ip().is_unspecified() {
            hosts.push(bracketed(address));
        }
        hosts.extend(options.hosts.iter().map(|host| host.to_lowercase()));
        let token = options.token.as_ref().map(|token| sha256(token.as_bytes()));
        Self { hosts, token }
    }

    /// The names that this server is reached by.
    pub(super) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// # Errors
    /// `host_denied`, `origin_denied`, `unauthorized`, `unsupported_media_type`, `payload_too_large`.
    fn check(&self, request: &Request) -> Result<()> {
        let headers = request.headers();
        let host = host(request).unwrap_or_default();
        if !self.hosts.contains(&without_port(&host)) {
            return Err(Error::new(Code::HostDenied, "the request is for another host")
                .hint("call the server by its address, or start it with --allow-host"));
        }
        if let Some(origin) = headers.get(header::ORIGIN)
            && origin
                .to_str()
                .ok()
                .and_then(|origin| origin.split_once("://"))
                .is_none_or(|(_, own)| own != host)
        {
            return Err(Error::new(Code::OriginDenied, "the request comes from another site"));
        }
        if !matches!(request.uri().path(), "/health" | "/healthz" | "/readyz") {
            self.check_token(headers)?;
        }
        let length =
            headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > REQUEST_BYTES as u64) {
            return Err(too_large());
        }
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_form = kind == "multipart/form-data" && FORMS.contains(&request.uri().path());
        if request.method() == Method::POST && kind != "application/json" && !is_form {
            return Err(Error::new(Code::UnsupportedMediaType, "the body must be application/json")
                .hint("send the header Content-Type: application/json"));
        }
        Ok(())
    }

    fn check_token(&self, headers: &HeaderMap) -> Result<()> {
        let Some(token) = &self.token else { return Ok(()) };
        let sent =
            headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let sent = sent
            .split_once(' ')
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, sent)| sent);
        let sent = sha256(sent.unwrap_or_default().trim().as_bytes());
        if bool::from(sent.as_bytes().ct_eq(token.as_bytes())) {
            return Ok(());
        }
        Err(Error::new(Code::Unauthorized, "the token is missing or wrong")
            .hint("send Authorization: Bearer TOKEN"))
    }
}

fn bracketed(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

/// The authority that a request is for.
fn host(request: &Request) -> Option<String> {
    let sent = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let host = sent.map(str::to_owned).or_else(|| request.uri().authority().map(ToString::to_string))?;
    Some(host.to_ascii_lowercase())
}

fn without_port(host: &str) -> String {
    let end = host
        .rfind(':')
        .filter(|at| host[at + 1..].bytes().all(|byte| byte.is_ascii_digit()) && !host.ends_with(']'));
    host[..end.unwrap_or(host.len())].to_owned()
}

fn too_large() -> Error {
    Error::new(Code::PayloadTooLarge, format!("the body has more than {REQUEST_BYTES} bytes"))
}

/// Lets a request through or refuses it.
pub(super) async fn check(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    match guard.check(&request) {
        Ok(()) => next.run(request).await,
        Err(error) => {
            let mut response = refuse(&error);
            if error.code == Code::Unauthorized {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            response
        }
    }
}

/// All of a body, and not a byte more than the limit.
///
/// # Errors
/// `payload_too_large`; `malformed_request` if it breaks off.
pub(super) async fn body(body: Body) -> Result<Bytes> {
    to_bytes(body, REQUEST_BYTES).await.map_err(|error| {
        let broken =
            std::error::Error::source(&error).is_some_and(<dyn std::error::Error>::is::<hyper::Error>);
        if broken { Error::new(Code::MalformedRequest, "the body broke off") } else { too_large() }
    })
}

/// What is sent to the protocol's service must be one message: batches have left the protocol, and a text that is no
/// message deserves an answer that says so.
pub(super) async fn messages(State(mcp): State<HttpService>, request: Request) -> Response {
    if request.method() != Method::POST {
        return mcp.answer(request, None).await;
    }
    let (parts, sent) = request.into_parts();
    let bytes = match body(sent).await {
        Ok(bytes) => bytes,
        Err(error) => return refuse(&error),
    };
    match message(&bytes) {
        Err(fault) => (StatusCode::BAD_REQUEST, axum::Json(fault)).into_response(),
        Ok(message) => mcp.answer(Request::from_parts(parts, Body::from(bytes)), Some(&message)).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_without_their_port() {
        for (host, bare) in [
            ("localhost:1", "localhost"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("a.example", "a.example"),
        ] {
            assert_eq!(without_port(host), bare);
        }
    }
}
