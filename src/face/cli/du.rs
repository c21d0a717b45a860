//! `latentia du`: how much room models take.

use std::collections::BTreeSet;

use clap::Args;
use serde_json::json;

use super::{answer, home, registry, spoken_bytes};
use crate::error::Result;
use crate::fetch::unfinished;

/// The arguments of `latentia du`.
#[derive(Debug, Args)]
pub(super) struct Du {
    /// Prints one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(arguments: &Du) -> Result<()> {
    let registry = registry();
    let (mut models, mut lines) = (Vec::new(), Vec::new());
    let (mut own, mut all, mut counted) = (0, 0, BTreeSet::new());
    for name in registry.names() {
        let (files, here) = match registry.usage(&name) {
            Ok(used) => used,
            // What was imported and is gone takes no room.
            Err(error) => {
                lines.push(format!("{:>10}  {name}  {error}", spoken_bytes(0)));
                models.push(
                    json!({ "model": name, "bytes": 0, "here": false, "error": error.to_json()["error"] }),
                );
                continue;
            }
        };
        let bytes: u64 = files.iter().map(|(_, bytes)| bytes).sum();
        // A part that several models share lies there once.
        for (_, bytes) in files.into_iter().filter(|(path, _)| counted.insert(path.clone())) {
            all += bytes;
            own += if here { bytes } else { 0 };
        }
        let place = if here { "" } else { "  elsewhere" };
        lines.push(format!("{:>10}  {name}{place}", spoken_bytes(bytes)));
        models.push(json!({ "model": name, "bytes": bytes, "here": here }));
    }
    for (name, bytes) in unfinished(&home().join("models")) {
        all += bytes;
        own += bytes;
        lines.push(format!(
            "{:>10}  {name}  not whole: `latentia pull` goes on, `latentia rm {name}` gives up",
            spoken_bytes(bytes)
        ));
        models.push(json!({ "model": name, "bytes": bytes, "here": true, "unfinished": true }));
    }
    lines.push(format!(
        "{:>10}  in all, {} of it in the models' folder",
        spoken_bytes(all),
        spoken_bytes(own)
    ));
    answer(arguments.json, &json!({ "models": models, "bytes": all, "bytes_here": own }), &lines)
}
