"""Faults met in the field with tools of this kind, one test class an area, over the real process.

The inputs in tests/fixtures/cases are small re-makings of what was met. More on the frame is in test_mcp.py, on the
extractor in test_extract_html.py and test_extract_other.py.
"""
from __future__ import annotations

import json
import signal
import time
import unittest
from typing import Any, Dict, List, Mapping, Optional
from urllib.parse import parse_qs, urlsplit

import websearch
from tests.support import (
    Hold,
    Loopback,
    McpProcess,
    RawLoopback,
    RecordedRequest,
    Reply,
    bare_environment,
    closed_port,
    fixture,
    fixture_json,
    loopback_settings,
)


def case(name: str) -> bytes:
    return fixture("cases/" + name)


def case_json(name: str) -> Any:
    return fixture_json("cases/" + name)


def call(settings: Mapping[str, str], tool: str, arguments: Any) -> Dict[str, Any]:
    """The CallToolResult of one call in a process of its own."""
    with McpProcess(settings) as server:
        server.initialize()
        result = server.call_tool(tool, arguments)
        assert server.request("ping")["result"] == {}
        return result


def asked(settings: Mapping[str, str], provider: str, query: str = "x") -> Dict[str, Any]:
    """The CallToolResult of a search in this process: for tables of many rows, each with settings of its own."""
    with websearch.WebSearch(bare_environment({**settings, "WEBSEARCH_LOG": "error"})) as web:
        return websearch.call_tool(web, "web_search", {"query": query, "provider": provider}, websearch.Deadline(10))


def text_of(result: Mapping[str, Any]) -> str:
    return str(result["content"][0]["text"])


def error_of(result: Mapping[str, Any]) -> Dict[str, Any]:
    assert result["isError"], result
    error: Dict[str, Any] = json.loads(text_of(result))["error"]
    return error


def urls_of(result: Mapping[str, Any]) -> List[str]:
    return [source["url"] for source in result["structuredContent"]["sources"]]


def tavily(server: Loopback, **more: str) -> Dict[str, str]:
    return loopback_settings({"TAVILY_API_KEY": "tvly-CASE", "TAVILY_API_URL": server.url(), **more})


def compact_size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


