//! One request to a hub, with its redirects: what may be sent where, and what an answer means.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ureq::http::{HeaderMap, Response, StatusCode, Uri};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body};

use super::guard::{Origin, PublicAddresses, join, may_follow, refused};
use crate::error::{Code, Error, Result};

/// The public hub, where nobody names another.
pub const ENDPOINT: &str = "https://huggingface.co";

/// Redirects of one request.
const REDIRECTS: usize = 5;
/// Repetitions after failures that may pass.
const RETRIES: u32 = 5;
/// The longest wait that a server may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Who asks. Never shown, and sent to the hub's own origin alone.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Takes a token from `origin`, a variable or a file that is named if it holds none.
    ///
    /// # Errors
    /// `invalid_argument` for what cannot be a token; the message does not repeat it.
    pub fn new(text: &str, origin: &str) -> Result<Self> {
        let text = text.trim();
        let plain =
            !text.is_empty() && text.len() <= 4096 && text.bytes().all(|byte| byte.is_ascii_graphic());
        if plain {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::argument(
            origin,
            format!("{origin} holds no token: one word of plain letters is expected"),
        ))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

/// Certificates that connections are trusted by.
#[derive(Debug, Clone)]
pub struct Roots(RootCerts);

impl Default for Roots {
    /// Mozilla's, which are part of the binary.
    fn default() -> Self {
        Self(RootCerts::WebPki)
    }
}

impl Roots {
    /// Those of a PEM file, in place of Mozilla's; `origin` names it if it has none.
    ///
    /// # Errors
    /// `invalid_argument` for what holds no certificate.
    pub fn read(pem: &[u8], origin: &str) -> Result<Self> {
        let items: Vec<PemItem<'static>> = parse_pem(pem).collect::<Result<_, _>>().unwrap_or_default();
        let certificate = |item| match item {
            PemItem::Certificate(certificate) => Some(certificate),
            _ => None,
        };
        let certificates: Vec<_> = items.into_iter().filter_map(certificate).collect();
        if certificates.is_empty() {
            return Err(Error::argument(origin, format!("{origin} names a file without a PEM certificate")));
        }
        Ok(Self(certificates.into()))
    }
}

/// A hub that can be asked.
#[derive(Debug, Clone)]
pub struct Hub {
    endpoint: String,
    home: Origin,
    token: Option<Token>,
    agent: Agent,
    stopped: Arc<AtomicBool>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask<'a> {
    /// The path below the endpoint, with its query.
    pub(super) path: &'a str,
    /// What it is called in errors.
    pub(super) what: &'a str,
    /// Only the head; redirects to other hosts are not followed, for the head that counts is the hub's.
    pub(super) head: bool,
    /// The first byte wanted, and the etag that the bytes before it had.
    pub(super) range: Option<(u64, Option<&'a str>)>,
}

/// Why a request failed, and whether it may be repeated.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) again: bool,
    /// The wait that the server asks for.
    pub(super) wait: Option<Duration>,
    /// The status of the answer, if there was one.
    pub(super) status: Option<u16>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, again: false, wait: None, status: None }
    }
}

impl Failure {
    /// A failure that may pass.
    pub(super) fn passing(error: Error) -> Self {
        Self { error, again: true, wait: None, status: None }
    }
}

