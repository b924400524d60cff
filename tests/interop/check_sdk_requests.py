"""Compares our requests with those that the vendors' own Python SDKs send for the same call, field by field.

    python3 tests/interop/check_sdk_requests.py [SDK …]

Needs tavily-python, exa-py, firecrawl-py, perplexityai, openai and anthropic from PyPI (a virtual environment will do):
exits 3 and says so when one is missing, 1 when a request differs otherwise than listed, 0 when all agree. The server is
on loopback and the keys are made up. Differences that are intended stand in CALLS with their reason; one that has gone
is a failure as well, so that the list stays true.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import websearch as w  # noqa: E402
from tests.support import Loopback, RecordedRequest, Reply, bare_environment, fixture, loopback_settings  # noqa: E402

KEY = "check-key-4711"
PAGE = "https://93.184.216.34/guide"  # a public address: nothing is looked up, and nothing is sent there
QUERY = w.SearchQuery("How does Kestrel 3 schedule?", 5, 31, ("docs.example.org",), (), False, "2026-11-30")
SDKS = {"tavily-python": "tavily", "exa-py": "exa_py", "firecrawl-py": "firecrawl", "perplexityai": "perplexity",
        "openai": "openai", "anthropic": "anthropic"}
# Of the headers, those that mean something to an API; others (User-Agent, Accept-Encoding, X-Stainless-…) name the client.
HEADERS = ("authorization", "x-api-key", "content-type", "anthropic-version", "x-tavily-access-mode")


class Call(NamedTuple):
    """One call in both ways: `theirs` is given the base address and our body, for texts that are our own."""

    name: str
    sdk: str
    reply: str  # recorded, so that both sides come to a good end
    settings: Mapping[str, str]
    ours: Callable[[w.WebSearch], Any]
    theirs: Callable[[str, Dict[str, Any]], Any]
    intended: Mapping[str, str] = {}  # path of a field -> why it differs


def search(provider: str, query: w.SearchQuery = QUERY) -> Callable[[w.WebSearch], Any]:
    return lambda web: web.search(query, w.Deadline(20), provider)


def fetch(provider: str) -> Callable[[w.WebSearch], Any]:
    return lambda web: web.page(PAGE, provider, w.Deadline(20.5))


def site(provider: str) -> Callable[[w.WebSearch], Any]:
    return lambda web: web.map(w.MapQuery(PAGE, 30, 2), w.Deadline(20.5), provider)


def tavily(base: str, key: str = KEY) -> Any:
    return importlib.import_module("tavily").TavilyClient(api_key=key, api_base_url=base)


def firecrawl(base: str) -> Any:
    return importlib.import_module("firecrawl").Firecrawl(api_key=KEY, api_url=base)


def exa(base: str) -> Any:
    return importlib.import_module("exa_py").Exa(KEY, base_url=base)


def openai(base: str) -> Any:
    return importlib.import_module("openai").OpenAI(api_key=KEY, base_url=base + "/v1", max_retries=0)


def messages(base: str, body: Dict[str, Any]) -> Any:
    """Our whole body as the SDK's arguments: a name that it does not know is a TypeError."""
    return importlib.import_module("anthropic").Anthropic(api_key=KEY, base_url=base, max_retries=0).messages.create(**body)


def agent(base: str, body: Dict[str, Any]) -> Any:
    return importlib.import_module("perplexity").Perplexity(api_key=KEY, base_url=base, max_retries=0).responses.create(**body)


ORIGIN = {"body.origin": "the SDK's name of itself; the API wants none"}
DEFAULT = "the API's own default, which the SDK says expressly"
XAI_FIELDS = ("max_turns",)  # xAI's own: the OpenAI SDK sends them as extra_body


def grok_by_openai(base: str, body: Dict[str, Any]) -> Any:
    known = {name: value for name, value in body.items() if name not in XAI_FIELDS}
    return openai(base).responses.create(**known, extra_body={name: body[name] for name in XAI_FIELDS if name in body})


def url_of(name: str) -> Dict[str, str]:
    return {f"{name}_API_KEY": KEY, f"{name}_API_URL": "{base}"}


