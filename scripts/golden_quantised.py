"""Makes tests/fixtures/quantised: weights as bitsandbytes and ComfyUI pack them, and what they stand for.

    python scripts/golden_quantised.py DESTINATION      (torch, safetensors; bitsandbytes 0.50 on the CPU)

The four bits come out of bitsandbytes itself; the eight bits of `SCB` follow its formula, q x SCB / 127; the floats of
eight bits are torch's, times their scale. Two forms of ComfyUI: `scale_weight` with the marker `scaled_fp8`, and
`weight_scale` with `comfy_quant`.
"""

import json
import sys
from pathlib import Path

import bitsandbytes.functional as bnb
import torch
from safetensors.torch import save_file

torch.manual_seed(20261130)
files, golden = {}, {}


def text(value):
    return torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8)


def four_bit(layer, shape, kind, nested):
    weight = torch.randn(shape) * 0.05
    packed, state = bnb.quantize_4bit(weight, blocksize=64, compress_statistics=nested, quant_type=kind)
    files[f"{layer}.weight"] = packed
    for key, value in state.as_dict(packed=True).items():
        files[f"{layer}.weight.{key}"] = value
    golden[f"{layer}.weight"] = bnb.dequantize_4bit(packed, state)


def eight_bit_float(layer, kind, scales, **beside):
    stored = (torch.randn(6, 10) * 20).to(kind)
    files[f"{layer}.weight"] = stored
    files.update({f"{layer}.{key}": value for key, value in beside.items()})
    golden[f"{layer}.weight"] = stored.float() * scales.float()


four_bit("nested", (136, 128), "nf4", True)
four_bit("plain", (4, 64), "nf4", False)
four_bit("fp4", (8, 128), "fp4", True)

e4m3, e5m2 = torch.float8_e4m3fn, torch.float8_e5m2
scale, rows = torch.tensor(0.0123), torch.rand(6, 1) + 0.5
eight_bit_float("bare", e5m2, torch.ones(1))
eight_bit_float("old", e4m3, scale, scale_weight=scale.clone(), scale_input=torch.ones(1))
eight_bit_float("new", e4m3, scale, weight_scale=scale.clone(), input_scale=torch.ones(()),
                comfy_quant=text({"format": "float8_e4m3fn"}))
eight_bit_float("rows", e5m2, rows, weight_scale=rows.clone())
files["scaled_fp8"] = torch.zeros(0, dtype=e4m3)

q, scb = torch.randint(-127, 128, (6, 10), dtype=torch.int8), torch.rand(6) + 0.5
files |= {"int8.weight": q, "int8.SCB": scb, "int8.weight_format": torch.zeros((), dtype=torch.uint8)}
golden["int8.weight"] = q.float() * (scb.reshape(6, 1) * 7.874015718698502e-3)
files |= {"block.weight": torch.zeros(4, 8, dtype=torch.uint8), "block.weight_scale": torch.ones(4, 1),
          "block.weight_scale_2": torch.ones(()), "block.comfy_quant": text({"format": "nvfp4"})}
files["block.bias"] = golden["block.bias"] = torch.arange(4.0)

to = Path(sys.argv[1])
to.mkdir(parents=True, exist_ok=True)
save_file(files, to / "packed.safetensors")
save_file({name: value.contiguous() for name, value in golden.items()}, to / "golden.safetensors")
