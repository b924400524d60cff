"""How time and memory grow: with the size of a page, with calls at once, with sessions kept.

    python3 benchmarks/growth.py [--sessions N] [--json]

Pages of 1, 2, 5 and 10 MB through `websearch.extract`, each in a process of its own (past some 3 MB of text it reads no
further); 1, 8, 64 and 256 fetches of 20 KB pages at once through a fresh server; searches with 8 sources each, up to 10,000
sessions kept. The exponent says how a figure grows with the count: 1 is in proportion, less is better than that. Memory is the
highest so far where it says peak, else of that moment.
"""
from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from typing import Dict, List, Optional

import common
import origin

PAGE_MB, CALLS_AT_ONCE, SESSIONS = (1, 2, 5, 10), (1, 8, 64, 256), 10_000
PAGE_RUNS, CALL_RUNS, LOOKUPS, WINDOW = 3, 3, 50, 16
EXTRACT = """
import json, sys, time
sys.path[:0] = sys.argv[1:3]
import common, os, websearch
body = open(sys.argv[3], "rb").read()
websearch.extract(body[:50_000], "text/html", "https://a.example/")
before, started = common.memory_mib(os.getpid(), "VmHWM"), time.process_time()
page = websearch.extract(body, "text/html; charset=utf-8", "https://a.example/")
took = time.process_time() - started
print(json.dumps([took, common.memory_mib(os.getpid(), "VmHWM") - before, len(page.text)]))
"""


def exponent(rows: List[common.Row], count: str, figure: str) -> None:
    """Adds to each row but the first how the figure has grown since the row before."""
    for before, row in zip(rows, rows[1:]):
        if min(row[figure], before[figure]) > 0:
            row[f"exponent of {figure}"] = math.log(row[figure] / before[figure]) / math.log(row[count] / before[count])


def pages() -> List[common.Row]:
    """CPU and peak memory of extraction by page size."""
    rows: List[common.Row] = []
    environ = common.environment()
    product = os.path.dirname(common.server_command()[1])
    for size in PAGE_MB:
        path = common.temporary_folder() / "page.html"
        path.write_bytes(origin.page(size * 1_000_000, str(size)))
        command = [common.PYTHON, "-c", EXTRACT, product, str(common.ROOT / "benchmarks"), str(path)]
        runs = [json.loads(subprocess.run(command, check=True, capture_output=True, env=environ).stdout)
                for _ in range(PAGE_RUNS)]
        rows.append({"page MB": size, "CPU s": common.median([run[0] for run in runs]), "least s": min(run[0] for run in runs),
                     "memory beside the page, peak MiB": common.median([run[1] for run in runs]), "characters out": runs[0][2]})
    exponent(rows, "page MB", "least s")
    return rows


def calls() -> List[common.Row]:
    """Time and peak memory of a fresh server by calls at once."""
    rows: List[common.Row] = []
    command = common.server_command()
    with origin.Origin() as source:
        for count in CALLS_AT_ONCE:
            took, memory = [], []
            for _ in range(CALL_RUNS):
                with common.Process(command, common.environment(common.LOOPBACK_SETTINGS)) as server:
                    server.open_session()
                    started = time.monotonic()
                    sent = [server.call("web_fetch", {"url": f"{source.base}/page/20000/{number}"}) for number in range(count)]
                    took.append(server.wait(sent) - started)
                    memory.append(server.memory_mib("VmHWM"))
                    for number in sent:
                        server.result(number)
            rows.append({"calls": count, "median s": common.median(took), "least s": min(took),
                         "ms a call": common.median(took) / count * 1000, "peak MiB": common.median(memory)})
    exponent(rows, "calls", "least s")
    return rows


def sessions(most: int) -> List[common.Row]:
    """Time of a search and of a look-up, and memory, by sessions kept so far."""
    rows: List[common.Row] = []
    with origin.Origin() as source, common.Process(common.server_command(), common.environment({
            **common.LOOPBACK_SETTINGS, "WEBSEARCH_CACHE_SIZE": str(most), "TAVILY_API_KEY": "made-up",
            "TAVILY_API_URL": source.base})) as server:
        server.open_session()
        made = 0
        while made < most:
            goal, started, before = min(max(1, made * 10), most), time.monotonic(), made
            newest: Optional[int] = None
            while made < goal:
                window = [server.call("web_search", {"query": f"q{made + index}"}) for index in range(min(WINDOW, goal - made))]
                server.wait(window)
                made, newest = made + len(window), window[-1]
                for number in window[:-1]:
                    del server.replies[number]
            spent = time.monotonic() - started
            assert newest is not None
            session, looked = server.result(newest)["structuredContent"]["session_id"], []
            for _ in range(LOOKUPS):
                started = time.monotonic()
                looked.append((server.wait([server.call("get_sources", {"session_id": session})]) - started) * 1000)
            rows.append({"sessions": made, "ms a search": spent / (made - before) * 1000,
                         "get_sources median ms": common.median(looked), "MiB": server.memory_mib()})
    exponent(rows, "sessions", "MiB")
    return rows


def measure(most_sessions: int = SESSIONS) -> Dict[str, List[common.Row]]:
    """The three tables."""
    return {"Extraction by page size": pages(), "Calls at once": calls(), "Sessions kept": sessions(most_sessions)}


def main() -> int:
    parser = common.arguments(__doc__)
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    options = parser.parse_args()
    common.report(measure(options.sessions), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
