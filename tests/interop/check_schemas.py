#!/usr/bin/env python3
"""Holds every kind of answer of the real server against the published JSON Schema of each protocol revision.

    python3 tests/interop/check_schemas.py FOLDER        (or set MCP_SCHEMAS; else ../shared/specs/mcp)

FOLDER holds <revision>.json or <revision>/schema.json, as in `schema/` of the repository
modelcontextprotocol/modelcontextprotocol. Needs jsonschema from PyPI. Providers are fakes on loopback.

Also checked: each inputSchema and outputSchema is valid JSON Schema, each structuredContent fits its outputSchema, and
the text of a result is the same object. Exit status: 0 all fits, 1 something does not, 3 schemas or jsonschema missing.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.support import Loopback, McpProcess, loopback_settings

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
STATELESS_REVISION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS_REVISION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "check", "version": "1"},
}
PAGE = "<title>A page</title><main><h1>A page</h1><p>Some words, and <a href='/other'>a link</a>.</p></main>"
FOUND = {"results": [{"title": "A page", "url": "https://docs.example.test/a", "content": "words", "score": 0.5}]}


class Checks:
    """Counts what fits, prints what does not."""

    def __init__(self) -> None:
        self.passed = self.failed = 0

    def check(self, name: str, problem: Optional[str]) -> None:
        """One check; `problem` is None when it passed."""
        if problem is None:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAIL {name}: {problem}")


class Schema:
    """The definitions of one revision."""

    def __init__(self, revision: str, document: Dict[str, Any]) -> None:
        self.revision, self._document = revision, document
        self._root = "$defs" if "$defs" in document else "definitions"

    def name_of(self, *candidates: str) -> str:
        """The first of `candidates` that this revision defines."""
        return next(name for name in candidates if name in self._document[self._root])

    def problem(self, definition: str, value: Any) -> Optional[str]:
        """Why `value` is no `definition`; None when it is one."""
        from jsonschema import validators

        schema = {
            "$schema": self._document["$schema"],
            self._root: self._document[self._root],
            "$ref": f"#/{self._root}/{definition}",
        }
        return first_problem(validators.validator_for(schema)(schema), value)


def first_problem(validator: Any, value: Any) -> Optional[str]:
    """The most telling error of a validator; None when `value` fits."""
    from jsonschema.exceptions import best_match

    error = best_match(validator.iter_errors(value))
    return None if error is None else f"{error.message[:300]} at {'/'.join(map(str, error.absolute_path)) or 'the root'}"


def read_schemas(folder: str) -> List[Schema]:
    """The schemas of all revisions; exits with 3 when one is missing."""
    schemas = []
    for revision in REVISIONS:
        paths = [Path(folder) / f"{revision}.json", Path(folder) / revision / "schema.json"]
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            print(f"SKIP no schema of {revision} in {folder or 'a folder (give one, or set MCP_SCHEMAS)'}")
            sys.exit(3)
        schemas.append(Schema(revision, json.loads(path.read_text(encoding="utf-8"))))
    return schemas


class Session:
    """One server process, spoken to in one revision."""

    def __init__(self, schema: Schema, server: McpProcess, checks: Checks) -> None:
        self.schema, self.server, self._checks = schema, server, checks
        self.is_stateless = schema.revision == STATELESS_REVISION

    def ask(self, method: str, params: Optional[Dict[str, Any]] = None, **meta: Any) -> Dict[str, Any]:
        """The reply to a request of this revision."""
        params = dict(params or {})
        if self.is_stateless or meta:
            params["_meta"] = {**(META if self.is_stateless else {}), **meta}
        return self.server.request(method, params, timeout=30)

    def fits(self, what: str, definition: str, value: Any) -> None:
        """Checks `value` against a definition of this revision."""
        self._checks.check(f"{self.schema.revision} {what}", self.schema.problem(definition, value))

    def result(self, what: str, definition: str, reply: Dict[str, Any]) -> Dict[str, Any]:
        """The result of a reply; envelope and result are checked."""
        self.fits(what + " envelope", self.schema.name_of("JSONRPCResultResponse", "JSONRPCResponse"), reply)
        result: Dict[str, Any] = reply.get("result", {})
        self.fits(what, definition, result)
        return result

    def error(self, what: str, reply: Dict[str, Any], code: int) -> None:
        """Checks an error reply and its code."""
        self.fits(what, self.schema.name_of("JSONRPCErrorResponse", "JSONRPCError"), reply)
        found = reply.get("error", {}).get("code")
        self._checks.check(f"{self.schema.revision} {what} code", None if found == code else f"{found}, not {code}")

    def notifications(self) -> List[Dict[str, Any]]:
        """What the server has sent unasked; each is checked."""
        messages = self.server.receive_all(0)
        for message in messages:
            self.fits("notification envelope", "JSONRPCNotification", message)
            self.fits("progress", "ProgressNotification", message)
        return messages


def check_revision(schema: Schema, checks: Checks, origin: Loopback, settings: Dict[str, str]) -> None:
    """All kinds of answers in one revision."""
    with McpProcess(settings) as server:
        session = Session(schema, server, checks)
        if session.is_stateless:
            session.result("server/discover", "DiscoverResult", session.ask("server/discover"))
            wrong = {"_meta": {**META, "io.modelcontextprotocol/protocolVersion": "2031-01-01"}}
            reply = server.request("server/discover", wrong)
            session.error("another version", reply, -32022)
            session.fits("another version", "UnsupportedProtocolVersionError", reply)
        else:
            hello = {"protocolVersion": schema.revision, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
            result = session.result("initialize", "InitializeResult", session.ask("initialize", hello))
            granted = result.get("protocolVersion")
            checks.check(f"{schema.revision} is granted", None if granted == schema.revision else str(granted))
            server.notify("notifications/initialized")
            session.result("ping", "EmptyResult", session.ask("ping"))
        listed = session.result("tools/list", "ListToolsResult", session.ask("tools/list"))
        outputs = {tool["name"]: tool["outputSchema"] for tool in listed.get("tools", [])}
        session.error("unknown method", session.ask("no/such/method"), -32601)
        session.error("unknown tool", session.ask("tools/call", {"name": "no_such_tool"}), -32602)
        session.error("unknown cursor", session.ask("tools/list", {"cursor": "x"}), -32602)
        for number, (name, arguments) in enumerate(calls(session, origin)):
            reply = session.ask("tools/call", {"name": name, "arguments": arguments}, progressToken=number)
            check_call(session, checks, name, outputs[name], reply)
        for name in outputs:
            reply = session.ask("tools/call", {"name": name, "arguments": {}})
            refusal = session.result(f"{name} refused", "CallToolResult", reply)
            is_refusal = refusal.get("isError") is True and "structuredContent" not in refusal
            checks.check(f"{schema.revision} {name} refuses", None if is_refusal else json.dumps(refusal)[:200])
        session.notifications()


def calls(session: Session, origin: Loopback) -> List[Tuple[str, Dict[str, Any]]]:
    """A call of each tool that must succeed."""
    searched = session.ask("tools/call", {"name": "web_search", "arguments": {"query": "x"}})["result"]
    session_id = searched.get("structuredContent", {}).get("session_id")
    return [
        ("web_search", {"query": "words"}),
        ("web_search", {"query": "more words", "limit": 1, "include_content": True}),
        ("get_sources", {"session_id": session_id}),
        ("get_sources", {"session_id": session_id, "offset": 99}),
        ("web_fetch", {"url": origin.url("/page")}),
        ("web_fetch", {"url": origin.url("/long"), "char_limit": 600}),
        ("web_fetch", {"url": origin.url("/missing")}),
        ("web_map", {"url": origin.url("/page")}),
    ]


def check_call(session: Session, checks: Checks, name: str, output_schema: Any, reply: Dict[str, Any]) -> None:
    """A successful call: the result, its structuredContent, and that the text says the same."""
    from jsonschema import Draft202012Validator

    what = f"{session.schema.revision} {name}"
    result = session.result(name, "CallToolResult", reply)
    checks.check(what + " succeeds", None if result.get("isError") is False else json.dumps(result)[:300])
    content = result.get("structuredContent")
    if content is not None:
        checks.check(what + " fits outputSchema", first_problem(Draft202012Validator(output_schema), content))
        is_same = json.loads(result["content"][0]["text"]) == content
        checks.check(what + " says the same as text", None if is_same else "text and structuredContent differ")


def check_tool_schemas(checks: Checks, settings: Dict[str, str]) -> None:
    """The tools' own schemas are valid JSON Schema 2020-12."""
    from jsonschema import Draft202012Validator, SchemaError

    with McpProcess(settings) as server:
        for tool in server.request("tools/list")["result"]["tools"]:
            for kind in ("inputSchema", "outputSchema"):
                problem = None
                try:
                    Draft202012Validator.check_schema(tool[kind])
                except SchemaError as error:
                    problem = error.message
                checks.check(f"{tool['name']} {kind}", problem)


def main() -> int:
    """Runs all checks; the exit status."""
    try:
        import jsonschema  # noqa: F401
    except ImportError:
        print("SKIP jsonschema is not installed (pip install jsonschema)")
        return 3
    shared = Path(__file__).resolve().parents[3] / "shared" / "specs" / "mcp"
    schemas = read_schemas(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("MCP_SCHEMAS", str(shared)))
    checks = Checks()
    long_page = PAGE.replace("<p>", "<p>" + "Many words stand in this paragraph. </p><p>" * 200)
    answers: Dict[str, Any] = {"/page": PAGE, "/other": PAGE, "/long": long_page}
    with Loopback(answers) as origin, Loopback({"/search": FOUND}) as tavily:
        # Tavily serves search only: fetch and map are done by the server itself, from the origin.
        settings = loopback_settings({
            "TAVILY_API_KEY": "tvly-check", "TAVILY_API_URL": tavily.url(),
            "WEBSEARCH_FETCH_PROVIDERS": "local", "WEBSEARCH_MAP_PROVIDERS": "local",
        })
        check_tool_schemas(checks, settings)
        for schema in schemas:
            check_revision(schema, checks, origin, settings)
    print(f"{checks.passed} checks passed, {checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
