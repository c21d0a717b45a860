//! `/v1/models`: what is here, as OpenAI's clients ask for it.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::App;
use super::reply::{Answer, blocking, json_of};
use crate::error::Result;
use crate::registry::Listed;
use crate::tool::Desk;

/// `GET /v1/models`.
pub(super) async fn list(State(app): State<App>) -> Answer {
    let models = blocking(move || here(&app.desk)).await?;
    Ok(json_of(StatusCode::OK, &json!({ "object": "list", "data": models })))
}

/// `GET /v1/models/{id}`.
pub(super) async fn one(State(app): State<App>, Path(id): Path<String>) -> Answer {
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
