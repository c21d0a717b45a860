//! `latentia pull` against a hub on loopback, good and bad: a whole verified model, or a typed error and nothing that
//! looks like a model.

mod hostile;
mod offline;
mod server;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use server::{Answer, Asked, COMMIT, File, Server, good};

/// The command with this home, and nothing of the machine's own settings.
fn latentia(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_latentia"));
    for name in std::env::vars_os().map(|(name, _)| name) {
        let text = name.to_string_lossy().to_uppercase();
        if text.starts_with("HF_") || text.ends_with("_PROXY") || text == "SSL_CERT_FILE" {
            command.env_remove(name);
        }
    }
    command.current_dir(home).env("LATENTIA_HOME", home).env("HF_HOME", home.join("hf")).stdin(Stdio::null());
    command
}

fn pull(home: &Path, hub: &Server, more: &[&str]) -> Command {
    let mut command = latentia(home);
    command.env("HF_ENDPOINT", hub.url()).args(["pull", "--json"]).args(more);
    command
}

fn home() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// The answer of a command that succeeded.
#[track_caller]
fn ok(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"))
}

/// The code of a command that failed.
#[track_caller]
fn code(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let text = String::from_utf8_lossy(&output.stdout);
    let value: Value = serde_json::from_str(text.lines().last().unwrap_or("")).expect("an error object");
    value["error"]["code"].as_str().expect("a code").to_owned()
}

