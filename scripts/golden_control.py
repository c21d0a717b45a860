#!/usr/bin/env python3
"""Makes tests/fixtures/control/two.safetensors: two control networks at once, as diffusers sums them.

    scripts/golden_control.py FIXTURES tests/fixtures/control

FIXTURES is the folder with `sd15/model` and `controlnet/`. The case `controlnet/canny` is drawn again under the same network
twice: with its own picture at 0.8, and with that picture mirrored at 0.5; `latents` is what the walk ends with.
Needs: pip install torch diffusers transformers safetensors pillow.
"""

import json
import sys
from pathlib import Path

import torch
from diffusers import ControlNetModel, StableDiffusionControlNetPipeline
from PIL import Image, ImageOps
from safetensors.torch import load_file, save_file


def main() -> None:
    fixtures, target = Path(sys.argv[1]), Path(sys.argv[2])
    case = fixtures / "controlnet/canny"
    call = json.loads((case / "case.json").read_text())["call"]
    network = ControlNetModel.from_pretrained(fixtures / "controlnet/controlnet", torch_dtype=torch.float32)
    pipeline = StableDiffusionControlNetPipeline.from_pretrained(
        fixtures / "sd15/model", controlnet=[network, network], torch_dtype=torch.float32
    )
    image = Image.open(case / "image.png").convert("RGB")
    call |= {
        "image": [image, ImageOps.mirror(image)],
        "latents": load_file(case / "inputs.safetensors")["latents"],
        "controlnet_conditioning_scale": [0.8, 0.5],
        "output_type": "latent",
    }
    pipeline.set_progress_bar_config(disable=True)
    latents = pipeline(**call).images
    save_file({"latents": latents}, target / "two.safetensors")


if __name__ == "__main__":
    main()
