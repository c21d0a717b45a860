//! The store of artifacts when it is hard: killed writers, several processes, ten thousand artifacts, a full disk.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use latentia::artifact::store::{Id, Meta, Page, Query, Store, Sweep};
use latentia::error::Code;
use latentia::weights::sha256;
use serde_json::json;

use crate::store::{names, picture, store};

/// Names the folder in which [`a_writer`] works, and its number.
const WRITER: &str = "LATENTIA_TEST_WRITER";
/// Writers that are killed, and how many work at once.
const ROUNDS: usize = 200;
const AT_ONCE: usize = 4;

/// Numbers that look like chance and are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let length = 1 + self.below(most);
        (0..length).map(|_| self.below(256) as u8).collect()
    }
}

/// Writes until it is killed, and says so after each write. Only other tests start it.
#[test]
#[ignore = "started by other tests, as a process of its own"]
fn a_writer() {
    let Some(told) = std::env::var_os(WRITER) else { return };
    let told = told.into_string().unwrap();
    let [seed, count, folder] = told.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
    let store = Store::open(Path::new(folder)).unwrap();
    let mut out = std::io::stdout();
    let mut dice = Dice(seed.parse().unwrap());
    for _ in 0..count.parse::<u64>().unwrap() {
        let bytes = dice.bytes(1 << 16);
        let artifact = store.put(&bytes, &Meta::default()).unwrap();
        writeln!(out, "ack {} {}", artifact.id, artifact.sha256).unwrap();
        out.flush().unwrap();
    }
}

/// A process that runs an ignored test of this file.
fn process(test: &str, told: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&format!("store_hard::{test}"), "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(WRITER, told).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

fn writer(store: &Store, seed: u64, count: u64) -> (Child, BufReader<ChildStdout>) {
    let mut child =
        process("a_writer", &format!("{seed} {count} {}", store.path().display())).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (child, output)
}

/// Ids and digests of the lines that were written whole.
fn acknowledged(output: impl BufRead) -> Vec<(Id, String)> {
    let mut acknowledged = Vec::new();
    for line in output.lines().map_while(Result::ok) {
        // The harness may have begun the line.
        let Some((_, ack)) = line.split_once("ack ") else { continue };
        let Some((id, sha256)) = ack.split_once(' ').filter(|(_, sha256)| sha256.len() == 64) else {
            continue;
        };
        acknowledged.push((Id::parse(id).unwrap(), sha256.to_owned()));
    }
    acknowledged
}

#[test]
fn a_killed_writer_loses_nothing_that_it_acknowledged() {
    let (_folder, store) = store();
    let done = AtomicBool::new(false);
    let (acks, torn) = std::thread::scope(|scope| {
        let killers: Vec<_> = (0..AT_ONCE)
            .map(|lane| {
                let store = &store;
                scope.spawn(move || {
                    let mut dice = Dice(lane as u64 + 1);
                    let mut acks = Vec::new();
                    for round in 0..ROUNDS / AT_ONCE {
                        let seed = (1000 * lane + round) as u64;
                        let (mut child, mut output) = writer(store, seed, u64::MAX);
                        // Until it is at work.
                        let mut line = String::new();
                        while !line.ends_with('\n') || !line.contains("ack ") {
                            line.clear();
                            assert!(output.read_line(&mut line).unwrap() > 0, "the writer did not write");
                        }
                        acks.extend(acknowledged(line.as_bytes()));
                        std::thread::sleep(Duration::from_micros(1000 + dice.below(60_000)));
                        child.kill().unwrap();
                        acks.extend(acknowledged(output));
                        child.wait().unwrap();
                    }
                    acks
                })
            })
            .collect();
        // A reader never sees half a file, whatever is going on.
        let reader = scope.spawn(|| {
            let mut torn = Vec::new();
            while !done.load(Ordering::Relaxed) {
                store.refresh().unwrap();
                for artifact in store.list(&Query::default()).unwrap().artifacts {
                    torn.extend(store.get(&artifact.id).err());
                }
            }
            torn
        });
        let acks: Vec<_> = killers.into_iter().flat_map(|killer| killer.join().unwrap()).collect();
        done.store(true, Ordering::Relaxed);
        (acks, reader.join().unwrap())
    });
    assert!(torn.is_empty(), "{torn:?}");
    assert!(acks.len() > ROUNDS / 2, "only {} writes in {ROUNDS} rounds", acks.len());
    assert!(names(&store, ".tmp").len() <= ROUNDS);

    let began = Instant::now();
    let again = Store::open(store.path()).unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "opening took {:?}", began.elapsed());
    for (id, digest) in &acks {
        assert_eq!(sha256(&again.get(id).unwrap()), *digest);
    }
    assert!(again.verify().unwrap().is_empty());
    again.gc(&Sweep::default()).unwrap();
    assert!(names(&again, ".tmp").is_empty());
    for (id, digest) in &acks {
        assert_eq!(again.meta(id).unwrap().sha256, *digest);
    }
}

