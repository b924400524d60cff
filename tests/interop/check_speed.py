"""The bars for speed and memory, by the scripts in benchmarks/: fails when a figure leaves its bar by more than the noise.

    python3 tests/interop/check_speed.py

Judged is the best of several rounds, and a figure that is too high is measured again, twice: a busy machine only adds. Where the
bar is not met yet, `allowed` says what holds instead, and the line says "misses the bar". Times are ratios to the bare
interpreter where that is possible; the others are of this machine. Needs /proc: exits 3 without it, 1 when a figure is too
high, 0 when all hold.
"""
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "benchmarks"))

import common
import concurrency
import overhead
import startup
from origin import Origin

ATTEMPTS = 3


class Bar(NamedTuple):
    """What a figure must be, and how much it may be: the bar and the noise, or looser where it is not met yet."""

    what: str
    bar: float
    allowed: float
    unit: str


BARS = (
    Bar("answer to initialize, against python3 -c pass", 2.5, 2.8, "times"),
    Bar("answer to tools/list, against python3 -c pass", 3.0, 3.3, "times"),
    Bar("idle memory, against python3", 1.5, 1.65, "times"),
    Bar("idle memory", 18.5, 18.5, "MiB"),
    Bar("tools/list", 10.0, 10.0, "KB"),
    Bar("64 pages that take 0.2 s, at once", 0.6, 1.8, "s"),
    Bar("ping meanwhile, at most", 20.0, 60.0, "ms"),
    Bar("CPU of a page of 200 KB, fetch to reply", 100.0, 130.0, "ms"),
    Bar("20 equal fetches at once", 1, 1, "requests"),
    Bar("cancelled call, until its connection is dropped", 20.0, 30.0, "ms"),
    Bar("second call to a provider", 0, 0, "connections"),
    Bar("second call to a provider over TLS", 0, 0, "connections"),
)


def started() -> List[float]:
    """The figures of the first five bars."""
    tables = startup.measure(7)
    rows = [row for row in tables["Start-up"] if row["what"] == "websearch-mcp"]
    _, size = tables["Idle memory, size of tools/list"][:2]
    return [min(row["ratio"], row["ratio of least"]) for row in rows] + [size["ratio"], size["MiB"], size["tools/list bytes"] / 1000]


def at_once() -> List[float]:
    """Of 64 pages at once: seconds, and the longest ping."""
    with Origin() as origin:
        row = concurrency.calls_at_once(origin, 3, None)[0]
    return [row["least s"], row["ping max ms, best round"]]


def one_page() -> List[float]:
    """CPU of a large page."""
    return [next(row["CPU least ms"] for row in overhead.costs(10) if "200 KB" in row["what"])]


def shared_and_cancelled() -> List[float]:
    """Requests of equal calls, and milliseconds after a cancellation."""
    equal, median, _ = concurrency.shared_and_cancelled()
    return [equal["figure"], median["figure"]]


def connections() -> List[float]:
    """Connections that the second of two searches opens, plain and over TLS."""
    return [overhead.reuse("plain")["second"], overhead.reuse("TLS", overhead.certificate())["second"]]


MEASUREMENTS = (started, at_once, one_page, shared_and_cancelled, connections)


def best(measure: Callable[[], List[float]], bars: List[Bar]) -> List[float]:
    """The least figures of as many attempts as it takes until all are allowed."""
    figures = measure()
    for _ in range(ATTEMPTS - 1):
        if all(figure <= bar.allowed for figure, bar in zip(figures, bars)):
            break
        figures = [min(pair) for pair in zip(figures, measure())]
    return figures


def verdict(figure: float, bar: Bar) -> str:
    if figure > bar.allowed:
        return "FAILED"
    return "ok" if figure <= bar.bar else "misses the bar"


def main() -> int:
    if not os.path.exists("/proc/self/status"):
        print("not run: no /proc here")
        return 3
    rows: List[Dict[str, object]] = []
    remaining = list(BARS)
    for measure in MEASUREMENTS:
        figures = best(measure, remaining)
        for figure in figures:
            bar = remaining.pop(0)
            rows.append({**bar._asdict(), "figure": figure, "verdict": verdict(figure, bar)})
    common.report({"Bars": rows}, False)
    return int(any(row["verdict"] == "FAILED" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
