//! What the protocol asks of a server: tools, and artifacts as resources.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ResourceContents, ResourceTemplate,
    ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;
use tokio::sync::mpsc;

use super::result;
use crate::artifact::store::{Id, Query};
use crate::error::{Error, Result};
use crate::event::{Cancel, Event, Watch};
use crate::tool::{self, Desk, Entry, Form, Guidance, Job, Progress};

/// Artifacts of a page of resources.
const PAGE: usize = 50;

/// One server for every connection and request.
#[derive(Clone)]
pub(in crate::face) struct Server {
    desk: Arc<Desk>,
    patience: Duration,
}

impl Server {
    pub(super) fn new(desk: Arc<Desk>, patience: Duration) -> Self {
        Self { desk, patience }
    }

    /// Work that blocks, away from the threads that wait.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Desk>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let desk = Arc::clone(&self.desk);
        let done = tokio::task::spawn_blocking(move || work(&desk)).await;
        done.unwrap_or_else(|error| Err(Error::internal("a request died").because(error)))
    }

    /// Runs a tool that makes nothing, until it is done or nobody wants it.
    async fn look(
        &self,
        entry: &'static Entry,
        arguments: Value,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        let cancel = Cancel::default();
        let asked = cancel.clone();
        let work = self.blocking(move |desk| {
            let answer = entry.call(desk, &arguments, &mut Watch::new(asked, |_| {}))?;
            Ok(result::of_answer(desk, entry.about.gives, &answer, false))
        });
        let mut work = std::pin::pin!(work);
        let done = tokio::select! {
            done = work.as_mut() => done,
            () = context.ct.cancelled() => {
                cancel.cancel();
                work.await
            }
        };
        done.unwrap_or_else(|error| result::of_error(&error))
    }

    /// Puts a call in line, tells how far it is, and hands back the answer or, if that takes too long, the job.
    async fn work(
        &self,
        entry: &'static Entry,
        arguments: Value,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        let previews = result::wants_previews(&arguments);
        let (sender, heard) = mpsc::unbounded_channel();
        let listener: tool::Listener = Box::new(move |event, progress| {
            if !matches!(event, Event::Bytes { .. } | Event::Ended { .. } | Event::Preview { .. }) {
                let _ = sender.send(*progress);
            }
        });
        let started =
            self.blocking(move |desk| desk.jobs().start(desk, entry, arguments, None, Some(listener))).await;
        let job = match started {
            Ok(job) => job,
            Err(error) => return result::of_error(&error),
        };
        // If the request is dropped, as when its stream is closed, the work ends with it.
        let mut held = Held { job: Arc::clone(&job), stays: false };
        let ended = tokio::select! {
            () = tell(heard, context) => true,
            () = context.ct.cancelled() => {
                job.cancel();
                false
            }
            () = tokio::time::sleep(self.patience) => {
                held.stays = true;
                return result::of_job(&job);
            }
        };
        let waited = Arc::clone(&job);
        let patience = if ended { Duration::from_secs(5) } else { self.patience };
        let outcome = self.blocking(move |_| Ok(waited.wait(patience))).await;
        match outcome {
            Ok(Some(outcome)) => match outcome.as_ref() {
                Ok(_) => {
                    let outcome = Arc::clone(&outcome);
                    let gives = entry.about.gives;
                    let made = self.blocking(move |desk| match outcome.as_ref() {
                        Ok(answer) => Ok(result::of_answer(desk, gives, answer, previews)),
                        Err(_) => Err(Error::internal("an outcome changed")),
                    });
                    made.await.unwrap_or_else(|error| result::of_error(&error))
                }
                Err(error) => result::of_error(error),
            },
            Ok(None) => {
                held.stays = true;
                result::of_job(&job)
            }
            Err(error) => result::of_error(&error),
        }
    }
}

/// A job that is stopped when its caller goes.
struct Held {
    job: Arc<Job>,
    stays: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.stays {
            self.job.cancel();
        }
    }
}

/// Sends progress on, always rising, until the job ends.
async fn tell(mut heard: mpsc::UnboundedReceiver<Progress>, context: &RequestContext<RoleServer>) {
    let token = context.meta.get_progress_token();
    let mut last = 0.0;
    while let Some(progress) = heard.recv().await {
        let Some(token) = &token else { continue };
        // Between two steps there is something to tell too, and it must be more than before.
        let done = (progress.step as f64).max(last + 1e-3);
        last = done;
        // What follows the last step counts as one.
        let total = (progress.steps > 0).then_some(progress.steps as f64 + 1.0);
        let mut note = ProgressNotificationParam::new(token.clone(), done);
        note.total = total;
        note.message = Some(progress.spoken());
        if context.peer.notify_progress(note).await.is_err() {
            return while heard.recv().await.is_some() {};
        }
    }
}

