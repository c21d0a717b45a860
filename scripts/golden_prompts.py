#!/usr/bin/env python3
"""Makes tests/fixtures/prompts: what text encoders say of weighed and long prompts, computed with transformers alone.

    scripts/golden_prompts.py tests/fixtures/golden tests/fixtures/prompts

The words and weights of every chunk are written out here by hand, so that no parser is trusted twice: a chunk's words are
tokenized span by span, framed by begin and end, padded, encoded by itself; its states are multiplied with the weights and
brought back to the mean they had; chunks stand side by side. `cases.json` has the prompts as a user writes them.
Needs: pip install torch transformers safetensors.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

LONG = "a photo of a cat, " * 30
STEP = 1.1

# name -> (model, call, [[(words, weight), ...] a chunk, or a long list to be cut after 75 tokens])
CASES = {
    "weights": ("sd15", {"prompt": "a (red:1.5) cat [on] a ((mat)) (:2)", "prompt_syntax": "a1111"},
                [[("a ", 1), ("red", 1.5), (" cat ", 1), ("on", 1 / STEP), (" a ", 1), ("mat", STEP * STEP)]]),
    "skipped": ("sd15", {"prompt": "(a cat:0.5) dog", "prompt_syntax": "a1111", "clip_skip": 1},
                [[("a cat", 0.5), (" dog", 1)]]),
    "plain": ("sd15", {"prompt": "a (red:1.5) cat"}, [[("a (red:1.5) cat", 1)]]),
    "long": ("sd15", {"prompt": LONG, "long_prompt": "chunk"}, [[(LONG, 1)]]),
    "breaks": ("sd15", {"prompt": "a cat BREAK (a dog:1.3) at night " + LONG, "prompt_syntax": "a1111",
                        "long_prompt": "chunk"},
               [[("a cat", 1)], [("a dog", 1.3), (" at night " + LONG, 1)]]),
    "xl": ("sdxl", {"prompt": "(a red apple:1.4) on a [table] BREAK dark", "prompt_syntax": "a1111"},
           [[("a red apple", 1.4), (" on a ", 1), ("table", 1 / STEP)], [(" dark", 1)]]),
}


def cut(tokenizer, parts):
    for spans in parts:
        words = [(token, weight) for text, weight in spans
                 for token in tokenizer(text, add_special_tokens=False).input_ids]
        for first in range(0, max(len(words), 1), 75):
            yield words[first:first + 75]


@torch.no_grad()
def encode(folder, number, parts, skip, is_xl):
    end = "" if number == 0 else "_2"
    tokenizer = CLIPTokenizer.from_pretrained(folder / f"tokenizer{end}")
    make = CLIPTextModelWithProjection if number else CLIPTextModel
    model = make.from_pretrained(folder / f"text_encoder{end}", torch_dtype=torch.float32).eval()
    states, pooled = [], None
    for words in cut(tokenizer, parts):
        ids = [tokenizer.bos_token_id, *(token for token, _ in words), tokenizer.eos_token_id]
        weights = [1.0, *(weight for _, weight in words)] + [1.0] * 77
        ids = torch.tensor([ids + [tokenizer.pad_token_id] * (77 - len(ids))])
        out = model(ids, output_hidden_states=True)
        if is_xl:
            state = out.hidden_states[-(skip + 2)]
        elif skip:
            norm = getattr(model, "text_model", model).final_layer_norm
            state = norm(out.hidden_states[-(skip + 1)])
        else:
            state = out.last_hidden_state
        if pooled is None:
            pooled = out.text_embeds if number else out.pooler_output
        weights = torch.tensor(weights[:77])[None, :, None]
        mean = state.mean()
        if (weights != 1).any():
            state = state * weights
            state = state * (mean / state.mean())
        states.append(state)
    return torch.cat(states, 1), pooled


def main() -> None:
    models, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    golden, cases = {}, {}
    for name, (model, call, parts) in CASES.items():
        is_xl = model == "sdxl"
        made = [encode(models / model / "model", number, parts, call.get("clip_skip", 0), is_xl)
                for number in range(2 if is_xl else 1)]
        golden[f"{name}.context"] = torch.cat([state for state, _ in made], -1).contiguous()
        golden[f"{name}.pooled"] = made[-1][1].contiguous()
        cases[name] = {"model": model, "call": call}
        print(name, tuple(golden[f"{name}.context"].shape))
    save_file(golden, folder / "golden.safetensors")
    (folder / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
