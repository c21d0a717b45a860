//! The store of artifacts from outside: what is put in, found, swept, moved; and the damaged ones of the corpus.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use latentia::artifact::store::{Artifact, Form, Id, Meta, Page, Query, SourceRef, Store, Sweep};
use latentia::error::{Code, Error};
use latentia::weights::sha256;
use serde_json::{Value, json};

use crate::fixtures::hostile;

pub(crate) fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("store")).unwrap();
    (folder, store)
}

/// The names in a store's folder that end so.
pub(crate) fn names(store: &Store, ending: &str) -> Vec<String> {
    let names = fs::read_dir(store.path()).unwrap().flatten();
    names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(ending))
        .collect()
}

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> Code {
    result.expect_err("must be refused").code
}

pub(crate) fn picture() -> Vec<u8> {
    let picture = latentia::artifact::Picture::new(3, 2, vec![7; 18]).unwrap();
    latentia::artifact::png::encode(&picture, &[]).unwrap()
}

#[test]
fn what_is_put_is_found_again_with_all_that_was_said_of_it() {
    let (_folder, store) = store();
    let bytes = picture();
    let meta = Meta {
        filename: Some("../../x\r\nSet-Cookie: a=b\"; .png".into()),
        tags: [("task".to_owned(), "text_to_image".to_owned())].into(),
        metadata: json!({ "seed": 7, "model": "tiny", "long": "x".repeat(9000) })
            .as_object()
            .unwrap()
            .clone(),
        recipe: Some(json!({ "prompt": "a lighthouse at dusk" })),
        ..Meta::default()
    };
    let artifact = store.put(&bytes, &meta).unwrap();
    assert_eq!(artifact.id.as_str(), &sha256(&bytes)[..32]);
    assert_eq!(store.get(&artifact.id).unwrap(), bytes);
    assert_eq!(store.meta(&artifact.id).unwrap(), artifact);
    let reference = artifact.reference();
    assert_eq!(
        reference,
        json!({
            "$artifact": artifact.id.as_str(), "content_type": "image/png", "sha256": sha256(&bytes),
            "size_bytes": bytes.len(), "filename": "xSet-Cookie a=b.png", "width": 3, "height": 2,
            "uri": format!("latentia://artifacts/{}", artifact.id), "metadata": { "seed": 7, "model": "tiny" },
        })
    );
    assert!(reference.to_string().len() < 8192);
    assert_eq!(store.resolve(&reference).unwrap(), artifact);
    assert_eq!(store.resolve(&json!({ "artifact_id": artifact.id.as_str() })).unwrap(), artifact);
    assert_eq!(code(store.resolve(&json!({ "$artifact": "" }))), Code::InvalidArgument);
    assert_eq!(code(store.resolve(&json!({ "$artifact": "../../secret" }))), Code::InvalidArgument);
    assert_eq!(code(store.resolve(&json!({ "$artifact": "0".repeat(32) }))), Code::ArtifactNotFound);
    let lie = json!({ "$artifact": artifact.id.as_str(), "sha256": "0".repeat(64) });
    assert_eq!(code(store.resolve(&lie)), Code::ArtifactMismatch);

    // The same bytes again: what is said now wins, what is not said now stays.
    store.pin(&artifact.id, true).unwrap();
    let tags = [("session".to_owned(), "s1".to_owned())].into();
    let again = store.put(&bytes, &Meta { tags, ..Meta::default() }).unwrap();
    assert_eq!((again.tags.len(), again.more.pinned, again.more.recipe.is_some()), (2, true, true));
    assert_eq!(names(&store, ".png").len(), 1);
}

