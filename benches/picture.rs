//! One whole picture with the embedded model, opening included.

#![expect(clippy::print_stdout, reason = "a rate stands beside criterion's time")]

mod peak;

use std::path::Path;
use std::time::Instant;

use criterion::{Criterion, criterion_group, criterion_main};
use latentia::event::Watch;
use latentia::kernel::matrix::{Engine, Precision as Kernel};
use latentia::kernel::work;
use latentia::studio::{DeviceClass, Precision, Request, Studio};

fn picture(criterion: &mut Criterion) {
    let studio = Studio::open(Path::new("."));
    let request = Request { prompt: "a red apple".into(), ..Request::default() };
    let mut group = criterion.benchmark_group("sprites");
    group.sample_size(10);
    let draw = || {
        let mut model = studio.model(None, None, DeviceClass::Cpu, Precision::Auto).expect("opens");
        studio.generate(&mut model, &request, &mut Watch::quiet(), |_, _| Ok(())).expect("draws");
    };
    group.bench_function("a red apple, whole", |bench| bench.iter(draw));
    group.finish();
    let (before, began) = (work(), Instant::now());
    draw();
    let rate = (work() - before) as f64 / began.elapsed().as_secs_f64() / 1e9;
    let engine = Engine::available().iter().find(|engine| engine.precision() == Kernel::Exact);
    let peak = engine.map_or(f64::NAN, |&engine| peak::peak(engine)) * rayon::current_num_threads() as f64;
    println!("sprites, a whole picture: {rate:.0} GFLOP/s, {:.0} % of {peak:.0}", 100.0 * rate / peak);
}

criterion_group!(benches, picture);
criterion_main!(benches);
