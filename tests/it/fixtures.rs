//! Where the golden tensors are, and how they are compared.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use serde_json::Value;

/// The folder of golden tensors: `LATENTIA_FIXTURES`, the shared reference beside the repository, or the compact set in
/// it; `None` where there is none.
#[expect(clippy::disallowed_methods, reason = "a test may be told where its fixtures are")]
pub(crate) fn folder() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let told = std::env::var("LATENTIA_FIXTURES").ok().map(PathBuf::from);
    [told, Some(root.join("../shared/reference/fixtures")), Some(root.join("tests/fixtures/golden"))]
        .into_iter()
        .flatten()
        .find(|folder| folder.is_dir())
}

/// The folders under `kind` that hold a `case.json`, by name.
pub(crate) fn cases(kind: &str) -> Vec<PathBuf> {
    let Some(entries) = folder().and_then(|folder| folder.join(kind).read_dir().ok()) else {
        return Vec::new();
    };
    let mut found: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.join("case.json").is_file()).collect();
    found.sort();
    found
}

/// A JSON file.
pub(crate) fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// All tensors of a safetensors file.
pub(crate) fn tensors(path: &Path) -> HashMap<String, Tensor> {
    candle_core::safetensors::load(path, &Device::Cpu).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The numbers of a tensor, whatever its type.
pub(crate) fn numbers(tensor: &Tensor) -> Vec<f64> {
    let wide = tensor.to_dtype(DType::F64).and_then(|wide| wide.flatten_all()?.to_vec1());
    wide.unwrap_or_else(|e| panic!("a tensor without numbers: {e}"))
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
