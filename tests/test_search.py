"""The search chain: lanes, verification, enrichment, fallback, budgets, keys, selection. Real loopback providers."""
from __future__ import annotations

import threading
import time
import unittest
from typing import Any, Dict, List, Mapping, Optional

import websearch
from tests.support import (
    Hold,
    Loopback,
    RawLoopback,
    RecordedRequest,
    Reply,
    bare_environment,
    closed_port,
    fixture_json,
    loopback_settings,
)

GROK_ANSWER = {
    "status": "completed",
    "output": [
        {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q", "sources": []}},
        {"type": "message", "role": "assistant", "content": [{
            "type": "output_text", "text": "The answer [[1]](https://a.example.org/1).",
            "annotations": [{"type": "url_citation", "url": "https://a.example.org/1", "title": "First"}]}]},
    ],
}
GROK_WITHOUT_SEARCH = {"status": "completed", "output": [
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "From memory."}]}]}


def found(*paths: str, host: str = "s.example.org") -> Dict[str, Any]:
    """A Tavily or SearXNG reply with these pages."""
    return {"results": [{"title": f"Title {path}", "url": f"https://{host}/{path}", "content": f"about {path}"}
                        for path in paths]}


def web_of(settings: Mapping[str, str]) -> websearch.WebSearch:
    """A WebSearch with these settings, nothing private blocked, nothing outside asked."""
    return websearch.WebSearch(bare_environment(loopback_settings(settings)))


def search(settings: Mapping[str, str], text: str = "q", *, provider: str = "auto", extra: Optional[int] = None,
           seconds: float = 20.0, limit_given: bool = True, **query: Any) -> Dict[str, Any]:
    """The result of one search with these settings."""
    with web_of(settings) as web:
        return web.search(websearch.SearchQuery(text, today="2026-11-30", **query), websearch.Deadline(seconds), provider,
                          extra, limit_given)


def grok(server: Any, **more: str) -> Dict[str, str]:
    return {"GROK_SEARCH_API_KEY": "xai-test-key", "GROK_SEARCH_URL": server.url(), **more}


def tavily(server: Any, **more: str) -> Dict[str, str]:
    return {"TAVILY_API_KEY": "tvly-test-key", "TAVILY_API_URL": server.url(), **more}


def labels(result: Mapping[str, Any]) -> List[str]:
    return [source["provider"] for source in result["sources"]]


def outcomes(result: Mapping[str, Any]) -> List[Any]:
    return [(attempt["provider"], attempt["outcome"]) for attempt in result["attempted"]]


