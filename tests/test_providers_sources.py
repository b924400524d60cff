"""The source half of the providers: requests as they go out, recorded replies as they are read. Nothing is sent."""

from __future__ import annotations

import base64
import gzip
import json
import unittest
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple
from urllib.parse import parse_qsl, urlsplit

import websearch
from tests.support import fixture
from websearch import (
    OPEN,
    PROVIDER_BY_ID,
    PROVIDERS,
    Endpoint,
    MapQuery,
    MapReply,
    Operation,
    Page,
    PageQuery,
    Provider,
    Request,
    Response,
    SearchQuery,
    SearchReply,
    WebError,
    member_url,
    members_for,
    provider_error,
)

KEY = "key-of-the-tests-4711"
TODAY = "2026-11-30"
DOCS = "https://docs.example.org/kestrel/scheduler"
ROWS: Dict[str, Provider] = {**PROVIDER_BY_ID, **{member.id: member for member in OPEN.members}}
BASES = {
    "tavily": "https://api.tavily.com", "firecrawl": "https://api.firecrawl.dev/v2", "exa": "https://api.exa.ai",
    "brave": "https://api.search.brave.com", "deepseek": "https://api.deepseek.com", "you": "https://api.you.com",
    "searxng": "https://searx.example.test/searx", "jina": "https://r.jina.ai",
    "duckduckgo": "https://html.duckduckgo.com/html/", **{member.id: member.default_url for member in OPEN.members},
}


def reply(name: str, status: int = 200, headers: Optional[Dict[str, str]] = None, url: str = "") -> Response:
    """A recorded body as a response."""
    return Response(url or "https://api.example.test/x", status, headers or {}, fixture(f"providers/{name}"))


def case(name: str) -> Response:
    """A case's file as a response; a gzip body is unpacked, which is the transport's work."""
    data = fixture(f"cases/{name}")
    if not name.endswith(".http"):
        return Response("https://api.example.test/x", 200, {}, data)
    head, _, body = data.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in lines}
    if headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body[:int(headers["content-length"])])
    return Response("https://api.example.test/x", int(status.split()[1]), headers, body)


def operation_of(provider: Provider, kind: str) -> Operation:
    found = getattr(provider, kind)
    assert isinstance(found, Operation), (provider.id, kind)
    return found


def read(name: str, response: Response, kind: str = "search") -> Any:
    """What comes of a reply, as the caller of providers sees it."""
    if not 200 <= response.status < 300:
        raise provider_error(ROWS[name], response)
    return operation_of(ROWS[name], kind).parse(response)


def build(name: str, query: Any, kind: str = "search", key: str = KEY, base: str = "", **options: Any) -> Request:
    """The request for a query; `base` where it is not the vendor's own."""
    return operation_of(ROWS[name], kind).build(query, Endpoint(base or BASES[name], key, options=options))


def params(request: Request) -> Dict[str, str]:
    """The fields of a request's query."""
    return dict(parse_qsl(urlsplit(request.url).query, keep_blank_values=True))


def form(request: Request) -> Dict[str, str]:
    """The fields of a form."""
    return dict(parse_qsl((request.body or b"").decode(), keep_blank_values=True))


def path(request: Request) -> str:
    return urlsplit(request.url).path


def asked(text: str = "kestrel 3 scheduler", **fields: Any) -> SearchQuery:
    return SearchQuery(text, today=TODAY, **fields)


class Recorded(NamedTuple):
    """One recorded reply and what it means."""

    file: str
    kind: str = "search"
    sources: int = -1
    first: str = DOCS
    published: str = ""
    code: str = ""
    status: int = 200
    headers: Dict[str, str] = {}
    wait: Optional[float] = None


AUTH, QUOTA, RATE = "WEB_PROVIDER_AUTH_ERROR", "WEB_PROVIDER_ACCESS_ERROR", "WEB_PROVIDER_RATE_LIMITED"
FAILED, TARGET = "WEB_PROVIDER_ERROR", "WEB_FETCH_FAILED"
NEWS = "https://news.example.com/kestrel-3-0-released"
BRAVE_RATE = {"x-ratelimit-remaining": "0, 1689", "x-ratelimit-reset": "1, 904213"}
BRAVE_QUOTA = {"x-ratelimit-remaining": "1, 0", "x-ratelimit-reset": "1, 904213"}

