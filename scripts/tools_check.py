#!/usr/bin/env python3
"""Real clients against a real server: AbstractVision, AbstractCore, AbstractRuntime and the MCP client library.

Usage: tools_check.py [path/to/latentia]; without a path, the debug build of this checkout is made and asked. What is not
installed for this python3 is said and passed over.
"""

import asyncio
import base64
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def binary() -> str:
    if sys.argv[1:]:
        return str(Path(sys.argv[1]).resolve())
    subprocess.run(["cargo", "build", "--quiet", "--locked"], cwd=ROOT, check=True)
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    return str(Path(target) / "debug/latentia")


def has(package: str) -> bool:
    if importlib.util.find_spec(package):
        return True
    print(f"skipped: {package} is not installed for this python3")
    return False


@contextmanager
def server(latentia: str, home: Path, *more: str):
    command = [latentia, "serve", "--port", "0", "--model", "mock-slow", *more]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "LATENTIA_HOME": str(home)})
    try:
        yield re.search(r"http://[^;]+", process.stderr.readline()).group(0)
    finally:
        process.kill()


def abstractvision(url: str) -> None:
    from abstractvision.artifacts import is_artifact_ref
    from abstractvision.backends.openai_compatible import OpenAICompatibleBackendConfig, OpenAICompatibleVisionBackend
    from abstractvision.types import ImageGenerationRequest

    config = OpenAICompatibleBackendConfig(base_url=f"{url}/v1", model_id="mock")
    backend = OpenAICompatibleVisionBackend(config=config)
    assert any(model.id == "sprites" for model in backend.list_provider_models(task="text_to_image"))
    request = ImageGenerationRequest(
        prompt="a red cube", negative_prompt="blurry", width=64, height=64, steps=2, guidance_scale=2.0, seed=7
    )
    asset = backend.generate_image(request)
    assert asset.mime_type == "image/png" and asset.data.startswith(b"\x89PNG"), asset
    listed = json.load(urllib.request.urlopen(f"{url}/v1/artifacts"))["data"]
    assert all(is_artifact_ref(ref) for ref in listed) and listed
    print("AbstractVision's OpenAI-compatible backend drew a picture, and our refs are refs to it")


def abstractruntime(url: str) -> None:
    from abstractruntime.storage.artifacts import get_artifact_id, is_artifact_ref

    for ref in json.load(urllib.request.urlopen(f"{url}/v1/artifacts"))["data"]:
        assert is_artifact_ref(ref) and get_artifact_id(ref) == ref["$artifact"]
    print("AbstractRuntime takes our refs")


def readme(url: str) -> None:
    """Runs the script of the README that registers our tools in an AbstractCore session."""
    text = (ROOT / "README.md").read_text()
    script = re.search(r"```python\n(.*?)```", text, re.S).group(1)
    assert len(script.splitlines()) <= 30
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "LATENTIA_URL": url}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    ref = json.loads(done.stdout.splitlines()[-1].replace("'", '"')) if done.stdout else {}
    assert re.fullmatch("[0-9a-f]{32}", ref["$artifact"]), done.stdout
    from abstractcore.capabilities.types import is_artifact_ref

    assert is_artifact_ref(ref)
    print("the README's script gets a ref through AbstractCore")


async def client(url: str, latentia: str, home: Path) -> None:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamablehttp_client

    environment = {**os.environ, "LATENTIA_HOME": str(home)}
    parameters = StdioServerParameters(command=latentia, args=["mcp", "--model", "mock", "--image-view"], env=environment)
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        await use(session, "stdio")
    async with streamablehttp_client(f"{url}/mcp") as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()
        await use(session, "HTTP")


