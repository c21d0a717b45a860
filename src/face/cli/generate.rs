//! `latentia generate`: pictures from a prompt.

use clap::Args;

use super::drawing::{self, Drawing};
use crate::error::Result;

/// The arguments of `latentia generate`.
#[derive(Debug, Args)]
pub(super) struct Generate {
    /// What to draw.
    #[arg(required_unless_present = "from")]
    pub(super) prompt: Option<String>,
    #[command(flatten)]
    pub(super) drawing: Drawing,
}

pub(super) fn run(arguments: &Generate) -> Result<()> {
    drawing::run(&arguments.drawing, arguments.prompt.as_deref(), None)
}
