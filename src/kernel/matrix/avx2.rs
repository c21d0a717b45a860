//! AVX2 and FMA: 6 rows by 16 columns of sums in 12 registers, each half of a panel in turn.

use std::arch::x86_64::{
    __m256, _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_load_ps, _mm256_setzero_ps, _mm256_store_ps,
};

use super::cpu::{Block, WIDTH};
use super::weight::Row;

/// The sums of one strip of at most 6 rows.
///
/// # Safety
/// The band must hold the strip's rows and the panel the lines of each piece.
#[target_feature(enable = "avx2,fma")]
#[expect(unsafe_code, reason = "raw pointers in the innermost loop")]
pub(super) unsafe fn sums(block: Block<'_, f32, f32>, sums: &mut [Row<f32>]) {
    for half in [0, WIDTH / 2] {
        // SAFETY: handed on to the caller.
        unsafe {
            match block.strips[0].rows {
                1 => kernel::<1>(block, half, sums),
                2 => kernel::<2>(block, half, sums),
                3 => kernel::<3>(block, half, sums),
                4 => kernel::<4>(block, half, sums),
                5 => kernel::<5>(block, half, sums),
                _ => kernel::<6>(block, half, sums),
            }
        }
    }
}

#[target_feature(enable = "avx2,fma")]
#[expect(unsafe_code, reason = "raw pointers in the innermost loop")]
unsafe fn kernel<const R: usize>(block: Block<'_, f32, f32>, half: usize, sums: &mut [Row<f32>]) {
    let mut held: [[__m256; 2]; R] = [[_mm256_setzero_ps(); 2]; R];
    if block.keep {
        for (held, row) in held.iter_mut().zip(&*sums) {
            let at = row.0[half..].as_ptr();
            // SAFETY: half a row is 16 aligned floats.
            *held = unsafe { [_mm256_load_ps(at), _mm256_load_ps(at.add(8))] };
        }
    }
    for piece in block.pieces {
        // SAFETY: see `sums`.
        unsafe {
            let mut left = block.left.as_ptr().add(block.strips[0].left + piece.left);
            let mut panel = block.panel.as_ptr().add(piece.line).cast::<f32>().add(half);
            for _ in 0..piece.depth {
                let columns = [_mm256_load_ps(panel), _mm256_load_ps(panel.add(8))];
                for (row, held) in held.iter_mut().enumerate() {
                    let value = _mm256_broadcast_ss(&*left.add(row.wrapping_mul(block.step)));
                    held[0] = _mm256_fmadd_ps(value, columns[0], held[0]);
                    held[1] = _mm256_fmadd_ps(value, columns[1], held[1]);
                }
                left = left.add(1);
                panel = panel.add(WIDTH);
            }
        }
    }
    for (held, row) in held.into_iter().zip(sums) {
        let at = row.0[half..].as_mut_ptr();
        // SAFETY: half a row is 16 aligned floats.
        unsafe {
            _mm256_store_ps(at, held[0]);
            _mm256_store_ps(at.add(8), held[1]);
        }
    }
}