class FrameCases(unittest.TestCase):
    def test_b01_unicode_line_separators_do_not_split_a_message(self) -> None:
        with Loopback({"*": case_json("B01_tavily.json")}) as mock, McpProcess(tavily(mock)) as server:
            server.initialize()
            result = server.call_tool("web_search", {"query": "line separators", "provider": "tavily"})
            server.close_stdin()
            server.wait()
            stdout = bytes(server.stdout)
        self.assertEqual(len(stdout.decode().splitlines()), stdout.count(b"\n"))
        for raw in (b"\xe2\x80\xa8", b"\xe2\x80\xa9", b"\xc2\x85", b"\x0b", b"\x0c", b"\x1c", b"\x1e"):
            self.assertNotIn(raw, stdout)
        snippet = result["structuredContent"]["sources"][0]["snippet"]
        positions = [snippet.index(word) for word in ("alpha", "beta", "gamma", "delta", "epsilon", "\U0001f680")]
        self.assertEqual(positions, sorted(positions))

    def test_b02_notifications_are_never_answered_and_ping_always(self) -> None:
        with Loopback({"*": 500}) as mock, McpProcess(tavily(mock)) as server:
            replies = {reply["id"]: reply for reply in server.run(case("B02_session.jsonl"))}
            self.assertEqual(mock.requests, [])
        self.assertEqual(set(replies), {1, 2, 3, 4})
        self.assertEqual((replies[1]["result"], replies[4]["result"], replies[3]["error"]["code"]), ({}, {}, -32601))

    def test_b03_a_probe_before_initialize_is_answered(self) -> None:
        with McpProcess() as server:
            replies = {reply["id"]: reply["result"] for reply in server.run(case("B03_session.jsonl"))}
            self.assertLess(len(server.stderr), 4096)
        self.assertEqual(set(replies), {"d1", 1, 2})
        self.assertIn("2026-07-28", replies["d1"]["supportedVersions"])
        self.assertEqual(replies["d1"]["resultType"], "complete")
        self.assertLessEqual({"capabilities", "ttlMs", "cacheScope"}, set(replies["d1"]))
        self.assertEqual((replies[1]["protocolVersion"], len(replies[2]["tools"])), ("2025-06-18", 4))

    def test_b04_bad_bytes_and_locales_cost_one_error_each(self) -> None:
        locale = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0",
                  "PYTHONIOENCODING": "ascii:strict"}
        with McpProcess(locale) as server:
            replies = server.run(case("B04_session.bin"))
        self.assertNotIn(b"\r", bytes(server.stdout))
        errors = [(reply["id"], reply["error"]["code"]) for reply in replies if "error" in reply]
        self.assertEqual(errors, [(None, -32700), (None, -32700), (None, -32600)])
        self.assertEqual([reply["id"] for reply in replies if "result" in reply], ["init", "\u00fc-\U0001f600-\u4e2d", 9])

    def test_b05_the_process_ends_with_its_input(self) -> None:
        with McpProcess() as idle:
            self.assertEqual(idle.run(b"", timeout=2), [])
        with McpProcess() as piped:
            self.assertEqual(len(piped.run(case("B05_list_only.jsonl"), timeout=2)), 2)
        with RawLoopback(Hold()) as origin, McpProcess(loopback_settings()) as busy:
            busy.send_bytes(case("B05_session.jsonl").replace(b"{BASE}", origin.url().encode()))
            origin.wait_for_requests()
            busy.close_stdin()
            self.assertEqual(busy.wait(5), 0)
        with McpProcess() as signalled:
            signalled.request("ping")
            signalled.signal(signal.SIGTERM)
            self.assertIn(signalled.wait(2), (0, 143, -15))
        with McpProcess(read_stdout=False) as deaf:
            deaf.stop_listening()
            deaf.send_bytes(case("B05_list_only.jsonl"))
            self.assertEqual(deaf.wait(2), 0)
        for server in (idle, piped, busy, signalled, deaf):
            for word in (b"Fatal Python error", b"_enter_buffered_busy", b"BrokenPipe", b"Exception ignored"):
                self.assertNotIn(word, bytes(server.stderr))

    def test_b06_a_cancelled_call_is_never_answered(self) -> None:
        with Loopback({"/slow": Reply(200, "<p>slow page</p>", delay_seconds=0.8)}) as origin, \
                McpProcess(loopback_settings()) as server:
            lines = case("B06_session.jsonl").replace(b"{BASE}", origin.url().encode()).splitlines(keepends=True)
            server.send_bytes(b"".join(lines[:3]))
            origin.wait_for_requests()
            server.send_bytes(b"".join(lines[3:]))
            self.assertEqual([server.reply_to(6, 1)["result"], server.reply_to(7, 1)["result"]], [{}, {}])
            after = server.reply_to(server.send_call("web_fetch", {"url": origin.url("/slow")}, id=8))
            self.assertIn("slow page", after["result"]["structuredContent"]["text"])
            self.assertFalse([message for message in server.receive_all() if message.get("id") == 5])

    def test_b07_ids_come_back_as_they_were(self) -> None:
        with McpProcess() as server:
            replies = server.run(case("B07_session.jsonl"))
        self.assertEqual([json.dumps(reply["id"]) for reply in replies],
                         ['"1"', "1", "0", "-3", "9007199254740993", json.dumps("req-\u00e9"), '""'])

    def test_b09_schemas_are_what_model_apis_take(self) -> None:
        with McpProcess() as server:
            replies = {reply["id"]: reply["result"] for reply in server.run(case("B09_session.jsonl"))}
            self.assertLessEqual(max(len(line) for line in bytes(server.stdout).split(b"\n")), 16 * 1024)
        tools = replies[1]["tools"]
        self.assertEqual({tool["name"] for tool in tools}, {"web_search", "get_sources", "web_fetch", "web_map"})
        for tool in tools:
            schema = tool["inputSchema"]
            self.assertEqual(schema["type"], "object")
            self.assertFalse({"anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref"} & set(schema))
            self.assertLessEqual(set(schema.get("required", ())), set(schema["properties"]))
            self.assertTrue(40 <= len(tool["description"]) <= 2000)
            for name, entry in schema["properties"].items():
                self.assertRegex(name, r"^[a-zA-Z0-9_.-]{1,64}$")
                self.assertTrue(entry["description"])

    def test_b08_odd_arguments_give_one_clear_answer_each(self) -> None:
        with Loopback({"*": case_json("B08_tavily.json")}) as mock, McpProcess(tavily(mock)) as server:
            replies = {m["id"]: m for m in server.run(case("B08_session.jsonl"), 30)}
            asked = len(mock.requests)
        self.assertEqual(set(replies), {"init", *"abcdefghijkz"})
        for name in "df":
            self.assertLessEqual(len(urls_of(replies[name]["result"])), 3)
        self.assertFalse(replies["j"]["result"]["isError"])
        for name, word in (("b", "query"), ("c", "query"), ("g", "query"), ("h", "query"), ("e", "limit")):
            reply = replies[name]
            told = reply["error"]["message"] if "error" in reply else text_of(reply["result"])
            self.assertIn(word, told, name)
        self.assertLessEqual(asked, 4)
        whole = json.dumps(replies)
        for bad in ("-32603", "Traceback", "NoneType", "KeyError", "AttributeError"):
            self.assertNotIn(bad, whole)

    def test_b10_the_whole_reply_is_bounded(self) -> None:
        page = "<!doctype html><title>Big</title><main><h1>Big</h1>" + "".join(
            f'<p>Paragraph {i} with some words to fill the line and <a href="/long/path/number/{i}?query={i}">link {i}</a>.</p>'
            for i in range(4000)) + "<p>THE-LAST-LINE</p></main>"
        with Loopback({"/page": page}) as origin, McpProcess(loopback_settings()) as server:
            server.initialize()
            first = server.call_tool("web_fetch", {"url": origin.url("/page")})["structuredContent"]
            second = server.call_tool("web_fetch", {"url": origin.url("/page"), "char_limit": 400})["structuredContent"]
        self.assertLessEqual(compact_size(first), 38_000)
        self.assertTrue(first["truncated"])
        self.assertIn("Paragraph 0", first["text"])
        self.assertIn("[TRUNCATED", first["text"])
        self.assertGreater(first["total_chars"], 100_000)
        self.assertLessEqual(compact_size(second), 4_096)
        self.assertTrue(second["truncated"])
        self.assertEqual(second["total_chars"], first["total_chars"])


