//! The command as a user types it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use latentia::artifact::{Infotext, png};
use serde_json::Value;

use crate::fixtures;

pub(crate) fn latentia(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_latentia"));
    command.current_dir(folder).env("LATENTIA_HOME", folder).stdin(Stdio::null());
    command
}

fn model() -> PathBuf {
    fixtures::compact().join("sd15/model").canonicalize().expect("the sd15 fixture")
}

/// `latentia generate "a cat" -m MODEL --steps 2 …`
pub(crate) fn generate(folder: &Path, more: &[&str]) -> Output {
    let mut command = latentia(folder);
    command.args(["generate", "a cat", "--steps", "2", "-m"]).arg(model()).args(more);
    command.output().expect("runs")
}

pub(crate) fn ok(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn the_same_command_gives_the_same_bytes_and_the_picture_repeats_itself() {
    let here = folder();
    assert_eq!(ok(&generate(here.path(), &["-o", "a.png"])).trim(), "a.png");
    ok(&generate(here.path(), &["-o", "b.png"]));
    let read = |name: &str| fs::read(here.path().join(name)).expect("written");
    assert_eq!(read("a.png"), read("b.png"));
    let again = latentia(here.path())
        .args(["generate", "--from", "a.png", "-o", "c.png", "-m"])
        .arg(model())
        .output()
        .expect("runs");
    ok(&again);
    assert_eq!(read("a.png"), read("c.png"));

    let texts = png::texts(&read("a.png")).expect("texts");
    let text = |key: &str| &texts.iter().find(|(keyword, _)| keyword == key).expect("there").1;
    let info = Infotext::parse(text("parameters"));
    assert_eq!(
        (info.prompt.as_str(), info.steps, info.seed, info.size),
        ("a cat", Some(2), Some(0), Some((64, 64)))
    );
    let recipe: Value = serde_json::from_str(text("latentia")).expect("JSON");
    for key in
        ["seed", "sampler", "steps", "guidance", "width", "height", "model", "version", "dtype", "device"]
    {
        assert!(!recipe[key].is_null(), "{key}");
    }
    assert_eq!(recipe["model"]["sha256"]["unet"].as_str().map(str::len), Some(64));

    ok(&generate(here.path(), &["--no-metadata", "-o", "d.png"]));
    assert!(png::texts(&read("d.png")).expect("no texts").is_empty());
}

#[test]
fn quantised_weights_draw_nearly_the_same_and_the_picture_repeats_itself() {
    let here = folder();
    let draw = |more: &[&str]| {
        latentia(here.path())
            .args(["generate", "a red apple", "--steps", "4"])
            .args(more)
            .output()
            .expect("runs")
    };
    ok(&draw(&["--dtype", "f32", "-o", "exact.png"]));
    ok(&draw(&["--quantize", "q8_0", "-o", "eight.png"]));
    ok(&draw(&["--quantize", "Q4_K", "-o", "four.png"]));
    let again = latentia(here.path()).args(["generate", "--from", "eight.png", "-o", "again.png"]).output();
    ok(&again.expect("runs"));
    let read = |name: &str| fs::read(here.path().join(name)).expect("written");
    assert_eq!(read("eight.png"), read("again.png"));
    let texts = png::texts(&read("four.png")).expect("texts");
    let recipe: Value =
        serde_json::from_str(&texts.iter().find(|(key, _)| key == "latentia").expect("there").1)
            .expect("JSON");
    assert_eq!(recipe["dtype"], "q4_k");
    let pixels = |name: &str| {
        let mut reader =
            ::png::Decoder::new(std::io::Cursor::new(read(name))).read_info().expect("a picture");
        let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
        reader.next_frame(&mut pixels).expect("a picture");
        pixels
    };
    let loss = |name: &str| {
        let squares: f64 =
            pixels(name).iter().zip(pixels("exact.png")).map(|(a, b)| f64::from(a.abs_diff(b)).powi(2)).sum();
        squares / pixels(name).len() as f64
    };
    let (eight, four) = (loss("eight.png"), loss("four.png"));
    assert!(eight > 0.0 && eight < 6.5, "40 dB are a mean square of 6.5: {eight}");
    assert!(four > eight && four < 260.0, "24 dB are a mean square of 260: {four}");

    for refused in
        [&["--quantize", "q9"][..], &["--quantize", "iq4_nl"], &["--quantize", "q8_0", "--dtype", "f16"]]
    {
        assert_eq!(draw(refused).status.code(), Some(2), "{refused:?}");
    }
}

#[test]
fn picture_i_has_seed_plus_i() {
    let here = folder();
    let paths =
        ok(&generate(here.path(), &["-n", "2", "--seed", "5", "--sampler", "euler_a", "--no-metadata"]));
    let paths: Vec<_> =
        paths.lines().map(|line| fs::read(here.path().join(line)).expect("written")).collect();
    ok(&generate(here.path(), &["--seed", "6", "--sampler", "euler_a", "--no-metadata", "-o", "six.png"]));
    assert_eq!(paths.len(), 2);
    assert_eq!(paths[1], fs::read(here.path().join("six.png")).expect("written"));
    assert_ne!(paths[0], paths[1]);
}

#[test]
fn names_that_are_taken_are_not_overwritten() {
    let here = folder();
    let first = ok(&generate(here.path(), &[]));
    let second = ok(&generate(here.path(), &[]));
    assert_ne!(first, second);
    assert_eq!(fs::read_dir(here.path()).expect("read").count(), 2);
}

#[test]
fn json_is_one_object_and_standard_output_takes_bytes() {
    let here = folder();
    let answer: Value =
        serde_json::from_str(&ok(&generate(here.path(), &["--json", "-o", "a.png"]))).expect("JSON");
    let image = &answer["images"][0];
    let bytes = fs::read(here.path().join("a.png")).expect("written");
    assert_eq!(image["sha256"], latentia::weights::sha256(&bytes));
    assert_eq!(image["size_bytes"], bytes.len());
    assert!(answer["timings_ms"]["denoise"].is_number());
    let piped = generate(here.path(), &["-o", "-"]);
    assert!(piped.status.success());
    assert_eq!(piped.stdout, bytes);
}

#[test]
fn given_latents_are_the_start_and_are_needed_again() {
    let here = folder();
    let file = here.path().join("latents.safetensors");
    let latents = candle_core::Tensor::arange(0f32, 256.0, &candle_core::Device::Cpu)
        .and_then(|x| x.affine(0.01, -1.28)?.reshape((1, 4, 8, 8)))
        .expect("latents");
    let named = std::collections::HashMap::from([("latents", latents.clone())]);
    candle_core::safetensors::save(&named, &file).expect("saved");
    ok(&generate(here.path(), &["--latents", "latents.safetensors", "-o", "a.png"]));
    let repeat = |more: &[&str]| {
        let mut command = latentia(here.path());
        command.args(["generate", "--from", "a.png", "-o", "b.png"]).args(more).arg("-m").arg(model());
        command.output().expect("runs")
    };
    assert_eq!(repeat(&[]).status.code(), Some(2));
    ok(&repeat(&["--latents", "latents.safetensors"]));
    let read = |name: &str| fs::read(here.path().join(name)).expect("written");
    assert_eq!(read("a.png"), read("b.png"));
    let other = generate(here.path(), &["--latents", "latents.safetensors", "--size", "64x72"]);
    assert_eq!(other.status.code(), Some(5), "{}", String::from_utf8_lossy(&other.stderr));
}

#[test]
fn bad_arguments_name_themselves_and_write_nothing() {
    let here = folder();
    let cases: &[(&[&str], i32, &str, &str)] = &[
        (&["--size", "65x64"], 2, "invalid_argument", "width"),
        (&["--size", "64x0"], 2, "invalid_argument", "height"),
        (&["--size", "64x99999992"], 2, "invalid_argument", "height"),
        (&["--steps", "0"], 2, "invalid_argument", "steps"),
        (&["--steps", "1000000"], 2, "invalid_argument", "steps"),
        (&["--guidance", "nan"], 2, "invalid_argument", "guidance"),
        (&["--guidance", "-1"], 2, "invalid_argument", "guidance"),
        (&["--sampler", "guess"], 2, "invalid_argument", "sampler"),
        (&["--sampler", "euler", "--eta", "0.5"], 2, "invalid_argument", "eta"),
        (&["--clip-skip", "9"], 2, "invalid_argument", "clip_skip"),
        (&["-n", "0"], 2, "invalid_argument", "count"),
        (&["-n", "17"], 2, "invalid_argument", "count"),
        (&["-o", "a.jpg"], 2, "invalid_argument", "output"),
        (&["-o", "nowhere/a.png"], 3, "file_not_found", "output"),
        (&["--latents", "nowhere.safetensors"], 3, "file_not_found", "latents"),
        (&["--device", "cuda"], 7, "device_unavailable", ""),
        (&["--config", "."], 2, "invalid_argument", "config"),
    ];
    for (more, exit, code, param) in cases {
        let mut arguments = vec!["--json"];
        arguments.extend_from_slice(more);
        if more[0] == "--steps" {
            // The helper gives --steps already.
            let mut command = latentia(here.path());
            command.args(["generate", "x", "--json", "-m"]).arg(model()).args(*more);
            check(&command.output().expect("runs"), more, (*exit, code, param));
            continue;
        }
        check(&generate(here.path(), &arguments), more, (*exit, code, param));
    }
    assert_eq!(fs::read_dir(here.path()).expect("read").count(), 0);
}

fn check(output: &Output, what: &[&str], (exit, code, param): (i32, &str, &str)) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(exit), "{what:?}: {stderr}");
    assert!(stderr.starts_with("error: "), "{what:?}: {stderr}");
    let last = String::from_utf8_lossy(&output.stdout);
    let error: Value = serde_json::from_str(last.lines().last().unwrap_or("")).expect("an error object");
    assert_eq!(error["error"]["code"], code, "{what:?}: {stderr}");
    assert_eq!(error["error"]["param"].as_str().unwrap_or(""), param, "{what:?}");
}

