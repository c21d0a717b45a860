#!/usr/bin/env python3
"""Makes tests/fixtures/changes: weights before and after changes of every kind, as lycoris and peft merge them.

    scripts/golden_changes.py tests/fixtures/changes

`base.safetensors` holds the weights of a linear map and two convolutions under names of a U-net; each other file is a
change in the names its makers write, and `KIND.golden.safetensors` the weights with it in full strength.
Needs: pip install torch lycoris_lora peft safetensors.
"""

import copy
import sys
from pathlib import Path

import torch
from lycoris.modules.locon import LoConModule
from lycoris.modules.loha import LohaModule
from lycoris.modules.lokr import LokrModule
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file

SIZES = {
    "down_blocks.0.attentions.0.proj_in": torch.nn.Linear(48, 64),
    "down_blocks.0.resnets.0.conv1": torch.nn.Conv2d(16, 24, 3, padding=1),
    "down_blocks.0.resnets.0.conv_shortcut": torch.nn.Conv2d(16, 24, 1),
}
# Kind -> module of lycoris and its settings.
KINDS = {
    "locon": (LoConModule, {}),
    "locon_tucker": (LoConModule, {"use_tucker": True}),
    "dora": (LoConModule, {"weight_decompose": True, "wd_on_out": True}),
    "dora_by_column": (LoConModule, {"weight_decompose": True, "wd_on_out": False}),
    "loha": (LohaModule, {}),
    "loha_tucker": (LohaModule, {"use_tucker": True}),
    "loha_dora": (LohaModule, {"weight_decompose": True, "wd_on_out": True}),
    "lokr": (LokrModule, {"factor": 4}),
    "lokr_both": (LokrModule, {"factor": 8, "decompose_both": True}),
    "lokr_tucker": (LokrModule, {"factor": 4, "use_tucker": True}),
    "lokr_whole": (LokrModule, {"factor": 4, "full_matrix": True}),
}


def randomise(module: torch.nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if not name.startswith("org_module"):
            offset = 1.0 if "dora" in name or "magnitude" in name else 0.0
            parameter.data = offset + 0.3 * torch.randn(parameter.shape)


def with_lycoris(kind: str) -> tuple[dict, dict]:
    make, settings = KINDS[kind]
    change, golden = {}, {}
    for name, module in SIZES.items():
        flat = "lora_unet_" + name.replace(".", "_")
        changed = make(flat, module, 1.0, 2, 1.5, **settings)
        randomise(changed)
        if make is LoConModule:
            merged = changed.get_merged_weight(shape=module.weight.shape)[0].reshape(module.weight.shape)
        else:
            # Merging in lycoris 4.1.3 multiplies these by alpha over rank twice; what it computes with is taken.
            merged = module.weight + changed.get_weight(module.weight.shape)
            if settings.get("weight_decompose"):
                merged = changed.apply_weight_decompose(merged, 1)
        golden[name + ".weight"] = merged.detach().clone().contiguous()
        state = changed.state_dict() if not hasattr(changed, "custom_state_dict") else (
            changed.custom_state_dict() or changed.state_dict())
        for key, value in state.items():
            if not key.startswith("org_module"):
                change[f"{flat}.{key}"] = value.detach().clone().contiguous()
    return change, golden


def with_peft(**settings) -> tuple[dict, dict]:
    net = torch.nn.ModuleDict({name.replace(".", "/"): module for name, module in SIZES.items()})
    config = LoraConfig(r=2, lora_alpha=1.5, target_modules=[n.replace(".", "/") for n in SIZES], **settings)
    model = get_peft_model(copy.deepcopy(net), config)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            offset = 1.0 if "magnitude" in name else 0.0
            parameter.data = offset + 0.3 * torch.randn(parameter.shape)
    change = {}
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            module, _, rest = name.removeprefix("base_model.model.").partition(".")
            key = f"unet.{module.replace('/', '.')}.{rest.replace('.default', '')}"
            change[key.removesuffix(".weight") if key.endswith("magnitude_vector.weight") else key] = (
                parameter.detach().clone().contiguous())
    for name in SIZES:
        change[f"unet.{name}.alpha"] = torch.tensor(1.5)
    merged = model.merge_and_unload()
    golden = {f"{name}.weight": merged[name.replace(".", "/")].weight.detach().clone().contiguous() for name in SIZES}
    return change, golden


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for module in SIZES.values():
        module.weight.data = torch.randn(module.weight.shape)
    save_file({f"{name}.weight": module.weight.detach().clone() for name, module in SIZES.items()},
              folder / "base.safetensors")
    made = {kind: with_lycoris(kind) for kind in KINDS}
    made["peft"] = with_peft()
    made["peft_dora"] = with_peft(use_dora=True)
    for kind, (change, golden) in made.items():
        save_file(change, folder / f"{kind}.safetensors")
        save_file(golden, folder / f"{kind}.golden.safetensors")
        print(kind, sorted({key.rsplit(".", 1)[-1] if "lora_" not in key.rsplit(".", 2)[-2] else key.rsplit(".", 2)[-2]
                            for key in change}))


if __name__ == "__main__":
    main()
