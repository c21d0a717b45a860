//! The tools over HTTP: native routes, OpenAI's for pictures, and MCP at `/mcp`.

mod artifacts;
mod form;
mod guard;
mod images;
mod models;
mod openai;
mod reply;
mod tools;
mod vision;

use std::io::{Write, stderr};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use super::mcp::HttpService;
use crate::error::{Code, Error, Result};
use crate::tool::{Desk, REQUEST_BYTES};

/// Connections at a time; more wait to be let in.
const CONNECTIONS: usize = 256;
/// How long a client may take to say what it wants.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// How long running answers may take once the server is told to stop.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How to serve.
pub(super) struct Options {
    /// Where to listen.
    pub(super) host: IpAddr,
    /// Where to listen.
    pub(super) port: u16,
    /// What clients must know.
    pub(super) token: Option<String>,
    /// Other names that the server is reached by.
    pub(super) hosts: Vec<String>,
    /// Seconds that a call over MCP may take.
    pub(super) patience: u64,
}

/// What every handler sees.
#[derive(Clone)]
struct App {
    desk: Arc<Desk>,
}

/// Serves until a signal ends it.
///
/// # Errors
/// `device_unavailable` if the address cannot be had.
pub(super) fn serve(desk: Arc<Desk>, options: Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::internal("no threads for the server").because(error))?;
    let outcome = runtime.block_on(listen(desk, options));
    // A job that does not look up is not waited for.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

async fn listen(desk: Arc<Desk>, options: Options) -> Result<()> {
    let failed = |error| {
        Error::new(Code::DeviceUnavailable, "the address cannot be listened at")
            .because(error)
            .hint("take another --port")
    };
    let listener = TcpListener::bind((options.host, options.port)).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let router = router(Arc::clone(&desk), &options, address);
    let _ = writeln!(stderr(), "latentia serves at http://{address}; Ctrl-C ends it");
    let (stop, stopped) = watch::channel(());
    tokio::select! {
        () = accept(listener, router, stopped) => {}
        () = ended() => {}
    }
    desk.jobs().cancel_all();
    drop(stop);
    let _ = writeln!(stderr(), "latentia stops");
    Ok(())
}

/// A signal that asks the process to end.
async fn ended() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut term) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = term.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}

/// Takes connections, so many at a time, each with a clock for its headers.
async fn accept(listener: TcpListener, router: Router, stopped: watch::Receiver<()>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let service = TowerToHyperService::new(router.clone());
        let mut stopped = stopped.clone();
        tokio::spawn(async move {
            let mut builder = http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIME)
                .max_headers(100)
                .max_buf_size(64 << 10);
            let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
            tokio::select! {
                _ = connection.as_mut() => {}
                _ = stopped.changed() => {
                    connection.as_mut().graceful_shutdown();
                    let _ = tokio::time::timeout(LAST_WORDS, connection).await;
                }
            }
            drop(place);
        });
    }
}

/// Every route.
fn router(desk: Arc<Desk>, options: &Options, address: SocketAddr) -> Router {
    let guard = Arc::new(guard::Guard::new(options, address));
    let mcp = HttpService::new(Arc::clone(&desk), guard.hosts(), options.patience);
    let app = App { desk };
    Router::new()
        .route("/v1/tools", get(tools::list))
        .route("/v1/tools/{name}", post(tools::call))
        .route("/v1/jobs/{id}", get(tools::job))
        .route("/v1/jobs/{id}/cancel", post(tools::cancel))
        .route("/v1/jobs/{id}/events", get(tools::events))
        .route("/v1/artifacts", get(artifacts::list))
        .route("/v1/artifacts/{id}", get(artifacts::meta))
        .route("/v1/artifacts/{id}/content", get(artifacts::content))
        .route("/v1/capabilities", get(tools::capabilities))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::one))
        .route("/v1/images/generations", post(images::generate))
        .route("/v1/images/edits", post(images::edit).layer(DefaultBodyLimit::max(REQUEST_BYTES)))
        .route("/v1/images/variations", post(images::vary).layer(DefaultBodyLimit::max(REQUEST_BYTES)))
        .route("/v1/vision/models", get(vision::models))
        .route("/v1/vision/model", get(vision::model))
        .route("/v1/vision/model/load", post(vision::load))
        .route("/v1/vision/model/unload", post(vision::unload))
        .route("/v1/vision/jobs/images/generations", post(vision::generate))
        .route("/v1/vision/jobs/images/edits", post(vision::edit).layer(DefaultBodyLimit::max(REQUEST_BYTES)))
        .route("/v1/vision/jobs/{id}", get(vision::job))
        .route("/health", get(reply::health))
        .route("/healthz", get(reply::health))
        .route("/readyz", get(reply::health))
        .fallback(reply::no_route)
        .method_not_allowed_fallback(reply::no_method)
        .with_state(app)
        .nest_service("/mcp", Router::new().fallback(guard::messages).with_state(mcp))
        .layer(from_fn_with_state(guard, guard::check))
        .layer(from_fn(reply::log))
}
