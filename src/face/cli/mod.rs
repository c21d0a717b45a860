//! The command line: one file a command.

mod artifacts;
mod control;
mod destination;
mod drawing;
mod du;
mod edit;
mod generate;
mod import;
mod mcp;
mod models;
mod plan;
mod pull;
mod rm;
mod serve;
mod show;
mod sizes;
mod tools;
mod upscale;
mod verify;

pub(super) use drawing::{DeviceArg, DtypeArg};

use std::ffi::OsString;
use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use serde_json::Value;

use crate::artifact::store::Store;
use crate::error::{Code, Error, Result};
use crate::registry::Registry;
use crate::studio::spoken_bytes;

/// Makes pictures on this machine; only `pull` opens a connection.
#[derive(Debug, Parser)]
#[command(name = "latentia", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Draws pictures from a prompt.
    Generate(Box<generate::Generate>),
    /// Draws a picture anew: all of it, where a mask allows, or its margins.
    Edit(Box<edit::Edit>),
    /// Says what drawing would take in memory, phase by phase, and loads nothing.
    Plan(plan::Plan),
    /// Draws a larger picture of a picture.
    Upscale(Box<upscale::Upscale>),
    /// Says what a model is and can do, and how we know.
    Show(show::Show),
    /// Lists the models that are here and those that are known.
    Models(models::Models),
    /// Remembers models where they lie; copies nothing.
    Import(import::Import),
    /// Fetches a model from a hub: the plan first, then every file, verified.
    Pull(pull::Pull),
    /// Forgets a model.
    Rm(rm::Rm),
    /// Compares a model's files with what was recorded of them.
    Verify(verify::Verify),
    /// Says how much room models take.
    Du(du::Du),
    /// What was made and is kept: lists, shows, removes, moves.
    Artifacts(artifacts::Artifacts),
    /// Lists, describes and calls the tools for agents and workflows.
    Tools(tools::Tools),
    /// Serves the tools over HTTP, to this machine alone unless told otherwise.
    Serve(Box<serve::Serve>),
    /// Serves the tools over the Model Context Protocol on standard input and output.
    Mcp(mcp::Mcp),
}

impl Command {
    fn json(&self) -> bool {
        match self {
            Self::Generate(arguments) => arguments.drawing.json,
            Self::Edit(arguments) => arguments.drawing.json,
            Self::Plan(arguments) => arguments.json(),
            Self::Upscale(arguments) => arguments.drawing.json,
            Self::Show(arguments) => arguments.json,
            Self::Models(arguments) => arguments.json,
            Self::Import(arguments) => arguments.json,
            Self::Pull(arguments) => arguments.json,
            Self::Rm(arguments) => arguments.json,
            Self::Verify(arguments) => arguments.json,
            Self::Du(arguments) => arguments.json,
            Self::Artifacts(arguments) => arguments.json,
            Self::Tools(arguments) => arguments.json(),
            Self::Serve(_) | Self::Mcp(_) => false,
        }
    }

    fn run(&self) -> Result<()> {
        match self {
            Self::Generate(arguments) => generate::run(arguments),
            Self::Edit(arguments) => edit::run(arguments),
            Self::Plan(arguments) => plan::run(arguments),
            Self::Upscale(arguments) => upscale::run(arguments),
            Self::Show(arguments) => show::run(arguments),
            Self::Models(arguments) => models::run(arguments),
            Self::Import(arguments) => import::run(arguments),
            Self::Pull(arguments) => pull::run(arguments),
            Self::Rm(arguments) => rm::run(arguments),
            Self::Verify(arguments) => verify::run(arguments),
            Self::Du(arguments) => du::run(arguments),
            Self::Artifacts(arguments) => artifacts::run(arguments),
            Self::Tools(arguments) => tools::run(arguments),
            Self::Serve(arguments) => serve::run(arguments),
            Self::Mcp(arguments) => mcp::run(arguments),
        }
    }
}

/// Runs the command line and says how it ended.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match cli.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if cli.command.json() {
                let _ = writeln!(stdout(), "{}", error.to_json());
            }
            let _ = writeln!(stderr(), "error: {error}");
            if let Some(hint) = &error.hint {
                let _ = writeln!(stderr(), "  {hint}");
            }
            ExitCode::from(error.code.exit())
        }
    }
}

/// The folder of models and settings: `LATENTIA_HOME`, or the place where data belongs on this system.
pub(super) fn home() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("LATENTIA_HOME")
        .or_else(|| variable("XDG_DATA_HOME").map(|data| data.join("latentia")))
        .or_else(|| variable("HOME").map(|home| home.join(".local/share/latentia")))
        .or_else(|| variable("LOCALAPPDATA").map(|data| data.join("latentia")))
        .unwrap_or_else(|| PathBuf::from(".latentia"))
}

/// The models that are installed.
fn registry() -> Registry {
    Registry::new(&home())
}

/// The store of artifacts: this folder, or `artifacts` in our home; no larger than `LATENTIA_STORE_BYTES` says.
pub(super) fn store(folder: Option<&Path>) -> Result<Store> {
    let own = home().join("artifacts");
    let store = Store::open(folder.unwrap_or(&own))?;
    let Some(quota) = std::env::var_os("LATENTIA_STORE_BYTES") else { return Ok(store) };
    let bytes = quota.to_str().and_then(|text| text.parse().ok());
    let wrong = || {
        let message = format!("LATENTIA_STORE_BYTES is {}, which is no number of bytes", quota.display());
        Error::argument("LATENTIA_STORE_BYTES", message)
    };
    Ok(store.with_quota(bytes.ok_or_else(wrong)?))
}

/// Writes the answer: one JSON object, or lines for a person.
fn answer(json: bool, value: &Value, lines: &[String]) -> Result<()> {
    let mut text = if json { value.to_string() } else { lines.join("\n") };
    if !text.is_empty() {
        text.push('\n');
    }
    stdout().write_all(text.as_bytes()).map_err(lost_output)
}

fn lost_output(error: std::io::Error) -> Error {
    Error::new(Code::StoreIo, "standard output was closed").because(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn bytes_are_said_in_thousands() {
        for (bytes, said) in [(5, "5 B"), (1500, "1.5 kB"), (7_750_000_000, "7.8 GB")] {
            assert_eq!(spoken_bytes(bytes), said);
        }
    }
}
