"""Writes the trained parts as one diffusers pipeline folder (f16) and checks it.

Text-encoder keys get the usual "text_model." prefix whatever the installed
transformers version writes. `--check` loads the folder back in f32 with
StableDiffusionPipeline and draws the evaluation prompts.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL, StableDiffusionPipeline, UNet2DConditionModel
from safetensors.torch import load_file, save_file

from diffusion import PROMPTS, contact_sheet, make_scheduler

MODEL_INDEX = {
    "_class_name": "StableDiffusionPipeline",
    "_diffusers_version": "0.30.0",
    "feature_extractor": [None, None],
    "image_encoder": [None, None],
    "requires_safety_checker": False,
    "safety_checker": [None, None],
    "scheduler": ["diffusers", "DDIMScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "unet": ["diffusers", "UNet2DConditionModel"],
    "vae": ["diffusers", "AutoencoderKL"],
}


def write_json(path: Path, value: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n")


def halve(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    out = {k: v.half().contiguous() for k, v in tensors.items() if v.is_floating_point()}
    assert all(torch.isfinite(v).all() for v in out.values())
    return out


def export(unet: Path, text: Path, vae: Path, tokenizer: Path, out: Path) -> int:
    for part, folder, loader in (("unet", unet, UNet2DConditionModel), ("vae", vae, AutoencoderKL)):
        model = loader.from_pretrained(folder, torch_dtype=torch.float32)
        model.to(memory_format=torch.contiguous_format)
        config = {k: v for k, v in dict(model.config).items() if not k.startswith("_")}
        write_json(out / part / "config.json", {"_class_name": loader.__name__, **config})
        save_file(halve(model.state_dict()), out / part / "diffusion_pytorch_model.safetensors", metadata={"format": "pt"})
    weights = load_file(text / "model.safetensors")
    weights = {k if k.startswith("text_model.") else f"text_model.{k}": v for k, v in weights.items()}
    config = json.loads((text / "config.json").read_text())
    config |= {"model_type": "clip_text_model", "torch_dtype": "float16"}
    for key in ("dtype", "transformers_version"):
        config.pop(key, None)
    write_json(out / "text_encoder" / "config.json", config)
    save_file(halve(weights), out / "text_encoder" / "model.safetensors", metadata={"format": "pt"})
    (out / "tokenizer").mkdir(exist_ok=True)
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copyfile(tokenizer / name, out / "tokenizer" / name)
    scheduler = {k: v for k, v in dict(make_scheduler().config).items() if not k.startswith("_")}
    write_json(out / "scheduler" / "scheduler_config.json", {"_class_name": "DDIMScheduler", **scheduler})
    write_json(out / "model_index.json", MODEL_INDEX)
    for f in out.rglob("*.safetensors"):
        f.chmod(0o644)
    return sum(f.stat().st_size for f in out.rglob("*") if f.is_file())


def check(out: Path, sheet: Path, steps: int, guidance: float, seeds: int) -> None:
    pipe = StableDiffusionPipeline.from_pretrained(out, torch_dtype=torch.float32, safety_checker=None)
    pipe.set_progress_bar_config(disable=True)
    rows = []
    for seed in range(seeds):
        row = []
        for prompt in PROMPTS:
            picture = pipe(prompt, num_inference_steps=steps, guidance_scale=guidance,
                           generator=torch.Generator().manual_seed(seed)).images[0]
            row.append(np.asarray(picture))
        rows.append(np.stack(row))
    contact_sheet(rows, sheet)


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--run", required=True, type=Path, help="folder of diffusion.py (holds unet/ and text_encoder/)")
    ap.add_argument("--vae", required=True, type=Path)
    ap.add_argument("--tokenizer", required=True, type=Path)
    ap.add_argument("--out", required=True, type=Path)
    ap.add_argument("--limit", type=int, default=24_000_000, help="most bytes the folder may hold")
    ap.add_argument("--check", type=Path, help="PNG sheet to draw with the exported pipeline")
    ap.add_argument("--steps", type=int, default=20)
    ap.add_argument("--guidance", type=float, default=3.0)
    ap.add_argument("--seeds", type=int, default=2)
    ap.add_argument("--threads", type=int, default=2)
    args = ap.parse_args()
    torch.set_num_threads(args.threads)
    total = export(args.run / "unet", args.run / "text_encoder", args.vae, args.tokenizer, args.out)
    print(f"{total} bytes in {args.out}")
    if total > args.limit:
        raise SystemExit("too large")
    if args.check:
        check(args.out, args.check, args.steps, args.guidance, args.seeds)


if __name__ == "__main__":
    main()
