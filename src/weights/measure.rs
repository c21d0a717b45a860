//! What weights take in memory, from their headers alone.

use candle_core::DType;

use super::inventory::TensorInfo;
use super::source::Weights;
use crate::kernel::matrix::{Precision, packed_bytes};

impl Weights {
    /// Bytes of these weights in a network that keeps them in `dtype` on the processor: blocks of small integers as they
    /// are, matrices and filters packed, vectors in f32.
    pub fn bytes_kept(&self, dtype: DType) -> u64 {
        let bytes = |info: &TensorInfo| {
            let numbers = info.shape.iter().fold(1_u64, |all, side| all.saturating_mul(*side as u64));
            if let Some(block) = self.block_of(info) {
                return numbers / block.numbers() as u64 * block.bytes() as u64;
            }
            let plain = |dtype: DType| numbers.saturating_mul(dtype.size_in_bytes() as u64);
            match info.shape.as_slice() {
                [] | [_] => plain(DType::F32),
                shape => packed_bytes(shape, Precision::of(dtype)).unwrap_or_else(|| plain(dtype)),
            }
        };
        self.inventory().tensors.values().map(bytes).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::block::Block;

    #[test]
    fn every_kind_of_tensor_is_counted_as_it_is_kept() {
        let shapes: [(&str, &[usize]); 4] = [
            ("matrix.weight", &[64, 64]),
            ("filters.weight", &[32, 32, 3, 3]),
            ("narrow.weight", &[4, 5]),
            ("norm.weight", &[64]),
        ];
        let weights = Weights::synthetic(1, shapes.map(|(name, shape)| (name.to_owned(), shape.to_vec())));
        // 16 places for 9 taps; a panel has 32 columns however few are used.
        let exact = 4 * (64 * 64 + 32 * 32 * 16 + 32 * 5 + 64);
        assert_eq!(weights.bytes_kept(DType::F32), exact);
        // Stretches are padded to 32: of the filters 3·32, of the narrow matrix 5.
        let halves = 2 * (64 * 64 + 32 * 32 * 9 + 32 * 32) + 4 * 64;
        assert_eq!(weights.bytes_kept(DType::F16), halves);
        let small = weights.quantised(Block::Q8_0).expect("is made").bytes_kept(DType::F32);
        assert_eq!(small, 34 * (64 * 64 + 32 * 32 * 9) / 32 + 4 * (32 * 5 + 64));
    }
}
