// The TypeScript SDK of the Model Context Protocol against our server: lists the tools, calls each, reads a resource, hears
// progress and cancels. Usage: node mcp_client.mjs COMMAND | node mcp_client.mjs http://HOST:PORT/mcp
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(pathToFileURL(process.env.LATENTIA_NPM + "/"));
const load = (name) => import(pathToFileURL(require.resolve(`@modelcontextprotocol/sdk/${name}`)).href);
const { Client } = await load("client/index.js");
const { StdioClientTransport } = await load("client/stdio.js");
const { StreamableHTTPClientTransport } = await load("client/streamableHttp.js");

const [target] = process.argv.slice(2);
const transport = target.startsWith("http")
  ? new StreamableHTTPClientTransport(new URL(target))
  : new StdioClientTransport({ command: target, args: ["mcp", "--model", "mock"], env: process.env });
const client = new Client({ name: "tools_check", version: "1" });
await client.connect(transport);

const draw = (more, options) =>
  client.callTool({ name: "vision_text_to_image", arguments: { prompt: "a", size: "32x32", ...more } }, undefined, options);

const { tools } = await client.listTools();
const succeed = new Set(["vision_text_to_image", "vision_text_to_image_batch", "vision_list_adapters", "list_models"]);
for (const tool of tools) {
  const drawn = { prompt: "a", model: "mock", size: "64x64" };
  const missing = Object.fromEntries((tool.inputSchema.required ?? []).map((key) => [key, "0".repeat(32)]));
  const called = {
    vision_text_to_image: drawn,
    vision_text_to_image_batch: { ...drawn, count: 2 },
  }[tool.name];
  const result = await client.callTool({ name: tool.name, arguments: called ?? missing });
  assert.equal(!result.isError, succeed.has(tool.name), tool.name);
  if (result.isError) assert.ok(result.structuredContent.error.code, tool.name);
}

const heard = [];
const result = await draw({ model: "mock-slow", steps: 3 }, { onprogress: (event) => heard.push(event) });
assert.ok(heard.length >= 3 && heard.at(-1).total === 4, JSON.stringify(heard));
const [ref] = result.structuredContent.artifacts;
const { contents } = await client.readResource({ uri: ref.uri });
assert.equal(Buffer.from(contents[0].blob, "base64").subarray(1, 4).toString(), "PNG");

// Cancelled, it ends within a step, and the next picture is drawn at once.
const stop = new AbortController();
const work = draw({ model: "mock-slow", steps: 200 }, { signal: stop.signal }).catch((error) => error);
await new Promise((wake) => setTimeout(wake, 1000));
const began = performance.now();
stop.abort();
assert.ok((await work) instanceof Error);
await draw({ model: "mock", steps: 1 });
const took = Math.round(performance.now() - began);
assert.ok(took < 2000, `${took} ms`);
await client.close();
console.log(`the TypeScript SDK lists, calls, reads, hears progress and cancels (${took} ms): ${transport.constructor.name}`);
