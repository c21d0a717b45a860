//! `latentia pull`: the one command that opens connections.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::super::fetching::Fetching;
use super::drawing::listen_for_interrupts;
use super::{answer, home, spoken_bytes};
use crate::error::{Code, Error, Result};
use crate::event::{Cancel, Watch};
use crate::fetch::{self, ENDPOINT, Hub, Plan, Roots, Token};
use crate::registry::{Licence, Offer, check_name, offer, wanted};

/// The arguments of `latentia pull`.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
#[derive(Debug, Args)]
pub(super) struct Pull {
    /// A name that `models --available` lists, or ORGANISATION/NAME; behind a colon a precision (fp16, fp32) or a file.
    #[arg(value_name = "NAME|REPO[:VARIANT]")]
    model: String,
    /// What to call it here; its own name without.
    #[arg(long)]
    name: Option<String>,
    /// A branch, tag or commit; what the catalogue says, or main, without.
    #[arg(long)]
    revision: Option<String>,
    /// Only says what would be fetched.
    #[arg(long)]
    dry_run: bool,
    /// Asks nothing.
    #[arg(short, long)]
    yes: bool,
    /// Shows neither plan nor progress, and asks nothing.
    #[arg(short, long)]
    quiet: bool,
    /// Prints one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(arguments: &Pull) -> Result<()> {
    let (wanted, own) = wanted(&arguments.model, arguments.revision.as_deref())?;
    let name = arguments.name.as_deref().unwrap_or(&own);
    check_name(name)?;
    if is_set("HF_HUB_OFFLINE") {
        return Err(Error::new(Code::Offline, "HF_HUB_OFFLINE is set, so nothing is fetched")
            .hint("unset it, or put the model's files here and `latentia import` them"));
    }
    let hub = hub()?;
    let cancel = listen_for_interrupts();
    let mut fetching = Fetching::new(arguments.quiet);
    let plan = fetch::plan(&hub, &wanted, &mut watch(&cancel, &mut fetching))?;
    let offer = offer(&wanted.repository);
    let licence = class(&plan, offer);
    let lines = lines(&plan, name, licence, offer);
    if !arguments.quiet && !arguments.dry_run {
        let _ = writeln!(stderr(), "{}", lines.join("\n"));
    }
    let mut value = json!({
        "model": name,
        "repository": plan.repository,
        "revision": plan.revision,
        "commit": plan.commit,
        "variant": plan.variant,
        "licence": licence,
        "licence_name": plan.licence,
        "gated": plan.gated,
        "bytes": plan.bytes(),
        "files": plan.files.iter().map(|file| json!({ "path": file.path, "bytes": file.bytes })).collect::<Vec<Value>>(),
        "dry_run": arguments.dry_run,
    });
    if arguments.dry_run {
        return answer(arguments.json, &value, &lines);
    }
    if !arguments.yes && !arguments.quiet && stdin().is_terminal() && stderr().is_terminal() {
        ask(&plan, &cancel)?;
    }
    let models = home().join("models");
    let pulled = fetch::pull(&hub, &plan, &models, name, &mut watch(&cancel, &mut fetching));
    fetching.finish();
    let pulled = pulled?;
    value["path"] = json!(pulled.path);
    value["files"] = json!(pulled.manifest.files);
    value["fetched_bytes"] = pulled.fetched_bytes.into();
    value["already_here"] = pulled.already.into();
    let said = if pulled.already { "is here already" } else { "is here, every file verified" };
    answer(arguments.json, &value, &[format!("{name} {said}: latentia generate \"…\" -m {name}")])
}

fn watch<'a>(cancel: &Cancel, fetching: &'a mut Fetching) -> Watch<'a> {
    Watch::new(cancel.clone(), |event| fetching.show(event))
}

/// The class of the licence: what the hub's name of it says, else what the catalogue has.
fn class(plan: &Plan, offer: Option<&Offer>) -> Licence {
    let named = plan.licence.as_deref().map_or(Licence::Unknown, Licence::of);
    if named == Licence::Unknown { offer.map_or(named, |offer| offer.licence) } else { named }
}

