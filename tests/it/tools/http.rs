//! The HTTP server: who may ask, and what it answers.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::{Bench, Reply, assert_is_png, assert_is_ref};

#[test]
fn an_artifact_is_read_whole_in_part_and_not_again() {
    let bench = Bench::new();
    let server = bench.serve(&["--model", "mock"]);
    let reply = server.post("/v1/tools/vision_text_to_image", br#"{"prompt":"a","size":"64x64","seed":1}"#);
    assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    let reference = reply.json();
    assert_is_ref(&reference);
    let (id, sha256) = (reference["$artifact"].as_str().unwrap(), reference["sha256"].as_str().unwrap());
    let meta = server.get(&format!("/v1/artifacts/{id}")).json();
    assert_eq!((&meta["artifact_id"], &meta["ref"]), (&json!(id), &reference));
    let content = format!("/v1/artifacts/{id}/content");
    let whole = server.get(&content);
    assert_is_png(&whole.body);
    assert_eq!(whole.header("etag"), Some(format!("\"{sha256}\"")));
    assert_eq!(whole.header("content-type").as_deref(), Some("image/png"));
    let part = server.request("GET", &content, "Range: bytes=1-3\r\n", b"");
    assert_eq!((part.status, part.body.as_slice()), (206, b"PNG".as_slice()));
    assert_eq!(part.header("content-range"), Some(format!("bytes 1-3/{}", whole.body.len())));
    let rest = server.request("GET", &content, "Range: bytes=-4\r\n", b"");
    assert_eq!(rest.body, whole.body[whole.body.len() - 4..]);
    assert_eq!(server.request("GET", &content, "Range: bytes=999999-\r\n", b"").status, 416);
    let known = server.request("GET", &content, &format!("If-None-Match: \"{sha256}\"\r\n"), b"");
    assert_eq!((known.status, known.body.len()), (304, 0));
    assert_eq!(server.get("/v1/artifacts/ffffffffffffffffffffffffffffffff").code(), "artifact_not_found");
    let list = server.get("/v1/artifacts?limit=1").json();
    assert_eq!(list["data"][0]["$artifact"], id);
}

#[test]
fn openai_clients_get_their_form() {
    let bench = Bench::new();
    let server = bench.serve(&["--model", "mock"]);
    let ask = json!({ "prompt": "a", "n": 2, "size": "32x32", "response_format": "b64_json", "seed": 4,
        "width": 32, "height": 32, "steps": 2, "guidance_scale": 1.0, "quality": "auto", "unheard_of": 1 });
    let reply = server.post("/v1/images/generations", ask.to_string().as_bytes()).json();
    assert_eq!(reply["data"].as_array().unwrap().len(), 2, "{reply}");
    assert_is_png(&STANDARD.decode(reply["data"][1]["b64_json"].as_str().unwrap()).unwrap());
    assert_eq!((&reply["size"], &reply["latentia"]["seed"]), (&json!("32x32"), &json!(4)));
    assert!(reply["latentia"]["warnings"][0].as_str().unwrap().contains("unheard_of"));
    assert!(reply["created"].as_u64().unwrap() > 1_700_000_000);
    let ask = json!({ "prompt": "a", "size": "32x32", "response_format": "url" });
    let reply = server.post("/v1/images/generations", ask.to_string().as_bytes()).json();
    let url = reply["data"][0]["url"].as_str().unwrap();
    assert_is_png(&server.get(url.split_once(&server.address).unwrap().1).body);
    let models = server.get("/v1/models").json();
    assert_eq!(models["object"], "list");
    let sprites = models["data"].as_array().unwrap().iter().find(|model| model["id"] == "sprites").unwrap();
    assert!(sprites["capabilities"].as_array().unwrap().contains(&json!("image_generation")));
    assert_eq!(server.get("/v1/models/sprites").json()["object"], "model");
    assert_eq!(server.get("/v1/models/nobody").code(), "model_not_found");
    for (field, value) in
        [("n", json!(11)), ("stream", json!("perhaps")), ("background", json!("transparent"))]
    {
        let mut ask = json!({ "prompt": "a" });
        ask[field] = value;
        let reply = server.post("/v1/images/generations", ask.to_string().as_bytes());
        assert_eq!((reply.status, reply.json()["error"]["param"].as_str()), (400, Some(field)));
    }
}

#[test]
fn tools_and_capabilities_are_listed() {
    let bench = Bench::new();
    let server = bench.serve(&[]);
    for form in ["mcp", "openai", "openai-chat", "anthropic", "abstractcore"] {
        let tools = server.get(&format!("/v1/tools?format={form}")).json();
        assert!(tools["tools"].as_array().unwrap().len() >= 14, "{form}");
    }
    assert_eq!(server.get("/v1/tools?format=xml").code(), "invalid_argument");
    let capabilities = server.get("/v1/capabilities").json();
    assert_eq!(capabilities["schema_version"], "1.0");
    assert_eq!(capabilities["models"]["sprites"]["x_latentia"]["runs"], true);
    let models = server.post("/v1/tools/list_models", b"{}").json();
    assert_eq!(models["models"][0]["id"], "sprites");
    assert_eq!(server.get("/nothing").status, 404);
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn a_wider_bind_needs_a_token_and_a_token_is_asked_for() {
    let bench = Bench::new();
    let output = bench.command(&["serve", "--host", "0.0.0.0", "--port", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("--token"), "{said}");
    let server = bench.serve(&["--token", "s3cret", "--model", "mock"]);
    let wrong = server.request("GET", "/v1/models", "Authorization: Bearer wrong\r\n", b"");
    assert_eq!((wrong.status, wrong.code()), (401, "unauthorized".into()));
    assert_eq!(wrong.header("www-authenticate").as_deref(), Some("Bearer"));
    assert_eq!(server.get("/v1/models").status, 401);
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.request("GET", "/v1/models", "Authorization: Bearer s3cret\r\n", b"").status, 200);
    assert!(!server.stop().contains("s3cret"));
}

#[test]
fn who_goes_stops_the_work() {
    let bench = Bench::new();
    let server = bench.serve(&["--model", "mock-slow"]);
    let body = br#"{"prompt":"a","size":"32x32","steps":200}"#;
    let mut stream = server.connect();
    let head = format!(
        "POST /v1/images/generations HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        server.address,
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    drop(stream);
    // The place in line is free again within a step: another picture is drawn soon.
    let began = Instant::now();
    let reply = server.post("/v1/tools/t2i", br#"{"prompt":"a","size":"32x32","steps":1,"model":"mock"}"#);
    assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(server.get("/v1/artifacts").json()["data"].as_array().unwrap().len(), 1);
}

#[test]
fn clients_that_shake_hands_cancel_by_name() {
    let bench = Bench::new();
    let server = bench.serve(&["--model", "mock-slow"]);
    let json = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";
    let hello = br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
    let session = server.request("POST", "/mcp", json, hello).header("mcp-session-id").expect("a session");
    let headers = format!("{json}Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-06-18\r\n");
    let say = |message: &[u8]| server.request("POST", "/mcp", &headers, message);
    assert_eq!(say(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).status, 202);
    let call = |id: u32, arguments: &str| {
        let params = format!(r#"{{"name":"vision_text_to_image","arguments":{arguments}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#)
    };
    std::thread::scope(|scope| {
        let endless = call(1, r#"{"prompt":"a","size":"32x32","steps":200}"#);
        scope.spawn(move || say(endless.as_bytes()));
        std::thread::sleep(Duration::from_millis(600));
        let began = Instant::now();
        say(br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
        let quick = call(2, r#"{"prompt":"b","size":"32x32","steps":1,"model":"mock"}"#);
        let reply = say(quick.as_bytes());
        assert!(
            reply.messages().iter().any(|message| message["result"]["isError"] == false),
            "{}",
            reply.head
        );
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        assert_eq!(server.request("DELETE", "/mcp", &headers, b"").status, 202);
    });
    assert_eq!(server.get("/v1/artifacts").json()["data"].as_array().map(Vec::len), Some(1));
}

#[test]
fn too_many_are_told_to_come_back() {
    let bench = Bench::new();
    let server = bench.serve(&["--model", "mock-slow"]);
    let ask = br#"{"prompt":"a","size":"32x32","steps":20}"#;
    let headers = "Content-Type: application/json\r\nPrefer: respond-async\r\n";
    let replies: Vec<Reply> =
        (0..40).map(|_| server.request("POST", "/v1/tools/t2i", headers, ask)).collect();
    let busy: Vec<&Reply> = replies.iter().filter(|reply| reply.status != 202).collect();
    assert_eq!(busy.len(), 40 - 33);
    for reply in busy {
        assert_eq!((reply.status, reply.code()), (429, "busy".into()));
        assert!(reply.header("retry-after").is_some());
    }
}

#[test]
fn slow_clients_are_let_go_and_hinder_nobody() {
    let bench = Bench::new();
    let server = bench.serve(&[]);
    let mut slow: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(b"GET /hea").unwrap();
            stream
        })
        .collect();
    let began = Instant::now();
    let mut worst = Duration::ZERO;
    while began.elapsed() < Duration::from_secs(3) {
        let asked = Instant::now();
        assert_eq!(server.get("/health").status, 200);
        worst = worst.max(asked.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(worst < Duration::from_millis(1500), "{worst:?}");
    // After ten seconds the server has had enough of them.
    let mut byte = [0];
    let stream = slow.last_mut().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    assert!(matches!(stream.read(&mut byte), Ok(0 | 1)), "closed or refused");
    assert!(began.elapsed() < Duration::from_secs(14));
}
