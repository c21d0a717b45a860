#!/usr/bin/env python3
"""Times latentia against diffusers on the same random SD 1.5 checkpoint, run by run in turn, and prints ratios.

    python3 -m venv .venv && .venv/bin/pip install torch diffusers transformers safetensors
    cargo build --release
    .venv/bin/python scripts/compare.py [--rounds 5] [--threads 2] [--size 512] [--folder DIR]

The checkpoint has SD 1.5's real shape and random weights in f16 (2.1 GB in DIR, a temporary folder by default); nothing
is downloaded. Each round runs latentia once (its default mode and f32) and diffusers once in each mode, so that noise of
the machine meets all alike; medians are printed, and the ratio to the best of diffusers' modes, for f32 of its f32 modes.
Below 1 latentia is faster. Our text column counts the opening of the encoder, our step a share of what is done once.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from checkpoint import checkpoint

ROOT = Path(__file__).resolve().parent.parent
STEPS = 5


def ours(binary: Path, folder: Path, dtype: str, size: int, threads: int) -> dict:
    """Seconds of one U-net step, the decoder and the text encoder."""
    out = folder / "out.png"
    call = [binary, "generate", "a red apple", "-m", folder, "--steps", STEPS, "--sampler", "euler", "--dtype", dtype]
    call += ["--size", f"{size}x{size}", "-o", out, "--json", "--quiet"]
    env = {**os.environ, "RAYON_NUM_THREADS": str(threads)}
    answer = subprocess.run([str(word) for word in call], env=env, capture_output=True, text=True, check=True).stdout
    took = json.loads(answer)["timings_ms"]
    return {"step": took["denoise"] / STEPS / 1e3, "decode": took["decode"] / 1e3, "text": took["encode"] / 1e3}


class Theirs:
    """The same three in PyTorch, in one of its modes."""

    def __init__(self, folder: Path, mode: str, size: int):
        import torch
        from diffusers import AutoencoderKL, UNet2DConditionModel
        from transformers import CLIPTextModel

        dtype = torch.bfloat16 if "bf16" in mode else torch.float32
        layout = torch.channels_last if "last" in mode else torch.contiguous_format
        load = lambda cls, part: cls.from_pretrained(folder / part, torch_dtype=dtype).eval()
        self.unet = load(UNet2DConditionModel, "unet").to(memory_format=layout)
        self.vae = load(AutoencoderKL, "vae").to(memory_format=layout)
        self.text = load(CLIPTextModel, "text_encoder")
        self.x = torch.randn(2, 4, size // 8, size // 8, dtype=dtype).to(memory_format=layout)
        self.context = torch.randn(2, 77, 768, dtype=dtype)
        self.ids = torch.randint(0, 49407, (2, 77))
        self.torch = torch

    def run(self) -> dict:
        def seconds(work):
            began = time.perf_counter()
            work()
            return time.perf_counter() - began

        with self.torch.inference_mode():
            return {
                "text": seconds(lambda: self.text(self.ids)),
                "step": seconds(lambda: self.unet(self.x, 500, encoder_hidden_states=self.context)),
                "decode": seconds(lambda: self.vae.decode(self.x[:1])),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/latentia")
    parser.add_argument("--modes", nargs="+", default=["f32", "f32-channels-last", "bf16-channels-last"])
    parser.add_argument("--json", type=Path, help="also write the medians to this file")
    args = parser.parse_args()
    import torch

    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        checkpoint(folder, "sd15")
        theirs = {f"diffusers {mode}": Theirs(folder, mode, args.size) for mode in args.modes}
        runs: dict = {}
        for _ in range(args.rounds + 1):
            for dtype in ("auto", "f32"):
                runs.setdefault(f"latentia {dtype}", []).append(ours(args.binary, folder, dtype, args.size, args.threads))
            for name, model in theirs.items():
                runs.setdefault(name, []).append(model.run())
    # The first round warms caches and allocators up.
    medians = {
        name: {part: statistics.median(run[part] for run in rounds[1:]) for part in ("text", "step", "decode")}
        for name, rounds in runs.items()
    }
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if "model name" in line), "?")
    print(f"{cpu}, {args.threads} threads, {args.size}x{args.size}, torch {torch.__version__}, medians of {args.rounds}")
    print(f"{'':34}{'text, s':>10}{'step, s':>10}{'decode, s':>10}")
    for name, parts in medians.items():
        print(f"{name:34}" + "".join(f"{parts[part]:10.3f}" for part in ("text", "step", "decode")))
    for mine, of in (("auto", list(theirs)), ("f32", [name for name in theirs if "f32" in name])):
        best = {part: min(medians[name][part] for name in of) for part in ("text", "step", "decode")}
        ratios = "".join(f"{medians[f'latentia {mine}'][part] / best[part]:10.2f}" for part in best)
        print(f"{f'latentia {mine} / the best':34}{ratios}")
    if args.json:
        args.json.write_text(json.dumps({"processor": cpu, "threads": args.threads, "medians": medians}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
