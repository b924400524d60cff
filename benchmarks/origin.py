"""The server that the benchmarks fetch from: a process of its own on 127.0.0.1, which counts what reaches it.

    /slow/MILLISECONDS/NAME   a page of 20 KB after a pause, another one for each NAME
    /page/BYTES/NAME          a page of that size, at once
    /hold/NAME                never answers, notes when the client goes away
    /search                   the answer of a search API (Tavily's form) with eight sources
"""
from __future__ import annotations

import asyncio
import html
import http.client
import json
import ssl
import subprocess
import sys
import time
from functools import lru_cache
from typing import Any, Dict, List, Optional, Sequence

import common

PAGE_BYTES = 20_000
WORDS = ("river stone window garden paper signal harbour lantern meadow engine copper thread orchard violin margin "
         "kettle ladder winter anchor feather marble tunnel compass barrel ribbon").split()


@lru_cache(4)
def _template(size: int) -> bytes:
    """A page of `size` bytes: style, script, menu and footer as on sites; the rest headings, prose, lists, code, tables."""
    menu = "".join(f'<li class="menu-item"><a href="/topics/{word}">{word.title()}</a></li>' for word in WORDS)
    style = "".join(f".{word}{{margin:0 auto;padding:{len(word)}px;color:#{len(word):03d}}}" for word in WORDS * 2)
    script = "".join(f"window.{word}=function(a){{return a+{len(word)}}};" for word in WORDS * 2)
    head = (f"<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'><title>Page NAME</title><style>{style}</style>"
            f"<script>{script}</script></head><body><nav><ul>{menu}</ul></nav><main><h1>Page NAME</h1>")
    foot = f"</main><footer><ul>{menu}</ul><p>All rights reserved.</p></footer></body></html>"
    parts: List[str] = []
    length = 0
    while length < size:
        number = len(parts) + 1
        words = " ".join(WORDS[(number * 7 + step * (1 + number % 5)) % len(WORDS)] for step in range(60))
        part = f"<h2>Part {number}</h2>\n<p>The {words}, says <a href='/part/{number}'>part {number}</a> of NAME.</p>\n"
        if number % 4 == 0:
            part += f"<ul><li>{words[:40]}</li><li>{words[40:90]}</li></ul>\n<pre><code>value = {number}\n</code></pre>\n"
        if number % 8 == 0:
            part += f"<table><tr><th>name</th><th>value</th></tr><tr><td>{words[:20]}</td><td>{number}</td></tr></table>\n"
        parts.append(part)
        length += len(part)
    return (head + "".join(parts)[: max(0, size - len(head) - len(foot))] + foot).encode()


def page(size: int, name: str) -> bytes:
    """An HTML page of about `size` bytes, another one for each name."""
    return _template(size).replace(b"NAME", html.escape(name).encode())


SEARCH = {"results": [{"url": f"https://site{number}.example/page", "title": f"Result {number}", "score": 1 - number / 10,
                       "content": " ".join(WORDS[number:number + 12] * 3)} for number in range(8)]}


class Origin:
    """The server of this module as a child process, and what it has counted."""

    def __init__(self, tls: Sequence[str] = ()) -> None:
        """`tls`: the files of a certificate and its key, to speak TLS."""
        self._process = subprocess.Popen([common.PYTHON, __file__, *tls], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._port, self._control = (int(number) for number in self._process.stdout.readline().split())
        self.base = f"http{'s' if tls else ''}://127.0.0.1:{self._port}"

    def __enter__(self) -> Origin:
        return self

    def __exit__(self, *unused: object) -> None:
        self._process.kill()
        self._process.communicate()

    def counts(self) -> Dict[str, Any]:
        """`connections`, TLS sessions `resumed`, `requests` by path, and when the clients of /hold `left`."""
        connection = http.client.HTTPConnection("127.0.0.1", self._control)
        connection.request("GET", "/")
        counted: Dict[str, Any] = json.loads(connection.getresponse().read())
        connection.close()
        return counted

    def requests(self, path: str) -> int:
        """How often `path` was asked for."""
        return int(self.counts()["requests"].get(path, 0))


class Listener:
    """What runs in the child process."""

    def __init__(self) -> None:
        self.counted: Dict[str, Any] = {"connections": 0, "resumed": 0, "requests": {}, "left": {}}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.counted["connections"] += 1
        secured = writer.get_extra_info("ssl_object")
        self.counted["resumed"] += bool(secured and secured.session_reused)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = [line.split(":")[1] for line in head.split("\r\n") if line.lower().startswith("content-length:")]
                await reader.readexactly(int(length[0]) if length else 0)
                path = head.split(" ")[1]
                self.counted["requests"][path] = self.counted["requests"].get(path, 0) + 1
                await self.answer(path, reader, writer)
        except (OSError, EOFError):
            pass  # the client is done
        finally:
            writer.close()

    async def answer(self, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, kind, *rest = path.split("/")
        if kind == "hold":
            try:
                await reader.read(1)
            finally:
                self.counted["left"][path] = time.monotonic()
            raise EOFError
        if kind == "slow":
            body = page(PAGE_BYTES, rest[1])
            await asyncio.sleep(int(rest[0]) / 1000)
        elif kind == "page":
            body = page(int(rest[0]), rest[1])
        body, kind = (json.dumps(SEARCH).encode(), "application/json") if kind == "search" else (body, "text/html; charset=utf-8")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (kind.encode(), len(body)) + body)
        await writer.drain()

    async def control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps(self.counted).encode())
        writer.close()

    async def run(self, tls: Optional[ssl.SSLContext]) -> None:
        serving = await asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=tls, backlog=512)
        control = await asyncio.start_server(self.control, "127.0.0.1", 0)
        print(*(server.sockets[0].getsockname()[1] for server in (serving, control)), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until the benchmark ends


def main() -> None:
    tls = None
    if len(sys.argv) > 2:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(sys.argv[1], sys.argv[2])
    asyncio.run(Listener().run(tls))


if __name__ == "__main__":
    main()
