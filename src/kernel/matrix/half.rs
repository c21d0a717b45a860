//! Numbers of two bytes: how f32 becomes them, and how they are kept in range.

use half::{bf16, f16};

use super::super::simd::vectorised;
#[cfg(target_arch = "x86_64")]
use super::avx512;
#[cfg(target_arch = "x86_64")]
use super::avx512_fp16;
use super::cpu::{Engine, Number};
use super::weight::Row;

/// A number whose pairs make the lines of a panel.
pub(in crate::kernel) trait Half: Number<Line = [Self; 2]> {
    const ZERO: Self;

    /// What the engines want an inner dimension padded to: whole tiles, or whole pairs.
    const BLOCK: usize;

    /// The power of two that a side whose largest number is `left` is multiplied with before it meets one whose largest
    /// is `right`, so that no sum leaves the range and few numbers the normal part of it.
    fn scale(left: f32, right: f32) -> f32;

    /// Its bits without the sign, which order magnitudes.
    fn magnitude(self) -> u16;

    /// The number of such bits.
    fn of_magnitude(bits: u16) -> f32;

    /// Rounds to the nearest, ties to even, after scaling; returns the largest magnitude before it, as far as
    /// [`Self::scale`] cares. `engine` is one that multiplies these numbers.
    fn narrow(engine: Engine, from: &[f32], scale: f32, to: &mut [Self]) -> f32;

    /// The firsts of a panel's pairs into one line, the seconds into the next.
    fn split(panel: &[Row<[Self; 2]>], lines: &mut [Row<f32>]);
}

impl Half for bf16 {
    const ZERO: Self = Self::ZERO;
    const BLOCK: usize = super::BLOCK;

    /// Its range is that of f32.
    fn scale(_: f32, _: f32) -> f32 {
        1.0
    }

    fn magnitude(self) -> u16 {
        self.to_bits() & 0x7fff
    }

    fn of_magnitude(bits: u16) -> f32 {
        Self::from_bits(bits).to_f32()
    }

    #[expect(unsafe_code, reason = "a function that needs features of the processor")]
    fn narrow(engine: Engine, from: &[f32], _: f32, to: &mut [Self]) -> f32 {
        #[cfg(target_arch = "x86_64")]
        if engine.precision() == super::Precision::Bf16 {
            // SAFETY: both engines that take bf16 were found with AVX512-BF16.
            unsafe { avx512::narrow(from, to) };
            return 0.0;
        }
        unreachable!("{engine:?} takes no bf16 and {} of {}", from.len(), to.len())
    }

    fn split(panel: &[Row<[Self; 2]>], lines: &mut [Row<f32>]) {
        split_bf16(panel, lines);
    }
}

/// The largest product of two operands: 128 of them make a sum below f16's 65504.
const MOST: f32 = 500.0;
/// Products whose largest is smaller make sums that begin to lose digits below f16's 6e-5.
const LEAST: f32 = 0.0625;

impl Half for f16 {
    const ZERO: Self = Self::ZERO;
    const BLOCK: usize = 2;

    fn scale(left: f32, right: f32) -> f32 {
        let product = left * right;
        if product == 0.0 || !product.is_finite() || (LEAST..MOST).contains(&product) && left < MOST {
            return 1.0;
        }
        // Rounded down to a power of two, so that scaling rounds nothing.
        let wanted = (MOST / product).min(MOST / left).clamp(1e-36, 1e36);
        f32::from_bits(wanted.to_bits() & 0x7f80_0000)
    }

    fn magnitude(self) -> u16 {
        self.to_bits() & 0x7fff
    }

    fn of_magnitude(bits: u16) -> f32 {
        Self::from_bits(bits).to_f32()
    }