#[test]
fn what_is_not_there_is_said() {
    let here = folder();
    let run = |arguments: &[&str]| latentia(here.path()).args(arguments).output().expect("runs");
    assert_eq!(run(&["generate", "x", "-m", "nowhere"]).status.code(), Some(3));
    assert_eq!(run(&["generate", "--from", "nowhere.png"]).status.code(), Some(3));
    assert_eq!(run(&["generate"]).status.code(), Some(2));
    assert_eq!(run(&["paint"]).status.code(), Some(2));
    fs::write(here.path().join("model.ckpt"), b"\x80\x02pickle").expect("written");
    let pickle = run(&["generate", "x", "-m", "model.ckpt"]);
    assert_eq!(pickle.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&pickle.stderr).contains("safetensors"));
}

#[test]
fn an_installed_model_is_found_by_its_name() {
    let here = folder();
    fs::create_dir(here.path().join("models")).expect("made");
    #[cfg(unix)]
    std::os::unix::fs::symlink(model(), here.path().join("models/tiny")).expect("linked");
    let output =
        latentia(here.path()).args(["generate", "x", "-m", "tiny", "--steps", "1"]).output().expect("runs");
    ok(&output);
}

#[test]
fn an_interrupt_stops_within_a_step_and_keeps_finished_pictures() {
    let here = folder();
    let mut command = latentia(here.path());
    command
        .args(["generate", "a cat", "--steps", "400", "-n", "16", "--sampler", "euler", "-m"])
        .arg(model());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("runs");
    let pictures = || fs::read_dir(here.path()).expect("read").flatten().count();
    let began = Instant::now();
    while pictures() == 0 {
        assert!(began.elapsed() < Duration::from_secs(300), "no picture came");
        std::thread::sleep(Duration::from_millis(5));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    let asked = Instant::now();
    let status = child.wait().expect("ends");
    assert!(asked.elapsed() < Duration::from_secs(10), "took {:?}", asked.elapsed());
    assert_eq!(status.code(), Some(130));
    let names: Vec<_> =
        fs::read_dir(here.path()).expect("read").flatten().map(|entry| entry.file_name()).collect();
    assert!(!names.is_empty() && names.len() < 16);
    for name in names {
        let bytes = fs::read(here.path().join(&name)).expect("read");
        assert!(png::texts(&bytes).is_ok_and(|texts| texts.len() == 2), "{name:?} is not whole");
    }
}

#[test]
fn what_does_not_fit_in_memory_is_refused_before_any_work_and_told_by_plan() {
    let here = folder();
    let run = |arguments: &[&str]| latentia(here.path()).args(arguments).output().expect("runs");
    let plan: Value =
        serde_json::from_str(&ok(&run(&["plan", "generate", "a cat", "--json"]))).expect("JSON");
    let memory = &plan["memory"];
    let phases: Vec<_> = memory["phases"].as_array().expect("phases").iter().map(|it| &it["stage"]).collect();
    assert_eq!(phases, ["encode", "denoise", "decode"]);
    assert!(memory["phases"][1]["weights"].as_u64().expect("bytes") > 10 << 20, "{memory}");
    let limit = ["--size", "2048x2048", "--memory-limit", "0.4"];
    let planned = run(&[&["plan", "generate", "a cat"], &limit[..]].concat());
    assert_eq!(planned.status.code(), Some(6));
    assert!(String::from_utf8_lossy(&planned.stdout).contains("tiles"), "the plan is printed all the same");
    let drawn = run(&[&["generate", "a cat", "-o", "cat.png"], &limit[..]].concat());
    assert_eq!(drawn.status.code(), Some(6));
    assert!(String::from_utf8_lossy(&drawn.stderr).contains("would fit"));
    assert!(!here.path().join("cat.png").exists());
}

#[test]
fn tiles_are_in_the_recipe_and_draw_nearly_the_same() {
    let here = folder();
    let draw = |name: &str, tiling: &str| {
        let size = ["--size", "768x576", "--steps", "1"];
        let to = ["generate", "a cat", "-o", name, "--vae-tiling", tiling];
        let output = latentia(here.path()).args(to).args(size).output().expect("runs");
        ok(&output);
        image::open(here.path().join(name)).expect("a picture").to_rgb8().into_raw()
    };
    let (whole, tiled) = (draw("whole.png", "off"), draw("tiled.png", "on"));
    let squares = whole.iter().zip(&tiled).map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2)).sum::<f64>();
    let mean = squares / whole.len() as f64;
    assert!(mean > 0.0 && mean < 80.0, "a mean square of {mean}");
    ok(&latentia(here.path())
        .args(["generate", "--from", "tiled.png", "-o", "again.png"])
        .output()
        .expect("runs"));
    let read = |name: &str| fs::read(here.path().join(name)).expect("written");
    assert_eq!(read("tiled.png"), read("again.png"));
}
