"""The tools' table: schemas, arguments, the reply budget, the error object."""
from __future__ import annotations

import json
import re
import unittest
from typing import Any, List

import websearch
from tests.support import ROOT, Loopback, bare_environment, loopback_settings


def check(name: str, **arguments: Any) -> Any:
    return websearch.check_arguments(websearch.TOOLS[name], arguments)


class Schemas(unittest.TestCase):
    def test_the_listing_is_small_and_every_argument_is_described(self) -> None:
        declarations = websearch.tool_declarations()
        self.assertEqual([tool["name"] for tool in declarations], ["web_search", "get_sources", "web_fetch", "web_map"])
        self.assertLessEqual(len(json.dumps({"tools": declarations}, separators=(",", ":"))), 10_000)
        for tool in declarations:
            self.assertTrue(40 <= len(tool["description"]) <= 2000)
            for name, schema in tool["inputSchema"]["properties"].items():
                self.assertTrue(schema["description"], name)
            self.assertLessEqual(set(tool["outputSchema"]["required"]), set(tool["outputSchema"]["properties"]))
            for name, schema in tool["outputSchema"]["properties"].items():
                self.assertTrue(schema["description"], name)

    def test_the_first_line_of_the_instructions_fits_codex(self) -> None:
        self.assertLessEqual(len(websearch.INSTRUCTIONS.split("\n")[0]), 250)


class Arguments(unittest.TestCase):
    def test_clear_intent_works(self) -> None:
        values, notes = check("web_search", query="  x ", limit="3", recency_days=7.0, include_domains="a.example",
                              include_content="true", provider="TAVILY", extra_sources=None, made_up=1)
        self.assertEqual((values["query"], values["limit"], values["recency_days"], values["include_domains"],
                          values["include_content"], values["provider"], values["extra_sources"], notes),
                         ("x", 3, 7, ("a.example",), True, "tavily", None, []))

    def test_a_number_outside_its_range_is_clamped_with_a_note(self) -> None:
        values, notes = check("web_search", query="x", limit=99, extra_sources=-3)
        self.assertEqual((values["limit"], values["extra_sources"]), (20, 0))
        self.assertEqual(len(notes), 2)
        self.assertIn("limit", notes[0])

    def test_what_cannot_be_understood_names_the_argument(self) -> None:
        rows: List[Any] = [
            ("web_search", {}, "query"), ("web_search", {"query": ["x"]}, "query"), ("web_search", {"query": "  "}, "query"),
            ("web_search", {"query": "x" * 2001}, "query"), ("web_search", {"query": "x", "limit": "3px"}, "limit"),
            ("web_search", {"query": "x", "limit": True}, "limit"), ("web_search", {"query": "x", "limit": 1e999}, "limit"),
            ("web_search", {"query": "x", "limit": float("nan")}, "limit"), ("web_search", {"query": "x", "limit": 2.5}, "limit"),
            ("web_search", {"query": "x", "include_domains": [1]}, "include_domains"),
            ("web_search", {"query": "x", "include_domains": ["a.b"] * 1 + [f"h{i}.example" for i in range(30)]}, "include_domains"),
            ("web_search", {"query": "x", "include_content": "perhaps"}, "include_content"),
            ("web_search", {"query": "x", "provider": "exaa"}, "provider"), ("web_search", {"query": "x", "provider": 5}, "provider"),
            ("get_sources", {"session_id": None}, "session_id"), ("get_sources", {"session_id": "a", "offset": "b"}, "offset"),
            ("web_fetch", {"url": "http://h/" + "x" * 9000}, "url"), ("web_fetch", {"url": {}}, "url"),
            ("web_map", {"url": "http://h.example/", "max_depth": []}, "max_depth"),
        ]
        for tool, arguments, name in rows:
            with self.subTest(str(arguments)[:60]), self.assertRaises(websearch.WebError) as caught:
                websearch.check_arguments(websearch.TOOLS[tool], arguments)
            self.assertIn(name, caught.exception.message)
            self.assertIn(caught.exception.code, ("WEB_INVALID_ARGUMENT", "WEB_PROVIDER_CONFIGURED_MISSING"))

    def test_domains_that_exclude_each_other_are_refused(self) -> None:
        with websearch.WebSearch(bare_environment({})) as web, self.assertRaises(websearch.WebError) as caught:
            domains = {"include_domains": "docs.example.org", "exclude_domains": "example.org"}
            websearch.run_tool(web, "web_search", {"query": "x", **domains}, websearch.Deadline(5))
        self.assertEqual(caught.exception.code, "WEB_INVALID_ARGUMENT")

    def test_domains_are_taken_as_models_write_them(self) -> None:
        self.assertEqual(websearch.read_domains("x", ["https://Docs.Example.org/a", "*.example.net", "b\u00fccher.example."]),
                         ("docs.example.org", "example.net", "xn--bcher-kva.example"))
        for bad in ("not a host", "localhost", "a..b", "http://"):
            with self.subTest(bad), self.assertRaises(websearch.WebError):
                websearch.read_domains("include_domains", [bad])