class SettingsCases(unittest.TestCase):
    def test_b16_bad_settings_do_not_stop_the_handshake(self) -> None:
        settings = {**case_json("B16_env.json")}
        with McpProcess(settings) as server:
            server.initialize()
            self.assertEqual(len(server.request("tools/list")["result"]["tools"]), 4)
            named = error_of(server.call_tool("web_search", {"query": "x", "provider": "tavily"}))
            server.close_stdin()
            server.wait()
            stderr = bytes(server.stderr).decode()
        self.assertIn("TAVILY_API_KEY is not set", named["message"])
        self.assertIn("placeholder", named["message"])
        self.assertIn("exaa", stderr)
        self.assertIn("WEBSEARCH_TIMEOUT", stderr)


class ProxyCases(unittest.TestCase):
    def test_b17_no_proxy_rules(self) -> None:
        table = case_json("B17_table.json")
        for url, way in table["rows"]:
            with self.subTest(url=url), Loopback({"*": {"results": []}}) as proxy:
                settings = loopback_settings({
                    "http_proxy": proxy.url(), "NO_PROXY": table["NO_PROXY"], "SEARXNG_URL": url, "WEBSEARCH_TIMEOUT": "0.2",
                })
                asked(settings, "searxng")
                self.assertEqual(bool(proxy.requests), way == "proxy")

    def test_b17_a_star_in_no_proxy_means_all(self) -> None:
        with Loopback() as proxy, Loopback({"*": {"results": []}}) as searxng:
            call(loopback_settings({"HTTP_PROXY": proxy.url(), "no_proxy": "*", "SEARXNG_URL": searxng.url()}),
                 "web_search", {"query": "x", "provider": "searxng"})
            self.assertEqual((len(proxy.requests), len(searxng.requests)), (0, 1))

    def test_b18_names_are_left_to_the_proxy_and_private_literals_refused(self) -> None:
        with RawLoopback(case("B18_page.http")) as proxy, McpProcess({"HTTP_PROXY": proxy.url()}) as server:
            server.initialize()
            page = server.call_tool("web_fetch", {"url": "http://docs.unresolvable.test/page"})
            for address in ("http://169.254.169.254/latest/meta-data/", "http://127.0.0.1/", "http://10.0.0.8/"):
                error = error_of(server.call_tool("web_fetch", {"url": address}))
                self.assertEqual(error["code"], "WEB_BLOCKED_URL")
            targets = [request.target for request in proxy.requests]
        self.assertIn("hello from behind the proxy", page["structuredContent"]["text"])
        self.assertEqual(targets, ["http://docs.unresolvable.test/page"])

    def test_b20_a_refused_connect_names_proxy_status_and_host(self) -> None:
        with RawLoopback(case("B20_connect_403.http")) as proxy:
            settings = {"HTTPS_PROXY": proxy.url(), "TAVILY_API_KEY": "tvly-CASE", "DUCKDUCKGO_ENABLED": "false",
                        "OPEN_ENABLED": "false"}
            error = error_of(call(settings, "web_search", {"query": "x", "provider": "tavily"}))
            connects = [(request.method, request.target) for request in proxy.requests]
        self.assertEqual(connects, [("CONNECT", "api.tavily.com:443")])
        for word in ("proxy", "403", "api.tavily.com"):
            self.assertIn(word, error["message"])
        self.assertNotIn("tvly-CASE", json.dumps(error))

    def test_b20_the_chain_goes_on_after_a_refused_connect(self) -> None:
        with RawLoopback(case("B20_connect_403.http")) as proxy, Loopback({"*": case_json("B24_next.json")}) as searxng:
            settings = loopback_settings({
                "HTTPS_PROXY": proxy.url(), "TAVILY_API_KEY": "tvly-CASE", "SEARXNG_URL": searxng.url()})
            result = call(settings, "web_search", {"query": "x"})
        attempts = result["structuredContent"]["attempted"]
        self.assertEqual([a["provider"] for a in attempts], ["tavily", "searxng"])
        self.assertIn("403", attempts[0]["message"])


