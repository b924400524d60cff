"""What the tests share: the real server process, and loopback servers that answer as scripted.

    McpProcess     drives websearch_mcp.py through pipes
    Loopback       a well-behaved HTTP/1.1 origin, provider or proxy; records every request
    RawLoopback    exact bytes, drips, pauses, cuts; notices when the client goes away
    fixture(name)  the bytes of a file under tests/fixtures

Everything listens on 127.0.0.1, port 0. Nothing here knows websearch.py, and nothing of ours is patched: a test
points the product at a server by the product's own settings.

    with Loopback({"/page": "<p>hello</p>"}) as origin, McpProcess(loopback_settings()) as server:
        server.initialize()
        result = server.call_tool("web_fetch", {"url": origin.url("/page")})
        assert origin.requests[0].header("host") == origin.host
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union
from urllib.parse import parse_qsl, urlsplit

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
PATIENCE_SECONDS = 10.0  # for what should take milliseconds; a busy machine may take longer


def fixture(name: str) -> bytes:
    """The bytes of tests/fixtures/`name`."""
    return (FIXTURES / name).read_bytes()


def fixture_json(name: str) -> Any:
    """The parsed JSON of tests/fixtures/`name`."""
    return json.loads(fixture(name).decode("utf-8"))


def wait_until(condition: Callable[[], Any], timeout: float = PATIENCE_SECONDS) -> Any:
    """The first true value of `condition`, asked every 2 ms; AssertionError when there is none in time."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"nothing came of it within {timeout:.1f} s")
        time.sleep(0.002)


def closed_port() -> int:
    """A port of 127.0.0.1 on which nobody listens (just now)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# ---- Settings ----------------------------------------------------------------

_homes: List[str] = []


def empty_home() -> str:
    """An empty folder for HOME, one for the whole run, removed at its end."""
    if not _homes:
        _homes.append(tempfile.mkdtemp(prefix="websearch-tests-"))
        atexit.register(shutil.rmtree, _homes[0], ignore_errors=True)
    return _homes[0]


def bare_environment(settings: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """PATH, an empty HOME, and `settings`; no key, no proxy variable, no locale."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": empty_home(), **(settings or {})}