class Answers(unittest.TestCase):
    def test_a_verified_answer_comes_first_and_is_enriched(self) -> None:
        with Loopback({"*": GROK_ANSWER}) as answers, Loopback({"*": found("1", "2", "3", "4")}) as sources:
            result = search({**grok(answers), **tavily(sources)})
        self.assertEqual(result["content"], "The answer [[1]](https://a.example.org/1).")
        self.assertEqual(labels(result), ["grok_responses", "tavily_enrichment", "tavily_enrichment", "tavily_enrichment"])
        self.assertEqual((result["search_provider"], result["fallback_used"], result["fallback_reason"]),
                         ("grok_responses", False, None))
        self.assertEqual(outcomes(result), [("grok", "ok"), ("tavily", "ok")])
        self.assertEqual(result["sources_count"], 4)

    def test_extra_sources_zero_asks_no_source_provider(self) -> None:
        with Loopback({"*": GROK_ANSWER}) as answers, Loopback({"*": found("1")}) as sources:
            result = search({**grok(answers), **tavily(sources)}, extra=0)
            self.assertEqual(sources.requests, [])
        self.assertEqual(labels(result), ["grok_responses"])

    def test_enrichment_delays_a_good_answer_by_two_seconds_at_most(self) -> None:
        with Loopback({"*": GROK_ANSWER}) as answers, RawLoopback(Hold()) as sources:
            started = time.monotonic()
            result = search({**grok(answers), **tavily(sources)})
            self.assertLess(time.monotonic() - started, 3.5)
            self.assertLess(sources.wait_for_drop().after_seconds, 3.5)
        self.assertEqual(labels(result), ["grok_responses"])

    def test_text_without_a_search_is_never_shown(self) -> None:
        with Loopback({"*": GROK_WITHOUT_SEARCH}) as answers, Loopback({"*": found("1", "2")}) as sources:
            result = search({**grok(answers), **tavily(sources)})
        self.assertIsNone(result["content"])
        self.assertEqual((result["fallback_used"], result["fallback_reason"]), (True, "grok_sources_empty"))
        self.assertEqual(labels(result), ["tavily_fallback", "tavily_fallback"])
        self.assertEqual(result["search_provider"], "tavily")

    def test_filters_that_the_api_cannot_carry_are_told_in_words_and_a_note_says_so(self) -> None:
        six = tuple(f"{letter}.example.org" for letter in "abcdef")
        rows = (({"include_domains": six[:2]}, ""), ({"include_domains": six}, "include_domains"), ({"recency_days": 9}, "recency_days"),
                ({"include_domains": six[:1], "exclude_domains": ("x.example.org",)}, "exclude_domains"))
        for filters, told in rows:
            with self.subTest(filters), Loopback({"*": GROK_ANSWER}) as answers:
                result = search(grok(answers), extra=0, **filters)
                body = answers.requests[0].json()
            note = f"grok was told {told} in words; the answer text may go beyond them"
            self.assertEqual(result["notes"], [note] if told else [])
            self.assertEqual(told == "", body["input"][0]["content"] == "q")
        for setting in ({"OPENAI_SEARCH_TOOL": "web_search_preview"}, {"OPENAI_SEARCH_MODEL": "grok-4.3"}):  # knows none; five
            with self.subTest(setting), Loopback({"*": GROK_ANSWER}) as answers:
                result = search({"OPENAI_SEARCH_API_KEY": "sk-test-key", "OPENAI_SEARCH_URL": answers.url(), **setting},
                                extra=0, include_domains=six)
            self.assertIn("told include_domains in words", result["notes"][0])

    def test_a_paused_turn_is_continued_and_its_rounds_are_one_answer(self) -> None:
        paused = fixture_json("providers/anthropic_pause_turn.json")
        with Loopback() as answers:
            answers.answer("/v1/messages", paused, fixture_json("providers/anthropic_success.json"))
            result = search({"ANTHROPIC_SEARCH_API_KEY": "sk-ant-test-key", "ANTHROPIC_SEARCH_URL": answers.url()})
            first, second = (request.json()["messages"] for request in answers.requests)
        self.assertEqual(second, [*first, {"role": "assistant", "content": paused["content"]}])
        self.assertEqual((result["sources_count"], result["search_provider"], bool(result["content"])), (2, "anthropic_messages", True))

    def test_each_failure_of_the_answer_has_its_reason(self) -> None:
        empty = {"status": "completed", "output": []}
        rows = ((Reply(401, {"error": "no"}), "auth_error"), (Reply(429, {"error": "slow down"}), "rate_limited"),
                (Reply(500, {"error": "broken"}), "provider_error"), (Reply(200, "<html>hello</html>"), "parse_error"),
                (Reply(403, {"error": "Your team has used all available credits"}), "access_error"), (empty, "content_empty"))
        for reply, reason in rows:
            with self.subTest(reason), Loopback({"*": reply}) as answers, Loopback({"*": found("1")}) as sources:
                result = search({**grok(answers), **tavily(sources)})
                self.assertEqual(result["fallback_reason"], "grok_" + reason)

    def test_a_silent_answer_provider_times_out_and_falls_back(self) -> None:
        with RawLoopback(Hold()) as answers, Loopback({"*": found("1")}) as sources:
            result = search({**grok(answers), **tavily(sources)}, seconds=1.5)
            self.assertTrue(answers.wait_for_drop())
        self.assertEqual(result["fallback_reason"], "grok_timeout")

    def test_a_named_answer_provider_does_not_fall_back(self) -> None:
        with Loopback({"*": GROK_WITHOUT_SEARCH}) as answers, Loopback({"*": found("1")}) as sources:
            with self.assertRaises(websearch.WebError) as caught:
                search({**grok(answers), **tavily(sources)}, provider="grok")
            self.assertEqual(sources.requests, [])
        self.assertEqual(caught.exception.code, "WEB_PROVIDER_RESPONSE_INVALID")
        self.assertEqual([a.outcome for a in caught.exception.attempted], ["error"])

    def test_third_parties_that_the_user_did_not_choose_are_not_asked_for_enrichment(self) -> None:
        with Loopback({"*": GROK_ANSWER}) as answers, Loopback({"*": found("1")}) as other:
            # keyless mode alone does not make Tavily the user's choice, and no source provider is configured
            result = search({**grok(answers), "WEBSEARCH_KEYLESS": "auto", "WEBSEARCH_PROVIDERS": "", "HTTPS_PROXY": other.url()})
            self.assertEqual(other.requests, [])
        self.assertEqual(labels(result), ["grok_responses"])


