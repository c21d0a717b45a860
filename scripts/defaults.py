#!/usr/bin/env python3
"""Writes tests/fixtures/defaults.json: what pipelines of diffusers take where nobody asks.

    pip install torch diffusers==0.42.1 transformers && scripts/defaults.py
"""

import inspect
import json
import pathlib
import re

import diffusers

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEYS = {
    "num_inference_steps": "steps",
    "guidance_scale": "guidance",
    "true_cfg_scale": "true_guidance",
    "max_guidance_scale": "guidance",
    "num_frames": "frames",
    "frame_rate": "fps",
    "fps": "fps",
}


def main():
    table = (ROOT / "src/family/known/checked.rs").read_text()
    names = sorted(set(re.findall(r'"(\w+Pipeline)"', table)))
    defaults = {"diffusers": diffusers.__version__}
    for name in names:
        arguments = inspect.signature(getattr(diffusers, name).__call__).parameters
        values = {new: arguments[old].default for old, new in KEYS.items() if old in arguments}
        defaults[name] = {key: value for key, value in values.items() if isinstance(value, (int, float))}
    (ROOT / "tests/fixtures/defaults.json").write_text(json.dumps(defaults, indent=1) + "\n")


main()
