//! Tools and jobs: the same table as on the command line, and the same answers.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio_stream::wrappers::ReceiverStream;

use super::App;
use super::guard::body;
use super::reply::{Answer, blocking, json_of};
use crate::error::{Code, Error, Result};
use crate::event::{Cancel, Event, Watch};
use crate::tool::{self, Desk, Entry, Form, Job, Progress, State as JobState};

/// How long a caller is kept; most libraries give up at 600 seconds.
const DEADLINE: Duration = Duration::from_secs(540);

/// `GET /v1/tools?format=`: every tool that may be called.
pub(super) async fn list(State(app): State<App>, Query(query): Query<HashMap<String, String>>) -> Answer {
    let form = Form::named(query.get("format").map_or("mcp", String::as_str))?;
    let tools = blocking(move || {
        tool::exposed(&app.desk)
            .map(|entry| tool::export(entry, &app.desk, form))
            .collect::<Result<Vec<Value>>>()
    });
    Ok(json_of(StatusCode::OK, &json!({ "tools": tools.await? })))
}

/// `POST /v1/tools/{name}`: calls it. `Prefer: respond-async` hands back a job at once; `Idempotency-Key` makes a second
/// request the same job.
pub(super) async fn call(
    State(app): State<App>,
    Path(name): Path<String>,
    headers: HeaderMap,
    sent: Body,
) -> Answer {
    let bytes = body(sent).await?;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let key = text("idempotency-key");
    let is_async = text("prefer").is_some_and(|prefer| prefer.contains("respond-async"));
    let entry = tool::find(&app.desk, &name)?;
    let arguments = tool::read_arguments(&bytes)?;
    drop(bytes);
    if !entry.about.gives.works() {
        let value = look(&app, entry, arguments).await?;
        return Ok(json_of(StatusCode::OK, &value));
    }
    let job = start(&app, entry, arguments, key, is_async).await?;
    if is_async {
        return Ok(accepted(&app, &job)?);
    }
    let outcome = finish(job).await?;
    let answer = outcome.as_ref().as_ref().map_err(again)?;
    Ok(json_of(StatusCode::OK, &answer.value))
}

/// Runs a tool that makes nothing; when the caller goes, it stops.
async fn look(app: &App, entry: &'static Entry, arguments: Value) -> Result<Value> {
    let cancel = Leaving(Cancel::default());
    let (desk, asked) = (Arc::clone(&app.desk), cancel.0.clone());
    let work =
        move || entry.call(&desk, &arguments, &mut Watch::new(asked, |_| {})).map(|answer| answer.value);
    blocking(work).await
}

/// Cancels when it is dropped.
struct Leaving(Cancel);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A job that is stopped when its caller goes.
pub(super) struct Held {
    desk: Arc<Desk>,
    job: Arc<Job>,
    /// What is seen of its pictures on the way; ends with the job.
    pub(super) unfinished: tokio::sync::mpsc::UnboundedReceiver<Unfinished>,
    stays: bool,
}

impl Held {
    /// The job's name.
    pub(super) fn id(&self) -> &str {
        &self.job.id
    }
}

/// A picture on its way.
pub(super) struct Unfinished {
    pub(super) step: usize,
    pub(super) steps: usize,
    pub(super) png: Arc<[u8]>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.stays {
            self.job.cancel();
        }
    }
}

/// Puts a call in line.
pub(super) async fn start(
    app: &App,
    entry: &'static Entry,
    arguments: Value,
    key: Option<String>,
    stays: bool,
) -> Result<Held> {
    let desk = Arc::clone(&app.desk);
    // The sender goes when the job ends, and that is heard.
    let (sender, unfinished) = tokio::sync::mpsc::unbounded_channel();
    let listener: tool::Listener = Box::new(move |event, progress| {
        if let Event::Preview { png, .. } = event {
            let Progress { step, steps, .. } = *progress;
            let _ = sender.send(Unfinished { step, steps, png: Arc::clone(png) });
        }
    });
    // A job that others may ask for again must not end with one of them.
    let stays = stays || key.is_some();
    let job = blocking({
        let desk = Arc::clone(&desk);
        move || desk.jobs().start(&desk, entry, arguments, key.as_deref(), Some(listener))
    });
    Ok(Held { job: job.await?, desk, unfinished, stays })
}

