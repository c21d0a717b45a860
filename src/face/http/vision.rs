//! AbstractVision's own routes: which models there are, which are in memory, and pictures as jobs.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::guard::body;
use super::images::{EDIT, GENERATE, Route};
use super::openai::translated;
use super::reply::{Answer, blocking, json_of};
use super::tools::start;
use super::{App, form};
use crate::error::{Error, Result};
use crate::registry::{Listed, canonical};
use crate::tool::{self, Desk, Record, State as JobState, Wanted};

/// `GET /v1/vision/models?task=`: what is here, with the limits of every task and what of it is in memory.
pub(super) async fn models(State(app): State<App>, Query(query): Query<HashMap<String, String>>) -> Answer {
    let task = query.get("task").map(|task| canonical(task));
    let value = blocking(move || {
        let (catalogue, open) = (app.desk.catalogue()?, app.desk.residents()?);
        let fits = |listed: &&Listed| {
            let can = |task: &String| listed.tasks.iter().any(|known| known.name() == task);
            listed.installed && listed.runs && task.as_ref().is_none_or(can)
        };
        let rows: Vec<Value> =
            catalogue.models().iter().filter(fits).map(|listed| row(listed, &open)).collect();
        Ok(json!({ "object": "list", "data": rows, "models": rows, "active": app.desk.open_model() }))
    });
    Ok(json_of(StatusCode::OK, &value.await?))
}

fn row(listed: &Listed, open: &[Value]) -> Value {
    let specs =
        listed.tasks.iter().map(|task| (task.name().to_owned(), json!({ "params": listed.params(*task) })));
    let resident = open.iter().find(|record| record["model"] == listed.id.as_str());
    json!({
        "id": listed.id,
        "object": "model",
        "provider": "latentia",
        "owned_by": "latentia",
        "license": listed.licence(),
        "cached": true,
        "tasks": listed.tasks.iter().map(|task| task.name()).collect::<Vec<_>>(),
        "task_specs": specs.collect::<serde_json::Map<_, _>>(),
        "loaded": resident.is_some(),
        "residency": resident,
    })
}

/// `GET /v1/vision/model`: the models in memory, and the last that were.
pub(super) async fn model(State(app): State<App>) -> Answer {
    Ok(json_of(StatusCode::OK, &blocking(move || state(&app.desk)).await?))
}

fn state(desk: &Desk) -> Result<Value> {
    Ok(json!({ "active": desk.open_model(), "loaded": desk.residents()?, "released": desk.released() }))
}

/// The words of a request to load or unload.
struct Named {
    model: Option<String>,
    load_id: Option<String>,
    unload_first: bool,
}

impl Named {
    /// # Errors
    /// `malformed_request`; `invalid_argument` for a name that is no text and for a model of another provider.
    fn read(bytes: &[u8]) -> Result<Self> {
        let sent = if bytes.is_empty() { json!({}) } else { tool::read_arguments(bytes)? };
        let text = |key: &str| match &sent[key] {
            Value::Null => Ok(None),
            Value::String(text) if !text.trim().is_empty() => Ok(Some(text.trim().to_owned())),
            _ => Err(Error::argument(key, format!("`{key}` is no name"))),
        };
        for key in ["provider", "backend", "backend_kind"] {
            if let Some(other) = text(key)?.filter(|name| name != "latentia") {
                let shown: String = other.chars().take(80).flat_map(char::escape_default).collect();
                let message = format!("the provider here is latentia, not `{shown}`");
                return Err(Error::argument(key, message));
            }
        }
        let model = text("model_id")?.or(text("model")?);
        Ok(Self { model, load_id: text("load_id")?, unload_first: sent["unload_first"] == true })
    }
}