#[test]
fn lists_are_newest_first_page_by_page_and_searched() {
    let (_folder, store) = store();
    for number in 0..25_u8 {
        let tags = [("even".to_owned(), (number % 2 == 0).to_string())].into();
        let recipe = Some(json!({ "prompt": format!("a \"fox\" number{number}") }));
        let content_type = Some(if number < 5 { "video/mp4" } else { "image/png" }.to_owned());
        let created_at = Timestamp::from_second(1_000_000 + i64::from(number)).ok();
        store.put(&[number], &Meta { tags, recipe, content_type, created_at, ..Meta::default() }).unwrap();
    }
    let list = |query: Query| store.list(&query).unwrap();
    let (mut query, mut seen) = (Query { limit: Some(10), ..Query::default() }, Vec::new());
    loop {
        let page = list(query.clone());
        seen.extend(page.artifacts.into_iter().map(|artifact| artifact.id));
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    let expected: Vec<String> = (0..25_u8).rev().map(|number| sha256(&[number])[..32].to_owned()).collect();
    assert_eq!(seen.iter().map(|id| id.as_str().to_owned()).collect::<Vec<_>>(), expected);
    let count = |page: Page| page.artifacts.len();
    let kind = |kind: &str| Query { content_type: Some(kind.into()), ..Query::default() };
    assert_eq!(
        (count(list(kind("video"))), count(list(kind("image/png"))), count(list(kind("vid")))),
        (5, 20, 0)
    );
    let tag = |tag: &str| Query { tag: Some(tag.into()), ..Query::default() };
    assert_eq!(
        (count(list(tag("even"))), count(list(tag("even=true"))), count(list(tag("odd")))),
        (25, 13, 0)
    );
    let text = |text: &str| Query { text: Some(text.into()), ..Query::default() };
    for (words, found) in [
        ("fox", 25),
        ("fox number24", 1),
        ("numb", 25),
        ("\"fox", 25),
        ("wolf", 0),
        ("fox OR wolf", 0),
        ("  ", 25),
    ] {
        assert_eq!(count(list(text(words))), found, "{words}");
    }
    let broken = Query { after: Some("nowhere".into()), ..Query::default() };
    assert_eq!(code(store.list(&broken)), Code::InvalidArgument);
    // The index is only a copy: lost or damaged, it is made again from the files.
    let index = store.path().join(".index.sqlite3");
    let path = store.path().to_owned();
    drop(store);
    for bytes in [None, Some(b"this is no database, and has been made up".repeat(200))] {
        for ending in ["-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{ending}", index.display()));
        }
        bytes.map_or_else(|| fs::remove_file(&index), |bytes| fs::write(&index, bytes)).unwrap();
        let again = Store::open(&path).unwrap();
        assert_eq!(count(again.list(&text("fox number24")).unwrap()), 1);
        assert_eq!(again.total().unwrap().0, 25);
    }
}

#[test]
fn what_is_needed_stays_and_the_rest_is_swept() {
    let (_folder, store) = store();
    let at = |second: i64| Meta { created_at: Timestamp::from_second(second).ok(), ..Meta::default() };
    let source = store.put(b"source", &at(1)).unwrap();
    let source_refs = vec![SourceRef { role: "image".into(), artifact: source.id.clone() }];
    let child = store.put(b"child", &Meta { source_refs, ..at(2) }).unwrap();
    let source_refs = vec![SourceRef { role: "mask".into(), artifact: child.id.clone() }];
    let grandchild = store.put(b"grandchild", &Meta { source_refs, ..at(3) }).unwrap();
    let lineage = store.lineage(&child.id).unwrap();
    assert_eq!((lineage.sources, lineage.derived), (vec![source.id.clone()], vec![grandchild.id.clone()]));
    assert_eq!(store.lineage(&source.id).unwrap().derived.len(), 2);
    assert_eq!(code(store.delete(&source.id, false)), Code::InvalidArgument);

    let pinned = store.put(b"pinned", &at(4)).unwrap();
    store.pin(&pinned.id, true).unwrap();
    assert_eq!(code(store.delete(&pinned.id, false)), Code::InvalidArgument);
    let old = store.put(b"old", &at(5)).unwrap();
    let over =
        store.put(b"over", &Meta { expires_at: Timestamp::from_second(6).ok(), ..Meta::default() }).unwrap();
    let new = store.put(b"new", &Meta::default()).unwrap();
    fs::write(store.path().join(".x.png.1-0.tmp"), b"half").unwrap();

    let everything = Sweep { older_than: Some(jiff::SignedDuration::from_hours(1)), ..Sweep::default() };
    let dry = store.gc(&Sweep { dry_run: true, ..everything.clone() }).unwrap();
    assert_eq!(store.total().unwrap().0, 7);
    assert_eq!(names(&store, ".tmp").len(), 1);
    let swept = store.gc(&everything).unwrap();
    assert_eq!(dry, swept);
    assert_eq!((swept.leftovers, swept.bytes), (1, 4 + 10 + 3 + 4));
    let gone: BTreeSet<&Id> = swept.removed.iter().collect();
    assert_eq!(gone, [&grandchild.id, &old.id, &over.id].into());
    for id in [&source.id, &child.id, &pinned.id, &new.id] {
        store.get(id).unwrap();
    }
    assert_eq!(code(store.get(&old.id)), Code::ArtifactNotFound);
    // Its picture gone, a source is needed no longer; what is pinned stays even when there is no room.
    let swept = store.gc(&Sweep { max_bytes: Some(0), ..Sweep::default() }).unwrap();
    assert_eq!(swept.removed, [child.id.clone(), new.id.clone()]);
    assert!(store.get(&pinned.id).is_ok());
    store.delete(&pinned.id, true).unwrap();
    assert_eq!(code(store.meta(&pinned.id)), Code::ArtifactNotFound);

    let full = Store::open(store.path()).unwrap().with_quota(10);
    assert_eq!(code(full.put(b"eleven byte", &Meta::default())), Code::StoreFull);
    full.put(b"four", &Meta::default()).unwrap();
}

