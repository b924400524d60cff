"""The answer providers: requests as the vendors want them, replies in every form that has been seen, failures."""

from __future__ import annotations

import contextlib
import copy
import json
import time
import unittest
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import websearch as w
from tests.support import fixture, fixture_json

HOST = "api.example.com"
DOCS = "https://docs.example.org/kestrel/scheduler"
BLOG = "https://blog.example.com/2026/11/kestrel-3-benchmarks"
FORUM = "https://forum.example.net/t/kestrel-vs-merlin/812"
ANSWERS = (w.GROK, w.OPENAI, w.ANTHROPIC, w.CHAT, w.PERPLEXITY)
QUESTION = "How does Kestrel 3 schedule?"


def reply(body: Any, status: int = 200, headers: Optional[Mapping[str, str]] = None) -> w.Response:
    """A response of HOST with `body`: bytes, text, or what is written as JSON."""
    if not isinstance(body, (bytes, str)):
        body = json.dumps(body)
    return w.Response(f"https://{HOST}/v1/x", status, dict(headers or {"content-type": "application/json"}),
                      body.encode() if isinstance(body, str) else body)


def recorded(name: str, status: int = 200, headers: Optional[Mapping[str, str]] = None) -> w.Response:
    """The recorded reply of that name."""
    return reply(fixture(f"providers/{name}.json"), status, headers)


def parsed(provider: w.Provider, response: w.Response) -> w.SearchReply:
    """What the provider's search reads in `response`."""
    assert provider.search is not None
    result = provider.search.parse(response)
    assert isinstance(result, w.SearchReply)
    return result


def built(provider: w.Provider, query: w.SearchQuery, url: str = "https://gw.example", key: str = "k-1", model: str = "m-1",
          **options: Any) -> w.Request:
    """The search request of `provider`."""
    assert provider.search is not None
    return provider.search.build(query, w.Endpoint(url, key, model, options))


def followed(provider: w.Provider, request: w.Request, response: w.Response) -> Optional[w.Request]:
    """The further request that `response` calls for."""
    assert provider.search is not None and provider.search.follow_up is not None
    return provider.search.follow_up(request, response)


def facts(result: w.SearchReply) -> Tuple[int, str, int, bool, bool]:
    """Number of sources, first URL, how many are cited, whether there is text, whether it is cut."""
    return (len(result.sources), result.sources[0].url if result.sources else "",
            sum(source.cited for source in result.sources), bool(result.answer), result.truncated)


def error_of(provider: w.Provider, response: w.Response) -> w.WebError:
    """The WebError that parsing `response` raises."""
    try:
        parsed(provider, response)
    except w.WebError as error:
        return error
    raise AssertionError("no error came")


class EndpointTest(unittest.TestCase):
    """Users paste what their gateway's page shows."""

    def test_the_version_is_neither_lost_nor_repeated(self) -> None:
        for base, path, expected in (
                ("http://h", "v1/responses", "http://h/v1/responses"),
                ("http://h/", "v1/responses", "http://h/v1/responses"),
                ("http://h/v1", "v1/responses", "http://h/v1/responses"),
                ("http://h/v1/", "/v1/responses", "http://h/v1/responses"),
                (" http://h:8080/v1 ", "v1/responses", "http://h:8080/v1/responses"),
                ("http://h/gw", "v1/responses", "http://h/gw/v1/responses"),
                ("http://h/gw/v1", "v1/responses", "http://h/gw/v1/responses"),
                ("http://h/api/v3", "v1/chat/completions", "http://h/api/v3/chat/completions"),
                ("http://h/v1beta/openai", "v1/chat/completions", "http://h/v1beta/openai/chat/completions"),
                ("http://h/v1/account/anthropic", "v1/messages", "http://h/v1/account/anthropic/v1/messages"),
                ("http://h/v2", "v2/search", "http://h/v2/search"),
                ("http://h/v1", "v2/search", "http://h/v1/search"),
                ("http://h/searx", "search", "http://h/searx/search"),
                ("http://h/res/v1", "res/v1/web/search", "http://h/res/v1/web/search")):
            with self.subTest(base=base, path=path):
                self.assertEqual(w.join_endpoint(base, path), expected)

    def test_a_whole_endpoint_is_kept(self) -> None:
        for url, path in (("http://h/v1/responses", "v1/responses"), ("http://h/gw/responses", "v1/responses"),
                          ("http://h/v4/chat/completions", "v1/chat/completions"), ("http://h/search", "search"),
                          ("http://h/anthropic/v1/messages", "v1/messages")):
            with self.subTest(url=url):
                self.assertEqual(w.join_endpoint(url + "/", path), url)

    def test_a_key_makes_a_bearer_header(self) -> None:
        self.assertEqual(w.bearer(w.Endpoint("https://h", "k-1")), {"Authorization": "Bearer k-1"})
        self.assertEqual(w.bearer(w.Endpoint("https://h")), {})


class SourceTest(unittest.TestCase):
    """Fields of strangers become a source or nothing."""

    def test_fields_are_cleaned(self) -> None:
        source = w.shown_source(f" {DOCS}?a=1&utm_source=openai#top ", "<b>Queues</b> &amp; cores\n", "uses <i>T</i>&#x27;s",
                                "November 2, 2026", 0.5, "text\x00 of page")
        self.assertEqual(source, w.Source(f"{DOCS}?a=1#top", "Queues & cores", "uses T's", "2026-11-02", 0.5, "",
                                          "text of page"))

    def test_the_vendors_tracking_parameter_goes_from_wherever_it_stands(self) -> None:
        for tail, kept in (("?utm_source=openai", ""), ("?utm_source=openai&x=1", "?x=1"), ("?x=1&utm_source=openai", "?x=1"),
                           ("?utm_source=openai#a", "#a"), ("?utm_source=openair", "?utm_source=openair")):
            with self.subTest(tail=tail):
                self.assertEqual(w.shown_url(DOCS + tail), DOCS + kept)

    def test_only_web_addresses_are_sources(self) -> None:
        for url in ("", None, 5, [], {}, "ftp://h/x", "javascript:alert(1)", "docs.example.org", "https://", "https://[::",
                    "https://h/a\nb", "https://h/" + "x" * w.MAX_URL_CHARS):
            with self.subTest(url=str(url)[:30]):
                self.assertIsNone(w.shown_source(url, "Title"))

    def test_numbers_and_addresses_are_no_titles(self) -> None:
        for title in ("", " ", "1", "[12]", "(3)", DOCS, DOCS + "/", DOCS + "?utm_source=openai", None, 7, ["x"],
                      "docs.example.org/kestrel/scheduler"):
            with self.subTest(title=title):
                self.assertEqual(w.shown_title(title, DOCS), "")
        self.assertEqual(w.shown_title("2026 in review", DOCS), "2026 in review")

    def test_every_text_is_capped(self) -> None:
        source = w.shown_source(DOCS, "t" * 9_999, "s" * 99_999, "", None, "c" * 999_999)
        assert source is not None
        self.assertEqual((len(source.title), len(source.snippet), len(source.content)),
                         (w.MAX_TITLE_CHARS, w.MAX_SNIPPET_CHARS, w.MAX_CHAR_LIMIT))

    def test_fields_of_any_type_do_no_harm(self) -> None:
        for junk in (None, 5, True, [], {}, ["x"], float("nan"), float("inf"), 10 ** 400):
            with self.subTest(junk=str(junk)[:20]):
                source = w.shown_source(DOCS, junk, junk, junk, "0.5", junk)
                self.assertEqual(source, w.Source(DOCS))

    def test_junk_items_are_skipped_and_an_address_comes_once_with_all_that_is_known(self) -> None:
        items: List[Any] = [None, 5, "junk", {"title": "no url"}, {"url": DOCS}, {"url": DOCS + "/#part", "title": "Queues"},
                            {"url": BLOG, "title": None}]
        sources = w.sources_from(items, lambda item: w.shown_source(
            item if isinstance(item, str) else item.get("url"), w.text_of(item, "title")))
        self.assertEqual(sources, (w.Source(DOCS, "Queues"), w.Source(BLOG)))
        self.assertEqual(w.sources_from({"url": DOCS}, lambda item: w.Source(DOCS)), ())

    def test_a_flood_of_sources_is_capped(self) -> None:
        sources = w.sources_from([f"https://h/{n}" for n in range(999)], w.shown_source)
        self.assertEqual(len(sources), w.MAX_REPLY_SOURCES)


