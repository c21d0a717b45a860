//! Weights made smaller while they are opened.

use candle_core::{DType, Device};
use half::f16;
use rayon::prelude::*;

use super::block::Block;
use super::decode::room;
use super::inventory::{Inventory, Scalar, TensorInfo};
use super::source::Weights;
use crate::error::Result;

/// Numbers and bytes of a block of `Q8_0`.
const Q8_0: (usize, usize) = (32, 34);
/// Tensors of fewer numbers stay as they are: together they weigh nothing, and norms and gates are among them.
const SMALL: usize = 4096;

impl Weights {
    /// The same weights with every large matrix as `Q8_0`, in memory: 8.5 bits a number.
    ///
    /// A network's loader still gets tensors in the type it asks for, decoded one by one, so this makes weights that
    /// are kept and read again smaller, not a network that is loaded. What is quantised already is decoded first.
    ///
    /// # Errors
    /// `insufficient_memory` if there is no room; those of [`Weights::tensor`].
    pub fn quantised(&self) -> Result<Self> {
        let mut bytes: Vec<u8> = room(self.quantised_bytes())?;
        let mut inventory = Inventory { metadata: self.inventory().metadata.clone(), ..Inventory::default() };
        for (name, info) in &self.inventory().tensors {
            let begin = bytes.len();
            let scalar = match self.raw(info) {
                Some(raw) if !shrinks(info) && !info.is_quantised() => {
                    bytes.extend_from_slice(raw);
                    info.scalar
                }
                _ => {
                    let tensor = self.tensor(name, None, DType::F32, &Device::Cpu)?;
                    let numbers = tensor.flatten_all()?.to_vec1::<f32>()?;
                    if shrinks(info) && q8_0(&numbers, &mut bytes) {
                        Scalar::Block(Block::Q8_0)
                    } else {
                        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
                        Scalar::F32
                    }
                }
            };
            let info = TensorInfo::new(scalar, info.shape.clone(), 0, begin..bytes.len());
            inventory.tensors.insert(name.clone(), info);
        }
        Ok(Self::in_memory(bytes, inventory, self.label()))
    }

    /// What they will weigh, unless some matrix has no scale in half precision.
    fn quantised_bytes(&self) -> usize {
        let weight = |info: &TensorInfo| {
            let numbers: usize = info.shape.iter().product();
            if shrinks(info) {
                numbers / Q8_0.0 * Q8_0.1
            } else if info.is_quantised() {
                numbers.saturating_mul(4)
            } else {
                info.range.len()
            }
        };
        self.inventory().tensors.values().map(weight).fold(0, usize::saturating_add)
    }
}

/// Whether a tensor is a large matrix, or a convolution, whose rows are whole blocks.
fn shrinks(info: &TensorInfo) -> bool {
    let numbers: usize = info.shape.iter().product();
    let [rows, inner @ ..] = info.shape.as_slice() else { return false };
    let is_number = info.is_quantised() || matches!(info.scalar, Scalar::F32 | Scalar::F16 | Scalar::Bf16);
    let row: usize = inner.iter().product();
    is_number && *rows > 1 && numbers >= SMALL && !inner.is_empty() && row.is_multiple_of(Q8_0.0)
}

/// Appends blocks of `Q8_0`: the scale is the largest number of a block over 127. False, and nothing appended, where a
/// scale is not finite in half precision.
///
/// # Source
/// `ggml-org/ggml src/ggml-quants.c`, `quantize_row_q8_0_ref`, MIT.
fn q8_0(numbers: &[f32], to: &mut Vec<u8>) -> bool {
    let begin = to.len();
    to.resize(begin + numbers.len() / Q8_0.0 * Q8_0.1, 0);
    let blocks = numbers.par_chunks_exact(Q8_0.0).zip(to[begin..].par_chunks_exact_mut(Q8_0.1));
    let is_whole = blocks
        .map(|(numbers, block)| {
            let scale = numbers.iter().fold(0.0_f32, |most, number| most.max(number.abs())) / 127.0;
            let stored = f16::from_f32(scale);
            let inverse = if scale > 0.0 { scale.recip() } else { 0.0 };
            block[..2].copy_from_slice(&stored.to_le_bytes());
            for (byte, number) in block[2..].iter_mut().zip(numbers) {
                *byte = ((number * inverse).round() as i8).cast_unsigned();
            }
            stored.is_finite() && numbers.iter().all(|number| number.is_finite())
        })
        .reduce(|| true, |all, one| all && one);
    if !is_whole {
        to.truncate(begin);
    }
    is_whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(weights: &Weights, name: &str) -> Vec<f32> {
        let tensor = weights.tensor(name, None, DType::F32, &Device::Cpu).expect("there");
        tensor.flatten_all().and_then(|tensor| tensor.to_vec1()).expect("numbers")
    }

    #[test]
    fn large_matrices_shrink_and_the_rest_stays() {
        let shapes: [(&str, &[usize]); 4] = [
            ("a.weight", &[80, 64]),
            ("a.bias", &[80]),
            ("conv.weight", &[8, 64, 3, 3]),
            ("odd.weight", &[100, 50]),
        ];
        let weights = Weights::synthetic(3, shapes.map(|(name, shape)| (name.to_owned(), shape.to_vec())));
        let small = weights.quantised().expect("room");
        for (name, scalar) in
            [("a.weight", "Q8_0"), ("a.bias", "F32"), ("conv.weight", "Q8_0"), ("odd.weight", "F32")]
        {
            assert_eq!(small.inventory().tensors[name].scalar.name(), scalar);
            let (ours, theirs) = (numbers(&small, name), numbers(&weights, name));
            for (ours, theirs) in ours.chunks(32).zip(theirs.chunks(32)) {
                let most = theirs.iter().fold(0.0_f32, |most, number| most.max(number.abs()));
                let fits = ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() <= most / 200.0);
                assert!(fits, "{name}");
            }
        }
        assert_eq!(numbers(&small, "odd.weight"), numbers(&weights, "odd.weight"));
        let again = small.quantised().expect("room");
        assert_eq!(again.inventory(), small.inventory());
        assert_eq!(small.inventory().bytes() as usize, small.quantised_bytes());
    }
}
