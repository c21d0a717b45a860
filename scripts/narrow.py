#!/usr/bin/env python3
"""Makes tests/fixtures/narrow: the smallest U-net of Stable Diffusion 1, 8 channels wide, as the hostile LoRA files want it.

    scripts/narrow.py tests/fixtures/narrow

`config.json` and `unet.safetensors` (f16) as diffusers saves them; it takes the text encoder of the fixture `sd15`.
Needs: pip install torch diffusers.
"""

import sys
from pathlib import Path

import torch
from diffusers import UNet2DConditionModel


def main() -> None:
    folder = Path(sys.argv[1])
    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        in_channels=4, out_channels=4, sample_size=8, block_out_channels=(8, 16), layers_per_block=1,
        cross_attention_dim=32, attention_head_dim=2, norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )
    unet.half().save_pretrained(folder)
    (folder / "diffusion_pytorch_model.safetensors").rename(folder / "unet.safetensors")


if __name__ == "__main__":
    main()