class SearchCases(unittest.TestCase):
    def _two(self, searxng_reply: Any, arguments: Mapping[str, Any]) -> Dict[str, Any]:
        with Loopback({"*": searxng_reply}) as searxng, Loopback({"*": case_json("B24_next.json")}) as mock:
            settings = tavily(mock, SEARXNG_URL=searxng.url(), WEBSEARCH_PROVIDERS="searxng,tavily")
            return call(settings, "web_search", {"query": "x", **arguments})

    def test_b24_suspended_engines_are_no_empty_result(self) -> None:
        result = self._two(case_json("B24_suspended.json"), {})["structuredContent"]
        self.assertEqual(result["sources"][0]["url"], "https://docs.example.test/next")
        self.assertRegex(result["attempted"][0]["message"], "CAPTCHA|too many requests")
        error = error_of(self._two(case_json("B24_suspended.json"), {"provider": "searxng"}))
        self.assertIn("google", error["message"])
        self.assertNotIn("nothing was found", error["message"].lower() + error["hint"].lower())

    def test_b24_nothing_found_speaks_of_nothing_else(self) -> None:
        result = self._two(case_json("B24_nothing.json"), {})["structuredContent"]
        self.assertEqual(result["sources"][0]["url"], "https://docs.example.test/next")
        error = error_of(self._two(case_json("B24_nothing.json"), {"provider": "searxng"}))
        self.assertEqual(error["code"], "WEB_NO_RESULTS")
        self.assertNotRegex(error["message"], "(?i)block|engine|fail")

    def test_b25_searxng_without_json_says_what_to_set(self) -> None:
        with RawLoopback(case("B25_forbidden.http")) as searxng:
            error = error_of(call(loopback_settings({"SEARXNG_URL": searxng.url()}), "web_search",
                                  {"query": "x", "provider": "searxng"}))
            self.assertEqual(len(searxng.requests), 1)
        told = error["message"] + error["hint"]
        for word in ("403", "json", "formats"):
            self.assertIn(word, told)

    def test_b25_a_login_page_is_no_json(self) -> None:
        with RawLoopback(case("B25_login.http")) as searxng:
            error = error_of(call(loopback_settings({"SEARXNG_URL": searxng.url()}), "web_search",
                                  {"query": "x", "provider": "searxng"}))
            self.assertEqual(len(searxng.requests), 1)
        self.assertIn("text/html", error["message"])
        self.assertLessEqual(error["message"].count("please sign in"), 20)

    def _duckduckgo(self, raw: bytes, arguments: Mapping[str, Any]) -> Any:
        with RawLoopback(raw) as mock:
            settings = loopback_settings({"DUCKDUCKGO_ENABLED": "true", "DUCKDUCKGO_API_URL": mock.url("/html/")})
            return call(settings, "web_search", {"query": "qzx", **arguments}), len(mock.requests)

    def test_b26_a_challenge_is_told_and_not_retried(self) -> None:
        for name in ("B26_anomaly_202.http", "B26_anomaly_200.http"):
            with self.subTest(name):
                result, asked = self._duckduckgo(case(name), {"provider": "duckduckgo"})
                error = error_of(result)
                self.assertEqual((error["code"], asked), ("WEB_PROVIDER_BLOCKED", 1))
                self.assertRegex(error["message"], "(?i)challenge|block")
                automatic, _ = self._duckduckgo(case(name), {})
                self.assertIn("duckduckgo", text_of(automatic))
                self.assertTrue(automatic["isError"])

    def test_b26_none_found_is_not_blocked(self) -> None:
        error = error_of(self._duckduckgo(case("B26_none_200.http"), {"provider": "duckduckgo"})[0])
        self.assertEqual(error["code"], "WEB_NO_RESULTS")
        self.assertNotRegex(error["message"], "(?i)block|challenge")

    def test_b27_real_addresses_without_advertisements(self) -> None:
        with Loopback({"*": case("B27_results.html").decode()}) as mock:
            settings = loopback_settings({"DUCKDUCKGO_ENABLED": "true", "DUCKDUCKGO_API_URL": mock.url("/html/")})
            # a process each: two requests of one process are kept two seconds apart
            two, ten = (call(settings, "web_search", {"query": "x", "provider": "duckduckgo", "limit": limit}) for limit in (2, 10))
        first = ["https://docs.example.test/a?x=1&y=%C3%A9", "https://www.example.test/b"]
        self.assertEqual(urls_of(two), first)
        self.assertEqual(urls_of(ten), [*first, "https://plain.example.test/c"])
        source = ten["structuredContent"]["sources"][0]
        self.assertEqual((source["title"], source["snippet"]), ("First & best <guide>", "How to do it 'right'"))

    def _grok(self, answer: Any, **more: str) -> Any:
        with Loopback({"/v1/responses": answer}) as mock, McpProcess(loopback_settings({
            "GROK_SEARCH_API_KEY": "xai-CASE-KEY", "GROK_SEARCH_URL": mock.url(), **more,
        })) as server:
            server.initialize()
            result = server.call_tool("web_search", {"query": "capital of Portugal"})
            again: Optional[Dict[str, Any]] = None
            if not result["isError"]:
                again = server.call_tool("get_sources", {"session_id": result["structuredContent"]["session_id"]})
            return result, again, list(mock.requests)

    def test_b28_items_are_read_by_type_not_by_place(self) -> None:
        result, again, _ = self._grok(case_json("B28_response.json"))
        content = result["structuredContent"]["content"]
        self.assertLess(content.index("Lisbon is the capital"), content.index("It lies on the Tagus."))
        expected = ["https://a.example.test/pt", "https://b.example.test/tagus", "https://c.example.test/x"]
        self.assertEqual(urls_of(again), expected)
        self.assertTrue(all(source["title"] not in ("", "None") for source in again["structuredContent"]["sources"]))

    def test_b29_a_stream_that_was_not_asked_for(self) -> None:
        raw = case("B29_stream.http")
        body = raw.partition(b"\r\n\r\n")[2]
        for stream in (body, body.replace(b"\r\n", b"\n")):
            result, _, requests = self._grok(Reply(200, stream, (("Content-Type", "text/event-stream"),)))
            self.assertIs(requests[0].json()["stream"], False)
            self.assertEqual(result["structuredContent"]["content"], "Lisbon is the capital.")
            self.assertEqual(urls_of(result), ["https://a.example.test/pt"])

    def test_b29_deltas_alone_are_no_verified_answer(self) -> None:
        body = case("B29_stream.http").partition(b"\r\n\r\n")[2].partition(b"event: response.completed")[0]
        result, _, _ = self._grok(Reply(200, body, (("Content-Type", "text/event-stream"),)))
        error = error_of(result)
        self.assertEqual(error["code"], "WEB_ALL_PROVIDERS_FAILED")
        self.assertNotIn("Lisbon", text_of(result))

    def test_b30_the_tool_is_chosen_by_a_word_xai_takes(self) -> None:
        def answer(request: RecordedRequest) -> Any:
            if isinstance(request.json().get("tool_choice"), dict):
                return Reply(422, case("B30_refuse_422.http").partition(b"\r\n\r\n")[2])
            return case_json("B28_response.json")

        result, _, requests = self._grok(answer)
        self.assertFalse(result["isError"])
        self.assertIn({"type": "web_search"}, requests[0].json()["tools"])

    def test_b30_the_words_of_a_422_are_passed_on(self) -> None:
        with RawLoopback(case("B30_refuse_422.http")) as mock:
            error = error_of(call(loopback_settings({
                "GROK_SEARCH_API_KEY": "xai-CASE-KEY", "GROK_SEARCH_URL": mock.url()}), "web_search",
                {"query": "x", "provider": "grok"}))
        self.assertIn("untagged enum ModelToolChoice", error["message"])

    def test_b33_the_vendors_words_reach_the_model(self) -> None:
        with RawLoopback(case("B33_bad_request.http")) as mock:
            settings = loopback_settings({"TAVILY_API_KEY": "tvly-CASE", "TAVILY_API_URL": mock.url()})
            result = call(settings, "web_search", {"query": "x", "provider": "tavily"})
            self.assertEqual(len(mock.requests), 1)
        error = error_of(result)
        for word in ("Invalid country: IT", "400", "tavily"):
            self.assertIn(word, error["message"].replace("Tavily", "tavily"))
        self.assertNotIn("tvly-CASE", text_of(result))
        self.assertLessEqual(len(error["message"]), 1_000)

    def test_b38_base_addresses_as_users_paste_them(self) -> None:
        question = 'a&b=c #1 +\u00fc "x"'
        for variable, value, path in case_json("B38_table.json"):
            with self.subTest(variable=variable, value=value), Loopback({"*": {"results": []}}) as mock:
                provider = "grok" if variable.startswith("GROK") else "searxng"
                settings = {variable: value.replace("{BASE}", mock.url())}
                if provider == "grok":
                    settings["GROK_SEARCH_API_KEY"] = "xai-CASE-KEY"
                asked(loopback_settings(settings), provider, question)
                request = mock.requests[0]
                self.assertEqual(request.path, path)
                if provider == "searxng":
                    sent = parse_qs(urlsplit(request.target).query)["q"][0]
                else:
                    sent = json.dumps(request.json()["input"], ensure_ascii=False)
                    question_sent = json.dumps(question, ensure_ascii=False)[1:-1]
                    self.assertIn(question_sent, sent)
                    continue
                self.assertEqual(sent, question)


