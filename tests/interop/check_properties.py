"""Properties that must hold for every input, looked for with Hypothesis; and a mutation fuzzer for `extract`.

    python3 tests/interop/check_properties.py [--examples N] [--seconds N] [NAME …]

Needs `hypothesis`: exits 3 without it, 1 when a property was broken (with the smallest input that breaks it), 0 when all
hold. `--seconds` is how long the fuzzer mutates pages. What it finds becomes a unit test where the section is tested.
"""
from __future__ import annotations

import argparse
import ipaddress
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

try:
    from hypothesis import HealthCheck, Phase, assume, given, settings
    from hypothesis import strategies as st
except ImportError:
    print("hypothesis is not installed")
    sys.exit(3)

import websearch as w
from tests.test_paging import original
from tests.test_urls import Resolver

EXAMPLES, FUZZ_SECONDS = 200, 15.0
PROPERTIES: Dict[str, Callable[[], None]] = {}
_connects: List[List[str]] = []


def prop(*strategies: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers a property under its function's name."""
    def register(check: Callable[..., None]) -> Callable[..., None]:
        PROPERTIES[check.__name__] = given(*strategies)(check)
        return check
    return register


def audit(event: str, arguments: Tuple[Any, ...]) -> None:
    """Notes and refuses every connect while a property runs: nothing leaves the machine."""
    if event == "socket.connect" and _connects:
        _connects[-1].append(arguments[1][0])
        raise ConnectionRefusedError(111, "not in a test")


sys.addaudithook(audit)

# ---- Strategies -------------------------------------------------------------------

any_text = st.text(max_size=200)
odd_text = st.text(alphabet=st.sampled_from(list("aZ0.:/@\\[]%?#&=<>\"'`{}()|,; \t\n\r\x00-_~!*é①。１／℀ß\u200d\u202e\ud800\ufeff日\U0001f600")), max_size=60)
labels = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=20).filter(lambda t: not t.startswith("xn--"))
hosts = st.builds(lambda parts, end: ".".join([*parts, end]), st.lists(labels, min_size=1, max_size=4),
                  st.sampled_from(["com", "org", "example", "test", "co", "museum", "xn--p1ai"]))
paths = st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=0x2fff, exclude_categories=("Cs", "Cc", "Zs", "Cf"), exclude_characters="#?\\"), max_size=40)
legal_urls = st.builds(lambda scheme, host, port, path, query: f"{scheme}://{host}{port}/{path}{query}",
                       st.sampled_from(["http", "https", "HTTP", "Https"]), hosts,
                       st.sampled_from(["", ":80", ":443", ":8080", ":65535", ":"]), paths,
                       st.one_of(st.just(""), paths.map(lambda text: "?" + text)))
v4 = st.one_of(st.integers(0, 2 ** 32 - 1).map(lambda n: str(ipaddress.IPv4Address(n))),
               st.sampled_from(["127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1", "192.168.1.1", "172.16.0.1", "0.0.0.0"]))
v6 = st.one_of(st.integers(0, 2 ** 128 - 1).map(lambda n: str(ipaddress.IPv6Address(n))),
               st.builds(lambda prefix, low: str(ipaddress.IPv6Address(int(ipaddress.IPv6Address(prefix)) | int(ipaddress.IPv4Address(low)))),
                         st.sampled_from(["::", "::ffff:0:0", "::ffff:0:0:0", "64:ff9b::", "64:ff9b:1::", "2001::", "fe80::"]), v4),
               v4.map(lambda a: str(ipaddress.IPv6Address((0x2002 << 112) | (int(ipaddress.IPv4Address(a)) << 80)))))
json_values = st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), any_text),
                           lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(any_text, inner, max_size=5)), max_leaves=20)
KNOWN_KEYS = ["results", "web", "data", "output", "content", "choices", "message", "text", "type", "url", "title", "annotations", "citations",
              "error", "message", "code", "detail", "success", "search_results", "links", "snippets", "images", "news", "page_age", "score",
              "status", "delta", "index", "content_block", "response", "item", "raw_content", "failed_results", "unresponsive_engines",
              "markdown", "metadata", "statusCode", "url_citation", "query", "id", "published_date", "date", "usage", "response_id",
              "items", "hits", "docs", "search", "pages", "key", "highlights", "summary", "text_content", "action", "sources"]
TYPES = ["message", "output_text", "web_search_call", "web_search_tool_result", "text", "url_citation", "response.output_text.delta",
         "response.completed", "message_start", "content_block_start", "content_block_delta", "text_delta", "citations_delta", "server_tool_use"]
