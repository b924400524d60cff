"""Keys, tokens and passwords stay inside: whatever a provider echoes, nothing that leaves the process holds a part of one."""
from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest
from typing import Any, Dict, Iterator, List, Mapping, Set
from urllib.parse import quote

import websearch
from tests.support import ROOT, Loopback, McpProcess, RecordedRequest, Reply, bare_environment, fixture_json, loopback_settings
from tests.test_hostile import PROVIDER_ROWS, HostileCase, RoutedByProvider, case, error_of, provider_settings

KEY = "zQ7kX+2vM/9tR=bN4wY8"
PASSWORD = "pW3:jH6@uL0dS5"
PART_CHARS = 6


def encoded_forms(secret: str) -> Set[str]:
    """The secret as it may come back: plain, URL-encoded, in base64 alone or behind a user name, in JSON, lower-case."""
    basic = [base64.b64encode((before + secret).encode()).decode() for before in ("", "u:", "user:", "api-key:")]
    return {secret, quote(secret, safe=""), secret.lower(), "".join(f"\\u{ord(c):04x}" for c in secret), *basic}


def parts_found(written: str, *secrets: str) -> List[str]:
    """Pieces of the secrets that stand in `written`: a prefix is as bad as all of it."""
    found = []
    for secret in secrets:
        for form in (secret, quote(secret, safe=""), secret.lower(), base64.b64encode(secret.encode()).decode(),
                     base64.b64encode(b"x" + secret.encode()).decode()[4:], base64.b64encode(b"xx" + secret.encode()).decode()[4:]):
            whole = range(len(form.rstrip("=")) - PART_CHARS + 1)
            found += [form[start:start + PART_CHARS] for start in whole if form[start:start + PART_CHARS] in written]
    return found