RECORDED = (
    Recorded("tavily_search_success.json", sources=2),
    Recorded("tavily_search_news.json", sources=1, first=NEWS, published="2026-11-24"),
    Recorded("tavily_search_empty.json", sources=0),
    Recorded("tavily_extract_partial.json", "fetch"),
    Recorded("tavily_map_success.json", "map", 3, "https://docs.example.org/kestrel"),
    Recorded("tavily_error_key.json", code=AUTH, status=401),
    Recorded("tavily_error_rate.json", code=RATE, status=429, headers={"retry-after": "60"}, wait=60),
    Recorded("tavily_error_plan.json", code=QUOTA, status=432),
    Recorded("tavily_error_paygo.json", code=QUOTA, status=433),
    Recorded("tavily_error_topic.json", code=FAILED, status=400),
    Recorded("tavily_error_map_url.json", "map", code=FAILED, status=403),
    Recorded("tavily_keyless_limit.json", code=QUOTA, status=429, wait=1800),
    Recorded("firecrawl_search_success.json", sources=3),
    Recorded("firecrawl_search_scraped.json", sources=1),
    Recorded("firecrawl_search_empty.json", sources=0),
    Recorded("firecrawl_scrape_success.json", "fetch"),
    Recorded("firecrawl_map_success.json", "map", 3, "https://docs.example.org/kestrel"),
    Recorded("firecrawl_v1_search_success.json", sources=1),
    Recorded("firecrawl_v1_map_success.json", "map", 2, "https://docs.example.org/kestrel"),
    Recorded("firecrawl_error_key.json", code=AUTH, status=401),
    Recorded("firecrawl_error_credits.json", code=QUOTA, status=402),
    Recorded("firecrawl_error_rate.json", code=RATE, status=429, headers={"retry-after": "12"}, wait=12),
    Recorded("firecrawl_error_timeout.json", "fetch", code="WEB_PROVIDER_TIMEOUT", status=408),
    Recorded("firecrawl_error_validation.json", code=FAILED, status=400),
    Recorded("firecrawl_error_dns.json", "fetch", code=TARGET, status=500),
    Recorded("firecrawl_keyless_limit.json", code=QUOTA, status=429),
    Recorded("exa_search_success.json", sources=2, published="2026-11-02"),
    Recorded("exa_search_empty.json", sources=0),
    Recorded("exa_contents_partial.json", "fetch"),
    Recorded("exa_error_key.json", code=AUTH, status=401),
    Recorded("exa_error_credits.json", code=QUOTA, status=402),
    Recorded("exa_error_rate.json", code=RATE, status=429),
    Recorded("exa_error_body.json", code=FAILED, status=400),
    Recorded("brave_web_success.json", sources=2, published="2026-11-02"),
    Recorded("brave_web_empty.json", sources=0),
    Recorded("brave_llm_context_success.json", sources=2, published="2026-11-02"),
    Recorded("brave_error_key.json", code=AUTH, status=422),
    Recorded("brave_error_validation.json", code=FAILED, status=422),
    Recorded("brave_error_rate.json", code=RATE, status=429, headers=BRAVE_RATE, wait=1),
    Recorded("brave_error_quota.json", code=QUOTA, status=429, headers=BRAVE_QUOTA, wait=904213),
    Recorded("deepseek_search_success.json", sources=2, published="2026-11-02"),
    Recorded("deepseek_search_empty.json", sources=0),
    Recorded("deepseek_fetch_success.json", "fetch"),
    Recorded("deepseek_error_key.json", code=AUTH, status=401),
    Recorded("deepseek_error_balance.json", code=QUOTA, status=402),
    Recorded("deepseek_error_query.json", code=FAILED, status=400),
    Recorded("deepseek_error_rate.json", code=RATE, status=429, headers={"retry-after": "1"}, wait=1),
    Recorded("deepseek_fetch_error_no_content.json", "fetch", code=FAILED, status=404),
    Recorded("you_search_success.json", sources=2, published="2026-11-02"),
    Recorded("you_search_empty.json", sources=0),
    Recorded("you_error_key.json", code=AUTH, status=401),
    Recorded("you_keyless_limit.json", code=QUOTA, status=402),
    Recorded("searxng_success.json", sources=2, published="2026-11-02"),
    Recorded("searxng_answer_infobox.json", sources=1),
    Recorded("searxng_empty.json", code=FAILED),
    Recorded("searxng_error_no_query.json", code=FAILED, status=400),
    Recorded("searxng_error_param.json", code=FAILED, status=400),
    Recorded("searxng_error_format_off.html", code=FAILED, status=403),
    Recorded("searxng_error_limiter.html", code=RATE, status=429),
    Recorded("duckduckgo_html_success.html", sources=2, published="2026-11-02"),
    Recorded("duckduckgo_lite_success.html", sources=2),
    Recorded("duckduckgo_html_empty.html", sources=0),
    Recorded("duckduckgo_challenge.html", code="WEB_PROVIDER_BLOCKED", status=202),
    Recorded("jina_reader_success.json", "fetch"),
    Recorded("jina_error_key.json", "fetch", code=AUTH, status=401),
    Recorded("jina_error_balance.json", "fetch", code=QUOTA, status=402),
    Recorded("jina_error_rate.json", "fetch", code=RATE, status=429, headers={"retry-after": "30"}, wait=30),
    Recorded("jina_error_target.json", "fetch", code=TARGET, status=422),
    Recorded("wikipedia_search_success.json", sources=2, first="https://en.wikipedia.org/wiki/Work_stealing"),
    Recorded("wikipedia_search_empty.json", sources=0),
    Recorded("wikipedia_error.json", code=FAILED),
    Recorded("stackexchange_search_success.json", sources=1, published="2026-11-02",
             first="https://stackoverflow.com/questions/7700001/kestrel-work-stealing"),
    Recorded("stackexchange_search_backoff.json", code=RATE, wait=10),
    Recorded("stackexchange_error_throttle.json", code=RATE, status=400, wait=64113),
    Recorded("github_repos_success.json", sources=1, first="https://github.com/example/kestrel",
             published="2026-11-28"),
    Recorded("github_error_rate.json", code=RATE, status=403, headers={"x-ratelimit-remaining": "0"}),
    Recorded("hackernews_success.json", sources=2, first=NEWS, published="2026-11-24"),
    Recorded("mdn_success.json", sources=1, first="https://developer.mozilla.org/en-US/docs/Web/API/Scheduler"),
    Recorded("crossref_success.json", sources=1, first="https://doi.org/10.5555/12345678", published="2026-03"),
    Recorded("arxiv_success.xml", sources=1, first="http://arxiv.org/abs/2611.00001v1", published="2026-11-02"),
    Recorded("mwmbl_success.json", sources=1),
    Recorded("gdelt_success.json", sources=1, first=NEWS, published="2026-11-24"),
)


class RecordedReplies(unittest.TestCase):
    """Every recorded body is read as its vendor means it."""

    def test_recorded_answers_give_their_sources_pages_and_links(self) -> None:
        for row in RECORDED:
            if row.code:
                continue
            with self.subTest(row.file):
                got = read(row.file.partition("_")[0], reply(row.file), row.kind)
                if row.kind == "fetch":
                    self.assertEqual((200, "Scheduler design — Kestrel documentation", True),
                                     (got.status_code, got.title, "Each core owns a run queue." in got.text))
                    continue
                self.assertEqual(row.sources, len(got.sources))
                if row.sources:
                    first = got.sources[0]
                    self.assertEqual((row.first, row.published), (first.url, first.published_date))
                    self.assertTrue(row.kind == "map" or first.title)

    def test_recorded_failures_give_the_class_of_their_cause(self) -> None:
        for row in RECORDED:
            if not row.code:
                continue
            with self.subTest(row.file), self.assertRaises(WebError) as caught:
                read(row.file.partition("_")[0], reply(row.file, row.status, row.headers), row.kind)
            with self.subTest(row.file):
                self.assertEqual((row.code, row.wait), (caught.exception.code, caught.exception.retry_after_seconds))
                self.assertIn(row.file.partition("_")[0], caught.exception.message)

    def test_no_source_provider_writes_an_answer(self) -> None:
        self.assertEqual("", read("tavily", reply("tavily_search_success.json")).answer)
        self.assertEqual("", read("searxng", reply("searxng_answer_infobox.json")).answer)

    def test_an_error_inside_a_200_is_an_error(self) -> None:
        for name, body, code in (
                ("tavily", {"error": {"message": "Keyless limit reached", "next_actions": []}}, QUOTA),
                ("firecrawl", {"success": False, "error": "Payment Required: Insufficient credits"}, QUOTA),
                ("exa", {"error": "Invalid API key", "tag": "INVALID_API_KEY"}, AUTH),
                ("searxng", {"error": "search error"}, FAILED),
                ("wikipedia", {"error": {"code": "ratelimited", "info": "slow down"}}, RATE),
                ("tavily", {"detail": "no results here"}, "WEB_PROVIDER_RESPONSE_INVALID")):
            with self.subTest(name), self.assertRaises(WebError) as caught:
                read(name, Response("https://api.example.test/", 200, {}, json.dumps(body).encode()))
            self.assertEqual(code, caught.exception.code)

    def test_bodies_that_are_no_reply_are_coded_errors(self) -> None:
        for row in ROWS.values():
            if row.kind == "answer":
                continue
            kinds = [kind for kind in ("search", "fetch", "map") if getattr(row, kind)]
            for kind in kinds:
                for body in (b"", b"null", b"[1]", b"7", b"{}", b"<!doctype html><p>please sign in", b'{"a": ' * 5000):
                    if (row.id == "gdelt" and body == b"{}") or (row.id == "mwmbl" and body == b"[1]"):
                        continue  # their way to say that nothing was found
                    with self.subTest(row=row.id, kind=kind, body=body[:20]), \
                            self.assertRaises((WebError, ValueError)):
                        operation_of(row, kind).parse(Response("https://api.example.test/", 200, {}, body))


