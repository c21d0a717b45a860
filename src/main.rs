//! The `latentia` command.
fn main() {}
