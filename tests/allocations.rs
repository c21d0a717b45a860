//! What a step of the network and whole jobs take from the allocator: the same every time, no more than they did or were
//! said to, and nothing afterwards.
//!
//! A binary of its own, since it counts all allocations of its process; one test at a time.

#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use candle_core::{DType, Device, Tensor};
use latentia::diffusion::Level;
use latentia::event::{Cancel, Event, Watch};
use latentia::family::{Parts, Place, Prompt, recognise};
use latentia::studio::{DeviceClass, Model, Precision, Request, Residency, Studio};
use latentia::weights::{Application, Lora, synthetic};

struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
/// Bytes that are in use, and the most that ever were.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
/// Held by the test that counts.
static TURN: Mutex<()> = Mutex::new(());

// SAFETY: everything is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(live, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn every_step_allocates_the_same_and_little() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
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

fn sprites(precision: Precision) -> Model {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/sprites");
    let parts = Parts::open(&model, None).expect("the embedded model's folder");
    Model::from_parts(parts, "sprites", DeviceClass::Cpu, precision).expect("opens")
}

#[test]
fn fifty_jobs_leave_nothing_behind_whether_they_end_well_or_not() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut model = sprites(Precision::F32);
    let studio = Studio::open(Path::new("."));
    let request = |seed: u64| Request {
        prompt: "a red apple".into(),
        steps: Some(2),
        seed: Some(seed),
        count: Some(1 + seed as usize % 2),
        ..Request::default()
    };
    let mut job = |seed: u64| {
        // Every third is cancelled in the middle.
        let cancel = Cancel::default();
        let asked = cancel.clone();
        let mut watch = Watch::new(cancel, move |event| {
            if seed % 3 == 2 && matches!(event, Event::Step { .. }) {
                asked.cancel();
            }
        });
        let drawn = studio.generate(&mut model, &request(seed), &mut watch, |_, _| Ok(()));
        assert_eq!(drawn.is_err(), seed % 3 == 2);
    };
    // The first jobs fill what threads keep.
    (0..3).for_each(&mut job);
    let baseline = LIVE.load(Ordering::Relaxed);
    for seed in 3..53 {
        job(seed);
        let left = LIVE.load(Ordering::Relaxed).saturating_sub(baseline);
        assert!(left < 256 << 10, "{left} bytes more than at first after job {seed}");
    }
}

#[test]
fn a_forecast_says_what_a_picture_takes_within_a_seventh() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let studio = Studio::open(Path::new("."));
    for (side, precision) in [(512, Precision::F32), (1024, Precision::F32), (768, Precision::F16)] {
        let mut model = sprites(precision);
        let request = Request {
            prompt: "a red apple".into(),
            steps: Some(1),
            size: Some([side, side]),
            ..Request::default()
        };
        let (_, forecast) = studio.plan(&mut model, &request, &mut Watch::quiet()).expect("plans");
        // Of the process itself the allocator sees little.
        let told = forecast.phases.iter().map(|phase| phase.need.total()).max().expect("phases");
        let before = LIVE.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        studio.generate(&mut model, &request, &mut Watch::quiet(), |_, _| Ok(())).expect("draws");
        let took = MOST.load(Ordering::Relaxed) - before;
        let ratio = took as f64 / told as f64;
        assert!((0.85..=1.15).contains(&ratio), "{side}: {told} bytes were told and {took} taken");
    }
}

#[test]
fn changes_come_and_go_without_the_weights_being_read_again() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut model = sprites(Precision::F32);
    let network = Parts::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models/sprites"), None)
        .and_then(|parts| parts.weights("unet"))
        .expect("a network");
    let module = "mid_block.attentions.0.transformer_blocks.0.attn1.to_q";
    let width = network.inventory().shape(&format!("{module}.weight")).expect("is there")[0];
    let here = tempfile::tempdir().expect("a folder");
    let file = here.path().join("lora.safetensors");
    let module = format!("lora_unet_{}", module.replace('.', "_"));
    let matrices = [("lora_down", vec![4, width]), ("lora_up", vec![width, 4])];
    let matrices = matrices.map(|(name, shape)| (format!("{module}.{name}.weight"), shape));
    synthetic::save(&file, 1, matrices).expect("saved");
    let lora = Lora::open(&file).expect("a LoRA");
    let mut watch = Watch::quiet();
    let mut opened = |model: &mut Model, worn: &[(Lora, f64)], how: Application| {
        model.wear(worn, how, &mut watch).expect("fits");
        assert!(!model.network.is_open());
        let before = BYTES.load(Ordering::Relaxed);
        drop(model.network.lease(Residency::Stay).expect("opens"));
        BYTES.load(Ordering::Relaxed) - before
    };
    let before = BYTES.load(Ordering::Relaxed);
    drop(model.network.lease(Residency::Stay).expect("opens"));
    let whole = BYTES.load(Ordering::Relaxed) - before;
    let live = LIVE.load(Ordering::Relaxed);
    for (how, most) in [(Application::Runtime, 20), (Application::Fused, 8)] {
        for worn in [&[(lora.clone(), 1.0)][..], &[(lora.clone(), 0.5)], &[]] {
            let read = opened(&mut model, worn, how);
            assert!(read < whole / most, "{how:?}: {read} bytes of {whole}");
        }
    }
    let left = LIVE.load(Ordering::Relaxed).saturating_sub(live);
    assert!(left < whole / 20, "{left} bytes more of {whole}");
}
