//! Jobs that outlive a request.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Bench, Server, assert_is_ref};

fn post_async(server: &Server, ask: &Value, more: &str) -> Value {
    let headers = format!("Content-Type: application/json\r\nPrefer: respond-async\r\n{more}");
    let reply =
        server.request("POST", "/v1/tools/vision_text_to_image", &headers, ask.to_string().as_bytes());
    assert_eq!(reply.status, 202, "{}", String::from_utf8_lossy(&reply.body));
    let job = reply.json();
    assert_eq!(reply.header("location"), Some(format!("/v1/jobs/{}", job["id"].as_str().unwrap())));
    job
}

fn wait(server: &Server, id: &str) -> Value {
    let began = Instant::now();
    loop {
        let job = server.get(&format!("/v1/jobs/{id}")).json();
        if !["queued", "running"].contains(&job["status"].as_str().unwrap()) {
            return job;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{job}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_job_is_told_of_stopped_and_remembered_after_a_restart() {
    let bench = Bench::new();
    let server = bench.serve(&["--model", "mock"]);
    let job = post_async(&server, &json!({ "prompt": "a", "size": "32x32", "steps": 2, "seed": 3 }), "");
    let id = job["id"].as_str().unwrap();
    let done = wait(&server, id);
    assert_eq!(done["status"], "completed", "{done}");
    assert_is_ref(&done["result"]);
    assert_eq!((&done["progress"]["step"], &done["progress"]["steps"]), (&json!(2), &json!(2)));
    let slow = post_async(
        &server,
        &json!({ "prompt": "a", "size": "32x32", "steps": 100, "model": "mock-slow" }),
        "",
    );
    let slow_id = slow["id"].as_str().unwrap();
    std::thread::sleep(Duration::from_millis(600));
    let running = server.get(&format!("/v1/jobs/{slow_id}")).json();
    assert_eq!(running["status"], "running", "{running}");
    assert!(running["progress"]["eta_ms"].as_u64().is_some_and(|eta| eta > 1000), "{running}");
    let asked = Instant::now();
    server.post(&format!("/v1/jobs/{slow_id}/cancel"), b"{}");
    let stopped = wait(&server, slow_id);
    assert_eq!(stopped["status"], "cancelled", "{stopped}");
    assert!(asked.elapsed() < Duration::from_millis(900), "within a step");
    // A job that is working when its process dies was interrupted, and says so.
    let lost = post_async(
        &server,
        &json!({ "prompt": "a", "size": "32x32", "steps": 100, "model": "mock-slow" }),
        "",
    );
    std::thread::sleep(Duration::from_millis(300));
    server.stop();
    let server = bench.serve(&[]);
    assert_eq!(server.get(&format!("/v1/jobs/{id}")).json()["status"], "completed");
    let lost = server.get(&format!("/v1/jobs/{}", lost["id"].as_str().unwrap())).json();
    assert_eq!(
        (lost["status"].as_str(), lost["error"]["code"].as_str()),
        (Some("failed"), Some("interrupted"))
    );
    assert_eq!(server.get("/v1/jobs/0123456789abcdef0123456789abcdef").code(), "job_not_found");
    let told = bench.call("get_job", &json!({ "job_id": id }));
    assert_eq!(told["status"], "completed", "{told}");
}

#[test]
fn the_same_key_is_the_same_job() {
    let bench = Bench::new();
    let server = bench.serve(&["--model", "mock"]);
    let ask = json!({ "prompt": "a", "size": "32x32" });
    let key = "Idempotency-Key: k1\r\n";
    let first = post_async(&server, &ask, key);
    assert_eq!(post_async(&server, &ask, key)["id"], first["id"]);
    let seed = |job: &Value| wait(&server, job["id"].as_str().unwrap())["result"]["metadata"]["seed"].clone();
    assert_eq!(seed(&first), seed(&post_async(&server, &ask, key)), "drawn once, with one seed");
    let headers = format!("Content-Type: application/json\r\n{key}");
    let other = server.request("POST", "/v1/tools/t2i", &headers, br#"{"prompt":"b"}"#);
    assert_eq!((other.status, other.code()), (422, "idempotency_conflict".into()));
}

#[test]
fn events_of_a_job_end_with_its_end() {
    let bench = Bench::new();
    let server = bench.serve(&["--model", "mock-slow"]);
    let job = post_async(&server, &json!({ "prompt": "a", "size": "32x32", "steps": 3 }), "");
    let reply = server.get(&format!("/v1/jobs/{}/events", job["id"].as_str().unwrap()));
    let text = String::from_utf8(reply.body).unwrap();
    assert!(reply.head.contains("text/event-stream"), "{}", reply.head);
    assert!(text.contains("event: job.step") && text.trim_end().contains("event: job.completed"), "{text}");
}
