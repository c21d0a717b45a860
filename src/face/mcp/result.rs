//! An answer in the order that clients read it: a line, links, pictures to look at, and everything as data.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{Annotations, CallToolResult, ContentBlock, ImageContent, Resource, Role};
use serde_json::{Value, json};

use crate::artifact::store::Artifact;
use crate::error::Error;
use crate::tool::{Answer, Desk, Gives, Job, preview};

/// Previews of one answer; the links are there for the others.
const PREVIEWS: usize = 4;

/// What a tool answered.
pub(super) fn of_answer(desk: &Desk, gives: Gives, answer: &Answer, previews: bool) -> CallToolResult {
    let data = if gives.works() {
        let mut data = json!({ "artifacts": answer.refs(), "job": null });
        if !answer.paths.is_empty() {
            data["paths"] = json!(answer.paths);
        }
        if !answer.notes.is_empty() {
            data["notes"] = json!(answer.notes);
        }
        data
    } else if answer.value.is_array() {
        json!({ "items": answer.value })
    } else {
        answer.value.clone()
    };
    let mut content = vec![ContentBlock::text(answer.said.clone())];
    content.extend(answer.artifacts.iter().map(|artifact| ContentBlock::resource_link(resource(artifact))));
    if let Some(shown) = &answer.shown {
        content.push(ContentBlock::image(STANDARD.encode(&shown.bytes), shown.content_type.clone()));
    }
    if previews {
        content.extend(answer.artifacts.iter().take(PREVIEWS).filter_map(|artifact| small(desk, artifact)));
    }
    content.push(ContentBlock::text(data.to_string()));
    let mut result = CallToolResult::success(content);
    result.structured_content = Some(data);
    result
}

/// The job that goes on instead of the answer.
pub(super) fn of_job(job: &Job) -> CallToolResult {
    let record = job.record();
    let data = json!({ "artifacts": [], "job": record.to_json() });
    let line = format!(
        "It takes longer: {}. Call get_job with job_id \"{}\" and wait_s 45 until it is completed; cancel_job stops it.",
        record.progress.spoken(),
        record.id
    );
    let mut result =
        CallToolResult::success(vec![ContentBlock::text(line), ContentBlock::text(data.to_string())]);
    result.structured_content = Some(data);
    result
}

/// What went wrong, in words that a model can act on.
pub(super) fn of_error(error: &Error) -> CallToolResult {
    let mut line = format!("{}: {error}", error.code.as_str());
    if let Some(hint) = &error.hint {
        line = format!("{line}. {hint}");
    }
    let mut result = CallToolResult::error(vec![ContentBlock::text(line)]);
    result.structured_content = Some(error.to_json());
    result
}

/// An artifact as a resource.
pub(super) fn resource(artifact: &Artifact) -> Resource {
    let name = artifact.filename.clone().unwrap_or_else(|| artifact.id.to_string());
    Resource::new(format!("latentia://artifacts/{}", artifact.id), name)
        .with_mime_type(artifact.content_type.clone())
        .with_size(artifact.size_bytes)
}

/// A small copy to look at. Where it cannot be made, the link is enough.
fn small(desk: &Desk, artifact: &Artifact) -> Option<ContentBlock> {
    let bytes = desk.store().get(&artifact.id).ok()?;
    let picture = preview(&bytes).ok()?;
    let everyone = Annotations::default().with_audience(vec![Role::User, Role::Assistant]);
    Some(ContentBlock::Image(
        ImageContent::new(STANDARD.encode(picture), "image/jpeg").with_annotations(everyone),
    ))
}

/// Whether the arguments ask for pictures to look at.
pub(super) fn wants_previews(arguments: &Value) -> bool {
    arguments["preview"] != false
}
