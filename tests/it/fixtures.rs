//! Where the reference's fixtures and hostile files lie, if they are there.

use std::path::PathBuf;

/// A folder of the reference: from the environment, else beside the repository. Says so when it is absent.
fn folder(variable: &str, name: &str) -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "a test may be told where its inputs are")]
    let told = std::env::var(variable).ok().map(PathBuf::from);
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let beside = || here.join("../shared/reference").join(name);
    let found = told.unwrap_or_else(beside);
    if found.is_dir() {
        return Some(found);
    }
    #[expect(clippy::print_stderr, reason = "a test that did nothing must say so")]
    {
        eprintln!("skipped: there is no {}; set {variable}", found.display());
    }
    None
}

/// The golden fixtures.
pub(crate) fn fixtures() -> Option<PathBuf> {
    folder("LATENTIA_FIXTURES", "fixtures")
}

/// The hostile corpus.
pub(crate) fn hostile() -> Option<PathBuf> {
    folder("LATENTIA_HOSTILE", "hostile")
}