class FetchCases(unittest.TestCase):
    def test_b39_raw_utf8_in_location(self) -> None:
        for path, name, target in (("/a", "B39_redirect.http", "/pr%C3%A9c%20is/%E6%97%A5%E6%9C%AC?q=a%20b"),
                                   ("/b", "B39_redirect_encoded.http", "/caf%C3%A9?x=%2F")):
            with self.subTest(path), RawLoopback(case("B39_page.http")) as origin:
                origin.answer(path, case(name))
                result = call(loopback_settings(), "web_fetch", {"url": origin.url(path)})["structuredContent"]
                self.assertEqual([request.target for request in origin.requests], [path, target])
                self.assertIn("arrived", result["text"])
                self.assertEqual(result["url"], origin.url(target))

    def test_b43_what_cannot_be_read_is_named(self) -> None:
        with RawLoopback() as origin, McpProcess(loopback_settings()) as server:
            server.initialize()
            for name in ("doc", "png_as_text", "data", "plain", "notype"):
                origin.answer(f"/{name}", case(f"B43_{name}.http"))
            text = {name: text_of(server.call_tool("web_fetch", {"url": origin.url(f"/{name}")}))
                    for name in ("doc", "png_as_text")}
            shown = {name: server.call_tool("web_fetch", {"url": origin.url(f"/{name}")})["structuredContent"]["text"]
                     for name in ("data", "plain", "notype")}
        self.assertIn("pdf", text["doc"].lower())
        self.assertIn("png", text["png_as_text"].lower())
        for reply in text.values():
            for junk in ("%PDF", "IHDR", "\ufffd"):
                self.assertNotIn(junk, reply)
        self.assertIn('{"key": "<b>not html</b>", "n": [1, 2]}', shown["data"])
        self.assertIn("# Title\n\n* item with_under_scores\n* [x](y)\n\n    code <b>", shown["plain"])
        self.assertIn("still a page", shown["notype"])

    def test_b46_the_status_is_part_of_what_was_found(self) -> None:
        with RawLoopback() as origin, McpProcess(loopback_settings()) as server:
            server.initialize()
            for name in ("missing", "empty_503", "gone_410"):
                origin.answer(f"/{name}", case(f"B46_{name}.http"))
            missing, empty, gone = (server.call_tool("web_fetch", {"url": origin.url(f"/{name}")})["structuredContent"]
                                    for name in ("missing", "empty_503", "gone_410"))
        self.assertEqual((missing["status_code"], empty["status_code"], gone["status_code"]), (404, 503, 410))
        self.assertIn("No such page here", missing["text"])
        self.assertIn("see /docs/v3", gone["text"])
        self.assertIn("answered 503 and sent no text", empty["text"])

    def test_b47_dirty_addresses(self) -> None:
        with Loopback({"*": "<p>ok</p>"}) as origin, McpProcess(loopback_settings()) as server:
            server.initialize()
            for address, target in case_json("B47_table.json"):
                with self.subTest(address):
                    before = len(origin.requests)
                    result = server.call_tool("web_fetch", {"url": address.replace("{BASE}", origin.url())})
                    seen = [request.target for request in origin.requests[before:]]
                    if target == "error":
                        self.assertEqual(seen, [])
                        error_of(result)
                    else:
                        # a page that is kept already needs no second request
                        self.assertFalse(result["isError"], text_of(result))
                        self.assertTrue(not seen or seen[0] in target.split(" or "), seen)
                    for bad in ("UnicodeError", "InvalidURL(", "Traceback", "-32603"):
                        self.assertNotIn(bad, text_of(result))
            self.assertEqual({r.target for r in origin.requests} - {"/%zz", "/%25zz"},
                             {"/a", "/a%20b", "/%C3%BC?q=%E6%97%A5", "/p", "/"})

    def test_b47_a_missing_scheme_means_https(self) -> None:
        port = closed_port()
        error = error_of(call(loopback_settings(), "web_fetch", {"url": f"127.0.0.1:{port}/a"}))
        self.assertEqual(error["code"], "WEB_FETCH_FAILED")


