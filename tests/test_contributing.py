"""CONTRIBUTING.md shows how a provider is added; here its blocks are applied to a copy of the module, as they stand."""
from __future__ import annotations

import importlib.util
import json
import re
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any, List

from tests.support import ROOT, Loopback, Reply, bare_environment, loopback_settings

MAX_LINES = 35


def blocks(language: str) -> List[str]:
    """The fenced blocks of that language in CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def replaced(text: str, old: str, new: str) -> str:
    """`text` with `old`, which must be there once, replaced."""
    assert text.count(old) == 1, old
    return text.replace(old, new)


class AddingAProvider(unittest.TestCase):
    module: Any

    @classmethod
    def setUpClass(cls) -> None:
        setting, code = blocks("python")
        text = (ROOT / "websearch.py").read_text(encoding="utf-8")
        text = replaced(text, '    *_source_endpoint("YDC"', setting + '    *_source_endpoint("YDC"')
        text = replaced(text, "# ---- The table\n", code + "\n\n# ---- The table\n")
        text = replaced(text, "DEEPSEEK, YOU, SEARXNG,", "DEEPSEEK, KESTREL, YOU, SEARXNG,")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "websearch_with_kestrel.py")
            path.write_text(text, encoding="utf-8")
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None and spec.loader is not None
            cls.module = importlib.util.module_from_spec(spec)
            sys.modules[path.stem] = cls.module
            cls.addClassCleanup(sys.modules.pop, path.stem)
            spec.loader.exec_module(cls.module)

    def search(self, reply: Any, key: str = "kestrel-key-1", **query: Any) -> Any:
        """(tool result, requests, states as doctor shows them) of a search in `auto`."""
        w = self.module
        with Loopback({"/v1/search": reply}) as server:
            settings = loopback_settings({"KESTREL_API_KEY": key, "KESTREL_API_URL": server.url()})
            with w.WebSearch(bare_environment(settings)) as web:
                result = w.call_tool(web, "web_search", {"query": "small falcons", **query}, w.Deadline(10))
                return result, server.requests, w.provider_states(web)

    def test_it_takes_few_lines(self) -> None:
        lines = [line for block in blocks("python") for line in block.splitlines() if line.strip()]
        self.assertLess(len(lines), MAX_LINES)

    def test_the_recorded_reply_gives_its_sources_and_the_key_is_a_bearer(self) -> None:
        result, (request,), _ = self.search(json.loads(blocks("json")[0]), recency_days=3650)
        self.assertEqual(result["structuredContent"]["sources"], [{
            "url": "https://docs.example.org/kestrel", "title": "Kestrel & friends", "snippet": "It hovers.",
            "published_date": "2026-11-02", "provider": "kestrel"}])
        self.assertEqual(request.header("authorization"), "Bearer kestrel-key-1")
        self.assertEqual((request.json()["q"], request.json()["max"], len(request.json()["since"])), ("small falcons", 5, 10))

    def test_policy_comes_with_the_row(self) -> None:
        refused, requests, states = self.search(Reply(401, {"message": "the key kestrel-key-1 is wrong"}), "kestrel-key-1,kestrel-key-2")
        self.assertEqual(len(requests), 2)
        text = refused["content"][0]["text"]
        self.assertIn("Check KESTREL_API_KEY.", text)
        self.assertNotIn("kestrel-key-1", text)
        state = next(state for state in states if state["provider"] == "kestrel")
        self.assertEqual((state["state"], state["keys"], state["resting_keys"]), ("resting", 2, 2))
        skipped, requests, _ = self.search({"hits": []}, exclude_domains=["x.example"])
        self.assertEqual(requests, [])
        self.assertIn("kestrel cannot filter by exclude_domains", skipped["content"][0]["text"])

    def test_a_reply_of_another_shape_is_a_coded_error(self) -> None:
        for reply in ({"hits": None}, {}, [1], "<html>", '{"hits": ['):
            result, _, _ = self.search(reply)
            attempt = json.loads(result["content"][0]["text"])["error"]["attempted"][0]
            self.assertEqual((attempt["provider"], attempt["code"]), ("kestrel", "WEB_PROVIDER_RESPONSE_INVALID"))


if __name__ == "__main__":
    unittest.main()
