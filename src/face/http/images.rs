//! OpenAI's routes for pictures and models, for clients that know no others.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::App;
use super::guard::body;
use super::reply::{Answer, blocking, json_of};
use super::tools::{again, finish, start};
use crate::artifact::store::Artifact;
use crate::error::{Code, Error, Result};
use crate::registry::Listed;
use crate::tool::{self, Desk};

/// Fields of OpenAI's that say nothing which a local model could heed, and their harmless values.
const IDLE: &[(&str, &[&str])] = &[
    ("quality", &["auto", "standard", "medium", "high", "hd", "low"]),
    ("style", &["vivid", "natural"]),
    ("background", &["auto", "opaque"]),
    ("moderation", &["auto", "low"]),
    ("user", &[]),
    ("output_format", &["png"]),
];

/// Other names of our arguments.
const ALIASES: &[(&str, &str)] = &[
    ("num_inference_steps", "steps"),
    ("guidance", "guidance_scale"),
    ("cfg_scale", "guidance_scale"),
    ("sampler_name", "sampler"),
];

/// How pictures come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Base64,
    Url,
    Artifact,
}

/// A request in the words of our tool, and what of it could not be heeded.
struct Wanted {
    arguments: Value,
    form: Form,
    warnings: Vec<String>,
}

/// `POST /v1/images/generations`.
pub(super) async fn generate(State(app): State<App>, headers: HeaderMap, sent: Body) -> Answer {
    let bytes = body(sent).await?;
    let sent = tool::read_arguments(&bytes)?;
    drop(bytes);
    let entry = tool::find(&app.desk, "vision_text_to_image_batch")?;
    let known = {
        let desk = Arc::clone(&app.desk);
        blocking(move || entry.schema(&desk, None)).await?
    };
    let wanted = translated(&sent, &known)?;
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
    let job = start(&app, entry, wanted.arguments.clone(), key, false).await?;
    let outcome = finish(job).await?;
    let answer = outcome.as_ref().as_ref().map_err(again)?;
    // A list with a hole is an error here: OpenAI's form has no place for one.
    if let Some(hole) = answer.notes.first() {
        return Err(Error::new(Code::Internal, hole.clone()).into());
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned();
    let (artifacts, desk) = (answer.artifacts.clone(), Arc::clone(&app.desk));
    let data = blocking(move || {
        artifacts
            .iter()
            .map(|artifact| item(&desk, artifact, wanted.form, &host))
            .collect::<Result<Vec<Value>>>()
    })
    .await?;
    let first = answer.artifacts.first();
    let fact = |key: &str| first.and_then(|artifact| artifact.metadata.get(key).cloned()).unwrap_or_default();
    let reply = json!({
        "created": seconds(),
        "data": data,
        "output_format": "png",
        "size": format!("{}x{}", fact("width"), fact("height")),
        "latentia": {
            "artifacts": answer.refs(),
            "seed": fact("seed"),
            "model": fact("model"),
            "warnings": wanted.warnings,
        },
    });
    Ok(json_of(StatusCode::OK, &reply))
}

/// A request of OpenAI's as arguments of our tool.
///
/// # Errors
/// `url_not_allowed`, `invalid_argument` for what no model here can heed.
fn translated(sent: &Value, schema: &Value) -> Result<Wanted> {
    let mut arguments = Map::new();
    let mut warnings = Vec::new();
    let mut form = Form::Base64;
    for (name, value) in sent.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        let own = ALIASES.iter().find(|(alias, _)| alias == name).map_or(name.as_str(), |(_, own)| *own);
        if let Some((_, harmless)) = IDLE.iter().find(|(idle, _)| idle == name) {
            let text = value.as_str().unwrap_or_default();
            if !harmless.is_empty() && !harmless.contains(&text) {
                let message = format!("`{name}` is {value}; the models here know {}", harmless.join(", "));
                return Err(Error::argument(name, message));
            }
            continue;
        }
        match (own, value.as_str()) {
            ("n", _) => {
                // Ten pictures are what this form has room for.
                let count = value.as_u64().filter(|count| (1..=10).contains(count));
                let count =
                    count.ok_or_else(|| Error::argument("n", format!("n is {value}; expected 1 to 10")))?;
                arguments.insert("count".into(), count.into());
            }
            ("response_format", text) => {
                form = match text {
                    Some("b64_json") => Form::Base64,
                    Some("url") => Form::Url,
                    Some("artifact") => Form::Artifact,
                    _ => {
                        let message =
                            format!("response_format is {value}; expected b64_json, url or artifact");
                        return Err(Error::argument("response_format", message));
                    }
                };
            }
            ("stream", _) if value == &json!(false) => {}
            ("stream" | "partial_images", _) => {
                return Err(Error::argument(name, "answers are not streamed here").hint("leave it out"));
            }
            ("size", Some("auto")) => {}
            // Nothing is fetched, and no picture is read here: what names one is refused, not passed over.
            (own, _) if schema["properties"].get(own).is_some() || own == "task" => {
                arguments.insert(own.to_owned(), value.clone());
            }
            (own, _) if own.starts_with("image") || own.starts_with("mask") || own.ends_with("_url") => {
                arguments.insert(own.to_owned(), value.clone());
            }
            _ => warnings.push(format!("`{}` is not known here and was passed over", name.escape_default())),
        }
    }
    // Some send both forms of a size.
    if let (Some(Value::String(size)), Some(width), Some(height)) =
        (arguments.get("size"), arguments.get("width"), arguments.get("height"))
        && *size == format!("{width}x{height}")
    {
        arguments.remove("size");
    }
    Ok(Wanted { arguments: Value::Object(arguments), form, warnings })
}

/// One picture of an answer.
fn item(desk: &Desk, artifact: &Artifact, form: Form, host: &str) -> Result<Value> {
    Ok(match form {
        Form::Base64 => json!({ "b64_json": STANDARD.encode(desk.store().get(&artifact.id)?) }),
        Form::Url => json!({ "url": format!("http://{host}/v1/artifacts/{}/content", artifact.id) }),
        Form::Artifact => artifact.reference(),
    })
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// `GET /v1/models`.
pub(super) async fn models(State(app): State<App>) -> Answer {
    let models = blocking(move || here(&app.desk)).await?;
    Ok(json_of(StatusCode::OK, &json!({ "object": "list", "data": models })))
}

/// `GET /v1/models/{id}`.
pub(super) async fn model(State(app): State<App>, Path(id): Path<String>) -> Answer {
    let found = blocking(move || Ok(row(&app.desk.listed(Some(&id))?))).await?;
    Ok(json_of(StatusCode::OK, &found))
}

/// Every model here that draws.
fn here(desk: &Desk) -> Result<Vec<Value>> {
    let catalogue = desk.catalogue()?;
    Ok(catalogue.models().iter().filter(|listed| listed.installed && listed.runs).map(row).collect())
}

fn row(listed: &Listed) -> Value {
    let mut capabilities: Vec<String> = listed.tasks.iter().map(|task| task.name().to_owned()).collect();
    for (task, name) in [
        ("text_to_image", "image_generation"),
        ("image_to_image", "image_edit"),
        ("text_to_video", "video_generation"),
    ] {
        if capabilities.iter().any(|known| known == task) {
            capabilities.push(name.into());
        }
    }
    json!({ "id": listed.id, "object": "model", "created": 0, "owned_by": "latentia", "capabilities": capabilities })
}
