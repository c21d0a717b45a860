//! `latentia verify`: compares a model's files with what was recorded of them.

use clap::Args;
use serde_json::Value;

use super::{answer, registry};
use crate::error::Result;

/// The arguments of `latentia verify`.
#[derive(Debug, Args)]
pub(super) struct Verify {
    /// The name of an installed model, or a path.
    name: String,
    /// Reads every byte; the first time records the digests.
    #[arg(long)]
    full: bool,
    /// Prints one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(arguments: &Verify) -> Result<()> {
    let value = registry().verify(&arguments.name, arguments.full)?;
    let files = value["files"].as_array().into_iter().flatten();
    let line = |file: &Value| {
        let text = |key: &str| file[key].as_str().unwrap_or_default().to_owned();
        let how = if file["compared"] == true { "as recorded" } else { "sound" };
        format!("{}  {how}  {}", text("file"), text("sha256")).trim_end().to_owned()
    };
    let lines: Vec<String> = files.map(line).collect();
    answer(arguments.json, &value, &lines)
}
