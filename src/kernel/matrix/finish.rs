//! What happens to a sum before it is written: bias, and one thing more.
//!
//! The functions are scalar and without branches, so that `vectorised` makes vectors of them for every processor.

#![expect(clippy::inline_always, reason = "a call that is not inlined is compiled for the baseline alone")]

use std::ops::Range;

use super::super::Shared;
use super::super::simd::{exp, silu, vectorised};
use super::cpu::{Strip, WIDTH};
use super::weight::Row;

/// Functions of one number, as configs name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// x·σ(x).
    Silu,
    /// x·Φ(x) with the error function.
    Gelu,
    /// x·σ(1.702x), CLIP's.
    QuickGelu,
    /// max(x, 0).
    Relu,
}

impl Activation {
    /// The spelling of transformers' and diffusers' configs.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "silu" | "swish" => Self::Silu,
            "gelu" => Self::Gelu,
            "quick_gelu" => Self::QuickGelu,
            "relu" => Self::Relu,
            _ => return None,
        })
    }
}

/// The finish with its tensor unwrapped; slices are contiguous.
#[derive(Clone, Copy)]
pub(super) enum Then<'a> {
    Nothing,
    Add(&'a [f32]),
    PerImage { signal: &'a [f32], pixels: usize },
    Apply(Activation),
    Geglu,
}

/// Takes finished rows of one product to its output.
#[derive(Clone, Copy)]
pub(super) struct Finisher<'a> {
    pub(super) then: Then<'a>,
    /// One for each column of every panel, [P·32].
    pub(super) bias: &'a [f32],
    /// Columns of the output.
    pub(super) width: usize,
    /// [M, width], nobody else writes the rows and columns of this task.
    pub(super) output: Shared,
}

vectorised! {
    /// Finishes and writes the rows of a strip for some panels.
    fn finish(finisher: &Finisher<'_>, strip: Strip, panels: Range<usize>, sums: Sums<'_>) {
        for row in 0..strip.rows {
            for (index, panel) in panels.clone().enumerate() {
                finisher.row(strip.pixel + row, panel, &sums.rows[index * sums.pitch + row], strip.scale);
            }
        }
    }
}

/// Rows of sums that wait for their finish.
#[derive(Clone, Copy)]
pub(super) struct Sums<'a> {
    /// From the first panel's first row on.
    pub(super) rows: &'a [Row<f32>],
    /// Rows from one panel to the next.
    pub(super) pitch: usize,
}

impl Finisher<'_> {
    #[inline(always)]
    fn row(&self, pixel: usize, panel: usize, sums: &Row<f32>, scale: f32) {
        let room = if matches!(self.then, Then::Geglu) { WIDTH / 2 } else { WIDTH };
        let first = panel * room;
        let columns = room.min(self.width - first);
        let mut y = [0f32; WIDTH];
        for ((y, sum), bias) in y.iter_mut().zip(&sums.0).zip(&self.bias[panel * WIDTH..][..WIDTH]) {
            *y = sum * scale + bias;
        }
        let at = pixel * self.width + first;
        match self.then {
            Then::Nothing => {}
            Then::Add(residual) => add(&mut y, &residual[at..at + columns]),
            Then::PerImage { signal, pixels } => {
                add(&mut y, &signal[pixel / pixels * self.width + first..][..columns]);
            }
            Then::Apply(Activation::Silu) => y.iter_mut().for_each(|y| *y = silu(*y)),
            Then::Apply(Activation::Gelu) => y.iter_mut().for_each(|y| *y = gelu(*y)),
            Then::Apply(Activation::QuickGelu) => y.iter_mut().for_each(|y| *y = quick_gelu(*y)),
            Then::Apply(Activation::Relu) => y.iter_mut().for_each(|y| *y = y.max(0.0)),
            Then::Geglu => {
                let (values, gates) = y.split_at_mut(WIDTH / 2);
                values.iter_mut().zip(gates).for_each(|(value, gate)| *value *= gelu(*gate));
            }
        }
        self.write(at, &y, columns);
    }

    #[inline(always)]
    #[expect(unsafe_code, reason = "several threads write rows of one output")]
    fn write(&self, at: usize, y: &[f32; WIDTH], columns: usize) {
        // SAFETY: `at` and `columns` stay inside the output by the sizes checked when the product began, and these
        // elements belong to this task alone.
        unsafe {
            let output = self.output.at(at);
            if columns == WIDTH {
                output.copy_from_nonoverlapping(y.as_ptr(), WIDTH); // two stores, not a call
            } else {
                output.copy_from_nonoverlapping(y.as_ptr(), columns);
            }
        }
    }
}

