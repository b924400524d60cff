"""Two hundred calls at once: right, cancellable, in a bounded number of threads; past the queue a clear refusal."""
from __future__ import annotations

import time
import unittest
from typing import Any, Dict

import websearch
from tests.support import Hold, Loopback, McpProcess, RawLoopback, RecordedRequest, Reply, loopback_settings, wait_until
from tests.test_hostile import HAS_PROC, MAX_GROWTH_KIB, HostileCase, MemoryWatch, error_of, process_number

CALLS = 200
SPARE_THREADS = 8  # the reading thread, and look-ups or lanes that have just ended


class Load(HostileCase):
    def test_200_calls_in_flight_get_their_own_answers_in_64_threads(self) -> None:
        def page(request: RecordedRequest) -> Any:
            return Reply(200, f"<p>This is page {request.path} and no other.", delay_seconds=0.05)

        with Loopback({"*": page}) as origin, McpProcess(loopback_settings()) as server:
            server.initialize()
            watch = MemoryWatch(server.pid) if HAS_PROC else None
            started = time.monotonic()
            ids = {path: server.send_call("web_fetch", {"url": origin.url(path)}) for path in (f"/{n}" for n in range(CALLS))}
            most_threads = process_number(server.pid, "Threads") if HAS_PROC else 0
            self.assertEqual(server.request("ping")["result"], {})
            for path, call_id in ids.items():
                page_text = server.reply_to(call_id, 30)["result"]["structuredContent"]["text"]
                self.assertEqual(page_text, f"This is page {path} and no other.")
                most_threads = max(most_threads, process_number(server.pid, "Threads") if HAS_PROC else 0)
            self.assertLess(time.monotonic() - started, 10)
            self.assertLessEqual(origin.most_open_connections, websearch.MAX_THREADS)
            self.assertLessEqual(most_threads, websearch.MAX_THREADS + SPARE_THREADS)
            if watch is not None:
                self.assertLess(watch.growth_kib, MAX_GROWTH_KIB)
                watch.is_over = True
            self.assert_serves_and_is_silent(server, CALLS + 2)

    def test_past_the_queue_a_call_is_told_to_wait_and_cancelling_frees_all(self) -> None:
        room = websearch.MAX_THREADS + websearch.MAX_QUEUED_CALLS
        with RawLoopback(Hold()) as origin, Loopback({"*": "<p>still here"}) as other, McpProcess(loopback_settings()) as server:
            server.initialize()
            ids = [server.send_call("web_fetch", {"url": origin.url(f"/{n}")}) for n in range(room)]
            for n in range(20):
                error = error_of(server.call_tool("web_fetch", {"url": other.url(f"/{n}")}))
                self.assertEqual((error["code"], error["retryable"]), (websearch.WEB_BUSY, True))
            wait_until(lambda: origin.open_connections == websearch.MAX_THREADS)
            for call_id in reversed(ids):  # those that wait first: none of them may run when the others end
                server.cancel(call_id)
            wait_until(lambda: not origin.open_connections)
            self.assertEqual(origin.connections, websearch.MAX_THREADS)
            page: Dict[str, Any] = server.call_tool("web_fetch", {"url": other.url("/")})["structuredContent"]
            self.assertEqual(page["text"], "still here")
            self.assertEqual(sum(message.get("id") in set(ids) for message in server.messages()), 0)
            self.assert_serves_and_is_silent(server)

    def test_searches_in_flight_do_not_mix(self) -> None:
        def found(request: RecordedRequest) -> Any:
            query = request.json()["query"]
            return Reply(200, {"results": [{"url": f"https://{query}.test/", "title": query}]}, delay_seconds=0.02)

        with Loopback({"*": found}) as mock, McpProcess(loopback_settings({
                "TAVILY_API_KEY": "key-of-tavily", "TAVILY_API_URL": mock.url()})) as server:
            server.initialize()
            ids = [server.send_call("web_search", {"query": f"q{n}"}) for n in range(100)]
            for number, call_id in enumerate(ids):
                result = server.reply_to(call_id, 30)["result"]["structuredContent"]
                self.assertEqual([source["url"] for source in result["sources"]], [f"https://q{number}.test/"])
            self.assert_serves_and_is_silent(server, 101)


if __name__ == "__main__":
    unittest.main()
