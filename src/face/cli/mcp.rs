//! `latentia mcp`: the tools over the Model Context Protocol on standard streams.

use clap::Args;

use super::super::desk::DeskArgs;
use super::super::mcp;
use crate::error::Result;

/// The arguments of `latentia mcp`.
#[derive(Debug, Args)]
pub(super) struct Mcp {
    #[command(flatten)]
    desk: DeskArgs,
    /// Seconds that a call may take before it hands back a job instead.
    #[arg(long, value_name = "SECONDS", default_value_t = mcp::PATIENCE_S)]
    patience: u64,
}

pub(super) fn run(arguments: &Mcp) -> Result<()> {
    mcp::serve_stdio(arguments.desk.open()?, arguments.patience)
}
