"""Sprite data: emoji glyphs composed on flat backgrounds, with captions.

A picture is fully described by a `Spec` (subject, colour, size, placement,
background). `Renderer.render` draws it, `caption` describes it in words.
Everything is derived from one font file (Noto Color Emoji) and the tables
below, so the data set needs no download and is the same for the same seed.

All pixel measures scale with `resolution` (a multiple of 64): the tables give
them for 64x64.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

# ---------------------------------------------------------------- vocabulary

# code point -> names, the plainest first. A name with a leading "+" is plural
# or a mass noun and takes no article.
SUBJECTS: dict[str, list[str]] = {
    # faces
    "1F431": ["cat face"], "1F436": ["dog face"], "1F435": ["monkey face"],
    "1F42F": ["tiger face"], "1F434": ["horse face"], "1F42E": ["cow face"],
    "1F437": ["pig face"], "1F42D": ["mouse face"], "1F430": ["rabbit face", "bunny face"],
    "1F43B": ["bear", "bear face"], "1F43C": ["panda", "panda face"],
    "1F428": ["koala", "koala face"], "1F98A": ["fox", "fox face"],
    "1F981": ["lion", "lion face"],
    "1F438": ["frog", "frog face"],
    "1F984": ["unicorn", "unicorn face"], "1F432": ["dragon face"],
    "1F600": ["smiling face", "happy face"], "1F60E": ["face with sunglasses"],
    "1F622": ["crying face", "sad face"], "1F620": ["angry face"],
    "1F916": ["robot", "robot face"], "1F47D": ["alien", "alien face"],
    "1F47B": ["ghost"], "1F480": ["skull"], "1F921": ["clown face", "clown"],
    # animals
    "1F412": ["monkey"], "1F415": ["dog"], "1F408": ["cat"], "1F405": ["tiger"],
    "1F40E": ["horse"], "1F404": ["cow"], "1F416": ["pig"], "1F411": ["sheep"],
    "1F42A": ["camel"], "1F992": ["giraffe"], "1F418": ["elephant"],
    "1F401": ["mouse"], "1F407": ["rabbit", "bunny"],
    "1F994": ["hedgehog"], "1F987": ["bat"],
    "1F414": ["chicken"], "1F413": ["rooster"], "1F424": ["chick", "baby chick"],
    "1F426": ["bird"], "1F427": ["penguin"], "1F985": ["eagle"], "1F986": ["duck"],
    "1F989": ["owl"], "1F9A9": ["flamingo"], "1F99C": ["parrot"],
    "1F40A": ["crocodile"], "1F422": ["turtle"], "1F40D": ["snake"],
    "1F409": ["dragon"], "1F996": ["dinosaur"], "1F433": ["whale"], "1F42C": ["dolphin"],
    "1F41F": ["fish"], "1F420": ["tropical fish"], "1F988": ["shark"], "1F419": ["octopus"],
    "1F980": ["crab"], "1F41A": ["shell"], "1F40C": ["snail"], "1F98B": ["butterfly"],
    "1F41C": ["ant"], "1F41D": ["bee", "honeybee"], "1F41E": ["ladybug"],
    "1F577": ["spider"],
    # plants
    "1F339": ["rose"], "1F33B": ["sunflower"], "1F337": ["tulip"], "1F338": ["cherry blossom"],
    "1F332": ["pine tree"], "1F333": ["tree"], "1F334": ["palm tree"], "1F335": ["cactus"],
    "1F341": ["maple leaf"], "1F344": ["mushroom"],
    # food
    "1F347": ["+grapes"], "1F349": ["watermelon"], "1F34A": ["tangerine", "orange fruit"],
    "1F34B": ["lemon"], "1F34C": ["banana"], "1F34D": ["pineapple"], "1F34E": ["apple"],
    "1F350": ["pear"], "1F351": ["peach"], "1F352": ["+cherries"], "1F353": ["strawberry"],
    "1F345": ["tomato"], "1F951": ["avocado"], "1F346": ["eggplant"], "1F955": ["carrot"],
    "1F33D": ["corn", "ear of corn"], "1F966": ["broccoli"],
    "1F35E": ["bread"], "1F950": ["croissant"], "1F968": ["pretzel"], "1F9C0": ["cheese"],
    "1F354": ["hamburger", "burger"], "1F35F": ["+french fries", "+fries"], "1F355": ["pizza"],
    "1F32D": ["hot dog"], "1F32E": ["taco"], "1F95A": ["egg"], "1F37F": ["popcorn"],
    "1F366": ["ice cream"], "1F369": ["donut", "doughnut"], "1F36A": ["cookie"],
    "1F382": ["birthday cake", "cake"], "1F9C1": ["cupcake"], "1F36D": ["lollipop"],
    "2615": ["cup of coffee", "coffee"],
    "1F37A": ["beer mug", "beer"],
    # vehicles
    "1F697": ["car"], "1F695": ["taxi"], "1F68C": ["bus"], "1F691": ["ambulance"],
    "1F692": ["fire engine", "fire truck"], "1F693": ["police car"], "1F69A": ["truck"],
    "1F69C": ["tractor"], "1F3CE": ["racing car"], "1F6F5": ["scooter"], "1F6B2": ["bicycle", "bike"],
    "1F682": ["locomotive", "steam train"], "1F686": ["train"], "26F5": ["sailboat"],
    "1F6A2": ["ship"], "2708": ["airplane", "plane"], "1F681": ["helicopter"],
    "1F680": ["rocket"], "1F6F8": ["flying saucer", "ufo"],
    # things
    "1F3E0": ["house"], "1F3F0": ["castle"], "26FA": ["tent"], "1F30B": ["volcano"],
    "1F319": ["moon", "crescent moon"], "2600": ["sun"], "2B50": ["star"], "2601": ["cloud"],
    "1F308": ["rainbow"], "1F525": ["fire", "flame"], "26C4": ["snowman"],
    "2764": ["heart"], "1F388": ["balloon"], "1F381": ["gift", "present"],
    "1F3C6": ["trophy"], "26BD": ["soccer ball"], "1F3C0": ["basketball"],
    "1F9F8": ["teddy bear"], "1F383": ["pumpkin"], "1F451": ["crown"], "1F511": ["key"],
    "1F514": ["bell"], "1F4D5": ["book"], "1F3A9": ["hat", "top hat"], "2602": ["umbrella"],
    "1F3B8": ["guitar"],
}

# Subjects drawn twice as often as the others.
FREQUENT = {"apple", "fish", "frog", "pizza", "cat face", "car", "airplane",
            "strawberry", "bee", "rocket", "dog face", "cat", "dog", "bird"}

BACKGROUNDS: dict[str, tuple[int, int, int]] = {
    "white": (255, 255, 255), "black": (16, 16, 18), "red": (214, 44, 44),
    "blue": (52, 104, 226), "green": (60, 168, 78), "yellow": (250, 218, 66),
    "purple": (138, 72, 190), "pink": (250, 160, 202), "orange": (246, 146, 46),
    "gray": (150, 152, 154),
}

# Colours a subject can be given: hue (0..1), saturation and value to aim at.
COLOURS: dict[str, tuple[float, float, float]] = {
    "red": (0.000, 0.80, 0.86), "orange": (0.075, 0.85, 0.98), "yellow": (0.140, 0.78, 0.98),
    "green": (0.350, 0.68, 0.70), "blue": (0.605, 0.76, 0.90), "purple": (0.765, 0.62, 0.74),
    "pink": (0.925, 0.44, 0.98),
}

# Edge of the glyph's square, in pixels at 64x64.
SIZES = {"small": 32, "normal": 48, "big": 60}
# Shift from the centre, in units of (free space / 2); big sprites stay centred.
PLACEMENTS = {"center": (0, 0), "left": (-1, 0), "right": (1, 0), "top": (0, -1), "bottom": (0, 1)}

_SIZE_WORDS = {"small": ["small", "small", "small", "little", "tiny"],
               "big": ["big", "big", "big", "large", "huge"]}
_PLACE_WORDS = {
    "left": ["on the left", "on the left", "on the left", "on the left side"],
    "right": ["on the right", "on the right", "on the right", "on the right side"],
    "top": ["at the top", "at the top", "on the top"],
    "bottom": ["at the bottom", "at the bottom", "on the bottom"],
}


@dataclass(frozen=True)
class Spec:
    subject: int            # index into the subject list
    colour: str | None      # None: as the glyph is
    size: str
    place: str
    background: str | None  # None: not named in the caption, drawn white


def subject_list() -> list[tuple[str, list[str]]]:
    return list(SUBJECTS.items())


def _article(words: str) -> str:
    return "an" if words[0] in "aeio" or words.startswith("umbrella") else "a"


def caption(spec: Spec, rng: np.random.Generator) -> str:
    """One of several ways to say what the picture shows."""
    names = SUBJECTS[subject_list_keys()[spec.subject]]
    name = names[0] if len(names) == 1 or rng.random() < 0.65 else names[int(rng.integers(1, len(names)))]
    plural = name.startswith("+")
    words = [name.lstrip("+")]
    if spec.colour:
        words.insert(0, spec.colour)
    if spec.size != "normal":
        options = _SIZE_WORDS[spec.size]
        words.insert(0, options[int(rng.integers(len(options)))])
    text = " ".join(words)
    if not plural and rng.random() < 0.85:
        text = f"{_article(text)} {text}"
    if spec.place != "center":
        options = _PLACE_WORDS[spec.place]
        text += " " + options[int(rng.integers(len(options)))]
    elif rng.random() < 0.04:
        text += " in the center" if rng.random() < 0.6 else " in the middle"
    if spec.background:
        ground = spec.background
        if ground == "gray" and rng.random() < 0.3:
            ground = "grey"
        r = rng.random()
        text += f" on {_article(ground)} {ground} background" if r < 0.85 else (
            f" on {ground}" if r < 0.95 else f", {ground} background")
    return text


_KEYS: list[str] | None = None


def subject_list_keys() -> list[str]:
    global _KEYS
    if _KEYS is None:
        _KEYS = list(SUBJECTS)
    return _KEYS


def all_caption_words() -> set[str]:
    """Every word a caption may hold (for cutting the tokenizer)."""
    words: set[str] = set("a an on at in of the with side center middle background grey , .".split())
    for names in SUBJECTS.values():
        for n in names:
            words |= set(n.lstrip("+").split())
    words |= set(COLOURS) | set(BACKGROUNDS) | set(PLACEMENTS)
    for options in list(_SIZE_WORDS.values()) + list(_PLACE_WORDS.values()):
        for o in options:
            words |= set(o.split())
    return words


def draw_spec(rng: np.random.Generator) -> Spec:
    """A random picture description with the training distribution."""
    return Spec(
        subject=int(rng.choice(len(SUBJECTS), p=_subject_weights())),
        colour=list(COLOURS)[int(rng.integers(len(COLOURS)))] if rng.random() < 0.33 else None,
        size=(size := str(rng.choice(["small", "normal", "big"], p=[0.22, 0.66, 0.12]))),
        place="center" if size == "big" or rng.random() < (0.40 if size == "small" else 0.82)
        else list(PLACEMENTS)[int(rng.integers(1, len(PLACEMENTS)))],
        background=list(BACKGROUNDS)[int(rng.integers(len(BACKGROUNDS)))] if rng.random() < 0.6 else None,
    )


_WEIGHTS: np.ndarray | None = None


def _subject_weights() -> np.ndarray:
    global _WEIGHTS
    if _WEIGHTS is None:
        w = np.array([2.0 if n[0].lstrip("+") in FREQUENT else 1.0 for n in SUBJECTS.values()])
        _WEIGHTS = w / w.sum()
    return _WEIGHTS


# ------------------------------------------------------------------- drawing

def _rgb_to_hsv(rgb: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    high, low = rgb.max(-1), rgb.min(-1)
    spread = high - low
    safe = np.where(spread > 1e-6, spread, 1.0)
    r, g, b = rgb[..., 0], rgb[..., 1], rgb[..., 2]
    hue = np.where(high == r, (g - b) / safe % 6, np.where(high == g, (b - r) / safe + 2, (r - g) / safe + 4)) / 6
    return hue % 1.0, np.where(high > 1e-6, spread / np.maximum(high, 1e-6), 0.0), high


def _hsv_to_rgb(h: np.ndarray, s: np.ndarray, v: np.ndarray) -> np.ndarray:
    def channel(n: float) -> np.ndarray:
        k = (n + h * 6) % 6
        return v - v * s * np.clip(np.minimum(k, 4 - k), 0, 1)
    return np.stack([channel(5), channel(3), channel(1)], -1)


def recolour(rgba: np.ndarray, colour: str) -> np.ndarray:
    """Gives the body of a glyph one hue; shading, dark outlines, eyes and
    whites stay. `rgba` is float 0..1, straight alpha."""
    hue, sat, val = COLOURS[colour]
    h, s, v = _rgb_to_hsv(rgba[..., :3])
    solid = rgba[..., 3] > 0.5
    body = (s > 0.22) & (v > 0.22)
    soft = np.clip((s - 0.12) / 0.12, 0, 1) * np.clip((v - 0.16) / 0.1, 0, 1)
    if (body & solid).sum() < 0.30 * solid.sum():
        # A gray, white or black glyph: tint everything but the darkest parts.
        grey = np.clip((v - 0.22) / 0.1, 0, 1)
        body, soft = v > 0.26, grey
        s = np.maximum(s, 0.75)
    chosen = body & solid
    if chosen.sum() == 0:
        return rgba
    s_mid, v_mid = float(np.median(s[chosen])), float(np.median(v[chosen]))
    new_s = np.clip(s * sat / max(s_mid, 1e-3), 0, 1)
    new_v = np.clip(v * val / max(v_mid, 1e-3), 0, 1)
    painted = _hsv_to_rgb(np.full_like(h, hue), new_s, new_v)
    out = rgba.copy()
    out[..., :3] = rgba[..., :3] * (1 - soft[..., None]) + painted * soft[..., None]
    return out


def load_glyph(font: ImageFont.FreeTypeFont, code: str) -> np.ndarray:
    """The glyph as a square float RGBA array (straight alpha), cut to its ink."""
    sheet = Image.new("RGBA", (160, 160), (0, 0, 0, 0))
    ImageDraw.Draw(sheet).text((10, 10), chr(int(code, 16)), font=font, embedded_color=True)
    box = sheet.getbbox()
    if box is None:
        raise ValueError(f"the font has no glyph for U+{code}")
    sheet = sheet.crop(box)
    edge = max(sheet.size)
    square = Image.new("RGBA", (edge, edge), (0, 0, 0, 0))
    square.paste(sheet, ((edge - sheet.width) // 2, (edge - sheet.height) // 2))
    return np.asarray(square, np.float32) / 255


def shrink(rgba: np.ndarray, edge: int) -> np.ndarray:
    """Resamples with premultiplied alpha; returns premultiplied float RGBA."""
    pre = rgba.copy()
    pre[..., :3] *= pre[..., 3:]
    planes = [np.asarray(Image.fromarray(pre[..., c]).resize((edge, edge), Image.LANCZOS)) for c in range(4)]
    out = np.clip(np.stack(planes, -1), 0, 1)
    return np.minimum(out, np.concatenate([out[..., 3:]] * 3 + [np.ones_like(out[..., :1])], -1))


class Renderer:
    """Draws specs; keeps every scaled, coloured glyph in memory."""

    def __init__(self, font_path: str, resolution: int = 64):
        assert resolution % 64 == 0
        self.resolution, self.unit = resolution, resolution // 64
        font = ImageFont.truetype(font_path, 109)
        self.glyphs = [load_glyph(font, code) for code in SUBJECTS]
        self.font = font
        self._cache: dict[tuple[int, str | None, int], np.ndarray] = {}

    def sprite(self, subject: int, colour: str | None, edge: int) -> np.ndarray:
        key = (subject, colour, edge)
        if key not in self._cache:
            glyph = self.glyphs[subject]
            self._cache[key] = (shrink(recolour(glyph, colour) if colour else glyph, edge) * 255 + 0.5).astype(np.uint8)
        return self._cache[key]

    def paste(self, canvas: np.ndarray, sprite: np.ndarray, x: int, y: int) -> None:
        edge = sprite.shape[0]
        part = canvas[y:y + edge, x:x + edge]
        alpha = sprite[..., 3:].astype(np.float32) / 255
        part[...] = sprite[..., :3] + part * (1 - alpha)

    def canvas(self, rgb: tuple[int, int, int] | np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.asarray(rgb, np.float32), (self.resolution, self.resolution, 3)).copy()

    def render(self, spec: Spec, rng: np.random.Generator) -> np.ndarray:
        """uint8 RGB picture of `spec`; named backgrounds get a slight shade jitter."""
        ground = np.asarray(BACKGROUNDS[spec.background or "white"], np.float32)
        if spec.background and spec.background != "white":
            ground = np.clip(ground + rng.normal(0, 3.0) + rng.normal(0, 1.5, 3), 0, 255)
        edge = SIZES[spec.size] * self.unit
        free = (self.resolution - edge) // 2
        dx, dy = PLACEMENTS[spec.place]
        canvas = self.canvas(ground)
        self.paste(canvas, self.sprite(spec.subject, spec.colour, edge), free + dx * free, free + dy * free)
        return np.clip(canvas + 0.5, 0, 255).astype(np.uint8)

    def render_free(self, rng: np.random.Generator) -> np.ndarray:
        """A looser picture for the autoencoder: any place, any colours, often
        a second sprite or a two-tone background, sometimes mirrored."""
        canvas = self.canvas(rng.uniform(0, 255, 3))
        if rng.random() < 0.4:
            cut = int(rng.integers(8, self.resolution - 8))
            other = rng.uniform(0, 255, 3)
            if rng.random() < 0.5:
                canvas[cut:] = other
            else:
                canvas[:, cut:] = other
        for _ in range(int(rng.integers(1, 3))):
            size = int(rng.choice([28, 32, 40, 48, 56, 60])) * self.unit
            colour = list(COLOURS)[int(rng.integers(len(COLOURS)))] if rng.random() < 0.4 else None
            sprite = self.sprite(int(rng.integers(len(self.glyphs))), colour, size)
            if rng.random() < 0.5:
                sprite = sprite[:, ::-1]
            x, y = (int(rng.integers(0, self.resolution - size + 1)) for _ in range(2))
            self.paste(canvas, sprite, x, y)
        return np.clip(canvas + 0.5, 0, 255).astype(np.uint8)


def build_pool(renderer: Renderer, count: int, seed: int, free_share: float = 0.0):
    """`count` pictures (uint8 NHWC) and their specs (None for free ones)."""
    rng = np.random.default_rng(seed)
    pictures = np.empty((count, renderer.resolution, renderer.resolution, 3), np.uint8)
    specs: list[Spec | None] = []
    for i in range(count):
        if rng.random() < free_share:
            pictures[i] = renderer.render_free(rng)
            specs.append(None)
        else:
            spec = draw_spec(rng)
            pictures[i] = renderer.render(spec, rng)
            specs.append(spec)
    return pictures, specs


def main() -> None:
    ap = argparse.ArgumentParser(description="Draw a sheet of training pictures and print their captions.")
    ap.add_argument("--font", required=True, help="NotoColorEmoji.ttf")
    ap.add_argument("--out", required=True, help="PNG to write")
    ap.add_argument("--resolution", type=int, default=64)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--subjects", action="store_true", help="one tile per subject instead of random pictures")
    args = ap.parse_args()
    renderer = Renderer(args.font, args.resolution)
    rng = np.random.default_rng(args.seed)
    if args.subjects:
        specs = [Spec(i, None, "normal", "center", None) for i in range(len(SUBJECTS))]
    else:
        specs = [draw_spec(rng) for _ in range(120)]
    columns = 16
    rows = -(-len(specs) // columns)
    sheet = Image.new("RGB", (columns * args.resolution, rows * args.resolution), "white")
    for i, spec in enumerate(specs):
        sheet.paste(Image.fromarray(renderer.render(spec, rng)),
                    (i % columns * args.resolution, i // columns * args.resolution))
        if not args.subjects:
            print(i, caption(spec, rng))
    sheet.save(args.out)
    print(len(SUBJECTS), "subjects")


if __name__ == "__main__":
    main()