class Budget(unittest.TestCase):
    def _result(self, count: int, content: str = "", answer: str = "") -> Any:
        return {"content": answer or None, "truncated": False, "sources": [
            {"url": f"https://s.example.org/{n}", "title": "t" * 100, "snippet": "s" * 500,
             "provider": "tavily", **({"content": content} if content else {})} for n in range(count)]}

    def test_page_text_goes_first_then_trailing_sources(self) -> None:
        result = self._result(5, "\u6f22\u5b57 \"quoted\" " * 3000)
        websearch.fit_sources(result, 38_000, "more")
        self.assertLessEqual(websearch.size_of(result), 38_000)
        self.assertEqual(len(result["sources"]), 5)
        self.assertGreater(websearch.size_of(result), 36_000)
        many = self._result(200)
        websearch.fit_sources(many, 38_000, "more")
        self.assertLessEqual(websearch.size_of(many), 38_000)
        self.assertTrue(many["truncated"])
        self.assertGreater(len(many["sources"]), 40)
        self.assertIn("more", many["notes"][0])

    def test_a_long_answer_is_cut_last(self) -> None:
        result = self._result(1, answer="\u6f22" * 20_000)
        websearch.fit_sources(result, 38_000, "more")
        self.assertLessEqual(websearch.size_of(result), 38_000)
        self.assertTrue(result["content"].endswith("\u2026"))

    def test_links_leave_room_for_the_text_whatever_limit_and_budget(self) -> None:
        links = "".join(f"<li><a href='/{n}/{'p' * 300}'>link {n}</a>" for n in range(50))
        page = f"<title>t</title><nav><ul>{links}</ul></nav><main><h1>Kestrels</h1>{'<p>A small falcon hovers over the field. </p>' * 3000}</main>"
        with Loopback({"*": page}) as site:
            for char_limit, max_bytes in ((200_000, 38_000), (15_000, 4_000)):
                settings = loopback_settings({"WEBSEARCH_RESPONSE_BYTES": str(max_bytes)})
                with self.subTest(max_bytes), websearch.WebSearch(bare_environment(settings)) as web:
                    result = websearch.run_tool(web, "web_fetch", {"url": site.url("/"), "char_limit": char_limit}, websearch.Deadline(10))
                    self.assertLessEqual(websearch.size_of(result), max_bytes)
                    self.assertGreater(len(result["text"]), max_bytes / 2)

    def test_long_messages_of_many_attempts_leave_room_too(self) -> None:
        attempts = [websearch.Attempt(f"provider{n}", "error", code="WEB_PROVIDER_ERROR", message="\u932f" * 600) for n in range(16)]
        for max_bytes in (4_000, 38_000):
            with self.subTest(max_bytes):
                error = websearch.WebError("WEB_ALL_PROVIDERS_FAILED", "\u932f" * 9_000, attempted=attempts)
                told = websearch.error_object(error, max_bytes)["error"]
                self.assertEqual(len(told["attempted"]), 16)
                self.assertLess(websearch.size_of(told), max_bytes)
        result = {**self._result(3), "attempted": [attempt.to_json() for attempt in attempts]}
        shared = result["attempted"][0]["message"]
        websearch.fit_sources(result, 6_000, "more")
        self.assertLessEqual(websearch.size_of(result), 6_000)
        self.assertEqual((len(result["sources"]), len(shared)), (3, 600))  # an equal search in flight has the same attempts

    def test_get_sources_pages_through_everything(self) -> None:
        with websearch.WebSearch(bare_environment(loopback_settings({"WEBSEARCH_RESPONSE_BYTES": "4000"}))) as web:
            sources = tuple(websearch.Source(f"https://s.example.org/{n}", snippet="s" * 300) for n in range(30))
            session = web._sessions.put("q", sources)
            seen: List[str] = []
            offset = 0
            while offset is not None:
                result = websearch.run_tool(web, "get_sources", {"session_id": session, "offset": offset}, websearch.Deadline(5))
                self.assertLessEqual(websearch.size_of(result), 4_000)
                seen += [source["url"] for source in result["sources"]]
                offset = result.get("next_offset")
            past = websearch.run_tool(web, "get_sources", {"session_id": session, "offset": 99}, websearch.Deadline(5))
            with self.assertRaises(websearch.WebError) as caught:
                websearch.run_tool(web, "get_sources", {"session_id": "nobody"}, websearch.Deadline(5))
        self.assertEqual(seen, [source.url for source in sources])
        self.assertEqual((past["sources"], past["total_sources"], past["truncated"]), ([], 30, False))
        self.assertEqual(past["notes"], ["offset 99 lies past the end (30)"])
        self.assertEqual(caught.exception.code, "WEB_SESSION_NOT_FOUND")


class ReadmeTables(unittest.TestCase):
    def setUp(self) -> None:
        self.text = (ROOT / "README.md").read_text(encoding="utf-8")

    def _rows(self, heading: str) -> List[List[str]]:
        section = self.text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in section.split("\n")
                if line.startswith("| `")]

    def test_error_codes_are_those_of_the_module(self) -> None:
        told = {row[0].strip("`"): (row[1], row[2]) for row in self._rows("Error codes")}
        self.assertEqual(told, {code: (entry.meaning, "yes" if entry.retryable else "no")
                                for code, entry in websearch.ERROR_CODES.items()})

    def test_settings_are_those_of_the_module(self) -> None:
        told = [row[0].strip("`") for row in self._rows("Settings")]
        self.assertEqual(told, [variable.name for variable in websearch.VARIABLES])

    def test_providers_are_those_of_the_module(self) -> None:
        self.assertEqual([row[0].strip("`") for row in self._rows("Providers")], [p.id for p in websearch.PROVIDERS])

    def test_arguments_of_the_tools_are_those_of_the_module(self) -> None:
        told = [(row[0].strip("`"), row[1].strip("`")) for row in self._rows("Tools")]
        self.assertEqual(told, [(tool.name, argument.name) for tool in websearch.TOOLS.values() for argument in tool.arguments])


if __name__ == "__main__":
    unittest.main()