loose = st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(TYPES), st.just("https://a.test/"), odd_text),
                     lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(KNOWN_KEYS), inner, max_size=5)), max_leaves=30)
objects = st.dictionaries(st.sampled_from(KNOWN_KEYS), loose, max_size=6)
TAGS = ["<p>", "</p>", "<div hidden>", "</div>", "<a href='/x'>", "</a>", "<table>", "<tr>", "<td colspan=9999>", "</table>", "<pre>", "</pre>", "<code>",
        "<ul>", "<li>", "</ul>", "<script>", "</script>", "<!--", "-->", "<![CDATA[", "]]>", "<style>", "<svg>", "</svg>", "<math>", "<template>",
        "<title>", "</title>", "<meta charset=hex>", "<base href='http://[::1'>", "<h1>", "</h1>", "<img src=data:x>", "<br>", "<main>", "</main>",
        "<article>", "&#xd800;", "&#99999999999;", "&nbsp", "&amp;lt;", "<a <a <a", "<", ">", "\"", "'", "=", "<!doctype", "<?xml", "```", "|", "\\", "#", "*",
        "<select>", "<option>", "<noscript>", "<iframe>", "<textarea>", "<details>", "<span style='display:none'>", "\ud800", "\x00", "\u202e", "word ", "\n"]
markup = st.lists(st.one_of(st.sampled_from(TAGS), odd_text), max_size=40).map("".join)

# ---- URLs ---------------------------------------------------------------------------


@prop(st.one_of(odd_text, odd_text.map(lambda t: "http://" + t), legal_urls, any_text))
def reading_any_text_gives_a_url_or_a_coded_error(text: str) -> None:
    for given_text in (text, w.unwrap_url(text)):
        try:
            url = w.parse_url(given_text)
        except w.WebError as error:
            assert error.code == w.WEB_INVALID_URL
            continue
        assert url.text.isascii() and not set(url.text) & set(" \t\r\n\x00<>\"\\")
        assert w.parse_url(url.text) == url, "what was read is read the same again"
    w.canonical_url(text)
    w.host_of(text)
    assert w.join_url("https://h.test/a/", text) in ("", w.join_url("https://h.test/a/", text))


@prop(legal_urls)
def legal_urls_are_taken_and_keep_host_and_port(text: str) -> None:
    url = w.parse_url(text)
    scheme, _, rest = text.partition("://")
    host, _, port = rest.partition("/")[0].partition(":")
    assert (url.scheme, url.host, url.port) == (scheme.lower(), host, int(port or w.DEFAULT_PORTS[scheme.lower()]))
    w.judge_url(url, w.AllowList())


@prop(legal_urls, st.sampled_from(["<{}>", "`{}`", '"{}"', "({})", '["{}"]', " {}\n", "[text]({})", "<URL:{}>"]))
def wrapping_is_removed(text: str, wrapping: str) -> None:
    assume(not set(text) & set("<>`\"'()[]{} ,;“”‘’«»") and text[-1] not in ".:!")
    assert w.unwrap_url(wrapping.format(text)) == text


@prop(st.lists(st.one_of(v4, v6), min_size=1, max_size=6), st.lists(st.one_of(v4, v6), min_size=1, max_size=6))
def no_private_address_is_ever_connected_to(first: List[str], second: List[str]) -> None:
    resolver = Resolver({"name.example.com": [",".join(first), ",".join(second)]})
    _connects.append([])
    try:
        transport = w.Transport(resolve=resolver)
        url = w.parse_url("http://name.example.com/")
        transport.check_name(url, w.Deadline(2))
        transport.send(w.Request.get(url.text), w.PAGE_POLICY, w.Deadline(2))
    except w.WebError:
        pass
    for address in _connects.pop():
        found = ipaddress.ip_address(address)
        for prefix, shift in (("::/96", 0), ("::ffff:0:0/96", 0), ("::ffff:0:0:0/96", 0), ("64:ff9b::/96", 0), ("2002::/16", 80)):
            if found.version == 6 and found in ipaddress.ip_network(prefix):
                found = ipaddress.IPv4Address(int(found) >> shift & 0xffffffff)
        assert found.is_global and not found.is_multicast, address
        assert found.version == 4 or found in ipaddress.ip_network("2000::/3"), address


