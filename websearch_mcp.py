#!/usr/bin/env python3
"""MCP over stdio: the frame around websearch.py. It knows JSON-RPC, ids and threads, and no tool, schema or provider.

    stdin line -> Server.receive -> initialize, ping, tools/list, server/discover: answered by the reading thread
                                 -> tools/call: Workers -> websearch.call_tool -> Output: one whole line on stdout

Five revisions are spoken: four with a handshake, and 2026-07-28, where each request says in `_meta` which revision it
means; in any mixture. The reading thread never waits for a call. Every request with a valid id is answered exactly
once, unless it was cancelled. No input ends the process; the end of stdin, a closed stdout or a signal do, status 0.

Python compiles a script anew at every start, and clients drop a server that starts slowly: this file stays small.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes enums, a millisecond of the start
import _thread
import gc
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would take a tenth of the start
    from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional, Set

    JsonObject = Dict[str, Any]

gc.disable()  # the import makes no garbage; looking for some takes a tenth of the start
if __name__ == "__main__" and (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # `python3 -I` or `-P` leaves it out
    import websearch

    del sys.path[0]
else:
    import websearch

gc.enable()

# ---- Limits and protocol constants -----------------------------------------------

MAX_LINE_BYTES = 64 * 1024 * 1024  # clients send kilobytes; this only bounds memory
MAX_INTEGER_DIGITS = 4300  # the limit of int() itself on current Pythons; older ones would compute for hours
MAX_ECHO_CHARS = 80  # of a name made up by the client, in an error message
MAX_PROGRESS_CHARS = 200
READ_BYTES = 64 * 1024  # what a pipe holds
MAX_THREADS = 64
MAX_QUEUED_CALLS = 192  # no session comes near; past that a client is told to wait
PROGRESS_INTERVAL_SECONDS = 0.25
MIN_CALL_SECONDS = 1.0  # what is left to a call that has waited long in the queue
END_GRACE_SECONDS = 1.0  # for calls that still run when the input ends
END_POLL_SECONDS = 0.01
END_LIMIT_SECONDS = 1.8  # clients kill after 2 s
LAST_LINE_SECONDS = 0.3  # for the line that is being written when a signal comes
SWITCH_INTERVAL_SECONDS = 0.001  # a fifth of Python's: the reading thread gets its turn while pages are parsed

HANDSHAKE_REVISIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")  # the first is offered for unknown ones
STATELESS_REVISION = "2026-07-28"
BATCH_REVISION = "2025-03-26"  # the only one that has batches
META_VERSION = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META_SERVER_INFO = "io.modelcontextprotocol/serverInfo"
CACHE_HINT = {"ttlMs": 3_600_000, "cacheScope": "public"}
SERVER_INFO = {"name": websearch.SERVER_NAME, "title": websearch.SERVER_TITLE, "version": websearch.VERSION}

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
UNSUPPORTED_VERSION = -32022


class RpcError(Exception):
    """A protocol fault, answered by `error`: code, one sentence, perhaps data. Failures of a call are results."""

    def __init__(self, code: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.body = {"code": code, "message": message, **more}


# ---- Lines and JSON ----------------------------------------------------------------
# Bytes are split at "\n" and nowhere else: U+2028 and its like are ordinary characters
# of a string. What goes out is ASCII, one line a message.


def read_lines(descriptor: int) -> Iterator[Optional[bytearray]]:
    """The lines of a descriptor as bytearrays, the last one also without its "\\n"; None for one that is too long.

    A line of more than MAX_LINE_BYTES is read away, never held.
    """
    line, size, chunk = bytearray(), 0, b"\n"
    while chunk:
        try:
            chunk = os.read(descriptor, READ_BYTES)
        except OSError:
            chunk = b""
        for index, part in enumerate((chunk or b"\n").split(b"\n")):
            if index:
                yield line if size <= MAX_LINE_BYTES else None
                line, size = bytearray(), 0
            size += len(part)
            if size <= MAX_LINE_BYTES:
                line += part
            else:
                line.clear()


def _integer(digits: str) -> int:
    if len(digits) > MAX_INTEGER_DIGITS:
        raise ValueError
    return int(digits)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)  # json takes NaN and Infinity, which are no JSON


class _Decoding:
    """How `_json` is to read: the attributes of a json.JSONDecoder that it looks at."""

    strict, object_hook, object_pairs_hook, memo = True, None, None, None
    parse_float, parse_int, parse_constant = float, staticmethod(_integer), staticmethod(_refuse_constant)


try:
    # The half of `json` that is written in C, as long as a message has no fault: the other half imports `re`, which
    # takes a third of a start and a megabyte for error texts and indentation that nobody here sees.
    from _json import encode_basestring_ascii, make_encoder, make_scanner

    _scan = make_scanner(_Decoding)
    _encode = make_encoder(None, None, encode_basestring_ascii, None, ":", ",", False, False, False)
except ImportError:
    import json

    _scan = json.JSONDecoder(parse_int=_integer, parse_constant=_refuse_constant).scan_once
    _encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).iterencode

_ESCAPES = websearch.Pattern(r"(\\\\|\\ud[89ab]..\\ud[c-f]..)|\\ud[89a-f]..")  # a backslash or a pair; a lone surrogate


def parse_line(line: Optional[bytearray]) -> Any:
    """The JSON value of a line; RpcError for what is none, whatever `json` raises for it."""
    if line is None:
        raise RpcError(PARSE_ERROR, f"Parse error: the line is longer than {MAX_LINE_BYTES} bytes")
    try:
        text = line.decode("utf-8").lstrip("\ufeff").strip(" \t\r\n")
        value, end = _scan(text, 0)
    except (ValueError, RecursionError, MemoryError, StopIteration, SystemError):  # the last from 3.10, for a fault
        end = -1
    if end < 0 or end != len(text):
        raise RpcError(PARSE_ERROR, "Parse error: the line is not JSON in UTF-8")
    return value


def to_json(value: Any) -> str:
    """Compact ASCII JSON, lone surrogates replaced: strict readers (serde_json) refuse a whole message for one."""
    text = "".join(_encode(value, 0))
    return _ESCAPES.sub(lambda found: found.group(1) or "\\ufffd", text) if "\\ud" in text else text


def reply_line(request_id: object, member: str, value: JsonObject) -> str:
    """A whole reply; `member` is "result" or "error". The id goes back exactly as it came."""
    return f'{{"jsonrpc":"2.0","id":{to_json(request_id)},"{member}":{to_json(value)}}}'


def shorten(name: str) -> str:
    """`name` as an error message may repeat it."""
    return websearch.redact(websearch.one_line(name[: 2 * MAX_ECHO_CHARS], MAX_ECHO_CHARS))


def is_id(value: object) -> bool:
    """Whether `value` is an id or token as MCP has them: a string or an integer; no null, no fraction, no boolean."""
    return type(value) is int or type(value) is str


# ---- Requests, output, workers -------------------------------------------------------
# What a request may still have written is decided by Output, under its lock.


class Request:
    """A well-formed request. It `is_open` until it is answered or cancelled; nothing is written for it afterwards."""

    def __init__(self, request_id: object, params: JsonObject, meta: JsonObject) -> None:
        self.id, self.params, self.meta = request_id, params, meta
        self.is_stateless = META_VERSION in meta
        self.received_at = time.monotonic()
        self.deadline: Optional[websearch.Deadline] = None
        self.is_open = True
        self.progress = 0
        self.progress_at = 0.0

    def cancel(self) -> None:
        """Ends the request without an answer; its sockets are shut at once."""
        self.is_open = False  # before the deadline is looked at: see Server._call_tool
        if self.deadline is not None:
            self.deadline.cancel()

    def result_line(self, result: JsonObject) -> str:
        """The whole reply; the stateless revision wants some more in each result."""
        if self.is_stateless:
            result = {"resultType": "complete", **result, "_meta": {META_SERVER_INFO: SERVER_INFO}}
        return reply_line(self.id, "result", result)


class Output:
    """The private end of stdout: whole lines, one after the other.

    Nothing of a request follows its answer, nor what is sent once its cancellation has been handled. A client that
    stops reading blocks the writers and by them the reader, so memory stays bounded; one that is gone ends the process.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = _thread.allocate_lock()
        self._is_ending = False

    def send(self, line: str) -> None:
        """Writes one line."""
        with self._lock:
            self._write(line)

    def answer(self, request: Request, line: str) -> None:
        """Writes the answer of a request that is still open, and closes it."""
        with self._lock:
            if request.is_open:
                request.is_open = False
                self._write(line)

    def report(self, request: Request, message: str) -> None:
        """Writes a progress notification for an open request, unless the last one was just before."""
        now = time.monotonic()
        with self._lock:
            if request.is_open and now >= request.progress_at:
                request.progress += 1
                request.progress_at = now + PROGRESS_INTERVAL_SECONDS
                params = {"progressToken": request.meta["progressToken"], "progress": request.progress,
                          "message": websearch.one_line(message, MAX_PROGRESS_CHARS)}
                self._write(to_json({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))

    def end(self) -> NoReturn:
        """Ends the process with status 0, if possible behind a whole line.

        Not by returning: daemon threads that hold stdout would abort the interpreter's shutdown.
        """
        self._is_ending = True  # a lock knows no order: those who wait for it too must not begin another line
        self._lock.acquire(timeout=LAST_LINE_SECONDS)
        os._exit(0)

    def _write(self, line: str) -> None:
        data = memoryview(b"" if self._is_ending else line.encode("ascii") + b"\n")
        try:
            while data:
                data = data[os.write(self._descriptor, data):]
        except OSError:
            os._exit(0)


class Workers:
    """Daemon threads, one for each request up to MAX_THREADS, that give them to `run`; behind them a queue."""

    def __init__(self, run: Callable[[Request], None]) -> None:
        self._run = run
        self._lock = _thread.allocate_lock()
        self._queue: List[Request] = []
        self._requests: Set[Request] = set()  # queued or running, and not cancelled
        self._threads = 0

    def submit(self, request: Request) -> bool:
        """Whether the request was taken; not when threads and queue are full."""
        with self._lock:
            if not self._start_thread(request):
                if not self._threads or len(self._queue) >= MAX_QUEUED_CALLS:
                    return False
                self._queue.append(request)
            self._requests.add(request)
            return True

    def cancel(self, request_id: object) -> None:
        """Cancels what runs or waits under this id: 5 is not "5"."""
        with self._lock:
            found = [request for request in self._requests if request.id == request_id]
            self._requests.difference_update(found)
            self._queue[:] = [request for request in self._queue if request.id != request_id]
        for request in found:
            request.cancel()

    def wait(self, seconds: float) -> List[Request]:
        """The requests that are not over after `seconds`; returns as soon as there are none."""
        end = time.monotonic() + seconds
        while self._requests and time.monotonic() < end:
            time.sleep(END_POLL_SECONDS)
        with self._lock:
            return list(self._requests)

    def _start_thread(self, request: Request) -> bool:
        if self._threads < MAX_THREADS:
            try:
                _thread.start_new_thread(self._work, (request,))  # a Thread would be waited for until it has begun
                self._threads += 1
                return True
            except RuntimeError:  # the system has no more: those that are there must do
                pass
        return False

    def _work(self, request: Optional[Request]) -> None:
        """The life of a thread: its request, and then those that wait."""
        while request is not None:
            self._run(request)
            with self._lock:
                self._requests.discard(request)
                request = self._queue.pop(0) if self._queue else None
                self._threads -= request is None


# ---- The server ------------------------------------------------------------------------
# Two tables of methods, one for each kind of revision. A method gives its result, or None
# when a worker will answer; RpcError is a fault of the request.


class Server:
    """The protocol. `receive` takes one line after another, from one thread.

    `make_web` and `call_tool` are websearch's; tests pass others.
    """

    def __init__(self, output: Output, make_web: Callable[[], Any], call_tool: Callable[..., JsonObject]) -> None:
        self._output, self._make_web, self._call = output, make_web, call_tool
        self._web: Any = None
        self._web_lock = _thread.allocate_lock()
        self._workers = Workers(self._run)
        self._revision = ""  # that of the last handshake
        self._stateless: Dict[str, Callable[[Request], Optional[JsonObject]]] = {
            "server/discover": self._discover, "tools/list": self._list_tools, "tools/call": self._start_call,
        }
        self._handshake = {**self._stateless, "initialize": self._initialize, "ping": lambda request: {}}

    def receive(self, line: Optional[bytearray]) -> None:
        """Handles one line; whatever it holds is answered as JSON-RPC asks, and nothing is raised."""
        try:
            message = parse_line(line)
        except RpcError as error:
            self._output.send(reply_line(None, "error", error.body))
            return
        is_batch = isinstance(message, list) and bool(message) and self._revision == BATCH_REVISION
        for item in message if is_batch else (message,):
            self._receive(item, is_batch)

    def finish(self) -> NoReturn:
        """The end of input: calls that end within END_GRACE_SECONDS are answered, the others are aborted."""
        _thread.start_new_thread(_exit_after, (END_LIMIT_SECONDS,))  # should the client read no more
        for request in self._workers.wait(END_GRACE_SECONDS):
            error = websearch.WebError(websearch.WEB_ABORTED, "The server's input ended before the call did.")
            self._output.answer(request, request.result_line(websearch.error_result(error)))
        self._output.end()

    def _receive(self, message: Any, is_in_batch: bool) -> None:
        message_id = message.get("id") if isinstance(message, dict) else None
        request_id = message_id if is_id(message_id) else None
        try:
            self._dispatch(request_id, message, is_in_batch)
        except RpcError as error:
            self._output.send(reply_line(request_id, "error", error.body))
        except Exception as error:
            log_defect(error)
            if request_id is not None:
                self._output.send(reply_line(request_id, "error", RpcError(INTERNAL_ERROR, "Internal error").body))

    def _dispatch(self, request_id: object, message: Any, is_in_batch: bool) -> None:
        if not isinstance(message, dict):
            raise RpcError(INVALID_REQUEST, "Invalid request: not a JSON object")
        method, params = message.get("method"), message.get("params", {})
        if "method" not in message and ("result" in message or "error" in message):
            return  # an answer, but nothing was asked
        if isinstance(method, str) and "id" not in message:
            self._notice(method, params)
            return
        if request_id is None or not isinstance(method, str) or message.get("jsonrpc") != "2.0":
            raise RpcError(INVALID_REQUEST, "Invalid request: jsonrpc, id or method is missing or of a wrong kind")
        if is_in_batch and method == "initialize":
            raise RpcError(INVALID_REQUEST, "Invalid request: initialize must not be part of a batch")
        if not isinstance(params, dict):
            raise RpcError(INVALID_PARAMS, "Invalid params: params must be an object")
        meta = params.get("_meta")
        request = Request(request_id, params, meta if isinstance(meta, dict) else {})
        if request.is_stateless:
            check_stateless(request.meta)
        handler = (self._stateless if request.is_stateless else self._handshake).get(method)
        if handler is None:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {shorten(method)}")
        result = handler(request)
        if result is not None:
            self._output.send(request.result_line(result))

    def _notice(self, method: str, params: Any) -> None:
        """Acts on a notification: only a cancellation means anything here."""
        if method == "notifications/cancelled" and isinstance(params, dict) and is_id(params.get("requestId")):
            self._workers.cancel(params["requestId"])

    def _initialize(self, request: Request) -> JsonObject:
        wanted = request.params.get("protocolVersion")
        if not isinstance(wanted, str):
            raise RpcError(INVALID_PARAMS, "Invalid params: protocolVersion must be a string")
        self._revision = wanted if wanted in HANDSHAKE_REVISIONS else HANDSHAKE_REVISIONS[0]
        return {"protocolVersion": self._revision, "capabilities": {"tools": {}}, "serverInfo": SERVER_INFO,
                "instructions": websearch.INSTRUCTIONS}

    def _discover(self, request: Request) -> JsonObject:
        if not request.is_stateless:  # clients that probe so fall back to initialize
            raise RpcError(INVALID_PARAMS, f"Invalid params: server/discover needs _meta with {META_VERSION}")
        return {"supportedVersions": [STATELESS_REVISION], "capabilities": {"tools": {}},
                "instructions": websearch.INSTRUCTIONS, **CACHE_HINT}

    def _list_tools(self, request: Request) -> JsonObject:
        if request.params.get("cursor") is not None:
            raise RpcError(INVALID_PARAMS, "Invalid params: unknown cursor; all tools are on one page")
        return {"tools": websearch.tool_declarations(), **(CACHE_HINT if request.is_stateless else {})}

    def _start_call(self, request: Request) -> Optional[JsonObject]:
        name, arguments = request.params.get("name"), request.params.get("arguments")
        if not isinstance(name, str) or name not in websearch.TOOLS:
            unknown = shorten(name) if isinstance(name, str) else "name must be a string"
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {unknown}; there are {', '.join(websearch.TOOLS)}")
        if arguments is not None and not isinstance(arguments, dict):
            raise RpcError(INVALID_PARAMS, "Invalid params: arguments must be an object")
        import threading  # by this thread, which it then takes for the main one

        threading.excepthook = lambda caught: log_defect(caught.exc_value)
        if not self._workers.submit(request):
            return websearch.error_result(websearch.WebError(websearch.WEB_BUSY, "Too many calls are under way."))
        return None

    def _run(self, request: Request) -> None:
        """Runs a call, in a worker, and sends its answer. A defect becomes an answer too."""
        try:
            line = request.result_line(self._call_tool(request))
        except websearch.WebError as error:
            line = request.result_line(websearch.error_result(error))
        except BaseException as error:
            log_defect(error)
            failure = websearch.WebError(websearch.WEB_INTERNAL_ERROR, "The call met a defect of this program.")
            line = request.result_line(websearch.error_result(failure))
        self._output.answer(request, line)

    def _call_tool(self, request: Request) -> JsonObject:
        """The tool's result. The time that a call waited in the queue counts."""
        with self._web_lock:
            self._web = self._web or self._make_web()
        waited = time.monotonic() - request.received_at
        wants_progress = is_id(request.meta.get("progressToken"))
        request.deadline = websearch.Deadline(
            max(MIN_CALL_SECONDS, self._web.deadline_seconds - waited),
            (lambda message: self._output.report(request, message)) if wants_progress else None,
        )
        if not request.is_open:  # cancelled while there was no deadline to cancel
            return {}
        return self._call(self._web, request.params["name"], request.params.get("arguments") or {}, request.deadline)


def check_stateless(meta: JsonObject) -> None:
    """Returns when `_meta` has what a stateless request needs, else raises RpcError."""
    version = meta[META_VERSION]
    if not isinstance(version, str):
        raise RpcError(INVALID_PARAMS, f"Invalid params: {META_VERSION} must be a string")
    if version != STATELESS_REVISION:
        data = {"supported": [STATELESS_REVISION, *HANDSHAKE_REVISIONS], "requested": version[:MAX_ECHO_CHARS]}
        raise RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", data=data)
    if not isinstance(meta.get(META_CAPABILITIES), dict):
        raise RpcError(INVALID_PARAMS, f"Invalid params: {META_CAPABILITIES} must be an object")


def log_defect(error: Any) -> None:
    """One line on stderr: the exception's type and place. Its text may hold what strangers sent, or a key."""
    trace, place = getattr(error, "__traceback__", None), ""
    while trace is not None:
        place = f" in {trace.tb_frame.f_code.co_name}, line {trace.tb_lineno}"
        trace = trace.tb_next
    websearch.log("error", f"defect: {type(error).__name__}{place}")


# ---- The process -------------------------------------------------------------------------
# File descriptors, signals, the loop that reads, and the command line.


def _claim_stdout() -> int:
    """A private duplicate of fd 1, which from now on leads to stderr: no stray print gets between the messages."""
    try:
        os.fstat(2)
    except OSError:
        os.open(os.devnull, os.O_WRONLY)  # becomes fd 2, the lowest that is free, before a socket does
    try:
        private = os.dup(1)
        os.set_blocking(private, True)  # a client may hand over pipes that its own event loop has set otherwise
        os.set_blocking(0, True)
        os.dup2(2, 1)
    except OSError:
        sys.exit(f"{websearch.SERVER_NAME}: stdin or stdout is closed")
    sys.stdout = sys.stderr
    return private


def _exit_after(seconds: float) -> None:
    time.sleep(seconds)
    os._exit(0)


def _end_on_signals(output: Output) -> None:
    """SIGTERM, SIGINT and SIGHUP end the process at once.

    By a pipe and a thread that reads it: a handler runs in the main thread, and not before its next step, which is
    never when it has just gone to read a silent stdin. The bare thread is not waited for by anyone.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    _signal.set_wakeup_fd(writer)
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        if hasattr(_signal, name):
            _signal.signal(getattr(_signal, name), lambda number, frame: None)  # else the system's own way to end

    def wait_for_signal() -> None:
        os.read(reader, 1)
        output.end()

    _thread.start_new_thread(wait_for_signal, ())


def serve(make_web: Callable[[], Any], call_tool: Callable[..., JsonObject]) -> NoReturn:
    """Serves stdin and stdout until the input ends, stdout is closed or a signal comes; that ends the process."""
    output = Output(_claim_stdout())

    _end_on_signals(output)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    server = Server(output, make_web, call_tool)
    for line in read_lines(0):
        if line is None or (line and not line.isspace()):
            server.receive(line)
    server.finish()


HELP = f"""{websearch.SERVER_NAME} {websearch.VERSION}: an MCP server on stdin and stdout; MCP clients start it.

  python3 websearch.py install codex    configure a client (or claude, …)
  python3 websearch.py doctor           which settings and providers are in use
  python3 websearch.py search QUERY     the same tools on the command line

Options: --version, --help. Settings are environment variables; see README.md.
"""


def main() -> int:
    """Serves. With --version or --help prints that and returns 0, with anything else returns 2."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print(websearch.VERSION)
        return 0
    if arguments:
        is_help = arguments in (["--help"], ["-h"])
        print(HELP, end="", file=sys.stdout if is_help else sys.stderr)
        return 0 if is_help else 2
    if os.isatty(0):
        print(HELP + "\nWaiting for JSON-RPC messages, one a line; end the input (Ctrl-D) to leave.", file=sys.stderr)
    serve(websearch.WebSearch.from_environment, websearch.call_tool)


if __name__ == "__main__":
    sys.exit(main())
