"""A battery over the table of providers: every row and operation, against a real server, in good days and bad ones.

A row that is added to PROVIDERS is tested here as soon as GOOD knows a recorded reply of it, and fails until it does.
"""
from __future__ import annotations

import contextlib
import io
import threading
import time
import unittest
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import websearch as w
from tests.support import Hold, Loopback, RawLoopback, RecordedRequest, Reply, bare_environment, fixture, loopback_settings

KEY = "cAnarY-Key-4711x"
PAGE = "https://93.184.216.34/guide"  # a public address: nothing is looked up, and nothing is sent there
TODAY = "2026-11-30"
DOCS = "https://docs.example.org/kestrel/scheduler"
NEWS = "https://news.example.com/kestrel-3-0-released"

# (row, operation) -> the recorded reply and the addresses that it must give, all of them, in order; for a page its text
BENCHMARKS, FORUM = "https://blog.example.com/2026/11/kestrel-3-benchmarks", "https://forum.example.net/t/kestrel-vs-merlin/812"
TITLE, TEXT = "Scheduler design \u2014 Kestrel documentation", "# Scheduler design\n\nEach core owns a run queue."
SITE = ("https://docs.example.org/kestrel", DOCS, "https://docs.example.org/kestrel/io")
GOOD: Dict[Tuple[str, str], Tuple[str, Tuple[str, ...]]] = {
    ("grok", "search"): ("xai_success.json", (DOCS, BENCHMARKS, FORUM)),
    ("openai", "search"): ("openai_success.json", (DOCS, FORUM)),
    ("anthropic", "search"): ("anthropic_success.json", (DOCS, BENCHMARKS)),
    ("chat", "search"): ("gateway_chat_success.json", (DOCS, FORUM)),
    ("perplexity", "search"): ("perplexity_agent_success.json", (DOCS, BENCHMARKS)),
    ("tavily", "search"): ("tavily_search_success.json", (DOCS, BENCHMARKS)),
    ("tavily", "fetch"): ("tavily_extract_partial.json", (TITLE, TEXT)),
    ("tavily", "map"): ("tavily_map_success.json", SITE),
    ("firecrawl", "search"): ("firecrawl_search_success.json", (DOCS, BENCHMARKS, NEWS)),
    ("firecrawl", "fetch"): ("firecrawl_scrape_success.json", (TITLE, TEXT)),
    ("firecrawl", "map"): ("firecrawl_map_success.json", SITE),
    ("exa", "search"): ("exa_search_success.json", (DOCS, BENCHMARKS)),
    ("exa", "fetch"): ("exa_contents_partial.json", (TITLE, TEXT[2:])),
    ("brave", "search"): ("brave_web_success.json", (DOCS, FORUM)),
    ("deepseek", "search"): ("deepseek_search_success.json", (DOCS, FORUM)),
    ("deepseek", "fetch"): ("deepseek_fetch_success.json", (TITLE, TEXT)),
    ("you", "search"): ("you_search_success.json", (DOCS, NEWS)),
    ("searxng", "search"): ("searxng_success.json", (DOCS, FORUM)),
    ("jina", "fetch"): ("jina_reader_success.json", (TITLE, TEXT)),
    ("duckduckgo", "search"): ("duckduckgo_html_success.html", (DOCS, BENCHMARKS)),
    ("wikipedia", "search"): ("wikipedia_search_success.json",
                              ("https://en.wikipedia.org/wiki/Work_stealing", "https://en.wikipedia.org/wiki/Run_queue")),
    ("stackexchange", "search"): ("stackexchange_search_success.json",
                                  ("https://stackoverflow.com/questions/7700001/kestrel-work-stealing",)),
    ("github", "search"): ("github_repos_success.json", ("https://github.com/example/kestrel",)),
    ("hackernews", "search"): ("hackernews_success.json", (NEWS, "https://news.ycombinator.com/item?id=41000002")),
    ("mdn", "search"): ("mdn_success.json", ("https://developer.mozilla.org/en-US/docs/Web/API/Scheduler",)),
    ("arxiv", "search"): ("arxiv_success.xml", ("http://arxiv.org/abs/2611.00001v1",)),
    ("crossref", "search"): ("crossref_success.json", ("https://doi.org/10.5555/12345678",)),
    ("mwmbl", "search"): ("mwmbl_success.json", (DOCS,)),
    ("gdelt", "search"): ("gdelt_success.json", (NEWS,)),
}

# row -> the headers that carry its key, and what stands in them, where that is not a bearer alone
BEARER = (("authorization", f"Bearer {KEY}"),)
KEY_PLACES: Dict[str, Tuple[Tuple[str, str], ...]] = {
    "anthropic": (*BEARER, ("x-api-key", KEY)),  # other hosts than the vendor's get both
    "exa": (("x-api-key", KEY),), "brave": (("x-subscription-token", KEY),), "you": (("x-api-key", KEY),),
    "github": (),  # its token is for the vendor's own host
}