def texts_below(value: Any, seen: Set[int]) -> Iterator[str]:
    """Every string that can be reached from an object through containers and attributes."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, (str, bytes)):
            yield item if isinstance(item, str) else item.decode("latin-1")
        elif id(item) not in seen and not isinstance(item, (int, float, type)):
            seen.add(id(item))
            if isinstance(item, Mapping):
                waiting += [*item.keys(), *item.values()]
            elif isinstance(item, (list, tuple, set, frozenset)):
                waiting += item
            else:
                waiting += [getattr(item, name, None) for kind in type(item).__mro__ for name in getattr(kind, "__slots__", ())]
                waiting += getattr(item, "__dict__", {}).values()


class EchoingProviders(HostileCase):
    """Each provider sends the key back, in errors and in results."""

    def results(self, request: RecordedRequest) -> Any:
        """A reply in the forms of several providers at once, with the key in every field, and across where texts are cut."""
        across = "x" * (websearch.MAX_SNIPPET_CHARS - 9) + " " + KEY
        title = "t" * (websearch.MAX_TITLE_CHARS - 8) + KEY
        item = {"url": f"https://a.test/{quote(KEY, safe='')}", "title": title, "content": across, "snippet": across,
                "description": across, "text": KEY, "raw_content": KEY, "markdown": f"# {KEY}", "score": KEY}
        return {"results": [item], "data": [item], "web": {"results": [item]},
                "answer": KEY, "success": True, "echo": {name: value for name, value in request.headers}}

    def errors(self, request: RecordedRequest) -> Any:
        words = " ".join(sorted(encoded_forms(KEY)))
        padding = "p" * (websearch.MAX_VENDOR_WORDS_CHARS - 30)
        said = {"error": {"message": f"Invalid key {words} {padding} {KEY}", "type": KEY}, "detail": KEY, "message": KEY}
        return Reply(int(request.path.split("/")[1]), said, [("X-Echo", KEY), ("Retry-After", KEY)])

    def test_no_echo_comes_through_in_errors_or_results(self) -> None:
        with Loopback() as mock:
            for mode in ("401", "400", "429", "500", "200"):
                answer = self.results if mode == "200" else self.errors
                for provider in PROVIDER_ROWS:
                    for path in self.paths(provider):
                        mock.answer(f"/{mode}/{provider}{path}", answer)
                settings = {name: KEY if "KEY" in name or "TOKEN" in name else value
                            for name, value in provider_settings(mock.url("/" + mode)).items()}
                with self.subTest(mode), McpProcess(loopback_settings(settings)) as server:
                    server.initialize()
                    calls = [("web_search", {"query": "x", "provider": provider, "include_content": True}) for provider in PROVIDER_ROWS]
                    calls += [(tool, {"url": "https://a.test/", "provider": provider}) for provider in ("tavily", "firecrawl")
                              for tool in ("web_fetch", "web_map")]
                    replies = [server.reply_to(call_id, 30) for call_id in [server.send_call(*call) for call in calls]]
                    if mode == "200":
                        for reply in replies:
                            if "session_id" in reply["result"].get("structuredContent", {}):
                                server.call_tool("get_sources", {"session_id": reply["result"]["structuredContent"]["session_id"]})
                        self.assertIn("[redacted]", bytes(server.stdout).decode())
                    self.assert_serves_and_is_silent(server)
                    self.assertEqual(parts_found((server.stdout + server.stderr).decode(), KEY), [])
            self.assertGreater(len([r for r in mock.requests if any(KEY in value for _, value in r.headers)]), 40)

    def paths(self, provider: str) -> List[str]:
        return ["/search", "/v1/search", "/v2/search", "/res/v1/web/search", "/v1/responses", "/responses", "/v1/chat/completions",
                "/chat/completions", "/v1/messages", "/extract", "/scrape", "/v2/scrape", "/map", "/v2/map", "/contents", "/v1/agent",
                "/v1/sonar", "/messages", "/web/search"]

    def test_b35_accidents_in_keys_are_trimmed_and_the_rest_refused_by_name(self) -> None:
        keys = fixture_json("cases/B35_env.json")
        names = {"tavily": "TAVILY", "exa": "EXA", "perplexity": "PERPLEXITY", "brave": "BRAVE"}
        with Loopback({"*": lambda request: Reply(401, {"error": json.dumps(request.headers)})}) as mock, McpProcess(
                loopback_settings({**keys, **{f"{name}_API_URL": mock.url() for name in names.values()}})) as server:
            server.initialize()
            errors = {name: error_of(server.call_tool("web_search", {"query": "x", "provider": name})) for name in names}
            sent = {request.header("authorization") or request.header("x-api-key") or request.header("x-subscription-token")
                    for request in mock.requests}
            self.assertEqual(sent, {"Bearer tvly-CASE-SECRET-1", "exa-CASE-SECRET-2", "brave-CASE-SECRET-4"})
            self.assertIn("PERPLEXITY_API_KEY", errors["perplexity"]["message"])
            self.assertIn("line break", errors["perplexity"]["message"])
            self.assert_serves_and_is_silent(server)
            self.assertNotIn("SECRET", (server.stdout + server.stderr).decode())

    def test_b36_credentials_are_never_redirected(self) -> None:
        with RoutedByProvider() as mock, Loopback({"*": {"results": []}}) as other:
            away = case("B36_away_302.http").replace(b"{OTHER}", str(other.port).encode())
            for provider in PROVIDER_ROWS:
                for status in (b"302 Found", b"307 Temporary Redirect", b"308 Permanent Redirect"):
                    mock.answer(provider, away.replace(b"302 Found", status))
            with McpProcess(loopback_settings(provider_settings(mock.url()))) as server:
                server.initialize()
                for _ in range(2):
                    ids = {name: server.send_call("web_search", {"query": "x", "provider": name}) for name in PROVIDER_ROWS}
                    for name, call_id in ids.items():
                        with self.subTest(name):
                            message = error_of(server.reply_to(call_id)["result"])["message"]
                            self.assertIn("redirected to localhost", message)
                self.assert_serves_and_is_silent(server)
            self.assertEqual((other.connections, len(mock.requests)), (0, 2 * len(PROVIDER_ROWS)))


class InsideTheProcess(unittest.TestCase):
    def test_neither_caches_nor_errors_nor_reprs_hold_a_key(self) -> None:
        page = {"results": [{"url": "https://a.test/", "title": KEY, "content": KEY, "raw_content": f"page {KEY}"}]}
        with Loopback({"*": page}) as mock, websearch.WebSearch(loopback_settings({
                "TAVILY_API_KEY": KEY, "TAVILY_API_URL": mock.url(), "HTTPS_PROXY": f"http://u:{quote(PASSWORD, safe='')}@127.0.0.1:1",
                "EXA_API_KEY": KEY, "EXA_API_URL": "https://exa.test", "NO_PROXY": "127.0.0.1"})) as web:
            deadline = websearch.Deadline(10)
            for tool, arguments in (("web_search", {"query": "x", "provider": "tavily"}),
                                    ("web_fetch", {"url": "https://a.test/", "provider": "tavily"}),
                                    ("web_search", {"query": "x", "provider": "exa"})):
                result = json.dumps(websearch.call_tool(web, tool, arguments, deadline))
                self.assertIn("[redacted]" if arguments["provider"] == "tavily" else "proxy", result)
                self.assertEqual(parts_found(result, KEY, PASSWORD), [])
            snapshot = web.snapshot()
            kept = "\n".join(texts_below([web._sessions, web._pages], set()))
            self.assertIn("[redacted]", kept)
            request = websearch.Request.get("https://h.test/?q=1", headers={"Authorization": f"Bearer {KEY}"})
            told = [repr(snapshot.settings), repr(websearch.Endpoint("https://h.test", KEY)), repr(request), repr(snapshot),
                    repr(snapshot.transport.proxies), repr(snapshot.transport)]
            self.assertEqual(parts_found(kept + "\n".join(told), KEY, PASSWORD), [])

    def test_a_key_that_no_header_can_hold_is_refused_by_name_only(self) -> None:
        for bad in (f"{KEY} x", f"{KEY}\nx", f"k\u00e9y{KEY}", f"{KEY}\x00x"):
            with self.subTest(bad):
                settings = websearch.Settings.from_env({"TAVILY_API_KEY": bad}, websearch.SettingsFile())
                self.assertEqual(parts_found(repr(settings) + " ".join(settings.warnings), KEY), [])

    def test_every_encoding_of_a_secret_is_known_to_the_redactor(self) -> None:
        websearch.remember_secret(KEY)
        for form in encoded_forms(KEY) - {"".join(f"\\u{ord(c):04x}" for c in KEY)}:
            for text in (form, f"x{form}y", json.dumps({"a": form})):
                with self.subTest(text):
                    self.assertEqual(parts_found(websearch.redact(text), KEY), [])


class CommandsAndFiles(unittest.TestCase):
    """The command line is a way out as well."""

    def setUp(self) -> None:
        self.home = tempfile.TemporaryDirectory()
        self.addCleanup(self.home.cleanup)

    def run_command(self, *arguments: str, settings: Mapping[str, str] = {}, umask: int = 0) -> str:
        """Output and errors of `websearch.py ARGUMENTS`."""
        environment = bare_environment({**settings, "HOME": self.home.name})
        done = subprocess.run([sys.executable, "-m", "websearch", *arguments], env=environment, cwd=str(ROOT), capture_output=True, timeout=30,
                              preexec_fn=lambda: os.umask(umask) and None, check=False)
        return (done.stdout + done.stderr).decode()

    def test_doctor_hosts_and_status_show_no_secret(self) -> None:
        user_info = f"http://user:{quote(PASSWORD, safe='')}@"
        settings: Dict[str, str] = {
            **{name: KEY if "KEY" in name or "TOKEN" in name else value for name, value in provider_settings("http://127.0.0.1:1").items()},
            "GITHUB_TOKEN": KEY, "SEARXNG_USERNAME": "u", "SEARXNG_PASSWORD": PASSWORD, "HTTP_PROXY": user_info + "127.0.0.1:1",
            "HTTPS_PROXY": user_info + "[broken", "BRAVE_API_URL": user_info + "brave.test", "OPENAI_SEARCH_URL": user_info + "127.0.0.1:1/v1",
            "WEBSEARCH_KEYLESS": "off", "DUCKDUCKGO_ENABLED": "false", "OPEN_ENABLED": "false"}
        for arguments in (["doctor"], ["doctor", "--json"], ["hosts"], ["status"], ["search", "x", "--provider", "tavily"],
                          ["install", "codex", "--dry-run"]):
            with self.subTest(arguments):
                written = self.run_command(*arguments, settings=settings)
                self.assertNotEqual(written, "")
                self.assertEqual(parts_found(written, KEY, PASSWORD), [])
                self.assertNotIn("Traceback", written)

    def test_the_settings_file_is_private_under_any_umask_and_its_keys_are_not_printed(self) -> None:
        written = self.run_command("configure", f"TAVILY_API_KEY={KEY}") + self.run_command("configure", f"EXA_API_KEY={KEY}")
        path = os.path.join(self.home.name, ".config", "websearch-mcp", "env")
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read().count(KEY), 2)
        self.assertEqual([oct(stat.S_IMODE(os.stat(place).st_mode)) for place in (path, os.path.dirname(path))], ["0o600", "0o700"])
        self.assertEqual(os.listdir(os.path.dirname(path)), ["env"])
        written += self.run_command("doctor")
        self.assertIn("TAVILY_API_KEY", written)
        self.assertEqual(parts_found(written, KEY), [])


if __name__ == "__main__":
    unittest.main()