/// Every file below a folder, by its path, but for locks.
fn tree(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(root: &Path, folder: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(root, &path, found);
            } else if path.extension().is_none_or(|ending| ending != "lock") {
                let name = path.strip_prefix(root).expect("below").to_string_lossy().into_owned();
                found.insert(name, fs::read(&path).expect("readable"));
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(folder, folder, &mut found);
    found
}

/// Models that look whole, by what the command lists as installed.
fn installed(home: &Path) -> Vec<String> {
    let output = latentia(home).args(["du", "--json"]).output().expect("runs");
    let models = ok(&output)["models"].as_array().cloned().unwrap_or_default();
    let whole = models.iter().filter(|model| model["unfinished"] != true);
    whole.filter_map(|model| model["model"].as_str().map(str::to_owned)).collect()
}

/// A small pipeline with more in it than one model needs.
fn pipeline() -> Vec<File> {
    let model = crate::fixtures::compact().join("sd15/model");
    let mut files = vec![
        File::small(".gitattributes", "*.safetensors filter=lfs"),
        File::small("README.md", "# a model"),
        File::large("all-in-one.safetensors", vec![1; 5000]),
        File::large("unet/diffusion_pytorch_model.bin", vec![2; 5000]),
    ];
    for (path, bytes) in tree(&model) {
        let large = path.ends_with(".safetensors");
        files.push(File { path, bytes, large });
    }
    files
}

fn serve(files: &[File]) -> Server {
    let files = files.to_vec();
    Server::start(move |asked| good(&files, asked))
}

#[test]
fn a_pull_brings_what_a_model_needs_and_it_draws() {
    let (home, files) = (home(), pipeline());
    let hub = serve(&files);
    let planned = ok(&pull(home.path(), &hub, &["org/tiny", "--dry-run"]).output().expect("runs"));
    assert!(tree(home.path()).is_empty() && planned["dry_run"] == true);
    assert_eq!((planned["commit"].as_str(), planned["licence"].as_str()), (Some(COMMIT), Some("permissive")));
    let output = pull(home.path(), &hub, &["org/tiny"]).output().expect("runs");
    let pulled = ok(&output);
    assert_eq!(pulled["bytes"], planned["bytes"]);
    let place = home.path().join("models/tiny");
    let here = tree(&place);
    for file in &files[4..] {
        assert_eq!(here.get(&file.path), Some(&file.bytes), "{}", file.path);
    }
    assert!(
        !here.contains_key("all-in-one.safetensors")
            && !here.contains_key("unet/diffusion_pytorch_model.bin")
    );
    assert_eq!(here.len(), files.len() - 4 + 1, "{:?}", here.keys());
    assert!(tree(&home.path().join("models/.pull")).is_empty());

    // Again: nothing travels.
    let before = hub.asked().len();
    let again = ok(&pull(home.path(), &hub, &["org/tiny"]).output().expect("runs"));
    assert_eq!((again["already_here"].as_bool(), again["fetched_bytes"].as_u64()), (Some(true), Some(0)));
    assert!(hub.asked()[before..].iter().all(|asked| !asked.path.ends_with(".safetensors")));

    drop(hub);
    let run = |arguments: &[&str]| latentia(home.path()).args(arguments).output().expect("runs");
    for model in ["tiny", "org/tiny"] {
        let output = run(&["generate", "x", "--steps", "1", "-m", model, "-o", "x.png"]);
        assert!(output.status.success(), "{model}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(installed(home.path()), ["tiny"]);
    for name in ["tiny", "org/tiny"] {
        let verified = ok(&run(&["verify", name, "--json"]));
        let compared = verified["files"].as_array().expect("files").iter();
        assert!(
            compared.clone().count() > 5 && compared.clone().all(|file| file["compared"] == true),
            "{name}"
        );
    }
    let other = run(&["rm", "org/tiny", "--yes", "--json"]);
    assert_eq!(code(&other), "model_not_found");
    assert!(String::from_utf8_lossy(&other.stderr).contains("latentia rm tiny"));
    let verified = ok(&run(&["verify", "tiny", "--full", "--json"]));
    assert_eq!(verified["files"].as_array().map(Vec::len), Some(files.len() - 4));
    let weights = place.join("unet/diffusion_pytorch_model.safetensors");
    let mut bytes = fs::read(&weights).expect("read");
    *bytes.last_mut().expect("bytes") ^= 1;
    fs::write(&weights, bytes).expect("written");
    assert!(run(&["verify", "tiny"]).status.success());
    assert_eq!(code(&run(&["verify", "tiny", "--full", "--json"])), "weights_corrupt");
    fs::write(&weights, b"short").expect("written");
    assert_eq!(code(&run(&["verify", "tiny", "--json"])), "weights_corrupt");
    // A damaged model is brought again, and only what is damaged.
    let hub = serve(&files);
    let mended = ok(&pull(home.path(), &hub, &["org/tiny"]).output().expect("runs"));
    let size =
        files.iter().find(|file| file.path.starts_with("unet/") && file.path.ends_with("model.safetensors"));
    let own = size.map_or(0, |file| file.bytes.len() as u64);
    let small: u64 = files[4..].iter().filter(|file| !file.large).map(|file| file.bytes.len() as u64).sum();
    assert_eq!(mended["fetched_bytes"].as_u64(), Some(own + small));
    assert!(run(&["verify", "tiny", "--full"]).status.success());
    assert_eq!(run(&["rm", "tiny"]).status.code(), Some(2));
    assert!(run(&["rm", "tiny", "--yes"]).status.success());
    assert!(installed(home.path()).is_empty() && !place.exists());
}

#[test]
fn a_newer_commit_takes_the_place_of_the_older_and_shares_what_is_the_same() {
    const NEWER: &str = "cccccccccccccccccccccccccccccccccccccccc";
    let home = home();
    let index = File::small("model.safetensors.index.json", r#"{"weight_map":{}}"#);
    let shard = |number: usize, byte: u8| {
        File::large(&format!("model-0000{number}-of-00002.safetensors"), vec![byte; 50_000])
    };
    let hub = serve(&[index.clone(), shard(1, 1), shard(2, 2)]);
    ok(&pull(home.path(), &hub, &["org/tiny"]).output().expect("runs"));
    let files = vec![index, shard(1, 1), shard(2, 3)];
    let own = files.clone();
    let newer = Server::start(move |asked| {
        let mut answer = good(&own, &Asked { path: asked.path.replace(NEWER, COMMIT), ..asked.clone() });
        answer.headers.iter_mut().for_each(|(_, value)| *value = value.replace(COMMIT, NEWER));
        if asked.path.starts_with("/api/") {
            answer.body = String::from_utf8_lossy(&answer.body).replace(COMMIT, NEWER).into_bytes();
        }
        answer
    });
    let pulled = ok(&pull(home.path(), &newer, &["org/tiny"]).output().expect("runs"));
    assert_eq!(pulled["commit"], NEWER);
    assert_eq!(pulled["fetched_bytes"].as_u64(), Some(50_000 + files[0].bytes.len() as u64));
    for file in &files {
        let here = fs::read(home.path().join("models/tiny").join(&file.path)).expect("read");
        assert_eq!(here, file.bytes, "{}", file.path);
    }
    let verified = latentia(home.path()).args(["verify", "tiny", "--full"]).output().expect("runs");
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}

#[test]
fn tls_is_trusted_by_roots_and_nothing_else() {
    const TOKEN: &str = "hf_canary0123456789";
    let home = home();
    let files = vec![File::large("model.safetensors", vec![7; 1000])];
    let own = files.clone();
    let hub = Server::secure(move |asked| good(&own, asked));
    let run = |command: &mut Command| command.env("HF_TOKEN", TOKEN).output().expect("runs");
    // Mozilla's roots do not know it, and nobody who is not known hears a token.
    let unknown = run(&mut pull(home.path(), &hub, &["org/tiny"]));
    assert_eq!(code(&unknown), "download_failed");
    let said = String::from_utf8_lossy(&unknown.stderr);
    assert!(said.contains("certificate") && said.contains("SSL_CERT_FILE"), "{said}");
    assert!(hub.asked().is_empty(), "{:?}", hub.asked());
    let certificate = server::tls("certificate.pem");
    ok(&run(pull(home.path(), &hub, &["org/tiny"]).env("SSL_CERT_FILE", &certificate)));
    let bearer = hub.asked()[0].headers.get("authorization").cloned();
    assert_eq!(bearer, Some(format!("Bearer {TOKEN}")));
    for (file, expected) in
        [(server::tls("key.pem"), "invalid_argument"), (home.path().join("none"), "file_not_found")]
    {
        let wrong = run(pull(home.path(), &hub, &["org/tiny", "--name", "x"]).env("SSL_CERT_FILE", file));
        assert_eq!(code(&wrong), expected);
    }
    // A server without TLS is not asked in the open because an address says https.
    let open = serve(&files);
    let secure = open.url().replace("http:", "https:");
    let output = run(pull(home.path(), &open, &["org/tiny", "--name", "x"]).env("HF_ENDPOINT", secure));
    assert_eq!(code(&output), "download_failed");
    assert!(!format!("{:?}", open.asked()).contains(TOKEN));
}

#[test]
fn a_proxy_of_the_environment_is_asked_and_gets_no_token() {
    let home = home();
    let proxy = Server::start(|_| Answer::new(403, &[], ""));
    let files = vec![File::large("model.safetensors", vec![7; 1000])];
    let hub = serve(&files);
    let token = "hf_canary0123456789";
    let through = latentia(home.path())
        .env("HF_ENDPOINT", "https://hub.invalid")
        .env("HF_TOKEN", token)
        .env("HTTPS_PROXY", proxy.url())
        .args(["pull", "org/tiny", "--json"])
        .output()
        .expect("runs");
    assert_eq!(code(&through), "download_failed");
    let asked = proxy.asked();
    assert!(
        asked.iter().all(|asked| asked.method == "CONNECT" && asked.path == "hub.invalid:443"),
        "{asked:?}"
    );
    assert!(!asked.is_empty() && !format!("{asked:?}").contains(token), "{asked:?}");
    // What NO_PROXY names is asked directly.
    let before = proxy.asked().len();
    ok(&pull(home.path(), &hub, &["org/tiny"])
        .env("ALL_PROXY", proxy.url())
        .env("NO_PROXY", "127.0.0.1")
        .output()
        .expect("runs"));
    assert_eq!(proxy.asked().len(), before);
}

#[test]
fn one_file_of_a_pipelines_repository_is_pulled_by_its_name() {
    let (home, files) = (home(), pipeline());
    let hub = serve(&files);
    let pulled = ok(&pull(home.path(), &hub, &["org/tiny:all-in-one.safetensors"]).output().expect("runs"));
    assert_eq!(pulled["model"], "all-in-one");
    let here = tree(&home.path().join("models/all-in-one"));
    assert_eq!(here.keys().collect::<Vec<_>>(), ["all-in-one.safetensors", "pulled.json"]);
}

/// A repository of one large file, sent slowly.
fn slow(bytes: usize, pace: usize) -> (Vec<File>, Server) {
    let data: Vec<u8> = (0..bytes).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let files = vec![File::large("model.safetensors", data)];
    let own = files.clone();
    let hub = Server::start(move |asked| Answer { pace: Some(pace), ..good(&own, asked) });
    (files, hub)
}

/// Waits until a pull has some bytes of its file on disk.
fn wait_for_bytes(home: &Path, child: &mut Child) -> usize {
    let began = Instant::now();
    loop {
        let there: usize = tree(&home.join("models/.pull")).values().map(Vec::len).max().unwrap_or(0);
        if there > 100_000 {
            return there;
        }
        assert!(child.try_wait().expect("a child").is_none(), "it ended too soon");
        assert!(began.elapsed() < Duration::from_secs(60), "nothing came");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Pulls the file of `files` at full speed and says with which byte the hub was asked to begin.
fn finish(home: &Path, files: &[File]) -> usize {
    let hub = serve(files);
    let pulled = ok(&pull(home, &hub, &["org/tiny"]).output().expect("runs"));
    assert_eq!(fs::read(home.join("models/tiny/model.safetensors")).expect("read"), files[0].bytes);
    let gets =
        hub.asked().into_iter().filter(|asked| asked.method == "GET" && asked.path.contains("/resolve/"));
    let gets: Vec<Asked> = gets.collect();
    assert_eq!(gets.len(), 1, "{gets:?}");
    let first: usize = gets[0].headers.get("range").map_or(0, |range| {
        range.trim_start_matches("bytes=").trim_end_matches('-').parse().expect("a number")
    });
    assert!(gets[0].headers.get("if-range").is_some_and(|etag| etag.starts_with("\"bytes-")));
    assert_eq!(pulled["fetched_bytes"].as_u64(), Some((files[0].bytes.len() - first) as u64));
    first
}

#[test]
fn a_pull_that_was_killed_goes_on_where_it_ended() {
    let home = home();
    let (files, hub) = slow(3_000_000, 1_000_000);
    let mut child = pull(home.path(), &hub, &["org/tiny"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    let there = wait_for_bytes(home.path(), &mut child);
    child.kill().expect("killed");
    child.wait().expect("ends");
    assert!(installed(home.path()).is_empty(), "a half model looks whole");
    let du = ok(&latentia(home.path()).args(["du", "--json"]).output().expect("runs"));
    assert_eq!(du["models"][0]["unfinished"], true);
    assert!(finish(home.path(), &files) >= there);
    assert_eq!(installed(home.path()), ["tiny"]);
}

#[test]
fn an_interrupt_keeps_what_has_arrived() {
    let home = home();
    let (files, hub) = slow(3_000_000, 1_000_000);
    let mut child = pull(home.path(), &hub, &["org/tiny"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    let there = wait_for_bytes(home.path(), &mut child);
    let asked = Instant::now();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill").success());
    assert_eq!(child.wait().expect("ends").code(), Some(130));
    assert!(asked.elapsed() < Duration::from_secs(2), "took {:?}", asked.elapsed());
    assert!(installed(home.path()).is_empty(), "a half model looks whole");
    assert!(finish(home.path(), &files) >= there);
    // What was begun can be given up, too.
    let mut child = pull(home.path(), &hub, &["org/tiny", "--name", "other"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    wait_for_bytes(home.path(), &mut child);
    let rm = |name: &str| latentia(home.path()).args(["rm", name, "--json"]).output().expect("runs");
    assert_eq!(code(&rm("other")), "busy");
    child.kill().expect("killed");
    child.wait().expect("ends");
    assert!(rm("other").status.success());
    assert_eq!(code(&rm("other")), "model_not_found");
}

#[test]
fn two_processes_that_pull_at_once_bring_it_once() {
    let home = home();
    let (files, hub) = slow(400_000, 1_000_000);
    let start = || {
        let mut command = pull(home.path(), &hub, &["org/tiny"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs")
    };
    let (first, second) = (start(), start());
    let outputs = [first.wait_with_output().expect("ends"), second.wait_with_output().expect("ends")];
    let travelled: u64 = outputs.iter().map(|output| ok(output)["fetched_bytes"].as_u64().unwrap_or(0)).sum();
    assert_eq!(travelled, 400_000);
    assert_eq!(fs::read(home.path().join("models/tiny/model.safetensors")).expect("read"), files[0].bytes);
}

#[test]
fn a_beginning_of_another_file_is_found_out_and_fetched_again() {
    let home = home();
    let (files, hub) = slow(1_000_000, 300_000);
    let mut child = pull(home.path(), &hub, &["org/tiny"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    wait_for_bytes(home.path(), &mut child);
    child.kill().expect("killed");
    child.wait().expect("ends");
    let waiting = home.path().join("models/.pull/tiny/files");
    let part = fs::read_dir(&waiting).expect("read").flatten().map(|entry| entry.path());
    let part = part
        .into_iter()
        .find(|path| path.extension().is_some_and(|ending| ending == "part"))
        .expect("a part");
    let mut bytes = fs::read(&part).expect("read");
    bytes[7] ^= 1;
    fs::write(&part, bytes).expect("written");
    let hub = serve(&files);
    ok(&pull(home.path(), &hub, &["org/tiny"]).output().expect("runs"));
    assert_eq!(fs::read(home.path().join("models/tiny/model.safetensors")).expect("read"), files[0].bytes);
}

#[test]
fn a_connection_that_breaks_is_taken_up_again() {
    let home = home();
    let files = vec![File::large("model.safetensors", vec![7; 300_000])];
    let (own, count) = (files.clone(), Arc::new(AtomicUsize::new(0)));
    let hub = Server::start(move |asked| {
        let mut answer = good(&own, asked);
        if asked.method == "GET"
            && asked.path.contains("/resolve/")
            && count.fetch_add(1, Ordering::Relaxed) < 4
        {
            answer.body.truncate(60_000);
        }
        answer
    });
    let pulled = ok(&pull(home.path(), &hub, &["org/tiny"]).output().expect("runs"));
    assert_eq!(pulled["fetched_bytes"].as_u64(), Some(300_000));
}

#[test]
fn a_token_goes_to_the_hub_and_to_nobody_else() {
    const TOKEN: &str = "hf_canary0123456789";
    let home = home();
    let files = vec![File::large("model.safetensors", vec![7; 1000])];
    let own = files.clone();
    let hub = Server::start(move |asked| {
        let bearer = format!("Bearer {TOKEN}");
        if asked.headers.get("authorization") != Some(&bearer) {
            return Answer::new(401, &[("x-error-code", "GatedRepo")], "");
        }
        good(&own, asked)
    });
    let refused = pull(home.path(), &hub, &["org/tiny"]).output().expect("runs");
    assert_eq!((code(&refused).as_str(), refused.status.code()), ("hub_auth_required", Some(4)));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("HF_TOKEN"));
    let wrong = pull(home.path(), &hub, &["org/tiny"]).env("HF_TOKEN", "hf_wrong").output().expect("runs");
    assert_eq!(code(&wrong), "hub_auth_required");
    for text in [&wrong.stdout, &wrong.stderr] {
        assert!(!String::from_utf8_lossy(text).contains("hf_wrong"));
    }
    let broken =
        pull(home.path(), &hub, &["org/tiny"]).env("HF_TOKEN", "hf_two words").output().expect("runs");
    assert_eq!(code(&broken), "invalid_argument");
    assert!(!String::from_utf8_lossy(&broken.stderr).contains("two words"));
    fs::create_dir(home.path().join("hf")).expect("made");
    fs::write(home.path().join("hf/token"), format!("{TOKEN}\n")).expect("written");
    ok(&pull(home.path(), &hub, &["org/tiny", "--name", "a"]).output().expect("runs"));
    fs::rename(home.path().join("hf/token"), home.path().join("token")).expect("moved");
    ok(&pull(home.path(), &hub, &["org/tiny", "--name", "b"])
        .env("HF_TOKEN_PATH", "token")
        .output()
        .expect("runs"));
    ok(&pull(home.path(), &hub, &["org/tiny", "--name", "c"]).env("HF_TOKEN", TOKEN).output().expect("runs"));
    for bytes in tree(&home.path().join("models")).values() {
        assert!(!String::from_utf8_lossy(bytes).contains(TOKEN), "the token is on disk");
    }
    // A hub without TLS that is not this machine gets none.
    let open = latentia(home.path())
        .env("HF_ENDPOINT", "http://hub.invalid")
        .env("HF_TOKEN", TOKEN)
        .args(["pull", "org/tiny", "--json"])
        .output()
        .expect("runs");
    assert_eq!(code(&open), "invalid_argument");
    assert!(!String::from_utf8_lossy(&open.stderr).contains(TOKEN));
}

#[test]
fn names_that_are_taken_and_what_cannot_be_is_said() {
    let home = home();
    let files = vec![File::large("model.safetensors", vec![7; 1000])];
    let hub = serve(&files);
    let run = |more: &[&str]| pull(home.path(), &hub, more).output().expect("runs");
    fs::create_dir_all(home.path().join("models/mine")).expect("made");
    fs::write(home.path().join("models/theirs.safetensors"), "").expect("written");
    for name in ["mine", "theirs"] {
        assert_eq!(code(&run(&["org/tiny", "--name", name])), "already_exists", "{name}");
    }
    ok(&run(&["org/tiny", "--name", "a"]));
    assert_eq!(code(&run(&["other/tiny", "--name", "a"])), "already_exists");
    assert_eq!(code(&run(&["org/tiny", "--name", "../a"])), "invalid_argument");
    assert_eq!(code(&run(&["org/tiny:int3"])), "invalid_argument");
    assert_eq!(code(&run(&["../../etc"])), "invalid_argument");
    assert_eq!(code(&run(&["nothing-of-the-kind"])), "model_not_found");
    assert_eq!(code(&run(&["org/tiny", "--revision", "../x"])), "invalid_argument");
    let offline = pull(home.path(), &hub, &["org/tiny"]).env("HF_HUB_OFFLINE", "1").output().expect("runs");
    assert_eq!((code(&offline).as_str(), offline.status.code()), ("offline", Some(7)));
    let pickles = Server::start(|asked| good(&[File::large("model.ckpt", vec![0; 10])], asked));
    assert_eq!(
        code(&pull(home.path(), &pickles, &["org/old"]).output().expect("runs")),
        "unsupported_format"
    );
    let gone = serve(&files).url();
    let nobody = latentia(home.path())
        .env("HF_ENDPOINT", gone)
        .args(["pull", "org/b", "--json"])
        .output()
        .expect("runs");
    assert_eq!((code(&nobody).as_str(), nobody.status.code()), ("download_failed", Some(8)));
    // More than any disk has: refused before anything travels.
    let huge = Server::start(|asked| {
        let digest = "b".repeat(64);
        let file = serde_json::json!({ "rfilename": "model.safetensors", "size": 4_u64 << 40,
            "lfs": { "sha256": digest, "size": 4_u64 << 40 } });
        assert!(asked.path.starts_with("/api/"), "{asked:?}");
        server::listing(&[file], &Value::Null)
    });
    let full = pull(home.path(), &huge, &["org/huge"]).output().expect("runs");
    assert_eq!((code(&full).as_str(), full.status.code()), ("store_full", Some(6)));
    assert_eq!(installed(home.path()), ["a", "theirs"]);
}

#[test]
fn what_can_be_fetched_is_listed_and_what_is_not_here_names_its_remedy() {
    let home = home();
    let run = |arguments: &[&str]| latentia(home.path()).args(arguments).output().expect("runs");
    let available = ok(&run(&["models", "--available", "--json"]));
    let offers = available["available"].as_array().expect("offers");
    assert!(offers.len() >= 30 && offers.iter().all(|offer| offer["checked"].is_boolean()));
    for (model, remedy) in [("sdxl", "latentia pull sdxl"), ("org/name", "latentia pull org/name")] {
        let output = run(&["generate", "x", "--json", "-m", model]);
        assert_eq!(
            (code(&output).as_str(), output.status.code()),
            ("model_not_downloaded", Some(3)),
            "{model}"
        );
        assert!(String::from_utf8_lossy(&output.stderr).contains(remedy), "{model}");
    }
    for model in ["nothing-of-the-kind", "folder/file.safetensors", "../nothing-of-the-kind"] {
        assert_eq!(code(&run(&["generate", "x", "--json", "-m", model])), "model_not_found", "{model}");
    }
}
