"""The site mapper: robots.txt, sitemaps, links; and what hostile ones may cost."""

from __future__ import annotations

import gzip
import threading
import time
import unittest
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import websearch
from tests.support import Loopback, Reply
from websearch import Deadline, MapQuery, MapReply, Response, WebError

HOME = "https://site.test"


class Site:
    """A site of fixed pages: path -> HTML, (status, body), (content type, body) or WebError. Records what was asked for."""

    def __init__(self, pages: Mapping[str, Any], delay_seconds: float = 0.0) -> None:
        self.pages, self.delay_seconds = {HOME + path if path[:1] == "/" else path: page for path, page in pages.items()}, delay_seconds
        self.asked: List[str] = []
        self.running = self.most_running = 0
        self.lock = threading.Lock()

    def get(self, url: str) -> Response:
        with self.lock:
            self.asked.append(url)
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        time.sleep(self.delay_seconds)
        with self.lock:
            self.running -= 1
        page = self.pages.get(url, (404, "not here"))
        if isinstance(page, WebError):
            raise page
        if isinstance(page, Response):
            return page
        status, kind = 200, "text/html; charset=utf-8"
        if isinstance(page, tuple):
            status, kind = (page[0], kind) if isinstance(page[0], int) else (200, page[0])
            page = page[1]
        body = page if isinstance(page, bytes) else page.encode("utf-8")
        return Response(url, status, {"content-type": kind}, body)

    def map(self, seconds: float = 5.0, url: str = HOME + "/", **query: Any) -> MapReply:
        return websearch.map_site(MapQuery(url, **query), self.get, Deadline(seconds))

    def paths(self) -> List[str]:
        return [url.replace(HOME, "") for url in self.asked]


def listed(reply: MapReply) -> List[str]:
    return [source.url.replace(HOME, "") for source in reply.sources]


def page(*links: str, title: str = "") -> str:
    anchors = "".join(f'<li><a href="{link}">to {link}</a>' for link in links)
    return f"<!doctype html><title>{title}</title><ul>{anchors}</ul>"


def sitemap(*urls: str) -> Tuple[str, str]:
    entries = "".join(f"<url><loc>{url}</loc></url>" for url in urls)
    return "application/xml", f'<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'


def sitemap_index(*urls: str) -> Tuple[str, str]:
    return "application/xml", "<sitemapindex>" + "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls) + "</sitemapindex>"


def robots(*lines: str) -> websearch.Robots:
    return websearch.parse_robots("\n".join(lines))