@prop(v4)
def every_spelling_of_a_private_address_is_refused(address: str) -> None:
    number = int(ipaddress.IPv4Address(address))
    a, b, c, d = address.split(".")
    octal = ".".join(f"0{int(part):o}" for part in (a, b, c, d))
    for host in (str(number), hex(number), oct(number).replace("o", ""), f"{a}.{(int(b) << 16) + (int(c) << 8) + int(d)}", octal, f"{address}.", address,
                 address.replace(".", "。"), "".join(chr(0xff10 + int(x)) if x.isdigit() else x for x in address), f"[::ffff:{address}]", f"[::{address}]"):
        _connects.append([])
        try:
            w.Transport(resolve=Resolver({})).send(w.Request.get(f"http://{host}/"), w.PAGE_POLICY, w.Deadline(2))
        except w.WebError:
            pass
        for connected in _connects.pop():
            assert ipaddress.ip_address(connected).is_global or ":" in connected, host
            assert w.why_not_public(w.parse_address(connected) or (32, 0)) == "", host


# ---- JSON, event streams, provider replies --------------------------------------------

@prop(st.one_of(st.binary(max_size=200), odd_text.map(lambda t: t.encode("utf-8", "replace")), json_values.map(lambda v: json.dumps(v).encode())))
def any_bytes_are_json_or_a_value_error(data: bytes) -> None:
    try:
        w.parse_json(data)
    except ValueError:
        pass


@prop(json_values)
def json_comes_back_as_it_was(value: Any) -> None:
    text = json.dumps(value)
    assert json.dumps(w.parse_json(text)) == text


@prop(st.lists(json_values, max_size=5), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def an_event_stream_gives_its_values(values: List[Any], end: str, has_blanks: bool) -> None:
    text = "".join(f"data: {json.dumps(value)}{end}{end if has_blanks else ''}" for value in values)
    told = [value for value in values if value]  # an event without content says nothing
    found = list(w.event_data(text)) if has_blanks or len(values) < 2 else told
    assert json.dumps(found) == json.dumps(told)


@prop(st.one_of(markup, odd_text, st.lists(st.sampled_from(["data: ", "data:[DONE]", "event: x", ": c", "id: 1", "\n", "\r", "{", "}", '{"a":1}']),
                                           max_size=40).map("".join)))
def any_text_can_be_read_as_an_event_stream(text: str) -> None:
    list(w.event_data(text))


@prop(objects, st.sampled_from([200, 401, 429, 500]), st.booleans())
def any_reply_of_any_provider_is_read_or_a_coded_error(body: Mapping[str, Any], status: int, is_stream: bool) -> None:
    data = json.dumps(body).encode()
    if is_stream:
        data = b"data: " + data + b"\n\n"
    response = w.Response("https://api.test/v1", status, {"content-type": "application/json", "retry-after": "-1"}, data)
    for provider in w.PROVIDERS:
        for operation in (provider.search, provider.fetch, provider.map):
            if operation is None:
                continue
            try:
                reply = w._read_reply(provider, operation, response, w.Endpoint("https://api.test/v1", "key"))
            except w.WebError:
                continue
            for source in getattr(reply, "sources", ()):
                assert source.url.startswith(("http://", "https://")), source
                assert all(isinstance(text, str) for text in (source.title, source.snippet, source.published_date, source.content))


# ---- robots, sitemaps, TOML, settings ---------------------------------------------------

robots_lines = st.lists(st.one_of(st.builds(lambda a, b: f"{a}: {b}", st.sampled_from(["User-agent", "Allow", "Disallow", "Sitemap", "allow", "x"]),
                                            st.one_of(st.sampled_from(["*", "/", "/*$", "/a*b*c", "/%61", "websearch-mcp", ""]), odd_text)), odd_text),
                        max_size=20).map("\n".join)


@prop(st.one_of(robots_lines, any_text), odd_text.map(lambda t: "/" + t))
def any_robots_file_answers_for_any_path(text: str, path: str) -> None:
    robots = w.parse_robots(text)
    assert robots.allows(path) in (True, False)
    assert robots.allows("/robots.txt")


@prop(st.one_of(markup, st.lists(st.one_of(st.sampled_from(["<urlset>", "<sitemapindex>", "<url>", "<loc>", "</loc>", "<x:loc>", "https://a.test/", "<![CDATA[", "]]>",
                                                           "<!--", "-->", "<!DOCTYPE a [<!ENTITY b 'c'>]>", "&b;", "&amp;"]), odd_text), max_size=30).map("".join)))
def any_text_can_be_read_as_a_sitemap(text: str) -> None:
    _, locations = w.sitemap_locations(text)
    assert all(isinstance(location, str) for location in locations)


toml_text = st.lists(st.one_of(st.sampled_from(["a", "a.b", "'a'", '"a"', " = ", "[", "]", "[[", "]]", "{", "}", ",", "\n", "1", "-1_0", "0x", "1e9", "inf", "nan", "true",
                                                "'''", '"""', "\\", "\\u0041", "\\ud800", "#", "1979-05-27T07:32:00Z", '"x"', "'y'", "."]), odd_text), max_size=25).map("".join)


@prop(st.one_of(toml_text, any_text))
def any_text_is_toml_or_a_toml_error(text: str) -> None:
    try:
        ours = w.parse_toml(text)
    except w.TomlError:
        return
    assert isinstance(ours, dict)
    if sys.version_info >= (3, 11):
        import tomllib
        try:
            theirs = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, ValueError):
            return  # 1.1, or laxer: what we take more is no harm
        assert set(ours) == set(theirs), (ours, theirs)


