//! The header of a safetensors file, read as if its author were an enemy.
//!
//! The file's bytes may be a memory map of a terabyte: nothing here touches more than the header, and nothing is
//! allocated on the word of the file. What passes is internally consistent: every tensor lies within the file, is as
//! long as its type and shape say, and the tensors cover the data without gap or overlap.
//!
//! # Source
//! Format: `huggingface/safetensors` README, section *Format*. The checks are `reliability.md` section 4, cases `st-*`.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};

use super::inventory::{Inventory, Scalar, TensorInfo, too_many};
use super::limits;
use crate::error::{Code, Error, Result};

/// Reads the header of `bytes`, the whole file, which is number `file` of its set and called `label` in errors.
///
/// # Errors
/// `unsupported_format` for another format, `weights_corrupt` for a file that contradicts itself,
/// `model_incompatible` for one that no model could be.
pub(super) fn read(bytes: &[u8], label: &str, file: usize) -> Result<Inventory> {
    if let Some(error) = foreign(bytes, label) {
        return Err(error);
    }
    let header = header(bytes).ok_or_else(|| corrupt(label, "the header is not within the file"))?;
    if header.len() > limits::HEADER_BYTES {
        return Err(corrupt(label, format!("a header of {} bytes is too long", header.len())));
    }
    if header.first() != Some(&b'{') {
        return Err(corrupt(label, "the header does not begin with `{`"));
    }
    let listed = parse(header, label)?;
    let start = 8 + header.len();
    let mut inventory = Inventory { tensors: BTreeMap::new(), metadata: listed.metadata };
    for (name, entry) in listed.tensors {
        check_name(&name, label)?;
        let place = place(&entry, start, bytes.len())
            .map_err(|what| corrupt(label, format!("tensor `{name}` {what}")))?;
        let tensor = TensorInfo { file, ..place };
        if inventory.tensors.insert(name, tensor).is_some() {
            return Err(corrupt(label, "a tensor is listed twice"));
        }
    }
    check_cover(&inventory, start, bytes.len(), label)?;
    Ok(inventory)
}

fn corrupt(label: &str, what: impl fmt::Display) -> Error {
    Error::new(Code::WeightsCorrupt, format!("`{label}` is damaged: {what}")).hint("fetch the file again")
}

/// The bytes of the header, if the length before them is true.
fn header(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?)
}

/// What else a file of weights may be, and how to turn it into one that we read.
fn foreign(bytes: &[u8], label: &str) -> Option<Error> {
    const CONVERT: &str = "convert it to .safetensors; pickles can run code and are never read";
    let begins = |magic: &[u8]| bytes.starts_with(magic);
    // A header of 640 bytes begins like a pickle, so the brace behind the length decides.
    if bytes.get(8) == Some(&b'{') {
        return None;
    }
    let pickled = matches!(bytes, [0x80, 2..=5, ..]);
    let (what, hint) = if begins(b"PK\x03\x04") || pickled {
        ("a PyTorch checkpoint (pickle)", CONVERT)
    } else if [b"lmgg", b"fmgg", b"tjgg", b"algg"].into_iter().any(|magic| begins(magic)) {
        ("a GGML file of before 2023", "use the .safetensors file of the same model")
    } else if begins(b"\x89HDF") {
        ("a Keras checkpoint (HDF5)", "use the .safetensors file of the same model")
    } else if begins(b"version https://git-lfs") {
        return Some(
            corrupt(label, "it is only a pointer of Git LFS").hint("run `git lfs pull` in that folder"),
        );
    } else {
        return None;
    };
    let message = format!("`{label}` is {what}, not safetensors");
    Some(Error::new(Code::UnsupportedFormat, message).hint(hint))
}

/// One tensor as the header has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The header as it stands, believed in nothing but its syntax.
#[derive(Default)]
struct Listed {
    tensors: Vec<(String, Entry)>,
    metadata: BTreeMap<String, String>,
}

/// Reads the JSON of a header; stops at the limit, so that a long list costs no memory.
struct Lister<'a> {
    label: &'a str,
    refused: &'a mut Option<Error>,
}

fn parse(header: &[u8], label: &str) -> Result<Listed> {
    let mut refused = None;
    let mut json = serde_json::Deserializer::from_slice(header);
    let listed = Lister { label, refused: &mut refused }
        .deserialize(&mut json)
        .and_then(|listed| json.end().map(|()| listed));
    listed.map_err(|error| {
        refused.unwrap_or_else(|| corrupt(label, "the header is not the JSON it should be").because(error))
    })
}

impl<'de> DeserializeSeed<'de> for Lister<'_> {
    type Value = Listed;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Listed, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Lister<'_> {
    type Value = Listed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Listed, A::Error> {
        let mut listed = Listed::default();
        let mut has_metadata = false;
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                if std::mem::replace(&mut has_metadata, true) {
                    return Err(A::Error::custom("__metadata__ is there twice"));
                }
                listed.metadata = map.next_value()?;
                continue;
            }
            if listed.tensors.len() >= limits::TENSORS {
                *self.refused = Some(too_many(self.label));
                return Err(A::Error::custom("too many tensors"));
            }
            listed.tensors.push((name, map.next_value()?));
        }
        Ok(listed)
    }
}

/// Names reach logs and messages, so they are plain text of a sane length.
pub(super) fn check_name(name: &str, label: &str) -> Result<()> {
    if !name.is_empty() && name.len() <= limits::NAME_BYTES && !name.chars().any(char::is_control) {
        return Ok(());
    }
    let shown: String = name.chars().take(60).flat_map(char::escape_debug).collect();
    let message = format!("`{label}` has a tensor of an impossible name: `{shown}`");
    Err(Error::new(Code::ModelIncompatible, message))
}

