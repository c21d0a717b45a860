//! Every class and setting of the schedules, against trajectories of the reference with a fake model.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{Device, Tensor};
use latentia::diffusion::{Churn, Class, Level, Noise, Options, Settings, Visit, Walk, sample_visited};
use latentia::error::{Error, Result};
use latentia::event::Watch;
use serde_json::Value;

use crate::fixtures;

/// Per step, and after all of them.
const STEP: f64 = 1e-5;
const WALK: f64 = 1e-4;

/// What four roundings of the largest number that goes into a step make of the largest that comes out; a step may go back
/// to the latent of up to three calls before.
///
/// A zero-terminal-SNR walk falls from σ = 4096 to 14 in one step; what single precision loses there, no order of
/// operations gets back, and the reference itself differs by as much from one processor to another.
fn floor(before: &[f64], after: f64) -> f64 {
    4.0 * f64::from(f32::EPSILON) * most(before) / after.max(1e-12)
}

fn most(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most: f64, x| most.max(x.abs()))
}

/// One trajectory: what was asked for, and every tensor of it.
struct Case<'a> {
    id: &'a str,
    steps: usize,
    config: &'a Value,
    arguments: &'a Value,
    tensors: &'a HashMap<String, Tensor>,
}

impl Case<'_> {
    fn get(&self, key: &str) -> Option<&Tensor> {
        self.tensors.get(&format!("{}.{key}", self.id))
    }

    fn numbers(&self, key: &str) -> Option<Vec<f64>> {
        self.get(key).map(fixtures::numbers)
    }

    /// The draws of all steps, in order.
    fn draws(&self) -> Vec<Tensor> {
        let mut draws = Vec::new();
        for step in self.begin().. {
            if self.get(&format!("s{step:02}.x")).is_none() {
                break;
            }
            draws.extend((0..).map_while(|k| self.get(&format!("s{step:02}.noise{k}")).cloned()));
        }
        draws
    }

    /// The call at which the walk begins: pipelines that start from a picture cut the list of timesteps there.
    fn begin(&self) -> usize {
        self.arguments.get("begin").and_then(Value::as_u64).unwrap_or(0) as usize
    }

    fn options(&self) -> Options {
        let number = |key: &str| self.arguments.get(key).and_then(Value::as_f64);
        let whole = |key: &str| self.arguments.get(key).and_then(Value::as_u64).map(|number| number as usize);
        let list = |key: &str| match self.arguments.get(key) {
            Some(Value::String(text)) if text.starts_with("linspace") => {
                let n = self.steps as f64;
                Some((0..self.steps).map(|i| 1.0 - i as f64 / n).collect())
            }
            Some(Value::Array(list)) => Some(list.iter().filter_map(Value::as_f64).collect()),
            _ => None,
        };
        let churn = ["s_churn", "s_tmin", "s_tmax", "s_noise"].iter().any(|key| number(key).is_some());
        let calm = Churn::default();
        Options {
            eta: number("eta"),
            clip_noise: self.arguments.get("use_clipped_model_output").and_then(Value::as_bool),
            churn: churn.then(|| Churn {
                amount: number("s_churn").unwrap_or(calm.amount),
                from: number("s_tmin").unwrap_or(calm.from),
                to: number("s_tmax").unwrap_or(calm.to),
                noise: number("s_noise").unwrap_or(calm.noise),
            }),
            order: whole("order"),
            mu: number("mu"),
            sigmas: list("sigmas"),
            timesteps: list("timesteps"),
            original_steps: whole("original_inference_steps"),
            strength: number("strength"),
        }
    }
}

/// The model of the fixtures, element by element in single precision.
fn fake_model(x: &Tensor, at: &Level) -> Result<Tensor> {
    let t = at.time as f32;
    let say = |x: f32| 0.6 * (0.9 * x + 0.003 * t).sin() + 0.25 * (0.5 * x - 0.001 * t).cos();
    let values: Vec<f32> = x.flatten_all()?.to_vec1::<f32>()?.into_iter().map(say).collect();
    Ok(Tensor::from_vec(values, x.shape(), &Device::Cpu)?)
}

/// What the comparison of one case found wrong, worst first seen.
#[derive(Default)]
struct Findings(Vec<String>);

impl Findings {
    fn check(&mut self, what: &str, got: &[f64], want: Option<&[f64]>, tolerance: f64) {
        let Some(want) = want else { return };
        let distance = fixtures::distance(got, want);
        if distance > tolerance {
            self.0.push(format!("{what}: {distance:.1e}"));
        }
    }
}

