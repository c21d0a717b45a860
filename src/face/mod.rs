//! Where the house meets the world: the only room that prints and reads the environment.

mod cli;
mod fetching;
mod progress;

pub use cli::run;