ECHO = f"the key {KEY} is not welcome"
SAID = {"error": {"message": ECHO, "type": KEY}, "detail": ECHO, "message": ECHO}
AWAY = (("Location", f"http://localhost:9/?key={KEY}"),)
INVALID = w.WEB_PROVIDER_RESPONSE_INVALID
FAULTS: Dict[str, Tuple[Reply, str]] = {
    "no body": (Reply(200, ""), INVALID),
    "401": (Reply(401, SAID), w.WEB_PROVIDER_AUTH_ERROR),
    "429": (Reply(429, SAID), w.WEB_PROVIDER_RATE_LIMITED),
    "500": (Reply(500, SAID), w.WEB_PROVIDER_ERROR),
    "a page": (Reply(200, f"<html><title>Sign in</title><body><p>{ECHO}</p></body></html>"), INVALID),
    "broken JSON": (Reply(200, ('{"results": [{"url": "https://a.test/", "title": "' + KEY).encode(),
                          (("Content-Type", "application/json"),)), INVALID),
    "another type": (Reply(200, [1, KEY]), INVALID),
    "redirect": (Reply(302, "", AWAY), w.WEB_PROVIDER_ERROR),
}
# What is recorded or known of a vendor for "nothing was found". Answer providers owe an answer: theirs are unusable.
EMPTY: Dict[str, Any] = {
    **{name: {"status": "completed", "output": []} for name in ("grok", "openai", "perplexity")},
    "anthropic": "anthropic_empty.json",
    "chat": {"choices": [{"message": {"content": ""}}]},
    "tavily": "tavily_search_empty.json", "firecrawl": "firecrawl_search_empty.json", "exa": "exa_search_empty.json",
    "brave": "brave_web_empty.json", "deepseek": "deepseek_search_empty.json", "you": "you_search_empty.json",
    "searxng": {"results": []}, "duckduckgo": "duckduckgo_html_empty.html", "wikipedia": "wikipedia_search_empty.json",
    "stackexchange": {"items": []}, "github": {"total_count": 0, "items": []}, "hackernews": {"hits": []},
    "mdn": {"documents": []}, "crossref": {"message": {"items": []}}, "mwmbl": [], "gdelt": {},
    "arxiv": '<feed xmlns="http://www.w3.org/2005/Atom"></feed>',
}
# Where a vendor's own reading of a fault differs, and why.
EXCEPTIONS: Dict[Tuple[str, str], str] = {
    ("mwmbl", "another type"): w.WEB_NO_RESULTS,  # its replies are bare lists, in which nothing has an address here
}


class Row(NamedTuple):
    """One operation of one provider, or of one member of a provider."""

    provider: w.Provider
    kind: str  # search, fetch, map
    is_member: bool = False

    def __str__(self) -> str:
        return f"{self.provider.id} {self.kind}"


ROWS = tuple(
    Row(row, kind, row in w.OPEN.members)
    for row in (*w.PROVIDERS, *w.OPEN.members) for kind in ("search", "fetch", "map") if getattr(row, kind) is not None)


def recorded(name: str) -> Reply:
    """The recorded reply of that name, as its vendor labels it."""
    kinds = {"json": "application/json", "xml": "application/atom+xml", "html": "text/html; charset=utf-8"}
    return Reply(200, fixture("providers/" + name), (("Content-Type", kinds[name.rpartition(".")[2]]),))


def settings_of(base: str) -> Dict[str, str]:
    """Settings that give every row the key and a base address of its own below `base`."""
    settings = loopback_settings({"OPEN_API_URL": f"{base}/open", "WEBSEARCH_TIMEOUT": "8", "DUCKDUCKGO_ENABLED": "true",
                                  "OPEN_ENABLED": "true", "GITHUB_TOKEN": KEY, "CHAT_SEARCH_MODEL": "m-1"})
    for provider in w.PROVIDERS:
        if provider.url_variable and provider is not w.OPEN:
            settings[provider.url_variable] = f"{base}/{provider.id}"
        if provider.key_variable:
            settings[provider.key_variable] = KEY
    return settings


def ask(web: w.WebSearch, row: Row) -> Any:
    """What the program makes of the row's reply: addresses, or (title, text) of a page."""
    deadline = w.Deadline(10)
    query = w.SearchQuery("kestrel scheduler", 20, today=TODAY)
    if row.is_member:
        caller = w.Caller(web.snapshot(), w.Rests(), w.Pace(), False)
        return [source.url for source in w.search_one(caller, row.provider, query, deadline).sources]
    if row.kind == "search":
        return [source["url"] for source in web.search(query, deadline, row.provider.id)["sources"]]
    if row.kind == "map":
        return [source["url"] for source in web.map(w.MapQuery(PAGE), deadline, row.provider.id)["sources"]]
    page = web.page(PAGE, row.provider.id, deadline).page
    return page.title, page.text


