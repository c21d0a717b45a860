//! Which paths may be used, and that those that may not answer alike.

use std::fs;
use std::path::Path;

use latentia::artifact::Existing;
use latentia::artifact::policy::{Access, Policy};
use latentia::error::{Code, Error};

const LIMIT: u64 = 1000;

/// A workspace with a picture, and beside it what nobody may see.
fn house() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["workspace/inner", "outside", "made"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    for name in ["workspace/a.png", "workspace/inner/b.png", "outside/secret.png", "made/older.png"] {
        fs::write(folder.path().join(name), name).unwrap();
    }
    folder
}

fn policy(folder: &Path) -> Policy {
    let policy = Policy::new().allow(&folder.join("workspace"), Access::ReadWrite).unwrap();
    policy.allow(&folder.join("made"), Access::Write).unwrap()
}

/// All that a caller sees of an error.
fn said(error: &Error) -> String {
    error.to_json().to_string()
}

#[test]
fn a_workspace_is_read_and_nothing_else() {
    let folder = house();
    let policy = policy(folder.path());
    let absolute = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    for (path, bytes) in [
        ("a.png".to_owned(), "workspace/a.png"),
        ("./inner//b.png".to_owned(), "workspace/inner/b.png"),
        (absolute("workspace/inner/b.png"), "workspace/inner/b.png"),
    ] {
        assert_eq!(policy.read("image_path", &path, LIMIT).unwrap(), bytes.as_bytes(), "{path}");
    }
    let refused = |path: &str| policy.read("image_path", path, LIMIT).expect_err(path);
    for path in [
        &absolute("outside/secret.png"),
        &absolute("outside/no_such_file.png"),
        &absolute("workspace/../outside/secret.png"),
        &absolute("workspace"),
        &absolute("workspace/inner"),
        &absolute("made/older.png"),
        &absolute("made/no_such_file.png"),
        "../outside/secret.png",
        "inner/../../outside/secret.png",
        "..",
        ".",
        "/dev/zero",
        "/dev/no_such_device",
        "/proc/self/environ",
        "a.png\0.txt",
        "a.png\n",
        "%2e%2e/outside/secret.png",
        "..%2foutside%2fsecret.png",
        "..\\outside\\secret.png",
        "\u{ff0e}\u{ff0e}/outside/secret.png",
        "\u{2024}\u{2024}/outside/secret.png",
        "..\u{2215}outside\u{2215}secret.png",
        "a\u{200b}.png",
        "\u{202e}gnp.a",
        &"x/".repeat(4000),
    ] {
        let error = refused(path);
        assert_eq!(error.code, Code::PathDenied, "{path:?}: {error}");
        assert_eq!(said(&error), said(&refused("/no/such/folder/at/all")), "{path:?}");
    }
    for path in
        ["https://example.com/a.png", "file:///etc/passwd", "FILE:/etc/passwd", "data:image/png;base64,AAAA"]
    {
        assert_eq!(refused(path).code, Code::UrlNotAllowed, "{path}");
    }
    assert_eq!(refused("").code, Code::InvalidArgument);
    // Inside, an honest answer is fine.
    assert_eq!(refused("inner/none.png").code, Code::FileNotFound);
    assert_eq!(refused("a.png/b").code, Code::FileNotFound);
    assert_eq!(policy.read("image_path", "a.png", 3).expect_err("large").code, Code::PayloadTooLarge);
    let nothing = Policy::new();
    assert_eq!(
        nothing.read("image_path", &absolute("workspace/a.png"), LIMIT).expect_err("none").code,
        Code::PathDenied
    );
}

