"""The transport in process: the pool, deadlines and cancellation, framing and decoding, redirects, proxies.

Faults of hostile peers are told over the real process in test_hostile.py; here it is one Transport and one server.
"""
from __future__ import annotations

import gzip
import socket
import threading
import time
import unittest
import zlib
from typing import Any, Callable, List, Optional, Tuple

import websearch
from tests.support import Hold, Loopback, RawLoopback, RecordedRequest, Reply, closed_port
from websearch import PAGE_POLICY, PROVIDER_POLICY, Deadline, Request, WebError

ALLOW = websearch.AllowList(("127.0.0.1/32",))


def head(*lines: str) -> bytes:
    return ("HTTP/1.1 200 OK\r\n" + "".join(line + "\r\n" for line in lines) + "\r\n").encode("latin-1")


class TransportTest(unittest.TestCase):
    def transport(self, **more: Any) -> websearch.Transport:
        """A transport that may reach 127.0.0.1, its idle connections closed after the test."""
        transport = websearch.Transport(more.pop("proxies", None), more.pop("allow", ALLOW), **more)
        self.addCleanup(transport.close_idle)
        return transport

    def get(self, url: str, transport: Optional[websearch.Transport] = None, policy: Any = PAGE_POLICY,
            seconds: float = 10.0) -> websearch.Response:
        return (transport or self.transport()).send(Request.get(url), policy, Deadline(seconds))

    def error_of(self, work: Callable[[], Any]) -> WebError:
        with self.assertRaises(WebError) as caught:
            work()
        return caught.exception


