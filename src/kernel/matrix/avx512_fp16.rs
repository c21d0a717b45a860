//! AVX512-FP16: products and short sums in f16, at twice the rate of FMA in f32, long sums in f32.
//!
//! A lane multiplies 64 times before its sum, which is f16 so far, is added to one in f32: sums lose about what
//! rounding both operands to bf16 loses, and the operands lose an eighth of that. Operands lie in pairs as they do for
//! VDPBF16PS, so that one broadcast of four bytes serves two of them; a lane takes the even ones, its neighbour the odd.
//!
//! What is multiplied is kept far from the ends of f16's range: see `half`.

use std::arch::asm;
use std::arch::x86_64::{
    _mm256_storeu_si256, _mm512_abs_ps, _mm512_cvtps_ph, _mm512_loadu_ps, _mm512_max_ps, _mm512_mul_ps,
    _mm512_reduce_max_ps, _mm512_set1_ps, _mm512_setzero_ps,
};

use half::f16;

use super::avx512::{row, zero};
use super::cpu::Block;
use super::weight::Row;

/// The sums of one strip of at most 12 rows.
///
/// # Safety
/// The band must hold the strip's rows, the next row if they are odd in number, and the panel the lines of each piece.
#[target_feature(enable = "avx512f,avx512fp16")]
#[expect(unsafe_code, reason = "functions that take raw pointers")]
pub(super) unsafe fn sums(block: Block<'_, f16, [f16; 2]>, sums: &mut [Row<f32>]) {
    // SAFETY: handed on to the caller.
    unsafe {
        match block.strips[0].rows {
            1 | 2 => two(block, sums),
            3 | 4 => four(block, sums),
            5 | 6 => six(block, sums),
            7 | 8 => eight(block, sums),
            9 | 10 => ten(block, sums),
            _ => twelve(block, sums),
        }
    }
}

/// A register of short sums as f32 in zmm26: even and odd elements together, the lower half of each pair of lanes.
macro_rules! lengthen {
    ($sum:literal) => {
        concat!(
            "vprold zmm26, zmm",
            $sum,
            ", 16\nvaddph zmm",
            $sum,
            ", zmm",
            $sum,
            ", zmm26\nvpmovdw ymm26, zmm",
            $sum,
            "\nvcvtph2ps zmm26, ymm26\n",
        )
    };
}
/// Adds it to the sum in memory.
macro_rules! add {
    ($sum:literal) => {
        concat!(
            lengthen!($sum),
            "vaddps zmm26, zmm26, zmmword ptr [{sums} + 64*",
            $sum,
            "]\nvmovaps zmmword ptr [{sums} + 64*",
            $sum,
            "], zmm26\n",
        )
    };
}
/// Begins the sum in memory with it.
macro_rules! begin {
    ($sum:literal) => {
        concat!(lengthen!($sum), "vmovaps zmmword ptr [{sums} + 64*", $sum, "], zmm26\n")
    };
}