class RobotsTest(unittest.TestCase):
    def check(self, rules: Sequence[str], verdicts: Dict[str, bool]) -> None:
        parsed = robots("User-agent: *", *rules)
        self.assertEqual({path: parsed.allows(path) for path in verdicts}, verdicts)

    def test_the_longest_match_decides_whatever_the_order(self) -> None:
        verdicts = {"/": True, "/a": False, "/ab": False, "/a/b": True, "/a/b/c": False, "/b": True}

        self.check(["Disallow: /a", "Allow: /a/b", "Disallow: /a/b/c"], verdicts)
        self.check(["Disallow: /a/b/c", "Allow: /a/b", "Disallow: /a"], verdicts)

    def test_allow_wins_among_equals(self) -> None:
        self.check(["Disallow: /a", "Allow: /a"], {"/a": True})
        self.check(["Allow: /a*", "Disallow: /aa"], {"/aa": True})
        self.check(["Allow: /*a", "Disallow: /xab"], {"/xa": True, "/xab": False})

    def test_an_empty_disallow_forbids_nothing(self) -> None:
        self.check(["Disallow:"], {"/": True, "/a": True})

    def test_stars_match_anything_and_a_dollar_the_end(self) -> None:
        self.check(["Disallow: /*.php$", "Disallow: /x/*/z", "Disallow: /only$", "Disallow: *secret"], {
            "/a.php": False, "/a.php?x": True, "/a.phpx": True, "/x/1/2/z": False, "/x/z": True,
            "/only": False, "/only/": True, "/an/open/secret/": False})

    def test_the_piece_before_a_dollar_does_not_overlap_the_one_before_it(self) -> None:
        self.check(["Disallow: /ab*ba$"], {"/aba": True, "/abba": False, "/ab-ba": False})

    def test_everything_can_be_forbidden(self) -> None:
        self.check(["Disallow: /"], {"/": False, "/a?b": False, "/robots.txt": True})

    def test_escapes_compare_as_the_standard_says(self) -> None:
        self.check(["Disallow: /%7Euser", "Disallow: /ü", "Disallow: /a%2fb", "Disallow: /star%2A$"], {
            "/~user/x": False, "/%C3%BC": False, "/%c3%bc": False, "/a%2Fb": False, "/a/b": True, "/star*": False})

    def test_our_own_group_replaces_the_one_for_everybody(self) -> None:
        rules = robots("User-agent: *", "Disallow: /", "", "User-Agent: WebSearch-MCP/1.0", "Disallow: /ours")

        self.assertEqual([rules.allows(path) for path in ("/", "/ours")], [True, False])

    def test_groups_for_one_agent_count_as_one_and_an_agent_may_share_a_group(self) -> None:
        rules = robots("User-agent: a", "User-agent: *", "Disallow: /1", "Crawl-delay: 9", "Disallow: /2", "User-agent: b",
                       "Disallow: /3", "User-agent: *", "Disallow: /4")

        self.assertEqual([rules.allows(f"/{number}") for number in (1, 2, 3, 4)], [False, False, True, False])

    def test_comments_line_ends_and_case_do_not_matter(self) -> None:
        rules = websearch.parse_robots("# hello\r\nUSER-AGENT : * # all\rDISALLOW: /a # no\r\nSitemap: https://x.test/s.xml\r\n")

        self.assertEqual((rules.allows("/a"), rules.allows("/b"), rules.sitemaps), (False, True, ("https://x.test/s.xml",)))

    def test_what_is_no_robots_txt_forbids_nothing(self) -> None:
        for text in ("", "<!doctype html><p>Not found", "Disallow: /", "\x00\xff\n:::"):
            self.assertTrue(websearch.parse_robots(text).allows("/a"), text)

    def test_ten_megabytes_of_wildcards_cost_little(self) -> None:
        lines = ["User-agent: *"] + ["Disallow: /" + "a*" * 240 + f"b{number}$" for number in range(1_000)]
        text = "\n".join(lines)[:websearch.ROBOTS_BYTES]
        started = time.monotonic()

        rules = websearch.parse_robots(text)
        verdicts = {rules.allows("/" + "a" * 8_000) for _ in range(3)}

        self.assertEqual(verdicts, {True})
        self.assertLess(time.monotonic() - started, 3)


