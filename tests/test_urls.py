"""URLs and the address guard: what is an address, when two are equal, where a page may live."""

from __future__ import annotations

import json
import socket
import time
import unittest
from typing import Any, Callable, Dict, List, Sequence, Tuple

import websearch
from tests.support import fixture
from websearch import AllowList, Deadline, Transport, WebError, parse_url


def error_of(function: Callable[..., Any], *arguments: Any) -> WebError:
    """The WebError that a call raises; AssertionError when it raises none."""
    try:
        result = function(*arguments)
    except WebError as error:
        return error
    raise AssertionError(f"no error, but {result!r}")


def code_of(function: Callable[..., Any], *arguments: Any) -> str:
    """The code of the WebError that a call raises; "" when it raises none."""
    try:
        function(*arguments)
    except WebError as error:
        return error.code
    return ""


def judge(url: str, *allowed: str) -> None:
    """parse_url and judge_url in one."""
    websearch.judge_url(parse_url(url), AllowList(allowed))


class Resolver:
    """A getaddrinfo that answers from a script: {"host": ["ip,ip", "ip"]}, one entry a look-up, the last for ever."""

    def __init__(self, answers: Dict[str, List[str]]) -> None:
        self.answers, self.calls = answers, 0

    def __call__(self, host: str, port: int, *unused: Any) -> List[Tuple[Any, ...]]:
        self.calls += 1
        if host not in self.answers:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        turns = self.answers[host]
        addresses = turns.pop(0) if len(turns) > 1 else turns[0]
        return [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, port, 0, 0)) if ":" in address
                else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses.split(",")]


def rows() -> List[Tuple[str, str, Resolver, str]]:
    """(label, category, resolver, url) of every row of ssrf_urls.txt."""
    found = []
    for line in fixture("ssrf_urls.txt").decode("utf-8").splitlines():
        if line and not line.startswith("#"):
            label, category, dns, url = line.split("\t")
            script = dict(entry.split("=") for entry in dns.split(";") if "=" in entry)
            resolver = Resolver({host: answers.split("|") for host, answers in script.items()})
            found.append((label, category, resolver, json.loads(url)))
    return found


