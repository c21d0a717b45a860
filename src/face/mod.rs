//! Where the house meets the world: the only room that prints and reads the environment.

mod cli;
mod desk;
mod fetching;
mod http;
mod mcp;
mod progress;

pub use cli::run;
