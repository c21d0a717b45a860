#!/usr/bin/env python3
"""Holds `latentia plan` against what a drawing really takes, with SD 1.5 and SDXL at their real shapes.

    python3 -m venv .venv && .venv/bin/pip install torch diffusers transformers accelerate
    cargo build --release
    .venv/bin/python scripts/memory.py [--folder DIR] [--dtype f16] [--json FILE] [sd15:512x512 ...]

The checkpoints have random weights in f16 (9 GB in DIR, a temporary folder by default); nothing is downloaded. Each case
draws one step and a picture of it while its memory is read every few milliseconds: `own` is what belongs to the process
alone (RssAnon), which is what the plan foretells; `all` is the kernel's high-water mark (VmHWM), which also counts pages
of the mapped files that the kernel takes back when it wants. Fails where the plan is off by more than 15 %, or where a
case takes more than its limit.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from checkpoint import checkpoint

ROOT = Path(__file__).resolve().parent.parent
CASES = ["sd15:512x512", "sd15:768x768", "sdxl:1024x1024", "sdxl:768x1152"]
LIMITS = {"sdxl:1024x1024": 12e9}


def planned(binary: Path, words: list) -> int:
    """Bytes that the plan foretells."""
    answer = subprocess.run([binary, "plan", "generate", *words, "--json"], capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)["memory"]["peak_bytes"]


def drawn(binary: Path, words: list, out: Path) -> tuple:
    """The most bytes of its own and of all that the process had, and its timings."""
    out.unlink(missing_ok=True)
    call = [binary, "generate", *words, "-o", out, "--json", "--quiet"]
    with subprocess.Popen([str(word) for word in call], stdout=subprocess.PIPE, text=True) as process:
        own = everything = 0
        while process.poll() is None:
            try:
                status = Path(f"/proc/{process.pid}/status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                break
            found = dict(re.findall(r"(VmHWM|RssAnon):\s+(\d+) kB", status))
            own = max(own, 1024 * int(found.get("RssAnon", 0)))
            everything = max(everything, 1024 * int(found.get("VmHWM", 0)))
            time.sleep(0.005)
        answer = process.stdout.read()
    if process.returncode:
        sys.exit(f"{' '.join(map(str, call))}: {process.returncode}")
    return own, everything, json.loads(answer)["timings_ms"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--dtype", default="f16")
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/latentia")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    figures, failed = {}, False
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        for case in args.cases:
            shape, size = case.split(":")
            model = checkpoint(folder / shape, shape)
            words = ["a red apple", "-m", model, "--steps", "1", "--size", size, "--dtype", args.dtype]
            words += ["--sampler", "euler"]
            plan = planned(args.binary, words)
            own, everything, took = drawn(args.binary, words, folder / "out.png")
            limit = LIMITS.get(case, float("inf"))
            is_good = abs(plan / own - 1) <= 0.15 and own <= limit
            failed |= not is_good
            figures[case] = {"plan": plan, "own": own, "all": everything, "timings_ms": took}
            print(
                f"{case:16} {args.dtype}: plan {plan / 1e9:6.2f} GB, own {own / 1e9:6.2f}, all {everything / 1e9:6.2f}; "
                f"plan / own {plan / own:.2f}; step {took['denoise'] / 1e3:.1f} s, decode {took['decode'] / 1e3:.1f} s"
                f"{'' if is_good else '  FAILS'}",
                flush=True,
            )
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
