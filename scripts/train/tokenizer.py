"""Cuts a CLIP byte-level BPE tokenizer down to the words the sprites need.

Keeps the 512 byte tokens, every merge used by the wanted words (so those words
split exactly as with the full tokenizer), and the two special tokens as the
last two ids. Ids are renumbered in the order: bytes, merges, specials.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from data import all_caption_words

MAX_LENGTH = 32

# Common words of prompts that are not in the captions; they get whole tokens
# rather than letters, which keeps prompts short.
COMMON = """the of and to is it in on at by for from with without as or not no this that these those
one two three four five six seven eight nine ten many some few all each both other another
picture photo photograph image drawing painting sketch cartoon icon emoji sprite pixel art style
digital illustration logo sticker symbol sign poster portrait scene view detailed simple flat
cute pretty nice beautiful funny happy sad angry smiling sleeping old young new good bad best
dark light bright pale deep shiny soft hard hot cold wet dry round square tall short long wide
very really quite so too more most less brown gold silver cyan magenta violet teal navy lime
beige maroon turquoise colorful color colour colored coloured black-and-white
water sea ocean river lake sky cloud rain snow ice wind storm night day morning evening sunset
sunrise space planet earth world land grass field forest wood mountain hill road street city
town village building wall window door room table chair bed kitchen garden park beach island
man woman boy girl child baby person people friend king queen hand head eye eyes nose mouth ear
hair leg foot tail wing paw animal pet fruit vegetable food drink meal vehicle flower plant leaf
toy game ball box bag cup plate glass bottle knife fork spoon lamp clock phone computer camera
running flying swimming sitting standing walking eating drinking driving sleeping looking
above below under over behind front next near between inside outside around corner edge upper
lower up down high low high-quality quality resolution hd made paper metal stone glass fire
white shirt shoe dress coat red hat he she they we you i me my your his her its our their
be was were are have has had do does did can could will would should may make made see seen
sheep goat wolf hamster lizard swan gem rhino kangaroo violin piano drum""".split()


def bytes_to_unicode() -> dict[int, str]:
    """The usual byte-level BPE table: printable bytes stand for themselves."""
    printable = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table = {b: chr(b) for b in printable}
    extra = 0
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + extra)
            extra += 1
    return {b: table[b] for b in printable + [b for b in range(256) if b not in printable]}


def used_merges(word: str, rank: dict[tuple[str, str], int], table: dict[int, str]) -> list[tuple[str, str]]:
    letters = [table[b] for b in word.encode()]
    letters[-1] += "</w>"
    used = []
    while len(letters) > 1:
        pairs = [(rank[p], i) for i in range(len(letters) - 1) if (p := (letters[i], letters[i + 1])) in rank]
        if not pairs:
            break
        first = min(pairs)[1]
        pair = (letters[first], letters[first + 1])
        used.append(pair)
        joined, i = [], 0
        while i < len(letters):
            if i + 1 < len(letters) and (letters[i], letters[i + 1]) == pair:
                joined.append(pair[0] + pair[1])
                i += 2
            else:
                joined.append(letters[i])
                i += 1
        letters = joined
    return used


def cut(full: Path, out: Path) -> int:
    lines = (full / "merges.txt").read_text(encoding="utf-8").split("\n")[1:48895]
    merges = [tuple(l.split()) for l in lines if l.strip()]
    rank = {m: i for i, m in enumerate(merges)}
    table = bytes_to_unicode()
    words = set()
    for w in all_caption_words() | set(COMMON):
        words |= set(w.replace("-", " ").split())
    keep = {m for w in words for m in used_merges(w, rank, table)}
    kept = [m for m in merges if m in keep]
    single = list(table.values())
    tokens = single + [s + "</w>" for s in single] + [a + b for a, b in kept] + ["<|startoftext|>", "<|endoftext|>"]
    out.mkdir(parents=True, exist_ok=True)
    (out / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(tokens)}, ensure_ascii=False), encoding="utf-8")
    (out / "merges.txt").write_text("#version: 0.2\n" + "\n".join(f"{a} {b}" for a, b in kept) + "\n", encoding="utf-8")
    special = lambda content: {"content": content, "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}
    config = {
        "add_prefix_space": False, "bos_token": special("<|startoftext|>"), "eos_token": special("<|endoftext|>"),
        "unk_token": special("<|endoftext|>"), "pad_token": "<|endoftext|>", "do_lower_case": True, "errors": "replace",
        "model_max_length": MAX_LENGTH, "tokenizer_class": "CLIPTokenizer",
    }
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (out / "special_tokens_map.json").write_text(json.dumps(
        {k: config[k] for k in ("bos_token", "eos_token", "pad_token", "unk_token")}, indent=2) + "\n")
    return len(tokens)


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--full", required=True, type=Path, help="folder with the full CLIP vocab.json and merges.txt")
    ap.add_argument("--out", required=True, type=Path)
    args = ap.parse_args()
    print(cut(args.full, args.out), "tokens")


if __name__ == "__main__":
    main()
