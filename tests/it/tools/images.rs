//! OpenAI's routes for pictures.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Bench, Reply, Server, assert_is_png, assert_is_ref};

/// Names and contents of a form.
type Fields<'a> = &'a [(&'a str, &'a [u8])];

/// Sends a form, as AbstractVision and OpenAI's clients do; a field with a file's name holds bytes.
fn post_form(server: &Server, path: &str, fields: Fields) -> Reply {
    let mut body = Vec::new();
    for (name, bytes) in fields {
        let is_file = name.starts_with("image") || *name == "mask";
        let file = if is_file { "; filename=\"a.png\"\r\nContent-Type: image/png" } else { "" };
        let head = format!("--edge\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n");
        body.extend_from_slice(&[head.as_bytes(), bytes, b"\r\n"].concat());
    }
    body.extend_from_slice(b"--edge--\r\n");
    server.request("POST", path, "Content-Type: multipart/form-data; boundary=edge\r\n", &body)
}

/// A stored picture: its ref and its bytes.
fn picture(bench: &Bench, seed: u64) -> (Value, Vec<u8>) {
    let made = bench.call("t2i", &json!({ "prompt": "a", "model": "mock", "size": "32x32", "seed": seed }));
    let id = made["$artifact"].as_str().unwrap().to_owned();
    (made, fs::read(bench.path("store").join(format!("{id}.png"))).unwrap())
}

/// C44, B31: a form and JSON change the same picture to the same one.
#[test]
fn pictures_are_changed_by_form_and_by_json() {
    let bench = Bench::new();
    let (reference, png) = picture(&bench, 1);
    let (_, mask) = picture(&bench, 2);
    let server = bench.serve(&["--model", "mock"]);
    let fields: Fields = &[
        ("prompt", b"b"),
        ("image", &png),
        ("n", b"2"),
        ("seed", b"5"),
        ("steps", b"2"),
        ("denoising_strength", b"0.5"),
        ("extra_json", br#"{"unheard_of": 1}"#),
    ];
    let reply = post_form(&server, "/v1/images/edits", fields).json();
    assert_eq!(reply["data"].as_array().map(Vec::len), Some(2), "{reply}");
    assert!(reply["latentia"]["warnings"][0].as_str().unwrap().contains("unheard_of"));
    assert_eq!((&reply["latentia"]["seed"], &reply["size"]), (&json!(5), &json!("32x32")));
    let first = STANDARD.decode(reply["data"][0]["b64_json"].as_str().unwrap()).unwrap();
    assert_is_png(&first);
    for images in [
        json!([{ "file_id": reference["$artifact"] }]),
        json!([{ "image_url": format!("data:image/png;base64,{}", STANDARD.encode(&png)) }]),
    ] {
        let ask = json!({ "prompt": "b", "images": images, "seed": 5, "steps": 2, "strength": 0.5,
            "response_format": "artifact" });
        let reply = server.post("/v1/images/edits", ask.to_string().as_bytes()).json();
        assert_is_ref(&reply["data"][0]);
        let own =
            server.get(&format!("/v1/artifacts/{}/content", reply["data"][0]["$artifact"].as_str().unwrap()));
        assert_eq!(own.body, first, "the same change of the same picture");
    }
    let masked: Fields = &[("prompt", b"b"), ("image[]", &png), ("mask", &mask)];
    assert_eq!(post_form(&server, "/v1/images/edits", masked).status, 200);
    let varied = post_form(&server, "/v1/images/variations", &[("image", &png)]);
    assert_eq!(varied.json()["data"].as_array().map(Vec::len), Some(1));
}

#[test]
fn forms_that_cannot_be_are_refused_by_name() {
    let bench = Bench::new();
    let (_, png) = picture(&bench, 1);
    let server = bench.serve(&["--model", "mock"]);
    let far = json!({ "prompt": "a", "images": [{ "image_url": "http://127.0.0.1/a.png" }] });
    assert_eq!(server.post("/v1/images/edits", far.to_string().as_bytes()).code(), "url_not_allowed");
    let cases: [(Fields, u16, &str); 6] = [
        (&[("prompt", b"a")], 400, "invalid_argument"),
        (&[("prompt", b"a"), ("image", b"no picture")], 415, "unsupported_media_type"),
        (&[("prompt", b"a"), ("prompt", b"b"), ("image", &png)], 400, "malformed_request"),
        (&[("prompt", b"a"), ("image", &png), ("steps", b"many")], 400, "invalid_argument"),
        (&[("prompt", b"a"), ("image[]", &png), ("image[]", &png)], 400, "invalid_argument"),
        (&[("prompt", b"a"), ("image_other", &png)], 400, "invalid_argument"),
    ];
    for (fields, status, code) in cases {
        let reply = post_form(&server, "/v1/images/edits", fields);
        assert_eq!((reply.status, reply.code()), (status, code.to_owned()), "{:?}", fields[0]);
    }
    let broken = "Content-Type: multipart/form-data; boundary=edge\r\n";
    let reply =
        server.request("POST", "/v1/images/edits", broken, b"--edge\r\nContent-Disposition: form-data");
    assert_eq!(reply.code(), "malformed_request");
    let elsewhere = server.request("POST", "/v1/images/generations", broken, b"--edge--\r\n");
    assert_eq!(elsewhere.code(), "unsupported_media_type");
    let long = vec![b'x'; 33 << 20];
    assert_eq!(post_form(&server, "/v1/images/edits", &[("prompt", &long)]).status, 413);
}

/// B31: each finished picture is an event, and so is an error.
#[test]
fn answers_may_be_streamed() {
    let bench = Bench::new();
    let server = bench.serve(&["--model", "mock"]);
    let ask = |more: &Value| {
        let mut ask = json!({ "prompt": "a", "size": "32x32", "stream": true, "partial_images": 1 });
        ask.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/v1/images/generations", ask.to_string().as_bytes())
    };
    let reply = ask(&json!({ "n": 2 }));
    assert!(reply.head.contains("text/event-stream"), "{}", reply.head);
    let done = reply.messages().into_iter().filter(|event| event["type"] == "image_generation.completed");
    let done: Vec<Value> = done.collect();
    assert_eq!(done.len(), 2);
    for event in done {
        assert_is_png(&STANDARD.decode(event["b64_json"].as_str().unwrap()).unwrap());
        assert_eq!(event["size"], "32x32");
        assert_is_ref(&event["latentia"]["artifacts"][0]);
    }
    assert_eq!(ask(&json!({ "n": 11 })).status, 400, "what is wrong at once is said at once");
    let (_, png) = picture(&bench, 1);
    let fields: Fields = &[("prompt", b"b"), ("image", &png), ("stream", b"true")];
    let reply = post_form(&server, "/v1/images/edits", fields);
    assert!(reply.messages().iter().any(|event| event["type"] == "image_edit.completed"));
}

/// B16: what was drawn for a key is told again, also by a server that did not draw it.
#[test]
fn a_key_finds_its_pictures_after_a_restart() {
    let bench = Bench::new();
    let headers = "Content-Type: application/json\r\nIdempotency-Key: k\r\n";
    let ask = br#"{"prompt":"a","size":"32x32","response_format":"artifact"}"#;
    let draw = || {
        let server = bench.serve(&["--model", "mock"]);
        server.request("POST", "/v1/images/generations", headers, ask).json()
    };
    let first = draw();
    assert_is_ref(&first["data"][0]);
    assert_eq!(draw()["data"][0]["$artifact"], first["data"][0]["$artifact"]);
}
