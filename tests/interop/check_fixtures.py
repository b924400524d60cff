"""Reads every recorded reply of a folder with an index as that index says.

    python3 tests/interop/check_fixtures.py [FOLDER]        (else ../shared/fixtures/providers beside the project)

`index.json` gives for each file its status, its headers and what is to be found: how many sources or links, the first
address, whether there is an answer, a page, or which class of error. Exit status: 0 all are read so, 1 some are not,
3 when the folder is missing. Files of interfaces that no provider asks are listed with the reason.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import websearch as w  # noqa: E402

NOT_ASKED = {
    "exa_answer_success.json": "Exa is asked for sources, not for an answer of its own",
    "jina_search_success.json": "Jina only reads pages here",
    "tavily_usage.json": "the account's usage is not asked for",
    "parallel_search_success.json": "no provider of that name",
    "marginalia_search_success.json": "no provider of that name: its licence is non-commercial",
}
# beginning of a name -> who reads it, where that is not the provider of the same name
READERS = {"xai": "grok", "gateway_chat": "chat", "gateway_tool": "chat", "gateway_responses": "grok", "openai_chat": "chat",
           "deepseek_messages": "anthropic"}
# Where this project's own pages rule otherwise than the index, and why.
RULED = {
    "tavily_search_success.json": {"answer": "a summary without citations is no verified answer"},
    "searxng_answer_infobox.json": {"answer": "as above: SearXNG gives sources only"},
    "searxng_empty.json": {"sources": "engines that did not respond are a failure, which names them"},
    "stackexchange_search_backoff.json": {"sources": "a wait that is asked for is a rate limit, so that it is kept to"},
}


def reader_of(name: str, request: str) -> Tuple[w.Provider, str]:
    """(provider or member, operation) that reads a file."""
    prefix = next((start for start in READERS if name.startswith(start + "_")), name.partition("_")[0])
    wanted = READERS.get(prefix, prefix)
    row = next(row for row in (*w.PROVIDERS, *w.OPEN.members) if row.id == wanted)
    path = request.partition(" ")[2]
    kind = "map" if path.endswith("/map") else "search"
    if row.kind == "fetch" or path.endswith(("/extract", "/scrape", "/contents", "/fetch")):
        kind = "fetch"
    return row, kind


def read(row: w.Provider, kind: str, response: w.Response) -> Any:
    """What the row makes of the reply; WebError for a failure."""
    if not 200 <= response.status < 300:
        raise w.provider_error(row, response)
    return getattr(row, kind).parse(response)


def found(row: w.Provider, kind: str, reply: Any) -> Dict[str, Any]:
    """What was read, in the index's words."""
    if kind == "fetch":
        return {"page": bool(reply.text), "pages": 1, "failed": 1, "status": reply.status_code}
    urls = [source.url for source in reply.sources]
    if kind == "map":
        return {"links": len(urls)}
    first = reply.sources[0] if urls else w.Source("")
    return {"sources": len(urls), "first_url": first.url, "answer": bool(reply.answer), "search_executed": reply.searched,
            "cited": sum(source.cited for source in reply.sources), "truncated": reply.truncated, "published": first.published_date}


def error_of(row: w.Provider, kind: str, response: w.Response, expected: Mapping[str, Any]) -> Dict[str, Any]:
    """What a failure was read as; {} when nothing failed."""
    try:
        reply = read(row, kind, response)
    except w.WebError as error:
        return {"code": error.code, "reason": error.reason, "retry_after": error.retry_after_seconds, "status": error.status,
                "message": error.message}
    if kind == "search" and row.kind == "answer" and w.verify(row, reply):
        return {"code": w.WEB_PROVIDER_RESPONSE_INVALID, "reason": w.verify(row, reply), "message": reply.message}
    if kind == "fetch" and expected.get("error") == "target" and reply.status_code >= 400:
        return {"code": w.WEB_FETCH_FAILED, "reason": "provider_error", "status": reply.status_code, "message": "its status is told"}
    return {}


def faults_of(name: str, about: Mapping[str, Any], body: bytes) -> List[str]:
    """What is read otherwise than `about` says."""
    row, kind = reader_of(name, about.get("request", ""))
    headers = {key.lower(): value for key, value in about.get("headers", {}).items()}
    response = w.Response("https://api.example.test/x", about["status"], headers, body)
    expected, ruled = about.get("expect") or {}, RULED.get(name, {})
    if "error" in expected:
        got = error_of(row, kind, response, expected)
        code, reason = w.ERROR_CLASSES.get(expected["error"], (w.WEB_PROVIDER_ERROR, "provider_error"))
        wanted = {"code": code, "reason": reason, **{k: v for k, v in expected.items() if k in ("retry_after", "status")}}
    else:
        try:
            got = found(row, kind, read(row, kind, response))
        except w.WebError as error:
            got = {"sources": f"error {error.code}"}
        wanted = {k: v for k, v in expected.items() if k in got or k in ("sources", "links", "page", "pages")}
    differing = {key: f"{key}: {got.get(key)!r}, not {value!r}" for key, value in wanted.items() if got.get(key) != value}
    return [told for key, told in differing.items() if key not in ruled] + [
        f"{key} is as the index says, though a ruling against it is listed" for key in ruled if key not in differing]


def main(arguments: List[str]) -> int:
    """Exit status: 0 all as the index says, 1 some not, 3 no such folder."""
    folder = Path(arguments[0]) if arguments else ROOT.parent / "shared" / "fixtures" / "providers"
    if not (folder / "index.json").is_file():
        print(f"check_fixtures: no index.json in {folder}", file=sys.stderr)
        return 3
    files = json.loads((folder / "index.json").read_text(encoding="utf-8"))["files"]
    failed = 0
    for name, about in files.items():
        if name in NOT_ASKED:
            print(f"{name}: not read: {NOT_ASKED[name]}")
            continue
        faults = faults_of(name, about, (folder / name).read_bytes())
        failed += bool(faults)
        for fault in faults:
            print(f"{name}: {fault}")
        for what, why in RULED.get(name, {}).items():
            print(f"{name}: {what} otherwise than the index: {why}")
    print(f"{len(files) - len(NOT_ASKED)} recorded replies read, {failed} otherwise than the index says")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