class RefusedAddresses(unittest.TestCase):
    def test_every_row_to_refuse_is_an_error_before_any_connection(self) -> None:
        refused = [row for row in rows() if row[0] == "refuse"]
        self.assertGreater(len(refused), 40)
        for _, category, resolver, url in refused:
            with self.subTest(category, url=url):
                transport = Transport(resolve=resolver)
                request = websearch.Request.get(url)
                code = code_of(transport.send, request, websearch.PAGE_POLICY, Deadline(2))
                self.assertIn(code, (websearch.WEB_BLOCKED_URL, websearch.WEB_INVALID_URL))

    def test_every_row_to_allow_passes_the_guard(self) -> None:
        allowed = [row for row in rows() if row[0] == "allow"]
        self.assertGreater(len(allowed), 15)
        for _, category, resolver, url in allowed:
            with self.subTest(category, url=url):
                Transport(resolve=resolver).check_name(parse_url(url), Deadline(2))
                self.assertEqual(resolver.calls, 1 if resolver.answers else 0)

    def test_of_mixed_answers_only_the_public_one_is_left(self) -> None:
        resolver = Resolver({"mixed.example.net": ["10.0.0.5,93.184.215.14,::1"]})
        Transport(resolve=resolver).check_name(parse_url("http://mixed.example.net/"), Deadline(2))

    def test_a_name_that_does_not_resolve_is_left_to_the_third_party(self) -> None:
        Transport(resolve=Resolver({})).check_name(parse_url("http://gone.example.net/"), Deadline(2))

    def test_every_kind_of_address_is_judged_by_our_own_table(self) -> None:
        cases = {
            "0.0.0.0": "this network", "10.255.255.255": "private network", "100.64.0.1": "carrier-grade NAT",
            "100.127.255.255": "carrier-grade NAT", "100.128.0.0": "", "100.63.255.255": "", "127.255.255.254": "loopback",
            "169.254.169.254": "cloud metadata service, link-local", "172.15.255.255": "", "172.16.0.0": "private network",
            "172.31.255.255": "private network", "172.32.0.0": "", "192.0.0.8": "protocol assignments", "192.0.1.0": "",
            "192.88.99.2": "6to4 relay", "192.167.255.255": "", "192.168.0.1": "private network", "198.17.255.255": "",
            "198.20.0.0": "", "198.51.100.7": "documentation", "203.0.113.7": "documentation", "203.0.114.0": "",
            "223.255.255.255": "", "224.0.0.1": "multicast", "239.255.255.255": "multicast", "240.0.0.1": "reserved",
            "255.255.255.255": "reserved", "::": "unspecified", "::1": "loopback", "::7f00:1": "loopback",
            "::ffff:10.0.0.1": "private network", "::ffff:8.8.8.8": "", "::ffff:0:127.0.0.1": "loopback",
            "::ffff:0:8.8.8.8": "", "64:ff9b::a00:1": "private network", "64:ff9b::808:808": "",
            "64:ff9b:1::808:808": "local NAT64", "2002:7f00:1::": "loopback", "2002:808:808::1": "", "2001::1": "Teredo",
            "2001:1ff:ffff::": "protocol assignments", "2001:200::": "", "2001:db8::1": "documentation",
            "3fff:fff:ffff::": "documentation", "3fff:1000::": "", "4000::1": "reserved", "5f00::1": "reserved",
            "100::1": "reserved", "fc00::1": "private network", "fdff::1": "private network", "fe80::1": "link-local",
            "febf::1": "link-local", "fec0::1": "site-local", "ff02::1": "multicast", "2606:4700:4700::1111": "",
        }
        for text, expected in cases.items():
            address = websearch.parse_address(text)
            assert address is not None, text
            with self.subTest(text):
                self.assertEqual(websearch.why_not_public(address), expected)

    def test_names_of_local_networks_are_blocked(self) -> None:
        for host in ("localhost", "LOCALHOST.", "printer", "a.localhost", "nas.local", "x.localdomain", "db.internal",
                     "metadata.google.internal", "router.home.arpa", "api.default.svc", "metadata.goog",
                     "metadata.tencentyun.com"):
            with self.subTest(host):
                self.assertEqual(code_of(judge, f"http://{host}/"), websearch.WEB_BLOCKED_URL)

    def test_names_that_only_look_local_are_free(self) -> None:
        for host in ("notlocal.example", "internal.example.com", "svc.example", "mylocalhost.com", "local.test"):
            with self.subTest(host):
                self.assertEqual(code_of(judge, f"http://{host}/"), "")

    def test_the_refusal_names_host_reason_and_setting(self) -> None:
        error = error_of(judge, "http://10.1.2.3/secret?key=1")
        self.assertEqual(error.message, "10.1.2.3 is blocked: it is no public address (private network). "
                                        "WEBSEARCH_ALLOW_PRIVATE=10.1.2.3 would permit it.")

    def test_fake_ip_answers_are_explained(self) -> None:
        error = error_of(websearch.judge_address, "198.18.23.183", "docs.example.test", AllowList())
        for word in ("docs.example.test", "198.18.23.183", "fake-IP VPN clients", "WEBSEARCH_ALLOW_PRIVATE=198.18.0.0/15"):
            self.assertIn(word, error.message)

    def test_a_zone_does_not_hide_a_link_local_answer(self) -> None:
        self.assertEqual(code_of(websearch.judge_address, "fe80::1%eth0", "x.example", AllowList()),
                         websearch.WEB_BLOCKED_URL)


