//! `latentia rm`: forgets a model.

use clap::Args;
use serde_json::json;

use super::{answer, registry};
use crate::error::Result;

/// The arguments of `latentia rm`.
#[derive(Debug, Args)]
pub(super) struct Rm {
    /// The name of an installed model.
    name: String,
    /// Also deletes its files, where they lie in the models' folder.
    #[arg(long)]
    yes: bool,
    /// Prints one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(arguments: &Rm) -> Result<()> {
    let removed = registry().remove(&arguments.name, arguments.yes)?;
    let lines: Vec<String> = removed.iter().map(|path| path.display().to_string()).collect();
    answer(arguments.json, &json!({ "model": arguments.name, "removed": removed }), &lines)
}
