"""What the benchmarks share: a server process driven through its pipes, figures of a run, and the report as text or JSON."""
from __future__ import annotations

import argparse
import atexit
import json
import os
import platform
import re
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
SERVER_FILES = ("websearch_mcp.py", "websearch.py")
PATIENCE_SECONDS = 90.0  # the slowest peer takes half of it for 20 pages
NO_WAY_OUT = "http://127.0.0.1:9"  # a proxy that nobody serves: what is measured sends nothing to the net
LOOPBACK_SETTINGS = {
    "WEBSEARCH_ALLOW_PRIVATE": "127.0.0.1", "WEBSEARCH_KEYLESS": "off", "DUCKDUCKGO_ENABLED": "false", "OPEN_ENABLED": "false",
    "WEBSEARCH_LOG": "off"}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "1"}}

Row = Dict[str, Any]


class NotRun(Exception):
    """Why something was not measured; reported in place of a figure."""


# ---- Processes -------------------------------------------------------------------


def temporary_folder() -> Path:
    """A new folder, removed at the end."""
    folder = tempfile.mkdtemp(prefix="websearch-benchmark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def environment(settings: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """PATH, an empty HOME and `settings`: no key, no proxy, and byte code is written as everywhere."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(temporary_folder()), **(settings or {})}


def server_command() -> List[str]:
    """The command of a fresh copy of the server, with its byte code beside it."""
    folder = temporary_folder()
    for name in SERVER_FILES:
        shutil.copy(ROOT / name, folder)
    subprocess.run([PYTHON, "-c", "import websearch"], check=True, cwd=folder, env=environment())
    return [PYTHON, str(folder / SERVER_FILES[0])]


class Process:
    """An MCP server on stdio. `replies` holds (time, message) by id; times are of `time.monotonic`."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self.started = time.monotonic()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                         env=dict(environ), cwd=environ["HOME"], start_new_session=True)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self.pid = self._process.pid
        self.replies: Dict[int, Any] = {}
        self.line_bytes: Dict[int, int] = {}
        self._rest = b""
        self._last_id = 0

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *unused: object) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)  # some peers start processes of their own
        except ProcessLookupError:
            pass
        self._process.communicate()

    def notify(self, method: str, params: Optional[Row] = None) -> None:
        self._write({"method": method, "params": params or {}})

    def send(self, method: str, params: Optional[Row] = None) -> int:
        """Sends a request; gives its id."""
        self._last_id += 1
        self._write({"id": self._last_id, "method": method, "params": params or {}})
        return self._last_id

    def call(self, tool: str, arguments: Row) -> int:
        """Sends a tool call; gives its id."""
        return self.send("tools/call", {"name": tool, "arguments": arguments})

    def wait(self, ids: Iterable[int], tick: Optional[Callable[[], None]] = None, tick_seconds: float = 0.01) -> float:
        """When the last of these replies came. `tick` is called every `tick_seconds` meanwhile."""
        missing, end = set(ids), time.monotonic() + PATIENCE_SECONDS
        due = time.monotonic()
        wanted = set(missing)
        missing -= self.replies.keys()
        while missing:
            now = time.monotonic()
            if now > end:
                raise NotRun(f"no reply within {PATIENCE_SECONDS:.0f} s")
            if tick is not None and now >= due:
                tick()
                due = now + tick_seconds
            if select.select([self._stdout], [], [], max(0.0, due - now) if tick else 1.0)[0]:
                self._read()
                missing -= self.replies.keys()
        return float(max(self.replies[number][0] for number in wanted))

    def result(self, number: int) -> Any:
        """The result of a request, waited for."""
        self.wait([number])
        message = self.replies[number][1]
        if "result" not in message or message["result"].get("isError"):
            raise NotRun("it answers: " + json.dumps(message.get("error") or message["result"])[:200])
        return message["result"]

    def open_session(self) -> float:
        """Makes the handshake; gives the time of the answer to `initialize`."""
        number = self.send("initialize", HELLO)
        self.result(number)
        self.notify("notifications/initialized")
        return float(self.replies[number][0])

    def memory_mib(self, field: str = "VmRSS") -> float:
        """Resident memory now; `VmHWM` is its highest so far."""
        return memory_mib(self.pid, field)

    def cpu_seconds(self) -> float:
        """User and system time so far, all threads."""
        return time.clock_gettime(~self.pid << 3 | 2)  # the process's own clock, as clock_getcpuclockid(3) makes it

    def _write(self, message: Row) -> None:
        try:
            self._stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            self._stdin.flush()
        except OSError:
            raise NotRun("it has ended") from None

    def _read(self) -> None:
        chunk = os.read(self._stdout.fileno(), 1 << 20)
        now = time.monotonic()
        if not chunk:
            raise NotRun("it has ended")
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line) if line.startswith(b"{") else {}
            if "id" in message and "method" not in message:
                self.replies[message["id"]] = (now, message)
                self.line_bytes[message["id"]] = len(line)


def memory_mib(pid: int, field: str = "VmRSS") -> float:
    """A memory figure of a process, from /proc."""
    found = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"), re.M)
    assert found is not None, field
    return int(found.group(1)) / 1024


# ---- Figures and the report ---------------------------------------------------------


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def machine() -> Row:
    """What the figures were measured on, and when."""
    cpuinfo = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.+)", cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else "")
    version = re.search(r'^VERSION = "(.+)"', (ROOT / "websearch.py").read_text(encoding="utf-8"), re.M)
    return {"date": time.strftime("%Y-%m-%d %H:%M"), "cpu": model.group(1) if model else platform.machine(),
            "cpus": os.cpu_count(), "system": f"{platform.system()} {platform.release()}", "python": platform.python_version(),
            "websearch": version.group(1) if version else "?", "load": round(os.getloadavg()[0], 2)}


def arguments(doc: Optional[str]) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"
    return "-" if value is None else str(value)


def _print_table(title: str, rows: Sequence[Row]) -> None:
    missing, rows = [row for row in rows if "not run" in row], [row for row in rows if "not run" not in row]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [columns] + [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    print(f"\n{title}")
    for line in lines:
        cells = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:])]
        print("  " + "  ".join([line[0].ljust(widths[0]), *cells]).rstrip())
    for row in missing:
        print(f"  {row['what']}: not run, {row['not run']}")


def report(tables: Mapping[str, Sequence[Row]], as_json: bool) -> None:
    """Prints titled tables, below a line that names machine and versions."""
    about = machine()
    if as_json:
        print(json.dumps({"machine": about, **tables}, indent=1))
        return
    print("{date}, {cpu} ({cpus} CPUs, load {load}), {system}, Python {python}, websearch-mcp {websearch}".format(**about))
    for title, rows in tables.items():
        _print_table(title, rows)
