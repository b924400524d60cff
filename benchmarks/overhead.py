"""What a call costs beside the network: time and CPU of single calls, and whether connections are used again.

    python3 benchmarks/overhead.py [--calls N] [--json]

All in the real process, against a server on loopback: a page that is kept, stored sources, a search at a provider, pages of
20 and 200 KB; then the connections that searches open, plain and over TLS (with a certificate that `openssl` makes), one after
the other and eight at once.
"""
from __future__ import annotations

import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Sequence, Tuple

import common
from origin import Origin

CALLS = 100
SLOW_CALLS = 10  # of those that take many milliseconds each
AT_ONCE = 8


def settings(origin: Origin, **more: str) -> Dict[str, str]:
    """An environment in which the origin is the only provider of searches."""
    return common.environment({**common.LOOPBACK_SETTINGS, "TAVILY_API_KEY": "made-up", "TAVILY_API_URL": origin.base, **more})


def cost(what: str, server: common.Process, calls: int, send: Callable[[int], int]) -> common.Row:
    """Time and CPU of a call, over so many of them one after the other; the first one, which imports what it needs, apart."""
    took: List[float] = []
    cpu: List[float] = []
    for number in range(calls + 1):
        cpu_before, started = server.cpu_seconds(), time.monotonic()
        ended = server.wait([reply := send(number)])
        took.append((ended - started) * 1000)
        cpu.append((server.cpu_seconds() - cpu_before) * 1000)
        server.result(reply)
    return {"what": what, "median ms": common.median(took[1:]), "least ms": min(took[1:]),
            "CPU median ms": common.median(cpu[1:]), "CPU least ms": min(cpu[1:]), "first ms": took[0], "first CPU ms": cpu[0]}


def costs(calls: int) -> List[common.Row]:
    """The table of single calls."""
    with Origin() as origin, common.Process(common.server_command(), settings(origin)) as server:
        server.open_session()

        def fetch(size: int, name: Any) -> int:
            return server.call("web_fetch", {"url": f"{origin.base}/page/{size}/{name}", "provider": "local"})

        def search(number: int) -> int:
            return server.call("web_search", {"query": f"query {number}"})

        rows = [cost("ping", server, calls, lambda _: server.send("ping")),
                cost("web_fetch, a new page of 200 KB", server, SLOW_CALLS, lambda number: fetch(200_000, number)),
                cost("web_fetch, a new page of 20 KB", server, SLOW_CALLS, lambda number: fetch(20_000, number)),
                cost("web_fetch, a kept page of 20 KB", server, calls, lambda _: fetch(20_000, 0)),
                cost("web_search, 8 sources of a provider", server, calls, search)]
        session = server.result(search(0))["structuredContent"]["session_id"]
        rows.append(cost("get_sources, 8 of them", server, calls, lambda _: server.call("get_sources", {"session_id": session})))
    return rows


def certificate() -> Tuple[str, str]:
    """The files of a certificate for 127.0.0.1 and its key; NotRun where openssl cannot make them."""
    folder = common.temporary_folder()
    files = (str(folder / "certificate.pem"), str(folder / "key.pem"))
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1", "-addext",
               "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout", files[1]]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.SubprocessError):
        raise common.NotRun("openssl does not make a certificate") from None
    return files


def reuse(name: str, tls: Sequence[str] = ()) -> common.Row:
    """The connections of a first search, of a second, and of eight at once; how many TLS sessions were taken up again."""
    with Origin(tls) as origin, common.Process(
            common.server_command(), settings(origin, **({"SSL_CERT_FILE": tls[0]} if tls else {}))) as server:
        server.open_session()
        opened = [0]
        for count in (1, 1, AT_ONCE):
            for number in [server.call("web_search", {"query": f"{len(opened)} {index}"}) for index in range(count)]:
                server.result(number)
            opened.append(origin.counts()["connections"])
        new = [after - before for before, after in zip(opened, opened[1:])]
        row = {"connections opened by searches": name, "first": new[0], "second": new[1], f"{AT_ONCE} at once": new[2]}
        return {**row, "of these resumed TLS sessions": origin.counts()["resumed"]} if tls else row


def measure(calls: int = CALLS) -> Dict[str, List[common.Row]]:
    """The tables of costs and connections."""
    connections = [reuse("plain")]
    try:
        connections.append(reuse("TLS", certificate()))
    except common.NotRun as reason:
        connections.append({"what": "TLS", "not run": str(reason)})
    return {"A call": costs(calls), "Connections": connections}


def main() -> int:
    parser = common.arguments(__doc__)
    parser.add_argument("--calls", type=int, default=CALLS)
    options = parser.parse_args()
    common.report(measure(options.calls), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