/// Where a tensor lies, if type, shape, offsets and the file's length agree; else what is wrong with it.
fn place(entry: &Entry, start: usize, length: usize) -> Result<TensorInfo, String> {
    let scalar = Scalar::parse(&entry.dtype).ok_or_else(|| {
        format!("is of the unknown type `{}`", entry.dtype.escape_debug().take(24).collect::<String>())
    })?;
    if entry.shape.len() > limits::DIMS {
        return Err(format!("has {} axes, more than {}", entry.shape.len(), limits::DIMS));
    }
    let wide = || "is larger than any file".to_owned();
    let shape = entry.shape.iter().map(|&size| usize::try_from(size));
    let shape: Vec<usize> = shape.collect::<Result<_, _>>().map_err(|_| wide())?;
    let numbers = shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size));
    let numbers = numbers.ok_or_else(wide)?;
    let at = |offset: u64| usize::try_from(offset).ok()?.checked_add(start);
    let (begin, end) = at(entry.data_offsets.0).zip(at(entry.data_offsets.1)).ok_or_else(wide)?;
    if begin > end || end > length {
        return Err(format!("lies at {begin}..{end} of a file of {length} bytes"));
    }
    if scalar.bytes(numbers) != Some(end - begin) {
        let found = end - begin;
        return Err(format!("of type {} and shape {shape:?} cannot have {found} bytes", scalar.name()));
    }
    Ok(TensorInfo::new(scalar, shape, 0, begin..end))
}

/// Tensors follow one another from the first byte of data to the last: no overlap, no hole, nothing behind.
fn check_cover(inventory: &Inventory, start: usize, length: usize, label: &str) -> Result<()> {
    let mut places: Vec<_> =
        inventory.tensors.iter().map(|(name, tensor)| (tensor.range.start, tensor.range.end, name)).collect();
    places.sort_unstable();
    let mut at = start;
    for (begin, end, name) in places {
        if begin != at {
            let what = if begin < at { "shares bytes with another" } else { "follows unused bytes" };
            return Err(corrupt(label, format!("tensor `{name}` {what}")));
        }
        at = end;
    }
    if at != length {
        return Err(corrupt(label, format!("{} bytes follow the last tensor", length - at)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: usize) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        bytes
    }

    fn code(header: &str, data: usize) -> Code {
        read(&file(header, data), "f", 0).expect_err("must be refused").code
    }

    #[test]
    fn a_consistent_file_is_listed_with_its_places() {
        let header = r#"{"__metadata__":{"k":"v"},"b":{"dtype":"F32","shape":[],"data_offsets":[4,8]},
            "a":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]}}   "#;
        let bytes = file(header, 8);
        let inventory = read(&bytes, "f", 3).expect("good");
        let at = 8 + header.len();
        assert_eq!(inventory.tensors["a"].range, at..at + 4);
        assert_eq!(inventory.tensors["b"].shape, [0_usize; 0]);
        assert_eq!(inventory.tensors["b"].file, 3);
        assert_eq!(inventory.metadata["k"], "v");
    }

    #[test]
    fn contradictions_are_corrupt() {
        let one = |entry: &str, data| code(&format!(r#"{{"w":{entry}}}"#), data);
        for (entry, data) in [
            (r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4],"extra":[]}"#, 4),
            (r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#, 5),
            (r#"{"dtype":"F32","shape":[1],"data_offsets":[1,5]}"#, 5),
            (r#"{"dtype":"F32","shape":[2],"data_offsets":[0,4]}"#, 4),
            (r#"{"dtype":"F4","shape":[1],"data_offsets":[0,1]}"#, 1),
            (r#"{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}"#, 4),
            (r#"{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}"#, 0),
            (r#"{"dtype":"U8","shape":[0],"data_offsets":[18446744073709551615,18446744073709551615]}"#, 0),
        ] {
            assert_eq!(one(entry, data), Code::WeightsCorrupt, "{entry}");
        }
        let twice = r#"{"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#;
        assert_eq!(code(twice, 0), Code::WeightsCorrupt);
        assert_eq!(code(r#"{"__metadata__":{},"__metadata__":{}}"#, 0), Code::WeightsCorrupt);
        assert_eq!(code(" {}", 0), Code::WeightsCorrupt);
    }

    #[test]
    fn a_name_that_could_forge_a_log_line_is_shown_escaped() {
        let bytes = file(r#"{"a\n\u001b[2J":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#, 0);
        let error = read(&bytes, "f", 0).expect_err("must be refused");
        assert_eq!(error.code, Code::ModelIncompatible);
        assert!(error.message.contains(r"a\n\u{1b}[2J"), "{error}");
    }

    #[test]
    fn other_formats_are_named_with_their_remedy() {
        for (magic, what) in [
            (&b"PK\x03\x04rest of a zip"[..], "pickle"),
            (b"\x80\x02}q\x00X", "pickle"),
            (b"tjgg\x01\0\0\0\0\0\0\0", "GGML"),
        ] {
            let error = read(magic, "f", 0).expect_err("must be refused");
            assert_eq!(error.code, Code::UnsupportedFormat);
            assert!(error.message.contains(what) && error.hint.is_some());
        }
        let header = format!("{{{}}}", " ".repeat(638)); // 640 bytes: length 80 02 00 …
        assert!(read(&file(&header, 0), "f", 0).is_ok());
    }

    #[test]
    fn no_flip_of_a_header_panics() {
        let header = r#"{"a":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#;
        let good = file(header, 8);
        for at in 0..good.len() - 8 {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                let _ = read(&bad, "f", 0);
            }
        }
    }
}