/// A definition as the protocol's type.
fn definition(entry: &Entry, desk: &Desk) -> Result<Tool> {
    let exported = tool::export(entry, desk, Form::Mcp)?;
    let object = |key: &str| exported[key].as_object().cloned().unwrap_or_default();
    let hint = |key: &str| exported["annotations"][key].as_bool();
    let mut annotations = ToolAnnotations::default();
    annotations.read_only_hint = hint("readOnlyHint");
    annotations.destructive_hint = hint("destructiveHint");
    annotations.idempotent_hint = hint("idempotentHint");
    annotations.open_world_hint = hint("openWorldHint");
    let description = exported["description"].as_str().unwrap_or_default().to_owned();
    let mut tool = Tool::new(entry.about.name, description, object("inputSchema"));
    tool.output_schema = Some(Arc::new(object("outputSchema")));
    tool.annotations = Some(annotations);
    Ok(tool)
}

fn internal(error: &Error) -> ErrorData {
    ErrorData::internal_error(error.to_string(), Some(error.to_json()))
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        let mut instructions = "Local models that draw. Tools answer with small refs to artifacts; read a picture as the \
            resource that a ref's `uri` names. A call that takes longer hands back a job: ask for it with get_job."
            .to_owned();
        let guidance = self.desk.rules().images.guidance(Guidance::default());
        if !guidance.is_empty() {
            instructions.push_str("\n\n");
            instructions.push_str(&guidance);
        }
        let mut info = ServerConfig::new(capabilities).with_instructions(instructions);
        info.server_info = Implementation::new("latentia", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ListToolsResult, ErrorData> {
        let tools = self.blocking(|desk| {
            tool::exposed(desk).map(|entry| definition(entry, desk)).collect::<Result<Vec<_>>>()
        });
        Ok(ListToolsResult::with_all_items(tools.await.map_err(|error| internal(&error))?))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<CallToolResponse, ErrorData> {
        let found = tool::find(&self.desk, &request.name);
        let entry =
            found.map_err(|error| ErrorData::invalid_params(error.to_string(), Some(error.to_json())))?;
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let result = if entry.about.gives.works() {
            self.work(entry, arguments, &context).await
        } else {
            self.look(entry, arguments, &context).await
        };
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ListResourcesResult, ErrorData> {
        let after = request.and_then(|request| request.cursor);
        let query = Query { limit: Some(PAGE), after, ..Query::default() };
        let page = self.blocking(move |desk| desk.store().list(&query)).await;
        let page =
            page.map_err(|error| ErrorData::invalid_params(error.to_string(), Some(error.to_json())))?;
        let mut list =
            ListResourcesResult::with_all_items(page.artifacts.iter().map(result::resource).collect());
        list.next_cursor = page.next;
        Ok(list)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ListResourceTemplatesResult, ErrorData> {
        let artifact = ResourceTemplate::new("latentia://artifacts/{id}", "artifact")
            .with_description("A picture or another file that a tool made, by the id in its ref.");
        let job = ResourceTemplate::new("latentia://jobs/{id}", "job")
            .with_description("How far a job is.")
            .with_mime_type("application/json");
        Ok(ListResourceTemplatesResult::with_all_items(vec![artifact, job]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri;
        let missing = |error: Error| ErrorData::resource_not_found(error.to_string(), Some(error.to_json()));
        if let Some(id) = uri.strip_prefix("latentia://jobs/").map(str::to_owned) {
            let record = self.blocking(move |desk| desk.jobs().record(&id)).await.map_err(missing)?;
            let contents =
                ResourceContents::text(record.to_json().to_string(), uri).with_mime_type("application/json");
            return Ok(ReadResourceResult::new(vec![contents]).into());
        }
        let id = uri.strip_prefix("latentia://artifacts/").and_then(|id| Id::parse(id).ok());
        let Some(id) = id else {
            return Err(ErrorData::invalid_params("there is no such resource", None));
        };
        let read = self.blocking(move |desk| Ok((desk.store().meta(&id)?, desk.store().get(&id)?))).await;
        let (artifact, bytes) = read.map_err(missing)?;
        let contents =
            ResourceContents::blob(STANDARD.encode(bytes), uri).with_mime_type(artifact.content_type);
        Ok(ReadResourceResult::new(vec![contents]).into())
    }
}
