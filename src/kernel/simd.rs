//! Loops compiled once for every width of vector unit, and an exponential that vectorises.
//!
//! The code of a loop is written once, plainly; [`vectorised`] compiles it for AVX-512, for AVX2 and for the baseline,
//! and picks at run time. `mul_add` is one instruction everywhere but on x86 before FMA, where it is slow and just as right,
//! so that no result depends on the choice.

#![expect(clippy::inline_always, reason = "a call that is not inlined is compiled for the baseline alone")]

/// Defines a function whose body is compiled for each vector unit and chosen at run time.
///
/// The body must be a loop over slices that the compiler can vectorise: no calls but inlined ones.
macro_rules! vectorised {
    ($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$meta])*
        pub(in crate::kernel) fn $name($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            fn plain($($argument: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
                fn wide($($argument: $type),*) $(-> $result)? {
                    plain($($argument),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn middle($($argument: $type),*) $(-> $result)? {
                    plain($($argument),*)
                }
                if $crate::kernel::simd::has_avx512() {
                    #[expect(unsafe_code, reason = "the processor was asked")]
                    // SAFETY: `has_avx512` checked every feature named above.
                    return unsafe { wide($($argument),*) };
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    #[expect(unsafe_code, reason = "the processor was asked")]
                    // SAFETY: both features were just checked.
                    return unsafe { middle($($argument),*) };
                }
            }
            plain($($argument),*)
        }
    };
}
pub(crate) use vectorised;

/// Whether the processor has the parts of AVX-512 that every implementation since 2017 has.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
}

/// 1.5·2²³: adding it rounds to a whole number.
const SHIFT: f32 = 12_582_912.0;

/// ln 2 in two parts, the first of few digits.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// eˣ to within two units of the last place; 0 far below, infinity above 88.7, NaN for NaN.
///
/// Splits x = n·ln 2 + r with |r| ≤ ½ ln 2, takes e^r by its Taylor polynomial of degree 7 and scales by 2ⁿ through the
/// exponent's bits.
///
/// # Source
/// Muller, Elementary Functions, 3rd edition, section 11.2 (argument reduction with ln 2 in two parts).
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let clamped = x.clamp(-104.0, 89.0);
    let n = clamped.mul_add(std::f32::consts::LOG2_E, SHIFT) - SHIFT;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, clamped));
    // 2ⁿ in two halves, so that results near the ends of the range are still right.
    let half = n.mul_add(0.5, SHIFT) - SHIFT;
    taylor(r) * two_to(half) * two_to(n - half)
}

/// [`exp`] of what is not positive, in fewer steps: what would be below 1e-38 is 0.
#[inline(always)]
pub(crate) fn exp_of_negative(x: f32) -> f32 {
    let n = x.mul_add(std::f32::consts::LOG2_E, SHIFT) - SHIFT;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, x));
    let power = taylor(r) * two_to(n);
    if x < -87.0 { 0.0 } else { power }
}

/// e^r for |r| ≤ ½ ln 2.
#[inline(always)]
fn taylor(r: f32) -> f32 {
    let tail = r.mul_add(r.mul_add(r.mul_add(1.0 / 5040.0, 1.0 / 720.0), 1.0 / 120.0), 1.0 / 24.0);
    r.mul_add(r.mul_add(r.mul_add(r.mul_add(tail, 1.0 / 6.0), 0.5), 1.0), 1.0)
}

/// 2ⁿ for whole n from -126 to 127.
///
/// `n + SHIFT` holds n in its lowest bits, whence it moves to the exponent. No conversion and no checked addition:
/// either would keep the loop around it from becoming vectors.
#[inline(always)]
fn two_to(n: f32) -> f32 {
    f32::from_bits(((n + SHIFT).to_bits() << 23).wrapping_add(1f32.to_bits()))
}

/// x·σ(x).
#[inline(always)]
pub(crate) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

#[cfg(test)]
mod tests {
    use super::*;

    vectorised! {
        fn exp_all(values: &mut [f32]) {
            for value in values {
                *value = exp(*value);
            }
        }
    }

    #[test]
    fn the_exponential_is_right_to_two_units() {
        let arguments: Vec<f32> = (-1_000_000..=1_000_000).map(|i| i as f32 * 8.8e-5).collect();
        let mut ours = arguments.clone();
        exp_all(&mut ours);
        for (x, y) in arguments.iter().zip(ours) {
            let exact = f64::from(*x).exp();
            let unit = f64::from(f32::from_bits((exact as f32).to_bits() + 1) - exact as f32);
            assert!((f64::from(y) - exact).abs() <= 2.0 * unit, "e^{x} = {y}, not {exact}");
        }
        assert_eq!(exp(-200.0).to_bits(), 0);
        for x in arguments.iter().filter(|x| (-87.0..=0.0).contains(*x)) {
            let error = (exp_of_negative(*x) - exp(*x)).abs();
            assert!(error <= 1e-7 * exp(*x), "e^{x}: off by {error}");
        }
        assert_eq!(exp_of_negative(f32::NEG_INFINITY).to_bits(), 0);
        assert!(exp(100.0).is_infinite() && exp(f32::NAN).is_nan());
        assert_eq!(exp(0.0).to_bits(), 1f32.to_bits());
    }
}
