//! The hub cases of the hostile corpus: each gives its code within its bounds, and writes nowhere but where it may.

use std::collections::HashMap;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;

use super::server::{Answer, Asked, File, Server, good, listing};
use super::{code, installed, latentia, ok, pull, tree};
use crate::corpus::{Ended, cases, run};

/// What the scenarios' one file is, where the hub is good.
fn right() -> File {
    File::large("model.safetensors", vec![b'G'; 4096])
}

/// Answers as a scenario says; `{CANARY}` is a port where nobody may knock.
fn scenario(text: &str, canary: u16) -> Server {
    let script: Value =
        serde_json::from_str(&text.replace("{CANARY}", &canary.to_string())).expect("a scenario");
    let turns = Mutex::new(HashMap::<String, usize>::new());
    Server::start(move |asked: &Asked| {
        if asked.path.starts_with("/api/models/") {
            let items = script["listing"].as_array().expect("a listing");
            return listing(items, &Value::Null);
        }
        let file = asked.path.rsplit('/').next().unwrap_or("");
        let key = format!("{} {file}", asked.method);
        let mut turn = &script[&key];
        if let Some(sequence) = turn["sequence"].as_array() {
            let mut turns = turns.lock().expect("turns");
            let count = turns.entry(key).or_default();
            turn = &sequence[(*count).min(sequence.len() - 1)];
            *count += 1;
        }
        let headers = turn["headers"].as_object().into_iter().flatten();
        let headers = headers.filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)));
        let body = decode(turn["body_b64"].as_str().unwrap_or(""));
        Answer::new(
            u16::try_from(turn["status"].as_u64().unwrap_or(404)).expect("a status"),
            &headers.collect::<Vec<_>>(),
            body,
        )
    })
}

/// Base 64, as the corpus has it.
fn decode(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u32> = text.bytes().filter_map(value).map(u32::from).collect();
    let group = |group: &[u32]| {
        let bits = group.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - group.len()));
        bits.to_be_bytes()[1..group.len()].to_vec()
    };
    digits.chunks(4).flat_map(group).collect()
}

