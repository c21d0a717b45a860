#!/usr/bin/env python3
"""Makes the compact golden set of this repository out of a full one.

    scripts/golden.py FULL tests/fixtures/golden

FULL is a folder of fixtures that diffusers made (one folder a family, one a case, with case.json, inputs and golden
tensors of every stage). Nothing here computes a golden value: cases are chosen and copied, and of the scheduler
trajectories, which are many, some are left out. Needs: pip install safetensors numpy.
"""

import json
import shutil
import sys
from pathlib import Path

from safetensors.numpy import load_file, save_file

# Family -> what is copied whole: models and cases.
WHOLE = {
    "controlnet": ["controlnet", "canny", "canny_guess"],
    "rng": None,
    "lora_sdxl": ["kohya.safetensors", "kohya_0.9"],
    "pix2pix": ["model", "edit"],
    "sd15": ["model", "euler", "img2img_resize", "inpaint_4ch_strength", "taesd"],
    "sd15_inpaint": ["model", "euler_9ch_strength"],
    "sd15_lcm": ["model", "lcm_w_embed"],
    "sd21": ["model", "ddim_v", "ddim_v_zero_snr", "single_file"],
    "sdxl_controlnet": None,
    "sdxl": ["model", "euler_empty_negative", "micro_cond"],
    "upscale_x4": ["model", "x4"],
}
# Trajectories of these lengths are kept, and of each class at most so many.
STEPS, MOST = (1, 8), 6


def schedulers(full: Path, compact: Path) -> None:
    for folder in sorted(path for path in full.iterdir() if path.is_dir()):
        case = json.loads((folder / "case.json").read_text())
        kept = [c for c in case["cases"] if c["num_inference_steps"] in STEPS]
        stride = max(1, -(-len(kept) // MOST))
        kept = kept[::stride]
        ids = tuple(c["id"] + "." for c in kept)
        golden = {k: v for k, v in load_file(folder / "golden.safetensors").items() if k.startswith(ids)}
        target = compact / folder.name
        target.mkdir(parents=True)
        (target / "case.json").write_text(json.dumps({**case, "cases": kept}, indent=1) + "\n")
        save_file(golden, target / "golden.safetensors")


def main() -> None:
    full, compact = Path(sys.argv[1]), Path(sys.argv[2])
    if compact.exists():
        shutil.rmtree(compact)
    for family, parts in WHOLE.items():
        if parts is None:
            shutil.copytree(full / family, compact / family)
            continue
        for part in parts:
            source, target = full / family / part, compact / family / part
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
            else:
                shutil.copytree(source, target)
    schedulers(full / "schedulers", compact / "schedulers")
    texts = json.loads((full / "tokenizers/goldens.json").read_text())
    (compact / "tokenizers").mkdir()
    (compact / "tokenizers/goldens.json").write_text(json.dumps({"clip": texts["clip"]}, ensure_ascii=False) + "\n")
    size = sum(path.stat().st_size for path in compact.rglob("*") if path.is_file())
    print(f"{compact}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