#[inline(always)]
fn add(y: &mut [f32; WIDTH], more: &[f32]) {
    if let Some(more) = more.first_chunk::<WIDTH>() {
        y.iter_mut().zip(more).for_each(|(y, more)| *y += more);
    } else {
        y.iter_mut().zip(more).for_each(|(y, more)| *y += more);
    }
}

#[inline(always)]
fn quick_gelu(x: f32) -> f32 {
    x / (1.0 + exp(-1.702 * x))
}

/// x·Φ(x). The tail Φ(−|x|) is e^(−x²/2)·t·P(t) with t = 1/(1 + 0.42·|x|).
///
/// # Source
/// The form of Abramowitz & Stegun 7.1.26; P fitted here by least squares of the relative error on 1501 points up
/// to |x| = 13.5: with rounding, 1e-7 of |x| at most.
#[inline(always)]
fn gelu(x: f32) -> f32 {
    let u = x.abs();
    let t = 1.0 / (1.0 + 0.42 * u);
    let mut tail = 0.032_643_985;
    for factor in [
        -0.161_667_82,
        0.297_324_87,
        -0.199_654_76,
        -0.037_337_236,
        0.024_051_614,
        0.069_739_03,
        0.139_994_67,
        0.167_340_64,
        0.167_565_03,
    ] {
        tail = tail * t + factor;
    }
    let tail = exp(-0.5 * u * u) * t * tail;
    if x < 0.0 { x * tail } else { x - x * tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_are_those_of_double_precision() {
        for step in -4000..4000 {
            let x = step as f32 * 0.005;
            let wide = f64::from(x);
            let near = |ours: f32, true_value: f64, what: &str| {
                let error = (f64::from(ours) - true_value).abs();
                assert!(
                    error <= 2e-7 * wide.abs().max(1e-3) && ours.is_finite(),
                    "{what}({x}): {ours} {true_value}"
                );
            };
            near(silu(x), wide / (1.0 + (-wide).exp()), "silu");
            near(quick_gelu(x), wide / (1.0 + (-1.702 * wide).exp()), "quick_gelu");
            let phi = 0.5 * (1.0 + erf(wide / std::f64::consts::SQRT_2));
            near(gelu(x), wide * phi, "gelu");
        }
        assert!((gelu(1e9) - 1e9).abs() < 1.0 && gelu(-1e9).abs() < 1e-20 && silu(-1e9).abs() < 1e-20);
        assert!(gelu(f32::NAN).is_nan() && silu(f32::NAN).is_nan());
    }

    /// By its series, or one minus its continued fraction.
    fn erf(x: f64) -> f64 {
        let u = x.abs();
        let magnitude = if u < 3.0 {
            let mut term = u;
            let mut sum = u;
            for n in 1..100 {
                term *= -u * u / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            sum * std::f64::consts::FRAC_2_SQRT_PI
        } else {
            let fraction = (1..60).rev().fold(u, |below, n| u + f64::from(n) / 2.0 / below);
            1.0 - (-u * u).exp() / fraction / std::f64::consts::PI.sqrt()
        };
        magnitude.copysign(x)
    }
}