/// A kernel for strips of some rows: where each begins, and the two registers of its sums.
///
/// In assembly, since Rust has no stable intrinsics for it, and for the addressing: see `avx512`.
macro_rules! kernel {
    ($name:ident, $rows:literal, $($at:literal: $low:literal $high:literal),*) => {
        #[target_feature(enable = "avx512f,avx512fp16")]
        #[expect(unsafe_code, reason = "the innermost loop")]
        unsafe fn $name(block: Block<'_, f16, [f16; 2]>, sums: &mut [Row<f32>]) {
            let step = block.step * size_of::<f16>();
            let sums = sums[..$rows].as_mut_ptr();
            let mut keep = block.keep;
            for piece in block.pieces {
                // SAFETY: reads the strip's rows and the piece's lines, as the caller promises; reads and writes the
                // rows of `sums` above.
                unsafe {
                    let first = block.left.as_ptr().add(block.strips[0].left + piece.left);
                    asm!(
                        "2:",
                        "mov {turns:e}, 64",
                        "cmp {lines}, {turns}",
                        "cmovb {turns}, {lines}",
                        "sub {lines}, {turns}",
                        $(zero!($low), zero!($high),)*
                        "3:",
                        "vmovaps zmm24, zmmword ptr [{panel}]",
                        "vmovaps zmm25, zmmword ptr [{panel} + 64]",
                        $(row!("vfmadd231ph", $at, $low, $high),)*
                        "add {a}, 4",
                        "add {b}, 4",
                        "add {c}, 4",
                        "add {d}, 4",
                        "add {panel}, 128",
                        "dec {turns}",
                        "jnz 3b",
                        "test {keep:e}, {keep:e}",
                        "jz 4f",
                        $(add!($low), add!($high),)*
                        "jmp 5f",
                        "4:",
                        $(begin!($low), begin!($high),)*
                        "inc {keep:e}",
                        "5:",
                        "test {lines}, {lines}",
                        "jnz 2b",
                        keep = inout(reg) u32::from(keep) => _,
                        sums = in(reg) sums,
                        turns = out(reg) _,
                        lines = inout(reg) piece.depth.div_ceil(2) => _,
                        panel = inout(reg) block.panel.as_ptr().add(piece.line) => _,
                        step = in(reg) step,
                        a = inout(reg) first => _,
                        b = inout(reg) first.wrapping_byte_add(3 * step) => _,
                        c = inout(reg) first.wrapping_byte_add(6 * step) => _,
                        d = inout(reg) first.wrapping_byte_add(9 * step) => _,
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
kernel!(two, 2, "{a}": 0 1, "{a} + {step}": 2 3);
kernel!(four, 4, "{a}": 0 1, "{a} + {step}": 2 3, "{a} + 2*{step}": 4 5, "{b}": 6 7);
kernel!(
    six, 6, "{a}": 0 1, "{a} + {step}": 2 3, "{a} + 2*{step}": 4 5, "{b}": 6 7, "{b} + {step}": 8 9,
    "{b} + 2*{step}": 10 11
);
kernel!(
    eight, 8, "{a}": 0 1, "{a} + {step}": 2 3, "{a} + 2*{step}": 4 5, "{b}": 6 7, "{b} + {step}": 8 9,
    "{b} + 2*{step}": 10 11, "{c}": 12 13, "{c} + {step}": 14 15
);
kernel!(
    ten, 10, "{a}": 0 1, "{a} + {step}": 2 3, "{a} + 2*{step}": 4 5, "{b}": 6 7, "{b} + {step}": 8 9,
    "{b} + 2*{step}": 10 11, "{c}": 12 13, "{c} + {step}": 14 15, "{c} + 2*{step}": 16 17, "{d}": 18 19
);
kernel!(
    twelve, 12, "{a}": 0 1, "{a} + {step}": 2 3, "{a} + 2*{step}": 4 5, "{b}": 6 7, "{b} + {step}": 8 9,
    "{b} + 2*{step}": 10 11, "{c}": 12 13, "{c} + {step}": 14 15, "{c} + 2*{step}": 16 17, "{d}": 18 19,
    "{d} + {step}": 20 21, "{d} + 2*{step}": 22 23
);

/// Rounds to the nearest f16, ties to even, after scaling. Returns the largest magnitude before it; what is not a number
/// is passed over.
#[target_feature(enable = "avx512f")]
#[expect(unsafe_code, reason = "unaligned loads and stores")]
pub(super) fn narrow(from: &[f32], scale: f32, to: &mut [f16]) -> f32 {
    let (whole, rest) = from.as_chunks::<16>();
    let (out, out_rest) = to.as_chunks_mut::<16>();
    let factor = _mm512_set1_ps(scale);
    let mut most = _mm512_setzero_ps();
    for (from, to) in whole.iter().zip(out) {
        // SAFETY: 16 floats are read, 16 f16 written.
        unsafe {
            let values = _mm512_loadu_ps(from.as_ptr());
            most = _mm512_max_ps(_mm512_abs_ps(values), most);
            let rounded = _mm512_cvtps_ph::<0>(_mm512_mul_ps(values, factor));
            _mm256_storeu_si256(to.as_mut_ptr().cast(), rounded);
        }
    }
    let mut largest = _mm512_reduce_max_ps(most);
    for (to, from) in out_rest.iter_mut().zip(rest) {
        largest = largest.max(from.abs());
        *to = f16::from_f32(*from * scale);
    }
    largest
}