def loopback_settings(settings: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """Settings that let fetches reach 127.0.0.1 and switch off whatever would leave this machine by itself."""
    return {
        "WEBSEARCH_ALLOW_PRIVATE": "127.0.0.1/32",
        "WEBSEARCH_KEYLESS": "off",
        "DUCKDUCKGO_ENABLED": "false",
        "OPEN_ENABLED": "false",
        **(settings or {}),
    }


# ---- Requests as a server saw them -------------------------------------------


class RecordedRequest(NamedTuple):
    """One request as it came over the wire."""

    method: str
    target: str  # "/path?query", "http://host/path" at a proxy, or "host:443" for CONNECT
    headers: Tuple[Tuple[str, str], ...]
    body: bytes
    connection: int  # number of the connection it came on, from 1
    at: float  # time.monotonic() when it was complete

    @property
    def path(self) -> str:
        """The path of the target, of an absolute one too; the target itself for CONNECT."""
        return self.target if self.method == "CONNECT" else urlsplit(self.target).path

    @property
    def query(self) -> Dict[str, str]:
        """The decoded query parameters (the last one wins)."""
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    def header(self, name: str) -> Optional[str]:
        """The first value of a header, whatever its case; None when it is not there."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def json(self) -> Any:
        """The parsed body."""
        return json.loads(self.body.decode("utf-8"))


def _read_body(stream: Any, headers: Sequence[Tuple[str, str]]) -> bytes:
    """The request's body, by Content-Length or in chunks."""
    values = {name.lower(): value for name, value in headers}
    if values.get("transfer-encoding", "").lower() != "chunked":
        return bytes(stream.read(int(values.get("content-length", "0"))))
    body = b""
    while True:
        size = int(stream.readline().split(b";")[0], 16)
        body += bytes(stream.read(size))
        stream.readline()
        if size == 0:
            return body


def _read_request(stream: Any, connection: int) -> Optional[RecordedRequest]:
    """The next request on a connection; None when the client closed it instead."""
    first = stream.readline().decode("latin-1").strip()
    if not first:
        return None
    headers = []
    while True:
        line = stream.readline().decode("latin-1").rstrip("\r\n")
        if not line:
            break
        name, _, value = line.partition(":")
        headers.append((name, value.strip()))
    method, target = (first.split(" ") + [""])[:2]
    body = _read_body(stream, headers)
    return RecordedRequest(method, target, tuple(headers), body, connection, time.monotonic())


# ---- The listener under both servers -----------------------------------------


class _Listener:
    """Accepts on 127.0.0.1, one daemon thread a connection. Subclasses give `_serve(connection, number)`.

    `connections` counts all that were ever accepted, `open_connections` those of this moment, and
    `most_open_connections` the highest number of these.
    """

    scheme = "http"

    def __init__(self) -> None:
        self.requests: List[RecordedRequest] = []
        self.connections = 0
        self.open_connections = 0
        self.most_open_connections = 0
        self.changed = threading.Condition()
        self._sockets: List[socket.socket] = []
        self._listening = socket.socket()
        self._listening.bind(("127.0.0.1", 0))
        self._listening.listen(512)
        self.port = int(self._listening.getsockname()[1])
        self.host = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, name=f"loopback-{self.port}", daemon=True).start()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def url(self, path: str = "") -> str:
        """The address of `path` on this server."""
        return f"{self.scheme}://{self.host}{path}"

    def close(self) -> None:
        """Stops listening and cuts every connection."""
        with self.changed:
            sockets, self._sockets = [self._listening, *self._sockets], []
        for sock in sockets:
            _shut(sock)

    def requests_to(self, path: str) -> List[RecordedRequest]:
        """The requests so far whose path is `path`."""
        with self.changed:
            return [request for request in self.requests if request.path == path]

    def wait_for_requests(self, count: int = 1, timeout: float = PATIENCE_SECONDS) -> List[RecordedRequest]:
        """All requests so far, as soon as there are `count` of them."""
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.requests) >= count, timeout):
                raise AssertionError(f"{len(self.requests)} of {count} requests came within {timeout:.1f} s")
            return list(self.requests)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with self.changed:
                self.connections += 1
                self.open_connections += 1
                self.most_open_connections = max(self.most_open_connections, self.open_connections)
                self._sockets.append(connection)
                number = self.connections
                self.changed.notify_all()
            threading.Thread(target=self._run, args=(connection, number), daemon=True).start()

    def _run(self, connection: socket.socket, number: int) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._serve(connection, number)
        except (OSError, ValueError):
            pass  # the client went away, or spoke no HTTP: both are for the test to find out
        finally:
            connection.close()
            with self.changed:
                self.open_connections -= 1
                if connection in self._sockets:
                    self._sockets.remove(connection)
                self.changed.notify_all()

    def _serve(self, connection: socket.socket, number: int) -> None:
        raise NotImplementedError

    def _record(self, request: RecordedRequest) -> None:
        with self.changed:
            self.requests.append(request)
            self.changed.notify_all()

    def _route(self, routes: Mapping[str, Any], request: RecordedRequest) -> Any:
        """The entry for the exact target, the target without query, the path, or "*"; None without one."""
        keys = (request.target, request.target.split("?")[0], request.path, "*")
        return next((routes[key] for key in keys if key in routes), None)