class Snippets(unittest.TestCase):
    """What is shown of a source."""

    def test_brave_joins_the_description_and_the_extra_snippets(self) -> None:
        first = read("brave", reply("brave_web_success.json")).sources[0]
        self.assertEqual("Each core owns a run queue; idle cores steal & share. … Stealing happens in batches.",
                         first.snippet)

    def test_exa_falls_back_from_highlights_to_the_start_of_the_text(self) -> None:
        one, two = read("exa", reply("exa_search_success.json")).sources
        self.assertEqual("Each core owns a run queue; idle cores steal from their neighbours.", one.snippet)
        self.assertEqual(("We measured 1.4 times the throughput.",) * 2, (two.snippet, two.content))

    def test_deepseek_prefers_the_summary_and_keeps_the_score(self) -> None:
        first = read("deepseek", reply("deepseek_search_success.json")).sources[0]
        self.assertEqual((2.4, True), (first.score, first.snippet.startswith("The page describes the scheduler")))

    def test_you_joins_snippets_and_takes_the_description_of_news(self) -> None:
        web, news = read("you", reply("you_search_success.json")).sources
        self.assertEqual(("Each core owns a run queue. Idle cores steal.", "Version 3.0 ships per-core queues."),
                         (web.snippet, news.snippet))

    def test_page_text_that_came_along_is_kept(self) -> None:
        first = read("firecrawl", reply("firecrawl_search_scraped.json")).sources[0]
        self.assertEqual("# Scheduler design\n\nEach core owns a run queue.", first.content)

    def test_a_month_that_no_year_has_is_no_date(self) -> None:
        recorded = json.loads(fixture("providers/crossref_success.json"))
        for parts, date in (([2026, 11], "2026-11"), ([2026, 31], ""), ([2026, 2, 32], ""), ([], "")):
            recorded["message"]["items"][0]["published"] = {"date-parts": [parts]}
            response = Response("https://api.example.test/x", 200, {}, json.dumps(recorded).encode())
            self.assertEqual(date, read("crossref", response).sources[0].published_date)

    def test_relative_dates_are_not_guessed_at(self) -> None:
        self.assertEqual("", read("firecrawl", reply("firecrawl_search_success.json")).sources[2].published_date)

    def test_wikipedia_marks_and_entities_are_resolved(self) -> None:
        one, two = read("wikipedia", reply("wikipedia_search_success.json")).sources
        self.assertEqual("In parallel computing, work stealing is a scheduling strategy", one.snippet)
        self.assertEqual('each "run queue" holds', two.snippet)

    def test_stackexchange_says_how_well_a_question_is_answered(self) -> None:
        first = read("stackexchange", reply("stackexchange_search_success.json")).sources[0]
        self.assertEqual(("Does Kestrel's scheduler steal in batches?",
                          "2 answers, accepted; score 14; async, scheduler"), (first.title, first.snippet))

    def test_a_story_without_address_is_cited_by_its_discussion(self) -> None:
        one, two = read("hackernews", reply("hackernews_success.json")).sources
        self.assertEqual("312 points, 140 comments, https://news.ycombinator.com/item?id=41000001", one.snippet)
        self.assertEqual(("https://news.ycombinator.com/item?id=41000002", 'How does it "feel"?'),
                         (two.url, two.snippet))

    def test_open_apis_fill_title_and_snippet(self) -> None:
        for name, file, title, snippet in (
                ("github", "github_repos_success.json", "example/kestrel",
                 "An asynchronous runtime … Rust, 4120 stars"),
                ("crossref", "crossref_success.json", "Work stealing revisited", "We measure batch stealing."),
                ("arxiv", "arxiv_success.xml", "Work stealing revisited",
                 "We measure batch stealing on many-core machines."),
                ("mwmbl", "mwmbl_success.json", "Scheduler design", "Each core owns a run queue")):
            with self.subTest(name):
                first = read(name, reply(file)).sources[0]
                self.assertEqual((title, snippet), (first.title, first.snippet))

    def test_searxng_boxes_serve_only_where_results_are_missing(self) -> None:
        body = json.loads(fixture("providers/searxng_answer_infobox.json"))
        body["results"] = []
        body["answers"] = ["an old plain answer", {"answer": "42", "url": "https://calc.example.test/"}]
        got = read("searxng", Response("https://s.example.test/", 200, {}, json.dumps(body).encode()))
        self.assertEqual([("https://calc.example.test/", "", "42"),
                          ("https://wiki.example.org/Kestrel", "Kestrel", "Kestrel is an asynchronous runtime."),
                          ("https://docs.example.org/kestrel", "Website", "Kestrel is an asynchronous runtime.")],
                         [(source.url, source.title, source.snippet) for source in got.sources])


