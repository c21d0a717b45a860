//! `latentia generate`: pictures from a prompt.

use clap::Args;

use super::drawing::{self, Drawing};
use crate::error::Result;

/// The arguments of `latentia generate`.
#[derive(Debug, Args)]
pub(super) struct Generate {
    #[command(flatten)]
    pub(super) drawing: Drawing,
}

pub(super) fn run(arguments: &Generate) -> Result<()> {
    drawing::run(&arguments.drawing, None)
}
