//! A tool in the words of those who call tools: MCP, OpenAI, Anthropic, AbstractCore.

use serde_json::{Map, Value, json};

use super::{Desk, Entry, Gives};
use crate::error::{Error, Result};

/// A way to write a tool down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// Model Context Protocol.
    #[default]
    Mcp,
    /// OpenAI's Responses.
    OpenAi,
    /// OpenAI's Chat Completions.
    OpenAiChat,
    /// Anthropic's Messages.
    Anthropic,
    /// AbstractCore's tool definitions.
    AbstractCore,
    /// OpenHuman's specs of tools.
    OpenHuman,
}

impl Form {
    /// Every form, as it is spelled.
    pub const ALL: &[(&str, Self)] = &[
        ("mcp", Self::Mcp),
        ("openai", Self::OpenAi),
        ("openai-chat", Self::OpenAiChat),
        ("anthropic", Self::Anthropic),
        ("abstractcore", Self::AbstractCore),
        ("openhuman", Self::OpenHuman),
    ];

    /// A form by its name.
    ///
    /// # Errors
    /// `invalid_argument` naming all of them.
    pub fn named(name: &str) -> Result<Self> {
        let names: Vec<&str> = Self::ALL.iter().map(|(name, _)| *name).collect();
        let found = Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, form)| *form);
        found.ok_or_else(|| Error::argument("format", format!("the format is none of {}", names.join(", "))))
    }
}

/// A tool in a form, with the limits of the default model.
///
/// # Errors
/// What reading the model says.
pub fn export(entry: &Entry, desk: &Desk, form: Form) -> Result<Value> {
    let about = &entry.about;
    let schema = entry.schema(desk, None)?;
    Ok(match form {
        Form::Mcp => json!({
            "name": about.name,
            "description": format!("{} {}", about.description, about.when_to_use),
            "inputSchema": schema,
            "outputSchema": output(about.gives),
            "annotations": annotations(about.gives),
        }),
        Form::OpenAi => json!({
            "type": "function",
            "name": about.name,
            "description": format!("{} {}", about.description, about.when_to_use),
            "parameters": strict(&schema),
            "strict": false,
        }),
        Form::OpenAiChat => json!({
            "type": "function",
            "function": {
                "name": about.name,
                "description": format!("{} {}", about.description, about.when_to_use),
                "parameters": strict(&schema),
            },
        }),
        Form::Anthropic => json!({
            "name": about.name,
            "description": format!("{} {}", about.description, about.when_to_use),
            "input_schema": strict(&schema),
        }),
        Form::OpenHuman => json!({
            "name": about.name,
            "description": format!("{} {}", about.description, about.when_to_use),
            "parameters": schema,
            "permission": permission(about.gives),
            "model_visible_image_output": about.name == "view_image",
            "writes_files": about.gives == Gives::Files,
        }),
        Form::AbstractCore => {
            let mut required: Vec<&str> =
                schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            required.sort_unstable();
            json!({
                "name": about.name,
                "description": about.description,
                "when_to_use": about.when_to_use,
                "parameters": schema["properties"],
                "required_args": required,
                "tags": about.tags,
                "examples": [],
            })
        }
    })
}

/// What a tool must be allowed to do, in OpenHuman's words.
fn permission(gives: Gives) -> &'static str {
    match gives {
        Gives::Facts => "read_only",
        Gives::Ref | Gives::Refs | Gives::Files => "write",
        Gives::Order => "execute",
    }
}

/// What MCP may take for granted of a tool; clients must not trust it.
fn annotations(gives: Gives) -> Value {
    json!({
        "readOnlyHint": gives == Gives::Facts,
        "destructiveHint": false,
        "idempotentHint": matches!(gives, Gives::Facts | Gives::Order),
        "openWorldHint": false,
    })
}

/// The schema of structured answers over MCP.
fn output(gives: Gives) -> Value {
    if !gives.works() {
        return json!({ "type": "object" });
    }
    json!({
        "type": "object",
        "properties": {
            "artifacts": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "$artifact": { "type": "string" },
                        "content_type": { "type": "string" },
                        "sha256": { "type": "string" },
                        "size_bytes": { "type": "integer" },
                        "uri": { "type": "string" },
                    },
                    "required": ["$artifact"],
                },
            },
            "job": { "type": ["object", "null"] },
            "paths": { "type": "array", "items": { "type": "string" } },
            "error": { "type": "object" },
            "notes": { "type": "array", "items": { "type": "string" } },
        },
        "required": [],
    })
}

/// A schema without defaults of null, which some validators take for a value of the wrong type.
fn strict(schema: &Value) -> Value {
    let mut schema = schema.clone();
    for property in schema["properties"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        if let Some(keys) = property.as_object_mut()
            && keys.get("default").is_some_and(Value::is_null)
        {
            keys.remove("default");
        }
    }
    schema
}
