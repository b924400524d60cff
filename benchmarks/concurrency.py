"""Many calls at once: how long they take in all, and whether `ping` is answered meanwhile.

    python3 benchmarks/concurrency.py [--rounds N] [--peers DIR] [--json]

64 different pages of 20 KB, each of which takes its server 200 ms, fetched at once through a fresh process ("first") and 64 more
through the same ("again"); 20 of them, also through other fetch servers if `--peers DIR` names a folder to install them in;
how many requests 20 equal fetches make; how soon the page's server sees that a cancelled call has gone.
"""
from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional

import common
import peers
from origin import Origin

ROUNDS, PAGES, PEER_PAGES, EQUAL_CALLS, CANCELLED_CALLS = 5, 64, 20, 20, 10
DELAY_MS = 200
PING_SECONDS = 0.01
POLL_SECONDS = 0.002
FETCH_TOOLS = (("mcp-server-fetch", "fetch", ("--ignore-robots-txt", "--allow-private-ips")),
               ("duckduckgo-mcp-server", "fetch_content", ("--allow-private-urls",)))


class Storm(NamedTuple):
    """What came of some calls at once."""

    seconds: float
    pings: List[float]  # ms


def storm(server: common.Process, tool: str, urls: List[str]) -> Storm:
    """Fetches all of these at once, with a ping every few milliseconds."""
    started, pings = time.monotonic(), {}

    def ping() -> None:
        sent = time.monotonic()
        pings[server.send("ping")] = sent

    calls = [server.call(tool, {"url": url}) for url in urls]
    seconds = server.wait(calls, ping, PING_SECONDS) - started
    for url, number in zip(urls, calls):
        if f"of {url.rsplit('/', 1)[1]}." not in str(server.result(number)):
            raise common.NotRun(f"its reply is not the page: {str(server.result(number))[:300]}")
    server.wait(pings)
    return Storm(seconds, [(server.replies[number][0] - sent) * 1000 for number, sent in pings.items()])


def storms(command: List[str], environ: Dict[str, str], tool: str, pages: int, origin: Origin, times: int = 2) -> List[Storm]:
    """Of a fresh process: its first calls, and as many again."""
    with common.Process(command, environ) as server:
        server.open_session()
        return [storm(server, tool, [f"{origin.base}/slow/{DELAY_MS}/{time.monotonic_ns()}x{number}" for number in range(pages)])
                for _ in range(times)]


def row_of(name: str, pages: int, took: List[Storm]) -> common.Row:
    pings = [ping for one in took for ping in one.pings]
    seconds = [one.seconds for one in took]
    return {"what": name, "calls": pages, "median s": common.median(seconds), "least s": min(seconds),
            "ping median ms": common.median(pings), "ping max ms": max(pings),
            "ping max ms, best round": min(max(one.pings) for one in took)}


def calls_at_once(origin: Origin, rounds: int, folder: Optional[Path]) -> List[common.Row]:
    """The rows of our server, and of the peers."""
    command, environ = common.server_command(), common.environment(common.LOOPBACK_SETTINGS)
    runs: List[List[Storm]] = []
    fewer: List[List[Storm]] = []
    for _ in range(rounds):
        runs.append(storms(command, environ, "web_fetch", PAGES, origin))
        fewer.append(storms(command, environ, "web_fetch", PEER_PAGES, origin))
    rows = [row_of(f"websearch-mcp, {name}", pages, [run[index] for run in kind])
            for pages, kind in ((PAGES, runs), (PEER_PAGES, fewer)) for index, name in enumerate(("first", "again"))]
    for package, tool, options in FETCH_TOOLS if folder else ():
        assert folder is not None
        peer = next(peer for peer in peers.PEERS if peer.package == package)
        try:
            name = f"{package} {peers.version(peer, folder)}"
            took = storms([*peers.command(peer, folder), *options], peers.environment(peer), tool, PEER_PAGES, origin, 1)
            rows.append(row_of(f"{name}, first", PEER_PAGES, took))
        except common.NotRun as reason:
            rows.append({"what": package, "not run": str(reason)})
    return rows


def equal_calls(server: common.Process, origin: Origin) -> common.Row:
    """How many requests equal fetches at once make."""
    url = f"{origin.base}/slow/{DELAY_MS}/equal"
    server.wait([server.call("web_fetch", {"url": url}) for _ in range(EQUAL_CALLS)])
    return {"what": f"{EQUAL_CALLS} equal fetches at once", "figure": origin.requests(url[len(origin.base):]), "unit": "requests"}


def cancelled_calls(server: common.Process, origin: Origin) -> List[common.Row]:
    """Milliseconds from a cancellation until the page's server sees the connection end."""
    took = []
    for number in range(CANCELLED_CALLS):
        path = f"/hold/{number}"
        call = server.call("web_fetch", {"url": origin.base + path})
        wait_for(lambda path=path: origin.requests(path))  # type: ignore[misc]
        sent = time.monotonic()
        server.notify("notifications/cancelled", {"requestId": call})
        took.append((wait_for(lambda path=path: origin.counts()["left"].get(path)) - sent) * 1000)  # type: ignore[misc]
    return [{"what": f"cancelled call to dropped connection, {name}", "figure": figure, "unit": "ms"}
            for name, figure in (("median", common.median(took)), ("max", max(took)))]


def shared_and_cancelled() -> List[common.Row]:
    """The rows of equal and of cancelled calls."""
    environ = common.environment(common.LOOPBACK_SETTINGS)
    with Origin() as origin, common.Process(common.server_command(), environ) as server:
        server.open_session()
        return [equal_calls(server, origin), *cancelled_calls(server, origin)]


def wait_for(condition: Callable[[], float]) -> float:
    """The first true value; NotRun when there is none in time."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(POLL_SECONDS)
    raise common.NotRun("nothing came of it within 10 s")


def measure(rounds: int = ROUNDS, folder: Optional[Path] = None) -> Dict[str, List[common.Row]]:
    """The tables of calls at once, and of calls shared and cancelled."""
    with Origin() as origin:
        rows = calls_at_once(origin, rounds, folder)
    return {f"Pages of 20 KB that take {DELAY_MS} ms, at once": rows, "Shared and cancelled": shared_and_cancelled()}


def main() -> int:
    parser = common.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--peers", type=Path, metavar="DIR", help="install other fetch servers there, and measure them too")
    options = parser.parse_args()
    common.report(measure(options.rounds, options.peers and options.peers.resolve()), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