class FieldFaults(unittest.TestCase):
    """Faults seen in the field, on the level of one reply."""

    def test_suspended_engines_are_named_and_not_called_an_empty_web(self) -> None:
        with self.assertRaises(WebError) as caught:
            read("searxng", case("B24_suspended.json"))
        message = caught.exception.message
        self.assertIn("did not answer: brave (Suspended: too many requests), google (Suspended: CAPTCHA)", message)
        self.assertNotIn("found", message)
        self.assertNotIn("no results", message)

    def test_a_healthy_instance_without_results_is_just_empty(self) -> None:
        self.assertEqual(SearchReply(), read("searxng", case("B24_nothing.json")))

    def test_engines_that_failed_beside_results_do_no_harm(self) -> None:
        self.assertEqual(2, len(read("searxng", reply("searxng_success.json")).sources))

    def test_json_switched_off_is_explained_by_its_setting(self) -> None:
        with self.assertRaises(WebError) as caught:
            read("searxng", case("B25_forbidden.http"))
        self.assertNotEqual(AUTH, caught.exception.code)
        for word in ("403", "json", "search.formats"):
            self.assertIn(word, caught.exception.message)

    def test_a_login_page_is_said_not_to_be_json(self) -> None:
        with self.assertRaises(WebError) as caught:
            read("searxng", case("B25_login.http"))
        self.assertEqual("WEB_PROVIDER_RESPONSE_INVALID", caught.exception.code)
        self.assertIn("text/html", caught.exception.message)
        self.assertIn("not JSON", caught.exception.message)
        self.assertLess(len(caught.exception.message), 400)

    def test_a_bot_page_is_blocked_whatever_its_status(self) -> None:
        for name in ("B26_anomaly_202.http", "B26_anomaly_200.http"):
            with self.subTest(name), self.assertRaises(WebError) as caught:
                read("duckduckgo", case(name))
            self.assertEqual(("WEB_PROVIDER_BLOCKED", "blocked"), (caught.exception.code, caught.exception.reason))
            self.assertIn("challenge", caught.exception.message)
            self.assertNotIn("found", caught.exception.message)
        with self.assertRaises(WebError) as caught:  # 202 alone is the sign, whatever the page says
            read("duckduckgo", case("B26_none_200.http")._replace(status=202))
        self.assertEqual("WEB_PROVIDER_BLOCKED", caught.exception.code)
        for status in (303, 403):
            error = provider_error(ROWS["duckduckgo"], Response("https://html.duckduckgo.com/html/", status))
            self.assertEqual("WEB_PROVIDER_BLOCKED", error.code)

    def test_a_result_page_without_results_is_empty(self) -> None:
        self.assertEqual((), read("duckduckgo", case("B26_none_200.http")).sources)

    def test_a_foreign_page_instead_of_results_is_no_empty_result(self) -> None:
        with self.assertRaises(WebError) as caught:
            read("duckduckgo", case("B25_login.http"))
        self.assertEqual("WEB_PROVIDER_RESPONSE_INVALID", caught.exception.code)

    def test_results_that_speak_of_challenges_are_results(self) -> None:
        page = fixture("cases/B27_results.html").replace(b"Plain link", b"what anomaly.js and challenge-form do")
        self.assertEqual(3, len(read("duckduckgo", Response("", 200, {}, page)).sources))

    def test_redirects_are_resolved_once_and_advertisements_dropped(self) -> None:
        sources = read("duckduckgo", case("B27_results.html")).sources
        self.assertEqual([
            ("https://docs.example.test/a?x=1&y=%C3%A9", "First & best <guide>", "How to do it 'right'"),
            ("https://www.example.test/b", "Second", ""),
            ("https://plain.example.test/c", "Third", "Plain link"),
        ], [(source.url, source.title, source.snippet) for source in sources])

    def test_an_advertisement_without_its_class_is_known_by_its_address(self) -> None:
        page = fixture("cases/B27_results.html").replace(b"result--ad", b"web-result")
        urls = " ".join(source.url for source in read("duckduckgo", Response("", 200, {}, page)).sources)
        self.assertNotIn("ads.example.test", urls)
        self.assertNotIn("duckduckgo", urls)

    def test_sponsored_rows_of_the_lite_page_are_advertisements_wherever_they_lead(self) -> None:
        page = fixture("providers/duckduckgo_lite_success.html").replace(b"ad_domain=", b"x=")
        page = page.replace(b"https://duckduckgo.com/y.js?", b"https://ads.test/?")
        self.assertEqual([DOCS, "https://forum.example.net/t/kestrel-vs-merlin/812"],
                         [source.url for source in read("duckduckgo", Response("", 200, {}, page)).sources])

    def test_tags_and_entities_in_titles_are_resolved(self) -> None:
        first = read("brave", case("B31_brave.http")).sources[0]
        self.assertEqual("Using std::vector & friends", first.title)
        self.assertTrue(first.snippet.startswith("The push_back call adds <T> items 'fast'"), first.snippet)

    def test_nulls_are_survived_and_what_has_no_address_is_dropped(self) -> None:
        sources = read("tavily", case("B37_nulls.json")).sources
        self.assertEqual([("https://docs.example.test/untitled", "", "", None),
                          ("https://docs.example.test/good", "Good", "y", None)],
                         [(source.url, source.title, source.snippet, source.score) for source in sources])

    def test_map_links_are_objects_or_strings(self) -> None:
        both = read("firecrawl", case("B58_map_v2.json"), "map")
        self.assertEqual([("https://docs.example.test/a", "A"), ("https://docs.example.test/b", ""),
                          ("https://docs.example.test/c", "")], [(s.url, s.title) for s in both.sources])
        self.assertEqual(["https://docs.example.test/a", "https://docs.example.test/b"],
                         [source.url for source in read("firecrawl", case("B58_map_v1.json"), "map").sources])

    def test_a_map_refused_with_status_200_is_an_error_in_the_vendors_words(self) -> None:
        with self.assertRaises(WebError) as caught:
            read("firecrawl", case("B58_map_fail.json"), "map")
        self.assertEqual(AUTH, caught.exception.code)
        self.assertIn("Invalid token", caught.exception.message)

    def test_a_huge_map_is_read_whole_in_order(self) -> None:
        urls = [f"https://docs.example.test/section/{i % 40}/page-{i}" for i in range(5000)]
        got = read("tavily", Response("", 200, {}, json.dumps({"results": urls}).encode()), "map")
        self.assertEqual((5000, urls), (got.total_found, [source.url for source in got.sources]))


class Pages(unittest.TestCase):
    """Extract APIs: the page, or the target's own failure."""

    def failure(self, name: str, body: Any) -> Tuple[str, Optional[int], str]:
        with self.assertRaises(WebError) as caught:
            read(name, Response("https://api.example.test/", 200, {}, json.dumps(body).encode()), "fetch")
        return caught.exception.code, caught.exception.status, caught.exception.message

    def test_firecrawl_page_of_a_missing_target_has_the_targets_status(self) -> None:
        page = read("firecrawl", reply("firecrawl_scrape_target_404.json"), "fetch")
        self.assertEqual((404, "Not found", "Page not found", "https://docs.example.org/gone"),
                         (page.status_code, page.title, page.text, page.url))

    def test_a_target_error_without_text_is_a_failed_fetch(self) -> None:
        body = {"success": True, "data": {"markdown": "", "metadata": {"statusCode": 503, "error": "Unavailable"}}}
        self.assertEqual((TARGET, 503, "firecrawl: the page could not be read: status 503, Unavailable"),
                         self.failure("firecrawl", body))

    def test_firecrawl_metadata_may_be_lists(self) -> None:
        body = {"success": True, "data": {"markdown": "text", "metadata": {
            "title": ["One", "Two"], "language": ["en"], "contentType": "Text/HTML; charset=utf-8", "url": [7],
            "statusCode": "200"}}}
        page = read("firecrawl", Response("", 200, {}, json.dumps(body).encode()), "fetch")
        self.assertEqual(Page(title="One", text="text", language="en", content_type="text/html"), page)

    def test_tavily_failed_results_are_a_failed_fetch(self) -> None:
        body = {"results": [], "failed_results": [{"url": "https://x.example.test/", "error": "Failed to fetch url"}]}
        self.assertEqual((TARGET, None, "tavily: the page could not be read: Failed to fetch url"),
                         self.failure("tavily", body))

    def test_exa_statuses_are_a_failed_fetch(self) -> None:
        body = {"results": [], "statuses": [{"id": "x", "status": "error",
                                             "error": {"tag": "CRAWL_NOT_FOUND", "httpStatusCode": 404}}]}
        self.assertEqual((TARGET, 404, "exa: the page could not be read: status 404, CRAWL_NOT_FOUND"),
                         self.failure("exa", body))

    def test_jina_warns_of_the_targets_status(self) -> None:
        body = json.loads(fixture("providers/jina_reader_success.json"))
        body["data"]["warning"] = "Target URL returned error 404: Not Found"
        page = read("jina", Response("", 200, {}, json.dumps(body).encode()), "fetch")
        self.assertEqual((404, "2026-11-02", "en"), (page.status_code, page.published_date, page.language))

    def test_an_empty_page_is_a_failed_fetch(self) -> None:
        self.assertEqual(TARGET, self.failure("deepseek", {"title": "", "content": ""})[0])
        self.assertEqual(TARGET, self.failure("jina", {"code": 200, "data": {"content": ""}})[0])

    def test_invisible_characters_do_not_reach_the_text(self) -> None:
        body = {"title": "T", "content": "be\u200bfore\u202eafter\r\nnext"}
        page = read("deepseek", Response("", 200, {}, json.dumps(body).encode()), "fetch")
        self.assertEqual("beforeafter\nnext", page.text)


