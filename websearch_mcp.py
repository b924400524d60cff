#!/usr/bin/env python3
"""MCP over stdio: the frame around websearch.py. It knows JSON-RPC, ids and threads, and no tool, schema or provider.

    stdin line -> Server.receive -> initialize, ping, tools/list, server/discover: answered by the reading thread
                                 -> tools/call: Workers -> websearch.call_tool -> Output: one whole line on stdout

Five revisions are spoken: four with a handshake, and 2026-07-28, where each request says in `_meta` which revision it
means; in any mixture. The reading thread never waits for a call. Every request with a valid id is answered exactly
once, unless it was cancelled. No input ends the process; the end of stdin, a closed stdout or a signal do, status 0.

Python compiles a script anew at every start and keeps its syntax tree: what knows no protocol stands in websearch.py.
"""

from __future__ import annotations

import _thread
import gc
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would take a tenth of the start
    from typing import Any, Callable, Dict, NoReturn, Optional

    JsonObject = Dict[str, Any]

gc.disable()  # the import makes no garbage; looking for some takes a tenth of the start
try:
    if __name__ == "__main__" and (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # `python3 -I` or `-P` leaves it out
        import websearch

        del sys.path[0]
    else:
        import websearch
except ModuleNotFoundError as error:
    if __name__ != "__main__" or error.name != "websearch":
        raise
    sys.exit("websearch.py must lie beside websearch_mcp.py")

gc.enable()

# ---- Limits and protocol constants -----------------------------------------------

MAX_ECHO_CHARS = 80  # of a name made up by the client, in an error message
MAX_PROGRESS_CHARS = 200
PROGRESS_INTERVAL_SECONDS = 0.25
MIN_CALL_SECONDS = 1.0  # what is left to a call that has waited long in the queue
END_GRACE_SECONDS = 1.0  # for calls that still run when the input ends
END_LIMIT_SECONDS = 1.8  # clients kill after 2 s
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


def parse_line(line: Optional[bytearray]) -> Any:
    """The JSON value of a line; RpcError for what is none."""
    if line is None:
        raise RpcError(PARSE_ERROR, f"Parse error: the line is longer than {websearch.MAX_LINE_BYTES} bytes")
    try:
        return websearch.parse_wire_json(line)
    except ValueError:
        raise RpcError(PARSE_ERROR, "Parse error: the line is not JSON in UTF-8, or is nested too deep") from None


def reply_line(request_id: object, member: str, value: JsonObject) -> str:
    """A whole reply; `member` is "result" or "error". The id goes back exactly as it came."""
    return f'{{"jsonrpc":"2.0","id":{websearch.ascii_json(request_id)},"{member}":{websearch.wire_json(value)}}}'


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


class Output(websearch.LineWriter):
    """stdout: nothing of a request follows its answer, nor what is sent once its cancellation has been handled."""

    def answer(self, request: Request, line: str) -> None:
        """Writes the answer of a request that is still open, and closes it."""
        with self.lock:
            if request.is_open:
                request.is_open = False
                self.write(line)

    def report(self, request: Request, message: str) -> None:
        """Writes a progress notification for an open request, unless the last one was just before."""
        now = time.monotonic()
        with self.lock:
            if request.is_open and now >= request.progress_at:
                request.progress += 1
                request.progress_at = now + PROGRESS_INTERVAL_SECONDS
                params = {"progressToken": request.meta["progressToken"], "progress": request.progress,
                          "message": websearch.one_line(message, MAX_PROGRESS_CHARS)}
                self.write(websearch.wire_json({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))


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
        self._workers = websearch.Workers(self._run)
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
            websearch.log_defect(error)
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

        threading.excepthook = lambda caught: websearch.log_defect(caught.exc_value)
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
            websearch.log_defect(error)
            failure = websearch.WebError(websearch.WEB_INTERNAL_ERROR, "The call met a defect of this program.")
            line = request.result_line(websearch.error_result(failure))
        self._output.answer(request, line)
        websearch.return_spare_memory(websearch.CALL_MEMORY_BYTES)

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


# ---- The process -------------------------------------------------------------------------
# File descriptors, signals, the loop that reads, and the command line.


def _exit_after(seconds: float) -> None:
    time.sleep(seconds)
    os._exit(0)


def serve(make_web: Callable[[], Any], call_tool: Callable[..., JsonObject]) -> NoReturn:
    """Serves stdin and stdout until the input ends, stdout is closed or a signal comes; that ends the process."""
    output = Output(websearch.claim_stdout())
    websearch.end_on_signals(output)
    websearch.return_spare_memory(websearch.START_MEMORY_BYTES)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    server = Server(output, make_web, call_tool)
    for line in websearch.read_lines(0):
        if line is None or (line and not line.isspace()):
            server.receive(line)
    server.finish()


def main() -> int:
    """Serves. With --version or --help prints that and returns 0, with anything else returns 2."""
    status = websearch.answer_server_options(sys.argv[1:])
    if status is None:
        serve(websearch.WebSearch.from_environment, websearch.call_tool)
    return status


if __name__ == "__main__":
    sys.exit(main())
