#!/usr/bin/env python3
"""Makes tests/fixtures/crossed: one call of a U-net with the levels of the x4 upscaler, whose first attentions ask the text.

    scripts/golden_crossed.py tests/fixtures/crossed

`config.json` and `unet.safetensors` (f16) as diffusers saves them, `golden.safetensors` with what went in and came out.
Needs: pip install torch diffusers safetensors.
"""

import sys
from pathlib import Path

import torch
from diffusers import UNet2DConditionModel
from safetensors.torch import save_file


def main() -> None:
    folder = Path(sys.argv[1])
    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        in_channels=7, out_channels=4, sample_size=8, block_out_channels=(8, 16, 16), layers_per_block=1,
        cross_attention_dim=24, attention_head_dim=4, norm_num_groups=4, num_class_embeds=10,
        use_linear_projection=True, only_cross_attention=[True, True, False],
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    ).eval()
    with torch.no_grad():
        for parameter in unet.parameters():
            parameter.copy_((parameter + 0.1 * torch.randn_like(parameter)).half().float())
        inputs = {"sample": torch.randn(2, 7, 8, 6), "encoder_hidden_states": torch.randn(2, 5, 24),
                  "class_labels": torch.tensor([3, 7])}
        out = unet(inputs["sample"], 500, inputs["encoder_hidden_states"], class_labels=inputs["class_labels"]).sample
    unet.half().save_pretrained(folder)
    (folder / "diffusion_pytorch_model.safetensors").rename(folder / "unet.safetensors")
    save_file({**inputs, "out": out}, folder / "golden.safetensors")


if __name__ == "__main__":
    main()
