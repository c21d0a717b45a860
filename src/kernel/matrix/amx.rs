//! Intel's tiles: 16x16 sums from 16 rows and 16 columns of 32 bf16, one instruction.
//!
//! Rust has no stable intrinsics for them, so the few instructions stand here as assembly. Eight tile registers hold
//! 2x2 blocks of sums, two blocks of the band and two of the panel. Linux hands the tiles to a process that asks.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;

use half::bf16;

use super::cpu::{Block, Strip};
use super::weight::{BLOCK, Row};

/// Rows of a tile, and columns of its sums.
const SIDE: usize = 16;

/// Whether the processor has tiles of bf16 and the system lets this process use them.
pub(super) fn permitted() -> bool {
    const BF16_AND_TILE: u32 = 1 << 22 | 1 << 24;
    let features = __cpuid_count(7, 0).edx;
    features & BF16_AND_TILE == BF16_AND_TILE && request()
}

/// Asks Linux for the tiles' state.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "a system call that the standard library does not have")]
fn request() -> bool {
    const ARCH_PRCTL: usize = 158;
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const XFEATURE_XTILEDATA: usize = 18;
    let mut result = ARCH_PRCTL;
    // SAFETY: the call takes two numbers and touches no memory of ours; the kernel changes rax, rcx and r11 alone.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn request() -> bool {
    false
}

/// The shape of the tiles, as LDTILECFG reads it.
#[repr(C, align(64))]
struct Shape {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Tiles configured on this thread until this is dropped.
pub(super) struct Tiles(());

impl Tiles {
    /// Eight tiles of 16 rows of 64 bytes.
    #[expect(unsafe_code, reason = "assembly")]
    pub(super) fn configure() -> Self {
        let mut shape =
            Shape { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        shape.row_bytes[..8].fill(64);
        shape.rows[..8].fill(SIDE as u8);
        // SAFETY: reads 64 bytes of `shape`; only called where `permitted` said yes.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const shape, options(nostack, readonly, preserves_flags));
        }
        Self(())
    }
}

impl Drop for Tiles {
    #[expect(unsafe_code, reason = "assembly")]
    fn drop(&mut self) {
        // SAFETY: touches the tiles alone.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}

/// The sums of one or two strips of at most 16 rows; all 16 rows are computed, what is beyond the strip is not used.
///
/// # Safety
/// [`Tiles`] must be configured on this thread. The band must hold 16 rows from each strip on, and each piece padded
/// to 32 elements; the panel the lines of each piece, padded the same.
#[expect(unsafe_code, reason = "assembly on raw pointers")]
pub(super) unsafe fn sums(block: Block<'_, bf16, [bf16; 2]>, sums: &mut [Row<f32>]) {
    debug_assert!(sums.len() >= block.strips.len() * SIDE);
    // SAFETY: handed on to the caller; the sums have 16 rows of 128 bytes for each strip.
    unsafe {
        match *block.strips {
            [first, second] => pair(block, [first, second], sums.as_mut_ptr().cast()),
            [only] => single(block, only, sums.as_mut_ptr().cast()),
            _ => {}
        }
    }
}

/// 32 rows and 32 columns in tiles 0 to 3.
#[expect(unsafe_code, reason = "assembly on raw pointers")]
unsafe fn pair(block: Block<'_, bf16, [bf16; 2]>, [first, second]: [Strip; 2], sums: *mut f32) {
    let line = size_of::<Row<[bf16; 2]>>();
    // SAFETY: see `sums`. The tile registers belong to this module; compilers do not use them.
    unsafe {
        if block.keep {
            asm!(
                "tileloadd tmm0, [{sums} + {line}]",
                "tileloadd tmm1, [{sums} + {line} + 64]",
                "tileloadd tmm2, [{sums} + {line} + 2048]",
                "tileloadd tmm3, [{sums} + {line} + 2112]",
                sums = in(reg) sums, line = in(reg) line, options(nostack, readonly, preserves_flags),
            );
        } else {
            asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nomem, nostack));
        }
        for piece in block.pieces {
            asm!(
                "2:",
                "tileloadd tmm6, [{panel} + {line}]",
                "tileloadd tmm4, [{first} + {step}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{panel} + {line} + 64]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{second} + {step}]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {first}, 64",
                "add {second}, 64",
                "add {panel}, 2048",
                "dec {count}",
                "jnz 2b",
                first = inout(reg) block.left.as_ptr().add(first.left + piece.left) => _,
                second = inout(reg) block.left.as_ptr().add(second.left + piece.left) => _,
                panel = inout(reg) block.panel.as_ptr().add(piece.line) => _,
                count = inout(reg) piece.depth.div_ceil(BLOCK) => _,
                step = in(reg) block.step * size_of::<bf16>(),
                line = in(reg) line,
                options(nostack, readonly),
            );
        }
        asm!(
            "tilestored [{sums} + {line}], tmm0",
            "tilestored [{sums} + {line} + 64], tmm1",
            "tilestored [{sums} + {line} + 2048], tmm2",
            "tilestored [{sums} + {line} + 2112], tmm3",
            sums = in(reg) sums, line = in(reg) line, options(nostack, preserves_flags),
        );
    }
}

/// 16 rows and 32 columns in tiles 0 and 1.
#[expect(unsafe_code, reason = "assembly on raw pointers")]
unsafe fn single(block: Block<'_, bf16, [bf16; 2]>, strip: Strip, sums: *mut f32) {
    let line = size_of::<Row<[bf16; 2]>>();
    // SAFETY: see `sums`.
    unsafe {
        if block.keep {
            asm!(
                "tileloadd tmm0, [{sums} + {line}]",
                "tileloadd tmm1, [{sums} + {line} + 64]",
                sums = in(reg) sums, line = in(reg) line, options(nostack, readonly, preserves_flags),
            );
        } else {
            asm!("tilezero tmm0", "tilezero tmm1", options(nomem, nostack));
        }
        for piece in block.pieces {
            asm!(
                "2:",
                "tileloadd tmm4, [{left} + {step}]",
                "tileloadd tmm6, [{panel} + {line}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{panel} + {line} + 64]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "add {left}, 64",
                "add {panel}, 2048",
                "dec {count}",
                "jnz 2b",
                left = inout(reg) block.left.as_ptr().add(strip.left + piece.left) => _,
                panel = inout(reg) block.panel.as_ptr().add(piece.line) => _,
                count = inout(reg) piece.depth.div_ceil(BLOCK) => _,
                step = in(reg) block.step * size_of::<bf16>(),
                line = in(reg) line,
                options(nostack, readonly),
            );
        }
        asm!(
            "tilestored [{sums} + {line}], tmm0",
            "tilestored [{sums} + {line} + 64], tmm1",
            sums = in(reg) sums, line = in(reg) line, options(nostack, preserves_flags),
        );
    }
}