class Sources(unittest.TestCase):
    def test_without_an_answer_provider_nothing_fell_back(self) -> None:
        with Loopback({"*": found("1", "2")}) as sources:
            result = search(tavily(sources))
        self.assertEqual((result["content"], result["fallback_used"], result["fallback_reason"]), (None, False, None))
        self.assertEqual(labels(result), ["tavily", "tavily"])

    def test_the_first_source_provider_with_a_source_ends_the_lane(self) -> None:
        with Loopback({"*": found()}) as empty, Loopback({"*": found("1")}) as second:
            result = search({**tavily(empty), "SEARXNG_URL": second.url()})
        self.assertEqual(outcomes(result), [("tavily", "empty"), ("searxng", "ok")])

    def test_limit_bounds_what_is_shown_and_the_session_keeps_all(self) -> None:
        with Loopback({"*": found(*"123456789")}) as sources:
            web = web_of(tavily(sources))
            self.addCleanup(web.close)
            result = web.search(websearch.SearchQuery("q", 3), websearch.Deadline(10))
            query, kept = web.get_sources(result["session_id"])
        self.assertEqual((len(result["sources"]), result["sources_count"], query, len(kept)), (3, 9, "q", 9))

    def test_page_text_of_the_first_sources_comes_when_asked_for(self) -> None:
        with Loopback({"*": "<main><h1>Kestrel</h1><p>It hovers in the wind over open fields.</p></main>"}) as origin:
            urls = [origin.url(f"/{n}") for n in range(5)]
            reply = {"results": [{"title": "t", "url": url, "content": "c"} for url in urls]}
            with Loopback({"*": reply}) as sources:
                result = search({"SEARXNG_URL": sources.url()}, include_content=True)
            self.assertEqual(len(origin.requests), websearch.CONTENT_PAGES)
        texts = [source.get("content", "") for source in result["sources"]]
        self.assertEqual(["hovers in the wind" in text for text in texts], [True, True, True, False, False])

    def test_pages_that_could_not_be_read_are_told(self) -> None:
        with Loopback({"/0": "<p>It hovers.</p>", "*": 404}) as origin:
            reply = {"results": [{"title": "t", "url": origin.url(f"/{n}"), "content": "c"} for n in range(3)]}
            with Loopback({"*": reply}) as sources:
                result = search({"SEARXNG_URL": sources.url()}, include_content=True)
        self.assertEqual([source.get("content") for source in result["sources"]], ["It hovers.", None, None])
        self.assertRegex(result["notes"][-1], r"^2 of 3 pages could not be read: 127\.0\.0\.1.*: answered 404")

    def test_without_a_limit_the_setting_says_how_many_fallback_sources_are_shown(self) -> None:
        with Loopback({"*": GROK_WITHOUT_SEARCH}) as answers, Loopback({"*": found(*"123456789")}) as sources:
            settings = {**grok(answers), **tavily(sources), "WEBSEARCH_FALLBACK_SOURCES": "7"}
            self.assertEqual(len(search(settings, limit_given=False)["sources"]), 7)
            self.assertEqual(len(search(settings, limit=2)["sources"]), 2)

    def test_everyone_answered_and_nothing_was_found(self) -> None:
        with Loopback({"*": found()}) as sources:
            with self.assertRaises(websearch.WebError) as caught:
                search(tavily(sources))
        self.assertEqual(caught.exception.code, "WEB_NO_RESULTS")

    def test_everyone_failed_names_each_and_why(self) -> None:
        with Loopback({"*": Reply(401, {"detail": {"error": "bad key"}})}) as one, Loopback({"*": 500}) as two:
            with self.assertRaises(websearch.WebError) as caught:
                search({**tavily(one), "SEARXNG_URL": two.url()})
        error = caught.exception
        self.assertEqual(error.code, "WEB_ALL_PROVIDERS_FAILED")
        self.assertEqual([(a.provider, a.code) for a in error.attempted],
                         [("tavily", "WEB_PROVIDER_AUTH_ERROR"), ("searxng", "WEB_PROVIDER_ERROR")])
        self.assertIn("bad key", error.message)

    def test_a_reason_that_all_share_is_said_once(self) -> None:
        why = "the host name {} could not be resolved: no DNS"
        reasons = websearch.reasons_of((("you", "you: " + why.format("api.you.com")), ("open", why.format("hn.algolia.com")),
                                        ("brave", "rests for 9 s more after: brave: HTTP 429"), ("exa", "exa cannot filter")))
        self.assertEqual(websearch.in_words(reasons), f"you, open: {why.format('…')}; brave: rests for 9 s more after: HTTP 429; "
                                                      "exa: cannot filter")

    def test_a_filter_that_an_api_lacks_skips_it(self) -> None:
        with Loopback({"*": {"success": True, "data": {"web": []}}}) as firecrawl, Loopback({"*": found("1")}) as searxng:
            result = search({"FIRECRAWL_API_KEY": "fc-test-key", "FIRECRAWL_API_URL": firecrawl.url("/v2"),
                             "SEARXNG_URL": searxng.url()}, include_domains=("s.example.org",),
                            exclude_domains=("x.example.org",))
            self.assertEqual(firecrawl.requests, [])
        self.assertEqual(outcomes(result)[0], ("firecrawl", "skipped"))

    def test_a_filter_that_only_the_keyless_form_lacks_skips_that(self) -> None:
        settings = websearch.Settings.from_env({"WEBSEARCH_KEYLESS": "on"})
        query = websearch.SearchQuery("q", exclude_domains=("x.example.org",))
        for keyless, words in ((True, "cannot filter by exclude_domains"), (False, "")):
            self.assertEqual(websearch.filter_obstacle(websearch.YOU, query, keyless), words)
        with Loopback({"*": found("1")}) as searxng, Loopback({"*": {"results": {"web": []}}}) as you:
            result = search({"YDC_API_URL": you.url(), "WEBSEARCH_KEYLESS": "on", "SEARXNG_URL": searxng.url(),
                             "WEBSEARCH_PROVIDERS": "you,searxng"}, exclude_domains=("x.example.org",))
            self.assertEqual(you.requests, [])
        self.assertTrue(websearch.availability(websearch.YOU, settings).keyless)
        self.assertEqual(outcomes(result), [("you", "skipped"), ("searxng", "ok")])
        self.assertIn("exclude_domains", result["attempted"][0]["message"])

    def test_sources_known_to_break_a_filter_are_dropped_with_a_note(self) -> None:
        replies = {"results": found("1")["results"] + found("2", host="other.example.net")["results"]}
        with Loopback({"*": replies}) as sources:
            result = search(tavily(sources), include_domains=("s.example.org",))
        self.assertEqual([source["url"] for source in result["sources"]], ["https://s.example.org/1"])
        self.assertTrue(any("dropped" in note for note in result["notes"]))
        with Loopback({"*": found("1")}) as sources, self.assertRaises(websearch.WebError) as caught:
            search(tavily(sources), include_domains=("a.example.org",), provider="tavily")
        self.assertEqual((caught.exception.code, caught.exception.message),
                         ("WEB_NO_RESULTS", "tavily found only sources outside the filters"))

    def test_silent_providers_leave_time_for_the_last_one(self) -> None:
        with RawLoopback(Hold()) as silent, Loopback({"*": found("late")}) as last:
            started = time.monotonic()
            result = search({"EXA_API_KEY": "exa-test-key", "EXA_API_URL": silent.url(), "BRAVE_API_KEY": "brave-test-key",
                             "BRAVE_API_URL": silent.url(), **tavily(last),
                             "WEBSEARCH_PROVIDERS": "exa,brave,tavily"}, seconds=2.0)
        self.assertLess(time.monotonic() - started, 2.2)
        self.assertEqual(outcomes(result), [("exa", "error"), ("brave", "error"), ("tavily", "ok")])
        self.assertEqual(result["attempted"][0]["code"], "WEB_PROVIDER_TIMEOUT")


