#!/usr/bin/env python3
"""Makes tests/fixtures/control/two.safetensors, two control networks at once as diffusers sums them, and names.txt.

    scripts/golden_control.py FIXTURES tests/fixtures/control

FIXTURES is the folder with `sd15/model` and `controlnet/`. The case `controlnet/canny` is drawn again under the same network
twice: with its own picture at 0.8, and with that picture mirrored at 0.5; `latents` is what the walk ends with. `names.txt`
has each tensor's name as the authors of control networks write it and, behind it, as diffusers' own converter reads that.
Needs: pip install torch diffusers transformers safetensors pillow.
"""

import json
import sys
from pathlib import Path

import torch
from diffusers import ControlNetModel, StableDiffusionControlNetPipeline
from diffusers.loaders.single_file_utils import convert_controlnet_checkpoint
from PIL import Image, ImageOps
from safetensors.torch import load_file, save_file


RESNET = {
    "norm1": "in_layers.0",
    "conv1": "in_layers.2",
    "time_emb_proj": "emb_layers.1",
    "norm2": "out_layers.0",
    "conv2": "out_layers.3",
    "conv_shortcut": "skip_connection",
}
OTHERS = {
    "conv_in": "input_blocks.0.0",
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "controlnet_mid_block": "middle_block_out.0",
    "controlnet_cond_embedding.conv_in": "input_hint_block.0",
    "controlnet_cond_embedding.conv_out": "input_hint_block.14",
}


def authors(name: str, layers: int) -> str:
    module, parameter = name.rsplit(".", 1)
    parts = module.split(".")
    if module in OTHERS:
        return f"{OTHERS[module]}.{parameter}"
    if parts[0] == "controlnet_down_blocks":
        return f"zero_convs.{parts[1]}.0.{parameter}"
    if parts[0] == "controlnet_cond_embedding":
        return f"input_hint_block.{2 * int(parts[2]) + 2}.{parameter}"
    kind, number = (parts[1], int(parts[2])) if parts[0] == "mid_block" else (parts[2], int(parts[3]))
    rest = ".".join(parts[3:] if parts[0] == "mid_block" else parts[4:])
    rest = RESNET.get(rest, rest) if kind == "resnets" else "op" if kind == "downsamplers" else rest
    if parts[0] == "mid_block":
        return f"middle_block.{1 if kind == 'attentions' else 2 * number}.{rest}.{parameter}"
    step = int(parts[1]) * (layers + 1) + 1 + (layers if kind == "downsamplers" else number)
    return f"input_blocks.{step}.{int(kind == 'attentions')}.{rest}.{parameter}"


def names(folder: Path, target: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    ours = load_file(folder / "diffusion_pytorch_model.safetensors")
    theirs = {authors(name, config["layers_per_block"]): tensor for name, tensor in ours.items()}
    assert len(theirs) == len(ours)
    read = convert_controlnet_checkpoint(dict(theirs), config)
    assert read.keys() == ours.keys() and all(torch.equal(read[name], ours[name]) for name in ours)
    lines = [f"{authors(name, config['layers_per_block'])} {name}\n" for name in sorted(ours)]
    target.write_text("".join(lines))


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
    names(fixtures / "controlnet/controlnet", target / "names.txt")


if __name__ == "__main__":
    main()
