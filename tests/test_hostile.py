"""Hostile networks against the real process: each scenario ends in time, with its code or a flagged result, and memory stays.

The calls of a class are in flight together, so that a class takes as long as its slowest scenario. After each class the
process must still answer, stdout must hold whole lines of JSON and nothing else, and no canary may have been written.
"""
from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
import zlib
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple
from urllib.parse import quote

import websearch
from tests.support import (
    Drip,
    Hold,
    Loopback,
    McpProcess,
    Pause,
    RawLoopback,
    RecordedRequest,
    Repeat,
    Reply,
    Reset,
    closed_port,
    fixture,
    fixture_json,
    loopback_settings,
    wait_until,
)
from tests.test_urls import Resolver, rows
from websearch import Deadline, Transport, WebError

CANARY = "canary-Key+4711/x="
CANARY_FORMS = tuple({CANARY, quote(CANARY, safe=""), base64.b64encode(CANARY.encode()).decode().rstrip("=")[:16],
                      "canary-Key", "4711/x"})
HAS_PROC = os.path.exists(f"/proc/{os.getpid()}/status")
MAX_GROWTH_KIB = 100 * 1024

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"
TO_THE_END = OK + b"Connection: close\r\n\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
PAGE = b"<title>T</title><main><p>" + b"the beginning of the page " * 100
FOUND = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: "
FAILED, TIMEOUT = websearch.WEB_FETCH_FAILED, websearch.WEB_FETCH_TIMEOUT
BLOCKED = websearch.WEB_REDIRECT_BLOCKED


def case(name: str) -> bytes:
    return fixture("cases/" + name)


def sized(body: bytes, fields: bytes = b"", length: Optional[int] = None) -> bytes:
    return OK + fields + b"Content-Length: %d\r\n\r\n" % (len(body) if length is None else length) + body


def error_of(result: Mapping[str, Any]) -> Dict[str, Any]:
    assert result["isError"], result
    error: Dict[str, Any] = json.loads(result["content"][0]["text"])["error"]
    return error


def process_number(pid: int, name: str) -> int:
    """A number of /proc/PID/status: VmRSS and VmHWM in KiB, Threads."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name + ":"))


class MemoryWatch(threading.Thread):
    """The highest resident memory of a process, looked at every 5 ms: VmHWM is not kept up to date everywhere."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.is_over = pid, False
        self.base_kib = self.peak_kib = process_number(pid, "VmRSS")
        self.start()

    def run(self) -> None:
        try:
            while not self.is_over:
                self.peak_kib = max(self.peak_kib, process_number(self.pid, "VmRSS"))
                time.sleep(0.005)
        except (OSError, StopIteration):
            return  # the process has ended

    @property
    def growth_kib(self) -> int:
        """How far memory has risen above where it was, at most."""
        try:
            peak = process_number(self.pid, "VmHWM")
        except StopIteration:
            peak = 0
        return max(self.peak_kib, peak) - self.base_kib


