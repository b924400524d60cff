#!/usr/bin/env python3
"""The real Claude Code: reads what `install claude --write` wrote, and a model on loopback has it call web_search and web_fetch.

    python3 tests/interop/check_claude.py

With a version that speaks revision 2026-07-28, and with one of the time before it. Exit status: 0 all is well, 1 something is
not, 3 Claude Code cannot be had or run here.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

from clients import (
    CLOSING_WORDS,
    TOOL_NAMES,
    Checks,
    Finished,
    NotRun,
    World,
    are_gone,
    executable,
    install,
    model_endpoint,
    run_check,
)

VERSIONS = {"modern": "latest", "legacy": "2.1.197"}  # era of the protocol: a version that speaks it
PREFIX = "mcp__websearch__"


class Model:
    """Asks for the calls one after the other, after a search for a tool that is not declared yet; then ends the turn."""

    def __init__(self, calls: List[Tuple[str, Dict[str, Any]]]) -> None:
        self.calls = calls
        self.shown: List[str] = []  # what came back from each call
        self.is_error = False
        self.seen = ""  # all that was sent
        self.endpoint = model_endpoint("/v1/messages", self.answer)

    def answer(self, body: Dict[str, Any]) -> List[Dict[str, Any]]:
        """The events of one reply; requests without tools are not of the conversation (titles and the like)."""
        results = [block for message in body["messages"] if isinstance(message["content"], list) for block in message["content"]
                   if block.get("type") == "tool_result"]
        shown = [text_of(block) for block in results if block["tool_use_id"].startswith("toolu_call")]
        if len(shown) > len(self.shown):
            self.shown, self.is_error = shown, any(block.get("is_error") for block in results)
        self.seen += json.dumps(body)
        names = [tool["name"] for tool in body.get("tools") or () if not tool.get("defer_loading")]
        if not body.get("tools") or len(shown) == len(self.calls):
            return message_events(body, {"type": "text", "text": CLOSING_WORDS})
        name, arguments = self.calls[len(shown)]
        use = {"type": "tool_use", "id": f"toolu_call{len(shown)}", "name": PREFIX + name, "input": arguments}
        if PREFIX + name not in names and "ToolSearch" in names and len(results) < 2 * len(self.calls):
            use = {"type": "tool_use", "id": f"toolu_find{len(results)}", "name": "ToolSearch",
                   "input": {"query": f"select:{PREFIX}{name}", "max_results": 5}}
        return message_events(body, use)


def message_events(body: Dict[str, Any], block: Dict[str, Any]) -> List[Dict[str, Any]]:
    """A message of one block, as the Messages API streams it."""
    is_text = block["type"] == "text"
    delta = {"type": "text_delta", "text": block["text"]} if is_text else {
        "type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    message = {"id": "msg", "type": "message", "role": "assistant", "model": body.get("model"), "content": [], "stop_reason": None,
               "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    return [{"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": {**block, **({"text": ""} if is_text else {"input": {}})}},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn" if is_text else "tool_use", "stop_sequence": None},
             "usage": {"output_tokens": 1}},
            {"type": "message_stop"}]


def text_of(block: Dict[str, Any]) -> str:
    """The text of a tool's result as the model sees it."""
    content = block.get("content")
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content or ())


def check_era(checks: Checks, era: str, version: str) -> None:
    """One session in a new home: installed, listed, and both tools called."""
    claude = executable(f"@anthropic-ai/claude-code@{version}", "@anthropic-ai/claude-code-*/claude", ".bin/claude")
    with World() as world:
        model = Model(world.calls())
        environment = world.environment({
            "ANTHROPIC_BASE_URL": model.endpoint.url(), "ANTHROPIC_API_KEY": "none", "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1"})
        file, log = world.home / ".claude.json", world.home / "debug.txt"
        file.write_text('{\n  "myOwn": [1, 2],\n  "mcpServers": {}\n}\n')
        server = world.copy_of_server()
        said = install(world, "claude", "--write", "--container-path", str(server.parent))
        checks.check(f"{era}: install keeps what is there and makes a copy", json.loads(file.read_text())["myOwn"] == [1, 2]
                     and len(list(world.home.glob(".claude.json.*.bak"))) == 1, said)
        entry = json.loads(file.read_text())["mcpServers"]["websearch"]
        shown = re.search(r"^ +claude (mcp add .*)$", install(world, "claude", "--container-path", str(server.parent)), re.M)
        file.unlink()
        added = Finished([claude, *shlex.split(shown.group(1) if shown else "")], environment, world.project)
        again = json.loads(file.read_text())["mcpServers"].get("websearch") if file.exists() else {}
        checks.check(f"{era}: the command that install shows does the same", {**again, "env": {}} == {**entry, "env": {}}, added)
        listed = Finished([claude, "mcp", "get", "websearch"], environment, world.project)
        checks.check(f"{era}: claude mcp get reads it and connects", "Connected" in listed.text and str(server) in listed.text, listed)
        done = Finished([claude, "-p", "Look it up.", "--output-format", "stream-json", "--verbose", "--model", "claude-sonnet-4-5",
                         "--debug-file", str(log), "--allowedTools", ",".join(PREFIX + name for name in TOOL_NAMES)],
                        environment, world.project)
        spoken = re.search(r'"protocolEra":"(\w+)"', log.read_text() if log.exists() else "")
        print(f"     era of the connection as the client names it: {spoken.group(1) if spoken else 'not named'}")
        checks.check(f"{era}: the client speaks it", (spoken.group(1) if spoken else "legacy") == era, done)
        checks.check(f"{era}: the model learns of all four tools", all(PREFIX + name in model.seen for name in TOOL_NAMES))
        world.check_results(checks, era, model.shown)
        checks.check(f"{era}: no result is an error", not model.is_error, model.shown)
        checks.check(f"{era}: the turn ended well", done.status == 0 and any(
            event.get("type") == "result" and event.get("result") == CLOSING_WORDS for event in done.events), done)
        checks.check(f"{era}: no server was left behind", are_gone(server))
        model.endpoint.close()


def check(checks: Checks) -> None:
    """Both eras; one whose client cannot run is told and does not hide the other."""
    missing = []
    for era, version in VERSIONS.items():
        try:
            check_era(checks, era, version)
        except NotRun as reason:
            missing.append(f"{era}: {reason}")
    if len(missing) == len(VERSIONS):
        raise NotRun("; ".join(missing))
    for text in missing:
        print(f"NOT RUN: {text}")


if __name__ == "__main__":
    sys.exit(run_check(check))
