"""Trains the sprite UNet and text encoder together on cached latents.

v-prediction, DDPM betas (scaled linear) rescaled to zero terminal SNR, ten per
cent empty captions for classifier-free guidance, exponential moving average of
the weights. The learning rate follows the wall clock, so `--minutes` is what
the run takes (on top of what a resumed run has spent).
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
from diffusers.models.attention_processor import AttnProcessor
from PIL import Image
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from autoencoder import latents_of
from data import Renderer, build_pool, caption
from fastops import speed_up
from muon import Muon, split

PROMPTS = [
    "a red apple", "a blue fish on a yellow background", "a green frog", "a pizza on a black background",
    "a cat face", "a yellow car", "an airplane on a blue background", "a strawberry on a white background",
    "a small bee on the left", "a rocket on a purple background",
]


def make_scheduler() -> DDIMScheduler:
    return DDIMScheduler(
        num_train_timesteps=1000, beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear",
        clip_sample=False, set_alpha_to_one=True, steps_offset=0, prediction_type="v_prediction",
        timestep_spacing="trailing", rescale_betas_zero_snr=True,
    )


def make_text_encoder(tokenizer: CLIPTokenizer, width: int, layers: int, heads: int) -> CLIPTextModel:
    return CLIPTextModel(CLIPTextConfig(
        vocab_size=len(tokenizer), hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers,
        num_attention_heads=heads, max_position_embeddings=tokenizer.model_max_length, hidden_act="quick_gelu",
        projection_dim=width, bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    ))


def make_unet(sample_size: int, latent_channels: int, channels: list[int], text_width: int, heads: int,
              layers: int) -> UNet2DConditionModel:
    # The finest level has no attention: the words enter at the coarser ones,
    # where a step is four times cheaper.
    levels = len(channels)
    unet = UNet2DConditionModel(
        sample_size=sample_size, in_channels=latent_channels, out_channels=latent_channels,
        block_out_channels=channels, layers_per_block=layers, cross_attention_dim=text_width,
        down_block_types=["DownBlock2D"] + ["CrossAttnDownBlock2D"] * (levels - 1),
        up_block_types=["CrossAttnUpBlock2D"] * (levels - 1) + ["UpBlock2D"],
        mid_block_type="UNetMidBlock2DCrossAttn", attention_head_dim=heads, norm_num_groups=16,
        use_linear_projection=True, act_fn="silu",
    )
    # Every residual branch starts at zero.
    for name, module in unet.named_modules():
        if name.endswith((".conv2", ".proj_out")) or name == "conv_out":
            torch.nn.init.zeros_(module.weight)
            torch.nn.init.zeros_(module.bias)
    return unet


class Captioner:
    """Turns specs into token ids, with a cache of words (BPE works per word)."""

    def __init__(self, tokenizer: CLIPTokenizer):
        self.tokenizer, self.words = tokenizer, {}
        self.length, self.bos, self.eos = tokenizer.model_max_length, tokenizer.bos_token_id, tokenizer.eos_token_id

    def ids(self, text: str) -> list[int]:
        out = [self.bos]
        for word in text.replace(",", " ,").split():
            if word not in self.words:
                self.words[word] = self.tokenizer(word).input_ids[1:-1]
            out += self.words[word]
        return out[:self.length - 1] + [self.eos] * max(1, self.length - len(out))

    def batch(self, specs, rng: np.random.Generator, drop: float) -> torch.Tensor:
        return torch.tensor([self.ids("" if rng.random() < drop else caption(s, rng)) for s in specs])


@torch.no_grad()
def sample(unet, text, tokenizer, vae, prompts: list[str], steps: int, guidance: float, seed: int,
           scheduler=None, return_latents: bool = False):
    """uint8 NHWC pictures; the same noise for a given seed whatever the prompt."""
    scheduler = scheduler or make_scheduler()
    scheduler.set_timesteps(steps)
    both = tokenizer(prompts + [""] * len(prompts), padding="max_length", truncation=True, return_tensors="pt").input_ids
    context = text(both)[0]
    size, channels = unet.config.sample_size, unet.config.in_channels
    z = torch.randn(1, channels, size, size, generator=torch.Generator().manual_seed(seed))
    z = z.repeat(len(prompts), 1, 1, 1) * scheduler.init_noise_sigma
    for t in scheduler.timesteps:
        model_in = scheduler.scale_model_input(torch.cat([z, z]), t)
        cond, free = unet(model_in, t, context).sample.chunk(2)
        z = scheduler.step(free + guidance * (cond - free), t, z).prev_sample
    if return_latents:
        return z
    x = vae.decode(z / vae.config.scaling_factor).sample.clamp(-1, 1)
    return ((x + 1) * 127.5 + 0.5).byte().permute(0, 2, 3, 1).numpy()


def contact_sheet(rows: list[np.ndarray], path: Path, zoom: int = 2) -> None:
    sheet = Image.fromarray(np.concatenate([np.concatenate(list(r), 1) for r in rows], 0))
    sheet.resize((sheet.width * zoom, sheet.height * zoom), Image.NEAREST).save(path)


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--font", required=True)
    ap.add_argument("--vae", required=True, help="folder written by autoencoder.py")
    ap.add_argument("--tokenizer", required=True, help="folder written by tokenizer.py")
    ap.add_argument("--out", required=True, type=Path, help="folder for checkpoints and sheets")
    ap.add_argument("--resolution", type=int, default=64)
    ap.add_argument("--channels", type=int, nargs="+", default=[128, 160])
    ap.add_argument("--layers", type=int, default=1)
    ap.add_argument("--heads", type=int, default=4)
    ap.add_argument("--text-width", type=int, default=128)
    ap.add_argument("--text-layers", type=int, default=3)
    ap.add_argument("--minutes", type=float, default=70)
    ap.add_argument("--steps", type=int, default=0, help="train exactly this many steps instead")
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--lr", type=float, default=1.5e-3)
    ap.add_argument("--ema", type=float, default=0.995)
    ap.add_argument("--drop", type=float, default=0.1, help="share of empty captions")
    ap.add_argument("--terminal", type=float, default=0.06, help="extra share of samples at the last timestep")
    ap.add_argument("--small-weight", type=float, default=1.6, help="how much oftener small sprites are drawn than the data says")
    ap.add_argument("--pool", type=int, default=40000)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--save-minutes", type=float, default=5)
    ap.add_argument("--resume", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = CLIPTokenizer.from_pretrained(args.tokenizer)
    vae = AutoencoderKL.from_pretrained(args.vae, torch_dtype=torch.float32).to(memory_format=torch.channels_last).eval()

    pool_file = args.out / f"pool-{args.pool}-{args.resolution}-{args.seed}.pt"
    if pool_file.exists():
        stored = torch.load(pool_file, weights_only=False)
        latents, specs = stored["latents"], stored["specs"]
    else:
        began = time.time()
        renderer, parts, specs = Renderer(args.font, args.resolution), [], []
        for k in range(0, args.pool, 4000):
            pictures, some = build_pool(renderer, min(4000, args.pool - k), args.seed + 1000 + k)
            parts.append(latents_of(vae, pictures))
            specs += some
        latents = torch.cat(parts)
        torch.save({"latents": latents, "specs": specs}, pool_file)
        print(f"pool of {len(specs)} in {time.time() - began:.0f} s", flush=True)
    print("latent deviation", latents[:4096].float().std().item(), flush=True)

    unet = make_unet(latents.shape[-1], latents.shape[1], args.channels, args.text_width, args.heads, args.layers)
    text = make_text_encoder(tokenizer, args.text_width, args.text_layers, args.heads)
    unet = speed_up(unet.to(memory_format=torch.channels_last))
    # Plain matrix products: the fused attention's backward is slow on a CPU.
    unet.set_attn_processor(AttnProcessor())
    text.set_attn_implementation("eager")
    both = torch.nn.ModuleList([unet, text])
    params = list(both.parameters())
    average = [p.detach().clone() for p in params]
    print(f"UNet {sum(p.numel() for p in unet.parameters())} text {sum(p.numel() for p in text.parameters())} parameters", flush=True)
    matrices, rest = split(both)
    optimizers = [Muon(matrices, lr=args.lr, weight_decay=0.01, rounds=4),
                  torch.optim.AdamW(rest, lr=args.lr, betas=(0.9, 0.99), weight_decay=0.0, fused=True)]
    step, spent_before = 0, 0.0
    checkpoint = args.out / "checkpoint.pt"
    if args.resume and checkpoint.exists():
        state = torch.load(checkpoint, weights_only=False)
        both.load_state_dict(state["model"])
        for opt, stored in zip(optimizers, state["optimizers"]):
            opt.load_state_dict(stored)
        for group in optimizers[0].param_groups:
            group["rounds"] = 4
        for a, b in zip(average, state["average"]):
            a.copy_(b)
        step, spent_before = state["step"], state["minutes"]
        print(f"resumed at step {step}, {spent_before:.1f} min", flush=True)

    scheduler = make_scheduler()
    alphas = scheduler.alphas_cumprod.float()
    captioner = Captioner(tokenizer)
    rng = np.random.default_rng(args.seed + 7 + step)
    began = logged = saved = time.time()
    cumulative = np.cumsum([args.small_weight if s.size == "small" else 1.0 for s in specs])
    smooth = None
    total = args.minutes

    def save(sheet: bool) -> None:
        nonlocal saved
        saved = time.time()
        spent = spent_before + (saved - began) / 60
        torch.save({"model": both.state_dict(), "optimizers": [o.state_dict() for o in optimizers], "average": average, "step": step,
                    "minutes": spent}, args.out / "checkpoint.tmp")
        (args.out / "checkpoint.tmp").replace(checkpoint)
        mean_unet, mean_text = copy.deepcopy(unet), copy.deepcopy(text)
        for p, a in zip(list(mean_unet.parameters()) + list(mean_text.parameters()), average):
            p.data.copy_(a)
        for m in mean_unet.modules():  # the copies must not call the originals' patched forwards
            m.__dict__.pop("forward", None)
        mean_unet.eval().save_pretrained(args.out / "unet")
        mean_text.eval().save_pretrained(args.out / "text_encoder")
        if sheet:
            rows = [sample(mean_unet, mean_text, tokenizer, vae, PROMPTS, 20, 4.0, s) for s in (0, 1)]
            contact_sheet(rows, args.out / f"sheet-{int(spent):03d}.png")
        print(f"saved at step {step}, {spent:.1f} min ({time.time() - saved:.0f} s)", flush=True)

    while True:
        spent = spent_before + (time.time() - began) / 60
        done = step / args.steps if args.steps else spent / total
        if done >= 1:
            break
        rate = args.lr * min(1, (step + 1) / 100) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))
        for opt in optimizers:
            for group in opt.param_groups:
                group["lr"] = rate
        pick = np.searchsorted(cumulative, rng.random(args.batch) * cumulative[-1], side="right")
        ids = captioner.batch([specs[i] for i in pick], rng, args.drop)
        x0 = latents[torch.from_numpy(pick)].float()
        # one timestep in each slice of the range, some forced to the last
        t = torch.from_numpy((np.arange(args.batch) + rng.random(args.batch)) * 1000 / args.batch).long().clamp(0, 999)
        t[torch.from_numpy(rng.random(args.batch) < args.terminal)] = 999
        a = alphas[t].view(-1, 1, 1, 1)
        noise = torch.randn_like(x0)
        x = a.sqrt() * x0 + (1 - a).sqrt() * noise
        target = a.sqrt() * noise - (1 - a).sqrt() * x0
        with torch.autocast("cpu", torch.bfloat16):
            out = unet(x.contiguous(memory_format=torch.channels_last), t, text(ids)[0]).sample
        loss = (out.float() - target).square().mean()
        both.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        for opt in optimizers:
            opt.step()
        step += 1
        torch._foreach_lerp_(average, [p.detach() for p in params], 1 - min(args.ema, (1 + step) / (10 + step)))
        smooth = loss.item() if smooth is None else 0.98 * smooth + 0.02 * loss.item()
        if step % 100 == 0:
            now = time.time()
            print(f"step {step} {spent:.1f} min loss {smooth:.4f} lr {rate:.2e} {(now - logged) / 100:.3f} s/step", flush=True)
            logged = now
        if time.time() - saved > args.save_minutes * 60:
            save(True)
            logged = time.time()
    save(True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
