"""What the checks with real clients share: a client from npm, a model endpoint that calls tools, providers on loopback.

Clients are installed on first use into a folder outside the project: $WEBSEARCH_CLIENTS, else
~/.cache/websearch-mcp-clients. A check whose client cannot be had or started ends with the line "NOT RUN: …" and status 3.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.support import ROOT, Loopback, RecordedRequest, Reply, loopback_settings, wait_until

CLIENT_SECONDS = 60  # one run of a client; usually 2 to 8
CLOSING_WORDS = "that is all"  # what the model says when it has seen what it asked for
SEARCH_WORDS, PAGE_WORDS = "peregrines nest on towers", "merlins hunt over moorland"
KEY = "tvly-of-the-check"
PROVIDER_URL = "http://tavily.example.test"  # is reached through the proxy, or not at all
TOOL_NAMES = ["web_search", "get_sources", "web_fetch", "web_map"]


class NotRun(Exception):
    """The client cannot be had or started on this machine."""


class Checks:
    """Prints each check and counts them."""

    def __init__(self) -> None:
        self.passed = self.failed = 0

    def check(self, what: str, holds: Any, seen: Any = "") -> None:
        """One check; what was `seen` instead is shown when it fails."""
        self.passed, self.failed = self.passed + bool(holds), self.failed + (not holds)
        print(f"{'ok  ' if holds else 'FAIL'} {what}" + ("" if holds else f"\n     seen: {str(seen)[:1500]}"), flush=True)


def run_check(check: Callable[[Checks], None]) -> int:
    """The exit status of a script: 0 all is well, 1 something is not, 3 the client cannot run here."""
    checks = Checks()
    try:
        check(checks)
    except NotRun as reason:
        print(f"NOT RUN: {reason}")
        return 1 if checks.failed else 3
    print(f"{checks.passed} checks, {checks.failed} failed")
    return 1 if checks.failed else 0


# ---- The client --------------------------------------------------------------


def npm_folder(*packages: str) -> Path:
    """A folder with these npm packages, made when it is not there; nothing of theirs runs at installation."""
    base = Path(os.environ.get("WEBSEARCH_CLIENTS") or Path.home() / ".cache" / "websearch-mcp-clients")
    folder = base / re.sub(r"[^A-Za-z0-9.]+", "-", " ".join(packages)).strip("-")
    if (folder / "node_modules").is_dir():
        return folder
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise NotRun("node and npm are not on PATH")
    base.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=base))
    (work / "package.json").write_text("{}")
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", *packages]
    try:
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise NotRun(f"npm could not install {' '.join(packages)}: {' '.join(done.stderr.split())[:200]}")
        os.replace(work, folder)
    except subprocess.TimeoutExpired:
        raise NotRun(f"npm took more than 300 s for {' '.join(packages)}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder


def executable(package: str, *patterns: str, version_option: str = "--version") -> str:
    """The program of an npm package, at the first of the `patterns` below node_modules; it has told its version here."""
    folder = npm_folder(package)
    found = [path for pattern in patterns for path in sorted(folder.glob("node_modules/" + pattern)) if os.access(path, os.X_OK)]
    if not found:
        raise NotRun(f"{package} has no program for this machine")
    try:
        done = subprocess.run([str(found[0]), version_option], capture_output=True, text=True, timeout=CLIENT_SECONDS,
                              env={"PATH": os.environ["PATH"], "HOME": str(folder)})
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotRun(f"{package} does not start here ({type(error).__name__})") from None
    if done.returncode != 0 or not done.stdout.strip():
        raise NotRun(f"{package} does not start here: {(done.stderr or done.stdout).strip()[-300:]}")
    print(f"== {package}: {done.stdout.strip().splitlines()[0] if version_option == '--version' else 'runs'}", flush=True)
    return str(found[0])


class Finished:
    """A client that has run: exit status, stdout as text and as JSON lines, stderr."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        try:
            done = subprocess.run(list(command), env=dict(environment), cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, timeout=CLIENT_SECONDS)
            self.status, self.text, self.errors = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as late:
            self.status, self.text, self.errors = -1, str(late.stdout), f"ended after {CLIENT_SECONDS} s; {late.stderr!r}"
        self.events: List[Dict[str, Any]] = [json.loads(line) for line in self.text.splitlines() if line.startswith("{")
                                             and line.endswith("}")]

    def __repr__(self) -> str:
        return f"status {self.status}; {self.errors[-600:]}; {self.text[-600:]}"


