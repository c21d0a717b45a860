//! Tensors whose numbers take more than their own bytes to read: scales, tables, and where those lie.
//!
//! Quantised safetensors files keep such things as tensors beside the weights. [`fold`] takes them out of the
//! inventory and ties them to the weight they belong to, so that they follow it through every renaming and cut, and
//! nobody takes them for unknown names.
//!
//! # Source
//! fp8: `Comfy-Org/ComfyUI comfy/ops.py`, `comfy/quant_ops.py` (read for the names, not ported). Eight and four bits:
//! `bitsandbytes-foundation/bitsandbytes@0.50.2 bitsandbytes/functional.py`, `QuantState`, MIT.

use std::ops::{Deref, Range};
use std::sync::Arc;

use serde_json::Value;

use super::config::read_json;
use super::inventory::{Inventory, Scalar, TensorInfo};
use super::limits;
use crate::error::{Code, Error, Result};

/// What it takes to read a tensor besides its own bytes.
#[derive(Debug, Clone, PartialEq)]
pub enum Packing {
    /// Each number times a scale.
    Scaled(Scale),
    /// Four bits a number, from a table, times a scale for each block: `nf4` and `fp4` of bitsandbytes.
    FourBit(Arc<FourBit>),
    /// A scheme that we know by this name only; reading the tensor says so.
    Unread(String),
}

/// Numbers that lie elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// Their type.
    pub scalar: Scalar,
    /// Which file of the set.
    pub file: usize,
    /// The bytes within that file.
    pub range: Range<usize>,
}

/// One scale for the whole tensor, or one for each row.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// The scales.
    pub place: Place,
    /// Whether each row has its own.
    pub is_by_row: bool,
    /// What all of them are multiplied by.
    pub factor: f32,
}

/// Numbers of four bits, two to a byte, the upper half first.
#[derive(Debug, Clone, PartialEq)]
pub struct FourBit {
    /// What the sixteen patterns stand for.
    pub table: [f32; 16],
    /// How many numbers share a scale.
    pub block: usize,
    /// The scale of each block; with `nested`, its pattern of eight bits.
    pub scales: Place,
    /// How the scales themselves are packed.
    pub nested: Option<Nested>,
    /// The block with which this tensor begins, if it is a cut of a larger one.
    pub first: usize,
}

/// Scales of eight bits: from a table, times a scale for each block of scales, plus an offset.
#[derive(Debug, Clone, PartialEq)]
pub struct Nested {
    /// What the 256 patterns stand for.
    pub table: Place,
    /// How many scales share a scale.
    pub block: usize,
    /// The scale of each block of scales.
    pub scales: Place,
    /// What is added to all.
    pub offset: f32,
}

impl Packing {
    /// The packing of part `number` of `parts` equal parts of the rows of a tensor of `shape`.
    pub(super) fn rows(&self, number: usize, parts: usize, shape: &[usize]) -> Option<Self> {
        match self {
            Self::Scaled(scale) if scale.is_by_row => {
                let Range { start, end } = scale.place.range;
                let length = (end - start) / parts;
                let start = start + number * length;
                let place = Place { range: start..start + length, ..scale.place.clone() };
                Some(Self::Scaled(Scale { place, ..scale.clone() }))
            }
            Self::FourBit(packed) => {
                let numbers = shape.iter().product::<usize>() / parts;
                let blocks = numbers / packed.block;
                let first = packed.first + number * blocks;
                let whole = numbers.is_multiple_of(packed.block);
                whole.then(|| Self::FourBit(Arc::new(FourBit { first, ..(**packed).clone() })))
            }
            other => Some(other.clone()),
        }
    }
}

impl From<&TensorInfo> for Place {
    fn from(info: &TensorInfo) -> Self {
        Self { scalar: info.scalar, file: info.file, range: info.range.clone() }
    }
}

/// Numbers of a type that scales have.
pub(super) fn numbers<F: Deref<Target = [u8]>>(place: &Place, files: &[F]) -> Option<Vec<f32>> {
    let bytes = files.get(place.file)?.get(place.range.clone())?;
    let halves = || bytes.as_chunks::<2>().0.iter().copied();
    Some(match place.scalar {
        Scalar::F32 => bytes.as_chunks::<4>().0.iter().map(|&word| f32::from_le_bytes(word)).collect(),
        Scalar::F16 => halves().map(|word| half::f16::from_le_bytes(word).to_f32()).collect(),
        Scalar::Bf16 => halves().map(|word| half::bf16::from_le_bytes(word).to_f32()).collect(),
        _ => return None,
    })
}

