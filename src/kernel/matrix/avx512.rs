//! AVX-512: 12 rows by 32 columns of sums in 24 registers, FMA for f32 and VDPBF16PS for pairs of bf16.
//!
//! A step of the inner dimension loads two registers of the panel and broadcasts one element (or pair) a row.

use std::arch::x86_64::{
    __m256bh, __m256i, __m512, __m512bh, __m512i, _mm256_storeu_si256, _mm512_cvtneps_pbh, _mm512_dpbf16_ps,
    _mm512_fmadd_ps, _mm512_load_ps, _mm512_load_si512, _mm512_loadu_ps, _mm512_set1_epi32, _mm512_set1_ps,
    _mm512_setzero_ps, _mm512_store_ps,
};

use std::arch::asm;

use half::bf16;

use super::cpu::Block;
use super::weight::Row;

/// Rows of a whole strip: with two registers of sums each they fill 24 of 32.
const ROWS: usize = 12;

/// Calls `$kernel::<R>` for the strip's number of rows, `$whole` for as many as a strip can have.
macro_rules! by_rows {
    ($whole:ident, $kernel:ident, $block:expr, $sums:expr) => {
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
            _ => $whole($block, $sums),
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
    unsafe { by_rows!(whole_f32, kernel_f32, block, sums) }
}

/// The same in bf16.
///
/// # Safety
/// As [`sums_f32`]; an odd piece reads one element more of the band.
#[target_feature(enable = "avx512f,avx512bf16")]
#[expect(unsafe_code, reason = "raw pointers in the innermost loop")]
pub(super) unsafe fn sums_bf16(block: Block<'_, bf16, [bf16; 2]>, sums: &mut [Row<f32>]) {
    // SAFETY: handed on to the caller.
    unsafe { by_rows!(whole_bf16, kernel_bf16, block, sums) }
}

/// One instruction for each row and half of the columns: the pair or number at `$at` times the two registers of columns.
macro_rules! row {
    ($multiply:literal, $at:literal, $low:literal, $high:literal) => {
        concat!(
            "vbroadcastss zmm26, dword ptr [",
            $at,
            "]\n",
            $multiply,
            " zmm",
            $low,
            ", zmm26, zmm24\n",
            $multiply,
            " zmm",
            $high,
            ", zmm26, zmm25\n",
        )
    };
}

pub(super) use row;

/// The same for each of the 24 registers of sums and its place in memory.
macro_rules! every_sum {
    ($each:ident) => {
        concat!(
            $each!(0),
            $each!(1),
            $each!(2),
            $each!(3),
            $each!(4),
            $each!(5),
            $each!(6),
            $each!(7),
            $each!(8),
            $each!(9),
            $each!(10),
            $each!(11),
            $each!(12),
            $each!(13),
            $each!(14),
            $each!(15),
            $each!(16),
            $each!(17),
            $each!(18),
            $each!(19),
            $each!(20),
            $each!(21),
            $each!(22),
            $each!(23),
        )
    };
}
macro_rules! zero {
    ($sum:literal) => {
        concat!("vpxord zmm", $sum, ", zmm", $sum, ", zmm", $sum, "\n")
    };
}
pub(super) use zero;
macro_rules! load {
    ($sum:literal) => {
        concat!("vmovaps zmm", $sum, ", zmmword ptr [{sums} + 64*", $sum, "]\n")
    };
}
macro_rules! store {
    ($sum:literal) => {
        concat!("vmovaps zmmword ptr [{sums} + 64*", $sum, "], zmm", $sum, "\n")
    };
}

/// A kernel for strips of 12 rows, `$multiply` being what four bytes of a row do with a line of the panel.
///
/// In assembly, since what decides is the addressing: four pointers and one step reach all rows, so that nothing but the
/// multiplications takes their slots; compilers spend an addition a row.
macro_rules! whole {
    ($name:ident, $multiply:literal, $number:ty, $line:ty, $features:literal) => {
        #[target_feature(enable = $features)]
        #[expect(unsafe_code, reason = "the innermost loop")]
        unsafe fn $name(block: Block<'_, $number, $line>, sums: &mut [Row<f32>]) {
            let sums = sums[..ROWS].as_mut_ptr();
            let step = block.step * size_of::<$number>();
            let mut keep = block.keep;
            for piece in block.pieces {
                // SAFETY: reads twelve rows of the strip and the piece's lines, as the caller promises, and reads and
                // writes twelve rows of sums.
                unsafe {
                    let first = block.left.as_ptr().add(block.strips[0].left + piece.left);
                    asm!(
                        "test {keep:e}, {keep:e}",
                        "jnz 2f",
                        every_sum!(zero),
                        "jmp 3f",
                        "2:",
                        every_sum!(load),
                        "3:",
                        "vmovaps zmm24, zmmword ptr [{panel}]",
                        "vmovaps zmm25, zmmword ptr [{panel} + 64]",
                        row!($multiply, "{a}", 0, 1),
                        row!($multiply, "{a} + {step}", 2, 3),
                        row!($multiply, "{a} + 2*{step}", 4, 5),
                        row!($multiply, "{b}", 6, 7),
                        row!($multiply, "{b} + {step}", 8, 9),
                        row!($multiply, "{b} + 2*{step}", 10, 11),
                        row!($multiply, "{c}", 12, 13),
                        row!($multiply, "{c} + {step}", 14, 15),
                        row!($multiply, "{c} + 2*{step}", 16, 17),
                        row!($multiply, "{d}", 18, 19),
                        row!($multiply, "{d} + {step}", 20, 21),
                        row!($multiply, "{d} + 2*{step}", 22, 23),
                        "add {a}, 4",
                        "add {b}, 4",
                        "add {c}, 4",
                        "add {d}, 4",
                        "add {panel}, 128",
                        "dec {lines}",
                        "jnz 3b",
                        every_sum!(store),
                        keep = in(reg) u32::from(keep),
                        sums = in(reg) sums,
                        panel = inout(reg) block.panel.as_ptr().add(piece.line) => _,
                        lines = inout(reg) (piece.depth * size_of::<$number>()).div_ceil(4) => _,
                        step = in(reg) step,
                        a = inout(reg) first => _,
                        b = inout(reg) first.byte_add(3 * step) => _,
                        c = inout(reg) first.byte_add(6 * step) => _,
                        d = inout(reg) first.byte_add(9 * step) => _,
                        out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _, out("zmm4") _, out("zmm5") _,
                        out("zmm6") _, out("zmm7") _, out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _,
                        out("zmm12") _, out("zmm13") _, out("zmm14") _, out("zmm15") _, out("zmm16") _,
                        out("zmm17") _, out("zmm18") _, out("zmm19") _, out("zmm20") _, out("zmm21") _,
                        out("zmm22") _, out("zmm23") _, out("zmm24") _, out("zmm25") _, out("zmm26") _,
                        options(nostack),
                    );
                }
                keep = true;
            }
        }
    };
}
whole!(whole_f32, "vfmadd231ps", f32, f32, "avx512f");
whole!(whole_bf16, "vdpbf16ps", bf16, [bf16; 2], "avx512f,avx512bf16");

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
