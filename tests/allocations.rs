//! What a step of the network takes from the allocator: the same every time, and no more than it did.
//!
//! A binary of its own, since it counts all allocations of its process; on one thread, so that they repeat.

#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use candle_core::{DType, Device, Tensor};
use latentia::diffusion::Level;
use latentia::event::Watch;
use latentia::family::{Parts, Place, Prompt, recognise};

struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn every_step_allocates_the_same_and_little() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool");
    // Inside of the pool, whose queue for work from outside allocates now and then.
    pool.install(steps);
}

fn steps() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/sprites");
    let parts = Parts::open(&model, None).expect("the embedded model's folder");
    let variant = recognise(&parts).expect("is known");
    let at = Place { device: Device::Cpu, dtype: DType::F32 };
    let prompts = [Prompt::default(), Prompt { text: "a red apple".into(), ..Prompt::default() }];
    let conditioner = variant.conditioner(&parts, &at).expect("opens");
    let told = conditioner.condition(&prompts, &mut Watch::quiet()).expect("reads");
    let denoiser = variant.denoiser(&parts, &at).expect("opens");
    let mut bound = denoiser.bind(&told).expect("binds");
    let x = Tensor::ones((2, 16, 8, 8), DType::F32, &Device::Cpu).expect("a latent");
    let mut step = |time: f64| {
        let before = (COUNT.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
        let y =
            bound.predict(&x, &Level { time, ..Level::default() }, &mut Watch::quiet()).expect("predicts");
        assert_eq!(y.dims(), x.dims());
        (COUNT.load(Ordering::Relaxed) - before.0, BYTES.load(Ordering::Relaxed) - before.1)
    };
    // The first step grows the threads' buffers, the second sees them grown.
    step(900.0);
    let second = step(700.0);
    for time in [500.0, 300.0, 1.0] {
        assert_eq!(step(time), second, "allocations and bytes of a step");
    }
    assert!(second.0 <= 1800, "{} allocations a step", second.0);
}
