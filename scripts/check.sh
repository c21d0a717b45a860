#!/usr/bin/env bash
# Everything that must hold before a commit lands; the README and .ci/run run this same script.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; "$@"; }

step cargo fmt --check
step cargo clippy --all-targets --locked -- -D warnings
step cargo nextest run --locked
step cargo test --doc --locked --quiet
RUSTDOCFLAGS=-Dwarnings step cargo doc --no-deps --document-private-items --locked --quiet
step cargo deny --config .deny.toml check bans licenses sources
step typos