class Requests(unittest.TestCase):
    """What goes out: method, address, header, body."""

    maxDiff = None

    def test_plain_searches_send_these_bodies_and_no_more(self) -> None:
        query = asked(limit=7)
        for name, url, body in (
                ("tavily", "https://api.tavily.com/search", {"query": query.text, "max_results": 7}),
                ("firecrawl", "https://api.firecrawl.dev/v2/search", {"query": query.text, "limit": 7}),
                ("exa", "https://api.exa.ai/search",
                 {"query": query.text, "numResults": 7, "type": "auto", "contents": {"highlights": True}}),
                ("deepseek", "https://api.deepseek.com/v1/tools/search", {"query": query.text, "count": 7}),
                ("you", "https://api.you.com/v1/search", {"query": query.text, "count": 7})):
            with self.subTest(name):
                request = build(name, query)
                self.assertEqual(("POST", url, body), (request.method, request.url, request.json()))

    def test_brave_and_searxng_ask_by_get(self) -> None:
        brave, searxng = build("brave", asked()), build("searxng", asked())
        self.assertEqual("/res/v1/web/search", path(brave))
        self.assertEqual({"q": "kestrel 3 scheduler", "count": "5", "text_decorations": "false", "result_filter": "web",
                          "extra_snippets": "true"}, params(brave))
        self.assertEqual(("GET", "/searx/search", {"q": "kestrel 3 scheduler", "format": "json"}),
                         (searxng.method, path(searxng), params(searxng)))

    def test_duckduckgo_gets_its_own_form(self) -> None:
        request = build("duckduckgo", asked(), key="")
        self.assertEqual(("POST", "https://html.duckduckgo.com/html/"), (request.method, request.url))
        self.assertEqual({"q": "kestrel 3 scheduler", "b": "", "kl": "wt-wt"}, form(request))
        self.assertNotIn("Cookie", request.headers)

    def test_the_query_arrives_whole(self) -> None:
        text = 'a&b=c #1 +ü "x"'
        for name in ("searxng", "brave"):
            self.assertEqual(text, params(build(name, asked(text)))["q"])
        self.assertEqual(text, form(build("duckduckgo", asked(text)))["q"])
        self.assertEqual(text, build("tavily", asked(text)).json()["query"])

    def test_the_key_is_where_it_belongs_and_nowhere_else(self) -> None:
        bearer = ("Authorization", f"Bearer {KEY}")
        for name, kinds, header in (
                ("tavily", ("search", "fetch", "map"), bearer), ("firecrawl", ("search", "fetch", "map"), bearer),
                ("exa", ("search", "fetch"), ("x-api-key", KEY)), ("brave", ("search",), ("X-Subscription-Token", KEY)),
                ("deepseek", ("search", "fetch"), bearer), ("you", ("search",), ("X-API-Key", KEY)),
                ("searxng", ("search",), bearer), ("jina", ("fetch",), bearer), ("github", ("search",), bearer)):
            for kind in kinds:
                with self.subTest(name=name, kind=kind):
                    request = build(name, QUERIES[kind], kind)
                    self.assertEqual([header], [(k, v) for k, v in request.headers.items() if KEY in v])
                    self.assertNotIn(KEY, request.url)
                    self.assertNotIn(KEY.encode(), request.body or b"")
                    self.assertNotIn(KEY, repr(request))

    def test_without_a_key_no_credential_header_is_sent(self) -> None:
        for name, kind in (("tavily", "search"), ("firecrawl", "search"), ("firecrawl", "fetch"), ("you", "search"),
                           ("searxng", "search"), ("jina", "fetch"), ("github", "search"), ("wikipedia", "search")):
            with self.subTest(name=name, kind=kind):
                names = {header.lower() for header in build(name, QUERIES[kind], kind, key="").headers}
                self.assertFalse(names & {"authorization", "x-api-key", "x-subscription-token"})

    def test_tavily_without_a_key_asks_in_its_keyless_mode(self) -> None:
        self.assertEqual("keyless", build("tavily", asked(), key="").headers["X-Tavily-Access-Mode"])
        self.assertNotIn("X-Tavily-Access-Mode", build("tavily", asked()).headers)

    def test_you_without_a_key_has_another_path(self) -> None:
        request = build("you", asked(recency_days=7, include_domains=("a.test", "b.test")), key="")
        self.assertEqual(("GET", "/v1/agents/search"), (request.method, path(request)))
        self.assertEqual({"query": "kestrel 3 scheduler", "count": "5", "freshness": "week",
                          "include_domains": "a.test,b.test"}, params(request))

    def test_firecrawl_keeps_prefix_and_version_of_its_base(self) -> None:
        for base, expected in (("http://10.0.0.5:3002", "/v2/scrape"), ("http://10.0.0.5:3002/v1", "/v1/scrape"),
                               ("https://gw.example.test/fire/v1/", "/fire/v1/scrape"),
                               ("https://gw.example.test/fire", "/fire/v2/scrape")):
            with self.subTest(base):
                self.assertEqual(expected, path(build("firecrawl", PageQuery(DOCS), "fetch", base=base)))

    def test_firecrawl_v1_gets_domains_as_operators_and_is_told_to_read_sitemaps(self) -> None:
        base = "http://10.0.0.5:3002/v1"
        body = build("firecrawl", asked(include_domains=("a.test",), exclude_domains=("b.test",)), base=base).json()
        self.assertEqual({"query": "kestrel 3 scheduler site:a.test -site:b.test", "limit": 5}, body)
        self.assertIs(False, build("firecrawl", MapQuery(DOCS), "map", base=base).json()["ignoreSitemap"])
        self.assertNotIn("ignoreSitemap", build("firecrawl", MapQuery(DOCS), "map").json())

    def test_deepseek_base_of_another_protocol_is_cut_back(self) -> None:
        for suffix in ("", "/", "/v1", "/beta", "/anthropic", "/anthropic/"):
            with self.subTest(suffix):
                base = "https://gw.example.test/ds" + suffix
                self.assertEqual("/ds/v1/tools/fetch", path(build("deepseek", PageQuery(DOCS), "fetch", base=base)))

    def test_searxng_base_may_be_the_search_page_itself(self) -> None:
        for base, expected in (("http://s.test", "/search"), ("http://s.test/", "/search"),
                               ("http://s.test/searx/", "/searx/search"), ("http://s.test/search", "/search")):
            self.assertEqual(expected, path(build("searxng", asked(), base=base)))

    def test_searxng_options_and_basic_credentials(self) -> None:
        request = build("searxng", asked(recency_days=20), key="", SEARXNG_CATEGORIES="it,science",
                        SEARXNG_LANGUAGE="de", SEARXNG_ENGINES="brave", SEARXNG_USERNAME="ada",
                        SEARXNG_PASSWORD="s3cret")
        self.assertEqual({"q": "kestrel 3 scheduler", "format": "json", "categories": "it,science", "language": "de",
                          "engines": "brave", "time_range": "month"}, params(request))
        self.assertEqual("Basic " + base64.b64encode(b"ada:s3cret").decode(), request.headers["Authorization"])

    def test_pages_are_asked_for_whole_and_with_our_time_limit(self) -> None:
        page = PageQuery("https://x.example.test/a?b=1#c", focus="what I want", timeout_seconds=12)
        for name, body in (
                ("tavily", {"urls": [page.url], "format": "markdown", "timeout": 12}),
                ("firecrawl", {"url": page.url, "formats": ["markdown"], "onlyMainContent": True, "timeout": 12000}),
                ("exa", {"urls": [page.url], "text": True, "livecrawlTimeout": 12000}),
                ("deepseek", {"url": page.url}), ("jina", {"url": page.url})):
            with self.subTest(name):
                self.assertEqual(body, build(name, page, "fetch").json())
        self.assertEqual("12", build("jina", page, "fetch").headers["X-Timeout"])

    def test_maps_are_asked_for_with_depth_and_limit(self) -> None:
        query = MapQuery("https://x.example.test/", limit=30, max_depth=2, timeout_seconds=12)
        self.assertEqual({"url": query.url, "max_depth": 2, "limit": 30, "allow_external": False, "timeout": 12},
                         build("tavily", query, "map").json())
        self.assertEqual(websearch.MAX_MAP_LIMIT,
                         build("tavily", query._replace(search="api"), "map").json()["limit"])
        self.assertEqual("api", build("firecrawl", query._replace(search="api"), "map").json()["search"])

    def test_content_is_asked_for_where_it_is_cheap(self) -> None:
        query = asked(include_content=True)
        self.assertEqual("markdown", build("tavily", query).json()["include_raw_content"])
        self.assertEqual({"formats": ["markdown"]}, build("firecrawl", query).json()["scrapeOptions"])
        self.assertEqual({"highlights": True, "text": {"maxCharacters": 10_000}},
                         build("exa", query).json()["contents"])
        self.assertIs(True, build("deepseek", query).json()["need_content"])
        self.assertEqual("full_page", build("you", query).json()["extraction"]["extraction_mode"])

    def test_brave_is_asked_for_passages_where_page_text_is_wanted(self) -> None:
        request = build("brave", asked(include_content=True, recency_days=7))
        self.assertEqual("/res/v1/llm/context", path(request))
        self.assertEqual({"q": "kestrel 3 scheduler", "count": "5", "maximum_number_of_urls": "5", "freshness": "pw"},
                         params(request))
        follow = ROWS["brave"].search.follow_up
        for status, body in ((404, b"{}"), (403, b'{"error":{"code":"OPTION_NOT_IN_PLAN"}}')):
            again = follow(request, Response(request.url, status, {}, body))
            self.assertEqual({"q": "kestrel 3 scheduler", "count": "5", "freshness": "pw", "text_decorations": "false",
                              "result_filter": "web"}, params(again))
            self.assertEqual("/res/v1/web/search", path(again))
        self.assertIsNone(follow(build("brave", asked()), Response("https://h.test", 404, {}, b"{}")))

    def test_brave_is_asked_again_without_an_option_that_the_plan_lacks(self) -> None:
        follow_up = operation_of(ROWS["brave"], "search").follow_up
        assert follow_up is not None
        request = build("brave", asked())
        refusal = Response(request.url, 400, {}, b'{"error":{"code":"OPTION_NOT_IN_PLAN"}}')
        again = follow_up(request, refusal)
        assert again is not None
        self.assertEqual(set(params(request)) - {"extra_snippets"}, set(params(again)))
        self.assertIsNone(follow_up(again, refusal))
        self.assertIsNone(follow_up(request, reply("brave_web_success.json")))


