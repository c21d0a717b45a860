//! `latentia serve`: the tools over HTTP.

use std::net::IpAddr;

use clap::Args;

use super::super::desk::DeskArgs;
use super::super::{http, mcp};
use crate::error::{Error, Result};

/// The arguments of `latentia serve`.
#[derive(Debug, Args)]
pub(super) struct Serve {
    #[command(flatten)]
    desk: DeskArgs,
    /// The address to listen at. Any other than one of this machine alone needs a token.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// The port; 0 takes one that is free.
    #[arg(long, default_value_t = 8733)]
    port: u16,
    /// What clients must send as `Authorization: Bearer TOKEN`. Better in `LATENTIA_TOKEN`, where no list of processes
    /// shows it.
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// Another name that this server is reached by; may be repeated.
    #[arg(long = "allow-host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Seconds that a call over MCP may take before it hands back a job instead.
    #[arg(long, value_name = "SECONDS", default_value_t = mcp::PATIENCE_S)]
    patience: u64,
}

pub(super) fn run(arguments: &Serve) -> Result<()> {
    let variable = std::env::var_os("LATENTIA_TOKEN").and_then(|token| token.into_string().ok());
    let token = arguments.token.clone().or(variable).filter(|token| !token.is_empty());
    if !arguments.host.is_loopback() && token.is_none() {
        let message = format!("{} can be reached by others, and there is no token", arguments.host);
        return Err(Error::argument("host", message).hint("give one with --token or LATENTIA_TOKEN"));
    }
    let hosts = arguments.hosts.clone();
    let patience = arguments.patience;
    let options = http::Options { host: arguments.host, port: arguments.port, token, hosts, patience };
    http::serve(arguments.desk.open()?, options)
}
