"""Trains the sprite autoencoder (diffusers AutoencoderKL) from scratch.

Loss: L1 + L1 of horizontal and vertical differences (edges) + a tiny KL term.
After training, the per-channel mean and deviation of the latents are folded
into quant_conv / post_quant_conv, so every latent channel has mean 0 and
deviation 1 and scaling_factor is 1.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL
from PIL import Image

from data import Renderer, build_pool
from fastops import speed_up
from muon import Muon, split


def build(resolution: int, channels: list[int], latent_channels: int, groups: int, decoder_layers: int) -> AutoencoderKL:
    levels = len(channels)
    vae = AutoencoderKL(
        in_channels=3, out_channels=3, sample_size=resolution,
        down_block_types=["DownEncoderBlock2D"] * levels, up_block_types=["UpDecoderBlock2D"] * levels,
        block_out_channels=channels, layers_per_block=decoder_layers, latent_channels=latent_channels,
        norm_num_groups=groups, mid_block_add_attention=True, act_fn="silu", scaling_factor=1.0,
    )
    # Start with little posterior noise, or the latents drown in it at first.
    torch.nn.init.zeros_(vae.quant_conv.weight.data[latent_channels:])
    vae.quant_conv.bias.data[latent_channels:] = -6.0
    # Every residual branch starts at zero.
    for name, module in vae.named_modules():
        if name.endswith((".conv2", ".to_out.0")):
            torch.nn.init.zeros_(module.weight)
            torch.nn.init.zeros_(module.bias)
    return vae


def to_tensor(pictures: np.ndarray) -> torch.Tensor:
    """uint8 NHWC -> float NCHW in -1..1 (channels last in memory)."""
    x = torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 127.5 - 1
    return x.contiguous(memory_format=torch.channels_last)


def edge_loss(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    d = a - b
    return (d[..., 1:] - d[..., :-1]).abs().mean() + (d[..., 1:, :] - d[..., :-1, :]).abs().mean()


@torch.no_grad()
def latents_of(vae: AutoencoderKL, pictures: np.ndarray, batch: int = 128) -> torch.Tensor:
    """Mean latents of uint8 pictures, in f16."""
    out = []
    for i in range(0, len(pictures), batch):
        with torch.autocast("cpu", torch.bfloat16):
            out.append(vae.encode(to_tensor(pictures[i:i + batch])).latent_dist.mean.half())
    return torch.cat(out).contiguous()


@torch.no_grad()
def fold_statistics(vae: AutoencoderKL, pictures: np.ndarray) -> None:
    """Rewrites the 1x1 convolutions so that latents are standardised."""
    z = latents_of(vae, pictures).float()
    mean, std = z.mean((0, 2, 3)), z.std((0, 2, 3)).clamp_min(1e-4)
    n = len(mean)
    q, p = vae.quant_conv, vae.post_quant_conv
    q.weight[:n] /= std[:, None, None, None]
    q.bias[:n] = (q.bias[:n] - mean) / std
    q.bias[n:] -= 2 * std.log()                     # the log variances
    p.bias += (p.weight[:, :, 0, 0] * mean[None]).sum(1)
    p.weight *= std[None, :, None, None]


@torch.no_grad()
def evaluate(vae: AutoencoderKL, pictures: np.ndarray, sheet: Path | None) -> float:
    x = to_tensor(pictures)
    y = vae.decode(vae.encode(x).latent_dist.mean).sample.clamp(-1, 1)
    if sheet:
        both = torch.cat([x[:32], y[:32]], 0).permute(0, 2, 3, 1)
        both = ((both + 1) * 127.5 + 0.5).clamp(0, 255).byte().numpy()
        rows = [np.concatenate(list(both[k:k + 16]), 1) for k in (0, 32, 16, 48)]
        Image.fromarray(np.concatenate(rows, 0)).resize((2048, 512), Image.NEAREST).save(sheet)
    return float((x - y).abs().mean())


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--font", required=True)
    ap.add_argument("--out", required=True, help="folder for the autoencoder (diffusers layout)")
    ap.add_argument("--resolution", type=int, default=64)
    ap.add_argument("--channels", type=int, nargs="+", default=[16, 32, 96, 128])
    ap.add_argument("--latent-channels", type=int, default=16)
    ap.add_argument("--groups", type=int, default=8)
    ap.add_argument("--layers", type=int, default=1)
    ap.add_argument("--minutes", type=float, default=20, help="wall-clock budget; the schedule follows it")
    ap.add_argument("--steps", type=int, default=0, help="train exactly this many steps instead")
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--kl", type=float, default=5e-5, help="weight of the KL term per latent value")
    ap.add_argument("--pool", type=int, default=24000, help="pictures kept in memory")
    ap.add_argument("--free-share", type=float, default=0.1, help="share of loosely composed pictures")
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--init", help="start from this autoencoder")
    ap.add_argument("--decoder-only", action="store_true", help="freeze the encoder (needs --init)")
    ap.add_argument("--latent-noise", type=float, default=0.0, help="decoder-only: noise added to latents")
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    renderer = Renderer(args.font, args.resolution)
    pictures, _ = build_pool(renderer, args.pool, args.seed, args.free_share)
    test, _ = build_pool(renderer, 64, args.seed + 99, 0.0)
    if args.init:
        vae = AutoencoderKL.from_pretrained(args.init, torch_dtype=torch.float32)
    else:
        vae = build(args.resolution, args.channels, args.latent_channels, args.groups, args.layers)
    vae = speed_up(vae.to(memory_format=torch.channels_last))
    print(f"{sum(p.numel() for p in vae.parameters())} parameters", flush=True)
    if args.decoder_only:
        vae.encoder.requires_grad_(False)
        vae.quant_conv.requires_grad_(False)
        latents = latents_of(vae, pictures)
    params = [p for p in vae.parameters() if p.requires_grad]
    matrices, rest = split(vae)
    optimizers = [Muon(matrices, lr=args.lr), torch.optim.AdamW(rest, lr=args.lr, betas=(0.9, 0.98), weight_decay=0.0, fused=True)]
    rng = np.random.default_rng(args.seed + 1)
    began, step, logged = time.time(), 0, time.time()
    average = 0.0
    while True:
        spent = (time.time() - began) / 60
        done = step / args.steps if args.steps else spent / args.minutes
        if done >= 1:
            break
        rate = args.lr * min(1, (step + 1) / 40) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))
        for opt in optimizers:
            for group in opt.param_groups:
                group["lr"] = rate
        pick = np.sort(rng.integers(0, len(pictures), args.batch))
        x = to_tensor(pictures[pick])
        with torch.autocast("cpu", torch.bfloat16):
            if args.decoder_only:
                z = latents[torch.from_numpy(pick)].float()
                z = z + torch.randn_like(z) * args.latent_noise * torch.rand(len(z), 1, 1, 1)
                kl = 0.0
            else:
                dist = vae.encode(x).latent_dist
                z, kl = dist.sample(), dist.kl().mean() / z_size(x, vae)
            y = vae.decode(z).sample
        y = y.float()
        l1 = (x - y).abs().mean()
        loss = l1 + 0.5 * edge_loss(x, y) + args.kl * kl
        vae.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        for opt in optimizers:
            opt.step()
        step += 1
        average += l1.item() / 50
        if step % 50 == 0:
            now = time.time()
            print(f"step {step} {spent:.1f} min L1 {average:.4f} loss {loss.item():.4f} "
                  f"lr {rate:.2e} {(now - logged) / 50:.3f} s/step", flush=True)
            logged, average = now, 0.0
        if step % 500 == 0:
            print(f"  test L1 {evaluate(vae, test, out / 'sheet.png'):.4f}", flush=True)
            vae.save_pretrained(out)
    if not args.decoder_only:
        fold_statistics(vae, pictures[:4096])
        z = latents_of(vae, pictures[:2048]).float()
        print("latent mean/std", z.mean().item(), z.std().item(), "max", z.abs().max().item())
    l1 = evaluate(vae, test, out / "sheet.png")
    vae.save_pretrained(out)
    (out / "report.json").write_text(json.dumps({"steps": step, "minutes": (time.time() - began) / 60, "test_l1": l1}))
    print(f"done: {step} steps, test L1 {l1:.4f}", flush=True)


def z_size(x: torch.Tensor, vae: AutoencoderKL) -> float:
    """Number of latent values of one picture (makes the KL term per value)."""
    factor = 2 ** (len(vae.config.block_out_channels) - 1)
    return vae.config.latent_channels * x.shape[-1] * x.shape[-2] / factor**2


if __name__ == "__main__":
    main()