/// Ties scales and tables to the weights they belong to, and takes them out of the list.
///
/// # Errors
/// `weights_corrupt` if what a weight is said to be does not fit its bytes.
pub(super) fn fold<F: Deref<Target = [u8]>>(
    inventory: &mut Inventory,
    files: &[F],
    label: &str,
) -> Result<()> {
    header_quant(inventory, label)?;
    let names: Vec<String> = inventory
        .names()
        .filter(|name| BELONG.iter().any(|end| name.ends_with(end)))
        .map(str::to_owned)
        .collect();
    for name in &names {
        // A marker of a whole file has the layer's name in front, or nothing.
        let (layer, end) = name.rsplit_once('.').unwrap_or(("", name));
        match end {
            "scale_weight" | "weight_scale" => scaled(inventory, layer, name, 1.0),
            "SCB" => scaled(inventory, layer, name, EIGHT_BITS),
            "comfy_quant" => comfy_quant(inventory, files, layer, name, label)?,
            "scaled_fp8" => {
                inventory.tensors.remove(name);
            }
            _ => {
                if let Some(weight) = layer.strip_suffix(".quant_state") {
                    four_bit(inventory, files, weight, name, label)?;
                }
            }
        }
    }
    Ok(())
}

/// The ends of names that say how a weight is packed. In the order of names `comfy_quant` comes before `weight_scale`,
/// so an unread scheme is known before its scales are met.
const BELONG: &[&str] = &[
    ".scale_weight",
    ".weight_scale",
    ".SCB",
    ".comfy_quant",
    "scaled_fp8",
    ".quant_state.bitsandbytes__nf4",
    ".quant_state.bitsandbytes__fp4",
];

/// `1/127`, as bitsandbytes has it: its scale is a row's largest number, stored as 127.
const EIGHT_BITS: f32 = 7.874_016e-3;

fn is_fp8(scalar: Scalar) -> bool {
    matches!(scalar, Scalar::F8E4m3 | Scalar::F8E5m2)
}

/// `layer.weight` is to be multiplied by what `name` holds.
fn scaled(inventory: &mut Inventory, layer: &str, name: &str, factor: f32) {
    let (Some(weight), Some(scales)) =
        (inventory.tensors.get(&format!("{layer}.weight")), inventory.tensors.get(name))
    else {
        return;
    };
    let is_eight_bit = matches!(weight.scalar, Scalar::Other { name: "I8", .. });
    let fits = if name.rsplit('.').next() == Some("SCB") { is_eight_bit } else { is_fp8(weight.scalar) };
    if !fits || weight.packing.is_some() {
        return;
    }
    let count: usize = scales.shape.iter().product();
    let rows = weight.shape.first().copied().unwrap_or(1);
    let readable = matches!(scales.scalar, Scalar::F32 | Scalar::F16 | Scalar::Bf16);
    let packing = if readable && (count == 1 || (count == rows && scales.shape[0] == rows)) {
        Packing::Scaled(Scale { place: scales.into(), is_by_row: count != 1, factor })
    } else {
        Packing::Unread(format!("{} with scales of shape {:?}", weight.scalar.name(), scales.shape))
    };
    attach(inventory, layer, packing);
}

/// Gives `layer.weight` its packing and takes out what belongs to it.
fn attach(inventory: &mut Inventory, layer: &str, packing: Packing) {
    const PARTS: &[&str] = &[
        "scale_weight",
        "weight_scale",
        "weight_scale_2",
        "scale_input",
        "input_scale",
        "SCB",
        "weight_format",
    ];
    if let Some(weight) = inventory.tensors.get_mut(&format!("{layer}.weight")) {
        weight.packing = Some(packing);
    }
    for part in PARTS {
        inventory.tensors.remove(&format!("{layer}.{part}"));
    }
}

/// The longest description of a tensor; real ones have 200 bytes.
const DESCRIPTION_BYTES: usize = 4096;

/// The JSON in a tensor of bytes.
fn description<F: Deref<Target = [u8]>>(
    info: &TensorInfo,
    files: &[F],
    name: &str,
    label: &str,
) -> Result<Value> {
    let bytes = files.get(info.file).and_then(|file| file.get(info.range.clone())).unwrap_or_default();
    read_json(bytes, DESCRIPTION_BYTES, name)
        .map_err(|error| Error { code: Code::WeightsCorrupt, ..error.within(format_args!("`{label}`")) })
}

/// `ComfyUI`'s newer form: a JSON beside each weight.
fn comfy_quant<F: Deref<Target = [u8]>>(
    inventory: &mut Inventory,
    files: &[F],
    layer: &str,
    name: &str,
    label: &str,
) -> Result<()> {
    let Some(info) = inventory.tensors.remove(name) else { return Ok(()) };
    let Some(weight) = inventory.tensors.get(&format!("{layer}.weight")) else { return Ok(()) };
    let text = description(&info, files, name, label)?;
    let is_float = is_fp8(weight.scalar);
    described(inventory, layer, is_float, &text);
    Ok(())
}

