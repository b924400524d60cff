"""Start-up and memory: the bare interpreter, the server, and other servers, in interleaved rounds.

    python3 benchmarks/startup.py [--rounds N] [--peers DIR] [--profile] [--json]

Times run from the start of the process to the answer; a ratio is against `python3 -c pass` of the same interpreter in the same
run, once of medians, once of the fastest. Memory is resident memory, idle, after `tools/list`. `--peers DIR` installs five
other servers into DIR (pip, npm) and measures them too; only `initialize` and `tools/list` are sent to them.
"""
from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import common
import peers

ROUNDS, MEMORY_ROUNDS = 15, 3
SETTLE_SECONDS = 0.3
PROFILE_ROWS = 12


class Contestant(NamedTuple):
    """What is started, and what came of it."""

    name: str
    command: Sequence[str]
    environment: Dict[str, str]
    times: List[Tuple[float, float]]  # ms to the answers of initialize and tools/list
    memory: List[float]  # MiB
    reply_bytes: List[int]
    prepare: Callable[[], object] = bool


def start(contestant: Contestant, is_idle: bool) -> None:
    """Starts it once, and notes its times, or its idle memory."""
    contestant.prepare()
    with common.Process(contestant.command, contestant.environment) as server:
        first = server.open_session()
        number = server.send("tools/list")
        server.result(number)
        if is_idle:
            time.sleep(SETTLE_SECONDS)
            contestant.memory.append(server.memory_mib())
        else:
            contestant.times.append(((first - server.started) * 1000, (server.replies[number][0] - server.started) * 1000))
            contestant.reply_bytes.append(server.line_bytes[number])


def bare_ms(environ: Dict[str, str], *options: str) -> float:
    """Milliseconds from start to end of an interpreter that does nothing."""
    started = time.monotonic()
    subprocess.Popen([common.PYTHON, *options, "-c", "pass"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                     stderr=subprocess.DEVNULL, env=environ, cwd=environ["HOME"], start_new_session=True).communicate()
    return (time.monotonic() - started) * 1000


def bare_mib(environ: Dict[str, str]) -> float:
    """Resident memory of an interpreter that does nothing."""
    process = subprocess.Popen([common.PYTHON, "-c", "import time; time.sleep(60)"], env=environ)
    time.sleep(SETTLE_SECONDS)
    memory = common.memory_mib(process.pid)
    process.kill()
    process.wait()
    return memory


def own(name: str, is_cached: bool) -> Contestant:
    command, environ = common.server_command(), common.environment()
    cache = Path(command[1]).parent / "__pycache__"
    prepare = bool if is_cached else lambda: shutil.rmtree(cache, ignore_errors=True)
    return Contestant(name, command, environ, [], [], [], prepare)


def measure(rounds: int = ROUNDS, folder: Optional[Path] = None) -> Dict[str, List[common.Row]]:
    """The table of start-up and memory."""
    contestants, missing = [own("websearch-mcp", True), own("websearch-mcp, byte code not cached", False)], []
    for peer in peers.PEERS if folder else ():
        assert folder is not None
        try:
            name = f"{peer.package} {peers.version(peer, folder)}"
            contestant = Contestant(name, peers.command(peer, folder), peers.environment(peer), [], [], [])
            start(contestant, False)  # it writes its byte code, and shows whether it answers
            contestant.times.clear()
            contestants.append(contestant)
        except common.NotRun as reason:
            missing.append({"what": peer.package, "not run": str(reason)})
    start(contestants[0], False)
    contestants[0].times.clear()
    environ = common.environment()
    bare, core, bare_memory = [], [], []
    for round_number in range(rounds):
        bare.append(bare_ms(environ))
        core.append(bare_ms(environ, "-S"))
        for contestant in contestants:
            start(contestant, False)
        if round_number < MEMORY_ROUNDS:
            bare_memory.append(bare_mib(environ))
            for contestant in contestants:
                start(contestant, True)
    memory = common.median(bare_memory)
    rows: List[common.Row] = [
        {"what": "python3 -c pass", "answer to": "(its end)", "median ms": common.median(bare), "least ms": min(bare)}]
    for index, answer in enumerate(("initialize", "tools/list")):
        for contestant in contestants:
            rows.append(time_row(contestant.name, answer, [times[index] for times in contestant.times], bare))
    listed = [times[1] for times in contestants[0].times]
    share = [{"what": name, "by median": common.median(took) / common.median(listed), "by least": min(took) / min(listed)}
             for name, took in (("python3 -c pass", bare), ("python3 -S -c pass, no site-packages", core))]
    sizes: List[common.Row] = [{"what": "python3, doing nothing", "MiB": memory}]
    sizes += [{"what": one.name, "MiB": common.median(one.memory), "ratio": common.median(one.memory) / memory,
               "tools/list bytes": one.reply_bytes[-1]} for one in contestants]
    return {"Start-up": rows + missing, "Share of the interpreter in the time to tools/list": share,
            "Idle memory, size of tools/list": sizes + missing}


def time_row(name: str, answer: str, took: Sequence[float], bare: Sequence[float]) -> common.Row:
    return {"what": name, "answer to": answer, "median ms": common.median(took), "least ms": min(took),
            "ratio": common.median(took) / common.median(bare), "ratio of least": min(took) / min(bare)}


def profile() -> Dict[str, List[common.Row]]:
    """The imports of a start that take longest, by `-X importtime`, themselves and with what they import."""
    command, environ = common.server_command(), common.environment()
    lines: Any = []
    for _ in range(2):  # the first leaves the byte code
        ran = subprocess.run([command[0], "-X", "importtime", command[1]], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, env=environ, text=True)
        lines = re.findall(r"import time:\s+(\d+) \|\s+(\d+) \| +(\S+)", ran.stderr)
    rows = [{"module": name, "self ms": int(alone) / 1000, "cumulative ms": int(whole) / 1000} for alone, whole, name in lines]
    rows.sort(key=lambda row: -row["self ms"])
    total = {"module": f"all {len(rows)}", "self ms": sum(row["self ms"] for row in rows)}
    return {"Imports": [total, *rows[:PROFILE_ROWS]]}


def main() -> int:
    parser = common.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--peers", type=Path, metavar="DIR", help="install other servers there, and measure them too")
    parser.add_argument("--profile", action="store_true", help="also show which imports take longest")
    options = parser.parse_args()
    tables = measure(options.rounds, options.peers and options.peers.resolve())
    if options.profile:
        tables.update(profile())
    common.report(tables, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