class SitemapTest(unittest.TestCase):
    def locations(self, text: str) -> Tuple[bool, List[str]]:
        is_index, found = websearch.sitemap_locations(text)
        return is_index, list(found)

    def test_locations_are_read_with_entities_data_sections_and_line_ends(self) -> None:
        text = ("<?xml version='1.0'?><!-- <url><loc>https://a.test/hidden</loc></url> -->\n<urlset>\n<url><loc>\n https://a.test/?a=1&amp;b=2 \n"
                "</loc><image:image><image:loc>https://a.test/i.png</image:loc></image:image></url>"
                "<url><loc><![CDATA[https://a.test/c?d&e]]></loc></url><location>no</location></urlset>")

        self.assertEqual(self.locations(text), (False, ["https://a.test/?a=1&b=2", "https://a.test/c?d&e"]))

    def test_an_index_is_told_from_a_sitemap_with_a_prefix_too(self) -> None:
        text = '<s:sitemapindex xmlns:s="x"><s:sitemap><s:loc>https://a.test/1.xml</s:loc></s:sitemap></s:sitemapindex>'

        self.assertEqual(self.locations(text), (True, ["https://a.test/1.xml"]))

    def test_a_plain_list_is_a_sitemap_and_a_web_page_is_none(self) -> None:
        self.assertEqual(self.locations("https://a.test/1\r\nhttps://a.test/2\n"), (False, ["https://a.test/1", "https://a.test/2", ""]))
        self.assertEqual(self.locations("<!doctype html><loc>https://a.test/1</loc>"), (False, []))

    def test_entities_of_a_document_type_are_not_expanded(self) -> None:
        bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;">]><urlset><url><loc>https://a.test/&b;</loc></url></urlset>'

        self.assertEqual(self.locations(bomb), (False, ["https://a.test/&b;"]))

    def test_hostile_sitemaps_are_read_in_linear_time(self) -> None:
        size = 300_000
        for unit in ("<loc>", "<loc", "<!--", "<![CDATA[", "<loc><![CDATA[", "<url>", "&#x9;", "<loc>x", "-->", "<loc>&lt;</loc>"):
            text = "<urlset>" + unit * (size // len(unit))
            started = time.monotonic()
            self.locations(text)
            self.assertLess(time.monotonic() - started, 2, unit)


class MapTest(unittest.TestCase):
    def test_the_page_comes_first_then_sitemaps_then_links(self) -> None:
        site = Site({
            "/robots.txt": ("text/plain", f"Sitemap: {HOME}/special.xml\n"),
            "/special.xml": sitemap(HOME + "/from-robots", HOME + "/both/"),
            "/sitemap.xml": sitemap(HOME + "/usual"),
            "/": page("/linked", "/both", title="Home"),
        })

        reply = site.map()

        self.assertEqual([(s.url, s.title, s.provider) for s in reply.sources], [
            (HOME + "/", "Home", "local"), (HOME + "/from-robots", "", "local"), (HOME + "/both/", "to /both", "local"),
            (HOME + "/usual", "", "local"), (HOME + "/linked", "to /linked", "local")])
        self.assertEqual((reply.total_found, reply.notes), (5, ()))
        self.assertEqual(sorted(site.paths()), ["/", "/robots.txt", "/sitemap.xml", "/special.xml"])

    def test_links_are_followed_breadth_first_to_the_depth_asked_for(self) -> None:
        pages = {"/": page("/a", "/b"), "/a": page("/a/1", title="A"), "/b": page("/b/1"), "/a/1": page("/deep")}

        self.assertEqual(listed(Site(pages).map(max_depth=1)), ["/", "/a", "/b"])
        self.assertEqual(listed(Site(pages).map(max_depth=2)), ["/", "/a", "/b", "/a/1", "/b/1"])
        reply = Site(pages).map(max_depth=3)
        self.assertEqual(listed(reply), ["/", "/a", "/b", "/a/1", "/b/1", "/deep"])
        self.assertEqual([s.title for s in reply.sources][:3], ["", "A", "to /b"])

    def test_what_is_no_page_of_this_site_is_left_out(self) -> None:
        links = ["https://other.test/", "mailto:a@b.test", "javascript:x()", "#top", "/#part", "/pic.PNG?v=1", "/app.js", "/a b",
                 "//site.test/c", "http://site.test/plain", "https://site.test:8443/d", "https://sub.site.test/", "/paper.pdf",
                 "/a%20b?utm_source=x", "https://user@site.test/", "\x00", "/file.php"]

        self.assertEqual(listed(Site({"/": page(*links)}).map()),
                         ["/", "/a%20b", "/c", "http://site.test/plain", "/paper.pdf", "/file.php"])

    def test_a_base_element_counts(self) -> None:
        html = '<base href="/docs/"><a href="one">1</a><a href="?q">2</a>'

        self.assertEqual(listed(Site({"/": html}).map()), ["/", "/docs/one", "/docs/?q"])

    def test_robots_txt_is_obeyed_for_asking_and_listing(self) -> None:
        site = Site({
            "/robots.txt": ("text/plain", "User-agent: *\nDisallow: /private\nAllow: /private/but"),
            "/sitemap.xml": sitemap(HOME + "/private/in-sitemap"),
            "/": page("/private/a", "/private/but", "/open"), "/open": page("/private/b"),
        })

        reply = site.map(max_depth=2)

        self.assertEqual(listed(reply), ["/", "/private/but", "/open"])
        self.assertEqual([path for path in site.paths() if "/private" in path], ["/private/but"])
        self.assertEqual(reply.notes, ("3 addresses that robots.txt disallows were left out",))

    def test_a_page_that_robots_txt_disallows_is_shown_but_not_read(self) -> None:
        site = Site({"/robots.txt": ("text/plain", "User-agent: *\nDisallow: /$"), "/": page("/a"), "/sitemap.xml": sitemap(HOME + "/b")})

        reply = site.map()

        self.assertEqual((listed(reply), site.paths()), (["/", "/b"], ["/robots.txt", "/sitemap.xml"]))
        self.assertIn("robots.txt does not allow the page itself", reply.notes[0])

    def test_robots_txt_that_fails_forbids_all_and_the_note_says_so(self) -> None:
        site = Site({"/robots.txt": (503, ""), "/": page("/a"), "/sitemap.xml": sitemap(HOME + "/b")})

        reply = site.map()

        self.assertEqual((listed(reply), site.paths()), (["/"], ["/robots.txt"]))
        self.assertEqual(reply.notes, ("https://site.test/robots.txt answered 503; by the rules for crawlers nothing more was read",))

    def test_robots_txt_out_of_reach_forbids_all_but_the_page_itself(self) -> None:
        site = Site({"/robots.txt": WebError(websearch.WEB_FETCH_TIMEOUT, "slow"), "/": page("/a")})

        reply = site.map()

        self.assertEqual((listed(reply), site.paths()), (["/"], ["/robots.txt", "/"]))
        self.assertIn("could not be reached", reply.notes[0])

    def test_a_site_that_is_down_is_an_error(self) -> None:
        down = WebError(websearch.WEB_FETCH_FAILED, "site.test refused the connection")
        site = Site(dict.fromkeys(("/robots.txt", "/", "/sitemap.xml"), down))

        with self.assertRaises(WebError) as caught:
            site.map()

        self.assertIs(caught.exception, down)

    def test_a_page_that_does_not_exist_is_an_error_unless_a_sitemap_names_others(self) -> None:
        with self.assertRaises(WebError) as caught:
            Site({}).map()
        reply = Site({"/sitemap.xml": sitemap(HOME + "/a")}).map()

        self.assertEqual((caught.exception.code, caught.exception.status), (websearch.WEB_FETCH_FAILED, 404))
        self.assertEqual((listed(reply), reply.notes), (["/", "/a"], ("the page itself could not be read: site.test answered 404",)))

    def test_a_site_that_redirects_to_another_host_is_mapped_there(self) -> None:
        www = "https://www.site.test"
        site = Site({
            "/": Response(www + "/en/", 200, {"content-type": "text/html"}, page("/a", HOME + "/b").encode()),
            www + "/robots.txt": ("text/plain", f"User-agent: *\nDisallow: /secret\nSitemap: {www}/s.xml"),
            www + "/s.xml": sitemap(www + "/c", www + "/secret"),
        })

        self.assertEqual(listed(site.map()), [www + "/en/", www + "/c", www + "/a", "/b"])

    def test_indexes_gzip_and_lists_are_read(self) -> None:
        packed = gzip.compress(sitemap(HOME + "/packed")[1].encode())
        site = Site({
            "/robots.txt": ("text/plain", f"Sitemap: {HOME}:443/index.xml\nSitemap: https://cdn.test/list.txt\nSitemap: {HOME}/sitemap.xml"),
            HOME + ":443/index.xml": sitemap_index(HOME + "/one.xml.gz", "https://elsewhere.test/no.xml", HOME + "/index.xml", HOME + "/deeper.xml"),
            "/one.xml.gz": ("application/gzip", packed), "/deeper.xml": sitemap_index(HOME + "/two.xml"),
            "/two.xml": sitemap(HOME + "/two"), "https://cdn.test/list.txt": ("text/plain", HOME + "/listed\nhttps://cdn.test/foreign"),
            "/": page(),
        })

        reply = site.map()

        self.assertEqual((listed(reply), reply.notes), (["/", "/listed", "/packed", "/two"], ()))
        self.assertEqual((site.paths().count("/index.xml"), site.paths().count("/sitemap.xml")), (0, 1))  # else asked twice
        self.assertNotIn("https://elsewhere.test/no.xml", site.asked)

    def test_a_sitemap_that_robots_txt_names_and_that_fails_is_told(self) -> None:
        site = Site({"/robots.txt": ("text/plain", f"Sitemap: {HOME}/gone.xml\nSitemap: {HOME}/torn.xml"), "/": page("/a"),
                     "/torn.xml": ("application/gzip", b"\x1f\x8b torn")})

        reply = site.map()

        self.assertEqual(listed(reply), ["/", "/a"])
        self.assertEqual(reply.notes, (f"sitemap {HOME}/gone.xml: nothing to read, 404", f"sitemap {HOME}/torn.xml: nothing to read, 200"))

    def test_the_limit_cuts_the_list_and_the_total_counts_all(self) -> None:
        site = Site({"/": page("/a"), "/sitemap.xml": sitemap(*(f"{HOME}/{number}" for number in range(500)))})

        reply = site.map(limit=10)

        self.assertEqual((listed(reply), reply.total_found), (["/"] + [f"/{number}" for number in range(9)], 502))

    def test_search_words_select_by_address_and_title(self) -> None:
        html = '<title>Home</title><a href="/guide/install">Start</a><a href="/x">Install the GUIDE</a><a href="/guide">Other</a><a href="/%E6%97%A5%E6%9C%AC">a</a>'
        site = Site({"/": html, "/sitemap.xml": sitemap(HOME + "/install-guide", HOME + "/nothing")})

        reply = site.map(search="guide INSTALL")

        self.assertEqual((listed(reply), reply.total_found), (["/install-guide", "/guide/install", "/x"], 3))
        self.assertEqual(listed(site.map(search="日本")), ["/%E6%97%A5%E6%9C%AC"])
        self.assertEqual(site.map(search="unheard-of"), MapReply(total_found=7))  # so many have other words

    def test_no_more_than_twenty_pages_are_read_four_at_a_time(self) -> None:
        pages = {f"/{number}": page(*(f"/{number}/{child}" for child in range(3))) for number in range(40)}
        site = Site({"/": page(*pages), **pages}, delay_seconds=0.005)

        reply = site.map(max_depth=3, limit=500)

        read = [path for path in site.paths() if path not in ("/robots.txt", "/sitemap.xml")]
        self.assertEqual((len(read), len(set(read)), site.most_running), (20, 20, 4))
        self.assertEqual(reply.total_found, 1 + 40 + 19 * 3)
        self.assertIn("links of 20 pages were read, and no more", reply.notes)

    def test_crawling_stops_when_enough_is_found(self) -> None:
        site = Site({"/": page("/a", "/b", "/c"), "/a": page("/d")})

        site.map(max_depth=3, limit=3)

        self.assertEqual(site.paths(), ["/robots.txt", "/", "/sitemap.xml"])

    def test_what_was_found_in_time_is_the_reply(self) -> None:
        site = Site({"/": page("/a", "/b"), "/a": page("/c")}, delay_seconds=0.1)

        reply = site.map(seconds=0.35, max_depth=3)

        self.assertEqual(listed(reply)[:3], ["/", "/a", "/b"])
        self.assertEqual(reply.notes, ("the time was up before everything was read",))

    def test_no_time_for_even_the_page_is_an_error(self) -> None:
        with self.assertRaises(WebError) as caught:
            Site({"/": page()}, delay_seconds=0.1).map(seconds=0.05)

        self.assertEqual(caught.exception.code, websearch.WEB_FETCH_TIMEOUT)

    def test_cancelling_ends_the_mapping(self) -> None:
        deadline = Deadline(5)

        def get(url: str) -> Response:
            deadline.cancel()
            raise WebError(websearch.WEB_ABORTED, "the call was cancelled")

        with self.assertRaises(WebError) as caught:
            websearch.map_site(MapQuery(HOME), get, deadline)

        self.assertEqual(caught.exception.code, websearch.WEB_ABORTED)

    def test_an_endless_site_is_bounded(self) -> None:
        asked: List[str] = []

        def get(url: str) -> Response:
            asked.append(url)
            if url.endswith("/robots.txt"):
                return Response(url, 200, {}, f"Sitemap: {HOME}/s.xml\n".encode() * 9)
            if url.endswith(".xml"):
                index = sitemap_index(*(f"{HOME}/{len(asked)}-{number}.xml" for number in range(2_000)))[1]
                return Response(url, 200, {"content-type": "application/xml"}, index.encode())
            links = page(*(f"{url}/{number}" for number in range(2_000)))
            return Response(url, 200, {"content-type": "text/html"}, links.encode())

        started = time.monotonic()
        reply = websearch.map_site(MapQuery(HOME, limit=500, max_depth=3), get, Deadline(10))

        self.assertEqual((len(reply.sources), reply.total_found), (500, 2_001))
        self.assertEqual(len(asked), 2 + websearch.MAX_SITEMAPS)
        self.assertLess(time.monotonic() - started, 5)

    def test_a_huge_sitemap_and_a_packed_bomb_cost_little(self) -> None:
        bomb = gzip.compress(b"<urlset><url><loc>https://site.test/x</loc></url>" + b" " * 20_000_000)
        huge = sitemap(*(f"{HOME}/some/longer/path/page-{number}" for number in range(30_000)))
        site = Site({"/robots.txt": ("text/plain", f"Sitemap: {HOME}/bomb.gz\nSitemap: {HOME}/huge.xml"), "/": page(),
                     "/bomb.gz": ("application/gzip", bomb), "/huge.xml": huge})
        started = time.monotonic()

        reply = site.map()

        self.assertEqual((len(reply.sources), reply.total_found), (50, websearch.MAX_MAP_FOUND))
        self.assertIn("after 10,000 addresses no more were counted", reply.notes)
        self.assertLess(time.monotonic() - started, 4)


class LoopbackMapTest(unittest.TestCase):
    """The mapper over the real transport."""

    def map(self, server: Any, path: str, seconds: float = 5.0, **query: Any) -> MapReply:
        settings = websearch.Settings.from_env({"WEBSEARCH_ALLOW_PRIVATE": "127.0.0.1/32"})
        transport, deadline = websearch.Transport.from_settings(settings), Deadline(seconds)
        self.addCleanup(transport.close_idle)

        def get(address: str) -> Response:
            return transport.send(websearch.Request.get(address), websearch.PAGE_POLICY, deadline)

        return websearch.map_site(MapQuery(server.url(path), **query), get, deadline)

    def test_a_small_site_is_mapped_over_the_wire(self) -> None:
        with Loopback() as server:
            packed = gzip.compress(sitemap(server.url("/packed"))[1].encode())
            server.answer("/robots.txt", f"User-agent: *\nDisallow: /no\nSitemap: {server.url('/map.xml.gz')}")
            server.answer("/map.xml.gz", Reply(200, packed, [("Content-Type", "application/gzip")]))
            server.answer("/", Reply(302, "", [("Location", "/start")]))
            server.answer("/start", page("/no/way", "/yes", title="Start"))
            server.answer("/yes", page("/deeper"))

            reply = self.map(server, "/", max_depth=2)

            paths = [source.url.replace(server.url(), "") for source in reply.sources]
            self.assertEqual(paths, ["/start", "/packed", "/yes", "/deeper"])
            self.assertNotIn("/no/way", [request.path for request in server.requests])

    def test_a_stalling_page_costs_no_more_than_the_time_given(self) -> None:
        with Loopback({"/robots.txt": 404, "/sitemap.xml": 404, "/": page("/slow"), "/slow": Reply(200, "x", delay_seconds=3)}) as server:
            started = time.monotonic()

            reply = self.map(server, "/", seconds=0.5, max_depth=2)

            self.assertLess(time.monotonic() - started, 1)
            self.assertEqual(len(reply.sources), 2)
            self.assertEqual(reply.notes, ("the time was up before everything was read",))


if __name__ == "__main__":
    unittest.main()