class FailureTest(unittest.TestCase):
    """A status and a body become one error; the status alone often lies."""

    def test_recorded_failures_have_their_class(self) -> None:
        for name, status, provider, kind in (
                ("xai_error_bad_key", 400, w.GROK, "auth"), ("xai_error_no_auth", 401, w.GROK, "auth"),
                ("xai_error_no_credits", 403, w.GROK, "quota"), ("xai_error_model", 404, w.GROK, "not_found"),
                ("xai_error_live_search_gone", 410, w.GROK, "bad_request"),
                ("xai_error_field", 422, w.GROK, "bad_request"), ("xai_error_rate", 429, w.GROK, "rate"),
                ("openai_error_key", 401, w.OPENAI, "auth"), ("openai_error_quota", 429, w.OPENAI, "quota"),
                ("openai_error_rate", 429, w.OPENAI, "rate"), ("openai_error_tool", 400, w.OPENAI, "bad_request"),
                ("anthropic_error_key", 401, w.ANTHROPIC, "auth"), ("anthropic_error_rate", 429, w.ANTHROPIC, "rate"),
                ("anthropic_error_overloaded", 529, w.ANTHROPIC, "server"),
                ("anthropic_error_sampling", 400, w.ANTHROPIC, "bad_request"),
                ("perplexity_error_key", 401, w.PERPLEXITY, "auth"),
                ("perplexity_error_rate", 429, w.PERPLEXITY, "rate"),
                ("perplexity_search_error_validation", 422, w.PERPLEXITY, "bad_request"),
                ("perplexity_sonar_retired", 400, w.PERPLEXITY, "unsupported")):
            with self.subTest(name):
                response = recorded(name, status)
                explained = provider.explain(response) if provider.explain else None
                error = w.provider_error(provider, response)
                self.assertEqual((explained or (w.error_class(response),))[0], kind)
                self.assertEqual((error.code, error.reason), w.ERROR_CLASSES[kind])
                self.assertEqual((error.provider, error.status), (provider.id, status))
                self.assertIn(f"HTTP {status} from {HOST}", str(error))
                self.assertTrue(str(error).endswith("."), str(error))

    def test_invented_failures_have_their_class(self) -> None:
        html = "<html><title>Just a moment…</title></html>"
        for status, body, headers, kind in (
                (400, {"error": {"message": "Your credit balance is too low to access the API."}}, {}, "quota"),
                (400, {"error": {"message": "API key not valid. Please pass a valid API key."}}, {}, "auth"),
                *((400, {"error": {"message": words}}, {}, "auth") for words in (
                    "Authentication failed: token expired", "Invalid token", "Malformed API key", "Your API key has been disabled.")),
                *((422, {"error": words}, {}, "bad_request") for words in (
                    "max_tokens: invalid value", "Invalid token count", "invalid JSON: unexpected token }", "Invalid token at 5")),
                (401, "", {}, "auth"), (402, "", {}, "quota"), (403, {"error": "no"}, {}, "auth"),
                (403, {"message": "API rate limit exceeded"}, {}, "rate"),
                (404, "", {}, "not_found"), (404, {"error": {"code": "SUBSCRIPTION_NOT_FOUND"}}, {}, "auth"), (408, "", {}, "timeout"), (418, "", {}, "bad_request"),
                (422, {"error": {"code": "SUBSCRIPTION_TOKEN_INVALID", "detail": "No."}}, {}, "auth"),
                (429, {"error": {"code": "QUOTA_LIMITED"}}, {}, "quota"), (432, "", {}, "quota"), (433, "", {}, "quota"),
                (403, html, {"cf-mitigated": "challenge"}, "blocked"), (501, "", {}, "unsupported"),
                (500, {"error": {"code": "insufficient_quota"}}, {}, "server"), (502, html, {}, "server"),
                (529, "", {}, "server"), (302, "", {"location": "https://other.example/x?key=1"}, "unsupported"),
                (200, {"error": {"code": 429, "message": "slow down"}}, {}, "rate"),
                (200, {"error": {"code": "model_not_found"}}, {}, "not_found"),
                (200, {"error": {"type": "invalid_request_error"}}, {}, "bad_request"),
                (200, {"error": "boom"}, {}, "server")):
            with self.subTest(status=status, body=body):
                self.assertEqual(w.error_class(reply(body, status, headers)), kind)

    def test_the_vendors_words_are_found_wherever_they_stand(self) -> None:
        for body, words in (
                ({"error": {"message": "a b"}, "message": "x y"}, "a b"), ({"error": "c d"}, "c d"),
                ({"detail": {"error": "Invalid country: IT."}}, "Invalid country: IT."),
                ({"error": {"detail": "e f"}}, "e f"), ({"detail": "g h"}, "g h"),
                ({"detail": [{"loc": ["body", "max_results"], "msg": "too large"}, None, 5]}, "max_results: too large"),
                ({"message": "i j"}, "i j"), ({"readableMessage": "k l"}, "k l"),
                ({"error": "payment_required", "message": "Free limit reached."}, "payment_required: Free limit reached."),
                ({"error": "Bad Request", "details": [{"path": ["limit"], "message": "is 100 at most"}]},
                 "Bad Request: limit: is 100 at most"),
                ("<html><head><title>502 Bad\n Gateway</title></head><p>x</p></html>", "502 Bad Gateway"),
                ("plain words", "plain words"), ("", ""), ({"error": None, "detail": 5}, '{"error": null, "detail": 5}')):
            with self.subTest(body=body):
                self.assertEqual(w.vendor_words(reply(body, 400)), words)

    def test_the_vendors_words_are_short_and_hold_no_key(self) -> None:
        w.remember_secret("CASE/SECRET+1234567")
        said = ("Key CASE/SECRET+1234567 and CASE%2FSECRET%2B1234567 refused. Incorrect API key provided: pri***ate. "
                "Your api key: unregistered-key is invalid; Bearer abc.def; sk-proj-0123456789abcdef " + "x" * 5_000)
        words = w.vendor_words(reply({"error": {"message": said}}, 401))
        self.assertLessEqual(len(words), 300)
        for part in ("SECRET", "pri*", "ate.", "unregistered", "abc.def", "sk-proj"):
            self.assertNotIn(part, words)
        self.assertIn("refused", words)

    def test_the_message_names_provider_status_host_words_and_remedy(self) -> None:
        error = w.provider_error(w.GROK, recorded("xai_error_model", 404))
        self.assertEqual(error.message, (
            f"grok: HTTP 404 from {HOST}: The model grok-0 does not exist or your team does not have access to it. Check "
            "GROK_SEARCH_URL and GROK_SEARCH_MODEL (models are retired now and then)."))

    def test_a_redirect_names_the_host_that_it_leads_to_and_nothing_more(self) -> None:
        error = w.provider_error(w.OPENAI, reply("", 307, {"location": "https://other.example/v1?key=SECRET99"}))
        self.assertEqual(error.code, w.WEB_PROVIDER_ERROR)
        self.assertIn("redirects to other.example", error.message)
        self.assertNotIn("SECRET99", error.message)

    def test_the_providers_own_explanation_goes_first(self) -> None:
        row = w.GROK._replace(explain=lambda response: ("blocked", "Stay away."))
        error = w.provider_error(row, reply({"error": "hm"}, 400))
        self.assertEqual((error.code, error.reason, error.message),
                         (w.WEB_PROVIDER_BLOCKED, "blocked", f"grok: HTTP 400 from {HOST}: hm. Stay away."))

    def test_web_search_that_is_switched_off_is_explained(self) -> None:
        body = {"type": "error", "error": {"type": "invalid_request_error", "message": "web search is not enabled"}}
        self.assertIn("administrator", w.provider_error(w.ANTHROPIC, reply(body, 400)).message)

    def test_every_class_has_a_known_code(self) -> None:
        for kind, (code, reason) in w.ERROR_CLASSES.items():
            with self.subTest(kind):
                self.assertIn(code, w.ERROR_CODES)
                self.assertIn(reason, ("timeout", "auth_error", "rate_limited", "parse_error", "provider_error",
                                       "content_empty", "sources_empty", "access_error", "blocked"))


