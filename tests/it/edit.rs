//! Pictures from pictures, as a user asks for them: what may change, what may not, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use latentia::artifact::{Photo, Picture, png};
use serde_json::Value;

use crate::fixtures;

const SIDES: (u32, u32) = (90, 70);

/// A picture whose every pixel is its own.
fn picture((width, height): (u32, u32)) -> Picture {
    let pixel = |at: u32| [(at * 7 % 251) as u8, (at * 13 % 241) as u8, (at * 29 % 239) as u8];
    Picture::new(width, height, (0..width * height).flat_map(pixel).collect()).expect("a picture")
}

/// White where `open` says so.
fn mask((width, height): (u32, u32), open: impl Fn(u32, u32) -> bool) -> Picture {
    let pixel = |at: u32| [if open(at % width, at / width) { 255 } else { 0 }; 3];
    Picture::new(width, height, (0..width * height).flat_map(pixel).collect()).expect("a mask")
}

fn write(folder: &Path, name: &str, picture: &Picture) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, png::encode(picture, &[]).expect("encoded")).expect("written");
    path
}

fn in_the_middle(x: u32, y: u32) -> bool {
    (30..60).contains(&x) && (20..50).contains(&y)
}

fn edit(folder: &Path, more: &[&str]) -> Output {
    let model = fixtures::compact().join("sd15/model").canonicalize().expect("the sd15 fixture");
    let mut command = Command::new(env!("CARGO_BIN_EXE_latentia"));
    command.current_dir(folder).env("LATENTIA_HOME", folder).stdin(Stdio::null());
    command.args(["edit", "a cat", "--steps", "2", "--json", "-m"]).arg(model).args(more);
    command.output().expect("runs")
}

