//! What a tool answers: refs and facts for programs, a line for a reader, pixels for a model that must see them.

use serde_json::Value;

use crate::artifact::store::Artifact;

/// The answer of a tool.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// What programs get: a ref, an array of refs, or facts.
    pub value: Value,
    /// One line for a reader.
    pub said: String,
    /// What was made.
    pub artifacts: Vec<Artifact>,
    /// A picture that the caller asked to see.
    pub shown: Option<Shown>,
    /// The run that asked, if it said so; its refs then name it.
    pub run_id: Option<String>,
    /// Files that were written besides.
    pub paths: Vec<String>,
    /// What the user should know besides.
    pub notes: Vec<String>,
}

/// Pixels on their way to a model.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The file's bytes.
    pub bytes: Vec<u8>,
    /// Such as `image/png`.
    pub content_type: String,
}

impl Answer {
    /// Facts alone.
    pub(super) fn facts(value: Value, said: impl Into<String>) -> Self {
        Self { value, said: said.into(), ..Self::default() }
    }

    /// The refs of what was made; who named a run gets the names that runs go by, too.
    pub fn refs(&self) -> Vec<Value> {
        let reference = |artifact: &Artifact| {
            let mut reference = artifact.reference();
            if let Some(run_id) = &self.run_id {
                reference["run_id"] = run_id.as_str().into();
                reference["artifact_id"] = artifact.id.as_str().into();
            }
            reference
        };
        self.artifacts.iter().map(reference).collect()
    }
}

/// The id in the name that an artifact has as a resource.
pub(super) fn id_of(uri: &str) -> Option<&str> {
    uri.strip_prefix("latentia://artifacts/")
}
