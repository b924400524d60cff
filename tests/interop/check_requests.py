"""Compares our request bodies with the vendors' interface descriptions.

    python3 tests/interop/check_requests.py [PROVIDER …]

Needs `jsonschema` (a virtual environment will do) and the descriptions, OpenAPI documents in ../shared/specs beside the
project: exits 3 and says so when either is missing, 1 when a request differs, 0 when all agree. Every member that we
send must be known there, and every value valid. This is no unit test: the descriptions are not ours to ship.
"""

from __future__ import annotations

import functools
import itertools
import json
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple
from urllib.parse import parse_qsl, urlsplit

ROOT = Path(__file__).resolve().parent.parent.parent
SPECS = ROOT.parent / "shared" / "specs"
sys.path.insert(0, str(ROOT))

import websearch as w  # noqa: E402

# provider -> its description; the path of ours that has another name there
SPEC_OF = {"grok": "xai", "chat": "openai"}
SAME_PATH = {("perplexity", "/v1/responses"): "/v1/agent"}
# Documented by the vendors but missing from the descriptions (their README says so).
KNOWN_GAPS = {"openai": {"blocked_domains"}}

QUERIES = tuple(
    w.SearchQuery("How does Kestrel 3 schedule?", limit, days, include, exclude, content, "2026-11-30")
    for limit, days, include, exclude, content in itertools.product(
        (1, 20), (None, 7, 400), ((), ("a.example", "b.example"), tuple(f"s{n}.example" for n in range(20))),
        ((), ("c.example",)), (False, True)))
PAGES = (w.PageQuery("https://docs.example.org/a"), w.PageQuery("https://docs.example.org/a", "queues", 30))
MAPS = (w.MapQuery("https://docs.example.org/"), w.MapQuery("https://docs.example.org/", 500, 3, "queues", 30))
# Settings that change a body, beside the defaults.
VARIANTS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "grok": ({"GROK_SEARCH_X_SEARCH": True},),
    "openai": ({"OPENAI_SEARCH_CONTEXT_SIZE": "low"}, {"OPENAI_SEARCH_TOOL": "web_search_preview"}),
    "anthropic": ({"ANTHROPIC_SEARCH_TOOL": "web_search_20260209"}, {"ANTHROPIC_SEARCH_TOOL": "web_search_20260318"}),
    "chat": ({"CHAT_SEARCH_MODE": "vendor-options", "CHAT_SEARCH_CONTEXT_SIZE": "high"},),
}


class Place(NamedTuple):
    """An operation of a description, with the document that its references point into."""

    spec: str
    document: Dict[str, Any]
    operation: Dict[str, Any]


def resolved(schema: Any, document: Mapping[str, Any]) -> Dict[str, Any]:
    """`schema` with a reference at its top followed."""
    while isinstance(schema, dict) and "$ref" in schema:
        target: Any = document
        for part in schema["$ref"].lstrip("#/").split("/"):
            target = target[part.replace("~1", "/").replace("~0", "~")]
        schema = target
    return schema if isinstance(schema, dict) else {}


