//! AVX-512: 12 rows by 32 columns of sums in 24 registers, FMA for f32 and VDPBF16PS for pairs of bf16.
//!
//! A step of the inner dimension loads two registers of the panel and broadcasts one element (or pair) a row.

use std::arch::x86_64::{
    __m256bh, __m256i, __m512, __m512bh, __m512i, _mm256_storeu_si256, _mm512_cvtneps_pbh, _mm512_dpbf16_ps,
    _mm512_fmadd_ps, _mm512_load_ps, _mm512_load_si512, _mm512_loadu_ps, _mm512_set1_epi32, _mm512_set1_ps,
    _mm512_setzero_ps, _mm512_store_ps,
};

use half::bf16;

use super::cpu::Block;
use super::weight::Row;

/// Calls `$kernel::<R>` for the strip's number of rows.
macro_rules! by_rows {
    ($kernel:ident, $block:expr, $sums:expr) => {
        match $block.strips[0].rows {
            1 => $kernel::<1>($block, $sums),
            2 => $kernel::<2>($block, $sums),
            3 => $kernel::<3>($block, $sums),
            4 => $kernel::<4>($block, $sums),
            5 => $kernel::<5>($block, $sums),
            6 => $kernel::<6>($block, $sums),
            7 => $kernel::<7>($block, $sums),
            8 => $kernel::<8>($block, $sums),
            9 => $kernel::<9>($block, $sums),
            10 => $kernel::<10>($block, $sums),
            11 => $kernel::<11>($block, $sums),
            _ => $kernel::<12>($block, $sums),
        }
    };
}

/// The sums of one strip of at most 12 rows, in f32.
///
/// # Safety
/// The band must hold the strip's rows and the panel the lines of each piece.
#[target_feature(enable = "avx512f")]
#[expect(unsafe_code, reason = "raw pointers in the innermost loop")]
pub(super) unsafe fn sums_f32(block: Block<'_, f32, f32>, sums: &mut [Row<f32>]) {
    // SAFETY: handed on to the caller.
    unsafe { by_rows!(kernel_f32, block, sums) }
}

/// The same in bf16.
///
/// # Safety
/// As [`sums_f32`]; an odd piece reads one element more of the band.
#[target_feature(enable = "avx512f,avx512bf16")]
#[expect(unsafe_code, reason = "raw pointers in the innermost loop")]
pub(super) unsafe fn sums_bf16(block: Block<'_, bf16, [bf16; 2]>, sums: &mut [Row<f32>]) {
    // SAFETY: handed on to the caller.
    unsafe { by_rows!(kernel_bf16, block, sums) }
}

/// The sums so far, or zero.
#[target_feature(enable = "avx512f")]
#[expect(unsafe_code, reason = "aligned loads")]
fn begin<const R: usize>(keep: bool, sums: &[Row<f32>]) -> [[__m512; 2]; R] {
    let mut held = [[_mm512_setzero_ps(); 2]; R];
    if keep {
        for (held, row) in held.iter_mut().zip(sums) {
            // SAFETY: a row is 32 aligned floats.
            *held = unsafe { [_mm512_load_ps(row.0.as_ptr()), _mm512_load_ps(row.0.as_ptr().add(16))] };
        }
    }
    held
}

#[target_feature(enable = "avx512f")]
#[expect(unsafe_code, reason = "aligned stores")]
fn end<const R: usize>(held: [[__m512; 2]; R], sums: &mut [Row<f32>]) {
    for (held, row) in held.into_iter().zip(sums) {
        // SAFETY: a row is 32 aligned floats.
        unsafe {
            _mm512_store_ps(row.0.as_mut_ptr(), held[0]);
            _mm512_store_ps(row.0.as_mut_ptr().add(16), held[1]);
        }
    }
}

#[target_feature(enable = "avx512f")]
#[expect(unsafe_code, reason = "raw pointers in the innermost loop")]
unsafe fn kernel_f32<const R: usize>(block: Block<'_, f32, f32>, sums: &mut [Row<f32>]) {
    let mut held = begin::<R>(block.keep, sums);
    for piece in block.pieces {
        // SAFETY: see `sums_f32`.
        unsafe {
            let mut left = block.left.as_ptr().add(block.strips[0].left + piece.left);
            let mut panel = block.panel.as_ptr().add(piece.line).cast::<f32>();
            for _ in 0..piece.depth {
                let columns = [_mm512_load_ps(panel), _mm512_load_ps(panel.add(16))];
                for (row, held) in held.iter_mut().enumerate() {
                    let value = _mm512_set1_ps(*left.add(row.wrapping_mul(block.step)));
                    held[0] = _mm512_fmadd_ps(value, columns[0], held[0]);
                    held[1] = _mm512_fmadd_ps(value, columns[1], held[1]);
                }
                left = left.add(1);
                panel = panel.add(32);
            }
        }
    }
    end(held, sums);
}

#[target_feature(enable = "avx512f,avx512bf16")]
#[expect(unsafe_code, reason = "raw pointers in the innermost loop")]
unsafe fn kernel_bf16<const R: usize>(block: Block<'_, bf16, [bf16; 2]>, sums: &mut [Row<f32>]) {
    let mut held = begin::<R>(block.keep, sums);
    for piece in block.pieces {
        // SAFETY: see `sums_bf16`; a register of bits is a register of bf16.
        unsafe {
            let mut left = block.left.as_ptr().add(block.strips[0].left + piece.left);
            let mut panel = block.panel.as_ptr().add(piece.line).cast::<i32>();
            for _ in 0..piece.depth.div_ceil(2) {
                let columns: [__m512bh; 2] = [
                    std::mem::transmute::<__m512i, __m512bh>(_mm512_load_si512(panel.cast())),
                    std::mem::transmute::<__m512i, __m512bh>(_mm512_load_si512(panel.add(16).cast())),
                ];
                for (row, held) in held.iter_mut().enumerate() {
                    let pair = left.add(row.wrapping_mul(block.step)).cast::<i32>().read_unaligned();
                    let pair = std::mem::transmute::<__m512i, __m512bh>(_mm512_set1_epi32(pair));
                    held[0] = _mm512_dpbf16_ps(held[0], pair, columns[0]);
                    held[1] = _mm512_dpbf16_ps(held[1], pair, columns[1]);
                }
                left = left.add(2);
                panel = panel.add(32);
            }
        }
    }
    end(held, sums);
}

/// Rounds to the nearest bf16, ties to even.
#[target_feature(enable = "avx512f,avx512bf16")]
#[expect(unsafe_code, reason = "unaligned loads and stores")]
pub(super) fn narrow(from: &[f32], to: &mut [bf16]) {
    let (whole, rest) = from.as_chunks::<16>();
    let (out, out_rest) = to.as_chunks_mut::<16>();
    for (from, to) in whole.iter().zip(out) {
        // SAFETY: 16 floats are read, 16 bf16 written; a register of bf16 is a register of bits.
        unsafe {
            let values = _mm512_cvtneps_pbh(_mm512_loadu_ps(from.as_ptr()));
            _mm256_storeu_si256(to.as_mut_ptr().cast(), std::mem::transmute::<__m256bh, __m256i>(values));
        }
    }
    out_rest.iter_mut().zip(rest).for_each(|(to, from)| *to = bf16::from_f32(*from));
}
