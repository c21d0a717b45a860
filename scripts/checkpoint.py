"""Checkpoints of real shapes with random weights, in diffusers' layout: nothing is downloaded."""

import json
import shutil
from pathlib import Path

BENCHES = Path(__file__).resolve().parent.parent / "benches"


def checkpoint(folder: Path, shape: str) -> Path:
    """Writes the model of `benches/SHAPE` into `folder` in f16, seeded, unless it is there.

    One tensor at a time is made: names and sizes come from the modules of diffusers and transformers on torch's meta
    device. Matrices are small enough that numbers stay finite through the network; norms
    are ones, biases nought.
    """
    if (folder / "model_index.json").exists():
        return folder
    import torch
    from accelerate import init_empty_weights
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    read = lambda name: json.loads((BENCHES / shape / f"{name}.json").read_text())
    index = read("model_index")
    makers = {
        "unet": lambda config: UNet2DConditionModel.from_config(config),
        "vae": lambda config: AutoencoderKL.from_config(config),
        "text_encoder": lambda config: CLIPTextModel(CLIPTextConfig(**config)),
        "text_encoder_2": lambda config: CLIPTextModelWithProjection(CLIPTextConfig(**config)),
    }
    generator = torch.Generator().manual_seed(0)
    for part, maker in makers.items():
        if part not in index:
            continue
        with init_empty_weights(include_buffers=True):
            tensors = {name: tuple(tensor.shape) for name, tensor in maker(read(part)).state_dict().items()}
        (folder / part).mkdir(parents=True, exist_ok=True)
        file = "model.safetensors" if part.startswith("text") else "diffusion_pytorch_model.safetensors"
        write(folder / part / file, tensors, generator)
        shutil.copy(BENCHES / shape / f"{part}.json", folder / part / "config.json")
    (folder / "scheduler").mkdir(exist_ok=True)
    shutil.copy(BENCHES / shape / "scheduler.json", folder / "scheduler/scheduler_config.json")
    shutil.copy(BENCHES / shape / "model_index.json", folder / "model_index.json")
    return folder


def write(path: Path, tensors: dict, generator) -> None:
    """A safetensors file of random f16 tensors with these names and shapes."""
    import torch

    header, at = {}, 0
    for name, sizes in tensors.items():
        length = 2 * torch.Size(sizes).numel()
        header[name] = {"dtype": "F16", "shape": list(sizes), "data_offsets": [at, at + length]}
        at += length
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, sizes in tensors.items():
            if len(sizes) == 1:
                numbers = torch.ones(sizes) if name.endswith("weight") else torch.zeros(sizes)
            else:
                inputs = torch.Size(sizes[1:]).numel()
                numbers = (torch.rand(sizes, generator=generator) * 2 - 1) / inputs**0.5
            file.write(numbers.half().numpy().tobytes())
