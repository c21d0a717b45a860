//! `latentia models`: what is here, and what is known.

use clap::Args;
use serde_json::{Value, json};

use super::{answer, home, registry};
use crate::error::Result;
use crate::family::known::Finding;
use crate::registry::{Catalogue, Offer, offers};
use crate::studio::Studio;

/// The arguments of `latentia models`.
#[derive(Debug, Args)]
pub(super) struct Models {
    /// Also lists models that are known but not here.
    #[arg(long)]
    known: bool,
    /// Lists what `pull` fetches by a short name, with size, licence and gate, instead of what is here: first what draws
    /// today.
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
    let registry = registry();
    let mut catalogue = Catalogue::known();
    if arguments.available {
        return available(&catalogue, arguments.json);
    }
    let (mut broken, mut parts) = (Vec::new(), Vec::new());
    if let Some((name, survey)) = Studio::open(&home()).embedded() {
        catalogue.install(name, &survey)?;
    }
    for name in registry.names() {
        match registry.survey(&name, None, &[]) {
            Ok(survey) if survey.finding.tasks.is_empty() => parts.push((name, survey.finding)),
            Ok(survey) => catalogue.install(&name, &survey)?,
            Err(error) => broken.push((name, error)),
        }
    }
    let mut value = catalogue.to_json();
    let list = broken.iter().map(|(name, error)| json!({ "model": name, "error": error.to_json()["error"] }));
    let list = list.collect::<Vec<Value>>();
    let supports = arguments.supports.iter().map(|pair| supports(&catalogue, pair));
    let part = |(name, found): &(String, Finding)| json!({ "model": name, "role": found.role, "family": found.family, "variant": found.variant });
    value["x_latentia"] = json!({ "broken": list, "supports": supports.collect::<Vec<Value>>(),
        "parts": parts.iter().map(part).collect::<Vec<Value>>() });
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
    for (name, found) in &parts {
        let role = json!(found.role).as_str().unwrap_or_default().replace('_', " ");
        let family = found.family.as_deref().unwrap_or("unknown");
        let family = format!("{family} {}", found.variant.as_deref().unwrap_or_default());
        lines.push(format!("{name:<48} {:<32} {role}, draws nothing alone", family.trim()));
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

/// What can be fetched: first what draws today, then what is known only.
fn available(catalogue: &Catalogue, json: bool) -> Result<()> {
    let runs = |offer: &Offer| catalogue.get(&offer.repository).is_some_and(|listed| listed.runs);
    let (today, later): (Vec<&Offer>, Vec<&Offer>) = offers().iter().partition(|offer| runs(offer));
    let mut lines = vec!["draw today:".to_owned()];
    lines.extend(today.iter().map(|offer| line(offer)));
    lines.extend([String::new(), "known, not yet runnable here:".to_owned()]);
    lines.extend(later.iter().map(|offer| line(offer)));
    let item = |offer: &&Offer| {
        let mut item = json!(offer);
        item["runs"] = runs(offer).into();
        item
    };
    let items: Vec<Value> = today.iter().chain(&later).map(item).collect();
    answer(json, &json!({ "available": items }), &lines)
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
