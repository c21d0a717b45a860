//! Which training steps a short walk visits, and the sequences `numpy` makes of them.

/// How the visited training steps are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spacing {
    /// Multiples of a whole stride, from the clean end: the last training step is never seen.
    Leading,
    /// Multiples of a fractional stride, from the noisy end: the last training step is seen.
    Trailing,
    /// Both ends are seen.
    Linspace,
}

/// The value as single precision holds it.
pub(crate) fn single(x: f64) -> f64 {
    f64::from(x as f32)
}

/// The whole number that an index or a count, carried as `f64`, stands for; zero below zero.
#[expect(clippy::cast_sign_loss, reason = "the sign is cut off before")]
pub(crate) fn whole(x: f64) -> usize {
    x.max(0.0) as usize
}

/// Changes every value in place.
pub(crate) fn each(values: &mut [f64], change: impl Fn(f64) -> f64) {
    for value in values {
        *value = change(*value);
    }
}

/// `numpy.linspace`: `n` values from `start` to `end`, both included.
pub(crate) fn linspace(start: f64, end: f64, n: usize) -> Vec<f64> {
    if n == 1 {
        return vec![start];
    }
    let step = (end - start) / (n - 1) as f64;
    (0..n).map(|i| if i + 1 == n { end } else { i as f64 * step + start }).collect()
}

/// `numpy.interp` on the whole numbers: the table read at a fractional place, held at its ends.
pub(crate) fn interpolate(table: &[f64], at: f64) -> f64 {
    let last = table.len() - 1;
    if at <= 0.0 {
        return table[0];
    }
    if at >= last as f64 {
        return table[last];
    }
    let low = at.floor();
    let index = whole(low);
    (table[index + 1] - table[index]) * (at - low) + table[index]
}

/// `n` training steps from noisy to clean, spread over the first `last` of them; at most `train` exist.
///
/// `rounded` says whether a network hears only whole steps. Under `Trailing` the floating-point range of the reference
/// sometimes has one step more than was asked for, below zero; it is left out.
pub(crate) fn steps(spacing: Spacing, n: usize, train: usize, offset: f64, rounded: bool) -> Vec<f64> {
    let mut steps: Vec<f64> = match spacing {
        Spacing::Linspace => {
            let steps = linspace(0.0, (train - 1) as f64, n).into_iter();
            steps.map(|t| if rounded { t.round_ties_even() } else { t }).rev().collect()
        }
        Spacing::Leading => {
            let stride = (train / n) as f64;
            (0..n).map(|i| i as f64 * stride + offset).rev().collect()
        }
        Spacing::Trailing => trailing(train as f64, train as f64 / n as f64, n),
    };
    steps.truncate(n);
    steps
}

/// As [`steps`], for the solvers that count one level more than they visit.
pub(crate) fn solver_steps(spacing: Spacing, n: usize, train: usize, last: usize, offset: f64) -> Vec<f64> {
    let mut steps: Vec<f64> = match spacing {
        Spacing::Linspace => {
            let all = linspace(0.0, last as f64 - 1.0, n + 1).into_iter();
            all.map(f64::round_ties_even).rev().collect()
        }
        Spacing::Leading => {
            let stride = (last / (n + 1)) as f64;
            (0..=n).map(|i| i as f64 * stride + offset).rev().collect()
        }
        Spacing::Trailing => trailing(last as f64, train as f64 / n as f64, n),
    };
    steps.truncate(n);
    steps
}

/// `round(arange(from, 0, −stride)) − 1`.
fn trailing(from: f64, stride: f64, n: usize) -> Vec<f64> {
    let delta = (from - stride) - from;
    let count = whole((from / stride).ceil()).min(n);
    (0..count).map(|i| (from + i as f64 * delta).round_ties_even() - 1.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spacings_of_the_paper() {
        // arXiv 2305.08891, table 2: 1000 training steps in 10, there counted from 1.
        assert_eq!(steps(Spacing::Trailing, 4, 1000, 0.0, true), [999.0, 749.0, 499.0, 249.0]);
        assert_eq!(steps(Spacing::Leading, 4, 1000, 1.0, true), [751.0, 501.0, 251.0, 1.0]);
        assert_eq!(steps(Spacing::Linspace, 4, 1000, 0.0, true), [999.0, 666.0, 333.0, 0.0]);
        assert_eq!(steps(Spacing::Trailing, 61, 1000, 0.0, true).len(), 61);
    }
}