#[test]
fn two_processes_that_write_the_same_bytes_make_one_blob() {
    let (_folder, store) = store();
    let writers = [writer(&store, 5, 100), writer(&store, 5, 100)];
    let mut acks = Vec::new();
    for (mut child, output) in writers {
        // Sweeping meanwhile takes nothing that was acknowledged.
        store.gc(&Sweep::default()).unwrap();
        acks.push(acknowledged(output));
        assert!(child.wait().unwrap().success());
    }
    store.gc(&Sweep::default()).unwrap();
    assert_eq!(acks[0].len(), 100);
    assert_eq!(acks[0], acks[1]);
    assert_eq!((names(&store, ".bin").len(), names(&store, ".meta.json").len()), (100, 100));
    assert!(names(&store, ".tmp").is_empty());
    for (id, digest) in &acks[0] {
        assert_eq!(sha256(&store.get(id).unwrap()), *digest);
    }
}

#[test]
fn ten_thousand_artifacts_open_and_list_at_once() {
    let (_folder, store) = store();
    let path = store.path().to_owned();
    drop(store);
    for number in 0..10_000_u32 {
        let bytes = number.to_le_bytes();
        let digest = sha256(&bytes);
        let id = &digest[..32];
        fs::write(path.join(format!("{id}.png")), bytes).unwrap();
        let record = json!({
            "schema": "abstractvision.asset.v1", "artifact_id": id, "content_type": "image/png", "size_bytes": 4,
            "sha256": digest, "created_at": Timestamp::from_second(i64::from(number)).unwrap().to_string(),
            "content_file": format!("{id}.png"), "metadata": { "prompt": format!("picture number {number}") },
        });
        fs::write(path.join(format!("{id}.meta.json")), record.to_string()).unwrap();
    }
    // The first time everything is read; the bound is for every other time.
    drop(Store::open(&path).unwrap());
    let best = |task: &mut dyn FnMut()| {
        let mut times: Vec<_> = (0..3)
            .map(|_| {
                let began = Instant::now();
                task();
                began.elapsed()
            })
            .collect();
        times.sort();
        times[0]
    };
    let took = best(&mut || drop(Store::open(&path).unwrap()));
    assert!(took < Duration::from_secs(1), "opening took {took:?}");
    let store = Store::open(&path).unwrap();
    assert_eq!(store.total().unwrap().0, 10_000);
    let mut query = Query::default();
    for _ in 0..50 {
        query.after = store.list(&query).unwrap().next;
    }
    for query in [Query::default(), query, Query { text: Some("number 77".into()), ..Query::default() }] {
        let mut page = Page::default();
        let took = best(&mut || page = store.list(&query).unwrap());
        assert!(took < Duration::from_millis(50), "{query:?} took {took:?}");
        assert!(!page.artifacts.is_empty());
    }
}

/// In a file system of 4 MB of its own. Only another test starts it.
#[test]
#[ignore = "started by another test, as a process of its own"]
fn a_full_disk() {
    let Some(folder) = std::env::var_os(WRITER).map(PathBuf::from) else { return };
    let store = Store::open(&folder.join("store")).unwrap();
    let first = store.put(&picture(), &Meta::default()).unwrap();
    let (mut full, mut fitted) = (0, 0);
    for kibibytes in (0..=200).step_by(4) {
        let filler = folder.join("filler");
        let mut file = fs::File::create(&filler).unwrap();
        // All there is, then so much less.
        let mut length = 0;
        while let Ok(written @ 1..) = file.write(&[0; 4096]) {
            length += written as u64;
        }
        file.set_len(length.saturating_sub(kibibytes << 10)).unwrap();
        drop(file);
        let bytes = Dice(kibibytes).bytes(1).repeat(100 << 10);
        match store.put(&bytes, &Meta::default()) {
            Ok(artifact) => {
                fitted += 1;
                assert_eq!(store.get(&artifact.id).unwrap(), bytes);
                fs::remove_file(&filler).unwrap();
                store.delete(&artifact.id, true).unwrap();
            }
            Err(error) => {
                full += 1;
                assert_eq!(error.code, Code::StoreFull, "{error}");
                assert!(names(&store, ".tmp").is_empty(), "{:?}", names(&store, ".tmp"));
                fs::remove_file(&filler).unwrap();
            }
        }
        assert!(store.verify().unwrap().is_empty());
        // What was not acknowledged may be there, whole; it is no matter which.
        for artifact in store.list(&Query::default()).unwrap().artifacts {
            if artifact.id != first.id {
                store.delete(&artifact.id, true).unwrap();
            }
        }
    }
    assert!(full > 20 && fitted > 5, "{full} refused, {fitted} fitted");
    assert_eq!(store.get(&first.id).unwrap(), picture());
}

#[test]
fn a_full_disk_is_said_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mount = format!(
        "mount -t tmpfs -o size=4m tmpfs '{0}' && exec \"$0\" store_hard::a_full_disk --exact --ignored --nocapture",
        folder.path().display()
    );
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount])
        .arg(std::env::current_exe().unwrap())
        .env(WRITER, folder.path())
        .output();
    let said =
        |output: &Output| [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it).into_owned());
    match output.as_ref().map(|output| (output.status.success(), said(output))) {
        Ok((true, [stdout, _])) => assert!(stdout.contains("1 passed"), "{stdout}"),
        Ok((false, [stdout, stderr])) if stdout.contains("running 1 test") => panic!("{stdout}{stderr}"),
        _ => println!("skipped: this machine lends no file system of its own"),
    }
}