/// The verdict on one case; `Err` says what is wrong with us.
fn judge(case: &Value, corpus: &Path) -> Result<(), String> {
    let root = super::home();
    let home = root.path().join("home");
    let outside = root.path().join("outside");
    for folder in [&home, &outside] {
        fs::create_dir(folder).map_err(|error| error.to_string())?;
    }
    let canary = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = canary.local_addr().map_err(|error| error.to_string())?.port();
    let text = fs::read_to_string(corpus.join(case["file"].as_str().unwrap_or("")))
        .map_err(|error| error.to_string())?;
    let hub = scenario(&text, port);
    let implicit = text.contains("\"do\"");
    let mut command = pull(&home, &hub, &["hostile/model"]);
    if implicit {
        command = latentia(&home);
        command.env("HF_ENDPOINT", hub.url()).args(["generate", "x", "--json", "-m", "hostile/model"]);
    }
    let Ended { output, took, peak_mib } = run(command.env("HF_TOKEN", "hf_canary"));
    if took > Duration::from_secs(case["bounds"]["seconds"].as_u64().ok_or("no bound")?) {
        return Err(format!("took {took:?}"));
    }
    if peak_mib > case["bounds"]["rss_mib"].as_u64().ok_or("no bound")? {
        return Err(format!("held {peak_mib} MiB"));
    }
    for text in [&output.stdout, &output.stderr] {
        let text = String::from_utf8_lossy(text);
        if text.contains("hf_canary")
            || text.contains("panicked")
            || (!output.status.success() && text.contains(&*root.path().to_string_lossy()))
        {
            return Err(format!("gives something away: {text}"));
        }
    }
    if tree(root.path()).keys().any(|path| !path.starts_with("home/models/")) {
        return Err(format!("wrote elsewhere: {:?}", tree(root.path()).keys()));
    }
    canary.set_nonblocking(true).map_err(|error| error.to_string())?;
    if canary.accept().is_ok() {
        return Err("followed a redirect inwards".into());
    }
    if implicit && !hub.asked().is_empty() {
        return Err("asked the hub without being told to".into());
    }
    if case["expect"]["class"] == "accept" {
        ok(&output);
        let stored =
            fs::read(home.join("models/model/model.safetensors")).map_err(|error| error.to_string())?;
        return if stored == right().bytes { Ok(()) } else { Err("stored other bytes".into()) };
    }
    let given = code(&output);
    if !case["expect"]["codes"].as_array().is_some_and(|codes| codes.iter().any(|code| *code == given)) {
        return Err(format!("gave {given}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    if !installed(&home).is_empty() {
        return Err("a half model looks whole".into());
    }
    // A good hub mends it.
    let hub = Server::start(|asked| good(&[right()], asked));
    ok(&pull(&home, &hub, &["hostile/model"]).output().map_err(|error| error.to_string())?);
    if installed(&home) == ["model"] { Ok(()) } else { Err("cannot be mended".into()) }
}

#[test]
fn the_corpus_ends_in_a_whole_model_or_its_codes() {
    let Some(corpus) = crate::fixtures::hostile() else { return };
    let cases = cases(&corpus, &["hub"]);
    assert!(cases.len() >= 10);
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| judge(case, &corpus).err().map(|why| format!("{}: {why}", case["id"])))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// One answer of an otherwise good hub, and what must come of it.
struct Lie {
    what: &'static str,
    codes: &'static [&'static str],
    tell: fn(&Asked, Answer) -> Answer,
}

fn is_get(asked: &Asked) -> bool {
    asked.method == "GET" && asked.path.contains("/resolve/")
}

/// Puts a header in place of the one of its name.
fn with(mut answer: Answer, name: &str, value: &str) -> Answer {
    answer.headers.retain(|(known, _)| known != name);
    answer.headers.push((name.into(), value.into()));
    answer
}

const LIES: &[Lie] = &[
    Lie {
        what: "wrong bytes of the right size",
        codes: &["download_corrupt"],
        tell: |asked, mut answer| {
            if is_get(asked) {
                answer.body.iter_mut().for_each(|byte| *byte ^= 1);
            }
            answer
        },
    },
    Lie {
        what: "nothing, every time",
        codes: &["download_failed"],
        tell: |asked, mut answer| {
            if is_get(asked) {
                answer.body.clear();
            }
            answer
        },
    },
    Lie {
        what: "more bytes than listed, no length",
        codes: &["download_corrupt"],
        tell: |asked, mut answer| {
            if is_get(asked) {
                answer.headers.clear();
                answer.body.extend([0; 100]);
            }
            answer
        },
    },
    Lie {
        what: "another length",
        codes: &["download_corrupt"],
        tell: |asked, answer| {
            if is_get(asked) { with(answer, "content-length", "4097") } else { answer }
        },
    },
    Lie {
        what: "an absurd size in the head",
        codes: &["download_corrupt"],
        tell: |_, answer| with(answer, "x-linked-size", "99999999999999999999"),
    },
    Lie {
        what: "an etag that leads out",
        codes: &["download_corrupt"],
        tell: |asked, answer| {
            if asked.method == "HEAD" {
                with(answer, "x-linked-etag", "\"../../../planted\"")
            } else {
                answer
            }
        },
    },
    Lie {
        what: "another commit in the head",
        codes: &["download_corrupt"],
        tell: |asked, answer| {
            if asked.method == "HEAD" { with(answer, "x-repo-commit", "../../x") } else { answer }
        },
    },
    Lie {
        what: "a page of HTML",
        codes: &["download_corrupt"],
        tell: |asked, answer| {
            if is_get(asked) { with(answer, "content-type", "text/html; charset=utf-8") } else { answer }
        },
    },
    Lie {
        what: "packed bytes",
        codes: &["download_corrupt"],
        tell: |asked, answer| {
            if is_get(asked) { with(answer, "content-encoding", "gzip") } else { answer }
        },
    },
    Lie {
        what: "a redirect without end",
        codes: &["download_failed"],
        tell: |asked, answer| {
            if is_get(asked) { Answer::new(302, &[("location", &asked.path)], "") } else { answer }
        },
    },
    Lie {
        what: "a redirect to a file of this machine",
        codes: &["url_not_allowed"],
        tell: |asked, answer| {
            if is_get(asked) { Answer::new(302, &[("location", "file:///etc/passwd")], "") } else { answer }
        },
    },
    Lie {
        what: "a redirect to a private network",
        codes: &["url_not_allowed"],
        tell: |asked, answer| {
            if is_get(asked) {
                Answer::new(302, &[("location", "https://192.168.0.1/x")], "")
            } else {
                answer
            }
        },
    },
    Lie {
        what: "a redirect nowhere",
        codes: &["url_not_allowed"],
        tell: |asked, answer| {
            if is_get(asked) { Answer::new(302, &[], "") } else { answer }
        },
    },
    Lie {
        what: "a listing that is a page",
        codes: &["download_corrupt"],
        tell: |asked, answer| {
            if asked.path.starts_with("/api/") {
                Answer::new(200, &[], "<html>sign in</html>")
            } else {
                answer
            }
        },
    },
    Lie {
        what: "a listing of a private repository",
        codes: &["hub_auth_required"],
        tell: |_, _| Answer::new(401, &[], ""),
    },
    Lie {
        what: "a repository that is not there",
        codes: &["model_not_found"],
        tell: |_, _| Answer::new(404, &[("x-error-code", "RepoNotFound")], ""),
    },
    Lie {
        what: "a revision that is not there",
        codes: &["model_not_found"],
        tell: |_, _| Answer::new(404, &[("x-error-code", "RevisionNotFound")], ""),
    },
    Lie {
        what: "a file that is listed and not there",
        codes: &["download_failed"],
        tell: |asked, answer| {
            if asked.path.starts_with("/api/") {
                answer
            } else {
                Answer::new(404, &[("x-error-code", "EntryNotFound")], "")
            }
        },
    },
];

#[test]
fn a_hub_that_lies_brings_nothing_that_looks_whole() {
    let mut wrong = Vec::new();
    for lie in LIES {
        let home = super::home();
        let tell = lie.tell;
        let hub = Server::start(move |asked| tell(asked, good(&[right()], asked)));
        let output = pull(home.path(), &hub, &["org/model"]).output().expect("runs");
        assert!(!output.status.success(), "{}: was believed", lie.what);
        let given = code(&output);
        if !lie.codes.contains(&given.as_str()) {
            wrong.push(format!("{}: {given}: {}", lie.what, String::from_utf8_lossy(&output.stderr)));
        }
        assert!(installed(home.path()).is_empty(), "{}", lie.what);
        let kept = tree(home.path());
        assert!(
            given != "download_corrupt" || kept.values().all(Vec::is_empty),
            "{}: {:?} was kept",
            lie.what,
            kept.keys()
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_redirect_within_the_hub_is_followed_and_heads_end_at_its_border() {
    let home = super::home();
    let hub = Server::start(|asked| {
        if asked.method == "HEAD" {
            // As the public hub answers for large files: its own head, and an address elsewhere.
            let answer = good(&[right()], asked);
            return Answer { status: 302, ..with(answer, "location", "https://cdn.invalid/signed?secret=1") };
        }
        match asked.path.strip_suffix("?moved") {
            None if is_get(asked) => Answer::new(307, &[("location", &format!("{}?moved", asked.path))], ""),
            None => good(&[right()], asked),
            Some(path) => good(&[right()], &Asked { path: path.into(), ..asked.clone() }),
        }
    });
    ok(&pull(home.path(), &hub, &["org/model"]).output().expect("runs"));
    assert_eq!(installed(home.path()), ["model"]);
}
