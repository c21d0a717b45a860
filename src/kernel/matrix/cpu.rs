//! What this processor can do: one engine for each instruction set, chosen at run time.
//!
//! An engine computes the sums of a strip of neighbouring output pixels with the 32 columns of one panel. All share
//! the panels, the strips and the finish; they differ in how many rows they hold in registers.

use std::sync::OnceLock;

use half::{bf16, f16};

use super::portable;
use super::weight::{Precision, Row};
#[cfg(target_arch = "x86_64")]
use super::{amx, avx2, avx512, avx512_fp16};

/// Columns of a panel.
pub(in crate::kernel) const WIDTH: usize = 32;

/// An instruction set, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Engine {
    /// Tiles of 16x32 bf16 (Sapphire Rapids and later).
    Amx,
    /// VFMADD of 32 lanes of f16 (Sapphire Rapids and later).
    Avx512Fp16,
    /// VDPBF16PS (Zen 4, Cooper Lake and later).
    Avx512Bf16,
    /// FMA on 16 lanes.
    Avx512,
    /// FMA on 8 lanes.
    Avx2,
    /// The `gemm` crate: NEON, and everything else.
    Portable,
}

/// Neighbouring output pixels, read at a constant step.
#[derive(Debug, Clone, Copy)]
pub(in crate::kernel) struct Strip {
    /// Where the band holds the first pixel's first tap.
    pub(in crate::kernel) left: usize,
    /// The first pixel's row of the output.
    pub(in crate::kernel) pixel: usize,
    /// How many pixels.
    pub(in crate::kernel) rows: usize,
    /// What its sums are multiplied with: the inverse of what the band was scaled by.
    pub(in crate::kernel) scale: f32,
}

/// A part of the inner dimension that lies in one stretch.
#[derive(Debug, Clone, Copy)]
pub(in crate::kernel) struct Piece {
    /// From a strip's first element to where this part begins.
    pub(in crate::kernel) left: usize,
    /// The line of the panel that meets it.
    pub(in crate::kernel) line: usize,
    /// Inner elements.
    pub(in crate::kernel) depth: usize,
}

/// One call of an engine: `sums = keep·sums + left·panel` for one strip, or as many as the engine takes.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Block<'a, T, P> {
    /// The band's elements; every read a strip asks for is inside.
    pub(in crate::kernel) left: &'a [T],
    /// Elements from one pixel to the next.
    pub(in crate::kernel) step: usize,
    pub(in crate::kernel) strips: &'a [Strip],
    pub(in crate::kernel) panel: &'a [Row<P>],
    pub(in crate::kernel) pieces: &'a [Piece],
    /// Whether the sums go on from what is there.
    pub(in crate::kernel) keep: bool,
}

/// A number that bands are made of.
pub(in crate::kernel) trait Number: Copy + Default + Send + Sync + 'static {
    /// A line of a panel holds 32 of these.
    type Line: Copy + Send + Sync;
    /// Runs the engine. `sums` has [`Engine::rows`] rows for each strip.
    fn sums(engine: Engine, block: Block<'_, Self, Self::Line>, sums: &mut [Row<f32>]);
}

