//! `latentia models`: what is here, and what is known.

use clap::Args;
use serde_json::{Value, json};

use super::{answer, home};
use crate::error::Result;
use crate::registry::{Catalogue, Offer, offers};
use crate::studio::Studio;

/// The arguments of `latentia models`.
#[derive(Debug, Args)]
pub(super) struct Models {
    /// Also lists models that are known but not here.
    #[arg(long)]
    known: bool,
    /// Lists what `pull` fetches by a short name, with size, licence and gate, instead of what is here.
    #[arg(long)]
    available: bool,
    /// Also answers whether a model can be asked for a task, as the typed error if not; for scripts.
    #[arg(long, value_name = "MODEL=TASK", requires = "json")]
    supports: Vec<String>,
    /// Prints the capability registry: `AbstractVision`'s form 1.0 with our facts beside it.
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(arguments: &Models) -> Result<()> {
    if arguments.available {
        let lines: Vec<String> = offers().iter().map(line).collect();
        return answer(arguments.json, &json!({ "available": offers() }), &lines);
    }
    let (catalogue, broken) = Studio::open(&home()).catalogue()?;
    let mut value = catalogue.to_json();
    let list = broken.iter().map(|(name, error)| json!({ "model": name, "error": error.to_json()["error"] }));
    let list = list.collect::<Vec<Value>>();
    let supports = arguments.supports.iter().map(|pair| supports(&catalogue, pair));
    value["x_latentia"] = json!({ "broken": list, "supports": supports.collect::<Vec<Value>>() });
    let mut lines = Vec::new();
    for listed in catalogue.models().iter().filter(|listed| listed.installed || arguments.known) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let tasks: Vec<String> = listed.tasks.iter().map(|task| text(&json!(task))).collect();
        let state = match (listed.installed, listed.runs) {
            (true, true) => "ready",
            (true, false) => "not runnable yet",
            (false, true) => "known",
            (false, false) => "known, not yet runnable",
        };
        let family = format!("{} {}", text(&listed.found["family"]), text(&listed.found["variant"]));
        lines.push(
            format!("{:<48} {:<32} {:<24} {}", listed.id, family.trim(), state, tasks.join(", "))
                .trim_end()
                .to_owned(),
        );
    }
    for (name, error) in &broken {
        lines.push(format!("{name:<48} {error}"));
    }
    if lines.is_empty() {
        lines.push(
            "no model is installed; `latentia pull NAME` fetches one (--available lists names), `latentia import PATH` remembers one".into(),
        );
    }
    answer(arguments.json, &value, &lines)
}

/// What can be fetched, in one line.
fn line(offer: &Offer) -> String {
    let size = offer.about_gb.map_or(String::new(), |size| format!("~{size} GB"));
    let gated = if offer.gated { "gated" } else { "" };
    let checked = if offer.checked { "" } else { "not checked" };
    let Offer { name, repository, licence, .. } = offer;
    format!("{name:<20} {repository:<48} {size:>9}  {:<15} {gated:<6} {checked}", licence.name())
        .trim_end()
        .to_owned()
}

/// Whether a model can be asked for a task, and the error that says no.
fn supports(catalogue: &Catalogue, pair: &str) -> Value {
    let (model, task) = pair.rsplit_once('=').unwrap_or((pair, ""));
    let error = catalogue.require_support(model, task).err().map(|error| error.to_json()["error"].clone());
    json!({ "model": model, "task": task, "supported": error.is_none(), "error": error })
}
