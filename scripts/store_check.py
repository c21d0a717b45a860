#!/usr/bin/env python3
"""Our store of artifacts against the packages that read it: AbstractVision, and AbstractCore and AbstractRuntime if here.

Usage: store_check.py [path/to/latentia]; without a path, the debug build of this checkout is made and asked.
"""

import hashlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from abstractvision.artifacts import LocalAssetStore

ROOT = Path(__file__).resolve().parent.parent
BUILD = ["cargo", "run", "--quiet", "--locked", "--manifest-path", str(ROOT / "Cargo.toml"), "--"]
REF_TESTS = ["abstractvision.artifacts", "abstractcore.capabilities.types", "abstractruntime.storage.artifacts"]


def latentia(home: Path, *arguments: str) -> bytes:
    environment = {**os.environ, "LATENTIA_HOME": str(home)}
    command = [*(sys.argv[1:2] or BUILD), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, check=True).stdout


def optional(name: str):
    """A module, if its package is installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"without {name}: {error}")
        return None


def check_vision(home: Path, refs: list[dict]) -> None:
    """LocalAssetStore loads what we stored, with all that we know of it; we load what it stored."""
    theirs = LocalAssetStore(base_dir=home / "artifacts")
    for ref in refs:
        content, record = theirs.load_bytes(ref["$artifact"]), theirs.get_metadata(ref["$artifact"])
        assert hashlib.sha256(content).hexdigest() == ref["sha256"] == record["sha256"], ref
        assert record["schema"] == "abstractvision.asset.v1" and record["size_bytes"] == len(content), record
        for key in ("content_type", "filename", "metadata"):
            assert record.get(key) == ref.get(key), (key, record, ref)
        assert theirs.get_content_path(ref["$artifact"]).name == record["content_file"]
    ref = theirs.store_bytes(
        b"theirs", content_type="image/webp", filename="t.webp", metadata={"seed": 3}, tags={"task": "t"}, run_id="r"
    )
    assert latentia(home, "artifacts", "get", ref["$artifact"], "-o", "-") == b"theirs"
    shown = json.loads(latentia(home, "artifacts", "show", ref["$artifact"], "--json"))
    assert {key: value for key, value in shown["ref"].items() if key != "uri"} == ref, (shown["ref"], ref)
    assert (shown["record"]["tags"], shown["record"]["run_id"]) == ({"task": "t"}, "r"), shown
    listed = json.loads(latentia(home, "artifacts", "list", "--json", "--tag", "task=t"))["artifacts"]
    assert [row["$artifact"] for row in listed] == [ref["$artifact"]], listed


def check_runtime(home: Path, runtime, refs: list[dict]) -> None:
    """FileArtifactStore loads what we export; we take in what it stored."""
    out = home / "runtime"
    latentia(home, "artifacts", "export", str(out), "--format", "abstractruntime")
    theirs = runtime.FileArtifactStore(out)
    for ref in refs:
        artifact = theirs.load(ref["$artifact"])
        assert hashlib.sha256(artifact.content).hexdigest() == ref["sha256"], ref
        assert artifact.metadata.content_type == ref["content_type"]
        assert artifact.metadata.metadata == ref.get("metadata", {}), (artifact.metadata, ref)
    own = theirs.store(b"of a run", content_type="text/plain", run_id="run-7", tags={"k": "v"})
    latentia(home, "artifacts", "import", str(out))
    listed = json.loads(latentia(home, "artifacts", "list", "--json", "--tag", "k=v"))["artifacts"]
    assert len(listed) == 1 and own.blob_id == listed[0]["sha256"], listed
    assert latentia(home, "artifacts", "get", listed[0]["$artifact"], "-o", "-") == b"of a run"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        note = home / "note.txt"
        note.write_text("a file of the user")
        refs = [json.loads(latentia(home, "artifacts", "put", str(note)))]
        drawn = latentia(home, "generate", "a red apple", "--steps", "2", "-n", "2", "--store", "--quiet")
        refs += [json.loads(line) for line in drawn.decode().splitlines()]
        assert len(refs) == 3 and refs[1]["metadata"]["seed"] == 0, refs
        tests = [module for module in map(optional, REF_TESTS) if module]
        for module in tests:
            assert all(module.is_artifact_ref(ref) for ref in refs), module
        check_vision(home, refs)
        runtime = next((module for module in tests if hasattr(module, "FileArtifactStore")), None)
        if runtime:
            check_runtime(home, runtime, refs)
        print(f"{len(refs)} refs and the store's folder: {', '.join(m.__name__.split('.')[0] for m in tests)} agree")


if __name__ == "__main__":
    main()
