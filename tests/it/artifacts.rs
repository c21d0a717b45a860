//! `latentia artifacts` and `generate --store` as a user types them.

use std::fs;
use std::path::Path;
use std::process::Output;

use latentia::weights::sha256;
use serde_json::Value;

use crate::command::{folder, generate, latentia, ok};

fn artifacts(folder: &Path, arguments: &[&str]) -> Output {
    latentia(folder).arg("artifacts").args(arguments).output().expect("runs")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text.trim()).expect("JSON")
}

fn refused(output: &Output) -> (Option<i32>, String) {
    let error = json(std::str::from_utf8(&output.stdout).expect("UTF-8"));
    (output.status.code(), error["error"]["code"].as_str().expect("a code").to_owned())
}

#[test]
fn a_picture_goes_into_the_store_and_its_ref_comes_out() {
    let here = folder();
    let home = here.path();
    let reference = json(&ok(&generate(home, &["--seed", "3", "--store"])));
    let id = reference["$artifact"].as_str().expect("an id");
    assert_eq!((&reference["metadata"]["seed"], &reference["width"]), (&3.into(), &64.into()));
    assert!(
        fs::read_dir(home).expect("listed").flatten().all(|entry| entry.path().is_dir()),
        "a file was written"
    );

    ok(&artifacts(home, &["get", id, "-o", "a.png"]));
    let bytes = fs::read(home.join("a.png")).expect("written");
    assert_eq!(reference["sha256"], sha256(&bytes));
    let shown = json(&ok(&artifacts(home, &["show", id, "--json"])));
    assert_eq!(
        (&shown["ref"], &shown["record"]["x_latentia"]["recipe"]["prompt"]),
        (&reference, &"a cat".into())
    );

    // With -o there is a file too, and the same picture is one artifact; another store is another folder.
    let printed = ok(&generate(home, &["--seed", "3", "--store=elsewhere", "-o", "b.png", "--json"]));
    let image = &json(&printed)["images"][0];
    assert_eq!((&image["path"], &image["artifact"]["$artifact"]), (&"b.png".into(), &id.into()));
    assert_eq!(fs::read(home.join("b.png")).expect("written"), bytes);
    assert_eq!(fs::read(home.join(format!("elsewhere/{id}.png"))).expect("kept"), bytes);
    let secret = json(&ok(&generate(home, &["--store", "--no-metadata"])));
    let shown = ok(&artifacts(home, &["show", secret["$artifact"].as_str().expect("an id"), "--json"]));
    assert!(!shown.contains("a cat") && !shown.contains("a-cat"), "{shown}");
}

#[test]
fn artifacts_are_kept_in_order() {
    let here = folder();
    let home = here.path();
    fs::write(home.join("note.txt"), "one").expect("written");
    let reference = json(&ok(&artifacts(home, &["put", "note.txt"])));
    let id = reference["$artifact"].as_str().expect("an id");
    assert_eq!(reference["filename"], "note.txt");
    ok(&artifacts(home, &["tag", id, "project=fox", "draft=yes"]));
    ok(&artifacts(home, &["tag", id, "draft"]));
    ok(&artifacts(home, &["pin", id]));
    let listed = |arguments: &[&str]| {
        let list = json(&ok(&artifacts(home, &[&["list", "--json"], arguments].concat())));
        list["artifacts"].as_array().expect("a list").len()
    };
    assert_eq!(
        (listed(&["note"]), listed(&["--tag", "project=fox"]), listed(&["--tag", "draft"])),
        (1, 1, 0)
    );
    assert!(ok(&artifacts(home, &["ls"])).contains("pinned"));

    assert_eq!(refused(&artifacts(home, &["rm", id, "--json"])), (Some(2), "invalid_argument".into()));
    ok(&artifacts(home, &["gc", "--max-bytes", "0"]));
    ok(&artifacts(home, &["pin", id, "--off"]));
    let swept = json(&ok(&artifacts(home, &["gc", "--max-bytes", "0", "--dry-run", "--json"])));
    assert_eq!((&swept["swept"]["removed"][0], listed(&[])), (&id.into(), 1));
    for form in ["abstractvision", "abstractruntime"] {
        ok(&artifacts(home, &["export", form, "--format", form]));
        ok(&artifacts(home, &["import", form, "--store", "other"]));
    }
    assert_eq!(fs::read(home.join(format!("other/{id}.bin"))).expect("imported"), b"one");

    fs::write(home.join(format!("artifacts/{id}.bin")), "two").expect("damaged");
    let verified = artifacts(home, &["verify"]);
    assert_eq!(verified.status.code(), Some(5), "{verified:?}");
    assert_eq!(refused(&artifacts(home, &["get", id, "--json"])), (Some(5), "artifact_corrupt".into()));
    let nobody = "0".repeat(32);
    assert_eq!(
        refused(&artifacts(home, &["show", &nobody, "--json"])),
        (Some(3), "artifact_not_found".into())
    );
    assert_eq!(refused(&artifacts(home, &["show", "../x", "--json"])), (Some(2), "invalid_argument".into()));
    let full = latentia(home)
        .args(["artifacts", "put", "note.txt", "--json"])
        .env("LATENTIA_STORE_BYTES", "2")
        .output();
    assert_eq!(refused(&full.expect("runs")), (Some(6), "store_full".into()));
    assert_eq!(refused(&artifacts(home, &["put", "/dev/zero", "--json"])), (Some(4), "path_denied".into()));
}