fn drawn(folder: &Path, name: &str, more: &[&str]) -> Picture {
    let output = edit(folder, &[more, &["-o", name]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Photo::read(&fs::read(folder.join(name)).expect("written")).expect("a picture").picture
}

/// The code and the argument of a refusal.
fn refused(output: &Output) -> (String, String) {
    assert!(!output.status.success());
    let line = String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned();
    let error: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no error object: {line}"));
    let text = |key: &str| error["error"][key].as_str().unwrap_or_default().to_owned();
    (text("code"), text("param"))
}

/// Pixels that differ, by column and row.
fn changed(a: &Picture, b: &Picture) -> Vec<(u32, u32)> {
    assert_eq!((a.width(), a.height()), (b.width(), b.height()));
    let pixels = a.rgb().chunks_exact(3).zip(b.rgb().chunks_exact(3)).enumerate();
    let differ = pixels.filter(|(_, (a, b))| a != b).map(|(at, _)| at as u32);
    differ.map(|at| (at % a.width(), at / a.width())).collect()
}

#[test]
fn outside_of_the_mask_every_byte_stays() {
    let here = tempfile::tempdir().expect("a folder");
    let input = picture(SIDES);
    write(here.path(), "in.png", &input);
    write(here.path(), "mask.png", &mask(SIDES, in_the_middle));
    for more in [&[][..], &["--mask-blur", "4"], &["--mask-crop", "8"], &["--strength", "0.5"]] {
        let arguments = [&["-i", "in.png", "--mask", "mask.png"], more].concat();
        let output = drawn(here.path(), "out.png", &arguments);
        let changed = changed(&input, &output);
        assert!(changed.iter().all(|&(x, y)| in_the_middle(x, y)), "{more:?}");
        assert!(changed.len() > 600, "{more:?}: {} of 900 pixels were redrawn", changed.len());
    }
    let grown = drawn(here.path(), "out.png", &["-i", "in.png", "--mask", "mask.png", "--mask-grow", "3"]);
    let changed = changed(&input, &grown);
    assert!(changed.iter().any(|&(x, y)| !in_the_middle(x, y)));
    assert!(changed.iter().all(|&(x, y)| (27..63).contains(&x) && (17..53).contains(&y)));
}

#[test]
fn a_transparent_mask_opens_what_a_white_one_opens() {
    let here = tempfile::tempdir().expect("a folder");
    write(here.path(), "in.png", &picture(SIDES));
    write(here.path(), "white.png", &mask(SIDES, in_the_middle));
    let mut bytes = Vec::new();
    {
        let mut encoder = ::png::Encoder::new(&mut bytes, SIDES.0, SIDES.1);
        encoder.set_color(::png::ColorType::Rgba);
        let mut writer = encoder.write_header().expect("a header");
        let pixel =
            |at: u32| [200, 200, 200, if in_the_middle(at % SIDES.0, at / SIDES.0) { 0 } else { 255 }];
        let pixels: Vec<u8> = (0..SIDES.0 * SIDES.1).flat_map(pixel).collect();
        writer.write_image_data(&pixels).expect("pixels");
    }
    fs::write(here.path().join("clear.png"), bytes).expect("written");
    let white = drawn(here.path(), "a.png", &["-i", "in.png", "--mask", "white.png"]);
    let clear = drawn(here.path(), "b.png", &["-i", "in.png", "--mask", "clear.png"]);
    assert_eq!(white, clear);
}

#[test]
fn margins_are_drawn_around_a_picture_that_stays() {
    let here = tempfile::tempdir().expect("a folder");
    let input = picture((64, 48));
    write(here.path(), "in.png", &input);
    let output = drawn(here.path(), "out.png", &["-i", "in.png", "--extend", "left=16,bottom=8"]);
    assert_eq!((output.width(), output.height()), (80, 56));
    let kept =
        output.cropped(latentia::artifact::Region { x: 16, y: 0, width: 64, height: 48 }).expect("inside");
    assert_eq!(kept, input);
}

#[test]
fn an_edit_repeats_itself_and_wants_its_picture_again() {
    let here = tempfile::tempdir().expect("a folder");
    write(here.path(), "in.png", &picture((64, 64)));
    write(here.path(), "other.png", &picture((64, 56)));
    drawn(here.path(), "a.png", &["-i", "in.png", "--strength", "0.6", "--seed", "3"]);
    let model = fixtures::compact().join("sd15/model").canonicalize().expect("the sd15 fixture");
    let again = |image: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_latentia"));
        command.current_dir(here.path()).env("LATENTIA_HOME", here.path()).stdin(Stdio::null());
        command.args(["edit", "--from", "a.png", "-o", "b.png", "--json", "-i", image, "-m"]).arg(&model);
        command.output().expect("runs")
    };
    assert!(again("in.png").status.success());
    let read = |name: &str| fs::read(here.path().join(name)).expect("written");
    assert_eq!(read("a.png"), read("b.png"));
    assert_eq!(refused(&again("other.png")), ("invalid_argument".into(), "image".into()));
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let here = tempfile::tempdir().expect("a folder");
    write(here.path(), "in.png", &picture(SIDES));
    write(here.path(), "small.png", &mask((20, 20), |_, _| true));
    write(here.path(), "shut.png", &mask(SIDES, |_, _| false));
    write(here.path(), "dot.png", &mask(SIDES, |x, y| (x, y) == (45, 33)));
    fs::write(here.path().join("words.png"), "not a picture").expect("written");
    for (arguments, code, param) in [
        (&["--mask", "small.png"][..], "invalid_argument", "mask"),
        (&["--mask", "shut.png"], "invalid_argument", "mask"),
        (&["--mask", "dot.png"], "invalid_argument", "mask"),
        (&["--mask", "none.png"], "file_not_found", "mask"),
        (&["--mask", "words.png"], "unsupported_media_type", "mask"),
        (&["--strength", "0"], "invalid_argument", "strength"),
        (&["--strength", "1.5"], "invalid_argument", "strength"),
        (&["--mask-blur", "3"], "invalid_argument", "mask_blur"),
        (&["--image-guidance", "2"], "invalid_argument", "image_guidance"),
        (&["--extend", "left=8192"], "invalid_argument", "image"),
        (&["--second-prompt", "a dog"], "invalid_argument", "second_prompt"),
        (&["--original-size", "512x512"], "invalid_argument", "sizes"),
    ] {
        let output = edit(here.path(), &[&["-i", "in.png"], arguments].concat());
        assert_eq!(refused(&output), (code.into(), param.into()), "{arguments:?}");
    }
}

#[test]
fn hostile_pictures_get_their_codes() {
    let Some(corpus) = fixtures::hostile() else { return };
    let manifest = fixtures::read_json(&corpus.join("manifest.json")).expect("a manifest");
    let mut judged = 0;
    for case in manifest["cases"].as_array().expect("cases") {
        if case["surface"] != "decode/image" {
            continue;
        }
        judged += 1;
        let bytes = fs::read(corpus.join(case["file"].as_str().expect("a file"))).expect("readable");
        let expected = &case["expect"];
        let codes = || expected["codes"].as_array().into_iter().flatten().filter_map(Value::as_str);
        match (Photo::read(&bytes), expected["class"].as_str()) {
            (Ok(_), Some("accept" | "either")) => {}
            (Err(error), Some("reject" | "either")) => {
                let code = error.code.as_str();
                assert!(codes().any(|allowed| allowed == code), "{}: {error} ({code})", case["id"]);
            }
            (outcome, _) => panic!("{}: {:?}", case["id"], outcome.map(|photo| photo.picture.size())),
        }
    }
    assert_eq!(judged, 24);
}
