//! `latentia tools`: the table of tools on the command line.

use std::io::{Read, stdin};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::super::desk::DeskArgs;
use super::super::progress::Progress;
use super::answer;
use super::drawing::listen_for_interrupts;
use crate::error::{Code, Error, Result};
use crate::event::Watch;
use crate::tool::{self, Form, Guidance};

/// The arguments of `latentia tools`.
#[derive(Debug, Args)]
pub(super) struct Tools {
    #[command(flatten)]
    desk: DeskArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the tools.
    List {
        /// Prints one JSON array.
        #[arg(long)]
        json: bool,
        /// Writes them down as others call tools: mcp, openai, openai-chat, anthropic, abstractcore, openhuman.
        #[arg(long, value_name = "FORM", requires = "json", value_parser = read_form)]
        format: Option<Form>,
    },
    /// Prints the definition of one tool.
    Schema {
        /// The tool.
        name: String,
        /// As others call tools: mcp, openai, openai-chat, anthropic, abstractcore, openhuman.
        #[arg(long, value_name = "FORM", default_value = "mcp", value_parser = read_form)]
        format: Form,
    },
    /// Calls a tool and prints its answer: a small ref to what it made.
    Call {
        /// The tool.
        name: String,
        /// Its arguments as one JSON object; `-` reads them from standard input, `@FILE` from a file.
        arguments: String,
        /// Shows no progress.
        #[arg(short, long)]
        quiet: bool,
    },
    /// Prints what a model should be told of the open picture tools; nothing if none is open.
    Guidance,
}

fn read_form(text: &str) -> std::result::Result<Form, String> {
    Form::named(text).map_err(|error| error.message)
}

impl Tools {
    /// Whether errors are printed as JSON too.
    pub(super) fn json(&self) -> bool {
        match self.command {
            Command::List { json, .. } => json,
            Command::Schema { .. } | Command::Call { .. } => true,
            Command::Guidance => false,
        }
    }
}

pub(super) fn run(arguments: &Tools) -> Result<()> {
    match &arguments.command {
        Command::List { json, format } => list(&arguments.desk, *json, *format),
        Command::Schema { name, format } => {
            let desk = arguments.desk.open()?;
            let definition = tool::export(tool::find(&desk, name)?, &desk, *format)?;
            answer(true, &definition, &[])
        }
        Command::Call { name, arguments: given, quiet } => call(&arguments.desk, name, given, *quiet),
        Command::Guidance => {
            let text = arguments.desk.switches().guidance(Guidance::default());
            answer(false, &Value::Null, &[text])
        }
    }
}

fn list(desk: &DeskArgs, json: bool, format: Option<Form>) -> Result<()> {
    let desk = desk.open()?;
    let mut rows = Vec::new();
    let mut lines = Vec::new();
    for entry in tool::exposed(&desk) {
        let about = &entry.about;
        lines.push(format!("{:<28} {}", about.name, about.description));
        rows.push(match format {
            Some(form) => tool::export(entry, &desk, form)?,
            None => json!({ "name": about.name, "description": about.description, "tags": about.tags }),
        });
    }
    answer(json, &Value::Array(rows), &lines)
}

fn call(desk: &DeskArgs, name: &str, given: &str, quiet: bool) -> Result<()> {
    let text = match given.strip_prefix('@') {
        _ if given == "-" => read(stdin(), "standard input")?,
        Some(path) => {
            let path = PathBuf::from(path);
            let file = std::fs::File::open(&path).map_err(|error| {
                Error::new(Code::FileNotFound, format!("there is no `{}`", path.display())).because(error)
            })?;
            read(file, "the file")?
        }
        None => given.as_bytes().to_vec(),
    };
    let arguments_of_call = tool::read_arguments(&text)?;
    let desk = desk.open()?;
    let entry = tool::find(&desk, name)?;
    let mut progress = Progress::new(quiet);
    let outcome = {
        let mut watch = Watch::new(listen_for_interrupts(), |event| progress.show(event));
        entry.call(&desk, &arguments_of_call, &mut watch)
    };
    progress.finish();
    answer(true, &outcome?.value, &[])
}

/// Everything there is to read, within the limit of a request.
fn read(source: impl Read, what: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One more than the limit, so that too much is seen as such.
    let mut source = source.take(tool::REQUEST_BYTES as u64 + 1);
    source
        .read_to_end(&mut bytes)
        .map_err(|error| Error::new(Code::FileNotFound, format!("{what} cannot be read")).because(error))?;
    Ok(bytes)
}