def alternatives(schema: Any, document: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    """`schema` and all that it is made of: parts of allOf, anyOf, oneOf, references followed."""
    schema = resolved(schema, document)
    yield schema
    for part in itertools.chain.from_iterable(schema.get(name, ()) for name in ("allOf", "anyOf", "oneOf")):
        yield from alternatives(part, document)


def unknown_members(value: Any, schemas: Sequence[Any], document: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """The paths of members of `value` that no schema names (or only as deprecated), wherever schemas name any."""
    parts = [part for schema in schemas for part in alternatives(schema, document)]
    if isinstance(value, list):
        items = [part["items"] for part in parts if "items" in part]
        for item in value if items else ():
            yield from unknown_members(item, items, document, where + "[]")
    if isinstance(value, dict):
        named = [part["properties"] for part in parts if part.get("properties")]
        for name, member in value.items() if named else ():
            known = [properties[name] for properties in named if name in properties]
            if not known or any(part.get("deprecated") for part in known):
                yield f"{where}.{name}"
            yield from unknown_members(member, known, document, f"{where}.{name}")


def without_catch_alls(value: Any) -> Any:
    """`value` with bare objects taken out of lists of alternatives: they would make every other one optional."""
    if isinstance(value, list):
        return [without_catch_alls(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {name: without_catch_alls(member) for name, member in value.items()}
    for name in ("anyOf", "oneOf"):
        if isinstance(kept.get(name), list) and len(kept[name]) > 1:
            kept[name] = [part for part in kept[name] if part != {"type": "object"}]
    return kept


@functools.cache
def description(spec: str) -> Dict[str, Any]:
    """The document of that name."""
    document = without_catch_alls(json.loads((SPECS / f"{spec}.json").read_text(encoding="utf-8")))
    assert isinstance(document, dict)
    return document


def place_of(provider_id: str, request: w.Request, names: Sequence[str]) -> Optional[Place]:
    """The described operation whose path the request's path ends with; None when there is none."""
    path = urlsplit(request.url).path
    for spec in names:
        document = description(spec)
        ours = SAME_PATH.get((provider_id, path), path)
        for theirs in sorted(document["paths"], key=len, reverse=True):
            if ours.endswith(theirs.partition("{")[0]) or ("{" in theirs and theirs.partition("{")[0] == "/"):
                operation = document["paths"][theirs].get(request.method.lower())
                if operation is not None:
                    return Place(spec, document, operation)
    return None


def body_faults(request: w.Request, place: Place, validator: Any) -> Iterator[str]:
    """What is wrong with the body of a POST."""
    content = resolved(place.operation.get("requestBody", {}), place.document).get("content", {})
    schema = content.get("application/json", {}).get("schema")
    if schema is None:
        return
    body, gaps = request.json(), KNOWN_GAPS.get(place.spec, set())
    for name in unknown_members(body, [schema], place.document):
        if name.rpartition(".")[2] not in gaps:
            yield f"unknown or deprecated member {name}"
    for error in validator({"allOf": [schema], "components": place.document.get("components", {})}).iter_errors(body):
        yield f"{'.'.join(map(str, error.absolute_path))}: {error.message[:200]}"


def query_faults(request: w.Request, place: Place, validator: Any) -> Iterator[str]:
    """What is wrong with the query of a GET."""
    described = [resolved(parameter, place.document) for parameter in place.operation.get("parameters", ())]
    known = {parameter["name"]: parameter.get("schema", {}) for parameter in described if parameter.get("in") == "query"}
    sent = parse_qsl(urlsplit(request.url).query, keep_blank_values=True)
    for name, text in sent:
        if name not in known:
            yield f"unknown parameter {name}"
            continue
        types = {part.get("type") for part in alternatives(known[name], place.document)}
        value: Any = int(text) if "integer" in types and text.isdigit() else text
        value = {"true": True, "false": False}.get(text, value) if "boolean" in types else value
        value = text.split(",") if types == {"array"} else value
        schema = {"allOf": [known[name]], "components": place.document.get("components", {})}
        for error in validator(schema).iter_errors(value):
            yield f"{name}: {error.message[:200]}"
    for parameter in described:
        if parameter.get("in") == "query" and parameter.get("required") and parameter["name"] not in dict(sent):
            yield f"parameter {parameter['name']} is missing"


def requests_of(provider: w.Provider) -> Iterator[w.Request]:
    """Requests of all operations with all queries, with and without a key where the vendor allows both."""
    variable = w.VARIABLE_BY_NAME.get(provider.url_variable)
    url = (variable.default if variable else provider.default_url) or "https://api.openai.com/v1"  # `chat` has none
    model_variable = w.VARIABLE_BY_NAME.get(provider.model_variable)
    model = (model_variable.default if model_variable else "") or "m-1"
    defaults = {name: w.VARIABLE_BY_NAME[name].default for name in provider.option_variables}
    for extra in ({}, *VARIANTS.get(provider.id, ())):
        for key in ("k-1", "") if provider.keyless else ("k-1",):
            endpoint = w.Endpoint(url, key, model, {**defaults, **extra})
            for operation, queries in ((provider.search, QUERIES), (provider.fetch, PAGES), (provider.map, MAPS)):
                if operation is not None and (key or operation is provider.search):
                    yield from (operation.build(query, endpoint) for query in queries if is_asked(provider, query))


def is_asked(provider: w.Provider, query: Any) -> bool:
    """Whether the chain would ask `provider` that: source providers are passed over when they lack a filter."""
    if provider.prompts_filters or not isinstance(query, w.SearchQuery):
        return True
    return (set(query.filters) <= set(provider.filters) and len(query.include_domains) <= provider.max_include_domains
            and len(query.exclude_domains) <= provider.max_exclude_domains
            and (provider.both_domain_lists or not (query.include_domains and query.exclude_domains)))


def check(provider: w.Provider, validator: Any) -> Tuple[int, Dict[str, int], List[str]]:
    """How many requests were compared, each fault with how often it occurred, and what no description knows."""
    names = [SPEC_OF.get(provider.id, provider.id)]
    count = 0
    faults: Dict[str, int] = {}
    undescribed: Dict[str, None] = {}
    for request in requests_of(provider):
        place = place_of(provider.id, request, names)
        if place is None:
            undescribed[f"{request.method} {urlsplit(request.url).path}"] = None
            continue
        count += 1
        for fault in (body_faults if request.method == "POST" else query_faults)(request, place, validator):
            faults[fault] = faults.get(fault, 0) + 1
    return count, faults, list(undescribed)


def main(names: Sequence[str]) -> int:
    """Exit status: 0 all agree, 1 some differ, 3 something needed is missing."""
    if not SPECS.is_dir():
        print(f"check_requests: no interface descriptions at {SPECS}", file=sys.stderr)
        return 3
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        print("check_requests: needs the package jsonschema", file=sys.stderr)
        return 3
    described = {path.stem for path in SPECS.glob("*.json")}
    is_good = True
    for provider in w.PROVIDERS:
        if SPEC_OF.get(provider.id, provider.id) not in described or (names and provider.id not in names):
            continue
        count, faults, undescribed = check(provider, Draft202012Validator)
        is_good = is_good and not faults
        print(f"{provider.id}: {count} requests, {len(faults)} faults")
        for fault, times in faults.items():
            print(f"    {fault} ({times} times)")
        for what in undescribed:
            print(f"    not described, so not compared: {what}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
