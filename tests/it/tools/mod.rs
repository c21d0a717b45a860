//! The tools on every face: the command line, HTTP and MCP give one answer.

mod calls;
mod contract;
mod hostile;
mod http;
mod images;
mod jobs;
mod mcp;
mod vision;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// A workspace with a store beside it, and a place that tools must not touch.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["workspace", "outside", "home"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    /// `latentia ARGUMENTS --store … --workspace …`
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_latentia"));
        command
            .args(arguments)
            .arg("--store")
            .arg(self.path("store"))
            .arg("--workspace")
            .arg(self.path("workspace"));
        command
            .env("LATENTIA_HOME", self.path("home"))
            .env_remove("LATENTIA_TOKEN")
            .current_dir(self.path("workspace"));
        command
    }

    /// `latentia tools call NAME -`, with the arguments on standard input.
    pub(crate) fn call_raw(&self, name: &str, arguments: &[u8], more: &[&str]) -> Output {
        let mut command = self.command(&["tools", "call", name, "-", "--quiet"]);
        command.args(more).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A refusal may come before everything is read.
        let _ = child.stdin.take().unwrap().write_all(arguments);
        child.wait_with_output().unwrap()
    }

    pub(crate) fn call(&self, name: &str, arguments: &Value) -> Value {
        let output = self.call_raw(name, arguments.to_string().as_bytes(), &[]);
        let text = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| {
            panic!("{error}: {text} {}", String::from_utf8_lossy(&output.stderr));
        })
    }

    /// A server on a port of its own.
    pub(crate) fn serve(&self, more: &[&str]) -> Server {
        let mut command = self.command(&["serve", "--port", "0"]);
        let mut child = command.args(more).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        let address = first.split("http://").nth(1).and_then(|rest| rest.split(';').next());
        let address = address.unwrap_or_else(|| panic!("no address in {first:?}")).to_owned();
        // What the server says is read to the end, so that it never waits for us.
        let log = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = lines.read_to_string(&mut text);
            text
        });
        Server { child, address, log: Some(log) }
    }

    /// A client of `latentia mcp`, through its first handshake.
    pub(crate) fn mcp(&self, more: &[&str]) -> Client {
        let mut command = self.command(&["mcp"]);
        command.args(more).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut client = Client { child, input: Some(input), output };
        let hello = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        });
        let answer = client.request(1000, "initialize", &hello);
        assert_eq!(answer["result"]["serverInfo"]["name"], "latentia", "{answer}");
        client.send(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        client
    }
}

/// A running `latentia serve`.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    log: Option<std::thread::JoinHandle<String>>,
}

impl Server {
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Sends bytes and reads the answer to its end.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Reply {
        let mut stream = self.connect();
        // A refusal may come before everything is sent.
        let _ = stream.write_all(bytes);
        Reply::read(&mut stream)
    }

    pub(crate) fn request(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Reply {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
            self.address,
            body.len()
        );
        self.raw(&[head.as_bytes(), body].concat())
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.request("GET", path, "", b"")
    }

    pub(crate) fn post(&self, path: &str, body: &[u8]) -> Reply {
        self.request("POST", path, "Content-Type: application/json\r\n", body)
    }

    /// One message to `/mcp`.
    pub(crate) fn mcp(&self, message: &[u8]) -> Reply {
        let headers = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";
        self.request("POST", "/mcp", headers, message)
    }

    /// Ends the server and says what it logged.
    pub(crate) fn stop(mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.log.take().map(|log| log.join().unwrap()).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer over HTTP.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn read(stream: &mut impl Read) -> Self {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let at = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(bytes.len());
        let head = String::from_utf8_lossy(&bytes[..at]).into_owned();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        let mut body = bytes.get(at + 4..).unwrap_or_default().to_vec();
        if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            body = unchunked(&body);
        }
        Self { status, head, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.head, String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    /// The messages of a reply of `/mcp`, whether it is JSON or a stream of events.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let text = String::from_utf8_lossy(&self.body).into_owned();
        if text.trim_start().starts_with('{') {
            return vec![serde_json::from_str(&text).unwrap()];
        }
        let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
        data.filter_map(|line| serde_json::from_str(line.trim()).ok()).collect()
    }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(at) = bytes.windows(2).position(|window| window == b"\r\n") {
        let length = usize::from_str_radix(String::from_utf8_lossy(&bytes[..at]).trim(), 16).unwrap_or(0);
        let start = at + 2;
        if length == 0 || start + length > bytes.len() {
            break;
        }
        whole.extend_from_slice(&bytes[start..start + length]);
        bytes = bytes.get(start + length + 2..).unwrap_or_default();
    }
    whole
}

/// A client of `latentia mcp`.
pub(crate) struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Client {
    pub(crate) fn send(&mut self, line: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(line).and_then(|()| input.write_all(b"\n")).and_then(|()| input.flush()).unwrap();
    }

    pub(crate) fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// The answer to a request; what comes before it is dropped.
    pub(crate) fn request(&mut self, id: u64, method: &str, params: &Value) -> Value {
        self.send(
            json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string().as_bytes(),
        );
        self.answer(id)
    }

    pub(crate) fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.receive();
            if message["id"] == id {
                return message;
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The size and the first bytes of a stored picture.
pub(crate) fn assert_is_png(bytes: &[u8]) {
    assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n"), "{} bytes", bytes.len());
}

/// A ref as everybody's contract has it.
pub(crate) fn assert_is_ref(value: &Value) {
    let id = value["$artifact"].as_str().unwrap_or_else(|| panic!("no ref: {value}"));
    assert_eq!(id.len(), 32);
    let sha256 = value["sha256"].as_str().unwrap();
    assert!(sha256.len() == 64 && sha256.starts_with(id));
    assert!(value.to_string().len() < 8192, "a ref is small");
    assert!(value["metadata"]["seed"].is_u64(), "{value}");
}

/// The contract's file, in the repository.
pub(crate) fn contract() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/abstractvision-tools.json");
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}
