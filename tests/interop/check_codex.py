#!/usr/bin/env python3
"""The real codex: reads what `install codex` wrote, and a model on loopback has it call web_search and web_fetch.

    python3 tests/interop/check_codex.py

Once in each way in which codex offers tools to a model: as plain functions, behind a tool search, and as functions of a
JavaScript program. Exit status: 0 all is well, 1 something is not, 3 codex cannot be had or run here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

from clients import CLOSING_WORDS, KEY, Checks, Finished, NotRun, World, are_gone, executable, install, model_endpoint, run_check

# The user's own words, tables and spellings; not one byte of them may change.
CONFIG = """\
# my settings   (two  spaces, a tab\t)
model = "{model}" # the model
model_provider = 'loopback'
approval_policy = "never"
sandbox_mode = "read-only"
web_search = "disabled"
check_for_update_on_startup = false

[ model_providers . "loopback" ]
name = "loopback"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "LOOPBACK_MODEL_KEY"
request_max_retries = 0
stream_max_retries = 0
[mcp_servers.'other one']
command = "true"    # a server of my own
enabled = false
[projects."/srv/a b"]
trust_level = "trusted"
[analytics]
enabled = false"""  # and no newline at the end

SPELLINGS = {  # further ways to write a configuration that codex reads
    "Windows line ends": b"# mine\r\nmodel = \"m\"\r\n[mcp_servers.other]\r\ncommand = \"x\"\r\n",
    "a dotted server": b'mcp_servers.other.command = "x"',
    "a table in a string": b'developer_instructions = """\n[mcp_servers.websearch]\n"""\n[mcp_servers.other]\ncommand = "x"\n',
    "an inline server": b'[mcp_servers]\nother = { command = "x", args = [\n"a", # one\n] }\n',
    "nothing but a comment": b"# soon",
}
OWN_TABLES = {  # the user's own table for the name: nothing is added
    "a quoted key": b'model = "m"\n[mcp_servers."websearch"]\ncommand = "mine"\n',
    "spaces and dots": b"[ mcp_servers . 'websearch' ]  # spaced\ncommand = \"mine\"\n",
    "an inline table": b'mcp_servers = { websearch = { command = "mine" } }\n',
}


class Model:
    """Asks for the calls one after the other, each in the way in which the tools were offered; then ends the turn."""

    def __init__(self, calls: List[Tuple[str, Dict[str, Any]]]) -> None:
        self.calls, self.mode = calls, ""
        self.shown: List[str] = []  # what came back from each call
        self.endpoint = model_endpoint("/v1/responses", self.answer)

    def answer(self, body: Dict[str, Any]) -> List[Dict[str, Any]]:
        """The events of one reply."""
        self.shown = [text_of(item) for item in body["input"] if str(item.get("type")).endswith("_call_output")]
        item = self.next_call(body, len(self.shown)) if len(self.shown) < len(self.calls) else {
            "type": "message", "id": "msg", "role": "assistant", "content": [{"type": "output_text", "text": CLOSING_WORDS}]}
        usage = {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1,
                 "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2}
        return [{"type": "response.created", "response": {"id": "resp"}},
                {"type": "response.output_item.done", "output_index": 0, "item": item},
                {"type": "response.completed", "response": {"id": "resp", "usage": usage}}]

    def next_call(self, body: Dict[str, Any], number: int) -> Dict[str, Any]:
        """The item that calls the tool, or looks for it first."""
        name, arguments = self.calls[number]
        call_id = f"call_{number}"
        tools = list(tools_of(body))
        namespace = next((space for space, tool in tools if space and tool.get("name") == name), None)
        if any(tool.get("name") == "exec" and tool.get("type") == "custom" for _, tool in tools):
            self.mode = "code"
            program = f"text(await tools.mcp__websearch__{name}({json.dumps(arguments)}));"
            return {"type": "custom_tool_call", "id": "ctc" + call_id, "call_id": call_id, "name": "exec", "input": program}
        if namespace is None and any(tool.get("type") == "tool_search" for _, tool in tools):
            self.mode = "tool search"
            return {"type": "tool_search_call", "id": "ts" + call_id, "call_id": "search" + call_id, "execution": "client",
                    "status": "completed", "arguments": {"query": "search the web, fetch a web page", "limit": 8}}
        self.mode = self.mode or "functions"
        return {"type": "function_call", "id": "fc" + call_id, "call_id": call_id, "name": name, "namespace": namespace,
                "arguments": json.dumps(arguments)}


def tools_of(body: Dict[str, Any]) -> Iterator[Tuple[Optional[str], Dict[str, Any]]]:
    """(namespace or None, declaration) of every tool in a request, those that a tool search has brought included."""
    for tool in [*body.get("tools", []), *(tool for item in body["input"] for tool in item.get("tools") or ())]:
        if tool.get("type") == "namespace":
            yield from ((tool["name"], inner) for inner in tool["tools"])
        else:
            yield None, tool


def text_of(item: Dict[str, Any]) -> str:
    """The text of a tool's output as the model sees it."""
    output = item.get("output")
    return output if isinstance(output, str) else "\n".join(part.get("text", "") for part in output or ())