class MapCases(unittest.TestCase):
    def _map(self, reply: Any, **arguments: Any) -> Dict[str, Any]:
        with Loopback({"*": reply}) as mock:
            settings = loopback_settings({"FIRECRAWL_API_KEY": "fc-CASE-KEY", "FIRECRAWL_API_URL": mock.url("/v2")})
            return call(settings, "web_map", {"url": "https://docs.example.test/", "provider": "firecrawl", **arguments})

    def test_b58_both_shapes_of_map_links(self) -> None:
        second = self._map(case_json("B58_map_v2.json"))
        self.assertEqual(urls_of(second), [f"https://docs.example.test/{name}" for name in "abc"])
        first = self._map(case_json("B58_map_v1.json"))
        self.assertEqual(urls_of(first), [f"https://docs.example.test/{name}" for name in "ab"])
        for bad in ("[object", "{'url'", "None"):
            self.assertNotIn(bad, text_of(first) + text_of(second))
        self.assertIn("Invalid token", error_of(self._map(case_json("B58_map_fail.json")))["message"])

    def test_b59_a_huge_map_says_that_it_was_cut(self) -> None:
        found = [f"https://docs.example.test/section/{i % 40}/some/longer/path/page-{i}" for i in range(5000)]
        with Loopback({"*": {"base_url": "docs.example.test", "results": found}}) as mock, McpProcess(tavily(mock)) as server:
            server.initialize()
            usual = server.call_tool("web_map", {"url": "https://docs.example.test/"})["structuredContent"]
            most = server.call_tool("web_map", {"url": "https://docs.example.test/", "limit": 500})["structuredContent"]
            ten = server.call_tool("web_map", {"url": "https://docs.example.test/", "limit": 10})["structuredContent"]
        for result in (usual, most):
            self.assertLessEqual(compact_size(result), 38_000)
            self.assertTrue(result["truncated"])
            self.assertEqual(result["total_found"], 5000)
        self.assertEqual([source["url"] for source in ten["sources"]], found[:10])


