//! Offline by construction: no command but `pull` opens a connection.
//!
//! Every other command runs under `strace`, which sees each call that makes or uses a socket of the network, and, where
//! the machine allows it, in a network namespace that holds nothing. With neither, that is said and nothing is claimed.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::server::{File, Server, good};
use super::{home, latentia, ok, pull};

/// A way to run a command so that a connection would be seen.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cage {
    /// A namespace without a network.
    Namespace,
    /// A log of all calls that make or use sockets.
    Trace,
}

impl Cage {
    fn works(self, home: &Path) -> bool {
        let mut command = self.around(&Command::new("true"), home);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    /// The same command inside.
    fn around(self, command: &Command, home: &Path) -> Command {
        let mut outer = match self {
            Self::Namespace => {
                let mut outer = Command::new("unshare");
                outer.args(["-rn", "--"]);
                outer
            }
            Self::Trace => {
                let mut outer = Command::new("strace");
                outer.args(["-f", "-qq", "-e", "trace=%network", "-o"]).arg(home.join("calls"));
                outer
            }
        };
        outer.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => outer.env(name, value),
                None => outer.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            outer.current_dir(folder);
        }
        outer.stdin(Stdio::null());
        outer
    }
}

/// Calls that reach beyond this machine: sockets of the internet families, whatever is done with them.
fn reaching(calls: &str) -> Vec<&str> {
    let outward =
        |line: &&str| line.contains("AF_INET") || line.contains("AF_NETLINK") || line.contains("connect(");
    calls.lines().filter(outward).collect()
}

/// Every command but `pull`, each as a user types it.
const COMMANDS: &[&[&str]] = &[
    &["generate", "a fish", "--steps", "1", "-o", "a.png"],
    &["generate", "a fish", "--steps", "1", "-m", "tiny", "-o", "b.png"],
    &["generate", "--from", "b.png", "-m", "tiny", "-o", "c.png"],
    &["show", "tiny"],
    &["show", "models/tiny", "--json"],
    &["models"],
    &["models", "--known"],
    &["models", "--available"],
    &["models", "--json"],
    &["import", "models/tiny", "--name", "again"],
    &["verify", "tiny", "--full"],
    &["verify", "again"],
    &["du"],
    &["rm", "again"],
    &["--help"],
    &["--version"],
];

/// Commands that fail because a model is not here, and may not fetch it.
const MISSING: &[&[&str]] =
    &[&["generate", "x", "-m", "org/name"], &["generate", "x", "-m", "sdxl"], &["show", "org/name"]];

#[test]
#[expect(clippy::print_stderr, reason = "a test that saw nothing must say so")]
fn no_command_but_pull_opens_a_connection() {
    let home = home();
    let files: Vec<File> = super::pipeline();
    let hub = Server::start(move |asked| good(&files, asked));
    ok(&pull(home.path(), &hub, &["org/tiny"]).output().expect("runs"));
    let before = hub.asked().len();
    let cages: Vec<Cage> =
        [Cage::Namespace, Cage::Trace].into_iter().filter(|cage| cage.works(home.path())).collect();
    if cages.is_empty() {
        eprintln!(
            "skipped: neither `unshare -rn` nor `strace` is permitted here, so no connection could be seen"
        );
        return;
    }
    let caged = |cage: Cage, arguments: &[&str]| {
        let mut command = latentia(home.path());
        command.env("HF_ENDPOINT", hub.url()).env("HF_TOKEN", "hf_canary").args(arguments);
        let output = cage.around(&command, home.path()).output().expect("runs");
        let calls = fs::read_to_string(home.path().join("calls")).unwrap_or_default();
        (output, calls)
    };
    // The cages see what they should: a pull, and that it goes nowhere without a network.
    for &cage in &cages {
        let (output, calls) = caged(cage, &["pull", "org/tiny", "--name", "other", "--dry-run"]);
        match cage {
            Cage::Namespace => assert_eq!(output.status.code(), Some(8), "the namespace has a network"),
            Cage::Trace => assert!(!reaching(&calls).is_empty(), "the trace saw no connection: {calls}"),
        }
    }
    let asked = hub.asked().len();
    for &cage in &cages {
        for arguments in COMMANDS.iter().chain(MISSING) {
            let (output, calls) = caged(cage, arguments);
            let expected = if MISSING.contains(arguments) { 3 } else { 0 };
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(expected), "{cage:?} {arguments:?}: {stderr}");
            if cage == Cage::Trace {
                assert!(reaching(&calls).is_empty(), "{arguments:?}: {:?}", reaching(&calls));
            }
        }
    }
    assert!(asked >= before && hub.asked().len() == asked, "the hub was asked");
}
