//! Quantiles of the symmetric beta distribution, for the "beta" table of noise levels.

/// The `x` below which a share `p` of Beta(a, a) lies.
///
/// Bisection and Newton on the regularised incomplete beta function; the distribution is symmetric, so only its lower
/// half is searched, in `ln x` to keep all digits near zero.
///
/// # Source
/// Continued fraction: DLMF 8.17.22, evaluated by the modified Lentz method.
pub(crate) fn beta_quantile(p: f64, a: f64) -> f64 {
    if p <= 0.0 {
        return 0.0;
    }
    if p >= 1.0 {
        return 1.0;
    }
    if p > 0.5 {
        return 1.0 - beta_quantile(1.0 - p, a);
    }
    let log_beta = 2.0 * log_gamma(a) - log_gamma(2.0 * a);
    let (mut low, mut high) = (-700.0f64, 0.5f64.ln());
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if share_below(middle.exp(), a, log_beta) < p {
            low = middle;
        } else {
            high = middle;
        }
        if high - low < 1e-15 * high.abs().max(1.0) {
            break;
        }
    }
    (0.5 * (low + high)).exp()
}

/// The regularised `I_x(a, a)` for x ≤ ½.
fn share_below(x: f64, a: f64, log_beta: f64) -> f64 {
    let front = (a * x.ln() + a * (-x).ln_1p() - log_beta).exp() / a;
    front * continued_fraction(x, a)
}

/// The continued fraction of `I_x(a, a)`, without its front factor.
fn continued_fraction(x: f64, a: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let guard = |v: f64| if v.abs() < TINY { TINY } else { v };
    let (sum, above, below) = (2.0 * a, a + 1.0, a - 1.0);
    let mut c = 1.0;
    let mut d = 1.0 / guard(1.0 - sum * x / above);
    let mut value = d;
    for m in 1..300 {
        let m = f64::from(m);
        let even = m * (a - m) * x / ((below + 2.0 * m) * (a + 2.0 * m));
        d = 1.0 / guard(1.0 + even * d);
        c = guard(1.0 + even / c);
        value *= d * c;
        let odd = -(a + m) * (sum + m) * x / ((a + 2.0 * m) * (above + 2.0 * m));
        d = 1.0 / guard(1.0 + odd * d);
        c = guard(1.0 + odd / c);
        let change = d * c;
        value *= change;
        if (change - 1.0).abs() < 1e-16 {
            break;
        }
    }
    value
}

/// ln Γ(x) for x > 0: Lanczos, g = 7, n = 9.
fn log_gamma(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let mut sum = COEFFICIENTS[0];
    for (i, coefficient) in COEFFICIENTS.iter().enumerate().skip(1) {
        sum += coefficient / (x + i as f64);
    }
    let t = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_quantiles() {
        // Beta(1, 1) is uniform; Beta(½, ½) is the arcsine law.
        assert!((beta_quantile(0.3, 1.0) - 0.3).abs() < 1e-12);
        let arcsine = (0.2 * std::f64::consts::FRAC_PI_2).sin().powi(2);
        assert!((beta_quantile(0.2, 0.5) - arcsine).abs() < 1e-12);
        assert!((beta_quantile(0.5, 0.6) - 0.5).abs() < 1e-12);
        assert!((beta_quantile(0.9, 0.6) + beta_quantile(0.1, 0.6) - 1.0).abs() < 1e-12);
    }
}