@prop(st.one_of(any_text, odd_text, st.lists(st.one_of(st.builds(lambda n, v: f"{n}={v}", st.sampled_from([v.name for v in w.VARIABLES]), odd_text), odd_text),
                                             max_size=8).map("\n".join)))
def any_settings_file_gives_settings(text: str) -> None:
    pairs, warnings = w.parse_settings(text)
    found = w.Settings.from_env({}, w.SettingsFile("f", pairs, tuple(warnings)))
    for variable in w.VARIABLES:
        value = found[variable.name]
        assert type(value) is type(variable.default) or variable.kind in ("number", "list"), variable.name
    assert "zq9" not in repr(found)
    w._SECRETS.clear()


@prop(st.dictionaries(st.sampled_from([v.name for v in w.VARIABLES if v.kind == "text"]),
                      st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="\"'$"), min_size=1, max_size=20), max_size=5))
def settings_that_were_written_are_read_back(wanted: Dict[str, str]) -> None:
    pairs, warnings = w.parse_settings(w.changed_lines("# mine\n", wanted))
    assert (pairs, warnings) == (wanted, [])


# ---- Sources and windows -----------------------------------------------------------------

sources = st.lists(st.lists(st.builds(lambda url, title, snippet, provider: w.Source(url, title, snippet, provider=provider),
                                      st.one_of(legal_urls, st.sampled_from(["https://a.test/", "https://A.test", "https://a.test/?utm_source=x"])),
                                      st.sampled_from(["", "t"]), st.sampled_from(["", "s"]), st.sampled_from(["a", "b"])), max_size=6), max_size=4)


@prop(sources)
def merging_keeps_each_address_once_in_order(groups: List[List[w.Source]]) -> None:
    merged = w.merge_sources(groups)
    keys = [w.canonical_url(source.url) for source in merged]
    assert keys == list(dict.fromkeys(w.canonical_url(source.url) for group in groups for source in group))
    assert w.merge_sources([merged]) == merged
    assert {w.canonical_url(s.url) for s in w.reciprocal_rank_merge(groups)} == set(keys)


pages = st.lists(st.one_of(st.sampled_from(["```", "~~~~", "> ```python", "  ```", "# Heading", "", "words " * 30, "𝔘" * 300, "[TRUNCATED]", "| a | b |"]), odd_text),
                 max_size=60).map("\n".join)