impl Hub {
    /// A hub at this address, as whom we ask it, and by which certificates it is trusted.
    ///
    /// # Errors
    /// `invalid_argument` if it is no address, or if a token would travel in the open.
    pub fn new(endpoint: &str, token: Option<Token>, roots: Roots) -> Result<Self> {
        let endpoint = endpoint.trim().trim_end_matches('/');
        let wrong = |why: &str| Error::argument("HF_ENDPOINT", format!("HF_ENDPOINT {why}"));
        let uri: Uri = endpoint.parse().map_err(|_| wrong("is no address"))?;
        let home = Origin::of(&uri).filter(|_| uri.query().is_none());
        let home = home.ok_or_else(|| wrong("is not https://HOST, without user and query"))?;
        if token.is_some() && !home.is_private_to_us() {
            return Err(wrong("has no TLS, and the token would be sent in the open")
                .hint("use an https address, or pull without a token: HF_TOKEN= HF_TOKEN_PATH="));
        }
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .tls_config(TlsConfig::builder().root_certs(roots.0).build())
            .user_agent(concat!("latentia/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(seconds(15))
            .timeout_connect(seconds(15))
            .timeout_send_request(seconds(15))
            .timeout_recv_response(seconds(30))
            .timeout_per_read(seconds(30))
            .timeout_per_write(seconds(30))
            .build();
        let agent =
            Agent::with_parts(config, DefaultConnector::new(), PublicAddresses { home: home.clone() });
        Ok(Self { endpoint: endpoint.to_owned(), home, token, agent, stopped: Arc::default() })
    }

    /// Breaks off every request, also those of other threads; this hub answers nothing after that.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.agent.clone().shutdown();
    }

    /// Whether it was stopped.
    pub(super) fn check(&self) -> Result<()> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(Error::new(Code::Cancelled, "cancelled"));
        }
        Ok(())
    }

    /// Asks, and follows redirects as far as they may lead. Only answers of success come back.
    pub(super) fn ask(&self, ask: &Ask<'_>) -> Result<Response<Body>, Failure> {
        let mut uri: Uri = format!("{}{}", self.endpoint, ask.path)
            .parse()
            .map_err(|_| Error::internal("a request's address cannot be read"))?;
        for _ in 0..=REDIRECTS {
            self.check()?;
            let at_home = Origin::of(&uri).is_some_and(|origin| origin == self.home);
            let answer = self.send(ask, &uri, at_home)?;
            let status = answer.status();
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                return if status.is_success() { Ok(answer) } else { Err(refusal(ask, &answer, at_home)) };
            }
            let location = answer.headers().get("location").and_then(|value| value.to_str().ok());
            let target = location.and_then(|location| join(&uri, location)).ok_or_else(|| {
                Error::new(Code::UrlNotAllowed, format!("the hub redirects `{}` to no address", ask.what))
            })?;
            let leaves = Origin::of(&target).is_none_or(|origin| origin != self.home);
            if ask.head && leaves {
                return Ok(answer);
            }
            may_follow(&self.home, &target)?;
            uri = target;
        }
        let message = format!("`{}` is redirected more than {REDIRECTS} times", ask.what);
        Err(Error::new(Code::DownloadFailed, message).into())
    }

    fn send(&self, ask: &Ask<'_>, uri: &Uri, at_home: bool) -> Result<Response<Body>, Failure> {
        let mut request = if ask.head { self.agent.head(uri) } else { self.agent.get(uri) };
        // Bytes are hashed as they are stored, so nothing may be packed on the way.
        request = request.header("accept-encoding", "identity");
        if let (Some(Token(token)), true) = (&self.token, at_home) {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if let Some((first, etag)) = ask.range {
            request = request.header("range", format!("bytes={first}-"));
            if let Some(etag) = etag {
                request = request.header("if-range", etag);
            }
        }
        request.call().map_err(|error| self.unreachable(ask, &error))
    }

    fn unreachable(&self, ask: &Ask<'_>, error: &ureq::Error) -> Failure {
        if let Err(cancelled) = self.check() {
            return cancelled.into();
        }
        if let Some(refused) = refused(error) {
            return refused.into();
        }
        let again =
            matches!(error, ureq::Error::Io(_) | ureq::Error::Timeout(_) | ureq::Error::ConnectionFailed);
        let why = spoken(error);
        let distrusted = why.contains("certificate");
        let hint = if distrusted {
            "where a proxy of your own stands between, SSL_CERT_FILE names the file of its certificate"
        } else {
            "the same command again goes on where this one ended"
        };
        let message = format!("`{}` cannot be fetched: {why}", ask.what);
        // Who is not trusted now is not trusted in a second.
        Failure { again: again && !distrusted, ..Error::new(Code::DownloadFailed, message).hint(hint).into() }
    }

    /// Repeats what may pass, with longer and longer waits, until it is done or was tried often enough.
    pub(super) fn patiently<T>(&self, mut work: impl FnMut() -> Result<T, Failure>) -> Result<T> {
        let mut tries = 0;
        loop {
            match work() {
                Ok(done) => return Ok(done),
                Err(failure) if failure.again && tries < RETRIES => {
                    self.rest(failure.wait.unwrap_or_else(|| pause(tries, 250)))?;
                    tries += 1;
                }
                Err(failure) => return Err(failure.error),
            }
        }
    }

    /// Waits, and wakes if the hub is stopped.
    pub(super) fn rest(&self, wait: Duration) -> Result<()> {
        let until = Instant::now() + wait;
        loop {
            self.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
    }
}

/// Twice as long every time, less up to a half, so that clients that failed together do not come back together.
pub(super) fn pause(tries: u32, first_ms: u64) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let whole = first_ms << tries.min(8);
    let chance = RandomState::new().hash_one(tries) % 1024;
    Duration::from_millis(whole - whole / 2 * chance / 1024)
}

