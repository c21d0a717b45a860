#!/usr/bin/env python3
"""Makes tests/fixtures/embeddings: files of taught words, and what text encoders say of prompts with them, with diffusers.

    scripts/golden_embeddings.py tests/fixtures/golden tests/fixtures/embeddings

Files are written in the forms that people have; diffusers' `load_textual_inversion` reads them, and `encode_prompt` of its
pipelines the prompts. The fixtures' `eos_token_id` of 2 makes transformers take the largest id for the end of a prompt, which
a taught word then is; here the end is the end (huggingface/transformers PR 24773).
Needs: pip install torch diffusers transformers safetensors.
"""

import json
import sys
from pathlib import Path

import torch
from diffusers import StableDiffusionPipeline, StableDiffusionXLPipeline
from safetensors.torch import load_file, save_file

# file -> tensors' names and shapes
FILES = {
    "style": {"emb_params": (3, 32)},
    "toy": {"<cat-toy>": (32,)},
    "star": {"*": (2, 32)},
    "xl": {"clip_l": (2, 32), "clip_g": (2, 32)},
}
# name -> (model, [(word, file)], prompt); the word None is the file's own.
CASES = {
    "params": ("sd15", [("style", "style")], "a cat in style, at night"),
    "own": ("sd15", [(None, "toy")], "a <cat-toy> on a mat, <cat-toy>"),
    "star": ("sd15", [("zork", "star"), (None, "toy")], "zork and<cat-toy>zork"),
    "xl": ("sdxl", [("zork", "xl")], "a zork cat"),
}


def pipeline(folder, is_xl):
    make = StableDiffusionXLPipeline if is_xl else StableDiffusionPipeline
    pipe = make.from_pretrained(folder, torch_dtype=torch.float32, **({} if is_xl else {"safety_checker": None}))
    for tokenizer, encoder in [(pipe.tokenizer, pipe.text_encoder)] + (
            [(pipe.tokenizer_2, pipe.text_encoder_2)] if is_xl else []):
        encoder.config.eos_token_id = tokenizer.eos_token_id
        for module in encoder.modules():
            if hasattr(module, "eos_token_id"):
                module.eos_token_id = tokenizer.eos_token_id
    return pipe


def teach(pipe, word, path, is_xl):
    words = load_file(path)
    if not is_xl:
        pipe.load_textual_inversion(str(path), token=word)
        return
    for key, encoder, tokenizer in [("clip_l", pipe.text_encoder, pipe.tokenizer),
                                    ("clip_g", pipe.text_encoder_2, pipe.tokenizer_2)]:
        pipe.load_textual_inversion(words[key], token=word, text_encoder=encoder, tokenizer=tokenizer)


@torch.no_grad()
def main() -> None:
    models, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for name, tensors in FILES.items():
        made = {key: 0.3 * torch.randn(shape) for key, shape in tensors.items()}
        save_file(made, folder / f"{name}.safetensors")
    golden, cases = {}, {}
    for name, (model, words, prompt) in CASES.items():
        is_xl = model == "sdxl"
        pipe = pipeline(models / model / "model", is_xl)
        for word, file in words:
            teach(pipe, word, folder / f"{file}.safetensors", is_xl)
        if is_xl:
            context, _, pooled, _ = pipe.encode_prompt(prompt, device="cpu", do_classifier_free_guidance=False)
            golden[f"{name}.pooled"] = pooled.contiguous()
        else:
            context, _ = pipe.encode_prompt(prompt, "cpu", 1, False)
        golden[f"{name}.context"] = context.contiguous()
        cases[name] = {"model": model, "words": words, "prompt": prompt}
        print(name, tuple(context.shape))
    save_file(golden, folder / "golden.safetensors")
    (folder / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
