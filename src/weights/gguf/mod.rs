//! The header of a GGUF file, read as if its author were an enemy.
//!
//! Keys, then tensors, then data: nothing here touches the data, and nothing is allocated on the word of the file.
//! What passes is internally consistent: every tensor lies within the file, aligned, apart from the others, and is as
//! long as its type and shape say. Shapes are turned round: GGUF lists the axis whose numbers lie together first.
//!
//! # Source
//! Format: `ggml-org/ggml docs/gguf.md`, MIT. Shapes that ggml cannot hold: `city96/ComfyUI-GGUF tools/convert.py`,
//! `comfy.gguf.orig_shape.*`, Apache-2.0. The checks are `reliability.md` section 4, cases `gguf-*`.

mod cursor;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use self::cursor::Cursor;
use self::value::Budget;
pub use self::value::Value;
use super::inventory::{Inventory, Scalar, TensorInfo, too_many};
use super::limits;
use super::safetensors::check_name;
use crate::error::{Code, Error, Result};
use crate::kernel::block::Block;

const MAGIC: &[u8] = b"GGUF";
/// Versions that differ in nothing we read; before them counts had four bytes.
const VERSIONS: std::ops::RangeInclusive<u32> = 2..=3;
/// Where tensors lie if the file does not say.
const ALIGNMENT: usize = 32;
/// Names and shapes that ggml cannot hold are kept under such a key.
const ORIGINAL: &str = "comfy.gguf.orig_shape.";
/// Architectures that convolve in time: their first weight has five axes, one more than ggml knows.
const IN_TIME: &[&str] = &["wan", "hyvid", "ltxv", "cosmos", "mochi"];
/// The fewest bytes of a key and of a tensor in the header.
const LEAST: (usize, usize) = (8 + 4 + 1, 8 + 4 + 4 + 8);

