//! The networks of SD 1.5 at their real shape, 512x512: text encoder, one U-net step with guidance, VAE
//! decode, in f32 and in what this processor computes with fastest.

#![expect(clippy::print_stdout, reason = "rates stand beside criterion's times")]

mod peak;
mod sd15;

use std::hint::black_box;
use std::time::{Duration, Instant};

use candle_core::{DType, Device, Tensor};
use criterion::{Criterion, SamplingMode, criterion_group, criterion_main};
use latentia::diffusion::Level;
use latentia::event::Watch;
use latentia::family::{Conditioning, Place, Prompt, recognise};
use latentia::kernel::matrix::{Engine, Precision};
use latentia::kernel::work;

/// Runs once more and prints GFLOP/s, and the share of what all threads reach with the engine's own instruction.
fn rate(name: &str, dtype: DType, run: impl FnOnce()) {
    let (before, began) = (work(), Instant::now());
    run();
    let rate = (work() - before) as f64 / began.elapsed().as_secs_f64() / 1e9;
    let precision = if dtype == DType::F32 { Precision::Exact } else { Engine::fastest() };
    let engine = Engine::available().iter().find(|engine| engine.precision() == precision);
    let peak = engine.map_or(f64::NAN, |&engine| peak::peak(engine)) * rayon::current_num_threads() as f64;
    println!("{name}: {rate:.0} GFLOP/s, {:.0} % of {peak:.0}", 100.0 * rate / peak);
}

fn networks(criterion: &mut Criterion) {
    let fastest = latentia::nn::fastest_dtype();
    for dtype in [DType::F32, fastest].into_iter().take(if fastest == DType::F32 { 1 } else { 2 }) {
        networks_in(criterion, dtype);
    }
}

fn networks_in(criterion: &mut Criterion, dtype: DType) {
    let parts = sd15::parts();
    let variant = recognise(&parts).expect("SD 1.5");
    let at = Place { device: Device::Cpu, dtype };
    let mut group = criterion.benchmark_group(format!("sd15 {}", dtype.as_str()));
    group.sampling_mode(SamplingMode::Flat).sample_size(10).warm_up_time(Duration::from_millis(1));
    let named = |name: &str| format!("sd15 {}, {name}", dtype.as_str());

    let conditioner = variant.conditioner(&parts, &at).expect("opens");
    let prompt = Prompt { text: "a red apple on a table".into(), ..Prompt::default() };
    let prompts = [Prompt::default(), prompt];
    let encode = || conditioner.condition(&prompts, &mut Watch::quiet()).expect("encodes");
    group.bench_function("text encoder, 2 prompts", |bench| bench.iter(|| black_box(encode())));
    rate(&named("text encoder"), dtype, || drop(encode()));
    let told: Vec<Conditioning> = encode();
    drop(conditioner);

    {
        let denoiser = variant.denoiser(&parts, &at).expect("opens");
        let mut bound = denoiser.bind(&told).expect("binds");
        let x = Tensor::zeros((2, 4, 64, 64), DType::F32, &Device::Cpu).expect("a latent");
        let level = Level { time: 500.0, ..Level::default() };
        let mut step = || bound.predict(&x, &level, &mut Watch::quiet()).expect("predicts");
        group.bench_function("U-net step, batch 2", |bench| bench.iter(|| black_box(step())));
        rate(&named("U-net step"), dtype, || drop(step()));
    }

    let codec = variant.codec(&parts, &at).expect("opens");
    let latent = Tensor::zeros((1, 4, 64, 64), DType::F32, &Device::Cpu).expect("a latent");
    let decode = || codec.decode(&latent, &mut Watch::quiet()).expect("decodes");
    group.bench_function("VAE decode", |bench| bench.iter(|| black_box(decode())));
    rate(&named("VAE decode"), dtype, || drop(decode()));
    group.finish();
}

criterion_group!(benches, networks);
criterion_main!(benches);