class Filters(unittest.TestCase):
    """recency_days and the domain lists, in the terms of each API."""

    def test_recency_is_a_code_where_it_is_exact_and_a_range_where_it_is_not(self) -> None:
        expected = {
            ("tavily", 7): {"time_range": "week"}, ("tavily", 10): {"start_date": "2026-11-20"},
            ("firecrawl", 1): {"tbs": "qdr:d"}, ("firecrawl", 10): {"tbs": "cdr:1,cd_min:11/20/2026,cd_max:11/30/2026"},
            ("exa", 10): {"startPublishedDate": "2026-11-20T00:00:00.000Z"},
            ("you", 30): {"freshness": "month"}, ("you", 400): {"freshness": "2025-10-26to2026-11-30"},
            ("deepseek", 10): {"query": "kestrel 3 scheduler after:2026-11-20"},
        }
        for (name, days), fields in expected.items():
            with self.subTest(name=name, days=days):
                plain, limited = build(name, asked()).json(), build(name, asked(recency_days=days)).json()
                self.assertEqual(fields, {k: v for k, v in limited.items() if plain.get(k) != v})

    def test_recency_of_apis_with_get_or_form(self) -> None:
        self.assertEqual("pw", params(build("brave", asked(recency_days=7)))["freshness"])
        self.assertEqual("2026-11-28to2026-11-30", params(build("brave", asked(recency_days=2)))["freshness"])
        self.assertEqual("m", form(build("duckduckgo", asked(recency_days=8)))["df"])
        self.assertEqual("2025-10-26..2026-11-30", form(build("duckduckgo", asked(recency_days=400)))["df"])
        self.assertEqual("2026-11-23", params(build("github", asked(recency_days=7)))["q"].rpartition("pushed:>=")[2])
        self.assertEqual("created_at_i>1795392000",
                         params(build("hackernews", asked(recency_days=7)))["numericFilters"])
        self.assertEqual("1795392000", params(build("stackexchange", asked(recency_days=7)))["fromdate"])
        self.assertEqual("from-pub-date:2026-11-23", params(build("crossref", asked(recency_days=7)))["filter"])
        self.assertEqual("all:kestrel AND all:3 AND all:scheduler AND submittedDate:[202611230000 TO 202611302359]",
                         params(build("arxiv", asked(recency_days=7)))["search_query"])
        self.assertEqual("7d", params(build("gdelt", asked(recency_days=7)))["timespan"])

    def test_a_code_is_never_narrower_than_asked_unless_the_api_knows_no_longer_one(self) -> None:
        periods = {"day": 1, "week": 7, "month": 31, "year": 366}
        for days in (1, 2, 7, 8, 30, 31, 32, 365, 366, 367, 3650):
            self.assertGreaterEqual(periods[params(build("searxng", asked(recency_days=days)))["time_range"]], min(days, 366))
        self.assertNotIn("time_range", params(build("searxng", asked())))

    def test_without_a_date_of_today_the_wider_code_serves(self) -> None:
        query = SearchQuery("x", recency_days=10)
        self.assertEqual("month", build("tavily", query).json()["time_range"])
        self.assertEqual("pm", params(build("brave", query))["freshness"])

    def test_domain_lists_go_into_fields_or_operators(self) -> None:
        query = asked(include_domains=("a.test", "b.test"), exclude_domains=("c.test",))
        for name, names in (("tavily", ("include_domains", "exclude_domains")),
                            ("exa", ("includeDomains", "excludeDomains"))):
            body = build(name, query).json()
            self.assertEqual([["a.test", "b.test"], ["c.test"]], [body[field] for field in names])
        operators = "kestrel 3 scheduler site:a.test OR site:b.test -site:c.test"
        for got in (params(build("brave", query))["q"], params(build("searxng", query))["q"],
                    form(build("duckduckgo", query))["q"], build("deepseek", query).json()["query"]):
            self.assertEqual(operators, got)

    def test_apis_that_refuse_both_lists_say_so_and_never_get_both(self) -> None:
        query = asked(include_domains=("a.test",), exclude_domains=("c.test",))
        for name, field in (("firecrawl", "excludeDomains"), ("you", "exclude_domains")):
            self.assertFalse(ROWS[name].both_domain_lists)
            self.assertNotIn(field, build(name, query).json())
            self.assertEqual(["c.test"], build(name, query._replace(include_domains=())).json()[field])

    def test_every_source_provider_names_the_filters_that_it_applies(self) -> None:
        names = ("recency_days", "include_domains", "exclude_domains")
        self.assertEqual({"tavily", "firecrawl", "exa", "brave", "deepseek", "you", "searxng", "duckduckgo", "open"},
                         {row.id for row in PROVIDERS if row.kind == "sources" and row.filters == names})

    def test_a_long_query_is_cut_at_a_word_and_its_operators_stay(self) -> None:
        text = "elaborate " * 60
        for name, most in (("deepseek", 128), ("brave", 400), ("duckduckgo", 495)):
            query = asked(text, recency_days=10, include_domains=("docs.python.org",), exclude_domains=("b.test",))
            request = build(name, query)
            sent = request.json()["query"] if name == "deepseek" else {**params(request), **form(request)}["q"]
            with self.subTest(name):
                self.assertLessEqual(len(sent), most)
                self.assertLessEqual(len(sent.split()), 50 if name == "brave" else 100)
                words = [word for word in sent.split() if word != "elaborate"]
                self.assertEqual(["site:docs.python.org", "-site:b.test"], words[-2:])
        self.assertLessEqual(len(build("tavily", asked(text)).json()["query"]), 400)
        self.assertEqual("x" * 128, build("deepseek", asked("x" * 500)).json()["query"])

    def test_operators_that_do_not_fit_are_left_out_from_the_end(self) -> None:
        names = tuple(f"a-rather-long-name-{i}.example.test" for i in range(10))
        sent = build("deepseek", asked("what is new in kestrel", include_domains=names)).json()["query"]
        self.assertLessEqual(len(sent), 128)
        self.assertTrue(sent.startswith("what is new in kestrel site:a-rather-long-name-0.example.test"), sent)
        self.assertFalse(sent.endswith("OR"), sent)


