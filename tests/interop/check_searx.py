"""Searches a real metasearch server on loopback, through the command line and through MCP.

    python3 tests/interop/check_searx.py

The server is Debian's searx, installed and started by ../shared/tools/searx.sh; exits 3 and says so when that script is
not there, 1 when an answer is not as it should be.
"""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

ROOT = Path(__file__).resolve().parent.parent.parent
SEARX = ROOT.parent / "shared" / "tools" / "searx.sh"
sys.path.insert(0, str(ROOT))

from tests.support import McpProcess, bare_environment, closed_port, loopback_settings  # noqa: E402


def check(what: str, holds: bool, seen: Any) -> None:
    """Prints the check; ends the script when it does not hold."""
    print(f"{'ok  ' if holds else 'FAIL'} {what}")
    if not holds:
        print(f"     seen: {str(seen)[:1000]}")
        sys.exit(1)


def check_command_line(settings: Dict[str, str]) -> None:
    done = subprocess.run([sys.executable, str(ROOT / "websearch.py"), "search", "asyncio", "--json"],
                          env=bare_environment(settings), capture_output=True, text=True, timeout=60)
    result = json.loads(done.stdout or "{}")
    check("the command line prints sources", done.returncode == 0 and bool(result.get("sources")), done)
    check("asyncio's page is among them", any("asyncio" in source["url"] for source in result["sources"]), result)


def check_mcp(settings: Dict[str, str]) -> None:
    with McpProcess(settings) as server:
        server.initialize()
        found = server.call_tool("web_search", {"query": "module", "limit": 2})
        check("web_search answers", not found["isError"], found)
        result = found["structuredContent"]
        check("it names searxng", result["search_provider"] == "searxng", result)
        again = server.call_tool("get_sources", {"session_id": result["session_id"]})["structuredContent"]
        check("get_sources gives them all", len(again["sources"]) == result["sources_count"], again)
        nothing = server.call_tool("web_search", {"query": "zzzyyyxxxwww"})
        check("nothing found is said as such", nothing["isError"] and "WEB_NO_RESULTS" in nothing["content"][0]["text"],
              nothing)


def main() -> int:
    if not SEARX.exists():
        print(f"not run: {SEARX} is not there")
        return 3
    port = str(closed_port())
    started = subprocess.run(["bash", str(SEARX), "start", port], stdout=subprocess.PIPE, text=True, timeout=300)
    if started.returncode != 0:
        print("not run: the metasearch server did not start")
        return 3
    try:
        settings = loopback_settings({"SEARXNG_URL": started.stdout.split()[-1]})
        check_command_line(settings)
        check_mcp(settings)
    finally:
        subprocess.run(["bash", str(SEARX), "stop", port], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
