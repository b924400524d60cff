"""Many calls in a row to one server process: memory, threads and descriptors must not grow.

    python3 tests/interop/check_soak.py [--calls N] [--long]

1,500 calls of all kinds, 10,000 with --long: good and bad pages, redirects, cut and reset answers, searches, sessions,
maps, wrong arguments, cancelled calls, protocol errors. The first third warms up; after it the numbers must stand still. Needs
/proc: exits 3 without it, 1 when something grew or a call went wrong, 0 when all is well.
"""
from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.support import Hold, Loopback, McpProcess, RawLoopback, RecordedRequest, Reply, Reset, loopback_settings

CALLS, LONG_CALLS = 1_500, 10_000
AT_ONCE = 8
GROWTH_KIB = 6 * 1024  # allocators keep a little; a leak of 1 KB a call would be 10 MB in the long run
GROWTH_THREADS = 16  # workers start on demand; a thread lost by one call in ten would be a hundred
GROWTH_DESCRIPTORS = 16  # idle connections come and go
PAGE = b"<title>Page</title><main>" + b"<p>Words of a paragraph with <a href='/next'>a link</a>.</p>" * 60
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n"


class Numbers(NamedTuple):
    """What a process holds."""

    resident_kib: int
    threads: int
    descriptors: int


def numbers_of(pid: int) -> Numbers:
    """The present numbers of a process."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        fields = dict(line.split(":", 1) for line in status)
    return Numbers(int(fields["VmRSS"].split()[0]), int(fields["Threads"]), len(os.listdir(f"/proc/{pid}/fd")))


def calls(origin: Loopback, raw: RawLoopback) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """Calls for ever, in turn. Pages are error pages, which are asked for anew each time, so that the page cache stays as it is."""
    number = 0
    while True:
        number += 1
        yield "web_fetch", {"url": origin.url(f"/missing/{number % 50}")}
        yield "web_search", {"query": f"query {number % 50}", "include_content": number % 5 == 0}
        yield "web_fetch", {"url": raw.url("/reset")}
        yield "web_fetch", {"url": raw.url("/cut")}
        yield "web_fetch", {"url": origin.url("/circle")}
        yield "get_sources", {"session_id": "0123456789ab"}
        yield "web_fetch", {"url": "http://10.0.0.1/"}
        yield "web_map", {"url": origin.url("/"), "limit": 10}
        yield "web_search", {"query": "x", "limit": "many"}
        yield "web_fetch", {"url": origin.url(f"/page/{number % 20}"), "focus": "words", "char_limit": 700}
        yield "cancel", {"url": raw.url("/hold")}


def answers() -> Dict[str, Any]:
    def found(request: RecordedRequest) -> Any:
        return {"results": [{"url": f"https://a.test/{n}", "title": "t", "content": "words " * 40} for n in range(8)]}

    def page(request: RecordedRequest) -> Any:
        return Reply(404 if "missing" in request.path else 200, PAGE.decode())

    return {"/search": found, "/circle": Reply(302, b"", [("Location", "/circle")]), "*": page}


def run(server: McpProcess, source: Iterator[Tuple[str, Dict[str, Any]]], count: int) -> int:
    """Makes `count` calls, AT_ONCE at a time; returns how many replies were errors."""
    errors = 0
    for _ in range(0, count, AT_ONCE):
        waiting: List[Any] = []
        for name, arguments in (next(source) for _ in range(AT_ONCE)):
            call_id = server.send_call("web_fetch" if name == "cancel" else name, arguments)
            if name == "cancel":
                server.cancel(call_id)
            else:
                waiting.append(call_id)
        server.send_bytes(b"{broken\n")
        for call_id in waiting:
            errors += bool(server.reply_to(call_id, 30)["result"]["isError"])
        while server.receive_all(0):
            pass
        server.stdout.clear()  # ours to hold, not the server's
    return errors


def main() -> int:
    parser = argparse.ArgumentParser(description="Soak test of the server.")
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--long", action="store_const", const=LONG_CALLS, dest="calls")
    count = parser.parse_args().calls
    if not os.path.exists("/proc/self/status"):
        print("no /proc here")
        return 3
    raw = RawLoopback()
    raw.answer("/reset", HEAD % 9999 + PAGE, Reset())
    raw.answer("/cut", HEAD % 9999 + PAGE)
    raw.answer("/hold", Hold())
    with raw, Loopback(answers()) as origin, McpProcess(loopback_settings({
            "TAVILY_API_KEY": "soak-key", "TAVILY_API_URL": origin.url(), "WEBSEARCH_CACHE_SIZE": "20",
            "WEBSEARCH_FETCH_PROVIDERS": "local", "WEBSEARCH_MAP_PROVIDERS": "local", "WEBSEARCH_LOG": "off"})) as server:
        server.initialize()
        source = calls(origin, raw)
        errors, started = run(server, source, count // 3), time.monotonic()
        time.sleep(0.2)
        before = numbers_of(server.pid)
        errors += run(server, source, count - count // 3)
        time.sleep(0.2)
        after = numbers_of(server.pid)
        alive = server.request("ping")["result"] == {}
        seconds = time.monotonic() - started
    print(f"{count} calls ({errors} of them errors, as meant); the last two thirds took {seconds:.1f} s")
    print(f"before: {before}\nafter:  {after}")
    grown = [name for name, limit, old, new in zip(Numbers._fields, (GROWTH_KIB, GROWTH_THREADS, GROWTH_DESCRIPTORS), before, after)
             if new - old > limit]
    if grown or not alive:
        print("grown: " + ", ".join(grown) if grown else "the server does not answer")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