/// How far each step moves when the beginning moves by one rounding: the model is no denoiser, and where σ is in the
/// thousands it answers chaotically, so that no two correct computations agree.
fn wobble(case: &Case<'_>, walk: &Walk) -> Result<Vec<f64>> {
    let Some(noise) = case.get("noise_init") else { return Ok(Vec::new()) };
    let steps = |factor: f64| -> Result<Vec<Vec<f64>>> {
        let mut seen = Vec::new();
        let start = (walk.start(noise)? * factor)?;
        let mut visit = |visit: &Visit<'_>| {
            seen.push(fixtures::numbers(visit.x));
            Ok(None)
        };
        sample_visited(
            &mut fake_model,
            start,
            walk,
            &mut Noise::given(case.draws()),
            &mut visit,
            &mut Watch::quiet(),
        )?;
        Ok(seen)
    };
    let (one, other) = (steps(1.0)?, steps(1.0 + f64::from(f32::EPSILON))?);
    Ok(one.iter().zip(&other).map(|(a, b)| fixtures::distance(a, b)).collect())
}

/// Walks one case; with `forced`, each step goes on from the golden latent.
fn walk_case(case: &Case<'_>, walk: &Walk, forced: bool, findings: &mut Findings) -> Result<()> {
    let mut noise = Noise::given(case.draws());
    let name = if forced { "forced" } else { "free" };
    let tolerance = if forced { STEP } else { WALK };
    let missing = || Error::internal("the fixture has no beginning");
    let start = walk.start(case.get("noise_init").ok_or_else(missing)?)?;
    findings.check("x.init", &fixtures::numbers(&start), case.numbers("x.init").as_deref(), STEP);
    let start = if forced { case.get("x.init").cloned().ok_or_else(missing)? } else { start };
    let wobble = if forced { Vec::new() } else { wobble(case, walk)? };
    let mut seen = Vec::new();
    let mut before = vec![most(&fixtures::numbers(&start))];
    let mut net = |x: &Tensor, at: &Level| {
        seen.push((at.step, x.clone()));
        match case.get(&format!("s{:02}.model_output", at.step)) {
            Some(output) if forced => Ok(output.clone()),
            _ => fake_model(x, at),
        }
    };
    let mut steps = 0;
    let mut visit = |visit: &Visit<'_>| {
        let key = |what: &str| format!("s{:02}.{what}", visit.step);
        steps += 1;
        let want = case.numbers(&key("x"));
        if want.is_none() {
            findings.0.push(format!("step {} is not in the fixture", visit.step));
        }
        let x = fixtures::numbers(visit.x);
        let tolerance = tolerance
            .max(4.0 * wobble.get(visit.step).unwrap_or(&0.0))
            .max(floor(&before[before.len().saturating_sub(3)..], most(&x)));
        findings.check(&format!("{name} {}", key("x")), &x, want.as_deref(), tolerance);
        before.push(most(&x));
        if let Some(clean) = visit.clean {
            let want = case.numbers(&key("pred_original"));
            findings.check(
                &format!("{name} {}", key("clean")),
                &fixtures::numbers(clean),
                want.as_deref(),
                tolerance,
            );
        }
        Ok(if forced { case.get(&key("x")).cloned() } else { None })
    };
    sample_visited(&mut net, start, walk, &mut noise, &mut visit, &mut Watch::quiet())?;
    for (step, x) in seen.into_iter().filter(|_| forced) {
        let want = case.numbers(&format!("s{step:02}.in"));
        findings.check(&format!("{name} s{step:02}.in"), &fixtures::numbers(&x), want.as_deref(), tolerance);
    }
    if noise.left() > 0 {
        findings.0.push(format!("{} draws were not used", noise.left()));
    }
    if case.get(&format!("s{:02}.x", case.begin() + steps)).is_some() {
        findings.0.push(format!("only {steps} steps were walked"));
    }
    Ok(())
}

fn check_case(class: &str, case: &Case<'_>) -> Result<Vec<String>> {
    let settings = Settings::read(Some(class), case.config)?;
    let walk = settings.walk(case.steps, &case.options())?.from_call(case.begin())?;
    let mut findings = Findings::default();
    findings.check("timesteps", &walk.timesteps(), case.numbers("timesteps").as_deref(), 1e-6);
    findings.check("sigmas", &walk.sigmas, case.numbers("sigmas").as_deref(), 2e-6);
    if let Some(sigmas) = case.numbers("sigmas").filter(|sigmas| sigmas.len() == walk.sigmas.len()) {
        // Each against itself: beside a first level of 4096 an error in the last would not show.
        let ratios: Vec<f64> = walk
            .sigmas
            .iter()
            .zip(&sigmas)
            .map(|(a, b)| if (a - b).abs() < 1e-12 { 1.0 } else { a / b })
            .collect();
        findings.check("each sigma", &ratios, Some(&vec![1.0; sigmas.len()]), 2e-6);
    }
    let init = case.numbers("init_noise_sigma");
    findings.check("init_noise_sigma", &[walk.init_noise_sigma], init.as_deref(), 1e-6);
    if let (Some(clean), Some(noise), Some(t)) =
        (case.get("add_noise.x0"), case.get("add_noise.noise"), case.numbers("add_noise.t"))
    {
        // Some fixtures were noised on the schedule's own levels, though the walk was given others.
        let own = Options { sigmas: None, timesteps: None, ..case.options() };
        let own = settings.walk(case.steps, &own)?;
        let found = call_at(&walk, t[0]).map(|step| (&walk, step));
        let (walk, step) = found.unwrap_or_else(|| (&own, call_at(&own, t[0]).unwrap_or(0)));
        let noised = fixtures::numbers(&walk.noised(clean, noise, step)?);
        findings.check("add_noise", &noised, case.numbers("add_noise.out").as_deref(), STEP);
    }
    walk_case(case, &walk, true, &mut findings)?;
    walk_case(case, &walk, false, &mut findings)?;
    Ok(findings.0)
}

