//! Where the golden fixtures are: `LATENTIA_FIXTURES`, the shared folder beside a checkout, or the compact set here.

use std::path::{Path, PathBuf};

/// The folder of families.
pub fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("LATENTIA_FIXTURES") {
        return folder.into();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = root.join("../shared/reference/fixtures");
    if shared.is_dir() { shared } else { root.join("tests/fixtures/golden") }
}

/// The folders of families, by name.
pub fn families() -> Vec<PathBuf> {
    let root = folder();
    let entries = std::fs::read_dir(&root).unwrap_or_else(|e| panic!("no fixtures in {}: {e}", root.display()));
    let mut families: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    families.sort();
    families
}
