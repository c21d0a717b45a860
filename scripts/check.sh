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
# AbstractVision's own classes read our registry and our store, where the package is installed.
if python3 -c 'import abstractvision' 2>/dev/null; then
    step python3 scripts/abstractvision_check.py
    step python3 scripts/store_check.py
else
    printf '\n== skipped: scripts/abstractvision_check.py, scripts/store_check.py (no abstractvision for this python3)\n'
fi
# Real clients against a real server; what is not installed is said and passed over.
step python3 scripts/tools_check.py
