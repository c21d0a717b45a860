//! The tools over the Model Context Protocol, on standard streams and at `/mcp`; the protocol itself is `rmcp`'s.

mod lines;
mod result;
mod server;

pub(super) use lines::message;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::common::http_header::HEADER_SESSION_ID;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServiceExt};
use serde_json::Value;

use crate::error::{Code, Error, Result};
use crate::tool::{Desk, REQUEST_BYTES};
use server::Server;

/// Seconds that a call may take before it hands back a job: most clients give up at sixty.
pub(super) const PATIENCE_S: u64 = 45;

/// How long a session may be silent: clients that are told to begin anew seldom do.
const SESSION_TIME: Duration = Duration::from_secs(60 * 60);

/// The protocol over HTTP, of both eras.
#[derive(Clone)]
pub(super) struct HttpService {
    /// A request is whole in itself: who closes its stream cancels it, and nothing is left to clean up.
    alone: StreamableHttpService<Server, NeverSessionManager>,
    /// Clients of the older era that shake hands cancel by naming a request, which only a session can tell apart.
    sessions: StreamableHttpService<Server, LocalSessionManager>,
}

impl HttpService {
    /// The service that is mounted at `/mcp`.
    pub(super) fn new(desk: Arc<Desk>, hosts: &[String], patience: u64) -> Self {
        let config = StreamableHttpServerConfig::default()
            // The guard before it knows the port, and lets pages of this server alone through.
            .with_allowed_hosts(hosts.iter().map(|host| host.trim_matches(['[', ']']).to_owned()))
            .with_allowed_origins(
                hosts.iter().flat_map(|host| [format!("http://{host}:*"), format!("https://{host}:*")]),
            )
            .enforce_origin_validation()
            .with_max_request_body_bytes(REQUEST_BYTES);
        let server = Server::new(desk, Duration::from_secs(patience));
        let serve = move || Ok(server.clone());
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(SESSION_TIME);
        Self {
            alone: StreamableHttpService::new(
                serve.clone(),
                Arc::default(),
                config.clone().with_legacy_session_mode(false),
            ),
            sessions: StreamableHttpService::new(serve, Arc::new(sessions), config),
        }
    }

    /// Answers a request whose body is `message`; no message where the method has none.
    pub(super) async fn answer(&self, request: Request, message: Option<&Value>) -> Response {
        let shakes_hands = message.is_some_and(|message| message["method"] == "initialize");
        let response = if shakes_hands || request.headers().contains_key(HEADER_SESSION_ID) {
            self.sessions.handle(request).await
        } else {
            self.alone.handle(request).await
        };
        response.map(Body::new)
    }
}

/// Serves on standard input and output until the client goes.
///
/// # Errors
/// `interrupted` if the streams break.
pub(super) fn serve_stdio(desk: Arc<Desk>, patience: u64) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::internal("no threads for the server").because(error))?;
    let jobs = Arc::clone(&desk);
    let outcome = runtime.block_on(async move {
        let broken =
            |error: String| Error::new(Code::Interrupted, "the client's streams broke").because(error);
        let (input, output, written) = lines::streams();
        let transport =
            AsyncRwTransport::<RoleServer, _, _>::new(input, output).with_max_line_length(REQUEST_BYTES);
        let server = Server::new(desk, Duration::from_secs(patience));
        let running = match server.serve(transport).await {
            Ok(running) => running,
            // A client that goes before it has said anything is no failure.
            Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            Err(error) => return Err(broken(error.to_string())),
        };
        let ended = running.waiting().await.map(drop).map_err(|error| broken(error.to_string()));
        // What is said last is written too.
        let _ = tokio::time::timeout(Duration::from_secs(1), written).await;
        ended
    });
    jobs.jobs().cancel_all();
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}