/// The bytes that a scenario of the corpus calls good.
fn good(scenario: &Value) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let text = scenario["good"]["bytes_b64"].as_str().unwrap();
    let (mut bits, mut held, mut bytes) = (0_u32, 0, Vec::new());
    for digit in text.bytes().filter_map(|byte| DIGITS.iter().position(|digit| *digit == byte)) {
        bits = (bits << 6) | digit as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    assert_eq!(sha256(&bytes), scenario["good"]["sha256"].as_str().unwrap());
    bytes
}

/// Lays out what a scenario says, opens, verifies, reads; the code that came up, if one did.
fn lay_out(scenario: &Value) -> (tempfile::TempDir, Store, Artifact, Option<Code>) {
    let (folder, store) = store();
    let bytes = good(scenario);
    let other = store.put(b"another good one", &Meta::default()).unwrap();
    let artifact = store.put(&bytes, &Meta::default()).unwrap();
    let path = store.path().to_owned();
    drop(store);
    fs::create_dir(folder.path().join("outside")).unwrap();
    fs::write(folder.path().join("outside/secret.png"), b"secret").unwrap();
    let blob = path.join(artifact.file_name());
    let record = path.join(format!("{}.meta.json", artifact.id));
    for entry in scenario["entries"].as_array().unwrap() {
        match entry["bytes"].as_str() {
            Some("first half of good") => fs::write(&blob, &bytes[..bytes.len() / 2]).unwrap(),
            Some("") => fs::write(&blob, b"").unwrap(),
            Some("good with bit 3 of byte 40 flipped") => {
                let mut bytes = bytes.clone();
                bytes[40] ^= 8;
                fs::write(&blob, bytes).unwrap();
            }
            Some("good") => {}
            other => assert!(other.is_none() && entry["tmp"].is_string(), "unknown: {entry}"),
        }
        match entry.get("meta") {
            Some(Value::Null) => fs::remove_file(&record).unwrap(),
            Some(meta) => {
                let mut text: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
                meta.as_object().unwrap().iter().for_each(|(key, value)| text[key] = value.clone());
                fs::write(&record, text.to_string()).unwrap();
            }
            None => {}
        }
        if entry["tmp"].is_string() {
            for (number, length) in [10 << 20, 0, 0, 0].into_iter().enumerate() {
                fs::write(path.join(format!(".x.png.1-{number}.tmp")), vec![0; length]).unwrap();
            }
        }
    }
    let began = Instant::now();
    let store = Store::open(&path).unwrap();
    let faults = store.verify().unwrap();
    assert!(began.elapsed() < Duration::from_secs(2));
    assert!(faults.iter().all(|fault| fault.name == artifact.id.as_str()), "{faults:?}");
    assert_eq!(store.get(&other.id).unwrap(), b"another good one");
    let code = faults.first().map(|fault| fault.error.code);
    (folder, store, artifact, code)
}

