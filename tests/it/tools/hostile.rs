//! Requests made by an enemy: each gets its code on the command line, over HTTP and over MCP alike.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Bench, Client, Reply, Server};
use crate::fixtures::hostile;

/// The cases of one kind, if the corpus is there.
fn cases(kind: &str) -> Vec<(Value, Vec<u8>)> {
    let Some(corpus) = hostile() else { return Vec::new() };
    // The corpus is a folder with one more in it, or that one.
    let manifest =
        ["manifest.json", "open/manifest.json"].iter().find_map(|name| fs::read(corpus.join(name)).ok());
    let manifest: Value = serde_json::from_slice(&manifest.unwrap()).unwrap();
    let cases = manifest["cases"].as_array().unwrap().iter();
    let own = cases.filter(|case| case["id"].as_str().unwrap().starts_with(kind));
    own.map(|case| (case.clone(), fs::read(corpus.join(case["file"].as_str().unwrap())).unwrap())).collect()
}

fn allowed(case: &Value) -> Vec<&str> {
    case["expect"]["codes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Where requests are sent, and what their placeholders stand for.
struct Victim {
    bench: Bench,
    server: Server,
    client: Client,
    canary: TcpListener,
    artifact: String,
}

impl Victim {
    fn new() -> Self {
        let bench = Bench::new();
        fs::write(bench.path("workspace").join("existing.png"), b"mine").unwrap();
        fs::write(bench.path("outside").join("secret.png"), b"\x89PNG\r\n\x1a\nsecret").unwrap();
        fs::write(bench.path("outside").join("unreadable.png"), b"secret").unwrap();
        let made = bench.call("t2i", &json!({ "prompt": "x", "model": "mock", "size": "16x16", "seed": 1 }));
        let artifact = made["$artifact"].as_str().unwrap().to_owned();
        let server = bench.serve(&["--model", "mock"]);
        let client = bench.mcp(&["--model", "mock"]);
        let canary = TcpListener::bind("127.0.0.1:0").unwrap();
        canary.set_nonblocking(true).unwrap();
        Self { bench, server, client, canary, artifact }
    }

    fn fill(&self, bytes: &[u8]) -> Vec<u8> {
        let Ok(text) = std::str::from_utf8(bytes) else { return bytes.to_vec() };
        let port = self.server.address.rsplit(':').next().unwrap();
        let canary = self.canary.local_addr().unwrap().port().to_string();
        let path = |name: &str| self.bench.path(name).to_str().unwrap().to_owned();
        let filled = text
            .replace("{PORT}", port)
            .replace("{CANARY}", &canary)
            .replace("{WORKSPACE}", &path("workspace"))
            .replace("{OUTSIDE}", &path("outside"))
            .replace("{MODEL}", "mock")
            .replace("{GOOD_ARTIFACT}", &self.artifact);
        filled.into_bytes()
    }

    /// The code of a request on all three faces; `ok` where it is answered.
    fn codes(&mut self, body: &[u8]) -> [String; 3] {
        let tool = if is_edit(body) { "image_to_image" } else { "text_to_image" };
        let output = self.bench.call_raw(tool, body, &["--model", "mock"]);
        let line = String::from_utf8_lossy(&output.stdout).into_owned();
        let answer: Value = serde_json::from_str(line.lines().last().unwrap_or_default()).unwrap_or_default();
        let cli = code(&answer["error"]);
        assert_eq!(output.status.success(), cli == "ok", "{answer}");
        let reply = self.server.post(&format!("/v1/tools/{tool}"), body);
        let http = code(&reply.json()["error"]);
        assert_clean(&reply.json(), &self.bench);
        let message = [
            format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{tool}","arguments":"#
            )
            .as_bytes(),
            body,
            b"}}",
        ]
        .concat();
        // One message is one line.
        let message: Vec<u8> = message.into_iter().filter(|byte| !matches!(byte, b'\n' | b'\r')).collect();
        self.client.send(&message);
        let answer = self.client.receive_answer();
        let mcp = match answer["error"]["code"].as_i64() {
            // The protocol's own words for what cannot be read.
            Some(-32700 | -32600 | -32602) => "malformed_request".into(),
            Some(other) => other.to_string(),
            None => code(&answer["result"]["structuredContent"]["error"]),
        };
        [cli, http, mcp]
    }
}

fn code(error: &Value) -> String {
    error["code"].as_str().unwrap_or("ok").to_owned()
}

/// Whether a request is for the tool that changes pictures.
fn is_edit(body: &[u8]) -> bool {
    ["\"image_", "\"mask_"].iter().any(|word| String::from_utf8_lossy(body).contains(word))
}

/// No path of this machine and no word of the kind in an error.
fn assert_clean(body: &Value, bench: &Bench) {
    let error = body["error"].to_string();
    let root = bench.path("").to_str().unwrap().trim_end_matches('/').to_owned();
    assert!(!error.contains(&root), "{error}");
    if !body["error"].is_null() {
        assert!(body["error"]["message"].is_string() && body["error"]["retryable"].is_boolean(), "{error}");
    }
}

impl Client {
    /// The next answer, whatever its id; notes are passed over.
    fn receive_answer(&mut self) -> Value {
        loop {
            let message = self.receive();
            if message.get("method").is_none() {
                return message;
            }
        }
    }
}

/// A request of the corpus, with what its recipe fills in.
fn body_of(case: &Value, bytes: Vec<u8>) -> Vec<u8> {
    if case["form"] != "recipe" {
        return bytes;
    }
    let recipe: Value = serde_json::from_slice(&bytes).unwrap();
    let mut base = recipe["base"].clone();
    let count = usize::try_from(recipe["count"].as_u64().unwrap()).unwrap();
    base[recipe["field"].as_str().unwrap()] = recipe["char"].as_str().unwrap().repeat(count).into();
    base.to_string().into_bytes()
}

#[test]
fn hostile_requests_get_their_code_on_every_face() {
    let cases = cases("req-");
    if cases.is_empty() {
        return;
    }
    let mut victim = Victim::new();
    let mut wrong = Vec::new();
    // What is wrong with a picture is said only where a model could have changed it.
    let models = victim.server.post("/v1/tools/list_models", br#"{"task":"image_to_image"}"#).json();
    let edits = models["models"].as_array().unwrap().iter().any(|model| model["id"] == "mock");
    for (case, bytes) in &cases {
        let id = case["id"].as_str().unwrap();
        let fetches = String::from_utf8_lossy(bytes).contains("_url\"");
        if !edits && !fetches && is_edit(bytes) {
            println!("{id}: not judged, for no model here does image_to_image");
            continue;
        }
        if case["form"] == "scenario" || case["file"].as_str().unwrap().ends_with(".scenario") {
            let requests: Value = serde_json::from_slice(&victim.fill(bytes)).unwrap();
            let replies: Vec<Value> = requests["requests"]
                .as_array()
                .unwrap()
                .iter()
                .map(|request| {
                    let mut reply =
                        victim.server.post("/v1/tools/image_to_image", request.to_string().as_bytes()).json();
                    reply["error"]["request_id"] = Value::Null;
                    reply
                })
                .collect();
            if replies.iter().any(|reply| *reply != replies[0] || reply["error"]["code"] != "path_denied") {
                wrong.push(format!("{id}: {replies:?}"));
            }
            continue;
        }
        let body = body_of(case, victim.fill(bytes));
        let began = Instant::now();
        let got = victim.codes(&body);
        let seconds = case["bounds"]["seconds"].as_f64().unwrap();
        if began.elapsed() > Duration::from_secs_f64(3.0 * seconds) {
            wrong.push(format!("{id}: {:?} for three faces", began.elapsed()));
        }
        let allowed = allowed(case);
        let may = case["expect"]["class"].as_str().unwrap();
        for (face, got) in ["cli", "http", "mcp"].iter().zip(&got) {
            let accepted = match may {
                "accept" => got == "ok",
                "sanitize" => got == "ok" || allowed.contains(&got.as_str()),
                // A line that is too long is no message for a protocol that counts in lines.
                _ => {
                    allowed.contains(&got.as_str())
                        || *face == "mcp" && allowed == ["payload_too_large"] && got == "malformed_request"
                }
            };
            if !accepted {
                wrong.push(format!("{id} ({}) {face}: {got}, not {allowed:?}", case["file"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(fs::read(victim.bench.path("workspace").join("existing.png")).unwrap(), b"mine");
    assert!(!victim.bench.path("outside").join("planted.png").exists());
    assert!(victim.canary.accept().is_err(), "somebody was called");
}

#[test]
fn hostile_http_gets_its_code() {
    let cases = cases("http-");
    if cases.is_empty() {
        return;
    }
    let victim = Victim::new();
    let guarded = victim.bench.serve(&["--model", "mock", "--token", "t0ken"]);
    let mut wrong = Vec::new();
    for (case, bytes) in cases.iter().filter(|(case, _)| {
        Path::new(case["file"].as_str().unwrap()).extension().is_some_and(|end| end == "http")
    }) {
        let id = case["id"].as_str().unwrap();
        let server = if id == "http-05" { &guarded } else { &victim.server };
        let port = server.address.rsplit(':').next().unwrap();
        let text = String::from_utf8(bytes.clone()).unwrap().replace("{PORT}", port);
        let text = String::from_utf8(victim.fill(text.as_bytes())).unwrap();
        let text = if text.contains("\r\n") { text } else { text.replace('\n', "\r\n") };
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let reply = server
            .raw(format!("{}\r\n\r\n{body}", head.replace("{LEN}", &body.len().to_string())).as_bytes());
        let allowed = allowed(case);
        let got = reply.code();
        if !allowed.is_empty() && !allowed.contains(&got.as_str()) {
            wrong.push(format!("{id}: {} {got}, not {allowed:?}", reply.status));
        }
        if reply.head.to_ascii_lowercase().contains("access-control-allow") {
            wrong.push(format!("{id}: {}", reply.head));
        }
    }
    // http-08: chunks without an end.
    let mut stream = victim.server.connect();
    let head = format!(
        "POST /v1/images/generations HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        victim.server.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = [b"10000\r\n".as_slice(), &vec![b'A'; 65536], b"\r\n"].concat();
    let sent = (0..8192).take_while(|_| stream.write_all(&chunk).is_ok()).count();
    assert!(sent < 8192, "the server listens to half a gigabyte");
    let reply = Reply::read(&mut stream);
    if reply.status != 0 && reply.code() != "payload_too_large" {
        wrong.push(format!("http-08: {}", reply.code()));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(
        victim.server.get("/v1/artifacts").json()["data"].as_array().unwrap().len(),
        1,
        "no job was made"
    );
}

#[test]
fn hostile_messages_get_their_code_on_both_transports() {
    let cases = cases("mcp-");
    if cases.is_empty() {
        return;
    }
    let mut victim = Victim::new();
    let mut wrong = Vec::new();
    for (case, bytes) in &cases {
        let id = case["id"].as_str().unwrap();
        let allowed = allowed(case);
        let line: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != b'\n').collect();
        victim.client.send(&line);
        if case["expect"]["class"] == "accept" {
            // Nothing is answered, and the next request is.
            let answer = victim.client.request(99, "tools/list", &json!({}));
            assert_eq!(answer["id"], 99);
            assert_eq!(victim.server.mcp(bytes).status, 202, "{id}");
            continue;
        }
        let named = |answer: &Value| match answer["error"]["code"].as_i64() {
            Some(number) => format!("rpc:{number}"),
            None => code(&answer["result"]["structuredContent"]["error"]),
        };
        let stdio = named(&victim.client.receive_answer());
        let reply = victim.server.mcp(bytes);
        let http = reply.messages().last().map_or_else(|| format!("status {}", reply.status), named);
        for (face, got) in [("stdio", stdio), ("http", http)] {
            if !allowed.contains(&got.as_str()) {
                wrong.push(format!("{id} {face}: {got}, not {allowed:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