class Policy(unittest.TestCase):
    def test_a_refused_key_gives_way_to_the_next_one(self) -> None:
        def answer(request: RecordedRequest) -> Any:
            good = request.header("authorization") == "Bearer tvly-second"
            return found("1") if good else Reply(401, {"detail": {"error": "bad key"}})

        with Loopback({"*": answer}) as sources:
            web = web_of(tavily(sources, TAVILY_API_KEY="tvly-first1,tvly-second"))
            self.addCleanup(web.close)
            for text in ("one", "two"):
                web.search(websearch.SearchQuery(text), websearch.Deadline(10))
            seen = [request.header("authorization") for request in sources.requests]
        self.assertEqual(seen, ["Bearer tvly-first1", "Bearer tvly-second", "Bearer tvly-second"])

    def test_a_refused_provider_rests_in_auto_but_not_when_named(self) -> None:
        limited = Reply(429, {"detail": {"error": "limit"}}, (("Retry-After", "60"),))
        with Loopback({"*": limited}) as one, Loopback({"*": found("1")}) as two:
            web = web_of({**tavily(one), "SEARXNG_URL": two.url()})
            self.addCleanup(web.close)
            for text in ("one", "two"):
                result = web.search(websearch.SearchQuery(text), websearch.Deadline(10))
            with self.assertRaises(websearch.WebError):
                web.search(websearch.SearchQuery("three"), websearch.Deadline(10), "tavily")
            self.assertEqual(len(one.requests), 2)
        self.assertEqual(outcomes(result), [("tavily", "skipped"), ("searxng", "ok")])
        self.assertIn("rests for", result["attempted"][0]["message"])

    def test_a_short_retry_after_is_waited_for_once(self) -> None:
        with Loopback() as sources:
            sources.answer("/search", Reply(429, {}, (("Retry-After", "1"),)), found("1"))
            started = time.monotonic()
            result = search(tavily(sources))
            self.assertGreaterEqual(time.monotonic() - started, 1.0)
            self.assertEqual(len(sources.requests), 2)
        self.assertEqual(labels(result), ["tavily"])

    def test_a_wait_until_a_moment_is_understood_with_and_without_the_servers_clock(self) -> None:
        from email.utils import formatdate
        soon = formatdate(time.time() + 1000, usegmt=True)
        for headers in ((("Retry-After", soon),), (("Retry-After", "Mon, 30 Nov 2026 12:16:40 GMT"),
                                                   ("Date", "Mon, 30 Nov 2026 12:00:00 GMT"))):
            with self.subTest(headers), Loopback({"*": Reply(429, {}, headers)}) as sources:
                with self.assertRaises(websearch.WebError) as caught:
                    search(tavily(sources), provider="tavily")
                self.assertAlmostEqual(caught.exception.retry_after_seconds or 0.0, 1000, delta=2)
                self.assertEqual(len(sources.requests), 1)

    def test_a_refusal_that_there_is_no_time_to_retry_is_told_as_it_came(self) -> None:
        with Loopback({"*": Reply(503, {"detail": {"error": "closed for repairs"}})}) as sources:
            with self.assertRaises(websearch.WebError) as caught:
                search(tavily(sources, WEBSEARCH_TIMEOUT="0.25"), provider="tavily")
            self.assertEqual(len(sources.requests), 1)
        self.assertIn("closed for repairs", caught.exception.message)

    def test_doctor_shows_which_keys_rest_and_for_how_long(self) -> None:
        def answer(request: RecordedRequest) -> Any:
            return Reply(401, {"detail": {"error": "bad key"}}) if "tvly-first1" in str(request.headers) else found("1")

        limited = Reply(429, {}, (("Retry-After", "90"),))
        with Loopback({"*": answer}) as two_keys, Loopback({"*": limited}) as one_key:
            web = web_of({**tavily(two_keys, TAVILY_API_KEY="tvly-first1,tvly-second"), "EXA_API_KEY": "exa-test-key",
                          "EXA_API_URL": one_key.url(), "WEBSEARCH_PROVIDERS": "exa,tavily"})
            self.addCleanup(web.close)
            web.search(websearch.SearchQuery("q"), websearch.Deadline(10))
        states = {state["provider"]: state for state in websearch.provider_states(web)}
        self.assertEqual([(states[name]["state"], states[name]["keys"], states[name]["resting_keys"]) for name in ("tavily", "exa")],
                         [("ready", 2, 1), ("resting", 1, 1)])
        self.assertRegex(states["tavily"]["reason"], r"^key 1 of 2 rests for \d+ s more after: tavily: HTTP 401")
        self.assertRegex(states["exa"]["reason"], r"^rests for (89|90) s more after: exa: HTTP 429")
        self.assertNotIn("tvly-", str(states))

    def test_a_failed_connect_is_tried_once_more(self) -> None:
        import socket
        looked_up = []

        def resolve(host: str, port: int, *_: Any, **__: Any) -> Any:
            looked_up.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

        settings = websearch.Settings.from_env({"TAVILY_API_KEY": "tvly-test-key", "TAVILY_API_URL": f"http://api.test:{closed_port()}"})
        snapshot = websearch.Snapshot(settings, websearch.Transport(resolve=resolve))
        caller = websearch.Caller(snapshot, websearch.Rests(), websearch.Pace(), False)
        with self.assertRaises(websearch.ConnectFailed) as caught:
            websearch.search_one(caller, websearch.TAVILY, websearch.SearchQuery("q"), websearch.Deadline(5))
        self.assertEqual(looked_up, ["api.test"] * 2)
        self.assertEqual((caught.exception.code, caught.exception.message[:7]), ("WEB_PROVIDER_ERROR", "tavily:"))

    def test_a_502_is_tried_once_more(self) -> None:
        with Loopback() as sources:
            sources.answer("/search", 502, 502, found("1"))
            with self.assertRaises(websearch.WebError):
                search(tavily(sources))
            self.assertEqual(len(sources.requests), 2)

    def test_a_vendor_that_wants_no_retry_gets_none(self) -> None:
        for status in (503, 429):
            reply = Reply(status, {}, (("X-Should-Retry", "false"), ("Retry-After", "1")))
            with self.subTest(status), Loopback({"*": reply}) as sources:
                with self.assertRaises(websearch.WebError):
                    search(tavily(sources))
                self.assertEqual(len(sources.requests), 1)

    def test_a_second_call_opens_no_new_connection(self) -> None:
        with Loopback({"*": found("1")}) as sources:
            web = web_of(tavily(sources))
            self.addCleanup(web.close)
            for text in ("one", "two", "three"):
                web.search(websearch.SearchQuery(text), websearch.Deadline(10))
            self.assertEqual((len(sources.requests), sources.connections), (3, 1))

    def test_equal_searches_in_flight_share_one_request(self) -> None:
        with Loopback({"*": Reply(200, found("1"), delay_seconds=0.3)}) as sources:
            web = web_of(tavily(sources))
            self.addCleanup(web.close)
            results: List[Any] = []
            threads = [threading.Thread(target=lambda: results.append(
                web.search(websearch.SearchQuery("same"), websearch.Deadline(10)))) for _ in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual((len(results), len(sources.requests)), (20, 1))

    def test_cancelling_ends_the_call_and_asks_nobody_else(self) -> None:
        with RawLoopback(Hold()) as silent, Loopback({"*": found("1")}) as other:
            web = web_of({**tavily(silent), "SEARXNG_URL": other.url()})
            self.addCleanup(web.close)
            deadline = websearch.Deadline(20)
            errors: List[str] = []

            def run() -> None:
                try:
                    web.search(websearch.SearchQuery("q"), deadline)
                except websearch.WebError as error:
                    errors.append(error.code)

            thread = threading.Thread(target=run)
            thread.start()
            silent.wait_for_requests()
            cancelled_at = time.monotonic()
            deadline.cancel()
            self.assertLess(silent.wait_for_drop().at - cancelled_at, 0.1)
            thread.join(5)
            self.assertEqual((errors, other.requests), (["WEB_ABORTED"], []))

    def test_no_key_shows_when_a_provider_echoes_it(self) -> None:
        with Loopback({"*": Reply(401, {"detail": {"error": "key tvly-test-key is wrong"}})}) as sources:
            with self.assertRaises(websearch.WebError) as caught:
                search(tavily(sources), provider="tavily")
        self.assertNotIn("tvly-test-key", str(websearch.error_result(caught.exception)))


class Selection(unittest.TestCase):
    def test_an_unknown_provider_is_missing_and_an_unconfigured_one_unavailable(self) -> None:
        for name, code in (("nobody", "WEB_PROVIDER_CONFIGURED_MISSING"), ("brave", "WEB_PROVIDER_CONFIGURED_UNAVAILABLE"),
                           ("local", "WEB_PROVIDER_CONFIGURED_UNAVAILABLE")):
            with self.subTest(name), self.assertRaises(websearch.WebError) as caught:
                search({}, provider=name)
            self.assertEqual(caught.exception.code, code)

    def test_strict_selection_wants_exactly_one_configured_provider(self) -> None:
        with Loopback({"*": found("1")}) as sources:
            one = {**tavily(sources), "WEBSEARCH_SELECTION": "strict"}
            self.assertEqual(labels(search(one)), ["tavily"])
            with self.assertRaises(websearch.WebError) as several:
                search({**one, "SEARXNG_URL": sources.url()})
            with self.assertRaises(websearch.WebError) as none:
                search({"WEBSEARCH_SELECTION": "strict"})
        self.assertEqual((several.exception.code, none.exception.code),
                         ("WEB_PROVIDER_AMBIGUOUS", "WEB_PROVIDER_UNAVAILABLE"))

    def test_the_list_of_providers_replaces_order_and_set(self) -> None:
        settings = websearch.Settings.from_env({"WEBSEARCH_PROVIDERS": "searxng, tavily", "TAVILY_API_KEY": "tvly-test-key",
                                                "SEARXNG_URL": "http://h.example", "EXA_API_KEY": "exa-test-key"})
        self.assertEqual([p.id for p in websearch.provider_chain(settings)], ["searxng", "tavily"])

    def test_with_nothing_configured_keyless_modes_come_before_duckduckgo_and_open(self) -> None:
        def chain(**environ: str) -> List[str]:
            return [p.id for p in websearch.provider_chain(websearch.Settings.from_env(environ))]

        self.assertEqual(chain(), ["tavily", "you", "firecrawl", "duckduckgo", "open"])
        self.assertEqual(chain(WEBSEARCH_KEYLESS="off"), ["duckduckgo", "open"])
        self.assertEqual(chain(EXA_API_KEY="exa-test-key"), ["exa", "duckduckgo", "open"])
        self.assertEqual(chain(TAVILY_API_KEY="tvly-test-key", WEBSEARCH_KEYLESS="on"),
                         ["tavily", "you", "firecrawl", "duckduckgo", "open"])
        written_out = websearch.Settings.from_env({"FIRECRAWL_API_URL": "https://api.firecrawl.dev/v2"})  # as templates do
        self.assertEqual([p.id for p in websearch.provider_chain(written_out)], chain())
        self.assertEqual([p.id for p in websearch.page_chain(written_out, "map")], ["local"])
        self.assertEqual(chain(FIRECRAWL_API_URL="http://own.example:3002"), ["firecrawl", "duckduckgo", "open"])
        self.assertEqual(chain(XAI_API_KEY="xai-test-key")[0], "grok")
        self.assertNotIn("grok", chain(XAI_API_KEY="xai-test-key", GROK_SEARCH_URL="https://gateway.example/v1"))

    def test_a_changed_settings_file_serves_the_next_call(self) -> None:
        import os
        import tempfile
        with Loopback({"*": found("1")}) as sources, tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "env")
            web = web_of({"WEBSEARCH_CONFIG": path})
            self.addCleanup(web.close)
            with self.assertRaises(websearch.WebError):
                web.search(websearch.SearchQuery("q"), websearch.Deadline(5))
            with open(path, "w") as file:
                file.write(f"SEARXNG_URL={sources.url()}\n")
            self.assertEqual(labels(web.search(websearch.SearchQuery("q"), websearch.Deadline(5))), ["searxng"])


