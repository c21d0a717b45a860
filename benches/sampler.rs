//! Time per step of each sampler without its network: what the mathematics costs beside a forward of seconds.

use std::hint::black_box;

use candle_core::{Device, Tensor};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use latentia::diffusion::{Level, Noise, Options, Settings, sample};
use latentia::event::Watch;
use serde_json::json;

const STEPS: usize = 20;

fn samplers(criterion: &mut Criterion) {
    let curved = json!({ "_class_name": "EulerDiscreteScheduler", "beta_start": 0.00085, "beta_end": 0.012,
        "beta_schedule": "scaled_linear", "clip_sample": false });
    let straight = json!({ "_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 3.0 });
    let (curved, straight) = (Settings::read(None, &curved), Settings::read(None, &straight));
    let (Ok(curved), Ok(straight)) = (curved, straight) else { return };
    let shape = [2, 4, 64, 64];
    let Ok(answer) = Noise::seeded(1, 2).draw(&shape, &Device::Cpu) else { return };
    let mut group = criterion.benchmark_group("step");
    group.throughput(Throughput::Elements(STEPS as u64));
    for name in [
        "euler",
        "euler_a",
        "heun",
        "lms",
        "dpm2",
        "dpm2_a",
        "dpmpp_2m",
        "dpmpp_2m_sde",
        "dpmpp_3m",
        "dpmpp_2s",
        "dpmpp_sde",
        "unipc",
        "deis",
        "ddim",
        "ddpm",
        "pndm",
        "sa_solver",
        "lcm",
        "tcd",
        "flow_euler",
        "flow_heun",
    ] {
        let base = if name.starts_with("flow") { &straight } else { &curved };
        let Ok(walk) = Settings::named(name, base).and_then(|s| s.walk(STEPS, &Options::default())) else {
            continue;
        };
        group.bench_with_input(BenchmarkId::from_parameter(name), &walk, |bencher, walk| {
            bencher.iter(|| {
                let mut net = |_: &Tensor, _: &Level| Ok(answer.clone());
                let mut noise = Noise::seeded(7, 2);
                black_box(sample(&mut net, answer.clone(), walk, &mut noise, &mut Watch::quiet()))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, samplers);
criterion_main!(benches);