    #[expect(unsafe_code, reason = "a function that needs features of the processor")]
    fn narrow(engine: Engine, from: &[f32], scale: f32, to: &mut [Self]) -> f32 {
        #[cfg(target_arch = "x86_64")]
        if engine == Engine::Avx512Fp16 {
            // SAFETY: the engine was found with AVX-512.
            return unsafe { avx512_fp16::narrow(from, scale, to) };
        }
        unreachable!("{engine:?} takes no f16: {} by {scale} to {}", from.len(), to.len())
    }

    fn split(panel: &[Row<[Self; 2]>], lines: &mut [Row<f32>]) {
        split_f16(panel, lines);
    }
}

vectorised! {
    /// The largest magnitude; what is not a number is passed over.
    fn largest(values: &[f32]) -> f32 {
        let mut lanes = [0f32; 16];
        let (whole, rest) = values.as_chunks::<16>();
        for values in whole {
            for (lane, value) in lanes.iter_mut().zip(values) {
                let value = value.abs();
                *lane = if value > *lane { value } else { *lane };
            }
        }
        for (lane, value) in lanes.iter_mut().zip(rest) {
            let value = value.abs();
            *lane = if value > *lane { value } else { *lane };
        }
        lanes.iter().fold(0.0, |most, lane| if *lane > most { *lane } else { most })
    }
}

vectorised! {
    fn split_bf16(panel: &[Row<[bf16; 2]>], lines: &mut [Row<f32>]) {
        for (pair, lines) in panel.iter().zip(lines.chunks_exact_mut(2)) {
            let [even, odd] = lines else { continue };
            for ((pair, even), odd) in pair.0.iter().zip(&mut even.0).zip(&mut odd.0) {
                (*even, *odd) = (pair[0].to_f32(), pair[1].to_f32());
            }
        }
    }
}

vectorised! {
    fn split_f16(panel: &[Row<[f16; 2]>], lines: &mut [Row<f32>]) {
        for (pair, lines) in panel.iter().zip(lines.chunks_exact_mut(2)) {
            let [even, odd] = lines else { continue };
            for ((pair, even), odd) in pair.0.iter().zip(&mut even.0).zip(&mut odd.0) {
                (*even, *odd) = (widen(pair[0].to_bits()), widen(pair[1].to_bits()));
            }
        }
    }
}

/// f16 to f32 by selects alone, so that a loop of it becomes vectors; the `half` crate asks the processor each time.
#[inline(always)]
pub(in crate::kernel) fn widen(bits: u16) -> f32 {
    const BIAS: u32 = 112 << 23;
    const SMALLEST: u32 = 113 << 23;
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let normal = magnitude.wrapping_add(BIAS);
    let subnormal = (f32::from_bits(magnitude.wrapping_add(SMALLEST)) - f32::from_bits(SMALLEST)).to_bits();
    let unsigned = match bits & 0x7c00 {
        0 => subnormal,
        0x7c00 => magnitude | 0x7f80_0000,
        _ => normal,
    };
    f32::from_bits(unsigned | u32::from(bits & 0x8000) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_widens_to_its_value() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (widen(bits), f16::from_bits(bits).to_f32());
            assert!(
                ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
                "{bits:04x}: {ours} {theirs}"
            );
        }
    }

    #[test]
    fn scales_are_powers_of_two_that_keep_sums_in_range() {
        for left in [1e-30, 3e-6, 0.02, 1.0, 17.0, 3e3, 6e4, 1e9, 1e30] {
            for right in [1e-8, 0.03, 1.0, 40.0, 6e4] {
                let scale = f16::scale(left, right);
                assert_eq!(scale.to_bits() & 0x7f_ffff, 0, "{scale} is a power of two");
                assert!(
                    left * scale < 65504.0 && left * scale * right * 128.0 < 65504.0,
                    "{left} {right} {scale}"
                );
            }
        }
        for unscaled in [f16::scale(0.0, 1.0), f16::scale(f32::INFINITY, 1.0), f16::scale(3.0, 5.0)] {
            assert_eq!(unscaled.to_bits(), 1f32.to_bits());
        }
    }
}