/// A layer whose description names its scheme: plain fp8 stays as it is and finds its scale by name, what else there
/// may be is not read.
fn described(inventory: &mut Inventory, layer: &str, is_float: bool, text: &Value) {
    let format = text.get("format").and_then(Value::as_str).unwrap_or("nothing");
    let is_rotated = text.get("convrot").is_some_and(|rotated| *rotated != Value::Bool(false));
    if is_float && format.starts_with("float8_") && !is_rotated {
        return;
    }
    let rotated = if is_rotated { ", rotated" } else { "" };
    let shown: String = format.chars().take(40).flat_map(char::escape_debug).collect();
    attach(inventory, layer, Packing::Unread(format!("{shown}{rotated}")));
}

/// The same descriptions in the header: `ComfyUI` writes them there when it saves a file.
fn header_quant(inventory: &mut Inventory, label: &str) -> Result<()> {
    const KEY: &str = "_quantization_metadata";
    let Some(text) = inventory.metadata.get(KEY) else { return Ok(()) };
    let text = read_json(text.as_bytes(), limits::CONFIG_BYTES, KEY)
        .map_err(|error| Error { code: Code::WeightsCorrupt, ..error.within(format_args!("`{label}`")) })?;
    for (layer, description) in text.get("layers").and_then(Value::as_object).into_iter().flatten() {
        if let Some(weight) = inventory.tensors.get(&format!("{layer}.weight"))
            && weight.packing.is_none()
        {
            let is_float = is_fp8(weight.scalar);
            described(inventory, layer, is_float, description);
        }
    }
    Ok(())
}

/// Four bits of bitsandbytes: `weight` and a handful of tensors named after it.
fn four_bit<F: Deref<Target = [u8]>>(
    inventory: &mut Inventory,
    files: &[F],
    weight: &str,
    name: &str,
    label: &str,
) -> Result<()> {
    const PARTS: [&str; 4] = ["absmax", "quant_map", "nested_absmax", "nested_quant_map"];
    let Some(state) = inventory.tensors.remove(name) else { return Ok(()) };
    let text = description(&state, files, name, label)?;
    let parts =
        PARTS.map(|part| inventory.tensors.remove(&format!("{weight}.{part}")).as_ref().map(Place::from));
    let Some(info) = inventory.tensors.get_mut(weight) else { return Ok(()) };
    let kind = if name.ends_with("nf4") { "NF4" } else { "FP4" };
    let (shape, packed) = read_four_bit(info, &parts, &text, files).ok_or_else(|| {
        let message =
            format!("`{label}` is damaged: tensor `{weight}` is not the {kind} that it is said to be");
        Error::new(Code::WeightsCorrupt, message).hint("fetch the file again")
    })?;
    info.scalar = Scalar::Other { name: kind, bits: 4 };
    info.shape = shape;
    info.packing = Some(Packing::FourBit(Arc::new(packed)));
    Ok(())
}

/// The shape and the packing that a description and its tensors agree on; `None` if they do not.
fn read_four_bit<F: Deref<Target = [u8]>>(
    info: &TensorInfo,
    parts: &[Option<Place>; 4],
    text: &Value,
    files: &[F],
) -> Option<(Vec<usize>, FourBit)> {
    let [scales, table, nested_scales, nested_table] = parts;
    let size = |value: &Value| usize::try_from(value.as_u64()?).ok();
    let block =
        |key: &str| size(text.get(key)?).filter(|size| size.is_power_of_two() && (32..=4096).contains(size));
    let shape: Vec<usize> = text.get("shape")?.as_array()?.iter().map(size).collect::<Option<_>>()?;
    let count = shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size))?;
    let width = block("blocksize")?;
    let scales = scales.clone()?;
    let blocks = count.div_ceil(width);
    let bytes = |place: &Place, numbers: usize| place.scalar.bytes(numbers) == Some(place.range.len());
    let is_byte = |scalar: Scalar| matches!(scalar, Scalar::Other { name: "U8", .. });
    if !is_byte(info.scalar)
        || info.range.len() != count.div_ceil(2)
        || !bytes(&scales, blocks)
        || shape.len() > 8
    {
        return None;
    }
    let nested = if is_byte(scales.scalar) {
        let (table, nested) = (nested_table.clone()?, nested_scales.clone()?);
        let width = block("nested_blocksize")?;
        let offset = text.get("nested_offset")?.as_f64()? as f32;
        let is_float = table.scalar == Scalar::F32 && nested.scalar == Scalar::F32;
        if !is_float || !bytes(&table, 256) || !bytes(&nested, blocks.div_ceil(width)) {
            return None;
        }
        Some(Nested { table, block: width, scales: nested, offset })
    } else {
        numbers(&Place { range: 0..0, ..scales.clone() }, files)?;
        None
    };
    let table = numbers(table.as_ref()?, files)?.try_into().ok()?;
    Some((shape, FourBit { table, block: width, scales, nested, first: 0 }))
}