class OpenMembers(unittest.TestCase):
    """Which public APIs are asked, and where."""

    def ids(self, text: str, **fields: Any) -> List[str]:
        return [member.id for member in members_for(OPEN, asked(text, **fields))]

    def test_code_questions_go_to_the_first_four(self) -> None:
        self.assertEqual(["wikipedia", "stackexchange", "github", "hackernews"],
                         self.ids("python asyncio gather error"))

    def test_other_questions_add_what_fits(self) -> None:
        self.assertIn("mdn", self.ids("css grid minmax"))
        self.assertEqual(["arxiv", "crossref"], [name for name in self.ids("papers on work stealing")
                                                 if name in ("arxiv", "crossref")])
        self.assertIn("gdelt", self.ids("election news"))
        self.assertIn("mwmbl", self.ids("best bakeries in Rome"))

    def test_members_that_cannot_apply_a_filter_are_left_out(self) -> None:
        self.assertEqual(["stackexchange", "github", "hackernews"], self.ids("rust borrow error", recency_days=30))
        self.assertEqual(["github"], self.ids("kestrel", include_domains=("github.com",)))
        self.assertEqual(["wikipedia"], self.ids("kestrel", include_domains=("en.wikipedia.org",)))
        self.assertNotIn("stackexchange", self.ids("python error", exclude_domains=("stackoverflow.com",)))
        self.assertEqual([], self.ids("kestrel", include_domains=("docs.example.org",)))

    def test_wikipedia_is_asked_in_the_language_of_the_script(self) -> None:
        for text, host in (("work stealing", "en"), ("планировщик задач", "ru"), ("作業竊取", "zh"),
                           ("スケジューラの仕組み", "ja"), ("작업 훔치기", "ko")):
            with self.subTest(text):
                request = build("wikipedia", asked(text), key="")
                self.assertEqual(f"{host}.wikipedia.org", urlsplit(request.url).hostname)
        body = json.dumps({"query": {"search": [{"title": "Планировщик задач"}]}}).encode()
        got = read("wikipedia", Response("https://ru.wikipedia.org/w/api.php?x=en.wikipedia.org", 200, {}, body))
        self.assertTrue(got.sources[0].url.startswith("https://ru.wikipedia.org/wiki/%D0%9F"), got.sources[0].url)

    def test_a_gateway_serves_each_member_below_its_host_name(self) -> None:
        member = ROWS["stackexchange"]
        self.assertEqual(member.default_url, member_url(member, ""))
        self.assertEqual("http://127.0.0.1:9/gw/api.stackexchange.com/2.3/search/advanced",
                         member_url(member, "http://127.0.0.1:9/gw/"))
        base = member_url(ROWS["wikipedia"], "http://127.0.0.1:9")
        self.assertEqual("/ru.wikipedia.org/w/api.php", path(build("wikipedia", asked("задача"), base=base)))

    def test_question_words_are_left_out_where_every_word_must_occur(self) -> None:
        self.assertEqual("asyncio gather handle exceptions",
                         params(build("stackexchange", asked("How does asyncio gather handle exceptions?")))["q"])
        self.assertEqual("what is it", params(build("stackexchange", asked("what is it?")))["q"])

    def test_github_query_stays_within_its_limit(self) -> None:
        self.assertLessEqual(len(params(build("github", asked("word" * 500, recency_days=3)))["q"]), 256)

    def test_an_arxiv_error_entry_is_an_error(self) -> None:
        feed = b"<feed><entry><id>http://arxiv.org/api/errors#x</id><summary>bad query</summary></entry></feed>"
        with self.assertRaises(WebError) as caught:
            read("arxiv", Response("", 200, {}, feed))
        self.assertEqual("arxiv: bad query", caught.exception.message)