/// Whether a file begins as this format does.
pub(super) fn is_gguf(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Reads the header of `bytes`, the whole file, which is number `file` of its set and called `label` in errors.
///
/// # Errors
/// `unsupported_format` for another version or byte order, `weights_corrupt` for a file that contradicts itself,
/// `model_incompatible` for one that no model could be.
pub(super) fn read(bytes: &[u8], label: &str, file: usize) -> Result<Inventory> {
    let mut cursor = Cursor::new(bytes);
    let (tensors, keys) = counts(&mut cursor, label)?;
    let header = keys_and_values(&mut cursor, keys, label)?;
    let mut listed = Vec::new();
    for _ in 0..tensors {
        listed.push(entry(&mut cursor).ok_or_else(|| cut(label))?);
    }
    let start = cursor.at().next_multiple_of(header.alignment);
    let is_in_time =
        header.metadata.get("general.architecture").is_some_and(|name| IN_TIME.contains(&name.as_str()));
    let dims = limits::GGUF_DIMS + usize::from(is_in_time);
    let mut inventory = Inventory { metadata: header.metadata, ..Inventory::default() };
    for entry in listed {
        let name = String::from_utf8(entry.name.to_owned())
            .map_err(|_| corrupt(label, "a tensor's name is not UTF-8"))?;
        check_name(&name, label)?;
        let wrong = |what: String| corrupt(label, format!("tensor `{name}` {what}"));
        if entry.dims.len() > dims {
            return Err(wrong(format!("has {} axes, more than {dims}", entry.dims.len())));
        }
        let scalar = scalar(entry.kind).ok_or_else(|| {
            let message =
                format!("`{label}`: tensor `{name}` is of type number {}, not known here", entry.kind);
            Error::new(Code::ModelIncompatible, message)
        })?;
        let mut tensor = place(&entry, scalar, start, header.alignment, bytes.len()).map_err(wrong)?;
        if let Some(shape) = header.shapes.get(&name) {
            let same = shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
            if same != Some(tensor.shape.iter().product()) {
                return Err(wrong(format!("of shape {:?} was never of shape {shape:?}", tensor.shape)));
            }
            tensor.shape.clone_from(shape);
        }
        tensor.file = file;
        if inventory.tensors.insert(name, tensor).is_some() {
            return Err(corrupt(label, "a tensor is listed twice"));
        }
    }
    check_apart(&inventory, label)?;
    Ok(inventory)
}

/// The value of a key of a file that [`read`] has accepted.
pub(super) fn value(bytes: &[u8], key: &str) -> Option<Value> {
    let mut cursor = Cursor::new(bytes);
    let (_, keys) = counts(&mut cursor, "").ok()?;
    let mut budget = Budget::new();
    for _ in 0..keys {
        let found = cursor.text()? == key.as_bytes();
        let kind = cursor.u32()?;
        if found {
            return value::read(&mut cursor, kind);
        }
        value::skip(&mut cursor, kind, &mut budget)?;
    }
    None
}

fn corrupt(label: &str, what: impl fmt::Display) -> Error {
    Error::new(Code::WeightsCorrupt, format!("`{label}` is damaged: {what}")).hint("fetch the file again")
}

fn cut(label: &str) -> Error {
    corrupt(label, "its header is not whole, or longer than any")
}

/// How many tensors and keys there are, if there can be so many.
fn counts(cursor: &mut Cursor, label: &str) -> Result<(usize, usize)> {
    cursor.take(MAGIC.len()).ok_or_else(|| cut(label))?;
    let version = cursor.u32().ok_or_else(|| cut(label))?;
    if !VERSIONS.contains(&version) {
        let what = if VERSIONS.contains(&version.swap_bytes()) {
            "a GGUF file for machines of the other byte order".to_owned()
        } else {
            format!("a GGUF file of version {version}; versions 2 and 3 are read")
        };
        let message = format!("`{label}` is {what}");
        return Err(Error::new(Code::UnsupportedFormat, message).hint("use a current file of the same model"));
    }
    let (tensors, keys) = cursor.size().zip(cursor.size()).ok_or_else(|| cut(label))?;
    let fits = |count: usize, least: usize| count <= cursor.left() / least;
    if !fits(keys, LEAST.0) || !fits(tensors, LEAST.1) || keys > limits::GGUF_KEYS {
        return Err(corrupt(label, format!("it cannot have {tensors} tensors and {keys} keys")));
    }
    if tensors > limits::TENSORS {
        return Err(too_many(label));
    }
    Ok((tensors, keys))
}

/// What the keys say.
struct Header {
    metadata: BTreeMap<String, String>,
    shapes: BTreeMap<String, Vec<usize>>,
    alignment: usize,
}

fn keys_and_values(cursor: &mut Cursor, keys: usize, label: &str) -> Result<Header> {
    let mut header = Header { metadata: BTreeMap::new(), shapes: BTreeMap::new(), alignment: ALIGNMENT };
    let (mut seen, mut budget) = (BTreeSet::new(), Budget::new());
    for _ in 0..keys {
        let key = cursor.text().ok_or_else(|| cut(label))?;
        let key = std::str::from_utf8(key).map_err(|_| corrupt(label, "a key is not UTF-8"))?;
        let shown = || key.chars().take(60).flat_map(char::escape_debug).collect::<String>();
        let kind = cursor.u32().ok_or_else(|| cut(label))?;
        let wrong = || corrupt(label, format!("the value of `{}` is not whole, or no value", shown()));
        if !seen.insert(key.to_owned()) {
            return Err(corrupt(label, format!("the key `{}` is there twice", shown())));
        }
        if let Some(name) = key.strip_prefix(ORIGINAL) {
            let shape = value::read_shape(cursor, kind).ok_or_else(wrong)?;
            header.shapes.insert(name.to_owned(), shape);
            continue;
        }
        if value::is_list(kind) {
            value::skip(cursor, kind, &mut budget).ok_or_else(wrong)?;
            continue;
        }
        let value = value::read(cursor, kind).ok_or_else(wrong)?;
        if key == "general.alignment" {
            let fits = |&size: &usize| size.is_power_of_two() && limits::GGUF_ALIGNMENT.contains(&size);
            header.alignment = value.size().filter(fits).ok_or_else(wrong)?;
        }
        if let Some(text) = value.spoken() {
            header.metadata.insert(key.to_owned(), text);
        }
    }
    Ok(header)
}

/// One tensor as the header has it.
struct Entry<'a> {
    name: &'a [u8],
    /// The axis whose numbers lie together comes first.
    dims: Vec<u64>,
    kind: u32,
    offset: u64,
}

