//! `latentia show`: what a model is, what it can do, and how we know.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::{answer, registry, spoken_bytes};
use crate::error::Result;
use crate::family::known::{Finding, Role, spoken};

/// The arguments of `latentia show`.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// A model folder, a file of weights, or the name of an installed model.
    model: String,
    /// A folder of configs, for a single file whose shapes cannot tell.
    #[arg(long, value_name = "FOLDER")]
    config: Option<PathBuf>,
    /// A file with a text encoder or an autoencoder for it; may be repeated. Those that lie beside it and alone fit are
    /// found without.
    #[arg(long = "part", value_name = "FILE")]
    parts: Vec<PathBuf>,
    /// Prints one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(arguments: &Show) -> Result<()> {
    let survey = registry().survey(&arguments.model, arguments.config.as_deref(), &arguments.parts)?;
    let value = survey.to_json()?;
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
    let draws = matches!(finding.role, Role::Denoiser | Role::Checkpoint) && finding.family.is_some();
    let unknown = if draws { "unknown" } else { "" };
    row("prediction", finding.prediction.clone().unwrap_or_else(|| unknown.into()));
    row("size", finding.size.map_or(String::new(), |[width, height]| format!("{width}x{height}")));
    for (name, text) in rules(finding) {
        row(name, text);
    }
    for (name, text) in terms(value) {
        row(name, text);
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
    for (name, text) in weighed(value) {
        row(name, text);
    }
    for missing in &finding.missing {
        row("missing", missing.clone());
    }
    for scheme in &finding.unread {
        row("packed", format!("{scheme} (known, not readable yet)"));
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

/// What sizes and lengths may be: as the files say themselves, else as the family has it.
fn rules(finding: &Finding) -> Vec<(&'static str, String)> {
    let multiple = finding.multiple.or(finding.profile.map(|profile| profile.multiple));
    let every = finding.every.or(finding.profile.map(|profile| profile.every)).filter(|every| *every > 0);
    let sides = multiple.map(|multiple| ("sides", format!("multiples of {multiple}")));
    sides
        .into_iter()
        .chain(every.map(|every| ("frames", format!("a multiple of {every}, and one"))))
        .collect()
}

/// What the makers allow and recommend, and whether anybody has compared it with their words.
fn terms(value: &Value) -> Vec<(&'static str, String)> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (licence, defaults) = (&value["licence"], &value["defaults"]);
    let mut rows = Vec::new();
    if licence["class"].is_string() {
        let gate = if licence["gated"] == true { ", asks for an agreement" } else { "" };
        rows.push(("licence", format!("{}{gate} ({})", word(&licence["class"]), word(&licence["because"]))));
    }
    // A name without a class, and the name of a part.
    let said = word(&licence["said"]);
    if !said.is_empty() && !word(&licence["because"]).ends_with(&said) {
        rows.push(("licence", format!("{said} (the file says so)")));
    }
    if defaults.is_object() {
        let (steps, guidance) = (&defaults["steps"], &defaults["guidance"]);
        let because = word(&defaults["because"]);
        rows.push(("defaults", format!("{steps} steps, guidance {guidance} ({because})")));
    }
    rows
}

/// What the phases weigh, and the files with their digests: that of all bytes where it is known, else that of the header.
fn weighed(value: &Value) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    let memory = &value["memory"];
    if memory.is_object() {
        let bytes = |phase: &str| spoken_bytes(memory[phase].as_u64().unwrap_or(0));
        let phases = ["text_encoder", "denoiser", "decoder"];
        let phases = phases.map(|phase| format!("{} {}", phase.replace('_', " "), bytes(phase))).join(", ");
        let dtype = memory["dtype"].as_str().unwrap_or_default();
        let peak = bytes("peak");
        rows.push(("memory", format!("{peak} of weights in {dtype}, one phase at a time: {phases}")));
    }
    for file in value["files"].as_array().into_iter().flatten() {
        let name = file["name"].as_str().unwrap_or_default();
        let digest = match file["sha256"].as_str() {
            Some(digest) => format!("sha256 {digest}"),
            None => format!("header sha256 {}", file["header_sha256"].as_str().unwrap_or_default()),
        };
        rows.push(("file", format!("{name} {digest}")));
    }
    rows
}
