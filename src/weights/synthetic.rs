//! Weights made by a formula: networks of full size without a file, toy networks that Python can repeat.
//!
//! Tensors of one axis are what norms and biases are: `…weight` is 1 and anything else 0. Any other number `i` of the
//! tensor `name` is, in 64-bit arithmetic that wraps,
//!
//! ```text
//! h = 0xcbf29ce484222325;  for byte in name: h = (h xor byte) · 0x100000001b3          FNV-1a
//! z = (h xor seed) + (i + 1) · 0x9e3779b97f4a7c15                                      SplitMix64
//! z = (z xor z >> 30) · 0xbf58476d1ce4e5b9;  z = (z xor z >> 27) · 0x94d049bb133111eb;  z = z xor z >> 31
//! value = f32(((z >> 40) / 2²³ − 1) · √(3 / fan_in)),   fan_in = the product of all sizes but the first
//! ```
//!
//! which is even in `±√(3/fan_in)`, of variance `1/fan_in`: signals keep their size from layer to layer.
//!
//! # Source
//! FNV-1a: Fowler, Noll, Vo (RFC 9923). `SplitMix64`: Steele, Lea, Flood 2014, OOPSLA, figure 17.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use rayon::prelude::*;
use safetensors::serialize_to_file;
use safetensors::tensor::TensorView;

use super::decode::room;
use super::inventory::{Inventory, Scalar, TensorInfo};
use crate::error::{Code, Error, Result};

/// Numbers that one thread makes at a time.
const CHUNK: usize = 1 << 16;

/// The numbers of one tensor.
///
/// # Errors
/// `insufficient_memory` if there is no room for them.
pub fn numbers(seed: u64, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
    let wide = || Error::new(Code::InsufficientMemory, format!("a tensor of shape {shape:?} is too large"));
    let length =
        shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size)).ok_or_else(wide)?;
    let mut numbers = room(length)?;
    if shape.len() <= 1 {
        numbers.resize(length, if name.ends_with("weight") { 1.0 } else { 0.0 });
        return Ok(numbers);
    }
    numbers.resize(length, 0.0_f32);
    let fan_in: usize = shape[1..].iter().product();
    let scale = (3.0 / fan_in.max(1) as f64).sqrt();
    let stream = fnv1a(name) ^ seed;
    numbers.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, numbers)| {
        for (place, number) in (chunk * CHUNK..).zip(numbers) {
            let unit = (splitmix(stream, place as u64) >> 40) as f64 / f64::from(1 << 23) - 1.0;
            *number = (unit * scale) as f32;
        }
    });
    Ok(numbers)
}

fn fnv1a(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn splitmix(stream: u64, place: u64) -> u64 {
    let z = stream.wrapping_add(place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// One tensor of [`numbers`].
pub(super) fn tensor(
    seed: u64,
    name: &str,
    shape: &[usize],
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    Ok(Tensor::from_vec(numbers(seed, name, shape)?, shape, device)?.to_dtype(dtype)?)
}

/// The inventory of tensors that lie nowhere.
pub(super) fn inventory(shapes: impl IntoIterator<Item = (String, Vec<usize>)>) -> Inventory {
    let place = |(name, shape): (String, Vec<usize>)| {
        let bytes = shape.iter().fold(4_usize, |bytes, &size| bytes.saturating_mul(size));
        (name, TensorInfo::new(Scalar::F32, shape, 0, 0..bytes))
    };
    Inventory { tensors: shapes.into_iter().map(place).collect(), ..Inventory::default() }
}

/// Writes such tensors as a safetensors file, so that other programs can read the same network.
///
/// # Errors
/// `store_io` if the file cannot be written.
pub fn save(path: &Path, seed: u64, shapes: impl IntoIterator<Item = (String, Vec<usize>)>) -> Result<()> {
    let mut tensors = Vec::new();
    for (name, shape) in shapes {
        let bytes: Vec<u8> = numbers(seed, &name, &shape)?.iter().flat_map(|n| n.to_le_bytes()).collect();
        tensors.push((name, shape, bytes));
    }
    let views = tensors
        .iter()
        .map(|(name, shape, bytes)| {
            let view = TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes);
            view.map(|view| (name.as_str(), view))
        })
        .collect::<Result<Vec<_>, _>>();
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    views.and_then(|views| serialize_to_file(views, Some(metadata), path)).map_err(|error| {
        Error::new(Code::StoreIo, "the synthetic weights could not be written").because(error)
    })
}
