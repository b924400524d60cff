"""The real frame with a tool that does as its arguments say, for tests of what websearch.py never does on purpose.

Run as a script in place of websearch_mcp.py. Any tool name serves; the arguments are steps, done in this order:

    touch: path       make a file, as a sign that the call ran
    report: [n, s]    n progress messages, s seconds apart
    sleep: s          wait, and end at once when cancelled
    stubborn: s       wait, whatever happens
    burn: s           keep the processor busy, in Python code
    log: n            n lines of 400 characters to the log
    print: text       a stray print, and a stray write to fd 1
    fail: name        raise this built-in exception with a secret in its text; "WebError" raises WEB_NO_RESULTS
    late: s           report progress from another thread, s seconds after the answer
    value: any        what the result holds, under "value"
    size: n           text of n characters in the result
"""

from __future__ import annotations

import builtins
import os
import sys
import threading
import time
from typing import Any, Dict

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import websearch
import websearch_mcp

SECRET = "canary-4711"


class FakeWeb:
    """As much of WebSearch as the frame looks at."""

    deadline_seconds = 50.0


def _sleep(seconds: float, deadline: websearch.Deadline) -> None:
    end = threading.Event()
    deadline.wait(end, seconds)
    deadline.check_cancelled()


def _burn(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(index * index for index in range(200))


def _fail(name: str) -> None:
    if name == "WebError":
        raise websearch.WebError(websearch.WEB_NO_RESULTS, "nothing found")
    raise getattr(builtins, name)(SECRET)


def _report(count: int, pause_seconds: float, deadline: websearch.Deadline) -> None:
    for index in range(count):
        deadline.report(f"step {index}")
        time.sleep(pause_seconds)


def call_tool(web: FakeWeb, name: str, arguments: Dict[str, Any], deadline: websearch.Deadline) -> Dict[str, Any]:
    """Does what the arguments say and returns a CallToolResult object."""
    if "touch" in arguments:
        open(arguments["touch"], "w").close()
    _report(*arguments.get("report", (0, 0)), deadline)
    _sleep(arguments.get("sleep", 0), deadline)
    time.sleep(arguments.get("stubborn", 0))
    _burn(arguments.get("burn", 0))
    for _ in range(arguments.get("log", 0)):
        websearch.log("error", "x" * 400)
    if "print" in arguments:
        print(arguments["print"], flush=True)
        os.write(1, arguments["print"].encode())
    if "fail" in arguments:
        _fail(arguments["fail"])
    if "late" in arguments:
        threading.Timer(arguments["late"], deadline.report, ("too late",)).start()
    content = {"value": arguments.get("value"), "text": "x" * arguments.get("size", 0)}
    if content["value"] == "NaN":
        content["value"] = float("nan")
    return {"content": [{"type": "text", "text": "done"}], "structuredContent": content, "isError": False}


if __name__ == "__main__":
    websearch_mcp.serve(FakeWeb, call_tool)
