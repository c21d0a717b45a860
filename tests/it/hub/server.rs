//! A hub on loopback that says what it is told to say: the API of listings and files, and every way to do it wrong.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

/// The commit of every repository here.
pub(crate) const COMMIT: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HashMap<String, String>,
}

/// What is answered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Bytes a second, for those who want to be interrupted.
    pub(crate) pace: Option<usize>,
}

impl Answer {
    pub(crate) fn new(status: u16, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Self {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { status, headers, body: body.into(), pace: None }
    }
}

type Speak = dyn Fn(&Asked) -> Answer + Send + Sync;

/// A server that runs until it is dropped, and remembers what it was asked.
pub(crate) struct Server {
    address: SocketAddr,
    secure: bool,
    asked: Arc<Mutex<Vec<Asked>>>,
    ended: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start(speak: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        Self::run(None, Arc::new(speak))
    }

    /// The same over TLS, with the certificate of the fixtures.
    pub(crate) fn secure(speak: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let chain = vec![CertificateDer::from_pem_file(tls("certificate.pem")).expect("a certificate")];
        let key = PrivateKeyDer::from_pem_file(tls("key.pem")).expect("a key");
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
        Self::run(Some(Arc::new(config.expect("they belong together"))), Arc::new(speak))
    }

    fn run(tls: Option<Arc<ServerConfig>>, speak: Arc<Speak>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let secure = tls.is_some();
        let (asked, ended) = (Arc::<Mutex<Vec<Asked>>>::default(), Arc::<AtomicBool>::default());
        let (log, end) = (Arc::clone(&asked), Arc::clone(&ended));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if end.load(Ordering::Relaxed) {
                    return;
                }
                let (log, speak, tls) = (Arc::clone(&log), Arc::clone(&speak), tls.clone());
                thread::spawn(move || connection(stream, tls, &log, &*speak));
            }
        });
        Self { address, secure, asked, ended }
    }

    pub(crate) fn url(&self) -> String {
        format!("http{}://{}", if self.secure { "s" } else { "" }, self.address)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("the log").clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

/// A file of the fixtures.
pub(crate) fn tls(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls").join(name)
}

/// One connection, one request: whatever the answer, the connection ends after it.
fn connection(stream: TcpStream, tls: Option<Arc<ServerConfig>>, log: &Mutex<Vec<Asked>>, speak: &Speak) {
    let mut stream = match tls {
        None => {
            serve(&stream, log, speak);
            stream
        }
        Some(config) => {
            let Ok(server) = ServerConnection::new(config) else { return };
            let mut secure = StreamOwned::new(server, stream);
            serve(&mut secure, log, speak);
            secure.conn.send_close_notify();
            let _ = secure.flush();
            secure.sock
        }
    };
    // Read to the end, so that closing does not reset what was sent.
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    let _ = stream.read(&mut [0; 1]);
}

fn serve(stream: impl Read + Write, log: &Mutex<Vec<Asked>>, speak: &Speak) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return };
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    let asked = Asked { method, path, headers };
    log.lock().expect("the log").push(asked.clone());
    let _ = write(reader.into_inner(), &speak(&asked), asked.method == "HEAD");
}

fn write(mut stream: impl Write, answer: &Answer, head: bool) -> std::io::Result<()> {
    let mut text = format!("HTTP/1.1 {} X\r\nconnection: close\r\n", answer.status);
    for (name, value) in &answer.headers {
        text.extend([name, ": ", value, "\r\n"]);
    }
    text.push_str("\r\n");
    stream.write_all(text.as_bytes())?;
    if !head {
        match answer.pace {
            None => stream.write_all(&answer.body)?,
            Some(pace) => {
                for chunk in answer.body.chunks((pace / 50).max(1)) {
                    stream.write_all(chunk)?;
                    thread::sleep(Duration::from_millis(20));
                }
            }
        }
    }
    stream.flush()
}

/// A file of a good repository.
#[derive(Debug, Clone)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
    /// Large files have a sha256 in the listing, small ones only git's digest.
    pub(crate) large: bool,
}

impl File {
    pub(crate) fn large(path: &str, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), bytes: bytes.into(), large: true }
    }

    pub(crate) fn small(path: &str, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), bytes: bytes.into(), large: false }
    }

    pub(crate) fn digest(&self) -> String {
        if self.large { latentia::weights::sha256(&self.bytes) } else { git(&self.bytes) }
    }

    /// As the hub lists it.
    pub(crate) fn listed(&self) -> Value {
        let mut item =
            json!({ "rfilename": self.path, "size": self.bytes.len(), "blobId": git(&self.bytes) });
        if self.large {
            item["lfs"] = json!({ "sha256": self.digest(), "size": self.bytes.len(), "pointerSize": 130 });
        }
        item
    }
}

/// What git calls a blob with these bytes.
fn git(bytes: &[u8]) -> String {
    use sha1::{Digest, Sha1};
    let mut sum = Sha1::new();
    sum.update(format!("blob {}\0", bytes.len()));
    sum.update(bytes);
    let digit = |half: u8| char::from_digit(half.into(), 16).expect("a digit");
    sum.finalize().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The answer to "what is in there".
pub(crate) fn listing(files: &[Value], more: &Value) -> Answer {
    let mut value = json!({ "sha": COMMIT, "gated": false, "siblings": files });
    for (key, fact) in more.as_object().into_iter().flatten() {
        value[key] = fact.clone();
    }
    let text = value.to_string();
    Answer::new(
        200,
        &[("content-type", "application/json"), ("content-length", &text.len().to_string())],
        text,
    )
}

/// What a good hub answers: heads with digests, ranges, an etag of its own for the bytes.
pub(crate) fn good(files: &[File], asked: &Asked) -> Answer {
    if asked.path.starts_with("/api/models/") {
        let items: Vec<Value> = files.iter().map(File::listed).collect();
        return listing(&items, &json!({ "cardData": { "license": "apache-2.0" } }));
    }
    let Some((_, path)) = asked.path.split_once(&format!("/resolve/{COMMIT}/")) else {
        return Answer::new(404, &[("x-error-code", "RepoNotFound")], "");
    };
    let Some(file) = files.iter().find(|file| file.path == path.replace("%20", " ")) else {
        return Answer::new(404, &[("x-error-code", "EntryNotFound")], "");
    };
    let total = file.bytes.len();
    let (linked, etag) = (format!("\"{}\"", file.digest()), format!("\"bytes-{}\"", &file.digest()[..8]));
    if asked.method == "HEAD" {
        let length = total.to_string();
        return Answer::new(
            200,
            &[
                ("x-repo-commit", COMMIT),
                ("x-linked-etag", &linked),
                ("x-linked-size", &length),
                ("content-length", &length),
            ],
            "",
        );
    }
    let same = asked.headers.get("if-range").is_none_or(|asked| *asked == etag);
    let first = asked
        .headers
        .get("range")
        .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    match first.filter(|&first: &usize| same && first < total) {
        Some(first) => Answer::new(
            206,
            &[
                ("content-length", &(total - first).to_string()),
                ("content-range", &format!("bytes {first}-{}/{total}", total - 1)),
                ("etag", &etag),
            ],
            &file.bytes[first..],
        ),
        None => {
            Answer::new(200, &[("content-length", &total.to_string()), ("etag", &etag)], file.bytes.clone())
        }
    }
}
