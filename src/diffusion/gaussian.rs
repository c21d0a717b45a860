//! Samplers on data whose denoiser is known in closed form: no network, no fixture, only mathematics.
//!
//! The data are `N(MEAN, DEVIATION²)`, so a latent at a level is `N(α·MEAN, α²·DEVIATION² + σ²)`, the best clean estimate
//! is a line in `x`, and the exact end of every walk is known.

use candle_core::{Device, Tensor};
use serde_json::json;

use super::{Level, Noise, Options, Settings, sample};
use crate::event::Watch;

const MEAN: f64 = 0.7;
const DEVIATION: f64 = 0.4;

/// The closed-form denoiser; the schedules below predict the clean sample, or the velocity where they are straight.
fn clean(x: f64, at: &Level) -> f64 {
    let (spread, noise) = (at.alpha * DEVIATION, at.sigma);
    MEAN + at.alpha * DEVIATION * DEVIATION / (spread * spread + noise * noise) * (x - at.alpha * MEAN)
}

/// Walks in double precision from `x`.
fn walk(class: &str, config: &serde_json::Value, steps: usize, options: &Options, start: &[f64]) -> Vec<f64> {
    let settings = Settings::read(Some(class), config).unwrap();
    let walk = settings.walk(steps, options).unwrap();
    let straight = settings.is_flow();
    let mut net = |x: &Tensor, at: &Level| {
        let answers: Vec<f64> = x
            .flatten_all()?
            .to_vec1::<f64>()?
            .into_iter()
            .map(|x| {
                let x = x * at.scale;
                if straight { (x - clean(x, at)) / at.sigma } else { clean(x, at) }
            })
            .collect();
        Ok(Tensor::from_vec(answers, x.shape(), &Device::Cpu)?)
    };
    let x = Tensor::from_vec(start.to_vec(), (1, start.len()), &Device::Cpu).unwrap();
    let end = sample(&mut net, x, &walk, &mut Noise::seeded(1, 1), &mut Watch::quiet()).unwrap();
    end.flatten_all().unwrap().to_vec1().unwrap()
}

/// Where a walk without noise must end if it begins at `x` on `from` and ends on `to`: the quantile is kept.
fn exact(x: f64, from: &Level, to: (f64, f64)) -> f64 {
    let spread = |alpha: f64, sigma: f64| (alpha * alpha * DEVIATION * DEVIATION + sigma * sigma).sqrt();
    to.0 * MEAN + (x - from.alpha * MEAN) * spread(to.0, to.1) / spread(from.alpha, from.sigma)
}

/// The order at which the error of a walk falls from `coarse` to four times as many steps.
fn order(class: &str, config: &serde_json::Value, coarse: usize) -> f64 {
    let error = |steps: usize| {
        let settings = Settings::read(Some(class), config).unwrap();
        let planned = settings.walk(steps, &Options::default()).unwrap();
        let (first, last) = (planned.levels[0], planned.sigmas[planned.sigmas.len() - 1]);
        let end = if settings.is_flow() {
            (1.0 - last, last)
        } else if class.starts_with("Euler") {
            (1.0, last)
        } else {
            (1.0 / last.hypot(1.0), last / last.hypot(1.0))
        };
        let start = first.alpha * MEAN + 1.3 * (first.alpha * DEVIATION).hypot(first.sigma);
        let got = walk(class, config, steps, &Options::default(), &[start]);
        (got[0] - exact(start, &first, end)).abs()
    };
    (error(coarse) / error(4 * coarse)).log2() / 2.0
}

#[test]
fn euler_converges_at_first_order_under_both_processes() {
    let curved = json!({ "beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012,
        "prediction_type": "sample", "use_karras_sigmas": true, "final_sigmas_type": "sigma_min" });
    let got = order("EulerDiscreteScheduler", &curved, 40);
    assert!((got - 1.0).abs() < 0.2, "exploding: {got}");
    let got = order("FlowMatchEulerDiscreteScheduler", &json!({ "shift": 1.0 }), 40);
    assert!((got - 1.0).abs() < 0.2, "straight: {got}");
}

#[test]
fn dpm_solver_2m_converges_at_second_order_under_both_processes() {
    let curved = json!({ "beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012,
        "prediction_type": "sample", "use_lu_lambdas": true, "final_sigmas_type": "sigma_min",
        "lower_order_final": false });
    let got = order("DPMSolverMultistepScheduler", &curved, 25);
    assert!((got - 2.0).abs() < 0.3, "preserving: {got}");
    let straight = json!({ "prediction_type": "flow_prediction", "use_flow_sigmas": true, "flow_shift": 1.0,
        "final_sigmas_type": "sigma_min", "lower_order_final": false });
    let got = order("DPMSolverMultistepScheduler", &straight, 25);
    assert!((got - 2.0).abs() < 0.4, "straight: {got}");
}

#[test]
fn walks_that_draw_fresh_noise_reach_the_right_variance() {
    let count = 20_000;
    let latent = json!({ "beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012,
        "prediction_type": "sample", "clip_sample": false, "set_alpha_to_one": true });
    let all = Options { eta: Some(1.0), ..Options::default() };
    let straight = json!({ "prediction_type": "flow_prediction", "use_flow_sigmas": true,
        "algorithm_type": "sde-dpmsolver++" });
    let solver = json!({ "beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012,
        "prediction_type": "sample", "algorithm_type": "sde-dpmsolver++", "use_karras_sigmas": true });
    for (class, config, options) in [
        ("DDIMScheduler", &latent, &all),
        ("DDPMScheduler", &latent, &Options::default()),
        ("DPMSolverMultistepScheduler", &straight, &Options::default()),
        ("DPMSolverMultistepScheduler", &solver, &Options::default()),
    ] {
        let settings = Settings::read(Some(class), config).unwrap();
        let first = settings.walk(200, options).unwrap().levels[0];
        let start: Vec<f64> = super::TorchRng::new(9)
            .randn_f64(count)
            .into_iter()
            .map(|z| first.alpha * MEAN + (first.alpha * DEVIATION).hypot(first.sigma) * z)
            .collect();
        let end = walk(class, config, 200, options, &start);
        let mean = end.iter().sum::<f64>() / count as f64;
        let deviation = (end.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count as f64).sqrt();
        assert!((mean - MEAN).abs() < 0.02, "{class}: mean {mean}");
        assert!((deviation / DEVIATION - 1.0).abs() < 0.06, "{class}: deviation {deviation}");
    }
}
