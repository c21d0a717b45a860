//! OpenAI's routes for pictures, for clients that know no others.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Sender, channel};
use tokio_stream::wrappers::ReceiverStream;

use super::guard::body;
use super::openai::{Form, Wanted, translated};
use super::reply::{Answer, blocking, json_of};
use super::tools::{Held, again, finish, start};
use super::{App, form};
use crate::artifact::store::Artifact;
use crate::error::{Code, Error, Result};
use crate::tool::{self, Desk};

/// Which tool a route calls, and what its events are called.
pub(super) struct Route {
    pub(super) tool: &'static str,
    event: &'static str,
}

pub(super) const GENERATE: Route = Route { tool: "vision_text_to_image_batch", event: "image_generation" };
pub(super) const EDIT: Route = Route { tool: "vision_image_to_image_batch", event: "image_edit" };

/// `POST /v1/images/generations`.
pub(super) async fn generate(State(app): State<App>, headers: HeaderMap, sent: Body) -> Answer {
    let sent = tool::read_arguments(&body(sent).await?)?;
    draw(app, &headers, &GENERATE, &sent).await
}

/// `POST /v1/images/edits`: a form, or JSON.
pub(super) async fn edit(State(app): State<App>, request: Request) -> Answer {
    let headers = request.headers().clone();
    let sent = form::read(request).await?;
    draw(app, &headers, &EDIT, &sent).await
}

/// `POST /v1/images/variations`: the same without words.
pub(super) async fn vary(State(app): State<App>, request: Request) -> Answer {
    let headers = request.headers().clone();
    let mut sent = form::read(request).await?;
    if sent["prompt"].is_null() {
        sent["prompt"] = "".into();
    }
    draw(app, &headers, &EDIT, &sent).await
}

async fn draw(app: App, headers: &HeaderMap, route: &Route, sent: &Value) -> Answer {
    let entry = tool::find(&app.desk, route.tool)?;
    let known = {
        let desk = Arc::clone(&app.desk);
        blocking(move || entry.schema(&desk, None)).await?
    };
    let wanted = translated(sent, &known)?;
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
    let reply = Reply { host: text(header::HOST).unwrap_or_default().to_owned(), form: wanted.form };
    let job = start(&app, entry, wanted.arguments.clone(), key, false).await?;
    if let Some(partial) = wanted.stream {
        return Ok(streamed(app, job, reply, route.event, partial));
    }
    let outcome = finish(job).await?;
    let answer = whole(outcome.as_ref())?;
    Ok(json_of(StatusCode::OK, &reply.whole(&app, &answer, &wanted).await?))
}

/// How pictures are told of.
struct Reply {
    host: String,
    form: Form,
}

/// The answer without a hole: OpenAI's form has no place for one.
fn whole(outcome: &Result<tool::Answer>) -> Result<tool::Answer> {
    let answer = outcome.as_ref().map_err(again)?;
    match answer.notes.first() {
        Some(hole) => Err(Error::new(Code::Internal, hole.clone())),
        None => Ok(answer.clone()),
    }
}

fn size_of(artifact: &Artifact) -> String {
    let fact = |key: &str| artifact.metadata.get(key).cloned().unwrap_or_default();
    format!("{}x{}", fact("width"), fact("height"))
}

impl Reply {
    async fn items(&self, app: &App, answer: &tool::Answer) -> Result<Vec<Value>> {
        let (artifacts, desk) = (answer.artifacts.clone(), Arc::clone(&app.desk));
        let (form, host) = (self.form, self.host.clone());
        let items = move || {
            artifacts.iter().map(|artifact| item(&desk, artifact, form, &host)).collect::<Result<_>>()
        };
        blocking(items).await
    }

    /// All of it at once.
    async fn whole(&self, app: &App, answer: &tool::Answer, wanted: &Wanted) -> Result<Value> {
        let data = self.items(app, answer).await?;
        let first = answer.artifacts.first();
        let fact =
            |key: &str| first.and_then(|artifact| artifact.metadata.get(key).cloned()).unwrap_or_default();
        Ok(json!({
            "created": seconds(),
            "data": data,
            "output_format": "png",
            "size": first.map(size_of).unwrap_or_default(),
            "latentia": {
                "artifacts": answer.refs(),
                "seed": fact("seed"),
                "model": fact("model"),
                "warnings": wanted.warnings,
            },
        }))
    }
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

type Events = Sender<std::result::Result<SseEvent, Infallible>>;

/// Sends one event; `false` if nobody listens any more.
async fn send(events: &Events, name: &str, mut value: Value) -> bool {
    value["type"] = name.into();
    events.send(Ok(SseEvent::default().event(name).data(value.to_string()))).await.is_ok()
}

/// Events: at most so many unfinished pictures, then each that is finished. When the listener goes, the work ends.
fn streamed(app: App, job: Held, reply: Reply, event: &'static str, partial: u64) -> Response {
    let (events, receiver) = channel(16);
    tokio::spawn(async move {
        let gone = events.clone();
        tokio::select! {
            () = tell(&app, job, &reply, (event, partial), &events) => {}
            () = gone.closed() => {}
        }
    });
    Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::default()).into_response()
}

async fn tell(app: &App, mut job: Held, reply: &Reply, (event, partial): (&str, u64), events: &Events) {
    let mut told = 0;
    while let Some(unfinished) = job.unfinished.recv().await {
        // Spread over the steps, so that one of two comes after a third of them.
        if told < partial && unfinished.step as u64 * (partial + 1) >= (told + 1) * unfinished.steps as u64 {
            let value = json!({
                "b64_json": STANDARD.encode(&unfinished.png),
                "partial_image_index": told,
                "created_at": seconds(),
                "output_format": "png",
                "background": "opaque",
            });
            told += 1;
            if !send(events, &format!("{event}.partial_image"), value).await {
                return;
            }
        }
    }
    let made = async {
        let answer = whole(finish(job).await?.as_ref())?;
        let items = reply.items(app, &answer).await?;
        Ok::<_, Error>((items, answer))
    };
    match made.await {
        Ok((items, answer)) => {
            for (mut value, artifact) in items.into_iter().zip(&answer.artifacts) {
                value["created_at"] = seconds().into();
                value["output_format"] = "png".into();
                value["background"] = "opaque".into();
                value["size"] = size_of(artifact).into();
                value["latentia"] = json!({ "artifacts": [artifact.reference()] });
                // Nothing is counted or charged here; clients read the key all the same.
                value["usage"] = json!({ "input_tokens": 0, "output_tokens": 0, "total_tokens": 0 });
                if !send(events, &format!("{event}.completed"), value).await {
                    return;
                }
            }
        }
        Err(error) => {
            send(events, "error", error.to_json()).await;
        }
    }
}
