#!/usr/bin/env bash
# Runs the benches and prints one line each: name, time, change against the last run.
# scripts/bench.sh [op|sampler|network|picture|memory ...]; without names, all of them.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- op sampler network picture memory

printf '%-58s %14s %10s\n' bench median change
for bench in "$@"; do
    cargo bench --quiet --locked --bench "$bench" -- --noplot 2>/dev/null | awk -v bench="$bench" '
        bench == "memory" || bench == "op" { print; next }
        # criterion prints the name alone on a line when it is long
        /^[^ ].*$/ && !/time:/ && !/^(Benchmarking|Found|Gnuplot|test )/ { name = $0; next }
        /time:/ {
            if (match($0, /^[^ ].*time:/)) { name = substr($0, 1, RLENGTH - 5); sub(/ +$/, "", name) }
            split(substr($0, index($0, "[") + 1), part, " ")
            time = part[3] " " part[4]; change = "-"
            shown = sprintf("%-58s %14s", name, time)
            print shown
        }
        /change:/ { if (match($0, /\[[^]]*\]/)) { split(substr($0, RSTART + 1, RLENGTH - 2), part, " "); printf "%-58s %25s\n", "", part[2] } }
    '
done