def choose_models(codex: str, world: World) -> Dict[str, str]:
    """A model for each way of offering tools, from codex's own catalogue; a model that it does not know gets functions."""
    listed = Finished([codex, "debug", "models"], world.environment({}), world.project)
    try:
        models = json.loads(listed.text)["models"]
    except ValueError:
        raise NotRun(f"codex lists no models: {listed}") from None
    found = {"functions": "a-model-of-the-check"}
    for model in models:
        if model.get("tool_mode") == "code_mode_only":
            found.setdefault("code", model["slug"])
        elif model.get("supports_search_tool") and not model.get("tool_mode"):
            found.setdefault("tool search", model["slug"])
    return found


def check_listing(checks: Checks, codex: str, world: World, script: Path) -> None:
    """`codex mcp list` reads what was written."""
    listed = Finished([codex, "mcp", "list", "--json"], world.environment({}), world.project)
    start = listed.text.find("[")
    servers = {server["name"]: server for server in json.loads(listed.text[start:])} if start >= 0 else {}
    ours = servers.get("websearch", {})
    transport = ours.get("transport", {})
    checks.check("codex mcp list has both servers", sorted(servers) == ["other one", "websearch"], listed)
    checks.check("command, arguments and time-outs are read", (transport.get("command"), transport.get("args"), ours.get(
        "startup_timeout_sec"), ours.get("tool_timeout_sec")) == ("python3", [str(script)], 20, 120), ours)
    checks.check("env_vars are read", {"TAVILY_API_KEY", "http_proxy", "GROK_SEARCH_API_KEY", "CODEX_HOME"} <= set(
        transport.get("env_vars") or ()), ours)


def check_spellings(checks: Checks, codex: str) -> None:
    """However the configuration is written, its bytes stay and codex reads the result."""
    with World() as world:
        config = world.home / ".codex" / "config.toml"
        for name, old in {**SPELLINGS, **OWN_TABLES}.items():
            config.parent.mkdir(exist_ok=True)
            config.write_bytes(old)
            install(world, "codex")
            new = config.read_bytes()
            listed = Finished([codex, "mcp", "list", "--json"], world.environment({}), world.project)
            servers = {server["name"]: server["transport"]["command"] for server in json.loads(listed.text or "[]")}
            kept = new == old and servers == {"websearch": "mine"}
            added = new.startswith(old) and new != old and servers.pop("websearch", "") == "python3" and set(servers) <= {"other"}
            checks.check(f"codex mcp list reads {name}", kept if name in OWN_TABLES else added, (listed, new))


def check_mode(checks: Checks, codex: str, mode: str, slug: str) -> None:
    """One session in a new home: installed, listed, and both tools called."""
    with World() as world:
        model = Model(world.calls())
        home = world.home / ".codex"
        home.mkdir()
        config, script = home / "config.toml", home / "websearch_mcp.py"
        old = CONFIG.format(model=slug, url=model.endpoint.url()).encode()
        config.write_bytes(old)
        first, second = install(world, "codex"), install(world, "codex")
        new = config.read_bytes()
        checks.check(f"{mode}: install only appended", new.startswith(old) and "installed" in first, first)
        checks.check(f"{mode}: a second time nothing changed", config.read_bytes() == new and "unchanged" in second, second)
        checks.check(f"{mode}: no value was written", KEY.encode() not in new and world.proxy.host.encode() not in new)
        if mode == "functions":
            check_listing(checks, codex, world, script)
        command = [codex, "exec", "--json", "--skip-git-repo-check", "-C", str(world.project), "Look it up."]
        done = Finished(command, world.environment({"LOOPBACK_MODEL_KEY": "none"}), world.project)
        checks.check(f"{mode}: the tools were offered so", model.mode == mode, (model.mode, done))
        world.check_results(checks, mode, model.shown)
        calls = [event["item"] for event in done.events if event.get("item", {}).get("type") == "mcp_tool_call"
                 and event["type"] == "item.completed"]
        checks.check(f"{mode}: codex reports both calls as completed", [call["status"] for call in calls] == ["completed"] * 2, done)
        checks.check(f"{mode}: the turn ended well", done.status == 0 and CLOSING_WORDS in done.text, done)
        checks.check(f"{mode}: no server was left behind", are_gone(script))
        model.endpoint.close()


def check(checks: Checks) -> None:
    """All ways of offering tools that this codex has."""
    codex = executable("@openai/codex@latest", "@openai/codex-*/vendor/*/bin/codex", ".bin/codex")
    with World() as world:
        models = choose_models(codex, world)
    check_spellings(checks, codex)
    for mode in ("functions", "tool search", "code"):
        if mode in models:
            check_mode(checks, codex, mode, models[mode])
        else:
            print(f"NOT RUN: no model of this codex is offered tools as {mode}")


if __name__ == "__main__":
    sys.exit(run_check(check))
