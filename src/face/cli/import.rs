//! `latentia import`: remembers models where they lie.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};

use super::{answer, registry};
use crate::error::{Code, Error, Result};
use crate::family::known::{Finding, Role};
use crate::registry::{Given, Layout, layout, scan, survey};

/// The arguments of `latentia import`.
#[derive(Debug, Args)]
pub(super) struct Import {
    /// A model folder, a file of weights, or a folder of `ComfyUI`, A1111, Forge or the hub's cache.
    path: PathBuf,
    /// What to call it; its own name without.
    #[arg(long)]
    name: Option<String>,
    /// A folder of configs, for a single file whose shapes cannot tell.
    #[arg(long, value_name = "FOLDER")]
    config: Option<PathBuf>,
    /// A file with a text encoder or an autoencoder for it; may be repeated. Those that lie beside it and alone fit are
    /// found without.
    #[arg(long = "part", value_name = "FILE")]
    parts: Vec<PathBuf>,
    /// Says what it is, against what is found: family=…, variant=…, prediction=…, size=WxH.
    #[arg(long = "set", value_name = "FACT=VALUE", value_parser = fact)]
    facts: Vec<(String, String)>,
    /// Only lists what would be imported.
    #[arg(long)]
    dry_run: bool,
    /// Prints one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

/// What a network's output may mean.
const PREDICTIONS: &[&str] = &["epsilon", "v", "sample", "flow", "edm", "edm_v"];

fn fact(text: &str) -> std::result::Result<(String, String), String> {
    let (fact, value) = text.split_once('=').ok_or("write FACT=VALUE")?;
    if !["family", "variant", "prediction", "size"].contains(&fact) || value.is_empty() {
        return Err("the facts are family, variant, prediction and size".into());
    }
    if fact == "prediction" && !PREDICTIONS.contains(&value) {
        return Err(format!("predictions are {}", PREDICTIONS.join(", ")));
    }
    let side = |side: &str| side.parse::<u16>().is_ok_and(|side| side > 0);
    if fact == "size" && !value.split_once('x').is_some_and(|(width, height)| side(width) && side(height)) {
        return Err("a size is WIDTHxHEIGHT, such as 768x768".into());
    }
    Ok((fact.to_owned(), value.to_owned()))
}

pub(super) fn run(arguments: &Import) -> Result<()> {
    let path = &arguments.path;
    if !path.exists() {
        let message = format!("there is no file or folder `{}`", path.display());
        return Err(Error { param: Some("path".into()), ..Error::new(Code::FileNotFound, message) });
    }
    let layout = layout(path);
    if layout == Layout::Model { one(arguments) } else { many(arguments, layout) }
}

/// One model.
fn one(arguments: &Import) -> Result<()> {
    let path = &arguments.path;
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let stem = if whole.is_dir() { whole.file_name() } else { whole.file_stem() };
    let stem = stem.unwrap_or_default().to_string_lossy();
    let stem = stem.strip_prefix("models--").map_or(stem.to_string(), |rest| rest.replace("--", "-"));
    let name = arguments.name.clone().unwrap_or(stem);
    let told: Map<String, Value> =
        arguments.facts.iter().map(|(fact, value)| (fact.clone(), json!(value))).collect();
    let given = Given { config: arguments.config.as_deref(), parts: &arguments.parts, facts: Some(&told) };
    let survey =
        if arguments.dry_run { survey(path, &given)? } else { registry().import(path, &name, &given)? };
    let value =
        json!({ "imported": [{ "name": name, "path": survey.path, "found": survey.finding }], "others": [] });
    answer(arguments.json, &value, &[format!("{name}  {}", said(&survey.finding))])
}

/// Everything that is recognised in a folder of another program: whole models are remembered, parts are listed.
fn many(arguments: &Import, layout: Layout) -> Result<()> {
    if arguments.name.is_some()
        || arguments.config.is_some()
        || !arguments.parts.is_empty()
        || !arguments.facts.is_empty()
    {
        let message = format!("`{}` is {}: name one model in it", arguments.path.display(), layout.name());
        return Err(Error::argument("path", message));
    }
    let registry = registry();
    let (mut imported, mut others, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    let mut names: BTreeSet<String> = registry.names().into_iter().collect();
    let (sightings, all) = scan(&arguments.path, layout);
    for sighting in sightings {
        let survey = match sighting.found {
            Ok(survey) => survey,
            Err(error) => {
                lines.push(format!("-  {}: {error}", sighting.path.display()));
                others.push(json!({ "path": sighting.path, "error": error.to_json()["error"] }));
                continue;
            }
        };
        let finding = &survey.finding;
        let whole = matches!(finding.role, Role::Checkpoint | Role::Denoiser) && finding.family.is_some();
        let taken = whole && !names.insert(sighting.name.clone());
        let same = || registry.find(&sighting.name).ok() == std::path::absolute(&sighting.path).ok();
        let why = match (whole, taken) {
            (false, _) => Some("no model by itself"),
            (true, true) if same() => Some("remembered before"),
            (true, true) => Some("the name is taken: import it alone, with --name"),
            (true, false) => None,
        };
        let what = format!("{}  {}  {}", sighting.name, said(finding), sighting.path.display());
        let mut item = json!({ "name": sighting.name, "path": sighting.path, "role": finding.role,
            "family": finding.family, "variant": finding.variant });
        if let Some(why) = why {
            lines.push(format!("-  {what}  ({why})"));
            item["why"] = why.into();
            others.push(item);
            continue;
        }
        let done = if arguments.dry_run {
            Ok(())
        } else {
            registry.import(&sighting.path, &sighting.name, &Given::default()).map(|_| ())
        };
        match done {
            Ok(()) => {
                lines.push(format!("+  {what}"));
                imported.push(item);
            }
            Err(error) => {
                lines.push(format!("-  {what}  ({error})"));
                item["error"] = error.to_json()["error"].clone();
                others.push(item);
            }
        }
    }
    if lines.is_empty() {
        let message = format!("`{}` holds no model", arguments.path.display());
        return Err(Error { param: Some("path".into()), ..Error::new(Code::ModelNotFound, message) });
    }
    if !all {
        lines.push("there is more in it than is looked through at once: name a folder deeper in it".into());
    }
    let would = if arguments.dry_run { "would be " } else { "" };
    lines.push(format!("{} models {would}remembered; `latentia models` lists them", imported.len()));
    answer(
        arguments.json,
        &json!({ "layout": layout.name(), "imported": imported, "others": others, "all": all }),
        &lines,
    )
}

/// What was found, in a few words.
fn said(finding: &Finding) -> String {
    let family = finding.family.as_deref().unwrap_or("unknown");
    let role = json!(finding.role);
    let role = role.as_str().unwrap_or_default().replace('_', " ");
    format!("{role} {family} {}", finding.variant.as_deref().unwrap_or("")).trim_end().to_owned()
}
