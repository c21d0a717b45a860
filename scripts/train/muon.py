"""Muon: momentum whose matrix updates are orthogonalised (Newton-Schulz).

Needs far fewer steps than AdamW on small networks. Convolution kernels count
as (out, in*k*k) matrices. Updates are scaled to the size AdamW's would have,
so the same learning rates fit. Vectors, embeddings and the first and last
layers should stay with AdamW: `split` sorts the parameters.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import nn

ADAM_NAMES = ("conv_in.", "conv_out.", "embedding", "quant_conv.")


def split(module: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """(parameters for Muon, parameters for AdamW), trainable ones only."""
    muon, adam = [], []
    for name, p in module.named_parameters():
        if p.requires_grad:
            adam_only = p.dim() < 2 or any(k in name for k in ADAM_NAMES)
            (adam if adam_only else muon).append(p)
    return muon, adam


def orthogonalise(g: torch.Tensor, rounds: int = 5) -> torch.Tensor:
    """Newton-Schulz iteration on a batch of matrices, in bf16."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = (x / (x.float().norm(dim=(-2, -1), keepdim=True) + 1e-7).bfloat16()).contiguous()
    for _ in range(rounds):
        s = torch.bmm(x, x.mT.contiguous())
        s = b * s + c * torch.bmm(s, s)
        x = a * x + torch.bmm(s, x)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr: float, momentum: float = 0.95, weight_decay: float = 0.0, rounds: int = 5):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "rounds": rounds})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            by_shape = defaultdict(list)
            for p in group["params"]:
                if p.grad is None:
                    continue
                buf = self.state[p].setdefault("momentum", torch.zeros_like(p))
                buf.lerp_(p.grad, 1 - group["momentum"])
                update = p.grad.lerp(buf, group["momentum"]).reshape(p.shape[0], -1)
                by_shape[update.shape].append((p, update))
            for shape, items in by_shape.items():
                flat = orthogonalise(torch.stack([u for _, u in items]), group["rounds"])
                scale = 0.2 * max(shape) ** 0.5 * group["lr"]
                for (p, _), u in zip(items, flat):
                    if group["weight_decay"]:
                        p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(u.reshape(p.shape).to(p.dtype), alpha=-scale)
