//! The rules of the house, executable: which room may import which, who may print, where `unsafe` stands, how long a
//! file may be. See `src/README.md`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A room imports only rooms of a lower floor.
const FLOORS: &[&[&str]] = &[
    &["error"],
    &["event", "kernel"],
    &["weights", "diffusion", "fetch", "artifact"],
    &["nn"],
    &["text", "codec"],
    &["family"],
    &["registry"],
    &["studio"],
    &["tool"],
    &["face"],
    &["main"],
];

/// Lines of a source file; tables of data alone may be longer.
const LONGEST: usize = 600;

/// A source file: its room, its path below `src`, its text.
struct Source {
    room: String,
    path: String,
    text: String,
}

fn sources() -> Vec<Source> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("src is readable").flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    walk(&root, &mut files);
    files.sort();
    let source = |file: &PathBuf| {
        let path = file.strip_prefix(&root).expect("below src").to_string_lossy().into_owned();
        let room = path.split('/').next().unwrap_or(&path).trim_end_matches(".rs").to_owned();
        Source { room, path, text: fs::read_to_string(file).expect("a source file is UTF-8") }
    };
    files.iter().map(source).filter(|source| source.room != "lib").collect()
}

/// The lines that are code of the product: no comments, nothing from the file's tests on.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(number, line)| (number + 1, line))
}

/// Every line of the product in which one of the words stands, outside the rooms that may use them.
fn offenders(words: &[&str], allowed: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources().iter().filter(|source| !allowed.contains(&source.room.as_str())) {
        for (number, line) in code(&source.text) {
            if words.iter().any(|word| line.contains(word)) {
                found.push(format!("src/{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    found
}

#[test]
fn rooms_import_only_from_lower_floors() {
    let floor: HashMap<&str, usize> = FLOORS
        .iter()
        .enumerate()
        .flat_map(|(height, rooms)| rooms.iter().map(move |room| (*room, height)))
        .collect();
    let mut wrong = Vec::new();
    for source in sources() {
        let Some(&own) = floor.get(source.room.as_str()) else {
            wrong.push(format!("src/{}: the room {} stands on no floor", source.path, source.room));
            continue;
        };
        for (number, line) in code(&source.text) {
            for (at, prefix) in line.match_indices("crate::").chain(line.match_indices("latentia::")) {
                let rest = &line[at + prefix.len()..];
                let room = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
                match floor.get(room) {
                    Some(&other) if other < own || room == source.room => {}
                    Some(_) => {
                        wrong.push(format!("src/{}:{number}: {} imports {room}", source.path, source.room));
                    }
                    None if room.is_empty() => {
                        wrong.push(format!(
                            "src/{}:{number}: one `use` a room, so that this test can read it",
                            source.path
                        ));
                    }
                    None => {}
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn families_never_see_each_other() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| source.room == "family") {
        let own = source.path.split('/').nth(1).unwrap_or("");
        for (number, line) in code(&source.text) {
            let Some((_, rest)) = line.split_once("family::") else { continue };
            let other = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/family").join(other);
            if folder.is_dir() && other != own && own != "mod.rs" {
                wrong.push(format!("src/{}:{number}: {own} imports {other}", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_the_face_prints_and_reads_the_environment() {
    let words = ["println!", "eprintln!", "print!(", "env::var", "env::args", "async fn"];
    let found = offenders(&words, &["face", "main"]);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn unsafe_stands_in_weights_kernel_and_the_allocators_options_alone() {
    let found = offenders(&["unsafe "], &["weights", "kernel", "main"]);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn devices_are_told_apart_in_kernel_alone() {
    let words = ["feature = \"cuda\"", "feature = \"metal\"", "feature = \"cudnn\""];
    let found = offenders(&words, &["kernel"]);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn diffusion_knows_no_model_and_no_file() {
    let words = ["std::fs", "VarBuilder", "safetensors", "std::path"];
    let found: Vec<_> =
        offenders(&words, &[]).into_iter().filter(|line| line.starts_with("src/diffusion/")).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn connections_are_opened_by_fetch_alone() {
    let found = offenders(&["TcpStream", "UdpSocket", "reqwest", "ureq", "hf_hub"], &["fetch"]);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn nothing_is_left_for_later() {
    let found = offenders(&["todo!(", "unimplemented!(", "FIXME", "TODO"], &[]);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn files_are_short_and_say_what_they_are() {
    let mut wrong = Vec::new();
    for Source { path, text, .. } in sources() {
        let lines = text.lines().count();
        if lines > LONGEST {
            wrong.push(format!("src/{path}: {lines} lines, at most {LONGEST}"));
        }
        if !text.starts_with("//! ") && !text.starts_with("#![doc") {
            wrong.push(format!("src/{path}: the first line does not say what the file is"));
        }
        let name = path.rsplit('/').next().unwrap_or(&path).trim_end_matches(".rs");
        if ["utils", "util", "common", "helpers", "manager", "types", "misc"].contains(&name) {
            wrong.push(format!("src/{path}: {name} is no name for a room"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_room_has_a_short_readme() {
    let mut wrong = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rooms = fs::read_dir(root.join("src")).expect("src is readable").flatten().map(|entry| entry.path());
    let folders = ["models", "benches", "tests", "scripts"].iter().map(|name| root.join(name));
    for folder in rooms.filter(|path| path.is_dir()).chain(folders) {
        match fs::read_to_string(folder.join("README.md")) {
            Ok(text) if text.lines().count() <= 30 => {}
            Ok(text) => {
                wrong.push(format!("{}: {} lines, at most 30", folder.display(), text.lines().count()));
            }
            Err(_) => wrong.push(format!("{}: no README.md", folder.display())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
