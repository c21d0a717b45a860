#!/usr/bin/env python3
"""AbstractVision's own registry class loads ours, and both agree on every model and task.

Usage: abstractvision_check.py [path/to/latentia]; without a path, the debug build of this checkout is made and asked.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from abstractvision.errors import CapabilityNotSupportedError
from abstractvision.model_capabilities import VisionModelCapabilitiesRegistry

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "tests/fixtures/golden/sd15/model"


def latentia(*arguments: str, home: Path) -> subprocess.CompletedProcess:
    given = sys.argv[1:2]
    command = given or ["cargo", "run", "--quiet", "--locked", "--manifest-path", str(ROOT / "Cargo.toml"), "--"]
    environment = {**os.environ, "LATENTIA_HOME": str(home)}
    return subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        latentia("import", str(MODEL), "--name", "mine", home=home).check_returncode()
        answer = latentia("models", "--json", home=home)
        answer.check_returncode()
        path = home / "registry.json"
        path.write_text(answer.stdout)
        theirs = VisionModelCapabilitiesRegistry(asset_path=str(path))
        assert theirs.schema_version() == "1.0"
        models, tasks = theirs.list_models(), theirs.list_tasks()
        assert "mine" in models and theirs.supports("mine", "text_to_image")
        pairs = [(model, task) for model in [*models, "nobody/knows"] for task in tasks]
        asked = latentia("models", "--json", *[f"--supports={model}={task}" for model, task in pairs], home=home)
        asked.check_returncode()
        ours = json.loads(asked.stdout)["x_latentia"]["supports"]
        for (model, task), answer in zip(pairs, ours, strict=True):
            agreed = theirs.supports(model, task)
            assert agreed == answer["supported"], (model, task, agreed, answer)
            try:
                theirs.require_support(model, task)
                refused = False
            except CapabilityNotSupportedError:
                refused = True
            assert refused == (answer["error"] is not None), (model, task)
            if refused:
                assert answer["error"]["code"] == "unsupported_task", answer
        for task in tasks:
            listed = sorted(a["model"] for a in ours if a["task"] == task and a["supported"])
            assert listed == theirs.models_for_task(task), task
        print(f"{len(models)} models, {len(tasks)} tasks: AbstractVision agrees on all {len(pairs)} pairs")


if __name__ == "__main__":
    main()