class Allowing(unittest.TestCase):
    def test_a_block_opens_its_addresses_and_no_others(self) -> None:
        self.assertEqual(code_of(judge, "http://10.1.2.3/", "10.0.0.0/8"), "")
        self.assertEqual(code_of(judge, "http://[::ffff:10.1.2.3]/", "10.0.0.0/8"), "")
        self.assertEqual(code_of(judge, "http://192.168.1.1/", "10.0.0.0/8"), websearch.WEB_BLOCKED_URL)
        self.assertEqual(code_of(judge, "http://[fd00::1]/", "fd00::/8"), "")

    def test_a_named_host_opens_its_own_addresses_only(self) -> None:
        allow = AllowList(["Wiki.Corp.example", "localhost"])
        websearch.judge_address("10.0.0.9", "wiki.corp.example", allow)
        self.assertEqual(code_of(websearch.judge_address, "10.0.0.9", "other.example", allow), websearch.WEB_BLOCKED_URL)
        self.assertEqual(code_of(judge, "http://localhost:8080/", "localhost"), "")

    def test_an_address_does_not_open_local_names(self) -> None:
        self.assertEqual(code_of(judge, "http://localhost/", "127.0.0.1/32"), websearch.WEB_BLOCKED_URL)

    def test_an_entry_that_does_not_parse_allows_nothing_and_is_told(self) -> None:
        bad = ["*", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/", "0.0.0.0/-1", "10.0.0.0/255.0.0.0", "*.corp.example",
               "127.1", "0x7f000001", "host:8080", "http://host/", "", "10.0.0.0/８"]
        allow = AllowList(bad)
        self.assertEqual((allow.names, allow.networks, len(allow.problems)), ([], [], len(bad)))
        self.assertIn("WEBSEARCH_ALLOW_PRIVATE", allow.problems[0])


class Parsing(unittest.TestCase):
    def test_legal_forms(self) -> None:
        cases = {
            "http://example.com": ("http", "example.com", 80, "/"),
            "HTTPS://EXAMPLE.com.:8443/A?b=C#d": ("https", "example.com", 8443, "/A?b=C"),
            "https://example.com:/": ("https", "example.com", 443, "/"),
            "http://example.com?q": ("http", "example.com", 80, "/?q"),
            "http://example.com/a b/ü?x=|[]{}^\"<>`\\": (
                "http", "example.com", 80, "/a%20b/%C3%BC?x=%7C%5B%5D%7B%7D%5E%22%3C%3E%60%5C"),
            "http://example.com/%zz%2F": ("http", "example.com", 80, "/%zz%2F"),
            "http://[2606:4700:4700:0::1111]:80/": ("http", "2606:4700:4700::1111", 80, "/"),
            "http://example.com/?u=http://user@127.0.0.1/": ("http", "example.com", 80, "/?u=http://user@127.0.0.1/"),
            "http://a_b.example.com/": ("http", "a_b.example.com", 80, "/"),
            "http://bücher.example/": ("http", "xn--bcher-kva.example", 80, "/"),
            "http://例え。テスト/": ("http", "xn--r8jz45g.xn--zckzah", 80, "/"),
            "http://1.2.3.4:99/": ("http", "1.2.3.4", 99, "/"),
        }
        for text, expected in cases.items():
            with self.subTest(text):
                self.assertEqual(tuple(parse_url(text)), expected)

    def test_what_two_readers_could_read_differently_is_refused(self) -> None:
        for text in ("", " ", "example.com", "//example.com/", "http:example.com", "http:/example.com", "http:///x", "http://",
                     "http://?q", "ftp://h.test/", "javascript:alert(1)", "file:///etc/passwd", "http://a\tb.test/",
                     "http://h.test/\x00", "http://h.test/a\nb", " http://h.test/", "http://u:p@h.test/", "http://@h.test/",
                     "http://h.test\\@127.0.0.1/", "http:\\\\h.test/", "http://%31.test/", "http://[::1/", "http://[::1]x/",
                     "http://[::1].example.com/", "http://[::1%25lo]/", "http://[h.test]/", "http://[127.0.0.1]/",
                     "http://::1/", "http://h.test:0/", "http://h.test:65536/", "http://h.test:８０/", "http://h.test:²/",
                     "http://h.test:80:80/", "http://h.test:+80/", "http://.h.test/", "http://a..test/", "http://h.test../",
                     "http://" + "a" * 64 + ".test/", "http://" + "a." * 127 + "test/", "http://h test/", "http://h,x.test/",
                     "http://127.1/", "http://0177.0.0.1/", "http://0x7f000001/", "http://2130706433/", "http://1.2.3.4.5/",
                     "http://256.1.1.1/", "http://1.2.3.04/", "http://0x/", "http://h.0x7f/", "http://h.test/\ud800",
                     "http://a／b.test/", "http://℀.test/", "http://exa\u2024mple.com/", "http://\u00ad/",
                     "http://h.test/" + "x" * 8192):
            with self.subTest(text[:60]):
                self.assertEqual(code_of(parse_url, text), websearch.WEB_INVALID_URL)

    def test_circled_and_full_width_digits_are_the_address_that_they_spell(self) -> None:
        self.assertEqual(parse_url("http://①②⑦.⓪.⓪.①/").host, "127.0.0.1")
        self.assertEqual(parse_url("http://１２７．０．０．１/").host, "127.0.0.1")

    def test_letters_that_idna_2003_maps_away_are_kept(self) -> None:
        self.assertEqual(parse_url("http://faß.de/").host, "xn--fa-hia.de")
        self.assertEqual(parse_url("http://FAẞ.de/").host, "xn--fa-hia.de")
        self.assertEqual(parse_url("http://βόλος.com/").host, "xn--nxasmm1c.com")
        self.assertEqual(parse_url("http://نامه\u200cای.com/").host, "xn--mgba3gch31f060k.com")
        self.assertEqual(parse_url("http://exam\u200dple.com/").host, "xn--example-" + "exam\u200dple".encode(
            "punycode").decode().partition("-")[2] + ".com")

    def test_messages_hold_no_query(self) -> None:
        for text in ("http://u:hunter2@h.test/?key=hunter2", "http://h.test:99999/?key=hunter2", "ftp://h/?hunter2"):
            self.assertNotIn("hunter2", str(error_of(parse_url, text)))

    def test_text_and_origin_leave_the_default_port_out(self) -> None:
        url = parse_url("https://[2606:4700:4700::1111]:443/x")
        self.assertEqual((url.origin, url.text), ("https://[2606:4700:4700::1111]", "https://[2606:4700:4700::1111]/x"))
        self.assertEqual(parse_url("http://h.test:443/").text, "http://h.test:443/")

    def test_a_huge_host_takes_no_time(self) -> None:
        started = time.monotonic()
        for text in ("http://" + "ü" * 8000 + "/", "http://" + "a." * 4000 + "/", "http://" + "ß" * 8000):
            self.assertEqual(code_of(parse_url, text), websearch.WEB_INVALID_URL)
        self.assertLess(time.monotonic() - started, 0.5)


