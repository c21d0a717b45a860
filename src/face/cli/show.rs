//! `latentia show`: what a model is, what it can do, and how we know.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::{answer, registry, spoken_bytes};
use crate::error::Result;
use crate::family::known::{Finding, spoken};
use crate::registry::terms;

/// The arguments of `latentia show`.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// A model folder, a file of weights, or the name of an installed model.
    model: String,
    /// A folder of configs, for a single file whose shapes cannot tell.
    #[arg(long, value_name = "FOLDER")]
    config: Option<PathBuf>,
    /// Prints one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(arguments: &Show) -> Result<()> {
    let survey = registry().survey(&arguments.model, arguments.config.as_deref())?;
    let mut value = json!(survey.finding);
    value["path"] = json!(survey.path);
    value["files"] = json!(survey.files);
    let finding = &survey.finding;
    let variant = finding.variant.as_deref().unwrap_or_default();
    value["terms"] = json!(finding.family.as_deref().and_then(|family| terms(family, variant)));
    answer(arguments.json, &value, &lines(&survey.finding, &value))
}

/// A finding for a person.
pub(super) fn lines(finding: &Finding, value: &Value) -> Vec<String> {
    let list = |key: &str| {
        let items = value[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        items.collect::<Vec<_>>().join(", ")
    };
    let family = finding.family.as_deref().unwrap_or("unknown");
    let mut lines = vec![
        format!("family      {family} {}", finding.variant.as_deref().unwrap_or("")).trim_end().to_owned(),
    ];
    let mut row = |name: &str, text: String| {
        if !text.is_empty() {
            lines.push(format!("{name:<12}{text}"));
        }
    };
    row("role", value["role"].as_str().unwrap_or_default().replace('_', " "));
    row("tasks", list("tasks"));
    row("abilities", list("abilities"));
    row("prediction", finding.prediction.clone().unwrap_or_default());
    row("size", finding.size.map_or(String::new(), |[width, height]| format!("{width}x{height}")));
    if let Some(profile) = finding.profile {
        row("sides", format!("multiples of {}", profile.multiple));
        let text = |key: &str| value["terms"][key].as_str().unwrap_or_default().to_owned();
        let checked = if value["terms"]["checked"] == false { " (not checked)" } else { "" };
        row("licence", format!("{}{checked}", text("licence")));
    }
    if !finding.tasks.is_empty() {
        row("runs here", if finding.runs { "yes" } else { "no" }.into());
    }
    for part in &finding.parts {
        let what = format!("{} {}", part.family, part.variant);
        row(
            "part",
            format!(
                "{} {} ({} tensors, {} parameters, {}, {})",
                part.place.trim_end_matches('.'),
                what.trim(),
                part.tensors,
                part.parameters,
                spoken_bytes(part.bytes),
                part.dtype
            )
            .trim_start()
            .to_owned(),
        );
    }
    for missing in &finding.missing {
        row("missing", missing.clone());
    }
    for conflict in &finding.conflicts {
        row("conflict", conflict.clone());
    }
    for claim in &finding.claims {
        let sure = json!(claim.confidence);
        row(
            "evidence",
            format!(
                "{} {}: {} ({})",
                claim.fact,
                claim.value,
                spoken(&claim.because),
                sure.as_str().unwrap_or("")
            ),
        );
    }
    for note in &finding.notes {
        row("note", note.clone());
    }
    for name in &finding.telling {
        row("tensor", name.clone());
    }
    lines
}
