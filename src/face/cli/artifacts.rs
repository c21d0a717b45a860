//! `latentia artifacts`: what was made and is kept.

use std::io::{IsTerminal, Write, stdout};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::{answer, lost_output, spoken_bytes, store};
use crate::artifact::policy::Policy;
use crate::artifact::store::{Artifact, Form, Id, Meta, Moved, Query, Store, Sweep};
use crate::artifact::{self, Existing};
use crate::error::{Code, Error, Result};

/// Bytes of a file that is put into the store.
const FILE_BYTES: u64 = 1 << 32;

/// The arguments of `latentia artifacts`.
#[derive(Debug, Args)]
pub(super) struct Artifacts {
    #[command(subcommand)]
    command: Command,
    /// The store's folder; `artifacts` in latentia's home without.
    #[arg(long, global = true, value_name = "FOLDER")]
    store: Option<PathBuf>,
    /// Prints one JSON object.
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists artifacts, newest first.
    #[command(visible_alias = "ls")]
    List(List),
    /// Shows the whole record of an artifact, and what it comes from.
    Show { id: String },
    /// Writes an artifact's bytes to a file, or to standard output.
    Get {
        id: String,
        /// A file, or - for standard output; its own name in this folder without.
        #[arg(short, long, value_name = "PATH")]
        output: Option<PathBuf>,
    },
    /// Stores files and prints a ref for each.
    Put { files: Vec<PathBuf> },
    /// Removes artifacts for good.
    Rm {
        #[arg(required = true)]
        ids: Vec<String>,
        /// Also what is pinned, and what others were made from.
        #[arg(long)]
        force: bool,
    },
    /// Protects an artifact from gc and rm.
    Pin {
        id: String,
        /// No longer.
        #[arg(long)]
        off: bool,
    },
    /// Gives an artifact tags, KEY=VALUE; takes away what has no value.
    Tag {
        id: String,
        #[arg(required = true, value_name = "KEY[=VALUE]")]
        tags: Vec<String>,
    },
    /// Removes what writers left behind and what has expired; more on request.
    Gc {
        /// Only says what would go.
        #[arg(long)]
        dry_run: bool,
        /// Also artifacts that are older.
        #[arg(long, value_name = "DAYS")]
        older_than: Option<u32>,
        /// Also the oldest, until the rest has no more bytes than this.
        #[arg(long, value_name = "BYTES")]
        max_bytes: Option<u64>,
        /// Also damaged files that were set aside.
        #[arg(long)]
        quarantine: bool,
    },
    /// Takes in a folder of AbstractVision's or AbstractRuntime's artifacts.
    Import { folder: PathBuf },
    /// Writes artifacts, or all of them, into a folder that AbstractVision or AbstractRuntime reads.
    Export {
        folder: PathBuf,
        ids: Vec<String>,
        /// Whose form.
        #[arg(long, value_enum, default_value = "abstractvision")]
        format: Format,
    },
    /// Reads everything and compares it with its hash.
    Verify,
}

#[derive(Debug, Args)]
struct List {
    /// Words in names, tags, prompts and settings.
    words: Vec<String>,
    /// How many; 1000 at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Goes on where the last list ended: its `next`.
    #[arg(long, value_name = "NEXT", allow_hyphen_values = true)]
    after: Option<String>,
    /// A kind of content: image/png, image, video.
    #[arg(long = "type", value_name = "TYPE")]
    content_type: Option<String>,
    #[arg(long, value_name = "KEY[=VALUE]", help = "A tag, such as task=text_to_image")]
    tag: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Abstractvision,
    Abstractruntime,
}