fn entry<'a>(cursor: &mut Cursor<'a>) -> Option<Entry<'a>> {
    let name = cursor.text()?;
    let axes = cursor.u32()? as usize;
    if axes > cursor.left() / 8 || axes > limits::DIMS {
        return None;
    }
    let dims = (0..axes).map(|_| cursor.u64()).collect::<Option<_>>()?;
    Some(Entry { name, dims, kind: cursor.u32()?, offset: cursor.u64()? })
}

/// The type of this number.
///
/// # Source
/// `ggml-org/ggml include/ggml.h`, `enum ggml_type`, MIT.
fn scalar(kind: u32) -> Option<Scalar> {
    match kind {
        0 => Some(Scalar::F32),
        1 => Some(Scalar::F16),
        30 => Some(Scalar::Bf16),
        24 => Scalar::parse("I8"),
        25 => Scalar::parse("I16"),
        26 => Scalar::parse("I32"),
        27 => Scalar::parse("I64"),
        28 => Scalar::parse("F64"),
        _ => Block::of(kind).map(Scalar::Block),
    }
}

/// Where a tensor lies, if type, shape, offset and the file's length agree; else what is wrong with it.
fn place(
    entry: &Entry,
    scalar: Scalar,
    start: usize,
    alignment: usize,
    length: usize,
) -> Result<TensorInfo, String> {
    let wide = || "is larger than any file".to_owned();
    let shape = entry.dims.iter().rev().map(|&size| usize::try_from(size).map_err(|_| wide()));
    let shape: Vec<usize> = shape.collect::<Result<_, _>>()?;
    let numbers = shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
    let numbers = numbers.ok_or_else(wide)?;
    if let (Scalar::Block(block), row) = (scalar, shape.last().copied().unwrap_or(1))
        && !row.is_multiple_of(block.numbers())
    {
        return Err(format!(
            "has rows of {row} numbers, but {} has blocks of {}",
            block.name(),
            block.numbers()
        ));
    }
    let bytes = scalar.bytes(numbers).ok_or_else(wide)?;
    let offset = usize::try_from(entry.offset).map_err(|_| wide())?;
    if !offset.is_multiple_of(alignment) {
        return Err(format!("lies at {offset}, which is no multiple of {alignment}"));
    }
    let begin = start.checked_add(offset).ok_or_else(wide)?;
    let end = begin.checked_add(bytes).ok_or_else(wide)?;
    if end > length {
        return Err(format!("lies at {begin}..{end} of a file of {length} bytes"));
    }
    Ok(TensorInfo::new(scalar, shape, 0, begin..end))
}

/// No two tensors share a byte.
fn check_apart(inventory: &Inventory, label: &str) -> Result<()> {
    let mut places: Vec<_> =
        inventory.tensors.iter().map(|(name, tensor)| (tensor.range.start, tensor.range.end, name)).collect();
    places.sort_unstable();
    for pair in places.windows(2) {
        if pair[1].0 < pair[0].1 {
            let what = format!("tensor `{}` shares bytes with `{}`", pair[1].2, pair[0].2);
            return Err(corrupt(label, what));
        }
    }
    Ok(())
}