class Unwrapping(unittest.TestCase):
    def test_obvious_wrapping_is_removed(self) -> None:
        for text in ("`http://h.test/a`", "<http://h.test/a>", '"http://h.test/a"', '["http://h.test/a"]', "  http://h.test/a\n",
                     "[text](http://h.test/a)", "[text](<http://h.test/a>)", '[t](http://h.test/a "title")', "'http://h.test/a'",
                     "```http://h.test/a```", "“http://h.test/a”", "(http://h.test/a)", "[http://h.test/a]",
                     "<URL:http://h.test/a>", '[ "http://h.test/a" ]'):
            with self.subTest(text):
                self.assertEqual(websearch.unwrap_url(text), "http://h.test/a")

    def test_a_missing_scheme_becomes_https_where_it_looks_like_a_host(self) -> None:
        for text, expected in {
            "docs.example.test/a": "https://docs.example.test/a", "127.0.0.1:8080/a": "https://127.0.0.1:8080/a",
            "example.com": "https://example.com", "bücher.example/x": "https://bücher.example/x",
            "localhost:3000": "https://localhost:3000", "[::1]:80/": "https://[::1]:80/", "//h.test/a": "https://h.test/a",
            "example.com?q=1": "https://example.com?q=1", "`example.com`": "https://example.com",
        }.items():
            with self.subTest(text):
                self.assertEqual(websearch.unwrap_url(text), expected)

    def test_what_is_no_address_stays_and_is_refused(self) -> None:
        for text in ("find me docs about x", "", "javascript:alert(1)", "user:pw@h.test", '["http://a.test/","http://b.test/"]',
                     "mailto:joe@h.test", "hello", "a.b c.d", "<>", '""'):
            with self.subTest(text):
                self.assertEqual(code_of(parse_url, websearch.unwrap_url(text)), websearch.WEB_INVALID_URL)

    def test_a_legal_url_is_not_touched(self) -> None:
        for text in ("http://h.test/a(b)", "http://h.test/?q=[1]", "http://[::1]/", "http://h.test/'x'"):
            self.assertEqual(websearch.unwrap_url(text), text)


