//! Peak memory of a whole 512x512 picture with SD 1.5's real shape, each precision in a process of its own.
//!
//! Prints a table and fails above the limits that the README promises: 5 GB in f32, 3 GB in f16.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

mod sd15;

use std::process::Command;
use std::time::Instant;

use latentia::event::Watch;
use latentia::studio::{DeviceClass, Model, Precision, Request, Studio};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const LIMITS: [(&str, f64); 2] = [("f16", 3.0), ("f32", 5.0)];
const STEPS: usize = 2;

fn main() {
    if let Some(dtype) =
        std::env::args().find_map(|argument| argument.strip_prefix("--child=").map(str::to_owned))
    {
        draw(if dtype == "f16" { Precision::F16 } else { Precision::F32 });
        return;
    }
    let itself = std::env::current_exe().expect("a path");
    for (dtype, limit) in LIMITS {
        let began = Instant::now();
        let output = Command::new(&itself).arg(format!("--child={dtype}")).output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let peak: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
        let took = began.elapsed().as_secs_f64();
        println!(
            "sd15 512x512, {dtype} weights, {STEPS} steps: peak {peak:.2} GB of {limit} allowed, {took:.0} s"
        );
        assert!(peak <= limit, "{dtype} weights took {peak:.2} GB");
    }
}

fn draw(precision: Precision) {
    let mut model = Model::from_parts(sd15::parts(), "sd15", DeviceClass::Cpu, precision).expect("opens");
    let request = Request {
        prompt: "a red apple".into(),
        steps: Some(STEPS),
        sampler: Some("euler".into()),
        ..Request::default()
    };
    let studio = Studio::open(std::path::Path::new("."));
    studio.generate(&mut model, &request, &mut Watch::quiet(), |_, _| Ok(())).expect("draws");
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().unwrap_or(0.0);
    println!("{}", kib * 1024.0 / 1e9);
}
