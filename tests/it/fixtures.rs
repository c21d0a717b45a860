//! Where the fixtures are: named by the environment, in the shared folder beside a checkout, or the compact set here.

use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of golden families: `LATENTIA_FIXTURES`, the shared one, or the compact set.
pub(crate) fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("LATENTIA_FIXTURES") {
        return folder.into();
    }
    let shared = root().join("../shared/reference/fixtures");
    if shared.is_dir() { shared } else { root().join("tests/fixtures/golden") }
}

/// The folders of families, by name.
pub(crate) fn families() -> Vec<PathBuf> {
    let folder = folder();
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("no fixtures in {}: {e}", folder.display()));
    let mut families: Vec<_> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    families.sort();
    families
}

/// A part of the golden fixtures, if this folder has it; says so if not.
pub(crate) fn fixture(part: &str) -> Option<PathBuf> {
    said_if_absent(folder().join(part))
}

/// The hostile corpus: `LATENTIA_HOSTILE`, or the shared one.
pub(crate) fn hostile() -> Option<PathBuf> {
    let told = std::env::var_os("LATENTIA_HOSTILE").map(PathBuf::from);
    said_if_absent(told.unwrap_or_else(|| root().join("../shared/reference/hostile")))
}

#[expect(clippy::print_stdout, reason = "a test that did nothing must say so")]
fn said_if_absent(path: PathBuf) -> Option<PathBuf> {
    if path.exists() {
        return Some(path);
    }
    println!("skipped: there is no {}", path.display());
    None
}
