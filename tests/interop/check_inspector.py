#!/usr/bin/env python3
"""The TypeScript SDK and the MCP Inspector's command line as clients: all four tools, errors, cancellation.

    python3 tests/interop/check_inspector.py

The SDK's client holds each structuredContent against the tool's outputSchema by itself. Exit status: 0 all is well, 1 something
is not, 3 neither can be had or run here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Dict

sys.path.insert(0, str(Path(__file__).resolve().parent))

from clients import (
    PAGE_WORDS,
    SEARCH_WORDS,
    TOOL_NAMES,
    Checks,
    Finished,
    NotRun,
    World,
    are_gone,
    executable,
    npm_folder,
    run_check,
)

SDK, INSPECTOR = "@modelcontextprotocol/sdk@1", "@modelcontextprotocol/inspector@latest"

# Calls what the first argument lists and prints one JSON object: what each call gave.
PROGRAM = """
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const [script, page] = process.argv.slice(2);
const client = new Client({ name: "check", version: "1" });
await client.connect(new StdioClientTransport({ command: "python3", args: [script], env: process.env }));
const out = { server: client.getServerVersion(), instructions: client.getInstructions() };
out.tools = (await client.listTools()).tools.map((tool) => tool.name);
const call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);
out.search = await call("web_search", { query: "falcons" });
const session = out.search.structuredContent.session_id;
out.sources = await call("get_sources", { session_id: session });
out.page = await call("web_fetch", { url: page });
out.map = await call("web_map", { url: page });
out.refused = await call("web_fetch", {});
out.many = (await Promise.all(Array.from({ length: 8 }, (_, n) => call("web_fetch", { url: `${page}?${n}` }))))
  .filter((result) => !result.isError).length;
out.unknown = await call("no_such_tool", {}).then(() => "answered", (error) => error.code);
const stop = new AbortController();
const slow = call("web_fetch", { url: page.replace("merlin", "slow") }, { signal: stop.signal });
setTimeout(() => stop.abort(), 300);
out.aborted = await slow.then(() => "answered", () => "aborted");
await client.ping();
await client.close();
console.log(JSON.stringify(out));
"""


def structured(result: Dict[str, Any]) -> Any:
    """structuredContent, if the text says the same and it is no error."""
    same = not result.get("isError") and json.loads(result["content"][0]["text"]) == result.get("structuredContent")
    return result["structuredContent"] if same else {"odd": result}


def check_sdk(checks: Checks) -> None:
    """One session of the TypeScript SDK's client."""
    folder = npm_folder(SDK)
    version = json.loads((folder / "node_modules/@modelcontextprotocol/sdk/package.json").read_text())["version"]
    print(f"== {SDK}: {version}")
    with World() as world:
        server = world.copy_of_server()
        program = folder / "check.mjs"  # beside node_modules, where its imports are looked for
        program.write_text(PROGRAM)
        done = Finished(["node", str(program), str(server), world.site.url("/merlin")],
                        world.environment({"WEBSEARCH_MAP_PROVIDERS": "local"}), world.project)
        if done.status != 0 or not done.events:
            checks.check("the session runs to its end", False, done)
            return
        out = done.events[-1]
        checks.check("serverInfo and instructions", out["server"]["name"] == "websearch-mcp" and out["instructions"], out)
        checks.check("the four tools", out["tools"] == TOOL_NAMES, out["tools"])
        checks.check("web_search", SEARCH_WORDS in json.dumps(structured(out["search"])), out["search"])
        checks.check("get_sources", structured(out["sources"]).get("total_sources") == 1, out["sources"])
        checks.check("web_fetch", PAGE_WORDS in structured(out["page"]).get("text", ""), out["page"])
        checks.check("web_map", "sources" in structured(out["map"]), out["map"])
        checks.check("bad arguments are a result that says so", out["refused"]["isError"] and "WEB_INVALID_ARGUMENT" in out[
            "refused"]["content"][0]["text"], out["refused"])
        checks.check("eight calls at once", out["many"] == 8, out["many"])
        checks.check("an unknown tool is error -32602", out["unknown"] == -32602, out["unknown"])
        checks.check("an aborted call ends, and ping is answered after it", out["aborted"] == "aborted", out["aborted"])
        checks.check("no server was left behind", are_gone(server))


def check_inspector(checks: Checks) -> None:
    """One call each of the inspector's command line."""
    inspector = executable(INSPECTOR, ".bin/mcp-inspector", version_option="--help")
    with World() as world:
        command = [inspector, "--cli", "python3", str(world.copy_of_server())]
        listed = Finished([*command, "--method", "tools/list"], world.environment({}), world.project)
        tools = json.loads(listed.text or "{}").get("tools", [])
        checks.check("inspector: tools/list", [tool["name"] for tool in tools] == TOOL_NAMES, listed)
        called = Finished([*command, "-e", "WEBSEARCH_ALLOW_PRIVATE=127.0.0.1/32", "--method", "tools/call", "--tool-name", "web_fetch", "--tool-arg",
                           "url=" + world.site.url("/merlin")], world.environment({}), world.project)
        checks.check("inspector: tools/call", PAGE_WORDS in called.text, called)


def check(checks: Checks) -> None:
    """Both clients; one that cannot run is told and does not hide the other."""
    missing = []
    for part in (check_sdk, check_inspector):
        try:
            part(checks)
        except NotRun as reason:
            missing.append(str(reason))
    if len(missing) == 2:
        raise NotRun("; ".join(missing))
    for text in missing:
        print(f"NOT RUN: {text}")


if __name__ == "__main__":
    sys.exit(run_check(check))