class RetryAfterTest(unittest.TestCase):
    """How long a vendor asks to wait, in all its spellings."""

    def test_headers(self) -> None:
        date = "Mon, 30 Nov 2026 10:00:00 GMT"
        now = 1_796_032_800.0 - 30  # half a minute before
        for headers, expected in (
                ({}, None), ({"retry-after": "20"}, 20.0), ({"retry-after": " 1.5 "}, 1.5), ({"retry-after": "0"}, 0.0),
                ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5), ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
                ({"retry-after": date}, 30.0), ({"retry-after": "Mon, 30 Nov 2020 10:00:00 GMT"}, 0.0),
                ({"retry-after": "-5"}, None), ({"retry-after": "nan"}, None), ({"retry-after": "soon"}, None),
                ({"retry-after": "inf"}, w.MAX_RETRY_AFTER_SECONDS), ({"retry-after": "9" * 400}, w.MAX_RETRY_AFTER_SECONDS),
                ({"x-ratelimit-remaining": "0, 1689", "x-ratelimit-reset": "1, 904213"}, 1.0),
                ({"x-ratelimit-remaining": "1, 0", "x-ratelimit-reset": "1, 904213"}, 904213.0),
                ({"x-ratelimit-remaining": "0,0", "x-ratelimit-reset": "1,60"}, 60.0),
                ({"x-ratelimit-limit": "1, 0", "x-ratelimit-remaining": "0, 0", "x-ratelimit-reset": "1, 904213"}, 1.0),
                ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "²"}, None),
                ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(now) + 90)}, 90.0)):
            with self.subTest(headers=headers):
                self.assertEqual(w.retry_after_seconds(reply("", 429, headers), now), expected)

    def test_without_a_clock_the_replys_own_date_serves(self) -> None:
        later = {"retry-after": "Mon, 30 Nov 2026 10:01:00 GMT"}
        self.assertEqual(w.retry_after_seconds(reply("", 429, {"date": "Mon, 30 Nov 2026 10:00:00 GMT", **later})), 60.0)
        self.assertIsNone(w.retry_after_seconds(reply("", 429, later)))

    def test_bodies(self) -> None:
        for body, expected in (
                ({"error": {"retry_after_seconds": 1800}}, 1800.0), ({"retryAfter": 30}, 30.0), ({"retry_after": "7"}, 7.0),
                ({"retryAfter": -1}, None), ({"retryAfter": True}, None), ({"retryAfter": [3]}, None),
                ({"error": {"message": "Please try again in 20s."}}, 20.0),
                ({"error": {"message": "Please try again in 250ms."}}, 0.25),
                ({"error_message": "too many requests from this IP, more requests available in 64113 seconds"}, 64113.0),
                ({"error": {"message": "try again in a while"}}, None), ([], None), ("<html>", None)):
            with self.subTest(body=body):
                self.assertEqual(w.retry_after_seconds(reply(body, 429)), expected)

    def test_the_error_carries_it(self) -> None:
        headers = {"retry-after": "20", "retry-after-ms": "20000"}
        self.assertEqual(w.provider_error(w.OPENAI, recorded("openai_error_rate", 429, headers)).retry_after_seconds, 20.0)


PLAIN = w.SearchQuery(QUESTION, today="2026-11-30")
RECENT = w.SearchQuery(QUESTION, recency_days=7, today="2026-11-30")
ONLY = w.SearchQuery(QUESTION, include_domains=("a.example", "b.example"), today="2026-11-30")
NOT = w.SearchQuery(QUESTION, exclude_domains=("c.example",), today="2026-11-30")
BOTH = w.SearchQuery(QUESTION, include_domains=("a.example",), exclude_domains=("c.example",), today="2026-11-30")
MANY = w.SearchQuery(QUESTION, include_domains=tuple(f"s{n}.example" for n in range(6)), today="2026-11-30")
ALL = w.SearchQuery(QUESTION, recency_days=7, include_domains=("a.example",), exclude_domains=("c.example",), today="2026-11-30")
SAID_RECENT = "Use only pages published within the last 7 days, that is on or after 2026-11-23."
SAID_ONLY = "Use only pages of these sites: a.example, b.example."
SAID_NOT = "Use no page of these sites: c.example."