impl Engine {
    /// The engines of this processor, best first.
    pub fn available() -> &'static [Self] {
        static FOUND: OnceLock<Vec<Engine>> = OnceLock::new();
        FOUND.get_or_init(detect)
    }

    /// The precision whose operands it multiplies.
    pub fn precision(self) -> Precision {
        match self {
            Self::Amx | Self::Avx512Bf16 => Precision::Bf16,
            Self::Avx512Fp16 => Precision::F16,
            Self::Avx512 | Self::Avx2 | Self::Portable => Precision::Exact,
        }
    }

    /// Whether it multiplies its halves faster than this processor's best engine for f32 multiplies f32.
    ///
    /// Intel's processors with AVX512-FP16 (Sapphire Rapids and later) put bf16 into their tiles: where a machine hides
    /// those, VDPBF16PS runs at half the rate of FMA. Measured by `cargo bench --bench op`: 89 against 179 GFLOP/s.
    fn gains(self) -> bool {
        match self {
            Self::Amx | Self::Avx512Fp16 => true,
            Self::Avx512Bf16 => !Self::available().contains(&Self::Avx512Fp16),
            Self::Avx512 | Self::Avx2 | Self::Portable => false,
        }
    }

    /// The precision that this processor computes in fastest.
    pub fn fastest() -> Precision {
        Self::available()
            .iter()
            .find(|engine| engine.gains())
            .map_or(Precision::Exact, |engine| engine.precision())
    }

    /// The engine for a precision: one of f32 where the processor gains nothing by halves.
    pub(in crate::kernel) fn best(precision: Precision) -> Self {
        let takes = |engine: &&Self| match engine.precision() {
            Precision::Exact => true,
            other => other == precision && engine.gains(),
        };
        Self::available().iter().find(takes).copied().unwrap_or(Self::Portable)
    }

    /// The most rows of one strip.
    pub(in crate::kernel) fn rows(self) -> usize {
        match self {
            Self::Amx => 16,
            Self::Avx512Fp16 | Self::Avx512Bf16 | Self::Avx512 => 12,
            Self::Avx2 => 6,
            Self::Portable => 64,
        }
    }

    /// How many strips one call takes.
    pub(in crate::kernel) fn strips(self) -> usize {
        if self == Self::Amx { 2 } else { 1 }
    }

    /// Inner elements of one pass over a panel: 32 KB of it stay in the first cache while the band passes by.
    pub(super) fn depth(self) -> usize {
        match self {
            Self::Amx | Self::Avx512Fp16 | Self::Avx512Bf16 => 512,
            Self::Avx512 | Self::Avx2 => 256,
            Self::Portable => usize::MAX,
        }
    }

    /// Prepares the thread for calls of [`Number::sums`]; to be held meanwhile.
    pub(in crate::kernel) fn session(self) -> Session {
        Session {
            #[cfg(target_arch = "x86_64")]
            _tiles: (self == Self::Amx).then(amx::Tiles::configure),
        }
    }
}

fn detect() -> Vec<Engine> {
    let mut found = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl");
        let bf16 = avx512 && is_x86_feature_detected!("avx512bf16");
        let fp16 = avx512 && is_x86_feature_detected!("avx512fp16");
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        found.extend((bf16 && amx::permitted()).then_some(Engine::Amx));
        found.extend(fp16.then_some(Engine::Avx512Fp16));
        found.extend(bf16.then_some(Engine::Avx512Bf16));
        found.extend(avx512.then_some(Engine::Avx512));
        found.extend(avx2.then_some(Engine::Avx2));
    }
    found.push(Engine::Portable);
    found
}

/// What an engine needs set up on its thread.
pub(in crate::kernel) struct Session {
    #[cfg(target_arch = "x86_64")]
    _tiles: Option<amx::Tiles>,
}

impl Number for f32 {
    type Line = Self;

    #[expect(unsafe_code, reason = "functions that need features of the processor")]
    fn sums(engine: Engine, block: Block<'_, Self, Self>, sums: &mut [Row<Self>]) {
        #[cfg(target_arch = "x86_64")]
        match engine {
            // SAFETY: the features were found; `Band` and `pieces` keep every read inside the band and the panel.
            Engine::Amx | Engine::Avx512Fp16 | Engine::Avx512Bf16 | Engine::Avx512 => unsafe {
                return avx512::sums_f32(block, sums);
            },
            // SAFETY: as above.
            Engine::Avx2 => unsafe { return avx2::sums(block, sums) },
            Engine::Portable => {}
        }
        portable::sums(block, sums);
    }
}

impl Number for bf16 {
    type Line = [Self; 2];

    #[expect(unsafe_code, reason = "functions that need features of the processor")]
    fn sums(engine: Engine, block: Block<'_, Self, [Self; 2]>, sums: &mut [Row<f32>]) {
        #[cfg(target_arch = "x86_64")]
        match engine {
            // SAFETY: the job holds a session; `Band` and `pieces` keep every read inside the band and the panel.
            Engine::Amx => return unsafe { amx::sums(block, sums) },
            // SAFETY: the features were found; reads as above.
            Engine::Avx512Bf16 => return unsafe { avx512::sums_bf16(block, sums) },
            _ => {}
        }
        unreachable!("{engine:?} takes no bf16")
    }
}

impl Number for f16 {
    type Line = [Self; 2];

    #[expect(unsafe_code, reason = "functions that need features of the processor")]
    fn sums(engine: Engine, block: Block<'_, Self, [Self; 2]>, sums: &mut [Row<f32>]) {
        #[cfg(target_arch = "x86_64")]
        if engine == Engine::Avx512Fp16 {
            // SAFETY: the features were found; `Band` and `pieces` keep every read inside the band and the panel.
            return unsafe { avx512_fp16::sums(block, sums) };
        }
        unreachable!("{engine:?} takes no f16")
    }
}