#[cfg(unix)]
#[test]
fn links_pipes_and_devices_lead_nowhere() {
    use std::os::unix::fs::symlink;
    let folder = house();
    let workspace = folder.path().join("workspace");
    symlink("a.png", workspace.join("good.png")).unwrap();
    symlink("../outside/secret.png", workspace.join("near.png")).unwrap();
    symlink(folder.path().join("outside/secret.png"), workspace.join("far.png")).unwrap();
    symlink("../outside/no_such_file.png", workspace.join("dangling.png")).unwrap();
    symlink(folder.path().join("outside"), workspace.join("door")).unwrap();
    symlink("loop.png", workspace.join("loop.png")).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(workspace.join("pipe.png")).status();
    let policy = policy(folder.path());
    assert_eq!(policy.read("image_path", "good.png", LIMIT).unwrap(), b"workspace/a.png");
    let mut names =
        vec!["near.png", "far.png", "dangling.png", "door/secret.png", "door/no_such_file.png", "loop.png"];
    names.extend(pipe.is_ok_and(|status| status.success()).then_some("pipe.png"));
    for name in names {
        let error = policy.read("image_path", name, LIMIT).expect_err(name);
        assert_eq!(error.code, Code::PathDenied, "{name}: {error}");
    }
    for name in ["door/new.png", "door/secret.png"] {
        for existing in [Existing::Keep, Existing::Replace] {
            let error = policy.write("output_path", name, b"new", existing).expect_err(name);
            assert_eq!(error.code, Code::PathDenied, "{name}: {error}");
        }
    }
    // A link is replaced, not followed.
    policy.write("output_path", "near.png", b"new", Existing::Replace).unwrap();
    assert_eq!(fs::read(folder.path().join("outside/secret.png")).unwrap(), b"outside/secret.png");
    assert_eq!(fs::read_dir(folder.path().join("outside")).unwrap().count(), 1);
}

#[test]
fn outputs_stay_inside_and_replace_nothing_unasked() {
    let folder = house();
    let policy = policy(folder.path());
    let absolute = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let refused = |path: &str| {
        let early = policy.check_output("output_path", path, Existing::Keep).expect_err(path);
        let error = policy.write("output_path", path, b"new", Existing::Keep).expect_err(path);
        assert_eq!(early.code, error.code, "{path}");
        assert_eq!(error.param.as_deref(), Some("output_path"));
        error.code
    };
    assert_eq!(refused(&absolute("outside/new.png")), Code::PathDenied);
    assert_eq!(refused("../new.png"), Code::PathDenied);
    assert_eq!(refused("inner"), Code::InvalidArgument);
    assert_eq!(refused("nowhere/new.png"), Code::FileNotFound);
    assert_eq!(refused("a.png"), Code::AlreadyExists);
    assert_eq!(fs::read(folder.path().join("workspace/a.png")).unwrap(), b"workspace/a.png");
    assert_eq!(fs::read_dir(folder.path().join("outside")).unwrap().count(), 1);

    // What was written here may be read, also where nothing else may.
    let made = absolute("made/new.png");
    assert_eq!(policy.read("path", &made, LIMIT).expect_err("not yet").code, Code::PathDenied);
    let written = policy.write("output_path", &made, b"new", Existing::Keep).unwrap();
    assert_eq!(written, folder.path().join("made/new.png"));
    assert_eq!(policy.read("path", &made, LIMIT).unwrap(), b"new");
    policy.write("output_path", "inner/new.png", b"new", Existing::Keep).unwrap();
    assert_eq!(policy.read("path", "inner/new.png", LIMIT).unwrap(), b"new");
}

#[test]
fn what_the_owner_named_is_read_and_its_neighbours_are_not() {
    let folder = house();
    let policy = policy(folder.path());
    let secret = folder.path().join("outside/secret.png");
    fs::write(folder.path().join("outside/other.png"), b"other").unwrap();
    policy.reference(&secret).unwrap();
    assert_eq!(policy.read("path", &secret.to_string_lossy(), LIMIT).unwrap(), b"outside/secret.png");
    let other = folder.path().join("outside/other.png");
    assert_eq!(
        policy.read("path", &other.to_string_lossy(), LIMIT).expect_err("other").code,
        Code::PathDenied
    );
    assert_eq!(
        policy.write("path", &secret.to_string_lossy(), b"", Existing::Replace).expect_err("out").code,
        Code::PathDenied
    );
    assert_eq!(policy.reference(Path::new("/no/such/file")).expect_err("none").code, Code::FileNotFound);
    assert!(Policy::new().allow(&folder.path().join("nowhere"), Access::Read).is_err());
}
