//! AbstractVision's routes: models in memory, and pictures as jobs.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Bench, Server, assert_is_png, assert_is_ref};

fn post(server: &Server, path: &str, ask: &Value) -> Value {
    server.post(path, ask.to_string().as_bytes()).json()
}

/// C43, C45, B19: what is loaded stays with its parts, what was only used makes room, and each says why it went.
#[test]
fn models_are_kept_as_long_as_somebody_asked_for_it() {
    let bench = Bench::new();
    let server = bench.serve(&["--model", "mock"]);
    assert_eq!(server.get("/v1/vision/model").json()["loaded"], json!([]));
    let record = post(&server, "/v1/vision/model/load", &json!({ "model_id": "sprites" }));
    for (key, value) in [
        ("model", json!("sprites")),
        ("load_id", json!("latentia/sprites")),
        ("state", json!("resident")),
        ("source", json!("explicit_preload")),
        ("resident", json!(true)),
        ("loaded", json!(true)),
        ("scope", json!("process")),
        ("parts", json!(["text_encoder", "denoiser", "decoder"])),
    ] {
        assert_eq!(record[key], value, "{record}");
    }
    assert!(record["bytes"].as_u64().is_some_and(|bytes| bytes > 100_000), "{record}");
    let draw = |model: &str| {
        post(&server, "/v1/tools/t2i", &json!({ "prompt": "a", "size": "32x32", "steps": 1, "model": model }))
    };
    for model in ["mock", "mock-slow", "sprites"] {
        assert_is_ref(&draw(model));
    }
    let now = server.get("/v1/vision/model").json();
    let open: Vec<(&Value, &Value, &Value)> = now["loaded"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (&one["model"], &one["state"], &one["parts"]))
        .collect();
    let all = json!(["text_encoder", "denoiser", "decoder"]);
    assert_eq!(open[0], (&json!("sprites"), &json!("resident"), &all), "{now}");
    assert_eq!(open[1], (&json!("mock-slow"), &json!("active"), &json!([])), "its parts left with the job");
    assert_eq!((open.len(), &now["active"]), (2, &json!("sprites")));
    assert_eq!(
        (&now["released"][0]["model"], &now["released"][0]["state"]),
        (&json!("mock"), &json!("unloaded"))
    );
    assert!(now["released"][0]["reason"].as_str().unwrap().contains("mock-slow"));
    let many = server.post("/v1/vision/model/unload", b"{}");
    assert_eq!((many.status, many.code()), (400, "invalid_argument".into()), "which one?");
    let gone = post(&server, "/v1/vision/model/unload", &json!({ "load_id": "latentia/sprites" }));
    assert_eq!((&gone["state"], &gone["loaded"]), (&json!("unloaded"), &json!(false)), "{gone}");
    assert_eq!(server.get("/v1/vision/model").json()["loaded"].as_array().map(Vec::len), Some(1));
    assert_eq!(server.post("/v1/vision/model/load", br#"{"model":"nobody"}"#).code(), "model_not_found");
    let other = br#"{"model":"sprites","provider":"openai"}"#;
    assert_eq!(server.post("/v1/vision/model/load", other).code(), "invalid_argument");
    let models = server.get("/v1/vision/models?task=t2i").json();
    let sprites = models["models"].as_array().unwrap().iter().find(|model| model["id"] == "sprites").unwrap();
    assert_eq!((&sprites["loaded"], &sprites["cached"]), (&json!(false), &json!(true)));
    assert!(sprites["task_specs"]["text_to_image"]["params"]["width"]["multiple_of"].is_u64());
    assert_eq!(server.get("/v1/vision/models?task=t2v").json()["models"], json!([]));
}

/// C45, C36: states, progress and results in AbstractVision's words.
#[test]
fn pictures_are_jobs_until_they_are_consumed() {
    let bench = Bench::new();
    let server = bench.serve(&["--model", "mock-slow"]);
    let ask = json!({ "prompt": "a", "size": "32x32", "steps": 3 });
    let job = post(&server, "/v1/vision/jobs/images/generations", &ask);
    let path = format!("/v1/vision/jobs/{}", job["job_id"].as_str().unwrap());
    assert!(["queued", "running"].contains(&job["state"].as_str().unwrap()), "{job}");
    assert_eq!(job["result"], Value::Null);
    let began = Instant::now();
    let done = loop {
        let job = server.get(&format!("{path}?consume=1")).json();
        if job["state"] == "succeeded" {
            break job;
        }
        assert!(job["error"].is_null() && began.elapsed() < Duration::from_secs(20), "{job}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(
        (&done["progress"]["step"], &done["progress"]["total_steps"], &done["progress"]["progress"]),
        (&json!(3), &json!(3), &json!(1.0))
    );
    let item = &done["result"]["data"][0];
    assert_is_png(&STANDARD.decode(item["b64_json"].as_str().unwrap()).unwrap());
    assert_eq!(item["mime_type"], "image/png");
    assert_is_ref(&item["artifact"]);
    assert_eq!(server.get(&path).code(), "job_not_found", "consumed");
    let id = item["artifact"]["$artifact"].as_str().unwrap();
    assert_eq!(server.get(&format!("/v1/artifacts/{id}")).status, 200, "the picture stays");
}

/// B10: a quota holds for a server as it does for the command line.
#[test]
fn a_full_store_says_so_on_every_face() {
    let bench = Bench::new();
    let mut command =
        bench.command(&["tools", "call", "t2i", r#"{"prompt":"a","model":"mock","size":"64x64"}"#]);
    let output = command.env("LATENTIA_STORE_BYTES", "100").output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["error"]["code"], "store_full", "{answer}");
}