class RequestTest(unittest.TestCase):
    """Bodies as each vendor wants them."""

    def test_a_grok_body_in_full(self) -> None:
        request = built(w.GROK, PLAIN)
        body = request.json()
        self.assertIn("Today is 2026-11-30.", body.pop("instructions"))
        self.assertEqual(body, {
            "model": "m-1", "input": [{"role": "user", "content": QUESTION}], "tools": [{"type": "web_search"}],
            "tool_choice": "required", "include": ["web_search_call.action.sources"], "max_turns": 3, "store": False,
            "stream": False})
        self.assertEqual((request.method, request.url), ("POST", "https://gw.example/v1/responses"))
        self.assertEqual(request.headers, {"Content-Type": "application/json", "Accept": "application/json",
                                           "Authorization": "Bearer k-1"})

    def test_grok_takes_five_domains_of_one_kind_and_is_told_the_rest(self) -> None:
        for query, filters, said in (
                (RECENT, None, SAID_RECENT), (ONLY, {"allowed_domains": ["a.example", "b.example"]}, ""),
                (NOT, {"excluded_domains": ["c.example"]}, ""), (BOTH, {"allowed_domains": ["a.example"]}, SAID_NOT),
                (MANY, None, "Use only pages of these sites: s0.example, s1.example, s2.example, s3.example, s4.example, "
                 "s5.example."),
                (ALL, {"allowed_domains": ["a.example"]}, f"{SAID_RECENT} {SAID_NOT}")):
            with self.subTest(query=query):
                body = built(w.GROK, query).json()
                self.assertEqual(body["tools"], [{"type": "web_search", **({"filters": filters} if filters else {})}])
                self.assertEqual(body["input"][0]["content"], QUESTION + (f"\n\n{said}" if said else ""))

    def test_grok_searches_posts_when_asked_to_and_no_site_is_named(self) -> None:
        self.assertEqual(built(w.GROK, RECENT, GROK_SEARCH_X_SEARCH=True).json()["tools"],
                         [{"type": "web_search"}, {"type": "x_search", "from_date": "2026-11-23"}])
        self.assertEqual(len(built(w.GROK, ONLY, GROK_SEARCH_X_SEARCH=True).json()["tools"]), 1)

    def test_an_openai_body_in_full(self) -> None:
        request = built(w.OPENAI, ONLY, OPENAI_SEARCH_TOOL="web_search", OPENAI_SEARCH_CONTEXT_SIZE="low",
                        OPENAI_SEARCH_MAX_TOKENS=4096)
        body = request.json()
        body.pop("instructions")
        self.assertEqual(body, {
            "model": "m-1", "input": QUESTION, "tools": [
                {"type": "web_search", "search_context_size": "low", "filters": {"allowed_domains": ["a.example", "b.example"]}}],
            "tool_choice": "required", "include": ["web_search_call.action.sources"], "max_tool_calls": 3,
            "max_output_tokens": 4096, "store": False, "stream": False})
        self.assertEqual(request.url, "https://gw.example/v1/responses")

    def test_openai_filters(self) -> None:
        for query, filters, said in ((PLAIN, None, ""), (NOT, {"blocked_domains": ["c.example"]}, ""),
                                     (ALL, {"allowed_domains": ["a.example"]}, f"{SAID_RECENT} {SAID_NOT}")):
            with self.subTest(query=query):
                body = built(w.OPENAI, query).json()
                self.assertEqual(body["tools"], [{"type": "web_search", **({"filters": filters} if filters else {})}])
                self.assertEqual(body["input"], QUESTION + (f"\n\n{said}" if said else ""))

    def test_openais_old_tool_has_no_filters_and_is_chosen_by_type(self) -> None:
        body = built(w.OPENAI, ONLY, OPENAI_SEARCH_TOOL="web_search_preview").json()
        self.assertEqual((body["tools"], body["tool_choice"]),
                         ([{"type": "web_search_preview"}], {"type": "web_search_preview"}))
        self.assertEqual(body["input"], f"{QUESTION}\n\n{SAID_ONLY}")

    def test_an_openai_endpoint_at_xai_gets_xais_form(self) -> None:
        for url, model in (("https://api.x.ai/v1", "m-1"), ("https://eu-west-1.api.x.ai/v1", "m-1"),
                           ("https://gw.example", "grok-4.3")):
            with self.subTest(url=url, model=model):
                text = (built(w.OPENAI, NOT, url, model=model, OPENAI_SEARCH_CONTEXT_SIZE="high").body or b"").decode()
                self.assertIn("excluded_domains", text)
                for name in ("search_context_size", "user_location", "search_parameters", "blocked_domains", "max_tool_calls"):
                    self.assertNotIn(name, text)

    def test_an_anthropic_body_in_full(self) -> None:
        request = built(w.ANTHROPIC, ONLY, "https://api.anthropic.com/v1", ANTHROPIC_SEARCH_TOOL="web_search_20250305",
                        ANTHROPIC_SEARCH_VERSION="2026-10-21", ANTHROPIC_SEARCH_MAX_TOKENS=2048, ANTHROPIC_SEARCH_MAX_USES=5)
        body = request.json()
        self.assertIn("Search the web", body.pop("system"))
        self.assertEqual(body, {
            "model": "m-1", "max_tokens": 2048, "messages": [{"role": "user", "content": QUESTION}], "tools": [
                {"type": "web_search_20250305", "name": "web_search", "max_uses": 5,
                 "allowed_domains": ["a.example", "b.example"]}],
            "stream": False})
        self.assertEqual(request.url, "https://api.anthropic.com/v1/messages")
        self.assertEqual(request.headers, {"Content-Type": "application/json", "Accept": "application/json",
                                           "anthropic-version": "2026-10-21", "x-api-key": "k-1"})

    def test_other_hosts_of_the_messages_form_get_the_key_in_both_headers(self) -> None:
        request = built(w.ANTHROPIC, NOT, "https://api.deepseek.example/anthropic")
        self.assertEqual(request.url, "https://api.deepseek.example/anthropic/v1/messages")
        self.assertEqual((request.headers["x-api-key"], request.headers["Authorization"]), ("k-1", "Bearer k-1"))
        self.assertEqual(request.json()["tools"][0]["blocked_domains"], ["c.example"])

    def test_newer_anthropic_tools_are_kept_from_searching_within_code(self) -> None:
        tool = built(w.ANTHROPIC, PLAIN, ANTHROPIC_SEARCH_TOOL="web_search_20260318").json()["tools"][0]
        self.assertEqual(tool["allowed_callers"], ["direct"])

    def test_chat_modes(self) -> None:
        for options, added in (
                ({}, {}), ({"CHAT_SEARCH_MODE": "search-model", "CHAT_SEARCH_CONTEXT_SIZE": "low"}, {}),
                ({"CHAT_SEARCH_MODE": "vendor-options", "CHAT_SEARCH_FIELD": "web_search_options"}, {"web_search_options": {}}),
                ({"CHAT_SEARCH_MODE": "vendor-options", "CHAT_SEARCH_FIELD": "search", "CHAT_SEARCH_CONTEXT_SIZE": "high"},
                 {"search": {"search_context_size": "high"}}),
                ({"CHAT_SEARCH_MODE": "tools"}, {"tools": [{"type": "web_search"}]})):
            with self.subTest(options=options):
                request = built(w.CHAT, ALL, CHAT_SEARCH_MAX_TOKENS=4096, **options)
                body = request.json()
                self.assertEqual(body.pop("messages")[1], {
                    "role": "user",
                    "content": f"{QUESTION}\n\n{SAID_RECENT} Use only pages of these sites: a.example. {SAID_NOT}"})
                self.assertEqual(body, {"model": "m-1", "max_tokens": 4096, "stream": False, **added})
                self.assertEqual(request.url, "https://gw.example/v1/chat/completions")

    def test_chat_works_without_a_key(self) -> None:
        self.assertNotIn("Authorization", built(w.CHAT, PLAIN, key="").headers)

    def test_a_perplexity_body_in_full(self) -> None:
        request = built(w.PERPLEXITY, PLAIN, "https://api.perplexity.ai", model="")
        body = request.json()
        body.pop("instructions")
        self.assertEqual(body, {"model": "perplexity/sonar", "input": QUESTION, "tools": [{"type": "web_search"}]})
        self.assertEqual(request.url, "https://api.perplexity.ai/v1/responses")

    def test_perplexity_filters(self) -> None:
        for query, filters, said in (
                (RECENT, {"search_after_date_filter": "11/23/2026"}, ""),
                (NOT, {"search_domain_filter": ["-c.example"]}, ""),
                (ALL, {"search_domain_filter": ["a.example"], "search_after_date_filter": "11/23/2026"}, SAID_NOT)):
            with self.subTest(query=query):
                body = built(w.PERPLEXITY, query).json()
                self.assertEqual(body["tools"], [{"type": "web_search", "filters": filters}])
                self.assertEqual(body["input"], QUESTION + (f"\n\n{said}" if said else ""))

    def test_what_a_row_claims_to_filter_is_in_its_request(self) -> None:
        for provider in ANSWERS:
            for query in (RECENT, ONLY, NOT):
                with self.subTest(provider=provider.id, filters=query.filters):
                    text = (built(provider, query).body or b"").decode()
                    is_told = "Use only pages" in text or "Use no page" in text
                    self.assertEqual(is_told, query.filters[0] not in provider.filters)

    def test_the_query_is_sent_whole(self) -> None:
        asked = 'a&b=c #1 +ü "x" \u2028 \ud800'
        for provider in ANSWERS:
            with self.subTest(provider.id):
                text = (built(provider, w.SearchQuery(asked)).body or b"").decode()
                self.assertIn(json.dumps(asked[:-1], ensure_ascii=False)[1:-1], text)

    def test_a_date_before_the_calendar_is_no_limit(self) -> None:
        self.assertEqual([w._first_day(w.SearchQuery("q", today=today, recency_days=days)) for today, days in (
            ("2026-03-01", 1), ("2026-02-31", 1), ("0001-01-02", 9), ("", 9), ("2026-03-01", None))],
            ["2026-02-28", "", "", "", ""])

    def test_no_row_shows_its_key(self) -> None:
        for provider in ANSWERS:
            with self.subTest(provider.id):
                request = built(provider, PLAIN, key="very-secret-key")
                self.assertNotIn("very-secret-key", repr(request) + request.url + (request.body or b"").decode())