/// The plan for a person.
fn lines(plan: &Plan, name: &str, licence: Licence, offer: Option<&Offer>) -> Vec<String> {
    let mut lines = vec![format!("{name}  from {} at {}", plan.repository, &plan.commit[..12])];
    for file in &plan.files {
        lines.push(format!("{:>10}  {}", spoken_bytes(file.bytes), file.path));
    }
    let variant = plan.variant.as_ref().map_or(String::new(), |variant| format!(", {variant}"));
    lines.push(format!("{:>10}  in {} files{variant}", spoken_bytes(plan.bytes()), plan.files.len()));
    let named = plan.licence.as_deref().unwrap_or("the hub names none");
    lines.push(format!("   licence  {} ({named})", licence.name()));
    if plan.gated {
        lines.push("     gated  its makers ask for an agreement on its page, and a token".into());
    }
    if offer.is_some_and(|offer| offer.licence != licence || offer.gated != plan.gated) {
        lines.push(
            "      note  the hub says otherwise of licence or gate than the catalogue, which was not checked"
                .into(),
        );
    }
    if plan.pickles > 0 {
        lines.push(format!("      note  {} pickles are left out; they can run code", plan.pickles));
    }
    lines
}

/// Asks whether to go on; an interrupt is an answer too.
///
/// # Errors
/// `cancelled` for anything but yes.
fn ask(plan: &Plan, cancel: &Cancel) -> Result<()> {
    let _ = write!(stderr(), "fetch {}? [y/N] ", spoken_bytes(plan.bytes()));
    let (send, hear) = channel();
    std::thread::spawn(move || {
        let mut said = String::new();
        let _ = stdin().lock().read_line(&mut said);
        let _ = send.send(said);
    });
    let said = loop {
        match hear.recv_timeout(Duration::from_millis(50)) {
            Err(RecvTimeoutError::Timeout) if !cancel.is_cancelled() => {}
            heard => break heard.unwrap_or_default(),
        }
    };
    if ["y", "yes"].contains(&said.trim().to_ascii_lowercase().as_str()) {
        return Ok(());
    }
    Err(Error::new(Code::Cancelled, "nothing was fetched").hint("say y, or --yes"))
}

/// The hub that the environment names, as whom it says we are.
fn hub() -> Result<Hub> {
    let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.into());
    let roots = match named("SSL_CERT_FILE")? {
        Some(pem) => Roots::read(&pem, "SSL_CERT_FILE")?,
        None => Roots::default(),
    };
    Hub::new(&endpoint, token()?, roots)
}

/// The token of `HF_TOKEN`, else of the file that `HF_TOKEN_PATH` names, else of the file where the hub's own tools
/// keep it.
fn token() -> Result<Option<Token>> {
    if let Some(text) = std::env::var_os("HF_TOKEN") {
        // Set and empty: as nobody.
        if text.is_empty() {
            return Ok(None);
        }
        return Token::new(&text.to_string_lossy(), "HF_TOKEN").map(Some);
    }
    if std::env::var_os("HF_TOKEN_PATH").is_some() {
        let text = named("HF_TOKEN_PATH")?;
        let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        return text.map(|text| Token::new(&text, "HF_TOKEN_PATH")).transpose();
    }
    let folder = variable("HF_HOME").map(PathBuf::from).or_else(|| {
        let cache = variable("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".cache")));
        cache.map(|cache| cache.join("huggingface"))
    });
    match folder.and_then(|folder| std::fs::read_to_string(folder.join("token")).ok()) {
        Some(text) if !text.trim().is_empty() => Token::new(&text, "the hub's token file").map(Some),
        _ => Ok(None),
    }
}

/// What is in the file that a variable names; nothing where it is not set, or empty.
fn named(name: &str) -> Result<Option<Vec<u8>>> {
    let Some(path) = std::env::var_os(name).filter(|path| !path.is_empty()) else { return Ok(None) };
    std::fs::read(path).map(Some).map_err(|error| {
        let message = format!("the file that {name} names cannot be read: {}", error.kind());
        Error { param: Some(name.into()), ..Error::new(Code::FileNotFound, message) }
    })
}

fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).and_then(|value| value.into_string().ok()).filter(|value| !value.is_empty())
}

/// Whether a switch of the environment is on.
fn is_set(name: &str) -> bool {
    variable(name)
        .is_some_and(|value| ["1", "true", "yes", "on"].contains(&value.to_ascii_lowercase().as_str()))
}