pub(super) fn run(arguments: &Artifacts) -> Result<()> {
    let store = store(arguments.store.as_deref())?;
    let json = arguments.json;
    match &arguments.command {
        Command::List(list) => run_list(&store, list, json),
        Command::Show { id } => run_show(&store, &Id::parse(id)?, json),
        Command::Get { id, output } => run_get(&store, &Id::parse(id)?, output.as_deref(), json),
        Command::Put { files } => run_put(&store, files, json),
        Command::Rm { ids, force } => {
            let ids = ids.iter().map(|id| Id::parse(id)).collect::<Result<Vec<_>>>()?;
            let removed = ids.iter().map(|id| store.delete(id, *force)).collect::<Result<Vec<_>>>()?;
            let lines = removed.iter().map(|artifact| artifact.id.to_string()).collect::<Vec<_>>();
            answer(json, &json!({ "removed": lines }), &lines)
        }
        Command::Pin { id, off } => {
            let artifact = store.pin(&Id::parse(id)?, !off)?;
            answer(json, &row(&artifact), &[line(&artifact)])
        }
        Command::Tag { id, tags } => {
            let id = Id::parse(id)?;
            for tag in tags {
                let (key, value) =
                    tag.split_once('=').map_or((tag.as_str(), None), |(key, value)| (key, Some(value)));
                store.tag(&id, key, value)?;
            }
            let artifact = store.meta(&id)?;
            let tags: Vec<_> = artifact.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
            answer(json, &row(&artifact), &tags)
        }
        Command::Gc { dry_run, older_than, max_bytes, quarantine } => {
            let older_than = older_than.map(|days| jiff::SignedDuration::from_hours(24 * i64::from(days)));
            let sweep =
                Sweep { dry_run: *dry_run, older_than, max_bytes: *max_bytes, quarantine: *quarantine };
            run_gc(&store, &sweep, json)
        }
        Command::Import { folder } => report(&store.import(folder)?, json),
        Command::Export { folder, ids, format } => {
            let form = match format {
                Format::Abstractvision => Form::Vision,
                Format::Abstractruntime => Form::Runtime,
            };
            let ids = ids.iter().map(|id| Id::parse(id)).collect::<Result<Vec<_>>>()?;
            report(&store.export(folder, form, &ids)?, json)
        }
        Command::Verify => run_verify(&store, json),
    }
}

/// What a list says of an artifact: its ref, and what a person looks for.
fn row(artifact: &Artifact) -> Value {
    let mut row = artifact.reference();
    row["created_at"] = artifact.created_at.as_str().into();
    row["tags"] = json!(artifact.tags);
    row["pinned"] = artifact.more.pinned.into();
    row
}

fn line(artifact: &Artifact) -> String {
    let size = match (artifact.more.width, artifact.more.height) {
        (Some(width), Some(height)) => format!("{width}x{height}"),
        _ => String::new(),
    };
    let time: String = artifact.created_at.chars().take(19).collect();
    let pinned = if artifact.more.pinned { "  pinned" } else { "" };
    format!(
        "{}  {time}  {:>9}  {:<10}  {size:<9}  {}{pinned}",
        artifact.id,
        spoken_bytes(artifact.size_bytes),
        artifact.content_type,
        artifact.filename.as_deref().unwrap_or("")
    )
}

fn run_list(store: &Store, list: &List, json: bool) -> Result<()> {
    let page = store.list(&Query {
        limit: Some(list.limit.into()),
        after: list.after.clone(),
        content_type: list.content_type.clone(),
        tag: list.tag.clone(),
        text: (!list.words.is_empty()).then(|| list.words.join(" ")),
    })?;
    let rows: Vec<Value> = page.artifacts.iter().map(row).collect();
    let mut lines: Vec<String> =
        page.artifacts.iter().map(|artifact| line(artifact).trim_end().to_owned()).collect();
    lines.extend(page.next.iter().map(|next| format!("more: --after {next}")));
    answer(json, &json!({ "artifacts": rows, "next": page.next }), &lines)
}

fn run_show(store: &Store, id: &Id, json: bool) -> Result<()> {
    let artifact = store.meta(id)?;
    let lineage = store.lineage(id)?;
    let shown = json!({
        "ref": artifact.reference(),
        "record": artifact,
        "sources": lineage.sources,
        "derived": lineage.derived,
    });
    let pretty = serde_json::to_string_pretty(&shown)
        .map_err(|error| Error::internal("a record has no JSON").because(error))?;
    answer(json, &shown, &[pretty])
}

