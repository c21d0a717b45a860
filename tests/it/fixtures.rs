//! Where the fixtures are: named by the environment, in the shared folder beside a checkout, or the compact set here.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of golden families: `LATENTIA_FIXTURES`, the shared one, or the compact set.
pub(crate) fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("LATENTIA_FIXTURES") {
        return folder.into();
    }
    let shared = root().join("../shared/reference/fixtures");
    if shared.is_dir() { shared } else { compact() }
}

/// The compact set of this repository, whatever else is tested.
pub(crate) fn compact() -> PathBuf {
    root().join("tests/fixtures/golden")
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

/// The folders of a kind that hold a `case.json`, by name: the kind's own, or those in it.
pub(crate) fn cases(kind: &str) -> Vec<PathBuf> {
    let own = folder().join(kind);
    let entries = own.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> =
        entries.chain([own.clone()]).filter(|path| path.join("case.json").is_file()).collect();
    found.sort();
    found
}

/// JSON as Python writes it, in which `-Infinity` may stand.
pub(crate) fn read_json(path: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text.replace(": -Infinity", ": \"-Infinity\"")).map_err(|e| e.to_string())
}

/// The same, of a file that must be there.
pub(crate) fn json(path: &Path) -> Value {
    read_json(path).unwrap_or_else(|e| panic!("{e}"))
}

/// All tensors of a safetensors file.
pub(crate) fn tensors(path: &Path) -> HashMap<String, Tensor> {
    candle_core::safetensors::load(path, &Device::Cpu).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The numbers of a tensor, whatever its type.
pub(crate) fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// `max|a − b| / max|b|`; infinite where sizes differ or a number is not finite in `a` only.
pub(crate) fn distance(a: &[f64], b: &[f64]) -> f64 {
    if a.len() != b.len() {
        return f64::INFINITY;
    }
    let most = b.iter().fold(0.0, |most: f64, x| most.max(x.abs())).max(1e-12);
    a.iter().zip(b).fold(0.0, |worst: f64, (x, y)| {
        let gap = (x - y).abs() / most;
        if gap.is_nan() { f64::INFINITY } else { worst.max(gap) }
    })
}