async def use(session, name: str) -> None:
    from mcp.types import CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParams
    from mcp.types import CallToolResult, ClientNotification, ClientRequest

    tools = (await session.list_tools()).tools
    names = [tool.name for tool in tools]
    assert "vision_text_to_image" in names and "get_job" in names, names
    for tool in tools:
        arguments = {
            "vision_text_to_image": {"prompt": "a", "model": "mock", "size": "64x64"},
            "vision_text_to_image_batch": {"prompt": "a", "model": "mock", "size": "64x64", "count": 2},
        }.get(tool.name, {key: "0" * 32 for key in tool.inputSchema.get("required", [])})
        result = await session.call_tool(tool.name, arguments)
        expected = tool.name.startswith("vision_text_to_image") or tool.name in ("vision_list_adapters", "list_models")
        assert result.isError != expected, (tool.name, result)
        if result.isError:
            assert result.structuredContent["error"]["code"], tool.name
    heard = []

    async def hear(progress, total, message):
        heard.append((progress, total, message))

    arguments = {"prompt": "a", "model": "mock-slow", "size": "32x32", "steps": 3}
    result = await session.call_tool("vision_text_to_image", arguments, progress_callback=hear)
    assert heard and heard == sorted(heard, key=lambda event: event[0]) and heard[-1][1] == 4, heard
    ref = result.structuredContent["artifacts"][0]
    kinds = [block.type for block in result.content]
    assert kinds == ["text", "resource_link", "image", "text"], kinds
    read = await session.read_resource(ref["uri"])
    assert base64.b64decode(read.contents[0].blob).startswith(b"\x89PNG")

    # Cancelled, it ends within a step, and the next picture is drawn at once.
    arguments = {"prompt": "a", "model": "mock-slow", "size": "32x32", "steps": 200}
    parameters = CallToolRequestParams(name="vision_text_to_image", arguments=arguments)
    request = ClientRequest(CallToolRequest(method="tools/call", params=parameters))
    number = session._request_id
    task = asyncio.create_task(session.send_request(request, CallToolResult))
    await asyncio.sleep(1)
    began = time.monotonic()
    params = CancelledNotificationParams(requestId=number)
    await session.send_notification(ClientNotification(CancelledNotification(method="notifications/cancelled", params=params)))
    task.cancel()
    quick = {"prompt": "b", "model": "mock", "size": "32x32", "steps": 1}
    await session.call_tool("vision_text_to_image", quick)
    took = time.monotonic() - began
    assert took < 2, (name, took)
    print(f"the MCP client lists, calls, reads, hears progress and cancels over {name}")


def node_modules() -> Path:
    return Path(os.environ.get("LATENTIA_NPM", ROOT / "target/tools/node_modules"))


def typescript(url: str, latentia: str, home: Path) -> None:
    """The TypeScript SDK as a client, if .ci/run could install it."""
    if not (node_modules() / "@modelcontextprotocol/sdk").exists():
        print("skipped: @modelcontextprotocol/sdk is not installed")
        return
    environment = {**os.environ, "LATENTIA_HOME": str(home), "LATENTIA_NPM": str(node_modules())}
    for target in (latentia, f"{url}/mcp"):
        script = [node_modules() / ".bin/node", ROOT / "scripts/mcp_client.mjs", target]
        subprocess.run(script, check=True, env=environment, timeout=120)


def conformance(url: str) -> None:
    """The official suite of the protocol, whole, if .ci/run could install it. The scenarios named in the file beside this
    one call tools, prompts and resources of the suite's own reference server; that another fails, or that one of those
    passes, is an error."""
    tools = node_modules() / ".bin"
    if not (tools / "conformance").exists():
        print("skipped: @modelcontextprotocol/conformance is not installed")
        return
    expected = ROOT / "scripts/mcp_reference_server_only.yaml"
    command = [tools / "node", tools / "conformance", "server", "--url", f"{url}/mcp", "--expected-failures", expected]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-2000:])
    passed = re.findall("^\u2713 (\\S+):", done.stdout, re.M)
    assert {"server-initialize", "tools-list", "resources-list", "dns-rebinding-protection"} <= set(passed), done.stdout
    print(f"the conformance suite passes: {', '.join(passed)}")


def main() -> None:
    latentia = binary()
    with tempfile.TemporaryDirectory() as folder, server(latentia, Path(folder)) as url:
        if has("abstractvision"):
            abstractvision(url)
        if has("abstractruntime"):
            abstractruntime(url)
        if has("abstractcore"):
            readme(url)
        if has("mcp"):
            asyncio.run(client(url, latentia, Path(folder)))
        typescript(url, latentia, Path(folder))
        conformance(url)


if __name__ == "__main__":
    main()
