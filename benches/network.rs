//! The networks of SD 1.5 at their real shape, 512x512: text encoder, one U-net step with guidance, VAE decode.

mod sd15;

use std::hint::black_box;
use std::time::Duration;

use candle_core::{DType, Device, Tensor};
use criterion::{Criterion, SamplingMode, criterion_group, criterion_main};
use latentia::diffusion::Level;
use latentia::event::Watch;
use latentia::family::{Conditioning, Place, Prompt, recognise};

fn networks(criterion: &mut Criterion) {
    let parts = sd15::parts();
    let variant = recognise(&parts).expect("SD 1.5");
    let at = Place { device: Device::Cpu, dtype: DType::F32 };
    let mut group = criterion.benchmark_group("sd15");
    group.sampling_mode(SamplingMode::Flat).sample_size(10).warm_up_time(Duration::from_millis(1));

    let conditioner = variant.conditioner(&parts, &at).expect("opens");
    let prompt = Prompt { text: "a red apple on a table".into(), ..Prompt::default() };
    let prompts = [Prompt::default(), prompt];
    group.bench_function("text encoder, 2 prompts", |bench| {
        bench.iter(|| black_box(conditioner.condition(&prompts, &mut Watch::quiet()).expect("encodes")));
    });
    let told: Vec<Conditioning> = conditioner.condition(&prompts, &mut Watch::quiet()).expect("encodes");
    drop(conditioner);

    {
        let denoiser = variant.denoiser(&parts, &at).expect("opens");
        let mut bound = denoiser.bind(&told).expect("binds");
        let x = Tensor::zeros((2, 4, 64, 64), DType::F32, &Device::Cpu).expect("a latent");
        let level = Level { time: 500.0, ..Level::default() };
        group.bench_function("U-net step, batch 2", |bench| {
            bench.iter(|| black_box(bound.predict(&x, &level, &mut Watch::quiet()).expect("predicts")));
        });
    }

    let codec = variant.codec(&parts, &at).expect("opens");
    let latent = Tensor::zeros((1, 4, 64, 64), DType::F32, &Device::Cpu).expect("a latent");
    group.bench_function("VAE decode", |bench| {
        bench.iter(|| black_box(codec.decode(&latent, &mut Watch::quiet()).expect("decodes")));
    });
    group.finish();
}

criterion_group!(benches, networks);
criterion_main!(benches);