@prop(pages, st.integers(1, 700))
def windows_concatenate_to_the_page(text: str, limit: int) -> None:
    offset, parts, steps = 0, [], 0
    while steps < 10_000:
        steps += 1
        window = w.cut_page(text, limit, offset)
        assert window.total_chars == len(text)
        if offset == 0 and window.next_offset is not None:
            parts.append(text[:window.next_offset])  # the head of a cut page ends there
            assert window.text.startswith(text[:window.next_offset].rstrip("\n")[:limit // 2]), "the head is what the page starts with"
        else:
            assert len(window.text) <= limit or limit < 80, "a window is no longer than asked for"
            parts.append(original(text, window, offset))
        if window.next_offset is None:
            break
        assert window.next_offset > offset, "paging moves on"
        offset = window.next_offset
    assert "".join(parts) == text


# ---- Pages ---------------------------------------------------------------------------------

CONTENT_TYPES = ["text/html", "text/html; charset=utf-16", "text/html; charset=hex", "", "text/plain", "application/json", "application/xml", "application/rss+xml",
                 "application/pdf", "text/markdown", "image/png", "text/csv", "application/octet-stream", "application/xhtml+xml", "text/html; charset=punycode"]


def check_page(body: bytes, content_type: str) -> None:
    """That `extract` gives a page of clean text within reasonable time."""
    started = time.perf_counter()
    page = w.extract(body, content_type, "https://h.test/dir/page")
    seconds = time.perf_counter() - started
    assert seconds < 1 + len(body) / 20_000, f"{seconds:.1f} s for {len(body)} bytes"
    assert isinstance(page.text, str) and not w.INVISIBLE.search(page.text), "invisible characters"
    assert not w.INVISIBLE.search(page.title)
    assert len(page.title) <= w.MAX_TITLE_CHARS
    for link in page.links:
        assert link.url.startswith(("http://", "https://")) and not w.INVISIBLE.search(link.text + link.url)
    assert not any("could not be read" in note for note in page.notes) and "it could not be read" not in page.text, "the extractor failed inside"


@prop(st.one_of(markup.map(lambda t: t.encode("utf-8", "replace")), st.binary(max_size=300)), st.sampled_from(CONTENT_TYPES))
def extract_never_fails(body: bytes, content_type: str) -> None:
    check_page(body, content_type)


@prop(st.lists(st.sampled_from(TAGS), min_size=1, max_size=4).map("".join))
def extract_is_linear(piece: str) -> None:
    """Ten times the input takes at most some forty times as long; below 50 ms nothing is said."""
    def seconds(count: int) -> float:
        body = (piece * count).encode("utf-8", "replace")
        started = time.perf_counter()
        w.extract(body, "text/html", "https://h.test/")
        return time.perf_counter() - started

    small, large = seconds(300), seconds(3000)
    if large > 0.4 and large > 40 * small:
        small, large = min(seconds(300), small), min(seconds(3000), large)  # a busy machine is no quadratic path
        assert large <= 40 * small, (piece, small, large)


def mutations(seconds: float, chance: random.Random) -> int:
    """Mutates pages and documents for `seconds` and extracts them; returns how many."""
    seeds = [path.read_bytes() for folder in ("pages", "cases", "extract") for path in sorted((Path(w.__file__).parent / "tests" / "fixtures" / folder).rglob("*"))
             if path.is_file() and path.stat().st_size < 60_000]
    seeds += ["".join(TAGS).encode("utf-8", "replace"), b"%PDF-1.4\n1 0 obj\n<</Type/Catalog>>\nendobj\n", b"<rss><channel><item><title>t</title></item></channel></rss>"]
    tokens = [tag.encode("utf-8", "replace") for tag in TAGS]
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        body = bytearray(chance.choice(seeds))
        for _ in range(chance.randint(1, 12)):
            at = chance.randrange(len(body) + 1)
            kind = chance.randrange(6)
            if kind == 0:
                del body[at:at + chance.randint(1, 200)]
            elif kind == 1:
                body[at:at] = chance.choice(tokens) * chance.choice([1, 1, 1, 50, 500])
            elif kind == 2 and body:
                body[at % len(body)] = chance.randrange(256)
            elif kind == 3:
                body[at:at] = body[at:at + chance.randint(1, 3000)]
            elif kind == 4:
                other = chance.choice(seeds)
                start = chance.randrange(len(other) + 1)
                body[at:at] = other[start:start + 2000]
            else:
                del body[at:]
        content_type = chance.choice(CONTENT_TYPES)
        try:
            check_page(bytes(body), content_type)
        except Exception:
            kept = Path(tempfile.gettempdir(), "websearch-fuzz-failure")
            kept.write_bytes(body)
            print(f"the input is in {kept}, its type was {content_type!r}")
            raise
        count += 1
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description="Properties and mutations.")
    parser.add_argument("--examples", type=int, default=EXAMPLES)
    parser.add_argument("--seconds", type=float, default=FUZZ_SECONDS)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    failed = []
    for name, check in PROPERTIES.items():
        if options.names and name not in options.names:
            continue
        started = time.monotonic()
        examples = options.examples // 5 if name in ("extract_is_linear",) else options.examples
        run = settings(max_examples=examples, deadline=None, database=None, phases=(Phase.generate, Phase.shrink),
                       suppress_health_check=list(HealthCheck), print_blob=False)(check)
        try:
            run()
            print(f"ok    {name} ({time.monotonic() - started:.1f} s)", flush=True)
        except Exception as error:
            failed.append(name)
            print(f"FAIL  {name}: {type(error).__name__}: {error}\n      {' '.join(getattr(error, '__notes__', ()))[:1500]}", flush=True)
    if not options.names or "fuzz" in options.names:
        print(f"ok    fuzz: {mutations(options.seconds, random.Random())} mutated documents")
    print(f"{len(failed)} failed" if failed else "all hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