/// Waits for the end of a job.
///
/// # Errors
/// `deadline_exceeded` after a long time, and the job is stopped then.
pub(super) async fn finish(mut held: Held) -> Result<Arc<Result<tool::Answer>>> {
    let job = Arc::clone(&held.job);
    let end = async {
        while held.unfinished.recv().await.is_some() {}
        loop {
            if let Some(outcome) = job.outcome() {
                return Ok(outcome);
            }
            let (record, waiting) = (job.record(), Arc::clone(&job));
            if record.status.is_over() {
                let desk = Arc::clone(&held.desk);
                return blocking(move || Ok(Arc::new(past(&desk, record)))).await;
            }
            blocking(move || Ok(waiting.wait(Duration::from_millis(500)))).await?;
        }
    };
    tokio::time::timeout(DEADLINE, end).await.unwrap_or_else(|_| {
        let message = format!("it was not done in {} s, and was stopped", DEADLINE.as_secs());
        Err(Error::new(Code::DeadlineExceeded, message).hint("ask with the header Prefer: respond-async"))
    })
}

/// What a job of an earlier time answered, by its record.
fn past(desk: &Desk, record: tool::Record) -> Result<tool::Answer> {
    match (record.result, record.error) {
        (Some(value), _) => {
            let artifacts = record.artifacts.iter().map(|reference| desk.store().resolve(reference));
            let artifacts = artifacts.collect::<Result<_>>()?;
            Ok(tool::Answer { value, artifacts, ..tool::Answer::default() })
        }
        (None, Some(error)) => {
            let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
            let code = Code::ALL.iter().copied().find(|code| code.as_str() == text("code"));
            Err(Error::new(code.unwrap_or(Code::Internal), text("message")))
        }
        (None, None) => Err(Error::internal("a job ended without a word")),
    }
}

/// The same error once more; what a library said is in its message.
pub(super) fn again(error: &Error) -> Error {
    let Error { code, hint, param, .. } = error;
    Error { hint: hint.clone(), param: param.clone(), ..Error::new(*code, error.to_string()) }
}

/// The job at once, and where to ask for it.
fn accepted(app: &App, held: &Held) -> Result<Response> {
    let record = app.desk.jobs().record(&held.job.id)?;
    let mut response = json_of(StatusCode::ACCEPTED, &record.to_json());
    if let Ok(place) = HeaderValue::from_str(&format!("/v1/jobs/{}", held.job.id)) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

/// `GET /v1/jobs/{id}`.
pub(super) async fn job(State(app): State<App>, Path(id): Path<String>) -> Answer {
    let record = blocking(move || app.desk.jobs().record(&id)).await?;
    Ok(json_of(StatusCode::OK, &record.to_json()))
}

/// `POST /v1/jobs/{id}/cancel`.
pub(super) async fn cancel(State(app): State<App>, Path(id): Path<String>) -> Answer {
    let record = blocking(move || app.desk.jobs().cancel(&id)).await?;
    Ok(json_of(StatusCode::OK, &record.to_json()))
}

/// `GET /v1/jobs/{id}/events`: the job whenever it has changed, until it is over.
pub(super) async fn events(State(app): State<App>, Path(id): Path<String>) -> Answer {
    let first = app.desk.jobs().record(&id)?;
    let (sender, receiver) = tokio::sync::mpsc::channel::<std::result::Result<SseEvent, Infallible>>(16);
    tokio::spawn(async move {
        let mut record = first;
        let mut number = 0_u64;
        loop {
            let name = match record.status {
                JobState::Queued => "job.queued",
                JobState::Running => "job.step",
                JobState::Completed => "job.completed",
                JobState::Failed => "job.failed",
                JobState::Cancelled => "job.cancelled",
            };
            number += 1;
            let event =
                SseEvent::default().event(name).id(number.to_string()).data(record.to_json().to_string());
            if sender.send(Ok(event)).await.is_err() || record.status.is_over() {
                return;
            }
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                match app.desk.jobs().record(&id) {
                    Ok(next) if next == record && !sender.is_closed() => {}
                    Ok(next) => {
                        record = next;
                        break;
                    }
                    Err(_) => return,
                }
            }
        }
    });
    Ok(Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::default()).into_response())
}

/// `GET /v1/capabilities`: the registry, in `AbstractVision`'s form with our facts beside it.
pub(super) async fn capabilities(State(app): State<App>) -> Answer {
    let catalogue = blocking(move || app.desk.catalogue()).await?;
    Ok(json_of(StatusCode::OK, &catalogue.to_json()))
}