def are_gone(script: Path) -> bool:
    """Whether no process runs `script` any more (Linux; elsewhere this is not looked at)."""
    def commands() -> List[bytes]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                found.append(path.read_bytes())
            except OSError:
                pass
        return found
    try:
        return bool(wait_until(lambda: not any(os.fsencode(script) in command for command in commands()), 5.0))
    except AssertionError:
        return False


# ---- The web and the model ---------------------------------------------------


class World:
    """A provider behind a proxy, a page, and the environment of a client that starts the server: HOME is a new folder.

    `http_proxy` and the key are in the client's environment only. That a search succeeds shows that both arrived at the server.
    """

    def __enter__(self) -> World:
        found = {"results": [{"title": "Falcons", "url": "https://birds.example.test/falcons", "content": SEARCH_WORDS, "score": 0.9}]}
        page = f"<title>Merlin</title><main><h1>Merlin</h1><p>It is said that {PAGE_WORDS}, all year round.</p></main>"
        self.proxy = Loopback({f"{PROVIDER_URL}/search": found})
        self.site = Loopback({"/merlin": page, "/slow": Reply(200, page, delay_seconds=5.0)})
        self._folder = tempfile.TemporaryDirectory(prefix="client-")
        self.home = Path(self._folder.name, "home")
        self.project = Path(self._folder.name, "project")
        self.home.mkdir()
        self.project.mkdir()
        return self

    def __exit__(self, *unused: object) -> None:
        self.proxy.close()
        self.site.close()
        self._folder.cleanup()

    def environment(self, more: Mapping[str, str]) -> Dict[str, str]:
        """What the client is started with."""
        settings = loopback_settings({"TAVILY_API_KEY": KEY, "TAVILY_API_URL": PROVIDER_URL, "WEBSEARCH_FETCH_PROVIDERS": "local",
                                      "http_proxy": self.proxy.url(), "no_proxy": "127.0.0.1"})
        return {"HOME": str(self.home), "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"],
                "LANG": "C.UTF-8", "TERM": "dumb", **settings, **more}

    def copy_of_server(self) -> Path:
        """The server's file in a folder of its own, so that its processes can be told from others."""
        folder = self.home / "server"
        folder.mkdir()
        for name in ("websearch.py", "websearch_mcp.py"):
            shutil.copy(ROOT / name, folder)
        return folder / "websearch_mcp.py"

    def calls(self) -> List[Tuple[str, Dict[str, Any]]]:
        """What the model asks for, one after the other."""
        return [("web_search", {"query": "falcons"}), ("web_fetch", {"url": self.site.url("/merlin")})]

    def check_results(self, checks: Checks, name: str, shown: Sequence[str]) -> None:
        """The texts that came back to the model are those of the provider and of the page, and the proxy was used."""
        checks.check(f"{name}: both results reached the model", len(shown) == 2, shown)
        for (tool, _), words, text in zip(self.calls(), (SEARCH_WORDS, PAGE_WORDS), shown):
            checks.check(f"{name}: {tool}'s text arrived", words in text, text)
        keys = [request.header("authorization") for request in self.proxy.requests_to("/search")]
        checks.check(f"{name}: key and proxy arrived at the server", keys == [f"Bearer {KEY}"], self.proxy.requests)
        self.proxy.requests.clear()


def install(world: World, client: str, *options: str) -> str:
    """What `install` says; RuntimeError when it fails."""
    done = subprocess.run([sys.executable, str(ROOT / "websearch.py"), "install", client, *options], capture_output=True, text=True,
                          env=world.environment({}), timeout=60)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return done.stdout.strip()


def model_endpoint(path: str, answer: Callable[[Dict[str, Any]], List[Dict[str, Any]]]) -> Loopback:
    """A server of a streaming model API: `answer` is given the parsed request and gives the events to send."""

    def stream(request: RecordedRequest) -> Reply:
        events = answer(request.json())
        text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        return Reply(200, text.encode(), [("Content-Type", "text/event-stream")])

    return Loopback({path: stream})