class PolicyCases(unittest.TestCase):
    """Faults of the chain as a whole: waits, time, citations, addresses. Keys (B35, B36) are in test_secrets.py."""

    def _brave(self, mock: Any, **more: str) -> Dict[str, str]:
        return loopback_settings({"BRAVE_API_KEY": "BSA-CASE", "BRAVE_API_URL": mock.url(), **more})

    def test_b31_gzip_that_was_not_asked_for_and_tags_in_titles(self) -> None:
        with RawLoopback(case("B31_brave.http")) as mock:
            result = call(self._brave(mock), "web_search", {"query": "x"})
        source = result["structuredContent"]["sources"][0]
        self.assertEqual(source["title"], "Using std::vector & friends")
        self.assertTrue(source["snippet"].startswith("The push_back call adds <T> items 'fast'"), source["snippet"])
        for bad in ("<strong>", "&amp;", "&lt;", "&#x27;"):
            self.assertNotIn(bad, text_of(result))

    def test_b32_a_short_wait_is_worth_it(self) -> None:
        replies = [case("B32_limited.http"), case_json("B32_ok.json")]
        with Loopback() as mock:
            limited = Reply(429, replies[0].partition(b"\r\n\r\n")[2], (("Retry-After", "1"), ("Content-Type", "application/json")))
            mock.answer("/res/v1/web/search", limited, replies[1])
            result = call(self._brave(mock), "web_search", {"query": "x", "provider": "brave"})
            first, second = mock.requests
        self.assertEqual(urls_of(result), ["https://docs.example.test/ok"])
        self.assertTrue(1.0 <= second.at - first.at <= 3.0)

    def test_b32_a_long_wait_is_not(self) -> None:
        with RawLoopback(case("B32_limited_long.http")) as brave, Loopback({"*": case_json("B34_ok.json")}) as mock, McpProcess(
                tavily(mock, **self._brave(brave), WEBSEARCH_PROVIDERS="brave,tavily")) as server:
            server.initialize()
            started = time.monotonic()
            result = server.call_tool("web_search", {"query": "x"})["structuredContent"]
            self.assertLess(time.monotonic() - started, 1.5)
            self.assertEqual(len(brave.requests), 1)
        self.assertEqual(result["search_provider"], "tavily")
        self.assertRegex(result["attempted"][0]["message"], "429|rate")

    def test_b34_five_silent_providers_leave_time_for_the_last(self) -> None:
        names = {"perplexity": "PERPLEXITY", "exa": "EXA", "brave": "BRAVE", "deepseek": "DEEPSEEK"}
        with RawLoopback(Hold()) as silent, Loopback({"*": case_json("B34_ok.json")}) as mock, McpProcess(tavily(
                mock, SEARXNG_URL=silent.url(), WEBSEARCH_DEADLINE="2.5", WEBSEARCH_PROVIDERS=",".join([*names, "searxng", "tavily"]),
                **{f"{name}_API_KEY": "CASE-KEY" for name in names.values()},
                **{f"{name}_API_URL": silent.url() for name in names.values()})) as server:
            server.initialize()
            started = time.monotonic()
            result = server.call_tool("web_search", {"query": "x"})["structuredContent"]
            self.assertLess(time.monotonic() - started, 2.5)
        self.assertEqual(result["sources"][0]["snippet"], "late but here")
        told = {a["provider"]: a.get("code") or a["outcome"] for a in result["attempted"]}
        self.assertEqual(told, {**dict.fromkeys([*names, "searxng"], "WEB_PROVIDER_TIMEOUT"), "tavily": "ok"})
        self.assertEqual(result["fallback_reason"], "perplexity_timeout")

    def test_b37_bare_citations_and_nulls(self) -> None:
        with Loopback({"*": case_json("B37_perplexity.json")}) as mock:
            result = call(loopback_settings({"PERPLEXITY_API_KEY": "pplx-CASE", "PERPLEXITY_API_URL": mock.url()}),
                          "web_search", {"query": "x", "provider": "perplexity"})
        self.assertEqual(result["structuredContent"]["content"], "It is so [1][2].")
        self.assertEqual(urls_of(result), ["https://a.example.test/one", "https://b.example.test/two"])
        self.assertEqual([source["title"] for source in result["structuredContent"]["sources"]], ["a.example.test", "b.example.test"])
        with Loopback({"*": case_json("B37_nulls.json")}) as mock:
            result = call(tavily(mock), "web_search", {"query": "x", "provider": "tavily"})
        self.assertEqual([url.rpartition("/")[2] for url in urls_of(result)], ["untitled", "good"])
        for bad in ("None", "null,"):
            self.assertNotIn(bad, json.dumps(result["structuredContent"]["sources"]))

    def test_addresses_with_user_info_query_or_fragment_are_refused_by_name(self) -> None:
        with Loopback({"*": {"results": []}}) as mock:
            for value in (f"http://user:CASE-PASS@127.0.0.1:{mock.port}", mock.url("/?key=CASE-PASS"), mock.url("/#CASE-PASS")):
                for variable, provider in (("TAVILY_API_URL", "tavily"), ("GROK_API_URL", "grok"), ("SEARXNG_URL", "searxng")):
                    with self.subTest(variable=variable, value=value):
                        settings = loopback_settings({"TAVILY_API_KEY": "tvly-CASE", "GROK_SEARCH_API_KEY": "xai-CASE", variable: value})
                        error = error_of(asked(settings, provider))
                        self.assertEqual(error["code"], "WEB_PROVIDER_CONFIGURED_UNAVAILABLE")
                        self.assertIn("GROK_SEARCH_URL" if provider == "grok" else variable, error["message"])
                        self.assertNotIn("CASE-PASS", json.dumps(error))
            self.assertEqual(mock.requests, [])


if __name__ == "__main__":
    unittest.main()