fn run_get(store: &Store, id: &Id, output: Option<&Path>, json: bool) -> Result<()> {
    let artifact = store.meta(id)?;
    let bytes = store.get(id)?;
    if output == Some(Path::new("-")) {
        if stdout().is_terminal() {
            return Err(
                Error::argument("output", "a terminal cannot show the bytes").hint("redirect the output")
            );
        }
        return stdout().write_all(&bytes).map_err(lost_output);
    }
    let own = artifact.filename.as_deref().unwrap_or(artifact.file_name());
    let path = output.unwrap_or(Path::new(own));
    artifact::write(path, &bytes, Existing::Keep)?;
    answer(json, &json!({ "path": path, "artifact": artifact.reference() }), &[path.display().to_string()])
}

fn run_put(store: &Store, files: &[PathBuf], json: bool) -> Result<()> {
    let (mut refs, mut lines) = (Vec::new(), Vec::new());
    for file in files {
        let policy = Policy::new();
        policy.reference(file)?;
        let bytes = policy.read_path("files", file, FILE_BYTES)?;
        let filename = file.file_name().map(|name| name.to_string_lossy().into_owned());
        let artifact = store.put(&bytes, &Meta { filename, ..Meta::default() })?;
        lines.push(artifact.reference().to_string());
        refs.push(artifact.reference());
    }
    answer(json, &json!({ "artifacts": refs }), &lines)
}

fn run_gc(store: &Store, sweep: &Sweep, json: bool) -> Result<()> {
    let swept = store.gc(sweep)?;
    let would = if sweep.dry_run { "would free" } else { "freed" };
    let lines = [
        format!("{:>6}  leftovers of writers that did not finish", swept.leftovers),
        format!("{:>6}  artifacts", swept.removed.len()),
        format!("{:>6}  records without bytes", swept.ghosts.len()),
        format!("{:>6}  damaged files in quarantine", swept.quarantined),
        format!("{:>6}  files that had lost their record and have one again", swept.adopted.len()),
        format!("{would} {}", spoken_bytes(swept.bytes)),
    ];
    answer(json, &json!({ "dry_run": sweep.dry_run, "swept": swept }), &lines)
}

fn report(moved: &Moved, json: bool) -> Result<()> {
    let refs: Vec<Value> = moved.artifacts.iter().map(Artifact::reference).collect();
    let faults: Vec<Value> = moved.faults.iter().map(fault).collect();
    let mut lines: Vec<String> = moved.artifacts.iter().map(|artifact| artifact.id.to_string()).collect();
    lines.extend(moved.faults.iter().map(|fault| format!("not moved: {}: {}", fault.name, fault.error)));
    answer(json, &json!({ "artifacts": refs, "faults": faults }), &lines)
}

fn fault(fault: &artifact::store::Fault) -> Value {
    let mut value = fault.error.to_json();
    value["name"] = fault.name.as_str().into();
    value
}

fn run_verify(store: &Store, json: bool) -> Result<()> {
    let faults = store.verify()?;
    let (artifacts, bytes) = store.total()?;
    let mut lines: Vec<String> =
        faults.iter().map(|fault| format!("damaged: {}: {}", fault.name, fault.error)).collect();
    lines.push(format!("{artifacts} artifacts, {}, are as they were stored", spoken_bytes(bytes)));
    let values: Vec<Value> = faults.iter().map(fault).collect();
    answer(json, &json!({ "artifacts": artifacts, "bytes": bytes, "faults": values }), &lines)?;
    match faults.len() {
        0 => Ok(()),
        count => Err(Error::new(Code::ArtifactCorrupt, format!("{count} artifacts were damaged"))
            .hint("they are in the store's quarantine")),
    }
}
