"""web_fetch and web_map above the transport: chains, page cache, windows, budgets. Real loopback origins."""
from __future__ import annotations

import threading
import time
import unittest
from typing import Any, Dict, List

import websearch
from tests.support import Hold, Loopback, RawLoopback, Reply, bare_environment, loopback_settings

ARTICLE = "<!doctype html><title>T</title><main><h1>Head</h1>" + "".join(
    f"<h2>Part {n}</h2><p>Sentence number {n} about kestrels that nest in the tower. " + "It goes on for a while. " * 12 + "</p>"
    for n in range(60)) + "</main>"


class WebTest(unittest.TestCase):
    def web(self, **settings: str) -> websearch.WebSearch:
        """A WebSearch with these settings, closed after the test."""
        web = websearch.WebSearch(bare_environment(loopback_settings(settings)))
        self.addCleanup(web.close)
        return web


def fetch(web: websearch.WebSearch, **arguments: Any) -> Dict[str, Any]:
    return websearch.run_tool(web, "web_fetch", arguments, websearch.Deadline(20))


class Pages(WebTest):
    def test_a_long_page_shows_head_tail_outline_and_where_to_go_on(self) -> None:
        with Loopback({"/a": ARTICLE}) as origin:
            result = fetch(self.web(), url=origin.url("/a"), char_limit=2000)
        self.assertTrue(result["truncated"])
        self.assertLessEqual(len(result["text"]), 2000)
        self.assertIn("[TRUNCATED", result["text"])
        self.assertIn("Sentence number 59", result["text"])
        self.assertLess(result["next_offset"], 1600)
        self.assertEqual(result["outline"][0]["heading"], "# Head")

    def test_paging_costs_one_request_and_gives_the_whole_text(self) -> None:
        with Loopback({"/a": ARTICLE}) as origin:
            web = self.web()
            whole = fetch(web, url=origin.url("/a"), char_limit=200_000)["text"]
            offset, text = 0, ""
            first = fetch(web, url=origin.url("/a"), char_limit=2000)
            text = first["text"][:first["next_offset"]]
            offset = first["next_offset"]
            while offset is not None:
                page = fetch(web, url=origin.url("/a"), char_limit=2000, offset=offset)
                text += page["text"]
                offset = page.get("next_offset")
            past = fetch(web, url=origin.url("/a"), offset=len(whole))
            self.assertEqual((past["text"], past["notes"]), ("", [f"offset {len(whole)} lies past the end ({len(whole)})"]))
            self.assertEqual(len(origin.requests), 1)
        self.assertEqual(text, whole)

    def test_equal_fetches_at_once_share_one_request(self) -> None:
        with Loopback({"/a": Reply(200, ARTICLE, delay_seconds=0.3)}) as origin:
            web = self.web()
            results: List[Any] = []
            threads = [threading.Thread(target=lambda: results.append(fetch(web, url=origin.url("/a")))) for _ in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual((len(results), len(origin.requests)), (20, 1))

    def test_focus_gives_the_passages_asked_for(self) -> None:
        with Loopback({"/a": ARTICLE.replace("number 41 about kestrels", "number 41 about zeppelins")}) as origin:
            result = fetch(self.web(), url=origin.url("/a"), char_limit=1500, focus="zeppelins")
            later = fetch(self.web(), url=origin.url("/a"), char_limit=1500, focus="zeppelins", offset=50)
        self.assertIn("zeppelins", result["text"])
        self.assertLessEqual(len(result["text"]), 1500)
        self.assertEqual((result["truncated"], "next_offset" in result), (True, False))
        self.assertIn("`focus` serves at offset 0 only", later["notes"][0])

    def test_side_lists_take_a_quarter_at_most(self) -> None:
        links = "".join(f'<li><a href="/very/long/address/{n}">Link text {n}</a></li>' for n in range(300))
        with Loopback({"/a": f"<nav><ul>{links}</ul></nav>" + ARTICLE}) as origin:
            result = fetch(self.web(), url=origin.url("/a"), char_limit=500)
        size = websearch.size_of(result.get("links", [])) + websearch.size_of(result.get("outline", []))
        self.assertLessEqual(size, 1000)

    def test_the_reply_budget_holds_for_text_of_three_bytes_a_character(self) -> None:
        words = "\u6f22\u5b57" * 60
        body = "<meta charset=utf-8><main>" + "".join(f"<p>{words}{n}</p>" for n in range(2000)) + "</main>"
        with Loopback({"/a": body}) as origin:
            result = fetch(self.web(WEBSEARCH_RESPONSE_BYTES="20000"), url=origin.url("/a"), char_limit=200_000)
        self.assertLessEqual(websearch.size_of(result), 20_000)
        self.assertGreater(websearch.size_of(result), 14_000)
        self.assertTrue(result["truncated"])
        self.assertIn("WEBSEARCH_RESPONSE_BYTES", result["notes"][0])

    def test_a_private_address_is_refused_before_anyone_is_asked(self) -> None:
        with Loopback({"*": {"results": []}}) as extractor:
            web = self.web(WEBSEARCH_ALLOW_PRIVATE="", TAVILY_API_KEY="tvly-test-key", TAVILY_API_URL=extractor.url())
            for address in ("http://127.0.0.1/", "http://169.254.169.254/", "http://router.local/", "http://[::1]/"):
                with self.subTest(address), self.assertRaises(websearch.WebError) as caught:
                    fetch(web, url=address)
                self.assertEqual(caught.exception.code, "WEB_BLOCKED_URL")
                self.assertIn("WEBSEARCH_ALLOW_PRIVATE", caught.exception.message + caught.exception.hint)
            self.assertEqual(extractor.requests, [])

    def test_an_extract_api_that_fails_passes_on_to_the_local_fetch(self) -> None:
        with Loopback({"/extract": 500}) as api, Loopback({"/a": ARTICLE}) as origin:
            web = self.web(TAVILY_API_KEY="tvly-test-key", TAVILY_API_URL=api.url())
            result = fetch(web, url=origin.url("/a"))
        self.assertEqual(result["provider"], "local")
        self.assertEqual([(a["provider"], a["outcome"]) for a in result["attempted"]], [("tavily", "error"), ("local", "ok")])

    def test_the_best_real_response_is_given_when_nothing_better_comes(self) -> None:
        with Loopback({"/a": Reply(403, "<p>Members only, please log in first.</p>")}) as origin:
            result = fetch(self.web(), url=origin.url("/a"))
        self.assertEqual((result["status_code"], result["provider"]), (403, "local"))
        self.assertIn("Members only", result["text"])

    def test_an_error_page_is_asked_for_again_but_not_while_paging(self) -> None:
        with Loopback() as origin:
            origin.answer("/a", Reply(404, ARTICLE), "<p>now it is here</p>")
            web = self.web()
            first = fetch(web, url=origin.url("/a"), char_limit=1000)
            fetch(web, url=origin.url("/a"), char_limit=1000, offset=first["next_offset"])
            self.assertEqual(len(origin.requests), 1)
            self.assertIn("now it is here", fetch(web, url=origin.url("/a"))["text"])

    def test_a_cut_body_is_flagged(self) -> None:
        with RawLoopback(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 500\r\n\r\n<p>the beginning") as origin:
            result = fetch(self.web(), url=origin.url("/a"))
        self.assertTrue(result["truncated"])
        self.assertTrue(any("incomplete" in note for note in result["notes"]))
        self.assertTrue(result["text"].startswith("the beginning"))

    def test_a_page_without_text_says_so(self) -> None:
        deep = "<div>" * 50_000 + "text"
        with Loopback({"/blank": "  \n", "/deep": deep}) as origin:
            blank, nested = (fetch(self.web(), url=origin.url(path)) for path in ("/blank", "/deep"))
        self.assertEqual(blank["notes"], ["no text was found in the page"])
        self.assertIn("nests them more than 200 deep", nested["notes"][0])

    def test_a_silent_origin_is_a_timeout(self) -> None:
        with RawLoopback(Hold()) as origin:
            started = time.monotonic()
            with self.assertRaises(websearch.WebError) as caught:
                fetch(self.web(WEBSEARCH_TIMEOUT="0.5"), url=origin.url("/a"))
        self.assertEqual(caught.exception.code, "WEB_FETCH_TIMEOUT")
        self.assertLess(time.monotonic() - started, 2.0)


class Rests(WebTest):
    def test_who_rests_after_a_refusal_is_skipped_in_fetch_and_map_and_the_error_says_why(self) -> None:
        with Loopback({"*": Reply(429, {"detail": {"error": "limit"}}, (("Retry-After", "90"),))}) as refusing:
            web = self.web(TAVILY_API_KEY="tvly-test-key", TAVILY_API_URL=refusing.url(), WEBSEARCH_FETCH_PROVIDERS="tavily",
                           WEBSEARCH_MAP_PROVIDERS="tavily")
            outcomes = []
            for tool in ("web_map", "web_fetch", "web_map"):
                with self.assertRaises(websearch.WebError) as caught:
                    websearch.run_tool(web, tool, {"url": "https://93.184.216.34/guide"}, websearch.Deadline(20))
                self.assertEqual(caught.exception.code, "WEB_PROVIDER_RATE_LIMITED")
                self.assertIn("limit", caught.exception.message)
                outcomes += [attempt.outcome for attempt in caught.exception.attempted]
            self.assertEqual((outcomes, len(refusing.requests)), (["error", "skipped", "skipped"], 1))
        self.assertIn("rests for", caught.exception.message)


class Maps(WebTest):
    def test_a_local_map_reads_the_sitemap_and_the_links(self) -> None:
        with Loopback() as site:
            site.answer("/robots.txt", f"User-agent: *\nDisallow: /private\nSitemap: {site.url('/map.xml')}\n")
            site.answer("/map.xml", Reply(200, f"<urlset><url><loc>{site.url('/from-sitemap')}</loc></url></urlset>",
                                          (("Content-Type", "application/xml"),)))
            site.answer("/", '<a href="/one">One</a> <a href="/private/x">No</a> <a href="https://other.example.org/">Away</a>')
            result = websearch.run_tool(self.web(), "web_map", {"url": site.url("/")}, websearch.Deadline(20))
        urls = [source["url"] for source in result["sources"]]
        self.assertIn(site.url("/from-sitemap"), urls)
        self.assertIn(site.url("/one"), urls)
        self.assertFalse([url for url in urls if "other.example.org" in url])
        self.assertEqual((result["provider"], result["truncated"]), ("local", False))

    def test_search_words_narrow_the_map(self) -> None:
        with Loopback({"/": '<a href="/guide/install">Install</a> <a href="/blog">Blog</a>'}) as site:
            result = websearch.run_tool(self.web(), "web_map", {"url": site.url("/"), "search": "install"},
                                        websearch.Deadline(20))
            with self.assertRaises(websearch.WebError) as caught:
                websearch.run_tool(self.web(), "web_map", {"url": site.url("/"), "search": "zebra"}, websearch.Deadline(20))
        self.assertEqual([source["url"] for source in result["sources"]], [site.url("/guide/install")])
        self.assertEqual(caught.exception.code, "WEB_NO_RESULTS")
        self.assertIn("found 3 addresses below 127.0.0.1, none with the words 'zebra'", caught.exception.message)


if __name__ == "__main__":
    unittest.main()