class FollowUpTest(unittest.TestCase):
    """Some replies call for a further request."""

    def test_fields_that_gateways_refuse_are_left_out_once(self) -> None:
        for provider in (w.GROK, w.OPENAI):
            for status in (400, 422):
                with self.subTest(provider=provider.id, status=status):
                    first = built(provider, ONLY)
                    second = followed(provider, first, reply({"error": "unknown field `include`"}, status))
                    assert second is not None
                    left_out = set(first.json()) - set(second.json())
                    self.assertLessEqual(left_out, {"include", "max_turns", "max_tool_calls"})
                    self.assertIn("include", left_out)
                    self.assertEqual((second.url, second.headers), (first.url, first.headers))
                    self.assertEqual(second.json()["tools"], first.json()["tools"])
                    self.assertIsNone(followed(provider, second, reply({"error": "no"}, status)))

    def test_no_second_request_for_a_good_reply_or_another_failure(self) -> None:
        request = built(w.GROK, PLAIN)
        for response in (recorded("xai_success"), recorded("xai_error_bad_key", 400), recorded("xai_error_rate", 429),
                         recorded("xai_error_model", 404), reply("", 500)):
            with self.subTest(status=response.status):
                self.assertIsNone(followed(w.GROK, request, response))

    def test_the_tool_choice_stays_a_word(self) -> None:
        refused = reply({"error": "data did not match any variant of untagged enum ModelToolChoice"}, 422)
        request = built(w.GROK, PLAIN)
        second = followed(w.GROK, request, refused)
        assert second is not None
        self.assertEqual((request.json()["tool_choice"], second.json()["tool_choice"]), ("required", "required"))
        self.assertIn("ModelToolChoice", w.provider_error(w.GROK, refused).message)

    def test_a_refused_tool_choice_is_left_out(self) -> None:
        second = followed(w.OPENAI, built(w.OPENAI, PLAIN), reply({"error": "tool_choice must be auto"}, 400))
        assert second is not None
        self.assertNotIn("tool_choice", second.json())

    def test_a_paused_turn_is_continued_with_its_content_unchanged(self) -> None:
        first = built(w.ANTHROPIC, PLAIN)
        paused = recorded("anthropic_pause_turn")
        second = followed(w.ANTHROPIC, first, paused)
        assert second is not None
        content = fixture_json("providers/anthropic_pause_turn.json")["content"]
        self.assertEqual(second.json(), {**first.json(), "messages": [
            {"role": "user", "content": QUESTION}, {"role": "assistant", "content": content}]})
        third = followed(w.ANTHROPIC, second, paused)
        assert third is not None
        self.assertEqual(third.json()["messages"][1:], [{"role": "assistant", "content": content + content}])
        self.assertEqual(followed(w.ANTHROPIC, first, messages_stream(fixture_json("providers/anthropic_pause_turn.json"))), second)
        self.assertIsNone(followed(w.ANTHROPIC, first, recorded("anthropic_success")))
        self.assertIsNone(followed(w.ANTHROPIC, first, reply("<html>")))
        self.assertIsNone(followed(w.ANTHROPIC, first, recorded("anthropic_error_rate", 429)))

    def test_rounds_of_a_paused_turn_are_one_reply(self) -> None:
        first = parsed(w.ANTHROPIC, recorded("anthropic_pause_turn"))
        last = parsed(w.ANTHROPIC, reply({"content": [{"type": "text", "text": "Per-core queues."}],
                                          "stop_reason": "end_turn"}))
        whole = w.join_replies([first, last])
        self.assertEqual((w.verify(w.ANTHROPIC, first), w.verify(w.ANTHROPIC, last), w.verify(w.ANTHROPIC, whole)),
                         ("content_empty", "sources_empty", ""))
        self.assertEqual((whole.answer, [source.url for source in whole.sources], whole.message),
                         ("Per-core queues.", [DOCS], ""))
        self.assertEqual(w.join_replies([last]), last)
        # only a turn that is paused at the end is incomplete
        self.assertEqual((whole.truncated, whole.notes), (False, ()))
        self.assertIn("pause_turn", w.join_replies([last, first]).notes[0])

    def test_a_chat_server_that_wants_the_new_name_of_the_token_limit_gets_it(self) -> None:
        refused = reply({"error": {"message": "Use 'max_completion_tokens' instead."}}, 400)
        first = built(w.CHAT, PLAIN, CHAT_SEARCH_MAX_TOKENS=100)
        second = followed(w.CHAT, first, refused)
        assert second is not None
        self.assertEqual(second.json()["max_completion_tokens"], 100)
        self.assertIsNone(followed(w.CHAT, second, refused))
        official = built(w.CHAT, PLAIN, "https://api.openai.com/v1", CHAT_SEARCH_MAX_TOKENS=100).json()
        self.assertEqual((official.get("max_tokens"), official["max_completion_tokens"]), (None, 100))


def message_with(text: Any, annotations: Sequence[Any] = (), *more: Any, **members: Any) -> w.Response:
    """A Responses reply with one message, whatever other items, and further top-level members."""
    part = {"type": "output_text", "text": text, "annotations": list(annotations)}
    return reply({"status": "completed", "output": [*more, {"type": "message", "content": [part]}], **members})


def chat_with(message: Mapping[str, Any], finish: str = "stop", **members: Any) -> w.Response:
    """A Chat Completions reply with one message and further top-level members."""
    return reply({"choices": [{"message": dict(message), "finish_reason": finish}], **members})