def ask_all(base: str) -> Dict[Row, Any]:
    """What each row gives, its WebError in place of a result. All are asked at once, one process serving them."""
    results: Dict[Row, Any] = {}

    def run(web: w.WebSearch, row: Row) -> None:
        try:
            results[row] = ask(web, row)
        except w.WebError as error:
            results[row] = error

    with w.WebSearch(bare_environment(settings_of(base))) as web:
        threads = [threading.Thread(target=run, args=(web, row), daemon=True) for row in ROWS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(15)
    return results


def row_of(request: RecordedRequest) -> Tuple[str, str]:
    """(row, operation) that a request belongs to, by its path."""
    parts = request.path.strip("/").split("/")
    if parts[0] == "open":
        host = parts[1]
        member = next(m for m in w.OPEN.members if m.default_url.split("/")[2].split(".")[-2] == host.split(".")[-2])
        return member.id, "search"
    last = parts[-1]
    kind = "map" if last == "map" else "fetch" if last in ("extract", "scrape", "contents", "fetch") or parts[0] == "jina" else "search"
    return parts[0], kind


class Battery(unittest.TestCase):
    def run_all(self, answer: Callable[[RecordedRequest], Any]) -> Tuple[Dict[Row, Any], List[RecordedRequest]]:
        """The results of all rows with that server, and the requests; whatever happens, no key is shown anywhere."""
        stderr = io.StringIO()
        with Loopback({"*": answer}) as server, contextlib.redirect_stderr(stderr):
            results = ask_all(server.url())
            requests = list(server.requests)
        shown = [stderr.getvalue()]
        for result in results.values():
            shown += [repr(result), str(result)]
            if isinstance(result, w.WebError):
                shown += [result.message, result.hint, str(w.error_result(result))]
        self.assertNotIn(KEY, "\n".join(shown))
        self.assertEqual(set(results), set(ROWS), "these never came to an end")
        return results, requests

    def test_every_row_has_a_recorded_reply(self) -> None:
        self.assertEqual({(row.provider.id, row.kind) for row in ROWS}, set(GOOD), "GOOD must know each")
        self.assertEqual({row.provider.id for row in ROWS if row.kind == "search"}, set(EMPTY), "EMPTY must know each")

    def test_recorded_replies_give_exactly_their_sources_and_the_key_is_where_it_belongs(self) -> None:
        results, requests = self.run_all(lambda request: recorded(GOOD[row_of(request)][0]))
        for row in ROWS:
            with self.subTest(str(row)):
                self.assertNotIsInstance(results[row], w.WebError, str(results[row]))
                self.assertEqual(tuple(results[row]), GOOD[row.provider.id, row.kind][1])
        self.assertEqual({row_of(request) for request in requests}, {(row.provider.id, row.kind) for row in ROWS})
        for request in requests:
            with self.subTest(request.target):
                holding = tuple(sorted((name.lower(), value) for name, value in request.headers if KEY in value))
                name = row_of(request)[0]
                has_key = any(row.provider.key_variable for row in ROWS if row.provider.id == name)
                self.assertEqual(holding, KEY_PLACES.get(name, BEARER if has_key else ()))
                self.assertNotIn(KEY, request.target + request.body.decode())
                self.assertEqual(request.header("user-agent"), f"{w.SERVER_NAME}/{w.VERSION} (+{w.HOMEPAGE})")

    def test_a_reply_without_results_is_no_results_or_no_answer(self) -> None:
        def answer(request: RecordedRequest) -> Any:
            reply = EMPTY.get(row_of(request)[0], {})
            return recorded(reply) if isinstance(reply, str) and reply[0] != "<" else reply

        results, _ = self.run_all(answer)
        for row in ROWS:
            if row.kind == "search":
                with self.subTest(str(row)):
                    code = INVALID if row.provider.kind == "answer" else w.WEB_NO_RESULTS
                    self.assertEqual(getattr(results[row], "code", results[row]), code)

    def test_every_fault_has_its_code_and_names_the_provider(self) -> None:
        for fault, (reply, code) in FAULTS.items():
            started = time.monotonic()
            results, requests = self.run_all(lambda _, reply=reply: reply)
            self.assertLess(time.monotonic() - started, 8)
            for row in ROWS:
                with self.subTest(f"{row}: {fault}"):
                    error = results[row]
                    self.assertIsInstance(error, w.WebError)
                    self.assertEqual(error.code, EXCEPTIONS.get((row.provider.id, fault), code), error.message)
                    self.assertIn(row.provider.id, error.message)
            self.assertEqual(len(requests), len(ROWS), f"{fault}: a fault that lasts is not worth a second request")

    def test_silence_ends_in_time(self) -> None:
        with RawLoopback(Hold()) as server:
            settings = {**settings_of(server.url()), "WEBSEARCH_TIMEOUT": "0.5"}
            results: Dict[Row, Any] = {}

            def run(web: w.WebSearch, row: Row) -> None:
                started = time.monotonic()
                try:
                    results[row] = ask(web, row)
                except w.WebError as error:
                    results[row] = (error.code, time.monotonic() - started < 3)

            with w.WebSearch(bare_environment(settings)) as web:
                threads = [threading.Thread(target=run, args=(web, row), daemon=True) for row in ROWS if not row.is_member]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(8)
        for row in ROWS:
            if not row.is_member:
                with self.subTest(str(row)):
                    self.assertEqual(results.get(row), (w.WEB_PROVIDER_TIMEOUT, True))


if __name__ == "__main__":
    unittest.main()