CALLS: Tuple[Call, ...] = (
    Call("tavily search", "tavily-python", "tavily_search_success.json", url_of("TAVILY"), search("tavily"),
         lambda base, body: tavily(base).search(QUERY.text, max_results=5, time_range="month", include_domains=["docs.example.org"])),
    Call("tavily search, both lists and page text", "tavily-python", "tavily_search_success.json", url_of("TAVILY"),
         search("tavily", QUERY._replace(recency_days=40, exclude_domains=("x.example",), include_content=True)),
         lambda base, body: tavily(base).search(
             QUERY.text, max_results=5, start_date="2026-10-21", include_domains=["docs.example.org"],
             exclude_domains=["x.example"], include_raw_content="markdown")),
    Call("tavily search without a key", "tavily-python", "tavily_search_success.json",
         {"TAVILY_API_URL": "{base}", "WEBSEARCH_KEYLESS": "on"}, search("tavily"),
         lambda base, body: tavily(base, "").search(QUERY.text, max_results=5, time_range="month", include_domains=["docs.example.org"])),
    Call("tavily fetch", "tavily-python", "tavily_extract_partial.json", url_of("TAVILY"), fetch("tavily"),
         lambda base, body: tavily(base).extract([PAGE], format="markdown", timeout=body["timeout"])),
    Call("tavily map", "tavily-python", "tavily_map_success.json", url_of("TAVILY"), site("tavily"),
         lambda base, body: tavily(base).map(PAGE, max_depth=2, limit=30, allow_external=False, timeout=body["timeout"])),
    Call("exa search", "exa-py", "exa_search_success.json", url_of("EXA"), search("exa"),
         lambda base, body: exa(base).search(QUERY.text, num_results=5, type="auto", contents={"highlights": True},
                                             include_domains=["docs.example.org"],
                                             start_published_date="2026-10-30T00:00:00.000Z")),
    Call("exa fetch", "exa-py", "exa_contents_partial.json", url_of("EXA"), fetch("exa"),
         lambda base, body: exa(base).get_contents([PAGE], text=True, livecrawl_timeout=body["livecrawlTimeout"])),
    Call("firecrawl search", "firecrawl-py", "firecrawl_search_success.json",
         {**url_of("FIRECRAWL"), "FIRECRAWL_API_URL": "{base}/v2"}, search("firecrawl"),
         lambda base, body: firecrawl(base).search(QUERY.text, limit=5, tbs="qdr:m", include_domains=["docs.example.org"]), ORIGIN),
    Call("firecrawl fetch", "firecrawl-py", "firecrawl_scrape_success.json",
         {**url_of("FIRECRAWL"), "FIRECRAWL_API_URL": "{base}/v2"}, fetch("firecrawl"),
         lambda base, body: firecrawl(base).scrape(PAGE, formats=["markdown"], only_main_content=True, timeout=body["timeout"]),
         {**ORIGIN, **dict.fromkeys(("body.removeBase64Images", "body.blockAds", "body.storeInCache",
                                     "body.mobile"), DEFAULT),
          "body.fastMode": "off, said expressly; not in the published description",
          "body.maxAge": "four hours in the SDK, two days by the documentation; the vendor's default is taken"}),
    Call("firecrawl map", "firecrawl-py", "firecrawl_map_success.json",
         {**url_of("FIRECRAWL"), "FIRECRAWL_API_URL": "{base}/v2"}, site("firecrawl"),
         lambda base, body: firecrawl(base).map(PAGE, limit=w.MAX_MAP_LIMIT, timeout=body["timeout"]),
         {**ORIGIN, "body.sitemap": DEFAULT}),
    Call("perplexity answer", "perplexityai", "perplexity_agent_success.json", url_of("PERPLEXITY"), search("perplexity"), agent),
    Call("openai answer", "openai", "openai_success.json",
         {"OPENAI_SEARCH_API_KEY": KEY, "OPENAI_SEARCH_URL": "{base}/v1", "OPENAI_SEARCH_CONTEXT_SIZE": "low"}, search("openai"),
         lambda base, body: openai(base).responses.create(**body)),
    Call("grok answer", "openai", "xai_success.json", {"GROK_SEARCH_API_KEY": KEY, "GROK_SEARCH_URL": "{base}/v1"},
         search("grok"), grok_by_openai),
    Call("chat answer", "openai", "openai_chat_success.json",
         {"CHAT_SEARCH_API_KEY": KEY, "CHAT_SEARCH_URL": "{base}/v1", "CHAT_SEARCH_MODEL": "gpt-5-search-api",
          "CHAT_SEARCH_MODE": "vendor-options", "CHAT_SEARCH_CONTEXT_SIZE": "low"}, search("chat"),
         lambda base, body: openai(base).chat.completions.create(**body)),
    Call("anthropic answer", "anthropic", "anthropic_success.json",
         {"ANTHROPIC_SEARCH_API_KEY": KEY, "ANTHROPIC_SEARCH_URL": "{base}"}, search("anthropic"), messages,
         {"header.x-api-key": "the SDK sends the key as Bearer alone since 2.0; gateways of this form may read either header",
          "header.anthropic-version": "a setting; our default is the version that every compatible gateway knows"}),
)