def messages_stream(whole: Mapping[str, Any]) -> w.Response:
    """The Messages object `whole` as the events of a stream, its texts and what its tools were asked in pieces."""
    events: List[Any] = [{"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}, {"type": "ping"}]
    for index, block in enumerate(whole["content"]):
        start, deltas = block, [{"type": "citations_delta", "citation": citation} for citation in block.get("citations", [])]
        for member, kind, empty in (("text", "text", ""), ("input", "partial_json", {})):
            if member in block:
                start = {**{name: value for name, value in block.items() if name != "citations"}, member: empty}
                words = block[member] if member == "text" else json.dumps(block[member])
                deltas += [{"type": f"{member}_delta", kind: words[:5]}, {"type": f"{member}_delta", kind: words[5:]}]
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    return stream(*events, {"type": "message_delta", "delta": {"stop_reason": whole["stop_reason"]}}, {"type": "message_stop"})


SEARCH_CALL = {"type": "web_search_call", "status": "completed", "action": {"type": "search", "sources": []}}


class ReadingTest(unittest.TestCase):
    """Answers and sources in every form that has been seen."""

    def test_recorded_answers_are_read_and_verified(self) -> None:
        for name, provider, expected in (
                ("xai_success", w.GROK, (3, DOCS, 2, True, False)),
                ("xai_x_search", w.GROK, (1, "https://x.com/i/status/1990000000000000001", 1, True, False)),
                ("xai_top_level_citations", w.GROK, (2, DOCS, 0, True, False)),
                ("xai_incomplete", w.GROK, (1, DOCS, 0, True, True)),
                ("gateway_responses_name_form", w.GROK, (1, DOCS, 1, True, False)),
                ("gateway_chat_success", w.GROK, (2, DOCS, 1, True, False)),
                ("gateway_chat_success", w.CHAT, (2, DOCS, 1, True, False)),
                ("gateway_chat_parts", w.CHAT, (2, DOCS, 1, True, False)),
                ("openai_success", w.OPENAI, (2, DOCS, 1, True, False)),
                ("openai_chat_success", w.CHAT, (1, DOCS, 1, True, False)),
                ("anthropic_success", w.ANTHROPIC, (2, DOCS, 1, True, False)),
                ("anthropic_web_fetch", w.ANTHROPIC, (1, DOCS, 0, True, False)),
                ("deepseek_messages_success", w.ANTHROPIC, (2, DOCS, 1, True, False)),
                ("perplexity_agent_success", w.PERPLEXITY, (2, DOCS, 1, True, False)),
                ("perplexity_sonar_legacy", w.PERPLEXITY, (2, DOCS, 1, True, False)),
                ("perplexity_sonar_legacy", w.CHAT, (2, DOCS, 1, True, False))):
            with self.subTest(name=name, provider=provider.id):
                result = parsed(provider, recorded(name))
                self.assertEqual(facts(result), expected)
                self.assertEqual((w.verify(provider, result), result.searched, result.native), ("", True, expected[0]))

    def test_recorded_replies_without_proof_are_not_verified(self) -> None:
        for name, provider, searched, has_text, reason in (
                ("xai_no_search", w.GROK, False, True, "sources_empty"),
                ("openai_no_search", w.OPENAI, False, True, "sources_empty"),
                ("openai_source_api", w.OPENAI, True, True, "sources_empty"),
                ("openai_refusal", w.OPENAI, False, False, "content_empty"),
                ("anthropic_empty", w.ANTHROPIC, True, True, "sources_empty"),
                ("anthropic_pause_turn", w.ANTHROPIC, True, False, "content_empty"),
                ("gateway_tool_not_executed", w.CHAT, False, False, "sources_empty"),
                ("deepseek_messages_no_result_block", w.ANTHROPIC, False, True, "sources_empty")):
            with self.subTest(name):
                result = parsed(provider, recorded(name))
                self.assertEqual((result.searched, bool(result.answer), w.verify(provider, result)),
                                 (searched, has_text, reason))
                self.assertTrue(result.message.startswith(provider.id + ": "), result.message)

    def test_recorded_failures_with_status_200_are_errors(self) -> None:
        for name, provider, kind, words in (
                ("openai_failed", w.OPENAI, "server", "had an error while processing"),
                ("perplexity_agent_failed", w.PERPLEXITY, "server", "overloaded"),
                ("anthropic_tool_error", w.ANTHROPIC, "bad_request", "max_uses_exceeded")):
            with self.subTest(name):
                error = error_of(provider, recorded(name))
                self.assertEqual((error.code, error.reason), w.ERROR_CLASSES[kind])
                self.assertIn(words, error.message)

    def test_grok_sources_in_full(self) -> None:
        self.assertEqual(parsed(w.GROK, recorded("xai_success")).sources, (
            w.Source(DOCS, cited=True), w.Source(BLOG, cited=True), w.Source(FORUM)))

    def test_openai_sources_in_full(self) -> None:
        result = parsed(w.OPENAI, recorded("openai_success"))
        self.assertEqual(result.sources, (
            w.Source(DOCS, "Scheduler design — Kestrel documentation", cited=True), w.Source(FORUM)))
        self.assertEqual(result.answer, f"Kestrel 3 moved to per-core queues ([docs.example.org]({DOCS})).")

    def test_anthropic_reply_in_full(self) -> None:
        result = parsed(w.ANTHROPIC, recorded("anthropic_success"))
        self.assertEqual(result, w.SearchReply("Kestrel 3 moved to per-core queues, which cut tail latency.", (
            w.Source(DOCS, "Scheduler design — Kestrel documentation",
                     "Each core owns a run queue; idle cores steal from their neighbours.", "2026-11-02", cited=True),
            w.Source(BLOG, "Kestrel 3 benchmarks: work stealing revisited")), True, 2))

    def test_perplexity_sources_in_full(self) -> None:
        self.assertEqual(parsed(w.PERPLEXITY, recorded("perplexity_agent_success")).sources, (
            w.Source(DOCS, "Scheduler design — Kestrel documentation", "Each core owns a run queue.", "2026-11-02", cited=True),
            w.Source(BLOG, "Kestrel 3 benchmarks: work stealing revisited", "1.4 times the throughput.")))

    def test_items_are_found_by_type_wherever_they_stand(self) -> None:
        result = parsed(w.GROK, reply(fixture("cases/B28_response.json")))
        self.assertEqual(result.answer, "Lisbon is the capital [[1]](https://a.example.test/pt). It lies on the Tagus.")
        self.assertEqual(result.sources, (
            w.Source("https://a.example.test/pt", "Portugal", cited=True),
            w.Source("https://b.example.test/tagus", cited=True), w.Source("https://c.example.test/x")))

    def test_perplexitys_search_form_gives_sources_and_no_answer(self) -> None:
        for name, count in (("perplexity_search_success", 2), ("perplexity_search_empty", 0)):
            result = parsed(w.PERPLEXITY, recorded(name))
            self.assertEqual((len(result.sources), result.answer, w.verify(w.PERPLEXITY, result)), (count, "", "content_empty"))

    def test_bare_citations_of_the_retired_form_are_sources(self) -> None:
        result = parsed(w.PERPLEXITY, recorded("perplexity_bare_citations"))
        self.assertEqual((result.answer, result.sources), ("It is so [1][2].", (
            w.Source("https://a.example.test/one", cited=True), w.Source("https://b.example.test/two", cited=True))))

    def test_nested_and_flat_annotations_on_part_message_and_top_level(self) -> None:
        nested = {"type": "url_citation", "url_citation": {"url": DOCS, "title": "Queues"}}
        part = {"type": "text", "text": "So.", "annotations": [{"url": BLOG, "title": "Measured"}]}
        result = parsed(w.CHAT, chat_with({"content": [part], "annotations": [nested], "citations": [{"url": FORUM}]},
                                          citations=["https://h.example/4"]))
        self.assertEqual([(source.url, source.title, source.cited) for source in result.sources], [
            (DOCS, "Queues", True), (BLOG, "Measured", True), (FORUM, "", False), ("https://h.example/4", "", False)])

    def test_message_level_annotations_of_a_responses_item(self) -> None:
        item = {"type": "message", "content": "So.", "annotations": [{"type": "url_citation", "url": DOCS}]}
        self.assertEqual(facts(parsed(w.OPENAI, reply({"output": [item]}))), (1, DOCS, 1, True, False))

    def test_sources_come_in_a_fixed_order(self) -> None:
        opened = {"type": "web_search_call", "action": {"type": "open_page", "url": "https://h.example/4"}}
        called = {"type": "web_search_call", "action": {"type": "search", "sources": [{"type": "url", "url": "https://h.example/3"}]}}
        response = message_with("A [[1]](https://h.example/2).", [{"url": "https://h.example/1"}], opened, called,
                                citations=["https://h.example/5"])
        self.assertEqual([source.url[-1] for source in parsed(w.GROK, response).sources], list("12345"))

    def test_groks_inline_form_is_proof_at_grok_only(self) -> None:
        text = "So it is [[1]](https://en.example.org/Kestrel_(bird)) and [[2]](https://h.example/a(b(c))d?x=1)."
        result = parsed(w.GROK, message_with(text))
        self.assertEqual([source.url for source in result.sources],
                         ["https://en.example.org/Kestrel_(bird)", "https://h.example/a(b(c))d?x=1"])
        self.assertEqual((w.verify(w.GROK, result), result.searched, result.native), ("", True, 2))
        for provider, response in ((w.OPENAI, message_with(text, (), SEARCH_CALL)), (w.CHAT, chat_with({"content": text}))):
            with self.subTest(provider.id):
                result = parsed(provider, response)
                self.assertEqual((result.native, result.sources, w.verify(provider, result)), (0, (), "sources_empty"))

    def test_addresses_of_inline_citations_may_hold_parentheses_and_blanks(self) -> None:
        for written, address in (("https://a.example/Foo_(bar)", "https://a.example/Foo_(bar)"), ("https://a.example/x", "https://a.example/x"),
                                 ("<https://a.example/a b(c>", "https://a.example/a%20b(c"), ("https://a.example/a_((b))_c", "https://a.example/a_((b))_c")):
            with self.subTest(written):
                result = parsed(w.GROK, message_with(f"So [[1]]({written}), and (so) on [[2]]({written})."))
                self.assertEqual([source.url for source in result.sources], [address])

    def test_plain_links_add_sources_only_beside_proof_and_bare_addresses_never(self) -> None:
        text = f"See [the forum]({FORUM}) and ![image](https://h.example/i.png) or https://bare.example/x."
        alone = parsed(w.GROK, message_with(text, (), SEARCH_CALL))
        self.assertEqual((alone.sources, alone.native, w.verify(w.GROK, alone)), ((), 0, "sources_empty"))
        beside = parsed(w.GROK, message_with(text, [{"url": DOCS}]))
        self.assertEqual((beside.sources, beside.native), ((w.Source(DOCS, cited=True), w.Source(FORUM, "the forum")), 1))

    def test_search_results_are_cited_by_their_number_in_the_text(self) -> None:
        results = {"type": "search_results", "results": [{"id": 1, "url": DOCS}, {"id": 2, "url": BLOG}, {"id": 3, "url": FORUM}]}
        opened = {"type": "fetch_url_results", "contents": [{"url": "https://h.example/4", "title": "Four", "snippet": "s"}]}
        sources = parsed(w.PERPLEXITY, message_with("It is [2], not [[1]] or [3](x).", (), results, opened)).sources
        self.assertEqual([source.url for source in sources if source.cited], [BLOG])
        self.assertEqual(sources[3], w.Source("https://h.example/4", "Four", "s"))

    def test_thinking_is_not_part_of_the_answer(self) -> None:
        for text, kept in (("<think>hm [a](https://x.example)</think>So.", "So."), ("a<think>b</think>c<think>d</think>e", "ace"),
                           ("hm</think>So.", "So."), ("So.<think>never closed", "So."), ("<think></think>", ""),
                           ("a <b> c", "a <b> c")):
            with self.subTest(text=text):
                self.assertEqual(w.without_thinking(text), kept)
        result = parsed(w.CHAT, chat_with({"content": "<think>x</think> So.", "annotations": [{"url": DOCS}]}))
        self.assertEqual(result.answer, "So.")
        only_thought = parsed(w.GROK, message_with(f"<think>as [[1]]({DOCS}) says</think>So."))
        self.assertEqual((only_thought.sources, only_thought.searched), ((), False))

    def test_a_truncated_answer_is_used_and_said_to_be_so(self) -> None:
        chat = parsed(w.CHAT, chat_with({"content": "So", "annotations": [{"url": DOCS}]}, "length"))
        claude = fixture_json("providers/anthropic_success.json")
        claude["stop_reason"] = "max_tokens"
        for result, why in ((parsed(w.GROK, recorded("xai_incomplete")), "max_output_tokens"), (chat, "length"),
                            (parsed(w.ANTHROPIC, reply(claude)), "max_tokens")):
            with self.subTest(why):
                self.assertEqual((result.truncated, result.notes),
                                 (True, (f"the answer is incomplete: the provider stopped at {why}",)))

    def test_a_very_long_answer_is_cut(self) -> None:
        result = parsed(w.GROK, message_with("word " * 10_000, [{"url": DOCS}]))
        self.assertLessEqual(len(result.answer), w.MAX_ANSWER_CHARS)
        self.assertEqual((result.truncated, result.answer[-6:], len(result.notes)), (True, " word…", 1))

    def test_models_that_decline_are_content_empty(self) -> None:
        for provider, response in ((w.CHAT, chat_with({"content": None, "refusal": "No."})),
                                   (w.CHAT, chat_with({"content": ""}, "content_filter")),
                                   (w.ANTHROPIC, reply({"content": [], "stop_reason": "refusal"}))):
            with self.subTest(response.text()):
                result = parsed(provider, response)
                self.assertEqual((w.verify(provider, result), result.message), ("content_empty", f"{provider.id}: the model "
                                                                                "declined to answer"))

    def test_a_search_that_was_handed_back_is_named(self) -> None:
        call = {"type": "function_call", "name": "web_search", "arguments": "{}"}
        for provider, response in (
                (w.GROK, reply({"output": [call]})),
                (w.OPENAI, message_with("I will search.", (), call)),
                (w.ANTHROPIC, reply({"content": [{"type": "tool_use", "name": "web_search"}], "stop_reason": "tool_use"}))):
            with self.subTest(provider.id):
                result = parsed(provider, response)
                self.assertEqual(w.verify(provider, result), "sources_empty")
                self.assertIn("does not search by itself", result.message)

    def test_proofs_of_a_search(self) -> None:
        for item, expected in ((SEARCH_CALL, True), ({"type": "x_search_call"}, True),
                               ({"type": "web_search_call", "name": "web_search", "arguments": "{}"}, True),
                               ({"type": "custom_tool_call", "name": "x_keyword_search"}, True),
                               ({"type": "custom_tool_call", "name": "run_code"}, False),
                               ({"type": "web_search_call", "status": "failed"}, False), ({"type": "reasoning"}, False)):
            with self.subTest(item=item):
                self.assertEqual(parsed(w.GROK, message_with("So.", (), item)).searched, expected)
        self.assertTrue(parsed(w.GROK, message_with("So.", usage={"num_server_side_tools_used": 2})).searched)

    def test_a_failed_search_beside_a_good_one_does_no_harm(self) -> None:
        body = fixture_json("providers/anthropic_success.json")
        body["content"].insert(3, fixture_json("providers/anthropic_tool_error.json")["content"][1])
        result = parsed(w.ANTHROPIC, reply(body))
        self.assertEqual((len(result.sources), w.verify(w.ANTHROPIC, result)), (2, ""))

    def test_tool_errors_have_the_class_of_their_code(self) -> None:
        for code, kind in (("too_many_requests", "rate"), ("unavailable", "server"), ("query_too_long", "bad_request")):
            body = fixture_json("providers/anthropic_tool_error.json")
            body["content"][1]["content"]["error_code"] = code
            with self.subTest(code):
                error = error_of(w.ANTHROPIC, reply(body))
                self.assertEqual((error.code, error.reason), w.ERROR_CLASSES[kind])

    def test_text_before_the_search_is_preamble_and_texts_around_a_later_search_are_paragraphs(self) -> None:
        call, text = {"type": "server_tool_use", "name": "web_search"}, lambda words: {"type": "text", "text": words}
        for blocks, answer in (
                ([{**text("A round before."), "citations": [{"url": DOCS}]}, call, text("B.")], "A round before.\n\nB."),
                ([text("I'll look."), call, text("A"), text(" b.")], "A b."), ([call, text("A."), call, text("B.")], "A.\n\nB."),
                ([{"type": "thinking", "thinking": "x"}, text("A."), call], "A."), ([text("A."), text("B.")], "A.B.")):
            with self.subTest(answer):
                self.assertEqual(parsed(w.ANTHROPIC, reply({"content": blocks, "stop_reason": "end_turn"})).answer, answer)

    def test_citations_are_joined_into_one_snippet(self) -> None:
        cite = [{"url": DOCS, "cited_text": words} for words in ("One.", "Two.", "One.", None)] + [{"url": BLOG, "title": "B"}]
        result = parsed(w.ANTHROPIC, reply({"content": [{"type": "text", "text": "So.", "citations": cite}]}))
        self.assertEqual(result.sources, (w.Source(DOCS, "", "One. Two.", cited=True), w.Source(BLOG, "B", cited=True)))
        self.assertEqual((result.native, result.searched), (2, True))

    def test_errors_told_with_status_200(self) -> None:
        for body, kind in (
                ({"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}, "rate"),
                ({"error": {"message": "no credits", "code": 402}}, "quota"), ({"error": "upstream broke"}, "server"),
                ({"type": "error", "error": {"type": "authentication_error", "message": "bad"}}, "auth"),
                ({"success": False, "message": "nope"}, "server"), ({"detail": "Invalid API key"}, "auth"),
                ({"choices": [], "error": {"message": "overloaded"}}, "server"),
                ({"output": [], "status": "failed", "error": None}, "server")):
            for provider in ANSWERS:
                with self.subTest(body=body, provider=provider.id):
                    error = error_of(provider, reply(body))
                    self.assertEqual((error.code, error.reason), w.ERROR_CLASSES[kind])
                    self.assertTrue(error.message.startswith(f"{provider.id}: HTTP 200 from {HOST}"), error.message)

    def test_bodies_that_are_no_reply_are_parse_errors(self) -> None:
        for body in (b"", b"  ", b"<html>login</html>", b"{", b"null", b"[]", b'"x"', b"5", b"{}", b'{"id": "x"}',
                     b"[" * 5_000, b"9" * 5_000, b"\xff\xfe", b"data:", b": ping\n\n", b"data: [DONE]\n\n"):
            for provider in ANSWERS:
                with self.subTest(body=body[:20], provider=provider.id):
                    error = error_of(provider, reply(body))
                    self.assertEqual((error.code, error.reason), (w.WEB_PROVIDER_RESPONSE_INVALID, "parse_error"))
                    self.assertIn(HOST, error.message)

    def test_long_runs_of_brackets_are_read_in_linear_time(self) -> None:
        for text in ("[" * 300_000, "[[1]](" * 100_000, "[a](https://" * 50_000, "<think>" * 100_000, "[1" * 200_000):
            began = time.process_time()
            self.assertEqual(parsed(w.GROK, message_with(text, [{"url": DOCS}])).native, 1)
            self.assertLess(time.process_time() - began, 2.0)  # quadratic ones take minutes


def stream(*events: Any, end: str = "\n", blank: bool = True, space: str = " ") -> w.Response:
    """An event stream of these objects (or data lines as text)."""
    lines: List[str] = []
    for event in events:
        lines += [f"data:{space}{event if isinstance(event, str) else json.dumps(event)}", *([""] if blank else [])]
    return reply(end.join([*lines, ""]), headers={"content-type": "text/event-stream"})


def delta(text: str) -> Dict[str, Any]:
    """A text delta of the Responses form."""
    return {"type": "response.output_text.delta", "delta": text}


class StreamTest(unittest.TestCase):
    """Gateways stream whatever was asked."""

    def test_a_recorded_stream_with_either_line_end(self) -> None:
        body = fixture("cases/B29_stream.http").partition(b"\r\n\r\n")[2] or fixture("cases/B29_stream.http")
        for data in (body, body.replace(b"\r\n", b"\n"), body.replace(b"\r\n", b"\n").replace(b"\n", b"\r")):
            result = parsed(w.GROK, reply(data, headers={"content-type": "text/event-stream"}))
            self.assertEqual((result.answer, result.sources), (
                "Lisbon is the capital.", (w.Source("https://a.example.test/pt", "Portugal", cited=True),)))

    def test_the_final_object_wins_in_every_spelling(self) -> None:
        final = fixture_json("providers/xai_success.json")
        done = {"type": "response.completed", "response": final}
        expected = parsed(w.GROK, recorded("xai_success"))
        pretty = "\n".join("data: " + line for line in json.dumps(done, indent=1).split("\n")) + "\n\n"
        for response in (stream(delta("Other "), done, "[DONE]"), stream(done, blank=False), stream(done, space=""),
                         stream(delta("x"), done, end="\r\n"), stream(delta("x"), final), reply(pretty),
                         stream(": not data", "junk{", done), reply(b": ping\n\nevent: x\n" + stream(done).body)):
            with self.subTest(response.body[:40]):
                self.assertEqual(parsed(w.GROK, response), expected)

    def test_deltas_alone_give_text_without_sources(self) -> None:
        result = parsed(w.GROK, stream(delta("Lisbon "), delta("is it."), "[DONE]"))
        self.assertEqual((result.answer, result.sources, w.verify(w.GROK, result)), ("Lisbon is it.", (), "sources_empty"))

    def test_finished_items_serve_where_the_final_object_is_bare(self) -> None:
        items = fixture_json("providers/xai_success.json")["output"]
        events = [{"type": "response.output_item.done", "item": item} for item in items]
        result = parsed(w.GROK, stream(*events, {"type": "response.completed", "response": {"status": "completed", "output": []}}))
        self.assertEqual(result, parsed(w.GROK, recorded("xai_success")))

    def test_what_comes_after_the_end_is_not_read(self) -> None:
        self.assertEqual(list(w.event_data('data: {"a": 1}\n\ndata: [DONE]\n\ndata: {"b": 2}\n\n')), [{"a": 1}])

    def test_failures_inside_a_stream_are_errors(self) -> None:
        for event, kind in (({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}, "rate"),
                            ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "server"),
                            ({"error": {"message": "Invalid API key"}}, "auth"), ({"error": "boom"}, "server"),
                            ({"type": "response.failed", "response": {"status": "failed", "error": {"code": "server_error"}}},
                             "server")):
            with self.subTest(event=event):
                self.assertEqual(error_of(w.GROK, stream(delta("x"), event)).code, w.ERROR_CLASSES[kind][0])

    def test_chat_chunks_add_up(self) -> None:
        note = {"type": "url_citation", "url_citation": {"url": DOCS, "title": "Queues"}}
        chunks = [{"choices": [{"delta": {"role": "assistant", "content": "Per-"}}]},
                  {"choices": [{"delta": {"content": "core."}, "finish_reason": None}]},
                  {"choices": [{"delta": {"annotations": [note]}, "finish_reason": "length"}]},
                  {"choices": [], "citations": [BLOG]}]
        result = parsed(w.CHAT, stream(*chunks, "[DONE]"))
        self.assertEqual((result.answer, result.sources, result.truncated),
                         ("Per-core.", (w.Source(DOCS, "Queues", cited=True), w.Source(BLOG)), True))

    def test_a_chat_stream_that_hands_the_search_back(self) -> None:
        call = {"index": 0, "function": {"name": "web_search", "arguments": ""}}
        result = parsed(w.CHAT, stream({"choices": [{"delta": {"tool_calls": [call]}}]},
                                       {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}))
        self.assertIn("does not search by itself", result.message)

    def test_a_messages_stream_is_put_together(self) -> None:
        whole = fixture_json("providers/anthropic_success.json")
        for streamed in (messages_stream(whole), stream(whole)):
            self.assertEqual(parsed(w.ANTHROPIC, streamed), parsed(w.ANTHROPIC, recorded("anthropic_success")))


def places(value: Any, path: Tuple[Any, ...] = ()) -> Iterator[Tuple[Any, ...]]:
    """The path of every member and item inside `value`."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield (*path, key)
        yield from places(member, (*path, key))


@contextlib.contextmanager
def changed(value: Any, path: Sequence[Any], junk: Any) -> Iterator[None]:
    """While it lasts, `value` has `junk` at `path`, or lacks that member when `junk` is `...`."""
    place = value
    for key in path[:-1]:
        place = place[key]
    before = copy.copy(place)
    if junk is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = junk
    yield
    place.clear()
    (place.update if isinstance(place, dict) else place.extend)(before)


JUNK = (..., None, 5, "x", [None], {"url": 5})
ECHOES = ("text", "usage", "tools", "reasoning", "metadata")  # members of a reply that repeat the request, at top level


class MutationTest(unittest.TestCase):
    """Whatever stands in a field, a reply or a WebError comes out."""

    def mutate(self, name: str, provider: w.Provider, status: int = 200) -> int:
        """Replace each member of the recorded reply by junk of each kind; gives how many replies were read."""
        body = fixture_json(f"providers/{name}.json")
        request = built(provider, ALL)
        count = 0
        for path in [path for path in places(body) if path[0] not in ECHOES]:
            for junk in JUNK:
                with changed(body, path, junk):
                    response = reply(body, status)
                count += 1
                try:
                    if status != 200:
                        self.assertIsInstance(w.provider_error(provider, response), w.WebError)
                    else:
                        w.verify(provider, parsed(provider, response))
                    if provider.search and provider.search.follow_up:
                        provider.search.follow_up(request, response)
                except w.WebError:
                    continue
                except Exception as error:
                    raise AssertionError(f"{name} {path} {junk!r}") from error
        return count

    def test_replies_with_junk_in_any_field(self) -> None:
        for name, provider in (
                ("xai_success", w.GROK), ("xai_x_search", w.GROK), ("xai_top_level_citations", w.GROK),
                ("gateway_responses_name_form", w.GROK), ("gateway_chat_success", w.CHAT), ("gateway_chat_parts", w.CHAT),
                ("gateway_tool_not_executed", w.CHAT), ("openai_success", w.OPENAI), ("openai_refusal", w.OPENAI),
                ("openai_failed", w.OPENAI), ("openai_chat_success", w.CHAT), ("anthropic_success", w.ANTHROPIC),
                ("anthropic_pause_turn", w.ANTHROPIC), ("anthropic_tool_error", w.ANTHROPIC),
                ("anthropic_web_fetch", w.ANTHROPIC), ("perplexity_agent_success", w.PERPLEXITY),
                ("perplexity_agent_failed", w.PERPLEXITY), ("perplexity_sonar_legacy", w.PERPLEXITY)):
            with self.subTest(name):
                self.assertGreater(self.mutate(name, provider), 50)

    def test_errors_with_junk_in_any_field(self) -> None:
        for name, provider, status in (
                ("xai_error_bad_key", w.GROK, 400), ("openai_error_rate", w.OPENAI, 429),
                ("anthropic_error_rate", w.ANTHROPIC, 429), ("perplexity_search_error_validation", w.PERPLEXITY, 422)):
            with self.subTest(name):
                self.assertGreater(self.mutate(name, provider, status), 10)

    def test_stream_events_with_junk_in_any_field(self) -> None:
        events = [
            {"type": "message_start", "message": {"role": "assistant", "content": []}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "b"}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"url": DOCS}}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}]
        chunks = [{"choices": [{"delta": {"content": "a", "annotations": [{"url": DOCS}]}, "finish_reason": "stop"}]}]
        items = [delta("a"), {"type": "response.output_item.done", "item": {"type": "message", "content": []}},
                 {"type": "response.completed", "response": {"status": "completed", "output": []}}]
        for whole in (events, chunks, items):
            for path in list(places(whole)):
                for junk in JUNK:
                    with self.subTest(path=path, junk=junk), contextlib.suppress(w.WebError):
                        with changed(whole, path, junk):
                            response = stream(*whole)
                        parsed(w.GROK, response)


class VerifyTest(unittest.TestCase):
    """Text, a native source, and proof of a search."""

    def test_each_missing_part_has_its_word(self) -> None:
        good = w.SearchReply("So.", (w.Source(DOCS),), True, 1)
        for provider in ANSWERS:
            for result, expected in ((good, ""), (good._replace(answer=" "), "content_empty"),
                                     (good._replace(sources=()), "sources_empty"), (good._replace(native=0), "sources_empty"),
                                     (good._replace(searched=False), "sources_empty"),
                                     (good._replace(reason="content_empty"), "content_empty")):
                with self.subTest(provider=provider.id, result=result):
                    self.assertEqual(w.verify(provider, result), expected)


if __name__ == "__main__":
    unittest.main()
