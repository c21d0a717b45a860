//! One whole picture with the embedded model, opening included.

use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};
use latentia::event::Watch;
use latentia::studio::{DeviceClass, Precision, Request, Studio};

fn picture(criterion: &mut Criterion) {
    let studio = Studio::open(Path::new("."));
    let request = Request { prompt: "a red apple".into(), ..Request::default() };
    let mut group = criterion.benchmark_group("sprites");
    group.sample_size(10);
    group.bench_function("a red apple, whole", |bench| {
        bench.iter(|| {
            let mut model = studio.model(None, None, DeviceClass::Cpu, Precision::Auto).expect("opens");
            studio.generate(&mut model, &request, &mut Watch::quiet(), |_, _| Ok(())).expect("draws");
        });
    });
    group.finish();
}

criterion_group!(benches, picture);
criterion_main!(benches);