def shut(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


class HostileCase(unittest.TestCase):
    """Checks what holds after every scenario."""

    def assert_serves_and_is_silent(self, server: McpProcess, replies: int = -1) -> None:
        """The process answers, ends well, wrote JSON only, one reply a request, and no canary."""
        self.assertEqual(server.request("ping")["result"], {})
        server.close_stdin()
        self.assertEqual(server.wait(), 0)
        answered = [message["id"] for message in server.messages() if "id" in message]
        self.assertEqual(len(answered), len(set(answered)))
        if replies >= 0:
            self.assertEqual(len(answered), replies + 1)
        written = (bytes(server.stdout) + bytes(server.stderr)).decode("utf-8")
        for form in CANARY_FORMS:
            self.assertNotIn(form, written)
        self.assertNotIn("Traceback", written)
        self.assertNotIn("defect", written)


class Row(NamedTuple):
    """A scenario: what the server does, the code it must end with ("" for a result), a word of the message or of the notes."""

    steps: Sequence[Any]
    code: str = ""
    word: str = ""
    whole: bool = False  # the result is neither truncated nor incomplete


def gzipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


INCOMPLETE = "incomplete"
ROWS: Dict[str, Row] = {
    # slow
    "silent": Row([Hold()], TIMEOUT, "time ran out"),
    "drip_of_the_status_line": Row([Drip(OK, 9)], TIMEOUT, "time ran out"),
    "stall_in_the_head": Row([OK, Hold()], TIMEOUT, "time ran out"),
    "stall_in_a_short_body": Row([sized(b"<p>short", length=99), Hold()], "", INCOMPLETE),
    "stall_in_a_long_body": Row([sized(PAGE, length=9999), Hold()], "", INCOMPLETE),
    "drip_of_a_short_body": Row([TO_THE_END, Drip(PAGE, 50)], "", INCOMPLETE),
    "drip_of_a_long_body": Row([TO_THE_END, PAGE, Drip(PAGE, 50)], "", INCOMPLETE),
    "drip_of_chunks": Row([CHUNKED, Repeat(b"1\r\nx\r\n", 0.05)], "", INCOMPLETE),
    "drip_of_a_chunk_size": Row([CHUNKED, Repeat(b"0", 0.05)], TIMEOUT, "time ran out"),
    "drip_of_header_lines": Row([OK, Repeat(b"X-A: b\r\n", 0.05)], TIMEOUT, "time ran out"),
    # endless heads
    "endless_status_line": Row([b"HTTP/1.1 200 ", Repeat(b"x" * 9999)], FAILED, "status line"),
    "endless_header_line": Row([OK + b"X-A: ", Repeat(b"x" * 9999)], FAILED, "header block"),
    "endless_header_lines": Row([OK, Repeat(b"X-A: b\r\n" * 50)], FAILED, "200 header lines"),
    "header_block_of_90_kb": Row([OK + b"".join(b"X-%d: %s\r\n" % (n, b"x" * 900) for n in range(100)), b"\r\n"], FAILED,
                                 "header block"),
    "interim_flood": Row([Repeat(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 50)], FAILED, "interim"),
    "interim_flood_of_headers": Row([Repeat(b"HTTP/1.1 100 Continue\r\n" + b"X-A: b\r\n" * 190 + b"\r\n")], FAILED, "interim"),
    "eleven_interim_answers": Row([b"HTTP/1.1 103 Early Hints\r\n\r\n" * 11 + sized(PAGE)], FAILED, "interim"),
    "ten_interim_answers": Row([b"HTTP/1.1 100 Continue\r\n\r\n" * 5 + b"HTTP/1.1 103 E\r\n\r\n" * 5 + sized(PAGE)], whole=True),
    "switch_of_protocols": Row([b"HTTP/1.1 101 Switching Protocols\r\n\r\n"], FAILED, "protocol"),
    # no HTTP
    "ssh": Row([b"SSH-2.0-OpenSSH_9.9\r\n"], FAILED, "does not speak HTTP"),
    "http_0_9": Row([PAGE], FAILED, "does not speak HTTP"),
    "http_2": Row([b"HTTP/2 200\r\n\r\n"], FAILED, "does not speak HTTP"),
    "http_1_7": Row([b"HTTP/1.7 200 OK\r\n\r\n"], FAILED, "status line"),
    "status_of_four_digits": Row([b"HTTP/1.1 2000 OK\r\n\r\n"], FAILED, "status line"),
    "status_in_other_digits": Row(["HTTP/1.1 ２００ OK\r\n\r\n".encode()], FAILED, "status line"),
    "status_zero": Row([b"HTTP/1.1 000 OK\r\n\r\n"], FAILED, "status line"),
    "binary_garbage": Row([bytes(range(256)) * 20], FAILED, "does not speak HTTP"),
    "endless_garbage": Row([Repeat(b"\x00" * 9999)], FAILED, "does not speak HTTP"),
    "tls_on_a_plain_address": Row([b"\x15\x03\x01\x00\x02\x02\x46"], FAILED, "https://"),
    "nothing": Row([b"\r\n"], FAILED, "does not speak HTTP"),
    # ends
    "end_before_the_answer": Row([b""], FAILED, "broke"),
    "reset_before_the_answer": Row([Reset()], FAILED, "broke"),
    "end_in_the_head": Row([OK], FAILED, "broke"),
    "reset_in_a_body": Row([sized(PAGE, length=9999), Pause(0.1), Reset()], "", INCOMPLETE),
    "end_in_a_chunk": Row([CHUNKED + b"fff\r\n" + PAGE], "", INCOMPLETE),
    "end_without_last_chunk": Row([CHUNKED + b"%x\r\n%s\r\n" % (len(PAGE), PAGE)], "", INCOMPLETE),
    # lengths that lie
    "short_of_its_length": Row([sized(PAGE, length=9999)], "", INCOMPLETE),
    "short_of_a_length_of_exabytes": Row([sized(PAGE, length=10 ** 18 - 1)], "", INCOMPLETE),
    "length_of_twenty_digits": Row([sized(PAGE, length=10 ** 19)], FAILED, "Content-Length"),
    "negative_length": Row([sized(PAGE, length=-1)], FAILED, "Content-Length"),
    "signed_length": Row([OK + b"Content-Length: +5\r\n\r\nhello"], FAILED, "Content-Length"),
    "length_in_hex": Row([OK + b"Content-Length: 0x5\r\n\r\nhello"], FAILED, "Content-Length"),
    "two_lengths": Row([sized(PAGE, b"Content-Length: 5\r\n")], FAILED, "Content-Length"),
    "lengths_in_one_field": Row([OK + b"Content-Length: 5, 6\r\n\r\nhello!"], FAILED, "Content-Length"),
    "the_same_length_twice": Row([sized(PAGE, b"Content-Length: %d\r\n" % len(PAGE))], whole=True),
    "length_behind_a_blank": Row([OK + b"Content-Length : 5\r\n\r\nhello, this is not all"], whole=True),
    "more_than_its_length": Row([sized(PAGE) + b"HTTP/1.1 200 OK\r\n\r\nsmuggled"], whole=True),
    "coding_beside_chunked": Row([OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"], FAILED, "transfer coding"),
    "coding_spelled_oddly": Row([OK + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"], FAILED, "transfer coding"),
    "chunked_and_length": Row([OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" %
                               (len(PAGE), PAGE)], whole=True),
    "chunk_size_no_hex": Row([CHUNKED + b"zz\r\n"], FAILED, "chunk"),
    "chunk_size_negative": Row([CHUNKED + b"-1\r\n"], FAILED, "chunk"),
    "chunk_size_with_prefix": Row([CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n"], FAILED, "chunk"),
    "chunk_size_of_16_digits": Row([CHUNKED + b"f" * 16 + b"\r\n"], FAILED, "chunk"),
    "chunk_line_endless": Row([CHUNKED + b"5;", Repeat(b"x" * 999)], FAILED, "chunk"),
    "chunk_longer_than_said": Row([CHUNKED + b"5\r\nhello, world\r\n0\r\n\r\n"], FAILED, "chunk"),
    "trailer_flood": Row([CHUNKED + b"5\r\nhello\r\n0\r\n", Repeat(b"X-A: b\r\n" * 20)], FAILED, "trailer"),
    # codings
    "brotli": Row([sized(b"\x0b\x02\x80", b"Content-Encoding: br\r\n")], FAILED, "coding"),
    "zstd": Row([sized(b"\x28\xb5\x2f\xfd", b"Content-Encoding: zstd\r\n")], FAILED, "coding"),
    "three_codings": Row([sized(gzipped(PAGE), b"Content-Encoding: gzip, gzip, gzip\r\n")], FAILED, "compressed"),
    "gzip_cut": Row([sized(gzipped(os.urandom(4000))[:3000], b"Content-Encoding: gzip\r\n")], "", INCOMPLETE),
    "gzip_damaged": Row([sized(gzipped(PAGE)[:30] + b"\xff" * 90, b"Content-Encoding: gzip\r\n")], "", INCOMPLETE),
    "gzip_and_bytes_behind": Row([sized(gzipped(PAGE) + b"\x00" * 999, b"Content-Encoding: gzip\r\n")], whole=True),
    "plain_that_says_gzip": Row([sized(PAGE, b"Content-Encoding: gzip\r\n")], whole=True),
    "raw_deflate": Row([sized(zlib.compress(PAGE)[2:-4], b"Content-Encoding: deflate\r\n")], whole=True),
    # redirects
    "to_the_metadata_service": Row([FOUND + b"http://169.254.169.254/latest/\r\n\r\n"], BLOCKED, "169.254.169.254"),
    "to_another_loopback_address": Row([FOUND + b"http://127.0.0.2/\r\n\r\n"], BLOCKED, "127.0.0.2"),
    "to_a_short_loopback_address": Row([FOUND + b"http://127.1/\r\n\r\n"], BLOCKED, "127.1"),
    "to_a_mapped_address": Row([FOUND + b"//[::ffff:169.254.169.254]/\r\n\r\n"], BLOCKED, "169.254.169.254"),
    "to_localhost": Row([FOUND + b"http://LOCALHOST:80/\r\n\r\n"], BLOCKED, "localhost"),
    "to_a_file": Row([FOUND + b"file:///etc/passwd\r\n\r\n"], BLOCKED, "file"),
    "to_a_script": Row([FOUND + b"javascript:alert(1)\r\n\r\n"], BLOCKED, "refused"),
    "to_user_info": Row([FOUND + b"http://user:canary-Key@127.0.0.1/\r\n\r\n"], BLOCKED, "user name"),
    "to_a_backslash": Row([FOUND + b"http:\\\\127.0.0.1\\\r\n\r\n"], BLOCKED, "malformed"),
    "to_a_control_character": Row([FOUND + b"/a\x01b\r\n\r\n"], BLOCKED, "malformed"),
    "to_two_places": Row([FOUND + b"/a\r\nLocation: /b\r\n\r\n"], BLOCKED, "several"),
    "in_circles": Row([FOUND + b"/in_circles\r\n\r\n"], BLOCKED, "more than 5"),
    "with_an_endless_body": Row([b"HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\n\r\n", Repeat(b"x" * 999, 0.01)], BLOCKED,
                                "10.0.0.1"),
    "refresh_header": Row([sized(PAGE, b"Refresh: 0;url=http://127.0.0.2/\r\n")], whole=True),
    "status_300": Row([b"HTTP/1.1 300 Many\r\nLocation: http://127.0.0.2/\r\nContent-Length: 5\r\n\r\nhello"], whole=True),
    "status_305": Row([b"HTTP/1.1 305 Use Proxy\r\nLocation: http://127.0.0.2/\r\nContent-Length: 5\r\n\r\nhello"], whole=True),
    # types
    "video_without_end": Row([b"HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\n\r\n", Repeat(b"x" * 999, 0.01)], "", ""),
    "text_of_nul": Row([b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4000\r\n\r\n" + b"\x00" * 4000], "", ""),
}
TIMEOUT_SECONDS = 1.2


class HostileOrigins(HostileCase):
    """Pages of servers that do everything wrong."""

    def test_every_scenario_ends_in_time_with_its_code_or_flagged(self) -> None:
        settings = loopback_settings({"WEBSEARCH_TIMEOUT": str(TIMEOUT_SECONDS), "TAVILY_ENABLED": "false",
                                      "GITHUB_TOKEN": CANARY, "EXA_API_KEY": CANARY})
        with RawLoopback() as origin, McpProcess(settings) as server:
            for name, row in ROWS.items():
                origin.answer("/" + name, *row.steps)
            server.initialize()
            started = time.monotonic()
            ids = {name: server.send_call("web_fetch", {"url": origin.url("/" + name)}) for name in ROWS}
            for name, row in ROWS.items():
                with self.subTest(name):
                    result = server.reply_to(ids[name], 30)["result"]
                    self.assertLess(time.monotonic() - started, 2 * TIMEOUT_SECONDS + 5, "too late")
                    self.check(row, result)
            wait_until(lambda: origin.open_connections <= 20)
            self.assert_serves_and_is_silent(server, len(ROWS) + 1)

    def check(self, row: Row, result: Dict[str, Any]) -> None:
        if row.code:
            error = error_of(result)
            self.assertEqual(error["code"], row.code, error["message"])
            self.assertIn(row.word.lower(), error["message"].lower())
            return
        self.assertFalse(result["isError"], result)
        page = result["structuredContent"]
        self.assertEqual(page["status_code"] // 100 in (2, 3), True)
        if row.whole:
            self.assertEqual((page["truncated"], [note for note in page.get("notes", ()) if INCOMPLETE in note]), (False, []))
        elif row.word:
            self.assertTrue(page["truncated"])
            self.assertIn(row.word, " ".join(page["notes"]))

    def test_a_stale_connection_is_replaced_at_once_and_only_once(self) -> None:
        with RawLoopback(keep_alive=True) as origin, McpProcess(loopback_settings()) as server:
            server.initialize()
            for path in ("/one", "/three"):
                origin.answer(path, sized(PAGE))
            origin.answer("/two", shut)
            origin.answer("/two", sized(PAGE))
            origin.answer("/four", shut)
            two, four = (
                [server.call_tool("web_fetch", {"url": origin.url(path)}) for path in paths][-1]
                for paths in (("/one", "/two"), ("/three", "/four")))
            self.assertEqual(two["structuredContent"]["status_code"], 200)
            self.assertIn("broke the connection off", error_of(four)["message"])
            self.assertEqual([len(origin.requests_to(path)) for path in ("/two", "/four")], [2, 2])
            self.assert_serves_and_is_silent(server)

    def test_a_connection_that_its_server_ended_while_idle_is_not_used(self) -> None:
        with RawLoopback(sized(PAGE)) as origin, McpProcess(loopback_settings()) as server:
            server.initialize()
            for path in ("/one", "/two", "/three"):
                self.assertFalse(server.call_tool("web_fetch", {"url": origin.url(path)})["isError"])
                wait_until(lambda: not origin.open_connections)
            self.assertEqual(len(origin.requests), 3)
            self.assert_serves_and_is_silent(server)


def bomb(levels: int, megabytes: int = 60) -> bytes:
    """HTML of `megabytes` MB, compressed `levels` times."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = b"A" * (1 << 20)
    data = packer.compress(b"<!doctype html><p>start ") + b"".join(packer.compress(block) for _ in range(megabytes)) + packer.flush()
    return data if levels == 1 else gzipped(data)


def dense(piece: bytes) -> bytes:
    """8 MB of `piece`, gzipped: what costs the reader of it the most objects a byte."""
    return gzipped(piece * (8_000_000 // len(piece)))


@unittest.skipUnless(HAS_PROC, "needs /proc")
class Memory(HostileCase):
    """Bombs and endless bodies, one after the other; the highest memory of the process counts."""

    def setUp(self) -> None:
        self.mock = RawLoopback()
        self.addCleanup(self.mock.close)

    def assert_bounded(self, server: McpProcess, watch: MemoryWatch) -> None:
        self.assertLess(watch.growth_kib, MAX_GROWTH_KIB)
        watch.is_over = True
        self.assert_serves_and_is_silent(server)

    def test_b44_pages_without_end_and_bombs_are_cut(self) -> None:
        endless = Repeat(b"A" * 48 * 1024 + b"\n")
        plain = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip, gzip\r\nConnection: close\r\n\r\n"
        scripts = {
            "/bomb": (sized(bomb(1), b"Content-Encoding: gzip\r\n"),),
            "/nested": (plain + bomb(2),),
            "/members": (plain.replace(b"gzip, ", b"") + gzipped(b"A" * 20_000) * 999,),
            "/endless": (case("B44_endless.http"), endless),
            "/endless_500": (case("B44_endless_500.http"), endless),
            "/liar": (sized(b"", length=10 ** 12), endless),
        }
        with McpProcess(loopback_settings({"WEBSEARCH_TIMEOUT": "5"})) as server:
            server.initialize()
            server.call_tool("web_fetch", {"url": self.mock.url("/none")})
            watch = MemoryWatch(server.pid)
            for path, steps in scripts.items():
                with self.subTest(path):
                    self.mock.answer(path, *steps)
                    started = time.monotonic()
                    page = server.call_tool("web_fetch", {"url": self.mock.url(path)})["structuredContent"]
                    self.assertLess(time.monotonic() - started, 10)
                    self.assertTrue(page["truncated"])
                    self.assertIn("larger than the limit", " ".join(page["notes"]))
                    is_plain = path in ("/endless", "/endless_500", "/liar")
                    self.assertLessEqual(page["total_chars"], websearch.MAX_WIRE_BYTES if is_plain else websearch.MAX_BODY_BYTES)
                    self.assertLess(watch.growth_kib, MAX_GROWTH_KIB, path)
            self.assert_bounded(server, watch)

    def test_pages_made_of_tiny_parts_are_bounded(self) -> None:
        parts = {"/tags": b"<b>", "/cells": b"<td>", "/links": b"<a href=/x>y</a>", "/attributes": b"<p a=b c=d e=f>", "/wide": ("<p>\U0001f680" + "word word word\n" * 9).encode()}
        with McpProcess(loopback_settings({"WEBSEARCH_TIMEOUT": "20"})) as server:
            server.initialize()
            server.call_tool("web_fetch", {"url": self.mock.url("/none")})
            watch = MemoryWatch(server.pid)
            for path, piece in parts.items():
                with self.subTest(path):
                    self.mock.answer(path, sized(dense(piece), b"Content-Encoding: gzip\r\n"))
                    server.call_tool("web_fetch", {"url": self.mock.url(path)})
                    self.assertLess(watch.growth_kib, MAX_GROWTH_KIB, path)
            self.assert_bounded(server, watch)

    def test_b44_providers_that_send_too_much_are_refused(self) -> None:
        as_json = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n"
        answers = {
            "bomb": (as_json + bomb(1),),
            "endless": (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"a\": \"", Repeat(b"A" * 65536)),
            "endless 500": (b"HTTP/1.1 500 Oops\r\nContent-Type: application/json\r\n\r\n", Repeat(b"A" * 65536)),
            "list of lists": (as_json + gzipped(b"[" + b"[]," * 2_600_000 + b"[]]"),),
            "list of objects": (as_json + gzipped(b'{"results":[' + b"{}," * 2_600_000 + b"{}]}"),),
            "list of texts": (as_json + gzipped(b'{"results":[' + b'"ab",' * 1_500_000 + b'""]}'),),
            "list of numbers": (as_json + gzipped(b'{"results":[' + b"1.5," * 1_900_000 + b"1]}"),),
            "wide characters": (as_json + gzipped(('{"results":7,"a":"\U0001f680' + "word " * 1_600_000 + '"}').encode()),),
            "nesting": (as_json + gzipped(b'{"results":' + b"[" * 3_000_000 + b"]" * 3_000_000 + b"}"),),
        }
        with McpProcess(loopback_settings({"TAVILY_API_KEY": CANARY, "TAVILY_API_URL": self.mock.url(),
                                           "WEBSEARCH_TIMEOUT": "10"})) as server:
            server.initialize()
            server.call_tool("web_search", {"query": "warm", "provider": "tavily"})
            watch = MemoryWatch(server.pid)
            for steps in answers.values():
                self.mock.answer("/search", *steps)
            for name in answers:
                with self.subTest(name):
                    started = time.monotonic()
                    error = error_of(server.call_tool("web_search", {"query": name, "provider": "tavily"}))
                    self.assertLess(time.monotonic() - started, 8)
                    self.assertEqual(error["code"], websearch.WEB_PROVIDER_RESPONSE_INVALID, error["message"])
                    self.assertLess(watch.growth_kib, MAX_GROWTH_KIB, name)
            self.assert_bounded(server, watch)


# Each provider that a row names is asked once, by name, at a base address of its own.
SLOW, INVALID, BROKEN = websearch.WEB_PROVIDER_TIMEOUT, websearch.WEB_PROVIDER_RESPONSE_INVALID, websearch.WEB_PROVIDER_ERROR
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
GOOD = b'{"results": [{"url": "https://a.test/", "title": "t", "content": "c", "snippet": "c"}]}'
CUT = JSON + b"Content-Length: 999\r\n\r\n" + GOOD
PROVIDER_ROWS: Dict[str, Row] = {
    "tavily": Row([Hold()], SLOW, "127.0.0.1"),
    "exa": Row([JSON + b"Connection: close\r\n\r\n", Drip(GOOD, 20)], SLOW, "127.0.0.1"),
    "brave": Row([CUT], INVALID, "incomplete"),
    "firecrawl": Row([JSON + b"Transfer-Encoding: chunked\r\n\r\nfff\r\n" + GOOD], INVALID, "incomplete"),
    "deepseek": Row([Drip(JSON, 20)], SLOW, "127.0.0.1"),
    "you": Row([b"SSH-2.0\r\n"], INVALID, "does not speak HTTP"),
    "perplexity": Row([JSON, Repeat(b"X-A: b\r\n" * 99)], INVALID, "header lines"),
    "grok": Row([Repeat(b"HTTP/1.1 103 Early\r\n\r\n")], INVALID, "interim"),
    "openai": Row([Reset()], BROKEN, "broke"),
    "anthropic": Row([b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/%s\r\nContent-Length: 0\r\n\r\n" % CANARY.encode()],
                     BROKEN, "redirected to 127.0.0.1"),
    "chat": Row([JSON + b"Content-Encoding: br\r\nContent-Length: 3\r\n\r\nabc"], INVALID, "coding"),
    "searxng": Row([JSON + b"Content-Length: 6000\r\n\r\n" + b"[" * 3000 + b"]" * 3000], INVALID, ""),
}
ANSWERS = ("grok", "openai", "anthropic", "chat")


def provider_settings(base: str) -> Dict[str, str]:
    """Every provider of PROVIDER_ROWS at a path of its own below `base`, each with the canary as its key."""
    settings = {"SEARXNG_URL": f"{base}/searxng", "SEARXNG_TOKEN": CANARY, "CHAT_SEARCH_MODEL": "m"}
    for provider in PROVIDER_ROWS:
        if provider != "searxng":
            name = {"you": "YDC"}.get(provider, provider.upper())
            settings[f"{name}_SEARCH_API_KEY" if provider in ANSWERS else f"{name}_API_KEY"] = CANARY
            settings[f"{name}_SEARCH_URL" if provider in ANSWERS else f"{name}_API_URL"] = f"{base}/{provider}"
    return settings


class RoutedByProvider(RawLoopback):
    """A RawLoopback whose scripts are chosen by the first part of the path."""

    def _route(self, routes: Mapping[str, Any], request: RecordedRequest) -> Any:
        return routes.get(request.path.split("/")[1])


class HostileProviders(HostileCase):
    def test_every_provider_fault_has_its_code_and_names_the_provider(self) -> None:
        with RoutedByProvider() as mock, McpProcess(loopback_settings({
                **provider_settings(mock.url()), "WEBSEARCH_TIMEOUT": "1"})) as server:
            for name, row in PROVIDER_ROWS.items():
                mock.answer(name, *row.steps)
            server.initialize()
            started = time.monotonic()
            ids = {name: server.send_call("web_search", {"query": "x", "provider": name}) for name in PROVIDER_ROWS}
            for name, row in PROVIDER_ROWS.items():
                with self.subTest(name):
                    error = error_of(server.reply_to(ids[name], 30)["result"])
                    self.assertLess(time.monotonic() - started, 6)
                    self.assertEqual((error["code"], error["attempted"][0]["provider"]), (row.code, name), error)
                    self.assertIn(row.word, error["message"])
            self.assert_serves_and_is_silent(server, len(PROVIDER_ROWS) + 1)

    def test_b41_a_drip_is_bounded_for_pages_and_providers_and_b40_a_cut_reply_passes_on(self) -> None:
        with RawLoopback() as mock, Loopback({"*": {"results": [{"url": "https://b.test/", "title": "t"}]}}) as exa, McpProcess(
                loopback_settings({"WEBSEARCH_TIMEOUT": "1", "TAVILY_API_KEY": CANARY, "TAVILY_API_URL": mock.url(),
                                   "EXA_API_KEY": CANARY, "EXA_API_URL": exa.url(), "WEBSEARCH_FETCH_PROVIDERS": "local"})) as server:
            mock.answer("/page", Drip(case("B41_page.http"), 40))
            mock.answer("/short", case("B40_short.http"))
            mock.answer("/cut", case("B40_chunk_cut.http"))
            mock.answer("/search", Drip(JSON + b"\r\n" + GOOD, 40))
            mock.answer("/search", CUT)
            server.initialize()
            started = time.monotonic()
            drip = server.send_call("web_fetch", {"url": mock.url("/page")})
            slow = server.send_call("web_search", {"query": "drip", "provider": "tavily"})
            self.assertIn("time", error_of(server.reply_to(drip)["result"])["message"])
            self.assertEqual(error_of(server.reply_to(slow)["result"])["code"], SLOW)
            self.assertLess(time.monotonic() - started, 4)
            for path in ("/short", "/cut"):
                page = server.call_tool("web_fetch", {"url": mock.url(path)})["structuredContent"]
                self.assertTrue(page["truncated"])
                self.assertIn("incomplete", page["notes"][0])
                self.assertTrue(page["text"].startswith("the beginning of the page"))
            found = server.call_tool("web_search", {"query": "cut"})["structuredContent"]
            self.assertEqual([(a["provider"], a["outcome"], a.get("code")) for a in found["attempted"]],
                             [("tavily", "error", INVALID), ("exa", "ok", None)])
            self.assert_serves_and_is_silent(server)


PROXY_ROWS: Dict[str, Row] = {
    "https://refused.test/": Row([b"HTTP/1.1 403 Forbidden\r\n\r\nno"], FAILED, "status 403"),
    "https://asks.test/": Row([b"HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic\r\n\r\n"], FAILED, "status 407"),
    "https://gateway.test/": Row([b"HTTP/1.1 502 Bad Gateway\r\n\r\n"], FAILED, "status 502"),
    "https://moved.test/": Row([b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n"], FAILED, "status 302"),
    "https://silent.test/": Row([Hold()], TIMEOUT, "time ran out"),
    "https://drips.test/": Row([Drip(b"HTTP/1.1 200 OK\r\n\r\n", 9)], TIMEOUT, "time ran out"),
    "https://garbage.test/": Row([b"\x00\x01garbage"], FAILED, "does not speak HTTP"),
    "https://resets.test/": Row([Reset()], FAILED, "broke"),
    "https://floods.test/": Row([b"HTTP/1.1 200 OK\r\n", Repeat(b"X-A: b\r\n" * 99)], FAILED, "header lines"),
    "https://interim.test/": Row([Repeat(b"HTTP/1.1 100 Continue\r\n\r\n")], FAILED, "interim"),
    "https://stray.test/": Row([b"HTTP/1.1 200 OK\r\n\r\nstray bytes"], FAILED, "stray"),
    "https://plain.test/": Row([b"HTTP/1.1 200 OK\r\n\r\n", Pause(0.5), b"HTTP/1.1 400 Bad\r\n\r\n"], FAILED, "TLS"),
    "https://mute.test/": Row([b"HTTP/1.1 200 OK\r\n\r\n", Hold()], TIMEOUT, "time ran out"),
    "https://ends.test/": Row([b"HTTP/1.1 200 OK\r\n\r\n"], FAILED, "TLS"),
    "https://10.1.2.3/": Row([], websearch.WEB_BLOCKED_URL, "10.1.2.3"),
    "http://127.1/": Row([], websearch.WEB_INVALID_URL, ""),
    "http://metadata.google.internal/": Row([], websearch.WEB_BLOCKED_URL, "internal"),
    "http://asks.test/": Row([b"HTTP/1.1 407 Who\r\n\r\n"], FAILED, "status 407"),
    "http://empty.test/": Row([b""], FAILED, "broke"),
}
REDIRECTS = {"B45_to_meta.http": "169.254.169.254", "B45_to_local.http": "localhost", "B45_to_file.http": "file",
             "B45_to_v6.http": "::ffff:169.254.169.254"}


class HostileProxies(HostileCase):
    """Behind a proxy nothing goes around it, whatever it does."""

    def settings(self, proxy: RawLoopback) -> Dict[str, str]:
        address = proxy.url().replace("://", f"://user:{quote(CANARY, safe='')}@")
        return {"HTTP_PROXY": address, "https_proxy": address, "WEBSEARCH_TIMEOUT": "1"}

    def test_every_fault_of_a_proxy_is_an_error_that_names_it(self) -> None:
        with RawLoopback() as proxy, McpProcess(self.settings(proxy)) as server:
            for url, row in PROXY_ROWS.items():
                if row.steps:
                    proxy.answer(url[8:-1] + ":443" if url.startswith("https") else url, *row.steps)
            server.initialize()
            ids = {url: server.send_call("web_fetch", {"url": url}) for url in PROXY_ROWS}
            for url, row in PROXY_ROWS.items():
                with self.subTest(url):
                    error = error_of(server.reply_to(ids[url], 30)["result"])
                    self.assertEqual(error["code"], row.code, error)
                    self.assertIn(row.word, error["message"])
                    if row.steps and row.code == FAILED and row.word != "TLS":
                        self.assertIn("proxy", error["message"])
            asked = [request.target for request in proxy.requests]
            self.assertEqual(len(asked), sum(1 for row in PROXY_ROWS.values() if row.steps))
            self.assertTrue(all(".test" in target for target in asked))
            self.assert_serves_and_is_silent(server, len(PROXY_ROWS) + 1)

    def test_b45_each_hop_is_judged_behind_a_proxy_too(self) -> None:
        with RawLoopback() as proxy, McpProcess(self.settings(proxy)) as server:
            server.initialize()
            for name, host in REDIRECTS.items():
                proxy.answer(f"http://public.example.test/{name}", case(name))
                error = error_of(server.call_tool("web_fetch", {"url": f"http://public.example.test/{name}"}))
                self.assertEqual(error["code"], BLOCKED)
                self.assertIn(host, error["message"])
            name = "B45_to_meta_refresh.http"
            proxy.answer(f"http://public.example.test/{name}", case(name))
            page = server.call_tool("web_fetch", {"url": f"http://public.example.test/{name}"})["structuredContent"]
            self.assertEqual(page["text"], "moved")
            self.assertEqual([request.target for request in proxy.requests],
                             [f"http://public.example.test/{name}" for name in (*REDIRECTS, name)])
            self.assertNotIn(b"root:", bytes(server.stdout))
            self.assert_serves_and_is_silent(server)

    def test_a_dead_proxy_or_a_malformed_one_is_never_gone_around(self) -> None:
        with Loopback({"*": "<p>direct"}) as origin:
            for address, word in ((f"http://u:{CANARY}@127.0.0.1:{closed_port()}", "proxy"), (f"socks5://u:{CANARY}@h:1", "SOCKS"),
                                  (f"http://u:{CANARY}@h:port", "HTTP_PROXY")):
                with self.subTest(word), McpProcess(loopback_settings({"HTTP_PROXY": address})) as server:
                    server.initialize()
                    error = error_of(server.call_tool("web_fetch", {"url": origin.url("/")}))
                    self.assertEqual(error["code"], FAILED)
                    self.assertIn(word, error["message"])
                    self.assert_serves_and_is_silent(server)
            self.assertEqual(origin.connections, 0)


TLS_ROWS = {"other": "another address", "alone": "self-signed", "expired": "expired", "unknown": "unknown authority", "old": "no TLS version"}


@unittest.skipUnless(shutil.which("openssl"), "certificates are made with the openssl command")
class HostileTls(HostileCase):
    """Certificates with one fault each: the message says which, and the server never gets a request."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for authority in ("ours", "theirs"):
            self.openssl("req", "-x509", *self.new_key(authority), "-out", f"{authority}.pem", "-days", "3", "-subj", f"/CN={authority}",
                         "-addext", "keyUsage=critical,keyCertSign")

    def openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def new_key(self, name: str) -> Tuple[str, ...]:
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key")

    def server_side(self, name: str) -> ssl.SSLContext:
        """What a server shows that has the fault `name`."""
        with open(os.path.join(self.folder, "names"), "w", encoding="ascii") as file:
            file.write("subjectAltName=" + ("IP:192.0.2.1" if name == "other" else "IP:127.0.0.1"))
            if name != "alone":
                file.write("\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid")  # 3.13 and newer insist on these
        self.openssl("req", *self.new_key(name), "-out", "request", "-subj", f"/CN={name}")
        authority = "theirs" if name == "unknown" else "ours"
        signer = ["-signkey", f"{name}.key"] if name == "alone" else ["-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial"]
        self.openssl("x509", "-req", "-in", "request", "-extfile", "names", "-out", f"{name}.pem", *signer,
                     "-days", "-1" if name == "expired" else "3")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.path.join(self.folder, f"{name}.pem"), os.path.join(self.folder, f"{name}.key"))
        if name == "old":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        return context

    def test_every_fault_of_a_certificate_is_told_and_nothing_is_sent(self) -> None:
        roots = os.path.join(self.folder, "ours.pem")
        with McpProcess(loopback_settings({"SSL_CERT_FILE": roots, "GITHUB_TOKEN": CANARY})) as server:
            server.initialize()
            for name, word in {**TLS_ROWS, "good": ""}.items():
                with self.subTest(name), Loopback({"*": "<p>over TLS"}, tls=self.server_side(name)) as origin:
                    result = server.call_tool("web_fetch", {"url": origin.url("/")})
                    if not word:
                        self.assertEqual(result["structuredContent"]["text"], "over TLS")
                        continue
                    error = error_of(result)
                    self.assertEqual((error["code"], origin.requests), (FAILED, []))
                    self.assertIn(word, error["message"])
            self.assert_serves_and_is_silent(server)

    def test_a_new_connection_to_a_known_origin_resumes_its_tls_session(self) -> None:
        context = self.server_side("good")
        transport = Transport(allow=websearch.AllowList(("127.0.0.1",)), cert_file=os.path.join(self.folder, "ours.pem"))
        with Loopback({"*": Reply(200, "over TLS", close=True)}, tls=context) as origin:
            for _ in range(3):
                transport.send(websearch.Request.get(origin.url("/")), websearch.PAGE_POLICY, Deadline(5))
            self.assertEqual((origin.connections, context.session_stats()["hits"]), (3, 2))


# ---- Which addresses are connected to ----------------------------------------------

_watched: List[List[Any]] = []  # the list that the audit hook fills, while there is one


def _audit(event: str, arguments: Tuple[Any, ...]) -> None:
    """Notes each connect and refuses it: nothing of these tests leaves the machine."""
    if event == "socket.connect" and _watched:
        _watched[-1].append(arguments[1][:2])
        raise ConnectionRefusedError(111, "not in a test")


class Connections(unittest.TestCase):
    """What is connected to is seen by an audit hook of the interpreter, below everything of ours."""

    @classmethod
    def setUpClass(cls) -> None:
        sys.addaudithook(_audit)

    def connects(self, url: str, resolver: Resolver, allow: Sequence[str] = ()) -> Tuple[List[Any], str, str]:
        """(addresses tried, code, message) of a fetch as the chain does it: judged by name for the others, then local."""
        transport, seen = Transport(resolve=resolver, allow=websearch.AllowList(allow)), []  # type: Transport, List[Any]
        _watched.append(seen)
        try:
            parsed = websearch.parse_url(websearch.unwrap_url(url))
            transport.check_name(parsed, Deadline(2))
            transport.send(websearch.Request.get(parsed.text), websearch.PAGE_POLICY, Deadline(2))
        except WebError as error:
            return seen, error.code, error.message
        finally:
            _watched.pop()
        raise AssertionError("a connect came through")

    def test_every_row_of_the_sample_list(self) -> None:
        found = rows()
        self.assertEqual(len(found), 60)
        for label, category, resolver, url in found:
            with self.subTest(category, url=url):
                seen, code, _ = self.connects(url, resolver)
                public = all(websearch.why_not_public(websearch.parse_address(host) or (32, 0)) == "" for host, _ in seen)
                self.assertTrue(public, seen)
                if label == "refuse":
                    self.assertEqual(seen, [])
                    self.assertIn(code, (websearch.WEB_BLOCKED_URL, websearch.WEB_INVALID_URL))
                elif label == "allow":
                    self.assertNotEqual(seen, [])
                    self.assertEqual(code, FAILED)

    def test_answers_that_change_between_look_ups_never_reach_a_private_address(self) -> None:
        public, private = "93.184.215.14", "10.0.0.5"
        for answers in ([public, private], [private, public], [public, public, private], [f"{private},{public}"] * 2,
                        [public, "::ffff:127.0.0.1"], [public, "64:ff9b::7f00:1"], [public, "fe80::1%lo"], ["::1," + public]):
            with self.subTest(answers):
                seen, _, _ = self.connects("http://turns.example.net/", Resolver({"turns.example.net": list(answers)}))
                self.assertLessEqual({host for host, _ in seen}, {public})

    def test_at_most_four_addresses_of_a_name_are_tried(self) -> None:
        many = ",".join(f"93.184.215.{number}" for number in range(1, 60))
        seen, _, _ = self.connects("http://many.example.net/", Resolver({"many.example.net": [many]}))
        self.assertEqual(len(seen), 4)

    def test_b19_fake_ip_answers_are_explained_and_can_be_allowed(self) -> None:
        addresses = fixture_json("cases/B19_resolver.json")
        docs, intranet = "http://docs.example.test/", "http://intranet.example.test/"
        resolver = Resolver({host: [address] for host, address in addresses.items()})
        for url in (docs, intranet):
            self.assertEqual(self.connects(url, resolver)[:2], ([], websearch.WEB_BLOCKED_URL))
        message = self.connects(docs, resolver)[2]
        for word in ("198.18", "fake-IP VPN clients", "WEBSEARCH_ALLOW_PRIVATE"):
            self.assertIn(word, message)
        allow = ["198.18.0.0/15"]
        self.assertEqual(self.connects(docs, resolver, allow)[0], [("198.18.23.183", 80)])
        self.assertEqual(self.connects(intranet, resolver, allow)[:2], ([], websearch.WEB_BLOCKED_URL))


class FoundByProperties(unittest.TestCase):
    """Inputs that tests/interop/check_properties.py and measurements have found, each with what is right."""

    def test_a_key_with_bytes_that_are_no_utf8_is_refused_by_name(self) -> None:
        settings = websearch.Settings.from_env({"TAVILY_API_KEY": "tvly-\udcff-key"}, websearch.SettingsFile())
        self.assertEqual(settings["TAVILY_API_KEY"], "")
        self.assertIn("TAVILY_API_KEY", settings.warnings[0])

    def test_robots_answers_for_a_path_with_a_lone_surrogate(self) -> None:
        self.assertTrue(websearch.parse_robots("User-agent: *\nDisallow: /x").allows("/\ud800"))

    def test_replies_of_very_many_values_or_events_are_refused_at_once(self) -> None:
        started = time.monotonic()
        for text in ("[" + "{}," * 400_000 + "{}]", '{"a": [' + "1," * 1_100_000 + "1]}"):
            with self.assertRaises(ValueError):
                websearch.parse_json(text)
        for text in ("data: 1\n" * 60_000, "data: {}\n\n" * 300_000):
            with self.assertRaises(ValueError):
                list(websearch.event_data(text))
        self.assertEqual(list(websearch.event_data("data: 1\n" + "\r\n\n\r" * 500_000 + "data: 2")), [1, 2])
        self.assertLess(time.monotonic() - started, 5)

    def test_of_a_very_long_list_only_the_beginning_is_gone_through(self) -> None:
        self.assertEqual(len(websearch.list_of({"a": [1] * 100_000}, "a")), websearch.MAX_LIST_ITEMS)


class ThirdParties(HostileCase):
    def test_no_refused_url_is_handed_to_anyone(self) -> None:
        """Pinned and in the chain, for fetch and map: the extract APIs see none of the literal rows."""
        refused = [url for label, _, resolver, url in rows() if label == "refuse" and not resolver.answers]
        settings = {"TAVILY_API_KEY": CANARY, "FIRECRAWL_API_KEY": CANARY, "EXA_API_KEY": CANARY, "WEBSEARCH_KEYLESS": "off"}
        with Loopback({"*": {"results": []}}) as mock, McpProcess({
                **settings, **{f"{name}_API_URL": mock.url() for name in ("TAVILY", "FIRECRAWL", "EXA")}}) as server:
            server.initialize()
            calls = [(tool, {"url": url, "provider": provider}) for url in refused
                     for tool, provider in (("web_fetch", "auto"), ("web_fetch", "tavily"), ("web_fetch", "exa"), ("web_map", "auto"))]
            ids = [server.send_call(*call) for call in calls]
            for call, call_id in zip(calls, ids):
                with self.subTest(call):
                    self.assertIn(error_of(server.reply_to(call_id)["result"])["code"], (
                        websearch.WEB_BLOCKED_URL, websearch.WEB_INVALID_URL, websearch.WEB_INVALID_ARGUMENT))
            self.assertEqual(mock.connections, 0)
            self.assert_serves_and_is_silent(server, len(calls) + 1)

    def test_a_name_that_resolves_to_a_private_address_is_handed_to_nobody(self) -> None:
        with Loopback({"*": {"results": [{"url": "http://inside.example.net/", "raw_content": "secret page"}]}}) as mock:
            settings = websearch.Settings.from_env(loopback_settings({
                "TAVILY_API_KEY": CANARY, "TAVILY_API_URL": mock.url(), "WEBSEARCH_ALLOW_PRIVATE": ""}), websearch.SettingsFile())
            transport = Transport.from_settings(settings, Resolver({"inside.example.net": ["10.0.0.5,::1"]}))
            caller = websearch.Caller(websearch.Snapshot(settings, transport), websearch.Rests(), websearch.Pace(), True)
            url, tavily = websearch.parse_url("http://inside.example.net/"), websearch.PROVIDER_BY_ID["tavily"]
            query = websearch.MapQuery(url.text)
            for ask in (lambda: websearch.PageReader(caller, url, Deadline(5)).read(websearch.page_chain(settings, "fetch"), True),
                        lambda: websearch._map_once(caller, tavily, query, url, Deadline(5))):
                with self.assertRaises(WebError) as raised:
                    ask()
                self.assertEqual(raised.exception.code, websearch.WEB_BLOCKED_URL)
            self.assertEqual(mock.connections, 0)


class HostileFrames(HostileCase):
    """Cases of the frame as they were met; test_mcp.py has many more."""

    def test_b04_bad_bytes_cost_one_reply_each_under_any_locale(self) -> None:
        locale = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii:strict"}
        with McpProcess(loopback_settings(locale)) as server:
            messages = server.run(case("B04_session.bin"), 2)
            self.assertNotIn(b"\r", server.stdout)
        results = [message["id"] for message in messages if "result" in message]
        errors = [(message["id"], message["error"]["code"]) for message in messages if "error" in message]
        self.assertEqual((results, errors), (["init", "\u00fc-\U0001f600-\u4e2d", 9], [(None, -32700), (None, -32700), (None, -32600)]))

    def test_b05_the_end_of_input_ends_it_whatever_still_runs(self) -> None:
        with RawLoopback(Hold()) as origin:
            sessions = {b"": 0, case("B05_list_only.jsonl"): 2,
                        case("B05_session.jsonl").replace(b"{BASE}", origin.url().encode()): 2}
            for session, replies in sessions.items():
                with self.subTest(session[:20]), McpProcess(loopback_settings()) as server:
                    self.assertEqual(len(server.run(session, 5)), replies)
                    self.assertNotIn(b"Fatal Python error", server.stderr)

    def test_b06_a_cancelled_call_is_never_answered_and_the_page_can_be_fetched_again(self) -> None:
        lines = case("B06_session.jsonl").splitlines(True)
        with RawLoopback() as origin, McpProcess(loopback_settings()) as server:
            origin.answer("/slow", Hold())
            origin.answer("/slow", Pause(0.3), sized(PAGE))
            for line in lines[:3]:
                server.send_bytes(line.replace(b"{BASE}", origin.url().encode()))
            origin.wait_for_requests(1)
            server.send_bytes(b"".join(lines[3:]))
            for ping in (6, 7):
                self.assertEqual(server.reply_to(ping, 1)["result"], {})
            again = server.reply_to(server.send_call("web_fetch", {"url": origin.url("/slow")}, 8))
            self.assertIn("the beginning", again["result"]["structuredContent"]["text"])
            self.assertNotIn(5, [message.get("id") for message in server.messages()])
            self.assert_serves_and_is_silent(server)

    def test_b57_bad_references_and_control_bytes_reach_nobody(self) -> None:
        with RawLoopback(case("B57_page.http")) as origin, McpProcess(loopback_settings()) as server:
            server.initialize()
            page = server.call_tool("web_fetch", {"url": origin.url("/")})["structuredContent"]
            for character in (*map(chr, range(0xd800, 0xe000)), "\x00", "\x1b", "\x7f"):
                self.assertNotIn(character, json.dumps(page, ensure_ascii=False))
            for words in ("real \U0001f680", "euro \u20ac", "copy \u00a9 2026", "notin \u00acit;", "red"):
                self.assertIn(words, page["text"])
            self.assertRegex(page["text"], "high \ufffd? ?low \ufffd? ?pair (?:\ufffd\ufffd)? ?real")
            self.assertRegex(page["text"], r"amp (?:\\?&lt;|&amp;lt;)")
            self.assertEqual(page["title"], "Refs & <b>")
            self.assert_serves_and_is_silent(server)


if __name__ == "__main__":
    unittest.main()
