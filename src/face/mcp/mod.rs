//! The tools over the Model Context Protocol, on standard streams and at `/mcp`; the protocol itself is `rmcp`'s.

mod lines;
mod result;
mod server;

pub(super) use lines::fault;

use std::sync::Arc;
use std::time::Duration;

use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServiceExt};

use crate::error::{Code, Error, Result};
use crate::tool::{Desk, REQUEST_BYTES};
use server::Server;

/// Seconds that a call may take before it hands back a job: most clients give up at sixty.
pub(super) const PATIENCE_S: u64 = 45;

/// The protocol over HTTP.
pub(super) type HttpService = StreamableHttpService<Server, NeverSessionManager>;

/// The service that is mounted at `/mcp`.
pub(super) fn http_service(desk: Arc<Desk>, hosts: &[String], patience: u64) -> HttpService {
    let config = StreamableHttpServerConfig::default()
        // A request is whole in itself: who closes its stream cancels it, and nothing is left to clean up.
        .with_legacy_session_mode(false)
        // The guard before it knows the port, and lets pages of this server alone through.
        .with_allowed_hosts(hosts.iter().map(|host| host.trim_matches(['[', ']']).to_owned()))
        .with_allowed_origins(
            hosts.iter().flat_map(|host| [format!("http://{host}:*"), format!("https://{host}:*")]),
        )
        .enforce_origin_validation()
        .with_max_request_body_bytes(REQUEST_BYTES);
    let server = Server::new(desk, Duration::from_secs(patience));
    StreamableHttpService::new(move || Ok(server.clone()), Arc::new(NeverSessionManager::default()), config)
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
