#!/usr/bin/env python3
"""The official Python SDK as the client: connects in each of its modes and uses all four tools.

    python3 tests/interop/check_sdk.py         needs the SDK: pip install "mcp>=2"

Providers are fakes on loopback. Exit status: 0 all is well, 1 something is not, 3 no SDK.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.support import ROOT, Hold, Loopback, RawLoopback, bare_environment, loopback_settings

MODES = ("legacy", "auto", "2026-07-28")  # handshake; probe, then fall back; stateless
TOOL_NAMES = ["web_search", "get_sources", "web_fetch", "web_map"]
PAGE = "<title>A page</title><main><h1>A page</h1><p>Some words, and <a href='/other'>a link</a>.</p></main>"
FOUND = {"results": [{"title": "A page", "url": "https://docs.example.test/a", "content": "words", "score": 0.5}]}


class Run:
    """One mode: what went wrong, and how many checks there were."""

    def __init__(self, mode: str) -> None:
        self.mode, self.checks, self.problems = mode, 0, 0

    def check(self, is_good: bool, what: str, found: Any = "") -> None:
        """Counts a check, and prints it when it fails."""
        self.checks += 1
        if not is_good:
            self.problems += 1
            print(f"FAIL [{self.mode}] {what}: {str(found)[:300]}")


async def check_tools(run: Run, client: Any, origin: Loopback) -> None:
    """Each tool gives a success that fits its schema; text and structuredContent say the same."""
    from jsonschema import Draft202012Validator

    tools = (await client.list_tools()).tools
    run.check([tool.name for tool in tools] == TOOL_NAMES, "the four tools in order", tools)
    schemas = {tool.name: tool.output_schema for tool in tools}
    session_id = ""
    calls: List[Any] = [
        ("web_search", lambda: {"query": "words"}),
        ("get_sources", lambda: {"session_id": session_id}),
        ("web_fetch", lambda: {"url": origin.url("/page")}),
        ("web_map", lambda: {"url": origin.url("/page")}),
    ]
    for name, arguments in calls:
        seen: List[float] = []

        async def on_progress(progress: float, total: Any, message: Any, seen: List[float] = seen) -> None:
            seen.append(progress)

        result = await client.call_tool(name, arguments(), progress_callback=on_progress)
        content = result.structured_content
        run.check(not result.is_error and bool(content), f"{name} succeeds", result)
        if not content:
            continue
        session_id = content.get("session_id", session_id)
        problems = [error.message for error in Draft202012Validator(schemas[name]).iter_errors(content)]
        run.check(not problems, f"{name} fits its outputSchema", problems)
        run.check(json.loads(result.content[0].text) == content, f"{name} says the same as text")
        run.check(seen == sorted(set(seen)), f"{name} progress increases", seen)


async def check_failures(run: Run, client: Any) -> None:
    """Bad arguments are results that say why; an unknown tool is a protocol error."""
    from mcp import MCPError

    for name in TOOL_NAMES:
        result = await client.call_tool(name, {})
        run.check(result.is_error and "WEB_INVALID_ARGUMENT" in result.content[0].text, f"{name} refuses {{}}", result)
    try:
        run.check(False, "an unknown tool is refused", await client.call_tool("no_such_tool", {}))
    except MCPError as error:
        run.check(error.code == -32602, "an unknown tool is -32602", error.code)


async def check_concurrency(run: Run, client: Any, origin: Loopback, silent: RawLoopback) -> None:
    """Calls run side by side; an abandoned one is dropped and disturbs nobody."""
    results = await asyncio.gather(*(client.call_tool("web_fetch", {"url": origin.url(f"/{n}")}) for n in range(16)))
    run.check(not any(result.is_error for result in results), "sixteen fetches at once", results)
    drops = len(silent.drops)
    task = asyncio.ensure_future(client.call_tool("web_fetch", {"url": silent.url("/never")}))
    await asyncio.to_thread(silent.wait_for_requests, drops + 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    started = time.monotonic()
    await client.list_tools()
    run.check(time.monotonic() - started < 0.5, "an answer at once after a cancelled call")
    try:
        await asyncio.to_thread(silent.wait_for_drop, drops + 1, 2.0)
        run.check(True, "the cancelled fetch is dropped")
    except AssertionError as error:
        run.check(False, "the cancelled fetch is dropped", error)


async def check_mode(run: Run, settings: Dict[str, str], origin: Loopback, silent: RawLoopback) -> None:
    """One client from connecting to leaving."""
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    unreadable: List[Any] = []

    async def on_message(message: Any) -> None:
        if isinstance(message, Exception):
            unreadable.append(message)

    server = StdioServerParameters(
        command=sys.executable, args=[str(ROOT / "websearch_mcp.py")], env=bare_environment(settings)
    )
    with tempfile.TemporaryFile("w+") as errors:
        transport = stdio_client(server, errlog=errors)
        async with Client(transport, mode=run.mode, read_timeout_seconds=30, message_handler=on_message) as client:
            if client.server_info is not None:  # a pinned revision asks nothing before the first call
                run.check(client.server_info.name == "websearch-mcp", "serverInfo", client.server_info)
                run.check(bool(client.instructions), "instructions")
            await check_tools(run, client, origin)
            await check_failures(run, client)
            await check_concurrency(run, client, origin, silent)
            left_at = time.monotonic()
            version = client.protocol_version
        run.check(time.monotonic() - left_at < 2, "the server ends with its input", time.monotonic() - left_at)
        run.check(not unreadable, "every message can be read", unreadable)
        errors.seek(0)
        text = errors.read()
        run.check("Traceback" not in text, "no traceback on stderr", text[-300:])
    print(f"[{run.mode}] revision {version}: {run.checks} checks, {run.problems} failed")


def main() -> int:
    """Runs all modes; the exit status."""
    try:
        import jsonschema  # noqa: F401
        from mcp import Client  # noqa: F401
    except ImportError:
        print('SKIP the SDK is not installed (pip install "mcp>=2" jsonschema)')
        return 3
    problems = 0
    with Loopback({"*": PAGE}) as origin, Loopback({"/search": FOUND}) as tavily, RawLoopback(Hold()) as silent:
        settings = loopback_settings({
            "TAVILY_API_KEY": "tvly-check", "TAVILY_API_URL": tavily.url(),
            "WEBSEARCH_FETCH_PROVIDERS": "local", "WEBSEARCH_MAP_PROVIDERS": "local",
        })
        for mode in MODES:
            run = Run(mode)
            asyncio.run(check_mode(run, settings, origin, silent))
            problems += run.problems
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