/// The call that hears `time`; the second, where two do, as the reference finds it.
fn call_at(walk: &Walk, time: f64) -> Option<usize> {
    let times = walk.timesteps();
    let hits: Vec<usize> = (0..times.len()).filter(|&i| (times[i] - time).abs() < 1e-3).collect();
    hits.get(1).or(hits.first()).copied()
}

/// Compares one folder; the number of cases, and what went wrong in those that failed.
fn check_folder(folder: &Path) -> (usize, Vec<String>) {
    let about = fixtures::json(&folder.join("case.json"));
    let tensors = fixtures::tensors(&folder.join("golden.safetensors"));
    let class = about["scheduler"].as_str().unwrap_or_default();
    let cases = about["cases"].as_array().cloned().unwrap_or_default();
    let mut failed = Vec::new();
    for about in &cases {
        let case = Case {
            id: about["id"].as_str().unwrap_or_default(),
            steps: about["num_inference_steps"].as_u64().unwrap_or_default() as usize,
            config: &about["config"],
            arguments: &about["set_timesteps_or_step_args"],
            tensors: &tensors,
        };
        let found = check_case(class, &case).unwrap_or_else(|error| vec![error.to_string()]);
        if !found.is_empty() {
            let shown: Vec<&str> = found.iter().take(4).map(String::as_str).collect();
            failed.push(format!(
                "{class} {} ({}, {} steps): {}",
                case.id,
                about["label"],
                case.steps,
                shown.join("; ")
            ));
        }
    }
    (cases.len(), failed)
}

#[test]
#[expect(clippy::print_stdout, reason = "one line per class says what passed")]
fn golden_schedulers_walk_as_the_reference() {
    let folders = fixtures::cases("schedulers");
    if folders.is_empty() {
        println!("golden schedulers: no fixtures here");
    }
    let mut failures = Vec::new();
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if Class::read(&name).is_err() {
            println!("golden schedulers/{name}: not yet supported");
            continue;
        }
        let (all, failed) = check_folder(&folder);
        println!("golden schedulers/{name}: {} of {all} passed", all - failed.len());
        failures.extend(failed);
    }
    assert!(failures.is_empty(), "{} trajectories differ:\n{}", failures.len(), failures.join("\n"));
}

/// The stochastic DPM draws from a Brownian tree whose seed stands in the configuration; here the tree is ours.
///
/// The tree's places are rounded to a millionth, so where the last digit of a large σ differs, some steps do: most cases
/// must agree, not all.
#[test]
#[expect(clippy::print_stdout, reason = "one line says what passed")]
fn golden_brownian_path_is_that_of_the_reference() {
    let Some(folder) =
        fixtures::cases("schedulers").into_iter().find(|f| f.ends_with("DPMSolverSDEScheduler"))
    else {
        return;
    };
    let about = fixtures::json(&folder.join("case.json"));
    let tensors = fixtures::tensors(&folder.join("golden.safetensors"));
    let (mut all, mut agreed) = (0, 0);
    for about in about["cases"].as_array().into_iter().flatten() {
        if about["set_timesteps_or_step_args"].as_object().is_some_and(|given| !given.is_empty()) {
            continue;
        }
        let mut worst = 0.0f64;
        let id = about["id"].as_str().unwrap_or_default();
        let steps = about["num_inference_steps"].as_u64().unwrap_or_default() as usize;
        let settings = Settings::read(Some("DPMSolverSDEScheduler"), &about["config"]).unwrap();
        let walk = settings.walk(steps, &Options::default()).unwrap();
        let mut visit = |visit: &Visit<'_>| {
            let want = tensors.get(&format!("{id}.s{:02}.x", visit.step)).cloned();
            let numbers = |x: &Tensor| fixtures::numbers(x);
            if let Some(want) = &want {
                worst = worst.max(fixtures::distance(&numbers(visit.x), &numbers(want)));
            }
            Ok(want)
        };
        let start = tensors[&format!("{id}.x.init")].clone();
        let mut noise = Noise::seeded(0, 1);
        sample_visited(&mut fake_model, start, &walk, &mut noise, &mut visit, &mut Watch::quiet()).unwrap();
        all += 1;
        agreed += usize::from(worst < 2e-3);
    }
    println!("golden brownian path: {agreed} of {all} agreed");
    assert!(2 * agreed >= all);
}
