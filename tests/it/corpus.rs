//! The hostile corpus, kinds `st`, `gguf`, `cfg` and `tok`, as a user meets it: `show` of the file and `generate` with it in
//! a good model, each with its code, within its seconds and its memory.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fixtures::{self, read_json};
use crate::hostile::materialize;
use crate::hostile_models::{Victim, poison};

/// A command that has ended.
pub(crate) struct Ended {
    pub(crate) output: Output,
    pub(crate) took: Duration,
    /// The most memory that it held at a time, in MiB; 0 where the system has no `/proc`.
    pub(crate) peak_mib: u64,
}

/// Runs a command and looks at its memory until it ends: the system keeps the peak, so only growth in the last
/// millisecond is missed. What `wait4` says of a child begins with its parent's peak, which here is that of all tests.
pub(crate) fn run(command: &mut Command) -> Ended {
    fn read(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            from.read_to_end(&mut bytes).expect("read");
            bytes
        })
    }
    let began = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let stdout = read(child.stdout.take().expect("a pipe"));
    let stderr = read(child.stderr.take().expect("a pipe"));
    let place = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let (status, took) = loop {
        let said = fs::read_to_string(&place).unwrap_or_default();
        let line = said.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        peak = peak.max(line.and_then(|kib| kib.parse().ok()).unwrap_or(0));
        if let Some(status) = child.try_wait().expect("a child") {
            break (status, began.elapsed());
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let output =
        Output { status, stdout: stdout.join().expect("read"), stderr: stderr.join().expect("read") };
    Ended { output, took, peak_mib: peak >> 10 }
}

/// The cases of these kinds.
pub(crate) fn cases(corpus: &Path, kinds: &[&str]) -> Vec<Value> {
    let manifest = read_json(&corpus.join("manifest.json")).expect("a manifest");
    let of = |case: &&Value| {
        let kind = case["id"].as_str().and_then(|id| id.split('-').next()).unwrap_or("");
        kinds.contains(&kind)
    };
    manifest["cases"].as_array().expect("cases").iter().filter(of).cloned().collect()
}

/// Runs a command until it is within the seconds of a case, thrice at most: a machine may be busy, a case may not.
///
/// # Errors
/// What is wrong with us: time, memory, a panic.
pub(crate) fn within(case: &Value, command: impl Fn() -> Command) -> Result<Output, String> {
    let (seconds, mib) = (&case["bounds"]["seconds"], &case["bounds"]["rss_mib"]);
    let bounds = (seconds.as_u64().ok_or("no bound")?, mib.as_u64().ok_or("no bound")?);
    let mut ended = run(&mut command());
    for _ in 0..2 {
        if ended.took > Duration::from_secs(bounds.0) {
            ended = run(&mut command());
        }
    }
    let Ended { output, took, peak_mib } = ended;
    if took > Duration::from_secs(bounds.0) {
        return Err(format!("took {took:?}"));
    }
    if peak_mib > bounds.1 {
        return Err(format!("held {peak_mib} MiB"));
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.code().is_none_or(|code| code == 101) || stderr.contains("panicked") {
        return Err(format!("{:?}: {stderr}", output.status));
    }
    Ok(output)
}

/// Whether an answer is one of those that the case allows.
pub(crate) fn judge(case: &Value, output: &Output) -> Result<(), String> {
    let class = case["expect"]["class"].as_str().unwrap_or("");
    let codes = case["expect"]["codes"].as_array().map(Vec::as_slice).unwrap_or_default();
    if output.status.success() {
        return if class == "reject" { Err("was accepted".into()) } else { Ok(()) };
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let error: Value = serde_json::from_str(text.lines().last().unwrap_or("")).map_err(|e| e.to_string())?;
    let given = &error["error"]["code"];
    if class == "accept" || !codes.contains(given) {
        return Err(format!("gave {given}, expected {class} {codes:?}: {text}"));
    }
    Ok(())
}

fn latentia(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_latentia"));
    command.current_dir(home).env("LATENTIA_HOME", home).args(arguments);
    command
}

/// Which config of the folder a case of the corpus replaces.
fn target(file: &str) -> &'static str {
    let places = [
        ("unet_", "unet/config.json"),
        ("vae_", "vae/config.json"),
        ("text_", "text_encoder/config.json"),
        ("scheduler_", "scheduler/scheduler_config.json"),
        ("model_index", "model_index.json"),
        ("config_", "unet/config.json"),
    ];
    let name = file.rsplit('/').next().unwrap_or(file);
    places.iter().find(|(start, _)| name.starts_with(start)).map_or("unet/config.json", |(_, place)| place)
}

/// Puts the input of a case into a good model; false if this machine cannot make it.
fn spoil(case: &Value, corpus: &Path, victim: &Victim) -> bool {
    let (id, file) = (case["id"].as_str().expect("an id"), case["file"].as_str().expect("a file"));
    let bytes = || fs::read(corpus.join(file)).expect("the file");
    let weights = "unet/diffusion_pytorch_model.safetensors";
    match id.split('-').next() {
        Some("cfg") if case["expect"]["class"] == "accept" => {
            // Its sizes are those of another model; what it is about are keys that nobody knows.
            let place = victim.path(target(file));
            let Ok(Value::Object(own)) = read_json(&place) else { panic!("an object") };
            let Ok(Value::Object(mut more)) = serde_json::from_slice(&bytes()) else { panic!("an object") };
            more.extend(own);
            fs::write(place, Value::Object(more).to_string()).expect("written");
        }
        Some("cfg") => victim.merge(target(file), &bytes()),
        Some("tok") => fs::write(victim.path("tokenizer/tokenizer.json"), bytes()).expect("written"),
        _ if id == "st-27" => poison(victim, |bytes| bytes.fill(0xff)),
        _ => {
            fs::remove_file(victim.path(weights)).expect("removed");
            let place = match file {
                _ if file.contains(".index.") => "unet/diffusion_pytorch_model.safetensors.index.json",
                _ if file.contains(".ckpt") => "unet/diffusion_pytorch_model.bin",
                _ => weights,
            };
            return materialize(case, corpus, &victim.path(place));
        }
    }
    true
}

/// A file that one tensor's reader would take: looking at it is all that is asked.
fn is_looked_at(case: &Value) -> bool {
    case["feed"].as_str().is_some_and(|feed| feed.starts_with("inspect"))
        && case["expect"]["class"] == "accept"
}

#[test]
fn models_with_a_hostile_part_end_in_their_codes_within_their_bounds() {
    let Some(corpus) = fixtures::hostile() else { return };
    let (mut right, mut wrong) = (0, Vec::new());
    for case in cases(&corpus, &["st", "gguf", "cfg", "tok"]) {
        let victim = Victim::new();
        if is_looked_at(&case) || !spoil(&case, &corpus, &victim) {
            continue;
        }
        let home = tempfile::tempdir().expect("a folder");
        let prompt = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!";
        let model = victim.path("");
        let model = model.to_str().expect("UTF-8");
        let draw = || {
            latentia(
                home.path(),
                &["generate", prompt, "--steps", "1", "-q", "-m", model, "-o", "a.png", "--json"],
            )
        };
        let verdict = within(&case, draw).and_then(|output| {
            let text = String::from_utf8_lossy(&output.stdout);
            if !output.status.success() && text.contains(model) {
                return Err(format!("gives a path away: {text}"));
            }
            if !output.status.success() && home.path().join("a.png").exists() {
                return Err("left a picture".into());
            }
            judge(&case, &output)
        });
        match verdict {
            Ok(()) => right += 1,
            Err(why) => wrong.push(format!("{}: {why}", case["id"])),
        }
    }
    println!("hostile models: {right} right, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(right >= 70, "{right}");
}

/// What a person sees first: `show` of each file of weights.
#[test]
fn hostile_files_are_shown_or_refused_within_their_bounds() {
    let Some(corpus) = fixtures::hostile() else { return };
    let (mut shown, mut wrong) = (0, Vec::new());
    for case in cases(&corpus, &["st", "gguf"]) {
        let folder = tempfile::tempdir().expect("a folder");
        let is_index = case["file"].as_str().is_some_and(|file| file.contains(".index."));
        let name = if is_index { "model.safetensors.index.json" } else { "model.safetensors" };
        let file = folder.path().join(name);
        if case["id"] == "st-27" || !materialize(&case, &corpus, &file) {
            continue;
        }
        let path = file.to_str().expect("UTF-8");
        let show = || latentia(folder.path(), &["show", path, "--json"]);
        // A file may be whole and yet not what a network needs, which is found when it is loaded; a broken one is not
        // shown.
        let broken = ["weights_corrupt", "unsupported_format", "path_denied", "model_not_downloaded"];
        let codes = case["expect"]["codes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let may_be_shown = codes.iter().any(|code| !broken.iter().any(|broken| code == broken));
        let verdict = within(&case, show).and_then(|output| {
            if output.status.success() && may_be_shown { Ok(()) } else { judge(&case, &output) }
        });
        match verdict {
            Ok(()) => shown += 1,
            Err(why) => wrong.push(format!("{}: {why}", case["id"])),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(shown >= 50, "{shown}");
}
