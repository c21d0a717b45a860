//! The Model Context Protocol, message by message.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Bench, assert_is_png, assert_is_ref};

fn call(name: &str, arguments: &Value) -> Value {
    json!({ "name": name, "arguments": arguments })
}

#[test]
fn an_answer_is_a_line_a_link_a_small_picture_and_refs() {
    let bench = Bench::new();
    let mut client = bench.mcp(&["--model", "mock"]);
    let answer = client.request(
        1,
        "tools/call",
        &call("vision_text_to_image", &json!({ "prompt": "a", "size": "64x64", "seed": 2 })),
    );
    let result = &answer["result"];
    let content = result["content"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let kinds: Vec<&str> = content.iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "resource_link", "image", "text"]);
    assert!(content[0]["text"].as_str().unwrap().contains("seed 2"));
    assert_eq!(content[1]["mimeType"], "image/png");
    assert_eq!(content[2]["mimeType"], "image/jpeg");
    assert!(content[2]["data"].as_str().unwrap().len() < 300_000);
    let data = &result["structuredContent"];
    assert_is_ref(&data["artifacts"][0]);
    assert_eq!(serde_json::from_str::<Value>(content[3]["text"].as_str().unwrap()).unwrap(), *data);
    assert_eq!(content[1]["uri"], data["artifacts"][0]["uri"]);
    let mut without = result.clone();
    without["content"].as_array_mut().unwrap().remove(2);
    assert!(without.to_string().len() < 8192, "small without the picture");
    let read = client.request(2, "resources/read", &json!({ "uri": content[1]["uri"] }));
    let blob = read["result"]["contents"][0]["blob"].as_str().unwrap_or_else(|| panic!("{read}"));
    assert_is_png(&STANDARD.decode(blob).unwrap());
    let plain = client.request(
        3,
        "tools/call",
        &call("vision_text_to_image", &json!({ "prompt": "a", "size": "64x64", "preview": false })),
    );
    assert_eq!(plain["result"]["content"].as_array().unwrap().len(), 3);
    let listed = client.request(4, "resources/list", &json!({}));
    assert_eq!(listed["result"]["resources"].as_array().unwrap().len(), 2);
    let missing = client.request(
        5,
        "resources/read",
        &json!({ "uri": "latentia://artifacts/ffffffffffffffffffffffffffffffff" }),
    );
    assert!([-32002, -32602].contains(&missing["error"]["code"].as_i64().unwrap()), "{missing}");
}

#[test]
fn progress_rises_and_cancelling_stops_within_a_step() {
    let bench = Bench::new();
    let mut client = bench.mcp(&["--model", "mock-slow"]);
    let mut params = call("vision_text_to_image", &json!({ "prompt": "a", "size": "32x32", "steps": 4 }));
    params["_meta"] = json!({ "progressToken": "p" });
    client.send(
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string().as_bytes(),
    );
    let mut seen = Vec::new();
    let mut said = Vec::new();
    loop {
        let message = client.receive();
        if message["id"] == 1 {
            assert_eq!(message["result"]["isError"], false, "{message}");
            break;
        }
        assert_eq!(
            (&message["method"], &message["params"]["progressToken"]),
            (&json!("notifications/progress"), &json!("p"))
        );
        seen.push(message["params"]["progress"].as_f64().unwrap());
        said.push(message["params"]["message"].as_str().unwrap().to_owned());
    }
    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{seen:?}");
    assert!(said.iter().any(|line| line.contains("step 2 of 4") && line.contains("s left")), "{said:?}");
    let endless = call("vision_text_to_image", &json!({ "prompt": "a", "size": "32x32", "steps": 100 }));
    client.send(
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": endless })
            .to_string()
            .as_bytes(),
    );
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    client.send(br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#);
    // The line is free again: a picture that takes no time is drawn at once.
    let quick = client.request(
        3,
        "tools/call",
        &call("t2i", &json!({ "prompt": "b", "size": "32x32", "steps": 1, "model": "mock" })),
    );
    assert_eq!(quick["result"]["isError"], false, "{quick}");
    assert!(began.elapsed() < Duration::from_millis(1500), "{:?}", began.elapsed());
}

#[test]
fn what_takes_long_becomes_a_job() {
    let bench = Bench::new();
    let mut client = bench.mcp(&["--model", "mock-slow", "--patience", "1"]);
    let answer = client.request(
        1,
        "tools/call",
        &call("vision_text_to_image", &json!({ "prompt": "a", "size": "32x32", "steps": 10 })),
    );
    let job = &answer["result"]["structuredContent"]["job"];
    let id = job["id"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("get_job"));
    let done = client.request(2, "tools/call", &call("get_job", &json!({ "job_id": id, "wait_s": 10 })));
    assert_eq!(done["result"]["structuredContent"]["status"], "completed", "{done}");
    assert_is_ref(&done["result"]["structuredContent"]["result"]);
    assert_eq!(done["result"]["content"][1]["type"], "resource_link");
    let second = client.request(
        3,
        "tools/call",
        &call("vision_text_to_image", &json!({ "prompt": "a", "size": "32x32", "steps": 400 })),
    );
    let id = second["result"]["structuredContent"]["job"]["id"].as_str().unwrap();
    client.request(4, "tools/call", &call("cancel_job", &json!({ "job_id": id })));
    let ended = client.request(5, "tools/call", &call("get_job", &json!({ "job_id": id, "wait_s": 5 })));
    assert_eq!(ended["result"]["structuredContent"]["status"], "cancelled", "{ended}");
    let read = client.request(6, "resources/read", &json!({ "uri": format!("latentia://jobs/{id}") }));
    assert!(read["result"]["contents"][0]["text"].as_str().unwrap().contains("cancelled"), "{read}");
}

#[test]
fn errors_tell_a_model_what_to_change() {
    let bench = Bench::new();
    let mut client = bench.mcp(&[]);
    let answer = client.request(
        1,
        "tools/call",
        &call("vision_text_to_image", &json!({ "prompt": "a", "width": 65, "height": 64 })),
    );
    let result = &answer["result"];
    assert_eq!(result["isError"], true);
    assert_eq!(result["structuredContent"]["error"]["param"], "width");
    assert!(result["content"][0]["text"].as_str().unwrap().contains("multiple of 8"));
    let tools = client.request(2, "tools/list", &json!({}));
    let names: Vec<&str> = tools["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names[..2], ["vision_list_adapters", "vision_text_to_image"], "a stable order");
    assert!(!names.contains(&"image_generation"));
}

/// C56: pixels, not words.
#[test]
fn view_image_shows_pixels() {
    let bench = Bench::new();
    let made = bench.call("t2i", &json!({ "prompt": "a", "model": "mock", "size": "1024x512" }));
    let mut client = bench.mcp(&["--image-view"]);
    let seen = client.request(1, "tools/call", &call("view_image", &json!({ "path": made["uri"] })));
    let content = &seen["result"]["content"];
    assert_eq!(
        (&content[1]["type"], &content[1]["mimeType"]),
        (&json!("image"), &json!("image/jpeg")),
        "{seen}"
    );
    assert_eq!(seen["result"]["structuredContent"]["delivered"]["width"], 768);
}
