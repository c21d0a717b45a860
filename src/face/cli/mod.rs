//! The command line: one file a command.

mod destination;
mod drawing;
mod du;
mod edit;
mod generate;
mod import;
mod models;
mod pull;
mod rm;
mod show;
mod sizes;
mod verify;

use std::ffi::OsString;
use std::io::{Write, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use serde_json::Value;

use crate::error::{Code, Error, Result};
use crate::registry::Registry;

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
}

impl Command {
    fn json(&self) -> bool {
        match self {
            Self::Generate(arguments) => arguments.drawing.json,
            Self::Edit(arguments) => arguments.drawing.json,
            Self::Show(arguments) => arguments.json,
            Self::Models(arguments) => arguments.json,
            Self::Import(arguments) => arguments.json,
            Self::Pull(arguments) => arguments.json,
            Self::Rm(arguments) => arguments.json,
            Self::Verify(arguments) => arguments.json,
            Self::Du(arguments) => arguments.json,
        }
    }

    fn run(&self) -> Result<()> {
        match self {
            Self::Generate(arguments) => generate::run(arguments),
            Self::Edit(arguments) => edit::run(arguments),
            Self::Show(arguments) => show::run(arguments),
            Self::Models(arguments) => models::run(arguments),
            Self::Import(arguments) => import::run(arguments),
            Self::Pull(arguments) => pull::run(arguments),
            Self::Rm(arguments) => rm::run(arguments),
            Self::Verify(arguments) => verify::run(arguments),
            Self::Du(arguments) => du::run(arguments),
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
fn home() -> PathBuf {
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

/// Bytes as people say them.
fn spoken_bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1000.0;
    let mut unit = 0;
    while amount >= 1000.0 && unit + 1 < UNITS.len() {
        amount /= 1000.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
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
