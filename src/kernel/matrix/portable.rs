//! Every other processor: the `gemm` crate, which has NEON and plain code.

use super::cpu::{Block, WIDTH};
use super::weight::Row;

/// The sums of one strip of at most 64 rows.
#[expect(unsafe_code, reason = "the `gemm` crate takes raw pointers")]
pub(super) fn sums(block: Block<'_, f32, f32>, sums: &mut [Row<f32>]) {
    let strip = block.strips[0];
    for (index, piece) in block.pieces.iter().enumerate() {
        let left = &block.left[strip.left + piece.left..][..(strip.rows - 1) * block.step + piece.depth];
        let panel = &block.panel[piece.line..][..piece.depth];
        let sums = &mut sums[..strip.rows];
        // SAFETY: the slices above hold every row, column and stride that is named.
        unsafe {
            gemm::gemm(
                strip.rows,
                WIDTH,
                piece.depth,
                sums.as_mut_ptr().cast::<f32>(),
                1,
                WIDTH as isize,
                block.keep || index > 0,
                left.as_ptr(),
                1,
                block.step as isize,
                panel.as_ptr().cast::<f32>(),
                1,
                WIDTH as isize,
                1.0,
                1.0,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
    }
}
