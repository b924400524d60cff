#!/usr/bin/env python3
"""The real Gemini CLI and opencode read what `install … --write` wrote, connect, and hand on the keys of their environment.

    python3 tests/interop/check_other_clients.py

Exit status: 0 all is well, 1 something is not, 3 a client cannot be had or run here (the other one is checked all the same).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from clients import KEY, Checks, Finished, NotRun, World, executable, install, run_check

CLIENTS = {  # name for `install`: package, patterns of its program
    "gemini": ("@google/gemini-cli@latest", ".bin/gemini"),
    "opencode": ("opencode-ai@latest", "opencode-*-*/bin/opencode"),
}
# Stands in the server's place: notes its environment, then serves.
RECORDER = """\
import json, os, runpy, sys
with open({record!r}, "w") as file:
    json.dump(dict(os.environ), file)
sys.path.insert(0, os.path.dirname({server!r}))
runpy.run_path({server!r}, run_name="__main__")
"""


def check_client(checks: Checks, name: str) -> None:
    """Installed into a new home, and asked by the client's own list of servers whether it connects."""
    package, pattern = CLIENTS[name]
    program = executable(package, pattern)
    with World() as world:
        folder, record = world.home / "recorder", world.home / "environment.json"
        folder.mkdir()
        (folder / "websearch_mcp.py").write_text(RECORDER.format(record=str(record), server=str(world.copy_of_server())))
        if name == "gemini":  # it starts servers in trusted folders only
            (world.home / ".gemini").mkdir()
            (world.home / ".gemini" / "trustedFolders.json").write_text(json.dumps({str(world.project): "TRUST_FOLDER"}))
        said = install(world, name, "--write", "--container-path", str(folder))
        listed = Finished([program, "mcp", "list"], world.environment({"GEMINI_API_KEY": "none"}), world.project)
        shown = re.sub(r"\x1b\[[0-9;]*m", "", listed.text + listed.errors)  # without the colours
        checks.check(f"{name}: installed, listed and connected", re.search("✓ websearch[: ]", shown), (said, listed))
        handed_on = json.loads(record.read_text()) if record.exists() else {}
        checks.check(f"{name}: key and proxy arrive at the server", (handed_on.get("TAVILY_API_KEY"), handed_on.get("http_proxy")) == (
            KEY, world.proxy.url()), handed_on)


def check(checks: Checks) -> None:
    """All of them; one that cannot run hides neither itself nor the others."""
    missing = []
    for name in CLIENTS:
        try:
            check_client(checks, name)
        except NotRun as reason:
            missing.append(f"{name}: {reason}")
    if missing:
        raise NotRun("; ".join(missing))


if __name__ == "__main__":
    sys.exit(run_check(check))