#[test]
fn damaged_stores_of_the_corpus_recover() {
    let Some(corpus) = hostile() else { return };
    let manifest: Value = serde_json::from_slice(&fs::read(corpus.join("manifest.json")).unwrap()).unwrap();
    let mut judged = 0;
    for case in manifest["cases"].as_array().unwrap() {
        let id = case["id"].as_str().unwrap();
        let scenario = corpus.join(case["file"].as_str().unwrap());
        if !id.starts_with("store-") || !scenario.is_file() {
            continue;
        }
        let scenario: Value = serde_json::from_slice(&fs::read(scenario).unwrap()).unwrap();
        if scenario["scenario"] != "store" {
            continue;
        }
        let (_folder, store, artifact, code) = lay_out(&scenario);
        let again = store.get(&artifact.id);
        let whole = again.as_ref().is_ok_and(|bytes| *bytes == good(&scenario));
        let expected = case["expect"]["codes"].as_array().map(Vec::as_slice).unwrap_or_default();
        assert_eq!(code.is_some(), !expected.is_empty(), "{id}: {code:?}");
        assert!(code.is_none_or(|code| expected.iter().any(|it| it == code.as_str())), "{id}: {code:?}");
        match case["kind"].as_str().unwrap() {
            "torn" | "bitflip" | "zero" => {
                // It stays damaged until it is made again.
                assert_eq!(again.expect_err(id).code, Code::ArtifactCorrupt);
                assert!(fs::read_dir(store.path().join("quarantine")).unwrap().count() >= 2, "{id}");
                store.put(&good(&scenario), &Meta::default()).unwrap();
                assert_eq!(store.get(&artifact.id).unwrap(), good(&scenario));
            }
            "tmp" => {
                assert!(whole, "{id}");
                assert_eq!(names(&store, ".tmp").len(), 4);
                assert_eq!(store.gc(&Sweep::default()).unwrap().bytes, 10 << 20);
                assert!(names(&store, ".tmp").is_empty());
            }
            "meta" => {
                assert!(whole, "{id}");
                assert_eq!(store.meta(&artifact.id).unwrap().content_type, "image/png");
                assert_eq!(store.gc(&Sweep::default()).unwrap().adopted, std::slice::from_ref(&artifact.id));
            }
            other => panic!("{id}: {other} is not judged"),
        }
        judged += 1;
    }
    assert!(judged >= 6, "{judged}");
}

#[test]
fn folders_of_other_stores_come_in_and_go_out() {
    let (folder, store) = store();
    let source = store.put(&picture(), &Meta { filename: Some("a.png".into()), ..Meta::default() }).unwrap();
    let meta = Meta {
        source_refs: vec![SourceRef { role: "image".into(), artifact: source.id.clone() }],
        tags: [("task".to_owned(), "image_to_image".to_owned())].into(),
        recipe: Some(json!({ "prompt": "a fox" })),
        ..Meta::default()
    };
    let child = store.put(b"child", &meta).unwrap();
    for form in [Form::Vision, Form::Runtime] {
        let out = folder.path().join(format!("{form:?}"));
        assert_eq!(store.export(&out, form, &[]).unwrap().artifacts.len(), 2);
        // What is there stays as it is.
        assert!(store.export(&out, form, std::slice::from_ref(&child.id)).unwrap().faults.is_empty());
        let other = Store::open(&folder.path().join(format!("{form:?} back"))).unwrap();
        let moved = other.import(&out).unwrap();
        assert!(moved.faults.is_empty(), "{:?}", moved.faults);
        let back = other.meta(&child.id).unwrap();
        assert_eq!((&back.created_at, &back.more), (&child.created_at, &child.more));
        assert_eq!(back.tags["task"], "image_to_image");
        assert_eq!(other.get(&source.id).unwrap(), picture());
        assert_eq!(other.lineage(&child.id).unwrap().sources, std::slice::from_ref(&source.id));
    }

    // A runtime's id may be any word; refs with it still find what was imported.
    let foreign = folder.path().join("foreign/artifacts");
    fs::create_dir_all(foreign.join("blobs")).unwrap();
    fs::create_dir_all(foreign.join("refs")).unwrap();
    let digest = sha256(b"voice");
    fs::write(foreign.join(format!("blobs/{digest}.bin")), b"voice").unwrap();
    let record = |id: &str, blob: &str| {
        json!({ "artifact_id": id, "blob_id": blob, "content_type": "audio/wav", "size_bytes": 5,
            "created_at": "2026-11-01T00:00:00+00:00", "run_id": "r1", "tags": { "filename": "v.wav" },
            "metadata": { "voice": "low" }, "descriptor": { "modality": "audio" } })
        .to_string()
    };
    fs::write(foreign.join("refs/run-1_step.meta"), record("run-1_step", &digest)).unwrap();
    fs::write(foreign.join("refs/gone.meta"), record("gone", &sha256(b"gone"))).unwrap();
    fs::write(foreign.join("refs/up.meta"), record("up", "../../../etc/passwd")).unwrap();
    let moved = store.import(&folder.path().join("foreign")).unwrap();
    assert_eq!((moved.artifacts.len(), moved.faults.len()), (1, 2), "{:?}", moved.faults);
    let found = store.resolve(&json!({ "$artifact": "run-1_step" })).unwrap();
    assert_eq!(store.get(&found.id).unwrap(), b"voice");
    assert_eq!((found.filename.as_deref(), found.run_id.as_deref()), (Some("v.wav"), Some("r1")));
    assert_eq!(code(store.import(folder.path())), Code::UnsupportedFormat);
    assert_eq!(code(store.import(&folder.path().join("nowhere"))), Code::FileNotFound);
}