class Pool(TransportTest):
    def test_a_second_request_opens_no_new_connection(self) -> None:
        with Loopback({"*": "<p>ok</p>"}) as server:
            transport = self.transport()
            for path in ("/a", "/b", "/c"):
                self.get(server.url(path), transport)
            self.assertEqual(server.connections, 1)

    def test_pages_and_providers_do_not_share_connections(self) -> None:
        with Loopback({"*": "<p>ok</p>"}) as server:
            transport = self.transport()
            self.get(server.url("/a"), transport)
            self.get(server.url("/a"), transport, PROVIDER_POLICY)
            self.assertEqual(server.connections, 2)

    def test_a_connection_with_surplus_bytes_is_not_used_again(self) -> None:
        with RawLoopback(head("Content-Length: 2") + b"okHTTP/1.1 200 OK\r\n\r\nforged", keep_alive=True) as server:
            transport = self.transport()
            bodies = [self.get(server.url("/a"), transport).body for _ in range(2)]
            self.assertEqual((bodies, server.connections), ([b"ok", b"ok"], 2))

    def test_the_pool_is_bounded(self) -> None:
        with Loopback({"*": Reply(200, "<p>ok</p>", delay_seconds=0.1)}) as server:
            transport = self.transport()
            threads = [threading.Thread(target=self.get, args=(server.url(f"/{n}"), transport)) for n in range(40)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            kept = len(transport.idle)
        self.assertLessEqual(kept, websearch.MAX_IDLE_PER_ORIGIN)
        self.assertGreater(kept, 0)


class TimeAndCancellation(TransportTest):
    def _cancelled_while(self, url: str, is_under_way: Callable[[], Any], **more: Any) -> float:
        """Seconds from the cancellation to the end of a request that was under way."""
        deadline, ended, errors = Deadline(20), threading.Event(), []
        transport = self.transport(**more)

        def run() -> None:
            try:
                transport.send(Request.get(url), PAGE_POLICY, deadline)
            except WebError as error:
                errors.append(error.code)
            ended.set()

        threading.Thread(target=run, daemon=True).start()
        is_under_way()
        started = time.monotonic()
        deadline.cancel()
        self.assertTrue(ended.wait(5))
        self.assertEqual(errors, ["WEB_ABORTED"])
        return time.monotonic() - started

    def test_a_cancellation_ends_the_wait_for_an_answer_and_drops_the_connection(self) -> None:
        with RawLoopback(Hold()) as server:
            self.assertLess(self._cancelled_while(server.url("/a"), server.wait_for_requests), 0.1)
            server.wait_for_drop(timeout=0.5)

    def test_a_cancellation_ends_the_wait_for_a_body(self) -> None:
        with RawLoopback(head("Content-Length: 9") + b"some", Hold()) as server:
            self.assertLess(self._cancelled_while(server.url("/a"), server.wait_for_requests), 0.1)

    def test_a_cancellation_ends_the_wait_for_a_name(self) -> None:
        asked, never = threading.Event(), threading.Event()
        self.addCleanup(never.set)

        def resolve(*_: Any) -> List[Any]:
            asked.set()
            never.wait(20)
            return []

        self.assertLess(self._cancelled_while("http://slow.example.org/", asked.wait, resolve=resolve), 0.1)

    def test_each_stage_is_bounded_by_the_deadline(self) -> None:
        for steps in ((Hold(),), (b"HTTP/1.1 200", Hold()), (head("Content-Length: 9") + b"x", Hold())):
            with self.subTest(steps[0]), RawLoopback(*steps) as server:
                started = time.monotonic()
                error = self.error_of(lambda: self.get(server.url("/a?secret=1"), policy=PROVIDER_POLICY, seconds=0.3))
                self.assertLess(time.monotonic() - started, 1.0)
                self.assertEqual((error.code, error.reason), ("WEB_PROVIDER_TIMEOUT", "timeout"))
                self.assertNotIn("secret", error.message)

    def test_a_connection_that_is_refused_is_worth_a_retry(self) -> None:
        with self.assertRaises(websearch.ConnectFailed):
            self.get(f"http://127.0.0.1:{closed_port()}/")


class Bodies(TransportTest):
    def _body(self, *steps: Any, policy: Any = PAGE_POLICY) -> websearch.Response:
        with RawLoopback(*steps) as server:
            return self.get(server.url("/a"), policy=policy)

    def test_every_framing_gives_the_body(self) -> None:
        chunked = b"4;x=1\r\nbody\r\n4\r\n two\r\n0\r\nTrailer: 1\r\n\r\n"
        for data in (head("Content-Length: 8") + b"body two", head() + b"body two",
                     head("Transfer-Encoding: chunked") + chunked):
            with self.subTest(data[:60]):
                self.assertEqual(self._body(data).body, b"body two")

    def test_every_coding_is_undone(self) -> None:
        text = b"some text that packs " * 50
        raw = zlib.compressobj(9, zlib.DEFLATED, -15)
        for coding, data in (("gzip", gzip.compress(text)), ("x-gzip", gzip.compress(text[:500]) + gzip.compress(text[500:])),
                             ("deflate", zlib.compress(text)), ("deflate", raw.compress(text) + raw.flush()),
                             ("gzip", text)):  # announced, not done: plain
            with self.subTest(coding=coding, start=data[:4]):
                response = self._body(head(f"Content-Encoding: {coding}", f"Content-Length: {len(data)}") + data)
                self.assertEqual((response.body, response.incomplete), (text, ""))

    def test_a_broken_or_cut_body_says_so(self) -> None:
        packed = gzip.compress(b"text " * 9000)
        for steps in ((head("Content-Length: 90") + b"short",), (head("Transfer-Encoding: chunked") + b"5\r\nshort\r\n",),
                      (head("Content-Encoding: gzip") + packed[:len(packed) // 2],)):
            with self.subTest(steps[0][:50]):
                self.assertTrue(self._body(*steps).incomplete)
                self.assertEqual(self.error_of(lambda steps=steps: self._body(*steps, policy=PROVIDER_POLICY)).code[:13], "WEB_PROVIDER_")

    def test_what_is_no_http_is_an_error(self) -> None:
        for start in (b"hello\r\n", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 2x0 OK\r\n\r\n", b"SSH-2.0-x\r\n",
                      head("Content-Length: 5", "Content-Length: 6") + b"12345", head("Content-Length: -1"),
                      head("Transfer-Encoding: gzip") + b"x", b"HTTP/1.1 101 Switching\r\n\r\n",
                      b"HTTP/1.1 100 Continue\r\n\r\n" * 11 + head() + b"x",
                      b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 300 + b"\r\n",
                      head("Transfer-Encoding: chunked") + b"-5\r\nhello", head("Content-Encoding: br") + b"x"):
            with self.subTest(start[:40]):
                self.assertEqual(self.error_of(lambda start=start: self._body(start)).code, "WEB_FETCH_FAILED")

    def test_a_body_that_nobody_can_read_is_not_read(self) -> None:
        with RawLoopback(head("Content-Type: video/mp4", "Content-Length: 900000000"), Hold()) as server:
            response = self.get(server.url("/a"))
            self.assertEqual((response.body, response.size), (b"", 900_000_000))

    def test_a_header_cannot_be_smuggled_in(self) -> None:
        with Loopback({"*": "x"}) as server:
            request = Request("GET", server.url("/"), {"X-Key": "canary\r\nX-Other: 1"})
            error = self.error_of(lambda: self.transport().send(request, PROVIDER_POLICY, Deadline(5)))
            self.assertEqual(server.requests, [])
        self.assertNotIn("canary", error.message)


class Redirects(TransportTest):
    def test_pages_follow_five_hops_and_drop_what_is_private_on_the_way(self) -> None:
        def answer(request: RecordedRequest) -> Any:
            number = int(request.path[1:])
            return Reply(302, "", (("Location", f"/{number + 1}"),)) if number < limit else "<p>arrived</p>"

        for limit, arrives in ((5, True), (6, False)):
            with self.subTest(limit), Loopback({"*": answer}) as server:
                if arrives:
                    response = self.get(server.url("/0"))
                    self.assertEqual((response.status, response.url), (200, server.url("/5")))
                else:
                    self.assertEqual(self.error_of(lambda: self.get(server.url("/0"))).code, "WEB_REDIRECT_BLOCKED")

    def test_a_credential_does_not_travel_to_another_origin(self) -> None:
        with Loopback({"*": "<p>other</p>"}) as other, Loopback({"*": Reply(302, "", (("Location", other.url("/b")),))}) as first:
            request = Request("GET", first.url("/a"), {"Authorization": "Bearer canary", "Accept": "text/html"})
            self.transport().send(request, PAGE_POLICY, Deadline(5))
            self.assertEqual((other.requests[0].header("authorization"), other.requests[0].header("accept")), (None, "text/html"))

    def test_providers_follow_none_and_say_where_it_led(self) -> None:
        with Loopback({"*": Reply(307, "", (("Location", "https://elsewhere.example/x?canary=1"),))}) as server:
            error = self.error_of(lambda: self.get(server.url("/a"), policy=PROVIDER_POLICY))
            self.assertEqual(len(server.requests), 1)
        self.assertIn("elsewhere.example", error.message)
        self.assertNotIn("canary", error.message)

    def test_a_redirect_to_a_private_address_is_refused(self) -> None:
        for target in ("http://169.254.169.254/", "http://localhost/", "file:///etc/passwd", "http://[::1]/", "//10.0.0.1/"):
            with self.subTest(target), Loopback({"*": Reply(302, "", (("Location", target),))}) as server:
                self.assertIn(self.error_of(lambda: self.get(server.url("/a"))).code,
                              ("WEB_REDIRECT_BLOCKED", "WEB_BLOCKED_URL"))


class ThroughProxies(TransportTest):
    def _through(self, proxy: str, direct: str = "") -> websearch.Transport:
        return self.transport(proxies=websearch.Proxies(proxy, proxy, "", direct))

    def test_plain_requests_go_in_absolute_form_with_the_proxys_credential(self) -> None:
        with Loopback({"*": "<p>ok</p>"}) as proxy:
            transport = self._through(f"http://user:word@{proxy.host}")
            self.get("http://docs.example.test/a?b=c", transport)
            request = proxy.requests[0]
        self.assertEqual((request.target, request.header("host")), ("http://docs.example.test/a?b=c", "docs.example.test"))
        self.assertEqual(request.header("proxy-authorization"), "Basic dXNlcjp3b3Jk")

    def test_a_refused_tunnel_is_told_and_not_tried_again(self) -> None:
        with Loopback({"*": Reply(403, "no")}) as proxy:
            transport = self._through(f"http://user:word@{proxy.host}")
            error = self.error_of(lambda: self.get("https://docs.example.test/a", transport))
            self.assertEqual([request.target for request in proxy.requests], ["docs.example.test:443"])
        for word in ("proxy", "403", "docs.example.test"):
            self.assertIn(word, error.message)
        self.assertNotIn("word", error.message)
        self.assertNotIsInstance(error, websearch.ConnectFailed)

    def test_what_a_proxy_lacks_is_told_and_nothing_is_made_up(self) -> None:
        for status, words in ((501, "it does not know CONNECT"), (502, "it could not reach the host"), (500, "its log may tell why")):
            with Loopback({"*": Reply(status, "no")}) as proxy:
                transport = self._through(f"http://{proxy.host}")
                self.assertIn(words, self.error_of(lambda transport=transport: self.get("https://docs.example.test/a", transport)).message)

    def test_a_proxy_that_cannot_be_found_is_called_the_proxy(self) -> None:
        def resolve(*_: Any) -> Any:
            raise OSError("no such name")

        transport = self.transport(proxies=websearch.Proxies("", "garbage"), resolve=resolve)
        self.assertIn("garbage could not be resolved", (text := self.error_of(lambda: self.get("https://a.example/", transport)).message))
        self.assertIn("it is the proxy that HTTPS_PROXY names", text)

    def test_a_setting_that_is_no_proxy_is_an_error_and_no_way_around(self) -> None:
        with Loopback({"*": "x"}) as origin:
            for text in ("socks5://127.0.0.1:1", "http://", "http://h:99999", "ftp://h:1", "http://a b:1"):
                with self.subTest(text):
                    self.error_of(lambda text=text: self.get(origin.url("/"), self._through(text)))
            self.assertEqual(origin.requests, [])

    def test_what_no_proxy_names_goes_direct_and_stays_guarded(self) -> None:
        with Loopback({"*": "<p>direct</p>"}) as origin, Loopback({"*": "<p>proxied</p>"}) as proxy:
            transport = self._through(proxy.url(), "127.0.0.0/8,10.0.0.0/8")
            self.assertIn(b"direct", self.get(origin.url("/"), transport).body)
            error = self.error_of(lambda: self.get("http://10.0.0.1/", transport))
            self.assertEqual((error.code, proxy.requests), ("WEB_BLOCKED_URL", []))


class Names(TransportTest):
    def _resolving(self, *addresses: str) -> Tuple[websearch.Transport, List[str]]:
        asked: List[str] = []

        def resolve(host: str, port: int, *_: Any) -> List[Any]:
            asked.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

        return self.transport(resolve=resolve), asked

    def test_the_judged_address_is_connected_to_and_the_name_is_asked_once(self) -> None:
        with Loopback({"*": Reply(200, "<p>ok</p>", close=True)}) as server:
            transport, asked = self._resolving("127.0.0.1")
            url = f"http://docs.example.test:{server.port}/a"
            transport.check_name(websearch.parse_url(url), Deadline(5))
            self.get(url, transport)
            response = self.get(url, transport)
            self.assertEqual(server.requests[0].header("host"), f"docs.example.test:{server.port}")
        self.assertEqual((response.status, asked), (200, ["docs.example.test"]))

    def test_a_name_with_only_private_addresses_is_refused(self) -> None:
        transport, _ = self._resolving("10.0.0.5", "192.168.1.1")
        error = self.error_of(lambda: self.get("http://docs.example.test/", transport))
        self.assertEqual(error.code, "WEB_BLOCKED_URL")
        self.assertIn("WEBSEARCH_ALLOW_PRIVATE", error.message + error.hint)

    def test_an_address_that_keeps_silent_or_refuses_costs_at_most_the_stagger(self) -> None:
        with Loopback({"*": "<p>ok</p>"}) as server, socket.socket(socket.AF_INET6) as silent:
            try:
                silent.bind(("::1", server.port))
            except OSError:
                self.skipTest("there is no IPv6 here")
            silent.listen(0)
            for _ in range(3):  # a full queue takes no more connections
                waiting = socket.socket(socket.AF_INET6)
                self.addCleanup(waiting.close)
                waiting.setblocking(False)
                waiting.connect_ex(("::1", server.port))

            def resolve(host: str, port: int, *_: Any) -> List[Any]:
                return [(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
                        for address in ("::1", "127.0.0.2", "127.0.0.1")]

            transport = self.transport(resolve=resolve, allow=websearch.AllowList(("127.0.0.0/8", "::1")))
            started = time.monotonic()
            self.assertEqual(self.get(f"http://docs.example.test:{server.port}/", transport).status, 200)
        self.assertAlmostEqual(time.monotonic() - started, websearch.STAGGER_SECONDS, delta=websearch.STAGGER_SECONDS * 0.8)


if __name__ == "__main__":
    unittest.main()