/// What an answer that is no success means.
fn refusal(ask: &Ask<'_>, answer: &Response<Body>, at_home: bool) -> Failure {
    let (status, what) = (answer.status().as_u16(), ask.what);
    let code = header(answer.headers(), "x-error-code").unwrap_or("");
    let failed = |message: String| Error::new(Code::DownloadFailed, message);
    let missing =
        |message: String| Error { param: Some("model".into()), ..Error::new(Code::ModelNotFound, message) };
    match status {
        401 | 403 if at_home && code == "GatedRepo" => Error::new(
            Code::HubAuthRequired,
            format!("`{what}` is gated: its makers ask for an agreement first"),
        )
        .hint("agree on the model's page of the hub, then set HF_TOKEN to a token of that account")
        .into(),
        401 | 404 if at_home && code == "RepoNotFound" => {
            missing(format!("the hub has no repository for `{what}`"))
                .hint("check the name; for a private repository set HF_TOKEN")
                .into()
        }
        401 | 403 if at_home => Error::new(
            Code::HubAuthRequired,
            format!("the hub does not let us have `{what}`: it is private, or is not there"),
        )
        .hint("check the name; for a private repository set HF_TOKEN to a token that may read it")
        .into(),
        404 if at_home && code == "EntryNotFound" => {
            failed(format!("the hub lists `{what}` and does not have it")).into()
        }
        404 if at_home && code == "RevisionNotFound" => Error {
            param: Some("revision".into()),
            ..missing(format!("the hub has no such revision of `{what}`"))
        }
        .into(),
        404 | 410 if at_home => missing(format!("the hub has no `{what}`")).into(),
        // A signed address that grew old is refused; the hub gives a new one.
        401 | 403 | 404 | 408 | 410 | 425 | 429 | 500 | 502..=504 => {
            let wait = header(answer.headers(), "retry-after").and_then(|text| text.trim().parse().ok());
            let wait = wait.map(|seconds| Duration::from_secs(seconds).min(LONGEST_WAIT));
            let error = failed(format!("`{what}` cannot be fetched: the server answers {status}"))
                .hint("the same command again goes on where this one ended");
            Failure { wait, ..Failure::passing(error) }
        }
        _ => Failure {
            status: Some(status),
            ..failed(format!("`{what}` cannot be fetched: the server answers {status}")).into()
        },
    }
}

/// A header's text.
pub(super) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// What went wrong, without the address: signed ones hold secrets.
pub(super) fn spoken(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) => match error.downcast_inner() {
            Some(inner) => spoken(inner),
            None => error.to_string(),
        },
        ureq::Error::Timeout(_) => "the server took too long".into(),
        ureq::Error::HostNotFound => "there is no such host, or no network".into(),
        ureq::Error::ConnectionFailed => "no connection".into(),
        ureq::Error::Tls(why) => format!("TLS: {why}"),
        ureq::Error::Rustls(error) => format!("TLS: {error}"),
        ureq::Error::Protocol(error) => format!("the answer is not HTTP: {error}"),
        ureq::Error::LargeResponseHeader(..) => "the answer's head is too long".into(),
        _ => "the request failed".into(),
    }
}

/// The client's own error inside one of reading.
trait Inner {
    fn downcast_inner(&self) -> Option<&ureq::Error>;
}

impl Inner for std::io::Error {
    fn downcast_inner(&self) -> Option<&ureq::Error> {
        self.get_ref()?.downcast_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_word_and_is_never_shown() {
        let token = Token::new(" hf_secret\n", "HF_TOKEN").expect("a token");
        assert!(!format!("{token:?}").contains("secret"));
        let new = |address: &str, token| Hub::new(address, token, Roots::default());
        let hub = new("https://hub.example/", Some(token.clone())).expect("a hub");
        assert!(!format!("{hub:?}").contains("secret"));
        for wrong in ["", "two words", "line\nline", "\u{fc}"] {
            let error = Token::new(wrong, "HF_TOKEN").expect_err("no token");
            assert!(error.message.starts_with("HF_TOKEN"), "{error}");
        }
        assert_eq!(new("http://hub.example", Some(token)).expect_err("open").code, Code::InvalidArgument);
        assert!(new("http://hub.example", None).is_ok());
        for wrong in
            ["", "hub.example", "ftp://hub.example", "https://me@hub.example", "https://hub.example/?x"]
        {
            assert_eq!(new(wrong, None).expect_err("no address").code, Code::InvalidArgument, "{wrong}");
        }
    }

    #[test]
    fn a_file_of_roots_has_certificates() {
        for wrong in
            ["", "text", "-----BEGIN CERTIFICATE-----\nno\n", "-----BEGIN X-----\nAAAA\n-----END X-----\n"]
        {
            let error = Roots::read(wrong.as_bytes(), "SSL_CERT_FILE").expect_err("no roots");
            assert!(error.message.starts_with("SSL_CERT_FILE"), "{error}");
        }
        assert!(matches!(Roots::default().0, RootCerts::WebPki));
    }

    #[test]
    fn waits_grow_and_differ() {
        for tries in 0..5 {
            let wait = pause(tries, 100).as_millis();
            assert!((50 << tries..=100 << tries).contains(&wait), "{wait}");
        }
    }
}
