"""The command line as a user meets it: the real process, its output, its exit status."""
from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest
from typing import Dict, List, Mapping, Optional, Tuple

import websearch
from tests.support import ROOT, Loopback, bare_environment, closed_port, loopback_settings

FOUND = {"results": [{"title": "Kestrel", "url": "https://s.example.org/kestrel", "content": "A small falcon."}]}


def run(*arguments: str, settings: Optional[Mapping[str, str]] = None) -> Tuple[int, str, str]:
    """(exit status, stdout, stderr) of the command line, started by `-m`, which uses the byte code cache."""
    done = subprocess.run([sys.executable, "-m", "websearch", *arguments], env=bare_environment(settings), cwd=str(ROOT),
                          capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Commands(unittest.TestCase):
    def test_search_prints_readable_text_or_the_tools_object(self) -> None:
        with Loopback({"*": FOUND}) as searxng:
            settings = loopback_settings({"SEARXNG_URL": searxng.url()})
            status, text, errors = run("search", "small", "falcon", settings=settings)
            as_json = run("search", "small falcon", "--json", "--limit", "3", settings=settings)
            self.assertEqual(searxng.requests[0].query["q"], "small falcon")
        self.assertEqual((status, errors), (0, ""))
        self.assertIn("1. Kestrel", text)
        self.assertIn("https://s.example.org/kestrel", text)
        result = json.loads(as_json[1])
        self.assertEqual(result["sources"][0]["snippet"], "A small falcon.")
        self.assertEqual(result["search_provider"], "searxng")

    def test_a_failure_is_one_honest_line_that_names_every_provider(self) -> None:
        url = f"http://127.0.0.1:{closed_port()}"
        settings = loopback_settings({"SEARXNG_URL": url, "TAVILY_API_KEY": "tvly-test-key", "TAVILY_API_URL": url})
        status, text, errors = run("search", "x", settings=settings)
        self.assertEqual((status, text, errors.count("\n")), (1, "", 1))
        for word in ("WEB_ALL_PROVIDERS_FAILED", "tavily", "searxng"):
            self.assertIn(word, errors)
        status, text, _ = run("search", "x", "--json", settings=settings)
        self.assertEqual([a["provider"] for a in json.loads(text)["error"]["attempted"]], ["tavily", "searxng"])

    def test_fetch_and_map_print_text(self) -> None:
        with Loopback({"/": "<title>Start</title><main><h1>Home</h1><p>Welcome. <a href=/next>Next page</a></p></main>"}) as site:
            status, text, _ = run("fetch", site.url("/"), settings=loopback_settings())
            map_status, map_text, _ = run("map", site.url("/"), settings=loopback_settings())
            self.assertIn("# Home", text)
            self.assertIn(site.url("/next"), map_text)
        self.assertEqual((status, map_status), (0, 0))

    def test_wrong_usage_is_status_2(self) -> None:
        for arguments in ((), ("nonsense",), ("search",), ("install", "nobody"), ("login", "--port", "99999")):
            self.assertEqual(run(*arguments)[0], 2, arguments)

    def test_a_bad_argument_is_named(self) -> None:
        status, _, errors = run("fetch", "http://h.example/", "--char-limit", "many")
        self.assertEqual(status, 1)
        self.assertIn("char_limit", errors)

    def test_doctor_tells_where_each_setting_came_from_and_never_a_key(self) -> None:
        status, text, _ = run("doctor", "--json", settings={"TAVILY_API_KEY": "tvly-canary-key", "WEBSEARCH_TIMEOUT": "abc",
                                                            "HTTPS_PROXY": "http://user:canary-word@h:1"})
        report = json.loads(text)
        rows = {row["name"]: (row["value"], row["origin"]) for row in report["settings"]}
        self.assertEqual(status, 0)
        self.assertEqual(rows["TAVILY_API_KEY"], ("set", "environment TAVILY_API_KEY"))
        self.assertEqual(rows["WEBSEARCH_TIMEOUT"], ("20.0", "default"))
        self.assertTrue(any("WEBSEARCH_TIMEOUT" in warning for warning in report["warnings"]))
        states = {row["provider"]: row["state"] for row in report["providers"]}
        self.assertEqual((states["tavily"], states["exa"], states["local"]), ("ready", "not used", "ready"))
        self.assertNotIn("canary", text + run("doctor", settings={"TAVILY_API_KEY": "tvly-canary-key"})[1])

    def test_doctor_probe_asks_each_usable_provider_once(self) -> None:
        with Loopback({"*": FOUND}) as searxng:
            _, text, _ = run("doctor", "--probe", "--json", settings=loopback_settings({
                "SEARXNG_URL": searxng.url(), "JINA_ENABLED": "false", "WEBSEARCH_TIMEOUT": "1"}))
            self.assertEqual(len(searxng.requests), 1)
        outcomes = {row["provider"]: row["outcome"] for row in json.loads(text)["probe"]}
        self.assertEqual(outcomes["searxng"], "ok")

    def test_doctor_probe_asks_keyless_modes_too(self) -> None:
        off = dict.fromkeys(("YDC_ENABLED", "FIRECRAWL_ENABLED", "JINA_ENABLED"), "false")
        with Loopback({"*": FOUND}) as tavily:
            _, text, _ = run("doctor", "--probe", "--json", settings=loopback_settings({
                **off, "WEBSEARCH_KEYLESS": "on", "TAVILY_API_URL": tavily.url(), "WEBSEARCH_TIMEOUT": "1"}))
            self.assertEqual(len(tavily.requests), 1)
        row = json.loads(text)["probe"][0]
        self.assertEqual((row["provider"], row["outcome"], row["sources"]), ("tavily", "ok", 1))

    def test_doctor_warns_of_what_serves_in_vain(self) -> None:
        _, text, _ = run("doctor", settings={"WEBSEARCH_ALLOW_PRIVATE": "10.0.0.0/99", "WEBSEARCH_CONFIG": "/nonexistent/env",
                                             "WEBSEARCH_MAP_PROVIDERS": "locl,local"})
        for words in ("warning        WEBSEARCH_ALLOW_PRIVATE: `10.0.0.0/99`", "/nonexistent/env (does not exist)",
                      "warning        WEBSEARCH_MAP_PROVIDERS: there is no provider 'locl'"):
            self.assertIn(words, text)

    def test_a_list_of_unknown_providers_is_an_error_and_asks_nobody_else(self) -> None:
        for arguments, name in ((("search", "x"), "WEBSEARCH_PROVIDERS"), (("hosts",), "GROK_SEARCH_SOURCE_PROVIDERS"),
                                (("fetch", "http://127.0.0.1:9/"), "WEBSEARCH_FETCH_PROVIDERS"),
                                (("map", "http://127.0.0.1:9/"), "WEBSEARCH_MAP_PROVIDERS")):
            status, text, errors = run(*arguments, settings=loopback_settings({name: "searxgn,locl", "XAI_API_KEY": "xai-test"}))
            self.assertEqual((status, text), (1, ""))
            self.assertIn(f"{name} names no provider: there is no searxgn, locl", errors)

    def test_an_unknown_provider_beside_a_known_one_is_noted(self) -> None:
        with Loopback({"*": "<p>Welcome, and read on.</p>"}) as site:
            _, text, errors = run("fetch", site.url("/"), "--json", settings=loopback_settings({
                "WEBSEARCH_FETCH_PROVIDERS": "locl,local", "WEBSEARCH_LOG": "info"}))
        self.assertIn("WEBSEARCH_FETCH_PROVIDERS: there is no provider 'locl'; it was passed over", json.loads(text)["notes"])
        self.assertRegex(errors, r"info: local ok in \d+ ms\n")

    def test_domains_may_be_repeated_and_words_are_utf_8_in_any_locale(self) -> None:
        with Loopback({"*": FOUND}) as searxng:
            run("search", "\u6f22\u5b57", "--include-domains", "a.example", "--include-domains", "b.example,c.example",
                settings=loopback_settings({"SEARXNG_URL": searxng.url(), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}))
            asked = searxng.requests[0].query["q"]
        for word in ("\u6f22\u5b57", "a.example", "b.example", "c.example"):
            self.assertIn(word, asked)

    def test_an_output_that_takes_no_more_is_one_line_and_a_broken_pipe_is_none(self) -> None:
        def shell(command: str) -> Tuple[int, str]:
            done = subprocess.run(["bash", "-c", "set -o pipefail; " + command.replace("PY", sys.executable)], cwd=str(ROOT),
                                  env=bare_environment(), stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60)
            return done.returncode, done.stderr.decode()

        for command in ("hosts > /dev/full", "--help > /dev/full", "hosts >&-"):
            status, errors = shell("PY -m websearch " + command)
            self.assertEqual((status, errors.count("\n")), (1, 1), errors)
        for command in ("PY -m websearch --help | true", "PY websearch_mcp.py --help | true"):
            self.assertEqual(shell(command), (0, ""))

    def test_hosts_are_those_of_the_present_settings(self) -> None:
        _, text, _ = run("hosts", settings=loopback_settings({"TAVILY_API_KEY": "tvly-test-key", "XAI_API_KEY": "xai-test"}))
        self.assertEqual(text.split(), ["api.x.ai", "api.tavily.com"])

    def test_the_file_itself_is_the_command(self) -> None:
        shown = subprocess.run([sys.executable, str(ROOT / "websearch.py"), "--version"], env=bare_environment(),
                               stdout=subprocess.PIPE, timeout=60).stdout.decode()
        self.assertEqual(shown.strip(), f"websearch-mcp {websearch.VERSION}")


class SettingsFileCommands(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.settings: Dict[str, str] = {"HOME": folder.name}
        self.path = os.path.join(folder.name, ".config", "websearch-mcp", "env")

    def _text(self) -> str:
        with open(self.path, encoding="utf-8") as file:
            return file.read()

    def test_init_writes_every_variable_commented_out_and_never_overwrites(self) -> None:
        self.assertEqual(run("init", settings=self.settings)[0], 0)
        names = [line[1:].partition("=")[0] for line in self._text().split("\n") if line.startswith("#") and line[1:2].isupper()]
        self.assertEqual(names, [variable.name for variable in websearch.VARIABLES])
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(os.path.dirname(self.path)).st_mode), 0o700)
        before = self._text()
        status, _, errors = run("init", settings=self.settings)
        self.assertEqual((status, self._text()), (1, before))
        self.assertIn("there already", errors)

    def test_configure_sets_and_unsets_and_keeps_every_other_line(self) -> None:
        run("init", settings=self.settings)
        before: List[str] = self._text().split("\n")
        self.assertEqual(run("configure", "EXA_API_KEY=exa-new-key", "WEBSEARCH_TIMEOUT=9", settings=self.settings)[0], 0)
        after = self._text().split("\n")
        changed = [line for line in after if line not in before]
        self.assertEqual((changed, len(after)), (["EXA_API_KEY=exa-new-key", "WEBSEARCH_TIMEOUT=9"], len(before)))
        run("configure", "--unset", "EXA_API_KEY", settings=self.settings)
        self.assertNotIn("exa-new-key", self._text())
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)

    def test_configure_changes_nothing_when_one_value_is_bad(self) -> None:
        run("configure", "EXA_API_KEY=exa-old-key", settings=self.settings)
        for bad in (("WEBSEARCH_TIMEOUT=soon",), ("NO_SUCH_SETTING=1", "no setting NO_SUCH_SETTING"), ("--unset", "NOBODY"),
                    ("EXA_API_KEY",), ("--unset", "EXA_API_KEY"), ("=x",), ("GROK_SEARCH_TIMEOUT_SECONDS=7", "WEBSEARCH_TIMEOUT")):
            told = bad[1] if len(bad) > 1 else ""
            status, _, errors = run("configure", "EXA_API_KEY=exa-new-key", *(bad if bad[0] == "--unset" else bad[:1]),
                                    settings=self.settings)
            self.assertEqual((status, self._text()), (1, "EXA_API_KEY=exa-old-key\n"), bad)
            self.assertIn(told, errors)
            self.assertNotIn("exa-new-key", errors)


if __name__ == "__main__":
    unittest.main()