class Comparing(unittest.TestCase):
    def test_one_page_has_one_canonical_url(self) -> None:
        for text in ("HTTPS://Example.COM:443/a/", "https://example.com/a#x", "https://example.com/a?utm_source=b&fbclid=c",
                     "https://example.com/a/?ref_src=t&gclid=1", "https://example.com./a"):
            with self.subTest(text):
                self.assertEqual(websearch.canonical_url(text), "https://example.com/a")

    def test_different_pages_stay_different(self) -> None:
        texts = ["https://example.com/a", "http://example.com/a", "https://example.com/A", "https://example.com/a?x=1",
                 "https://example.com/a?x=2", "https://example.com:8443/a", "https://www.example.com/a"]
        self.assertEqual(len({websearch.canonical_url(text) for text in texts}), len(texts))

    def test_parameters_that_only_begin_like_tracking_are_kept(self) -> None:
        self.assertEqual(websearch.canonical_url("https://h.test/?gclidx=1&q=utm_source&ref=2"),
                         "https://h.test?gclidx=1&q=utm_source&ref=2")

    def test_escapes_differ_by_value_only(self) -> None:
        self.assertEqual(websearch.canonical_url("https://h.test/%c3%bc"), websearch.canonical_url("https://h.test/ü"))

    def test_what_is_no_url_is_its_own_canonical_form(self) -> None:
        self.assertEqual(websearch.canonical_url(" not a url "), "not a url")

    def test_a_domain_holds_its_sub_domains(self) -> None:
        for domain in ("example.com", "EXAMPLE.com.", ".example.com", "*.example.com"):
            self.assertTrue(websearch.host_matches("docs.Example.com", domain), domain)
        for host, domain in (("notexample.com", "example.com"), ("example.com.evil.test", "example.com"), ("h.test", "")):
            self.assertFalse(websearch.host_matches(host, domain), host)
        self.assertTrue(websearch.host_matches("www.xn--bcher-kva.example", "bücher.example"))


class Joining(unittest.TestCase):
    def test_links_of_a_page_become_absolute(self) -> None:
        base = "https://h.test/dir/page?x=1"
        cases = {
            "a": "https://h.test/dir/a", "/a?b#c": "https://h.test/a?b#c", "../a": "https://h.test/a",
            "./a/./b/../c": "https://h.test/dir/a/c", "?q=2": "https://h.test/dir/page?q=2", "//o.test/x": "https://o.test/x",
            "#frag": "https://h.test/dir/page?x=1#frag", " /a b\n": "https://h.test/a%20b", "/ü?q=日": "https://h.test/%C3%BC?q=%E6%97%A5",
            "http://o.test": "http://o.test/", "HTTP://O.test/A": "http://o.test/A", "https://o.test/a?b=c#d": "https://o.test/a?b=c#d",
            "/a\tb\nc": "https://h.test/abc", "https://bücher.example/": "https://xn--bcher-kva.example/", "": "https://h.test/dir/page?x=1",
            "/a/../b": "https://h.test/b", "https://o.test/a/../b": "https://o.test/a/../b",
        }
        join = websearch.link_joiner(base)
        for reference, expected in cases.items():
            with self.subTest(reference):
                self.assertEqual(websearch.join_url(base, reference), expected)
                self.assertEqual(join(reference), expected)

    def test_what_leads_to_no_page_is_empty(self) -> None:
        for reference in ("javascript:void(0)", "JavaScript:x", "mailto:a@h.test", "data:text/html,x", "tel:+1", "ftp://h.test/",
                          "http://", "http://u:p@h.test/", "http://[::1/", "//[x]/", "http://127.1/", "http://h.0x7f/",
                          "java\nscript:alert(1)", "http://a..test/"):
            with self.subTest(reference):
                self.assertEqual(websearch.join_url("https://h.test/", reference), "")

    def test_a_base_that_is_no_url_gives_absolute_links_only(self) -> None:
        self.assertEqual(websearch.join_url("", "/a"), "")
        self.assertEqual(websearch.join_url("", "https://h.test/a"), "https://h.test/a")


