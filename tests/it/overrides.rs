//! What the user says of a model against its files: it decides what is opened and asked for, or is refused.

use std::path::{Path, PathBuf};

use latentia::family::known::Measure;
use serde_json::{Value, json};

use crate::fixtures;
use crate::inventories::{FLUX, inventory, save, sizes, unet};
use crate::show::{home, json, latentia, text};

fn flux(home: &Path) -> PathBuf {
    let path = home.join("flux.safetensors");
    save(&inventory(&format!("{FLUX}\nguidance_in.in_layer.weight 3072 256")), &path);
    path
}

fn import(home: &Path, path: &Path, name: &str, more: &[&str]) {
    json(home, &[&["import", text(path), "--name", name, "--json"], more].concat());
}

/// The code and the message of a command that is refused.
#[track_caller]
fn refused(home: &Path, arguments: &[&str]) -> (String, String) {
    let output = latentia(home, arguments);
    assert!(!output.status.success(), "{arguments:?} was taken");
    let text = String::from_utf8_lossy(&output.stdout);
    let error: Value = serde_json::from_str(text.lines().last().unwrap_or("")).expect("an error");
    let code = error["error"]["code"].as_str().expect("a code").to_owned();
    (code, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_family_that_the_user_says_brings_its_own_facts_and_parts() {
    let home = home();
    let path = flux(home.path());
    import(home.path(), &path, "told", &["--set", "family=chroma"]);
    let (own, told) =
        (json(home.path(), &["show", text(&path), "--json"]), json(home.path(), &["show", "told", "--json"]));
    assert_eq!((&own["family"], &told["family"]), (&json!("flux"), &json!("chroma")));
    assert_eq!(own["profile"]["family"], "flux");
    assert_eq!(told["profile"]["family"], "chroma");
    assert_eq!(told["variant"], Value::Null, "`dev` is none of chroma's");
    assert!(own["missing"].to_string().contains("CLIP-L") && !told["missing"].to_string().contains("CLIP-L"));
    assert!(told["conflicts"].to_string().contains("tensor"), "{}", told["conflicts"]);
    // A variant decides over tasks.
    import(home.path(), &path, "fill", &["--set", "variant=Fill"]);
    let fill = json(home.path(), &["show", "fill", "--json"]);
    assert_eq!((&fill["variant"], &fill["tasks"]), (&json!("Fill"), &json!(["image_to_image"])));
    assert_eq!(fill["profile"]["family"], "flux/Fill");
}

#[test]
fn what_nobody_knows_is_refused_with_what_is_known() {
    let home = home();
    let path = flux(home.path());
    for (told, param, hint) in [
        ("family=fluxx", "family", "flux2"),
        ("variant=no such", "variant", "schnell"),
        ("prediction=guess", "", "epsilon"),
        ("size=0x9", "", "WIDTHxHEIGHT"),
        ("colour=red", "", "family, variant"),
    ] {
        let output = latentia(home.path(), &["import", text(&path), "--name", "x", "--set", told, "--json"]);
        assert_eq!(output.status.code(), Some(2), "{told}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(hint), "{told}: {stderr}");
        if !param.is_empty() {
            let error: Value = serde_json::from_slice(&output.stdout).expect("an error");
            assert_eq!(error["error"]["param"], param, "{told}");
        }
    }
    assert_eq!(json(home.path(), &["du", "--json"])["models"], json!([]), "nothing was remembered");
}

#[test]
fn a_model_opens_as_the_family_that_is_told_or_not_at_all() {
    let home = home();
    let model = fixtures::compact().join("sd15/model").canonicalize().expect("the sd15 fixture");
    let draw =
        |name: &'static str| ["generate", "a cat", "--steps", "1", "-q", "-m", name, "-o", "a.png", "--json"];
    import(home.path(), &model, "same", &["--set", "family=stable-diffusion", "--set", "variant=1"]);
    let shown = json(home.path(), &["show", "same", "--json"]);
    assert_eq!((&shown["runs"], &shown["variant"]), (&json!(true), &json!("1")));
    json(home.path(), &draw("same"));

    import(home.path(), &model, "other", &["--set", "family=flux"]);
    let shown = json(home.path(), &["show", "other", "--json"]);
    assert_eq!((&shown["family"], &shown["runs"]), (&json!("flux"), &json!(false)));
    let (code, said) = refused(home.path(), &draw("other"));
    assert_eq!(code, "model_unsupported");
    assert!(said.contains("flux, which the user says it is"), "{said}");

    import(home.path(), &model, "lcm", &["--set", "variant=latent consistency"]);
    assert_eq!(json(home.path(), &["show", "lcm", "--json"])["runs"], false);
    let (code, said) = refused(home.path(), &draw("lcm"));
    assert_eq!(code, "model_incompatible");
    assert!(said.contains("variant `latent consistency`") && said.contains("without --set"), "{said}");

    import(home.path(), &model, "flow", &["--set", "prediction=flow"]);
    assert_eq!(json(home.path(), &["show", "flow", "--json"])["runs"], false);
    assert_eq!(refused(home.path(), &draw("flow")).0, "invalid_argument");
}

#[test]
fn a_file_of_another_family_does_not_run_because_somebody_says_so() {
    let home = home();
    let path = flux(home.path());
    import(home.path(), &path, "told", &["--set", "family=stable-diffusion", "--set", "variant=1"]);
    let shown = json(home.path(), &["show", "told", "--json"]);
    assert_eq!((&shown["family"], &shown["runs"]), (&json!("stable-diffusion"), &json!(false)));
    let (code, _) = refused(home.path(), &["generate", "x", "-m", "told", "--json"]);
    let known = ["model_incompatible", "model_not_downloaded", "model_unsupported"];
    assert!(known.contains(&code.as_str()), "{code}");
    // Of a U-net that nobody has described, the user's word is all there is.
    let nobody = home.path().join("nobody.safetensors");
    save(&inventory(&unet(sizes(vec![(Measure::Context, 999)]))), &nobody);
    assert_eq!(json(home.path(), &["show", text(&nobody), "--json"])["family"], Value::Null);
    assert_eq!(
        refused(home.path(), &["import", text(&nobody), "--name", "y", "--set", "variant=1", "--json"]).0,
        "invalid_argument"
    );
    import(home.path(), &nobody, "y", &["--set", "family=stable-diffusion"]);
    let shown = json(home.path(), &["show", "y", "--json"]);
    assert_eq!(
        (&shown["family"], &shown["profile"]["family"]),
        (&json!("stable-diffusion"), &json!("stable-diffusion"))
    );
}