class Choice(unittest.TestCase):
    def test_a_provider_named_in_any_case_counts_as_chosen(self) -> None:
        settings = websearch.Settings.from_env({"WEBSEARCH_PROVIDERS": "DuckDuckGo"}, websearch.SettingsFile())
        self.assertEqual([provider.id for provider in websearch.provider_chain(settings)], ["duckduckgo"])
        self.assertTrue(websearch.availability(websearch.PROVIDER_BY_ID["duckduckgo"], settings).chosen)


class Snapshots(unittest.TestCase):
    def test_settings_that_change_during_a_call_serve_the_next_one(self) -> None:
        import os
        import tempfile
        page = "<main><h1>Kestrel</h1><p>It hovers in the wind over open fields.</p></main>"
        with tempfile.TemporaryDirectory() as folder, Loopback({"*": page}) as origin, Loopback({"*": found()}) as tavily_server:
            path = os.path.join(folder, "env")

            def answer(request: RecordedRequest) -> Any:
                with open(path, "w") as file:
                    file.write(f"TAVILY_API_URL={tavily_server.url()}\nTAVILY_API_KEY=tvly-test-key\n"
                               "WEBSEARCH_FETCH_PROVIDERS=tavily\n")
                return {"results": [{"title": "t", "url": origin.url("/a"), "content": "c"}]}

            with Loopback({"*": answer}) as sources:
                web = web_of({"WEBSEARCH_CONFIG": path, "SEARXNG_URL": sources.url()})
                self.addCleanup(web.close)
                query = websearch.SearchQuery("q", include_content=True)
                first = web.search(query, websearch.Deadline(10), "searxng")
                self.assertEqual((len(origin.requests), len(tavily_server.requests)), (1, 0))
                web.search(query, websearch.Deadline(10), "searxng")
                self.assertEqual((len(origin.requests), len(tavily_server.requests)), (1, 1))
        self.assertIn("hovers in the wind", first["sources"][0]["content"])


if __name__ == "__main__":
    unittest.main()