class Table(unittest.TestCase):
    """The table PROVIDERS."""

    def test_equal_ids_are_refused(self) -> None:
        with self.assertRaises(WebError) as caught:
            websearch.index_providers((*PROVIDERS, websearch.EXA))
        self.assertEqual("WEB_DUPLICATE_PROVIDER", caught.exception.code)

    def test_every_variable_of_a_row_is_a_setting_with_the_vendors_address(self) -> None:
        for row in PROVIDERS:
            for name in filter(None, (row.url_variable, row.key_variable, row.model_variable, row.enabled_variable,
                                      *row.option_variables)):
                with self.subTest(row=row.id, name=name):
                    self.assertIn(name, websearch.VARIABLE_BY_NAME)
            if row.id in BASES and row.id not in ("searxng",):
                self.assertEqual(BASES[row.id], websearch.VARIABLE_BY_NAME[row.url_variable].default)

    def test_only_three_vendors_are_asked_without_a_key_on_their_own_hosts(self) -> None:
        self.assertEqual(["tavily", "firecrawl", "you"], [row.id for row in PROVIDERS if row.keyless])
        self.assertEqual(["chat", "firecrawl"], [row.id for row in PROVIDERS if row.key_optional_with_own_url])

    def test_duckduckgo_and_the_slow_public_apis_are_paced(self) -> None:
        self.assertEqual((2.0, 3.0), (ROWS["duckduckgo"].pace_seconds, ROWS["arxiv"].pace_seconds))


QUERIES: Dict[str, Any] = {"search": asked(recency_days=10, include_domains=("a.test",)), "fetch": PageQuery(DOCS),
                           "map": MapQuery(DOCS)}
ODD_VALUES: Tuple[Any, ...] = (None, 7, -1.5, 1e400, True, "", "text", [], [None, 7, {}], {}, {"a": []}, ["\ud800"])
MISSING = object()


def mutated(value: Any, place: Tuple[Any, ...], odd: Any) -> Any:
    """A copy of `value` with `odd` at `place`; MISSING takes the member out."""
    if not place:
        return odd
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(place) == 1 and odd is MISSING:
        del copy[place[0]]
    else:
        copy[place[0]] = mutated(value[place[0]], place[1:], odd)
    return copy


def places(value: Any, place: Tuple[Any, ...] = ()) -> Iterator[Tuple[Any, ...]]:
    """The path to every member of a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in pairs:
        yield (*place, key)
        yield from places(member, (*place, key))


class HostileReplies(unittest.TestCase):
    """Every field of a reply may hold anything: a reply or a coded error comes out, never another exception."""

    def parse(self, row: Provider, kind: str, response: Response) -> None:
        """Read it; the exceptions listed are those that the caller translates."""
        if response.status >= 300:
            self.assertIsInstance(provider_error(row, response), WebError)
            return
        try:
            got = operation_of(row, kind).parse(response)
            self.assertIsInstance(got, (SearchReply, Page, MapReply))
            for source in getattr(got, "sources", ()):
                self.assertRegex(source.url, r"^https?://")
                self.assertIsInstance(source.title + source.snippet + source.published_date + source.content, str)
                self.assertLessEqual(len(source.snippet), websearch.MAX_SNIPPET_CHARS)
        except (WebError, ValueError, KeyError, TypeError):
            pass

    def test_every_field_of_every_recorded_reply_may_be_anything(self) -> None:
        done = set()  # a field of one provider's replies is one, in whichever of them and of their items it stands
        for row in RECORDED:
            if not row.file.endswith(".json"):
                continue
            provider, whole = ROWS[row.file.partition("_")[0]], json.loads(fixture(f"providers/{row.file}"))
            for place in places(whole):
                field = (provider.id, row.kind, row.status, *("*" if isinstance(step, int) else step for step in place))
                if field in done:
                    continue
                done.add(field)
                with self.subTest(file=row.file, place=place):
                    for odd in (*ODD_VALUES, MISSING):
                        body = json.dumps(mutated(whole, place, odd)).encode()
                        self.parse(provider, row.kind, Response("https://api.example.test/", row.status, {}, body))

    def test_pages_cut_anywhere_are_survived(self) -> None:
        for name, file in (("duckduckgo", "duckduckgo_html_success.html"),
                           ("duckduckgo", "duckduckgo_lite_success.html"), ("arxiv", "arxiv_success.xml")):
            whole = fixture(f"providers/{file}")
            for end in range(0, len(whole), 37):
                with self.subTest(file=file, end=end):
                    self.parse(ROWS[name], "search", Response("", 200, {}, whole[:end]))

    def test_odd_addresses_in_duckduckgo_links_are_dropped(self) -> None:
        for href in ("http://[", "javascript:alert(1)", "//duckduckgo.com/l/?uddg=",
                     "//duckduckgo.com/l/?uddg=ftp%3A%2F%2Fx",
                     "/l/?uddg=data%3Atext", "", "#"):
            page = f'<div id="links"><div class="result"><a class="result__a" href="{href}">x</a></div></div>'
            with self.subTest(href):
                self.assertEqual((), read("duckduckgo", Response("", 200, {}, page.encode())).sources)


if __name__ == "__main__":
    unittest.main()