/// `POST /v1/vision/model/load {model, unload_first}`: reads the weights now and keeps them.
pub(super) async fn load(State(app): State<App>, sent: Body) -> Answer {
    let named = Named::read(&body(sent).await?)?;
    let value = blocking(move || {
        if named.unload_first {
            for record in app.desk.residents()? {
                let model = record["model"].as_str().map(str::to_owned);
                app.desk.unload(&Wanted { model, load_id: None })?;
            }
        }
        app.desk.load(named.model.as_deref())
    });
    Ok(json_of(StatusCode::OK, &value.await?))
}

/// `POST /v1/vision/model/unload {model | load_id}`.
pub(super) async fn unload(State(app): State<App>, sent: Body) -> Answer {
    let Named { model, load_id, .. } = Named::read(&body(sent).await?)?;
    Ok(json_of(StatusCode::OK, &blocking(move || app.desk.unload(&Wanted { model, load_id })).await?))
}

/// `POST /v1/vision/jobs/images/generations`.
pub(super) async fn generate(State(app): State<App>, headers: HeaderMap, sent: Body) -> Answer {
    let sent = tool::read_arguments(&body(sent).await?)?;
    begin(app, &headers, &GENERATE, &sent).await
}

/// `POST /v1/vision/jobs/images/edits`: a form, or JSON.
pub(super) async fn edit(State(app): State<App>, request: Request) -> Answer {
    let headers = request.headers().clone();
    let sent = form::read(request).await?;
    begin(app, &headers, &EDIT, &sent).await
}

async fn begin(app: App, headers: &HeaderMap, route: &Route, sent: &Value) -> Answer {
    let entry = tool::find(&app.desk, route.tool)?;
    let desk = Arc::clone(&app.desk);
    let known = blocking(move || entry.schema(&desk, None)).await?;
    let wanted = translated(sent, &known)?;
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
    let held = start(&app, entry, wanted.arguments, key, true).await?;
    let id = held.id().to_owned();
    let value = blocking(move || told(&app.desk, &app.desk.jobs().record(&id)?)).await?;
    Ok(json_of(StatusCode::ACCEPTED, &value))
}

/// `GET /v1/vision/jobs/{id}?consume=`: how far it is, and its pictures once it is done. `consume=1` forgets it then; the
/// pictures stay in the store.
pub(super) async fn job(
    State(app): State<App>,
    Path(id): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Answer {
    let consumes = query.get("consume").is_some_and(|text| matches!(text.as_str(), "1" | "true"));
    let value = blocking(move || {
        let record = app.desk.jobs().record(&id)?;
        let value = told(&app.desk, &record)?;
        if consumes && record.status.is_over() {
            app.desk.jobs().forget(&id)?;
        }
        Ok(value)
    });
    Ok(json_of(StatusCode::OK, &value.await?))
}

/// A record in AbstractVision's words.
fn told(desk: &Desk, record: &Record) -> Result<Value> {
    let state = match record.status {
        JobState::Queued => "queued",
        JobState::Running => "running",
        JobState::Completed => "succeeded",
        JobState::Failed => "failed",
        JobState::Cancelled => "cancelled",
    };
    let mut value = json!({
        "job_id": record.id,
        "state": state,
        "created_at": record.created_at,
        "updated_at": record.finished_at.or(record.started_at).unwrap_or(record.created_at),
        "progress": record.progress_json(),
        "result": null,
        "error": null,
    });
    if let Some(error) = &record.error {
        value["error"] = json!({ "message": error["message"], "type": error["code"] });
    }
    if record.status == JobState::Completed {
        let item = |reference: &Value| {
            let artifact = desk.store().resolve(reference)?;
            let bytes = desk.store().get(&artifact.id)?;
            Ok(json!({
                "b64_json": STANDARD.encode(bytes),
                "mime_type": artifact.content_type,
                "metadata": artifact.metadata,
                "artifact": artifact.reference(),
            }))
        };
        let data = record.artifacts.iter().map(item).collect::<Result<Vec<Value>>>()?;
        value["result"] = json!({ "created": record.finished_at.unwrap_or_default() as u64, "data": data });
    }
    Ok(value)
}
