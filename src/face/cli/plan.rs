//! `latentia plan`: what a drawing would take in memory, with the same arguments.

use clap::{Args, Subcommand};

use super::{drawing, edit, generate};
use crate::error::Result;

/// The arguments of `latentia plan`.
#[derive(Debug, Args)]
pub(super) struct Plan {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Of `latentia generate`.
    Generate(Box<generate::Generate>),
    /// Of `latentia edit`.
    Edit(Box<edit::Edit>),
}

impl Plan {
    /// Whether the answer is JSON.
    pub(super) fn json(&self) -> bool {
        match &self.what {
            What::Generate(arguments) => arguments.drawing.json,
            What::Edit(arguments) => arguments.drawing.json,
        }
    }
}

pub(super) fn run(arguments: &Plan) -> Result<()> {
    match &arguments.what {
        What::Generate(arguments) => drawing::plan(&arguments.drawing, arguments.prompt.as_deref(), None),
        What::Edit(arguments) => {
            drawing::plan(&arguments.drawing, arguments.prompt.as_deref(), Some(arguments.edit()?))
        }
    }
}
