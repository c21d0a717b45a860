//! What is here: models and adapters.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{About, Answer, Desk, Gives, Tool};
use crate::error::{Error, Result};
use crate::event::Watch;
use crate::family::Task;
use crate::registry::{Listed, canonical};

/// Lists adapters.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ListAdapters {
    /// Only those for this task, such as `text_to_image`.
    #[serde(default)]
    task: Option<String>,
}

impl Tool for ListAdapters {
    const ABOUT: About = About {
        name: "vision_list_adapters",
        description: "Lists the LoRA adapters on this machine, with the models that they fit.",
        when_to_use: "Before lora_adapters is given.",
        tags: &["vision", "catalog", "adapters"],
        task: None,
        gives: Gives::Facts,
    };

    fn run(self, desk: &Desk, _: &mut Watch<'_>) -> Result<Answer> {
        let task = self.task.as_deref().map(known_task).transpose()?;
        let adapters = desk.studio().adapters();
        let catalogue = desk.catalogue()?;
        let fitting = |family: &Option<String>| -> Vec<String> {
            let fits = |listed: &&Listed| {
                listed.installed && listed.runs && listed.found["family"].as_str() == family.as_deref()
            };
            catalogue.models().iter().filter(fits).map(|listed| listed.id.clone()).collect()
        };
        let rows: Vec<Value> = adapters
            .into_iter()
            .map(|(name, family)| {
                json!({
                    "id": name,
                    "repo_id": Value::Null,
                    "base_models": family.iter().collect::<Vec<_>>(),
                    "compatible_models": fitting(&family),
                    "compatible_tasks": ["text_to_image", "image_to_image"],
                    "suggested_target_roles": [],
                    "raw": {},
                })
            })
            .filter(|_| task.is_none_or(|task| matches!(task, Task::TextToImage | Task::ImageToImage)))
            .collect();
        let said = format!("{} adapters are here", rows.len());
        Ok(Answer::facts(Value::Array(rows), said))
    }
}

/// Lists the models that are here.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ListModels {
    /// Only those that can do this task, such as `text_to_image`.
    #[serde(default)]
    task: Option<String>,
}

impl Tool for ListModels {
    const ABOUT: About = About {
        name: "list_models",
        description: "Lists the models on this machine with what each can do and within which limits.",
        when_to_use: "When it matters which model draws, or after unsupported_task.",
        tags: &["vision", "catalog", "models"],
        task: None,
        gives: Gives::Facts,
    };

    fn run(self, desk: &Desk, _: &mut Watch<'_>) -> Result<Answer> {
        let task = self.task.as_deref().map(known_task).transpose()?;
        let (default, open) = (desk.default_model().ok(), desk.open_model());
        let catalogue = desk.catalogue()?;
        let fits = |listed: &&Listed| {
            listed.installed && listed.runs && task.is_none_or(|task| listed.tasks.contains(&task))
        };
        let models: Vec<Value> = catalogue
            .models()
            .iter()
            .filter(fits)
            .map(|listed| {
                let tasks = listed
                    .tasks
                    .iter()
                    .map(|task| (task.name().to_owned(), json!({ "params": brief(&listed.params(*task)) })));
                json!({
                    "id": listed.id,
                    "default": default.as_deref() == Some(&listed.id),
                    "open": open.as_deref() == Some(&listed.id),
                    "family": listed.found["family"],
                    "tasks": tasks.collect::<serde_json::Map<_, _>>(),
                    "license": listed.licence(),
                })
            })
            .collect();
        let names: Vec<&str> = models.iter().filter_map(|model| model["id"].as_str()).collect();
        let said = if names.is_empty() { "no model here can do that".into() } else { names.join(", ") };
        Ok(Answer::facts(json!({ "models": models }), said))
    }
}

/// The limits of arguments, without what every reader knows.
fn brief(params: &Value) -> Value {
    let mut params = params.clone();
    for spec in params.as_object_mut().into_iter().flat_map(|params| params.values_mut()) {
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("required");
        }
    }
    params
}

/// A task by one of its names.
fn known_task(text: &str) -> Result<Task> {
    let name = canonical(text);
    Task::ALL.iter().copied().find(|task| task.name() == name).ok_or_else(|| {
        let names: Vec<String> = Task::ALL.iter().map(|task| task.name().to_owned()).collect();
        Error::argument("task", "there is no such task").hint(format!("tasks: {}", names.join(", ")))
    })
}