def _shut(sock: socket.socket) -> None:
    """Closes a socket that another thread may be waiting on."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    sock.close()


# ---- Loopback: a well-behaved server ------------------------------------------


class Reply(NamedTuple):
    """An answer of Loopback. A dict or list becomes JSON; text is HTML when it starts with "<"."""

    status: int = 200
    body: Any = b""
    headers: Sequence[Tuple[str, str]] = ()  # a Content-Type or Content-Length given here replaces the usual one
    delay_seconds: float = 0.0  # before the first byte
    close: bool = False  # close the connection after it
    tunnel_to: Optional[Tuple[str, int]] = None  # for CONNECT: after a 200, carry bytes to and from this address


Answer = Union[Reply, bytes, str, int, Mapping[str, Any], Sequence[Any], Callable[[RecordedRequest], Any]]


class Loopback(_Listener):
    """A threaded HTTP/1.1 server with keep-alive that answers by path and records requests.

        Loopback({"/a": "<p>page</p>", "/b": Reply(500, "broken"), "*": {"results": []}})

    An answer is a Reply, or short for one: bytes, text, a dict or list (status 200), a number (that status), or a
    function that is given the request and returns any of these. `answer` gives a path several answers, which are
    used in turn; the last one stands for ever. What has no answer is a 404.

    It serves as a proxy as well: an absolute-form target is looked up whole, then by its path; CONNECT by
    "host:port". `Loopback(…, tls=context)` speaks TLS with an `ssl.SSLContext` of the server side.
    """

    def __init__(self, answers: Optional[Mapping[str, Answer]] = None, tls: Optional[ssl.SSLContext] = None) -> None:
        self._tls = tls
        self.scheme = "https" if tls else "http"
        self._answers: Dict[str, List[Answer]] = {path: [answer] for path, answer in (answers or {}).items()}
        super().__init__()

    def answer(self, path: str, *answers: Answer) -> None:
        """Sets what `path` answers from now on, in turn."""
        with self.changed:
            self._answers[path] = list(answers)

    def _serve(self, connection: socket.socket, number: int) -> None:
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_side=True)
        with connection, connection.makefile("rb") as stream:
            while True:
                request = _read_request(stream, number)
                if request is None:
                    return
                self._record(request)
                reply = self._reply(request)
                if reply.delay_seconds:
                    time.sleep(reply.delay_seconds)
                connection.sendall(_reply_bytes(reply, request))
                if reply.tunnel_to is not None:
                    _carry(connection, reply.tunnel_to)
                if reply.close or reply.tunnel_to is not None:
                    return

    def _reply(self, request: RecordedRequest) -> Reply:
        """What to send; each answer but the last of a path is used once."""
        with self.changed:
            answers = self._route(self._answers, request)
            answer: Any = Reply(404, "no answer is scripted for this path")
            if answers:
                answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, Reply):
            return answer
        return Reply(answer) if isinstance(answer, int) else Reply(200, answer)


def _reply_bytes(reply: Reply, request: RecordedRequest) -> bytes:
    """Head and body in one piece (two writes would meet Nagle's algorithm and take 40 ms)."""
    kind, body = "application/octet-stream", reply.body
    if isinstance(body, (dict, list)):
        kind, body = "application/json", json.dumps(body)
    elif isinstance(body, str):
        kind = "text/html; charset=utf-8" if body.lstrip().startswith("<") else "text/plain; charset=utf-8"
    if isinstance(body, str):
        body = body.encode("utf-8")
    headers = list(reply.headers)
    given = {name.lower() for name, _ in headers}
    is_tunnel = request.method == "CONNECT" and reply.status == 200
    if not is_tunnel and "content-type" not in given:
        headers.append(("Content-Type", kind))
    if not is_tunnel and not given & {"content-length", "transfer-encoding"}:
        headers.append(("Content-Length", str(len(body))))
    if reply.close:
        headers.append(("Connection", "close"))
    lines = [f"HTTP/1.1 {reply.status} Scripted", *(f"{name}: {value}" for name, value in headers)]
    head = "\r\n".join([*lines, "", ""])
    return head.encode("latin-1") + (b"" if request.method == "HEAD" else body)


def _carry(client: socket.socket, address: Tuple[str, int]) -> None:
    """Carries bytes between `client` and `address` until one of them closes."""
    with socket.create_connection(address, timeout=PATIENCE_SECONDS) as target:
        while True:
            for sock in select.select([client, target], [], [], 60)[0]:
                data = sock.recv(65536)
                if not data:
                    return
                (target if sock is client else client).sendall(data)


# ---- RawLoopback: exact bytes ---------------------------------------------------


class Pause(NamedTuple):
    """Send nothing for a while."""

    seconds: float


class Drip(NamedTuple):
    """Send `data` byte by byte."""

    data: bytes
    bytes_per_second: float


class Repeat(NamedTuple):
    """Send `data` over and over until the client goes away."""

    data: bytes
    pause_seconds: float = 0.0


class Hold(NamedTuple):
    """Send nothing until the client goes away."""


class Reset(NamedTuple):
    """Cut the connection with RST, not FIN."""


class Drop(NamedTuple):
    """That the client closed its connection before the script was over."""

    connection: int  # its number, from 1
    after_seconds: float  # since the request was complete (or since the connection, when none is read)
    at: float  # time.monotonic()


Step = Union[bytes, Pause, Drip, Repeat, Hold, Reset, Callable[[socket.socket], None]]


class _Dropped(Exception):
    """The client closed its connection."""


class RawLoopback(_Listener):
    """A server that sends exactly what a script says, then closes.

        RawLoopback(b"HTTP/1.1 200 OK\\r\\nContent-Length: 10\\r\\n\\r\\nhalf")            # then FIN: cut off
        RawLoopback(b"HTTP/1.1 200 OK\\r\\n\\r\\n", Drip(b"x" * 100, bytes_per_second=1))
        RawLoopback(b"HTTP/1.1 200 OK\\r\\n\\r\\n", Repeat(b"more "))                     # for ever
        RawLoopback(Hold())                                                           # accepts, never answers

    Steps are bytes, Pause, Drip, Repeat, Hold, Reset, or a function that is given the connected socket. The steps
    given to the constructor answer every path; `answer(path, *steps)` scripts one, and called again for the same
    path scripts its next request (the last script stands for ever). A request is read first, body included, and
    recorded; with `read_request=False` the script starts at once. With `keep_alive=True` the connection stays open
    after the script and the next request is read. "*", absolute-form and CONNECT targets work as in Loopback.

    `drops` lists the clients that went away before the end of the script.
    """

    def __init__(self, *steps: Step, read_request: bool = True, keep_alive: bool = False) -> None:
        self.drops: List[Drop] = []
        self._read_request, self._keep_alive = read_request, keep_alive
        self._scripts: Dict[str, List[Sequence[Step]]] = {"*": [steps]} if steps else {}
        super().__init__()

    def answer(self, path: str, *steps: Step) -> None:
        """Scripts `path`; a further call scripts its next request."""
        with self.changed:
            self._scripts.setdefault(path, []).append(steps)

    def wait_for_drop(self, count: int = 1, timeout: float = PATIENCE_SECONDS) -> Drop:
        """The `count`-th drop, as soon as there is one."""
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.drops) >= count, timeout):
                raise AssertionError(f"the client did not drop its connection within {timeout:.1f} s")
            return self.drops[count - 1]

    def _serve(self, connection: socket.socket, number: int) -> None:
        started = time.monotonic()
        try:
            with connection.makefile("rb") as stream:
                while True:
                    request = RecordedRequest("", "*", (), b"", number, started)
                    if self._read_request:
                        heard = _read_request(stream, number)
                        if heard is None:
                            return
                        request, started = heard, heard.at
                        self._record(request)
                    for step in self._steps(request):
                        _perform(step, connection)
                    if not self._keep_alive:
                        return
        except (_Dropped, ConnectionError):
            now = time.monotonic()
            with self.changed:
                self.drops.append(Drop(number, now - started, now))
                self.changed.notify_all()

    def _steps(self, request: RecordedRequest) -> Sequence[Step]:
        with self.changed:
            scripts = self._route(self._scripts, request)
            if not scripts:
                return (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",)
            steps: Sequence[Step] = scripts.pop(0) if len(scripts) > 1 else scripts[0]
            return steps


def _perform(step: Step, connection: socket.socket) -> None:
    """Does one step; raises _Dropped or ConnectionError when the client has gone."""
    if isinstance(step, bytes):
        connection.sendall(step)
    elif isinstance(step, Pause):
        _watch(connection, step.seconds)
    elif isinstance(step, Drip):
        for index in range(len(step.data)):
            connection.sendall(step.data[index : index + 1])
            _watch(connection, 1.0 / step.bytes_per_second)
    elif isinstance(step, Repeat):
        while True:
            connection.sendall(step.data)
            _watch(connection, step.pause_seconds)
    elif isinstance(step, Hold):
        _watch(connection, 600)
    elif isinstance(step, Reset):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    else:
        step(connection)


def _watch(connection: socket.socket, seconds: float) -> None:
    """Waits; raises _Dropped as soon as the client closes. What it sends meanwhile is thrown away."""
    end = time.monotonic() + seconds
    while True:
        left = max(0.0, end - time.monotonic())
        if select.select([connection], [], [], left)[0]:
            if not connection.recv(65536):
                raise _Dropped
        elif left <= 0:
            return


# ---- The server process ---------------------------------------------------------


class McpProcess:
    """websearch_mcp.py (or another `script`) as a client sees it: a process with three pipes.

        with McpProcess({"TAVILY_API_KEY": "k", "TAVILY_API_URL": mock.url()}) as server:
            server.initialize()
            result = server.call_tool("web_search", {"query": "x"})     # the CallToolResult object
            reply = server.request("ping")                              # the whole reply: {"jsonrpc", "id", "result"}

    The environment is bare: PATH, an empty HOME, and the `settings` given. Whatever the process writes is kept in
    `stdout` and `stderr` (bytes); messages are handed out by `receive` (the next) and `reply_to` (by id) once each.
    Leaving the block kills the process when it still runs. Every wait has an end, and fails the test.

    `read_stdout=False` leaves stdout unread until `start_reading()`; `read_stderr=False` never reads stderr.
    """

    def __init__(
        self,
        settings: Optional[Mapping[str, str]] = None,
        *,
        arguments: Sequence[str] = (),
        script: Union[str, Path, None] = None,
        python: str = sys.executable,
        cwd: Union[str, Path, None] = None,
        read_stdout: bool = True,
        read_stderr: bool = True,
    ) -> None:
        self.stdout, self.stderr = bytearray(), bytearray()
        self._inbox: queue.Queue[bytes] = queue.Queue()
        self._unclaimed: List[Dict[str, Any]] = []
        self.last_id: Any = None  # of the last request sent
        self._count = 0
        self.started_at = time.monotonic()
        self._process = subprocess.Popen(
            [python, str(script or ROOT / "websearch_mcp.py"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=bare_environment(settings),
            cwd=str(cwd or empty_home()),
            bufsize=0,
        )
        self.pid = self._process.pid
        self._stdin, self._stdout, self._stderr = self._process.stdin, self._process.stdout, self._process.stderr
        self._readers: List[threading.Thread] = []
        if read_stdout:
            self.start_reading()
        if read_stderr:
            self._start_reader(self._read_stderr)

    def __enter__(self) -> McpProcess:
        return self

    def __exit__(self, *unused: object) -> None:
        self.kill()

    # -- sending --

    def send_bytes(self, data: bytes) -> None:
        """Writes `data` to the server's stdin as it is."""
        assert self._stdin is not None
        view = memoryview(data)
        while view:
            view = view[self._stdin.write(view) :]

    def send(self, *messages: Any) -> None:
        """Writes each message as one line of JSON, all of them in one go."""
        self.send_bytes("".join(json.dumps(message) + "\n" for message in messages).encode("utf-8"))

    def send_request(self, method: str, params: Any = None, id: Any = None) -> Any:
        """Sends a request without waiting, and returns its id (a new number unless given)."""
        if id is None:
            self._count += 1
            id = f"t{self._count}"
        self.last_id = id
        self.send(_message(method, params, id=id))
        return id

    def send_call(self, name: str, arguments: Any = None, id: Any = None, progress_token: Any = None) -> Any:
        """Sends a tools/call without waiting, and returns its id."""
        params: Dict[str, Any] = {"name": name, "arguments": arguments}
        if progress_token is not None:
            params["_meta"] = {"progressToken": progress_token}
        return self.send_request("tools/call", params, id)

    def notify(self, method: str, params: Any = None) -> None:
        """Sends a notification."""
        self.send(_message(method, params))

    def cancel(self, request_id: Any) -> None:
        """Sends notifications/cancelled for a request."""
        self.notify("notifications/cancelled", {"requestId": request_id, "reason": "test"})

    def close_stdin(self) -> None:
        """Ends the server's input."""
        assert self._stdin is not None
        try:
            self._stdin.close()
        except OSError:
            pass

    # -- receiving --

    def receive(self, timeout: float = PATIENCE_SECONDS) -> Dict[str, Any]:
        """The next message that nobody has taken yet."""
        return self._unclaimed.pop(0) if self._unclaimed else self._next(timeout)

    def reply_to(self, request_id: Any, timeout: float = PATIENCE_SECONDS) -> Dict[str, Any]:
        """The answer to the request with this id (type and value); other messages wait for their turn."""
        for index, message in enumerate(self._unclaimed):
            if _is_reply(message, request_id):
                return self._unclaimed.pop(index)
        end = time.monotonic() + timeout
        while True:
            message = self._next(max(0.0, end - time.monotonic()))
            if _is_reply(message, request_id):
                return message
            self._unclaimed.append(message)

    def receive_all(self, seconds: float = 0.1) -> List[Dict[str, Any]]:
        """Every message that is there, or comes within the next `seconds`."""
        messages, self._unclaimed = self._unclaimed, []
        end = time.monotonic() + seconds
        while True:
            try:
                line = self._inbox.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                return messages
            messages.append(_parse(line))

    def request(self, method: str, params: Any = None, timeout: float = PATIENCE_SECONDS) -> Dict[str, Any]:
        """Sends a request and returns the whole reply."""
        return self.reply_to(self.send_request(method, params), timeout)

    def call_tool(self, name: str, arguments: Any = None, timeout: float = 60.0) -> Dict[str, Any]:
        """Calls a tool and returns the CallToolResult object; AssertionError for a JSON-RPC error."""
        reply = self.reply_to(self.send_call(name, arguments), timeout)
        if "result" not in reply:
            raise AssertionError(f"tools/call gave {reply!r}")
        result: Dict[str, Any] = reply["result"]
        return result

    def initialize(self, version: str = "2025-06-18") -> Dict[str, Any]:
        """Does the handshake and returns the InitializeResult."""
        client = {"name": "tests", "version": "1"}
        reply = self.request("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": client})
        self.notify("notifications/initialized")
        result: Dict[str, Any] = reply["result"]
        return result

    # -- the end --

    def wait(self, timeout: float = PATIENCE_SECONDS) -> int:
        """The exit status, once the process has ended and its output is read."""
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the server still runs after {timeout:.1f} s; {self._stderr_tail()}") from None
        for reader in self._readers:
            reader.join(PATIENCE_SECONDS)
        return status

    def run(self, data: bytes, timeout: float = PATIENCE_SECONDS) -> List[Dict[str, Any]]:
        """Feeds `data`, ends the input, waits for status 0 and returns all messages of the whole run."""
        self.send_bytes(data)
        self.close_stdin()
        status = self.wait(timeout)
        if status != 0:
            raise AssertionError(f"exit status {status}; {self._stderr_tail()}")
        return self.messages()

    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process.poll() is None

    def signal(self, number: int) -> None:
        """Sends a signal to the process."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Ends the process if it runs, and closes the pipes."""
        if self.is_running():
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE_SECONDS)
        for reader in self._readers:
            reader.join(PATIENCE_SECONDS)
        for pipe in (self._stdin, self._stdout, self._stderr):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:
                pass

    def messages(self) -> List[Dict[str, Any]]:
        """All that was ever written to stdout, taken or not; AssertionError unless it is whole lines of ASCII JSON."""
        data = bytes(self.stdout)
        if data and not data.endswith(b"\n"):
            raise AssertionError(f"stdout ends in half a line: {data[-80:]!r}")
        return [_parse(line) for line in data.split(b"\n")[:-1]]

    def resident_kib(self) -> int:
        """Resident memory of the process in KiB (Linux)."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))

    # -- inside --

    def start_reading(self) -> None:
        """Starts to read stdout."""
        self._start_reader(self._read_stdout)

    def wait_for_output(self) -> None:
        """Returns when there is something to read on stdout, which is left unread."""
        assert self._stdout is not None
        if not select.select([self._stdout], [], [], PATIENCE_SECONDS)[0]:
            raise AssertionError(f"nothing was written; {self._stderr_tail()}")

    def stop_listening(self) -> None:
        """Closes the reading end of stdout (for a process made with read_stdout=False)."""
        assert self._stdout is not None
        self._stdout.close()

    def _start_reader(self, work: Callable[[], None]) -> None:
        reader = threading.Thread(target=work, daemon=True)
        self._readers.append(reader)
        reader.start()

    def _read_stdout(self) -> None:
        assert self._stdout is not None
        pending = bytearray()
        while True:
            data = self._stdout.read(1 << 18)
            if not data:
                return
            self.stdout += data
            pending += data
            if b"\n" in data:
                *lines, rest = bytes(pending).split(b"\n")
                pending = bytearray(rest)
                for line in lines:
                    self._inbox.put(line)

    def _read_stderr(self) -> None:
        assert self._stderr is not None
        while True:
            data = self._stderr.read(65536)
            if not data:
                return
            self.stderr += data

    def _next(self, timeout: float) -> Dict[str, Any]:
        try:
            return _parse(self._inbox.get(timeout=timeout))
        except queue.Empty:
            raise AssertionError(f"no message within {timeout:.1f} s; {self._stderr_tail()}") from None

    def _stderr_tail(self) -> str:
        return f"stderr: {bytes(self.stderr[-500:])!r}"


def _message(method: str, params: Any, **more: Any) -> Dict[str, Any]:
    """A JSON-RPC message; without params when they are None."""
    message = {"jsonrpc": "2.0", **more, "method": method}
    if params is not None:
        message["params"] = params
    return message


def _parse(line: bytes) -> Dict[str, Any]:
    """One line of the server's stdout; AssertionError unless it is a JSON object in ASCII."""
    try:
        message = json.loads(line.decode("ascii"))
    except ValueError:
        raise AssertionError(f"no line of ASCII JSON: {line[:200]!r}") from None
    if b"\r" in line or not isinstance(message, dict):
        raise AssertionError(f"no JSON-RPC message: {line[:200]!r}")
    return message


def _is_reply(message: Mapping[str, Any], request_id: Any) -> bool:
    """Whether this answers the request: type and value of the id are equal, and it has no method."""
    found = message.get("id")
    return "method" not in message and "id" in message and type(found) is type(request_id) and found == request_id