class DirectRules(unittest.TestCase):
    """NO_PROXY."""

    NO_PROXY = "localhost, 10.0.0.0/8,.internal,::1,fe80::/10,192.168.1.5,searxng:8080,Example.TEST,[fd00::1]:81,*.star.test"

    def goes_through_proxy(self, url: str, direct: str = NO_PROXY) -> bool:
        proxies = websearch.Proxies(http="http://proxy.test:3128", https="proxy.test:3129", direct=direct)
        return proxies.proxy_for(parse_url(url)) is not None

    def test_rules_for_names_addresses_blocks_and_ports(self) -> None:
        cases: Sequence[Tuple[str, bool]] = (
            ("http://10.1.2.3/", False), ("http://11.1.2.3/", True), ("http://localhost:8080/", False),
            ("http://a.internal/", False), ("http://evilinternal/", True), ("http://[::1]:9/", False),
            ("http://[fe80::1]/", False), ("http://192.168.1.5/", False), ("http://192.168.1.50/", True),
            ("http://searxng:8080/", False), ("http://searxng:9090/", True), ("http://api.example.test/", False),
            ("http://notexample.test/", True), ("https://example.test/", False), ("http://[0:0::1]/", False),
            ("http://[fd00::1]:81/", False), ("http://[fd00::1]/", True), ("http://a.star.test/", False),
            ("http://10.1.2.3.example.com/", True),
        )
        for url, expected in cases:
            with self.subTest(url):
                self.assertEqual(self.goes_through_proxy(url), expected)

    def test_a_star_sends_all_direct_and_nothing_sends_none(self) -> None:
        self.assertFalse(self.goes_through_proxy("http://h.test/", "*"))
        self.assertTrue(self.goes_through_proxy("http://localhost/", ""))


class ProxyAddresses(unittest.TestCase):
    def proxy(self, text: str) -> Any:
        return websearch.Proxies(https=text).proxy_for(parse_url("https://h.test/"))

    def test_forms_of_a_proxy(self) -> None:
        cases = {
            "http://proxy.test:3128": ("proxy.test", 3128, ""), "proxy.test:3128": ("proxy.test", 3128, ""),
            "HTTP://Proxy.test/": ("proxy.test", 80, ""), "proxy": ("proxy", 80, ""), "http://[::1]:8080": ("::1", 8080, ""),
            "10.0.0.1:8080": ("10.0.0.1", 8080, ""),
            "http://us%65r:p%40ss@proxy.test:1": ("proxy.test", 1, "Basic dXNlcjpwQHNz"),
            "u:p@x@proxy.test:1": ("proxy.test", 1, "Basic dTpwQHg="),
        }
        for text, expected in cases.items():
            with self.subTest(text):
                self.assertEqual(self.proxy(text)[:3], expected)

    def test_a_value_that_is_no_proxy_is_an_error_that_does_not_quote_it(self) -> None:
        for text in ("socks5://u:hunter2@h:1", "https://u:hunter2@h:1", "ftp://hunter2:1", "http://u:hunter2@", "http://h:port-hunter2",
                     "http://h/hunter2", "http://h:1?hunter2", "http://a b:hunter2", "http://[::1:hunter2", "://hunter2", "1.2.3:hunter2"):
            with self.subTest(text), self.assertRaises(ValueError) as raised:
                self.proxy(text)
            self.assertIn("HTTPS_PROXY", str(raised.exception))
            self.assertNotIn("hunter2", str(raised.exception))
        with self.assertRaises(ValueError) as raised:
            self.proxy("socks5h://h:1080")
        self.assertIn("SOCKS", str(raised.exception))

    def test_all_proxy_serves_where_the_own_variable_is_unset(self) -> None:
        proxies = websearch.Proxies(http="one:1", both="two:2")
        found = [proxies.proxy_for(parse_url(url)) for url in ("http://h.test/", "https://h.test/")]
        self.assertEqual([(proxy.host, proxy.variable) for proxy in found if proxy],
                         [("one", "HTTP_PROXY"), ("two", "ALL_PROXY")])

    def test_the_repr_of_a_proxy_holds_no_password(self) -> None:
        self.assertEqual(repr(self.proxy("http://u:hunter2@proxy.test:1")), "Proxy(proxy.test:1)")


if __name__ == "__main__":
    unittest.main()