def flat(value: Any, path: str) -> Iterator[Tuple[str, Any]]:
    """(path, value) of every leaf; an empty object or list is one too."""
    members: Sequence[Tuple[Any, Any]] = ()
    if isinstance(value, dict):
        members = [(f"{path}.{name}", member) for name, member in value.items()]
    elif isinstance(value, list):
        members = [(f"{path}[{number}]", member) for number, member in enumerate(value)]
    if not members:
        yield path, value
    for name, member in members:
        yield from flat(member, name)


def fields(request: RecordedRequest) -> Dict[str, Any]:
    """What of a request is compared, by path."""
    found: Dict[str, Any] = {"method": request.method, "path": request.target}
    found.update((f"header.{name}", request.header(name)) for name in HEADERS if request.header(name) is not None)
    found.update(flat(request.json(), "body"))
    return found


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Dict[str, str]:
    """Path -> both values, where they are not equal."""
    nothing = "(nothing)"
    return {path: f"ours {json.dumps(ours.get(path, nothing))[:80]}, theirs {json.dumps(theirs.get(path, nothing))[:80]}"
            for path in {**ours, **theirs} if ours.get(path, nothing) != theirs.get(path, nothing)}


def is_listed(path: str, intended: Mapping[str, str]) -> bool:
    return any(path == name or path.startswith((name + ".", name + "[")) for name in intended)


def compare(call: Call) -> Tuple[List[str], List[str]]:
    """(faults, intended differences as they were seen) of one call."""
    reply = Reply(200, fixture("providers/" + call.reply), (("Content-Type", "application/json"),))
    with Loopback({"*": reply}) as server:
        settings = {name: value.replace("{base}", server.url()) for name, value in call.settings.items()}
        with w.WebSearch(bare_environment(loopback_settings(settings))) as web:
            call.ours(web)
        own, count = server.requests[0], len(server.requests)  # with page text wanted, pages are asked for as well
        with contextlib.redirect_stdout(sys.stderr):
            call.theirs(server.url(), own.json())
        (other,) = server.requests[count:]
    found = differences(fields(own), fields(other))
    faults = [f"{path}: {told}" for path, told in found.items() if not is_listed(path, call.intended)]
    faults += [f"{name} is listed as a difference and is none (any more)" for name in call.intended
               if not any(is_listed(path, {name: ""}) for path in found)]
    return faults, [f"{path}: {told}" for path, told in found.items() if is_listed(path, call.intended)]


def main(names: Sequence[str]) -> int:
    """Exit status: 0 all agree, 1 some differ, 3 an SDK is missing."""
    for variable in [*os.environ]:
        if variable.lower().endswith("_proxy") or "API_KEY" in variable:
            del os.environ[variable]
    missing = []
    for package, module in SDKS.items():
        try:
            importlib.import_module(module)
        except ImportError:
            missing.append(package)
    if missing:
        print(f"check_sdk_requests: not installed: {', '.join(missing)}", file=sys.stderr)
        return 3
    failed = 0
    for call in CALLS:
        if names and call.sdk not in names:
            continue
        faults, seen = compare(call)
        failed += bool(faults)
        print(f"{call.name}: {'DIFFERS' if faults else 'equal'} ({call.sdk})")
        for fault in faults:
            print(f"    {fault}")
        for told in seen:
            name = next(name for name in call.intended if is_listed(told.partition(": ")[0], {name: ""}))
            print(f"    intended: {told} -- {call.intended[name]}")
    print(f"{len(CALLS)} calls compared, {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
