"""The TOML reader, and WEBSEARCH_FOLLOW: what codex and Claude Code are configured to answer with."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any, ClassVar, Dict

import websearch
from tests.support import Loopback, McpProcess, RecordedRequest, Reply, loopback_settings

VALID = {
    "": {},
    "# only a comment": {},
    "\ufeffa = 1\r\nb = 2\r\n": {"a": 1, "b": 2},
    'bare-key_1 = 1\n"quoted key" = 2\n\'lit "key"\' = 3\n"" = 4\n1234 = 5': {
        "bare-key_1": 1, "quoted key": 2, 'lit "key"': 3, "": 4, "1234": 5},
    "a . b.'c d' = 1\na.e = 2": {"a": {"b": {"c d": 1}, "e": 2}},
    "3.14 = 'pi'": {"3": {"14": "pi"}},
    "[a]\nx = 1\n[a.b]\ny = 2\n[ c . 'd' ] # spaced\nz = 3": {"a": {"x": 1, "b": {"y": 2}}, "c": {"d": {"z": 3}}},
    "[a.b.c]\nx = 1\n[a]\ny = 2": {"a": {"b": {"c": {"x": 1}}, "y": 2}},
    "[[l]]\na = 1\n[[l]]\n[l.m]\nb = 2\n[[l.n]]\n[[l.n]]\nc = 3": {"l": [{"a": 1}, {"m": {"b": 2}, "n": [{}, {"c": 3}]}]},
    "fruit.apple.color = 'red'\n[fruit.pear]\nx = 1": {"fruit": {"apple": {"color": "red"}, "pear": {"x": 1}}},
    "a = {}\nb = { c = 1, 'd e'.f = [1, {g = 2}] }": {"a": {}, "b": {"c": 1, "d e": {"f": [1, {"g": 2}]}}},
    "a = [ # comment\n 1, # one\n\n 2,\n]\nb = [[], [[]]]": {"a": [1, 2], "b": [[], [[]]]},
    r'a = "\b\t\n\f\r\"\\ \u00e9 \U0001F680"': {"a": '\b\t\n\f\r"\\ \u00e9 \U0001f680'},
    "a = 'C:\\Users\\u1'": {"a": "C:\\Users\\u1"},
    'a = """\nline one\\\n   \n  line two\n"quoted" ""two""\n"""': {"a": 'line oneline two\n"quoted" ""two""\n'},
    'a = """x"""""\nb = """"""\nc = """\\""""""': {"a": 'x""', "b": "", "c": '"""'},
    "a = '''\nraw \\n 'quoted' ''two'' '''''": {"a": "raw \\n 'quoted' ''two'' ''"},
    "a = 0\nb = -17\nc = +99\nd = 1_000\ne = 0xDEAD_beef\nf = 0o755\ng = 0b1101": {
        "a": 0, "b": -17, "c": 99, "d": 1000, "e": 0xDEADBEEF, "f": 0o755, "g": 13},
    "a = 1.5\nb = -2e3\nc = 6.62_6E-34\nd = inf\ne = -inf\nf = 1e+1_0": {
        "a": 1.5, "b": -2000.0, "c": 6.626e-34, "d": math.inf, "e": -math.inf, "f": 1e10},
    "a = true\nb = false": {"a": True, "b": False},
    "a = 1979-05-27T07:32:00Z\nb = 1979-05-27 00:32:00.999999-07:00\nc = 1979-05-27\nd = 07:32:00\ne = [1979-05-27]": {
        "a": "1979-05-27T07:32:00Z", "b": "1979-05-27 00:32:00.999999-07:00", "c": "1979-05-27", "d": "07:32:00",
        "e": ["1979-05-27"]},
}
NEWER = {  # TOML 1.1, which tomllib does not read yet
    "a = {\n b = 1, # one\n c = 2,\n}": {"a": {"b": 1, "c": 2}},
    r'a = "\e[0m \x41"': {"a": "\x1b[0m A"},
    "a = 07:32\nb = 1979-05-27T07:32Z": {"a": "07:32", "b": "1979-05-27T07:32Z"},
}
INVALID = {  # text -> line of the error
    "a": 1, "a =": 1, "= 1": 1, "a = 1 b = 2": 1, "a = 1\n\na = 2": 3, "[a]\nx = 1\n[a]": 3, "a.b = 1\n[a]": 2, "a = 1\na.b = 2": 2,
    "a = {b = 1}\n[a.c]": 2, "a = {b = 1}\na.c = 2": 2, "a = [{}]\n[[a]]": 2, "[[a]]\n[a]": 2, "[a]\n[[a]]": 2, "[a\nb]": 1,
    "[a]]": 1, "[]": 1, "[a.]": 1, "[a] x = 1": 1, "a = [1 2]": 1, "a = [1,": 1, "a = {b = 1": 1, "a = {b = 1 c = 2}": 1,
    "a = {,}": 1, 'a = "open': 1, "a = 'open\n'": 1, 'x = 1\na = """open': 2, "a = '''open": 1, r'a = "\q"': 1,
    r'args = ["C:\Users\u1"]': 1, r'a = "\ud800"': 1, r'a = "\U00110000"': 1, r'a = "\u12"': 1, "a = 01": 1, "a = 1__0": 1,
    "a = _1": 1, "a = 1_": 1, "a = 1_e5": 1, "a = 0x_1": 1, "a = 0XF": 1, "a = .5": 1, "a = 5.": 1, "a = 1.e2": 1, "a = +0x1": 1,
    "a = True": 1, "a = bare": 1, "a = 2021-13-01": 1, "a = 2021-02-30": 1, "a = 25:00:00": 1, "a = 2021-01-01x": 1, "a = nul\x00": 1,
    "# \x01": 1, 'a = "tab\tok \x0b"': 1, "a = 1\rb = 2": 1, '"""a""" = 1': 1, "a = \"\"\"x\"\"\"\"\"\"": 1, "[a]\nb.c = 1\n[a.b]": 3,
    "a = " + "[" * 200 + "]" * 200: 1, "a = " + "9" * 500: 1,
}


class TomlTest(unittest.TestCase):
    def test_every_form_is_read(self) -> None:
        for text, value in {**VALID, **NEWER}.items():
            with self.subTest(text=text):
                self.assertEqual(websearch.parse_toml(text), value)
        self.assertTrue(math.isnan(websearch.parse_toml("a = -nan")["a"]))

    def test_what_is_no_toml_is_refused_with_its_line(self) -> None:
        for text, line in INVALID.items():
            with self.subTest(text=text[:60]):
                with self.assertRaises(websearch.TomlError) as caught:
                    websearch.parse_toml(text)
                self.assertEqual(caught.exception.line, line)
                self.assertTrue(str(caught.exception).startswith(f"line {line}: "))

    @unittest.skipIf(sys.version_info < (3, 11), "this Python has no tomllib")
    def test_the_standard_library_agrees(self) -> None:
        import tomllib
        for text, value in VALID.items():
            with self.subTest(text=text):
                theirs = tomllib.loads(text.lstrip("\ufeff"))
                self.assertEqual(json.dumps(theirs, default=lambda _: "moment"),
                                 json.dumps(value) if "1979" not in text else json.dumps(
                                     {name: ["moment"] if name == "e" else "moment" for name in value}))
        for text in INVALID:
            if not text.startswith("a = " + "[" * 9) and not text.startswith("a = 999"):
                with self.subTest(text=text), self.assertRaises(tomllib.TOMLDecodeError):
                    tomllib.loads(text)

    def test_long_documents_take_linear_time(self) -> None:
        for piece in ("k{0} = [1, 2]\n", "[t{0}]\nx = 1\n", "[[l]]\nx = 1\n", "a.b.k{0} = 'x'\n", "# {0}\n"):
            text = "".join(piece.format(number) for number in range(4_000))
            started = time.monotonic()
            websearch.parse_toml(text)
            self.assertLess(time.monotonic() - started, 1.0)
        started = time.monotonic()
        websearch.parse_toml('a = """' + '""x\\\n' * 20_000 + '"""')
        self.assertLess(time.monotonic() - started, 2.0)


class CodexTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = folder.name
        self.environ = {"CODEX_HOME": self.home}

    def write(self, text: str, name: str = "config.toml") -> None:
        """Puts a file into the codex-home."""
        Path(self.home, name).write_text(text, encoding="utf-8")

    def follow(self, **environ: str) -> websearch.Followed:
        """What is followed with these variables."""
        return websearch.follow_codex({**self.environ, **environ})

    def reason(self, **environ: str) -> str:
        """Why codex cannot be followed."""
        with self.assertRaises(websearch.WebError) as caught:
            self.follow(**environ)
        self.assertEqual(caught.exception.code, websearch.WEB_PROVIDER_CONFIGURED_UNAVAILABLE)
        return caught.exception.message

    GATEWAY = ('model = "m-1"\nmodel_provider = "gw"\n[model_providers.gw]\nname = "GW"\nbase_url = "https://gw.example/v1/"\n'
               'env_key = "GW_KEY"\nwire_api = "responses"\nhttp_headers = { "X-A" = "1", "bad name" = "2" }\n'
               'env_http_headers = { "X-B" = "B_VALUE", "X-C" = "C_VALUE" }\nquery_params = { api-version = "2026-01-01" }\n')

    def test_gateway_is_followed_with_its_headers_and_query(self) -> None:
        self.write(self.GATEWAY)

        followed = self.follow(GW_KEY=" gw-key-123 ", B_VALUE="b", OPENAI_API_KEY="other-key")

        self.assertEqual(tuple(followed[:6]), ("openai", "https://gw.example/v1", "m-1", "gw-key-123", {"X-A": "1", "X-B": "b"},
                                               {"api-version": "2026-01-01"}))
        self.assertEqual(websearch.redact("gw-key-123"), "[redacted]")
        self.assertNotIn("gw-key-123", repr(followed) + followed.note)

    def test_chat_protocol_is_followed_as_chat(self) -> None:
        self.write(self.GATEWAY.replace('"responses"', '"chat"'))
        self.assertEqual(self.follow(GW_KEY="gw-key-123").provider_id, "chat")

    def test_address_without_version_is_asked_as_codex_asks_it(self) -> None:
        for wire_api, path in (("responses", "/responses"), ("chat", "/chat/completions")):
            self.write(self.GATEWAY.replace("/v1/", "/gw").replace('"responses"', f'"{wire_api}"'))
            self.assertEqual(self.follow(GW_KEY="gw-key-123").url, "https://gw.example/gw" + path)

    def test_only_headers_that_look_secret_are_redacted_elsewhere(self) -> None:
        self.write(self.GATEWAY.replace('"X-A" = "1"', '"X-Team" = "research", "X-Api-Token" = "Basic header-secret"'))
        self.assertEqual(self.follow(GW_KEY="gw-key-123").headers["X-Api-Token"], "Basic header-secret")
        self.assertEqual(websearch.redact("research header-secret"), "research [redacted]")

    def test_missing_key_names_the_variable_and_env_vars(self) -> None:
        self.write(self.GATEWAY)
        self.assertIn("GW_KEY, the env_key of gw, is not set here; name it in env_vars", self.reason())

    def test_dirty_key_and_bad_address_are_named_and_not_shown(self) -> None:
        self.write(self.GATEWAY)
        message = self.reason(GW_KEY="gw-SECRET\nrest")
        self.assertIn("GW_KEY has a line break inside", message)
        self.write(self.GATEWAY.replace("https://gw", "https://user:SECRET@gw"))
        message += self.reason(GW_KEY="gw-key-123")
        self.assertIn("base_url of gw must not contain a user name", message)
        self.assertNotIn("SECRET", message)

    def test_openai_itself_takes_key_and_address_from_the_environment(self) -> None:
        self.write('model = "gpt-x"')
        self.assertEqual(tuple(self.follow(OPENAI_API_KEY="sk-123456")[:4]),
                         ("openai", "https://api.openai.com/v1", "gpt-x", "sk-123456"))
        self.assertEqual(self.follow(OPENAI_API_KEY="sk-123456", OPENAI_BASE_URL="https://p.example/v1").url, "https://p.example/v1")
        self.write('model = "gpt-x"\nopenai_base_url = "https://q.example/v1"')
        self.assertEqual(self.follow(OPENAI_API_KEY="sk-123456", OPENAI_BASE_URL="https://p.example/v1").url, "https://q.example/v1")

    def test_tokens_of_a_chatgpt_login_are_never_used(self) -> None:
        self.write('model = "gpt-x"')
        for login in ({"OPENAI_API_KEY": None, "tokens": {"access_token": "chatgpt-SECRET"}},
                      {"OPENAI_API_KEY": "sk-derived-SECRET", "tokens": {"access_token": "chatgpt-SECRET"}},
                      {"auth_mode": "chatgpt", "OPENAI_API_KEY": "sk-derived-SECRET"}):
            self.write(json.dumps(login), "auth.json")
            os.utime(os.path.join(self.home, "auth.json"), ns=(time.time_ns(), time.time_ns()))
            message = self.reason()
            self.assertIn("OPENAI_API_KEY is not set here", message)
            self.assertNotIn("SECRET", message)

    def test_key_of_an_api_key_login_is_used(self) -> None:
        self.write('model = "gpt-x"')
        self.write('{"auth_mode": "apikey", "OPENAI_API_KEY": "sk-stored-1", "tokens": null}', "auth.json")
        self.assertEqual(self.follow().key, "sk-stored-1")

    def test_profile_overlays_model_and_provider(self) -> None:
        self.write('profile = "p"\nmodel = "top"\n[profiles.p]\nmodel = "deep"\nmodel_provider = "gw"\n'
                   '[model_providers.gw]\nbase_url = "https://gw.example/v1"\n')
        self.assertEqual(tuple(self.follow()[:4]), ("openai", "https://gw.example/v1", "deep", ""))

    def test_what_cannot_be_followed_says_why(self) -> None:
        self.assertIn("there is no", self.reason())
        for text, words in (("", "names no model"), ('model = "m"\nmodel_provider = "ollama"', "no web search"),
                            ('model = "m"\nmodel_provider = "nobody"', "no [model_providers.nobody]"),
                            ('model = "m"\nmodel_provider = "a"\n[model_providers.a]\nbase_url = "https://a.example"\n'
                             '[model_providers.a.auth]\ncommand = "x"', "from a command"),
                            ('model = "m"\nmodel_provider = "a"\n[model_providers.a]\nenv_key = "K"', "base_url of a"),
                            ("model = \n", "line 1"), ('model = ["m"]', "names no model")):
            with self.subTest(text=text):
                self.write(text + "\n# " + words)
                self.assertIn(words, self.reason(K="key-123456"))

    def test_file_is_read_again_only_when_it_has_changed(self) -> None:
        path, read = os.path.join(self.home, "config.toml"), []

        def parse(text: str) -> str:
            read.append(text)
            return text
        self.assertIsNone(websearch.read_when_changed(path, parse))
        self.write("one")
        websearch.read_when_changed(path, parse)
        websearch.read_when_changed(path, parse)
        self.write("two and longer")
        last = websearch.read_when_changed(path, parse)

        self.assertEqual((read, last), (["one", "two and longer"], "two and longer"))

    def test_folder_is_codex_home_then_the_scripts_then_the_users(self) -> None:
        self.write('model = "m"')
        self.assertEqual(websearch.codex_home({"CODEX_HOME": "/c", "HOME": "/h"}, self.home), "/c")
        self.assertEqual(websearch.codex_home({"HOME": "/h"}, self.home), self.home)
        self.assertEqual(websearch.codex_home({"HOME": "/h"}, "/nowhere"), os.path.join("/h", ".codex"))
        self.assertEqual(websearch.codex_home({}), "")

    def test_setting_selects_the_host(self) -> None:
        def settings(host: str) -> websearch.Settings:
            return websearch.Settings.from_env({"WEBSEARCH_FOLLOW": host, "CODEX_HOME": self.home, "GW_KEY": "gw-key-123"})
        self.write(self.GATEWAY)
        self.assertIsNone(websearch.followed(settings("")))
        codex = websearch.followed(settings("codex"))
        self.assertEqual(codex.model if codex else "", "m-1")
        with self.assertRaises(websearch.WebError):
            websearch.followed(settings("claude"))


class ClaudeTest(unittest.TestCase):
    BASE: ClassVar[Dict[str, str]] = {"ANTHROPIC_API_KEY": "sk-ant-1234", "ANTHROPIC_MODEL": "claude-x"}

    def follow(self, environ: Dict[str, Any]) -> websearch.Followed:
        """What is followed with the usual variables and these."""
        return websearch.follow_claude({**self.BASE, **environ})

    def test_key_goes_as_key_and_token_as_bearer(self) -> None:
        self.assertEqual(tuple(self.follow({})[:5]), ("anthropic", "https://api.anthropic.com/v1", "claude-x", "sk-ant-1234", {}))
        gateway = websearch.follow_claude({"ANTHROPIC_AUTH_TOKEN": "token-1234", "ANTHROPIC_MODEL": "m",
                                           "ANTHROPIC_BASE_URL": "https://gw.example/anthropic/",
                                           "ANTHROPIC_CUSTOM_HEADERS": "X-Team: a\nnonsense\nX-B:b"})
        self.assertEqual(tuple(gateway[:5]), ("anthropic", "https://gw.example/anthropic/v1", "m", "token-1234", {
            "Authorization": "Bearer token-1234", "X-Team": "a", "X-B": "b"}))

    def test_model_is_the_named_one_and_aliases_are_resolved(self) -> None:
        for environ, model in (({"ANTHROPIC_MODEL": "claude-x[1m]"}, "claude-x"),
                               ({"ANTHROPIC_MODEL": "sonnet", "ANTHROPIC_DEFAULT_SONNET_MODEL": "big"}, "big"),
                               ({"ANTHROPIC_MODEL": "opus", "ANTHROPIC_SMALL_FAST_MODEL": "small"}, "small"),
                               ({"ANTHROPIC_MODEL": "", "ANTHROPIC_DEFAULT_HAIKU_MODEL": "h"}, "h")):
            with self.subTest(environ=environ):
                self.assertEqual(self.follow(environ).model, model)

    def test_what_cannot_be_followed_says_why(self) -> None:
        for environ, words in (({"ANTHROPIC_MODEL": "opus"}, "no model is named"), ({"ANTHROPIC_API_KEY": ""}, "neither ANTHROPIC"),
                               ({"CLAUDE_CODE_USE_BEDROCK": "1"}, "BEDROCK"), ({"ANTHROPIC_BASE_URL": "gw"}, "ANTHROPIC_BASE_URL must"),
                               ({"ANTHROPIC_API_KEY": "a b"}, "ANTHROPIC_API_KEY has a blank")):
            with self.subTest(environ=environ), self.assertRaises(websearch.WebError) as caught:
                self.follow(environ)
            self.assertIn(words, caught.exception.message)


RESPONSES = {"status": "completed", "output": [
    {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}},
    {"type": "message", "content": [{"type": "output_text", "text": "It is so.", "annotations": [
        {"type": "url_citation", "url": "https://a.example.org/1", "title": "First"}]}]}]}
CHAT = {"choices": [{"message": {"content": "It is so.", "annotations": [
    {"type": "url_citation", "url_citation": {"url": "https://a.example.org/1", "title": "First"}}]}}]}
MESSAGES = {"stop_reason": "end_turn", "content": [
    {"type": "server_tool_use", "id": "1", "name": "web_search", "input": {"query": "q"}},
    {"type": "web_search_tool_result", "tool_use_id": "1", "content": [
        {"type": "web_search_result", "url": "https://a.example.org/1", "title": "First"}]},
    {"type": "text", "text": "It is so."}]}


class WholeProgram(unittest.TestCase):
    """The real process answers with its host's model, endpoint and credential."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)
        self.gateway = Loopback({"/gw/v1/responses": RESPONSES, "/gw/v1/chat/completions": CHAT, "/gw/v1/messages": MESSAGES,
                                 "*": Reply(404, {"error": "no such path"})})
        self.addCleanup(self.gateway.close)

    def configure(self, model: str = "m-1", wire_api: str = "responses") -> None:
        (self.home / "config.toml").write_text(
            f'model = "{model}"\nmodel_provider = "gw"\n[model_providers.gw]\nname = "GW"\nwire_api = "{wire_api}"\n'
            f'base_url = "{self.gateway.url("/gw/v1")}"\nenv_key = "GW_KEY"\nhttp_headers = {{ X-Team = "a" }}\n'
            'query_params = { api-version = "2026-01-01" }\n', encoding="utf-8")

    def codex(self, **more: str) -> McpProcess:
        """The server as codex starts it: its folder and the provider's key in the environment."""
        return McpProcess(loopback_settings({"WEBSEARCH_FOLLOW": "codex", "CODEX_HOME": str(self.home), "GW_KEY": "gw-key-123", **more}))

    def check(self, server: McpProcess, label: str, question: str = "q") -> RecordedRequest:
        """One search; what it gave is checked, and the request it led to returned."""
        result = server.call_tool("web_search", {"query": question, "provider": "auto"})
        self.assertFalse(result["isError"], result)
        content = result["structuredContent"]
        self.assertEqual((content["content"], content["search_provider"], [s["url"] for s in content["sources"]]),
                         ("It is so.", label, ["https://a.example.org/1"]))
        return self.gateway.requests[-1]

    def test_codex_is_followed_through_both_of_its_protocols_and_a_changed_file_serves_the_next_call(self) -> None:
        self.configure()
        with self.codex() as server:
            server.initialize()
            request = self.check(server, "openai_responses")
            self.assertEqual((request.target, request.header("authorization"), request.header("x-team"), request.json()["model"]),
                             ("/gw/v1/responses?api-version=2026-01-01", "Bearer gw-key-123", "a", "m-1"))
            self.configure("m-2")
            self.assertEqual(self.check(server, "openai_responses", "q2").json()["model"], "m-2")
            self.configure("model-3", "chat")
            request = self.check(server, "chat_completions", "q3")
            self.assertEqual((request.path, request.json()["model"]), ("/gw/v1/chat/completions", "model-3"))
            self.assertEqual(self.gateway.connections, 1)

    def test_claude_is_followed_with_either_credential(self) -> None:
        for name, header, value in (("ANTHROPIC_API_KEY", "x-api-key", "sk-ant-1234"),
                                    ("ANTHROPIC_AUTH_TOKEN", "authorization", "Bearer sk-ant-1234")):
            with self.subTest(name), McpProcess(loopback_settings({
                    "WEBSEARCH_FOLLOW": "claude", "ANTHROPIC_BASE_URL": self.gateway.url("/gw"), name: "sk-ant-1234",
                    "ANTHROPIC_MODEL": "claude-x[1m]"})) as server:
                server.initialize()
                request = self.check(server, "anthropic_messages")
                self.assertEqual((request.path, request.header(header), request.json()["model"]), ("/gw/v1/messages", value, "claude-x"))

    def test_the_followed_one_is_the_configured_one_of_a_strict_selection(self) -> None:
        self.configure()
        with self.codex(WEBSEARCH_SELECTION="strict") as server:
            server.initialize()
            self.check(server, "openai_responses")
        with self.codex(WEBSEARCH_SELECTION="strict", TAVILY_API_KEY="tvly-1234") as server:
            server.initialize()
            told = json.loads(server.call_tool("web_search", {"query": "q"})["content"][0]["text"])["error"]
            self.assertEqual((told["code"], "openai, tavily" in told["message"]), ("WEB_PROVIDER_AMBIGUOUS", True))

    def test_tokens_of_a_chatgpt_login_are_not_used(self) -> None:
        (self.home / "config.toml").write_text(f'model = "m-1"\nopenai_base_url = "{self.gateway.url("/gw/v1")}"\n', encoding="utf-8")
        (self.home / "auth.json").write_text(json.dumps({"auth_mode": "chatgpt", "OPENAI_API_KEY": None, "tokens": {
            "access_token": "login-token-4711", "account_id": "a"}}), encoding="utf-8")
        with self.codex() as server:
            server.initialize()
            text = server.call_tool("web_search", {"query": "q"})["content"][0]["text"]
            self.assertEqual(json.loads(text)["error"]["code"], "WEB_PROVIDER_CONFIGURED_UNAVAILABLE")
            self.assertIn("ChatGPT login are not used", text)
            self.assertNotIn("login-token", text)
        self.assertEqual(self.gateway.requests, [])

    def test_where_the_host_cannot_be_followed_the_fixed_settings_serve_and_a_note_says_so(self) -> None:
        self.configure()
        fixed = {"OPENAI_SEARCH_API_KEY": "sk-fixed-1234", "OPENAI_SEARCH_URL": self.gateway.url("/gw/v1"), "GW_KEY": ""}
        with self.codex(**fixed) as server:
            server.initialize()
            result = server.call_tool("web_search", {"query": "q"})["structuredContent"]
        self.assertEqual(self.gateway.requests[0].header("authorization"), "Bearer sk-fixed-1234")
        self.assertTrue(any("GW_KEY" in note and "fixed settings served" in note for note in result["notes"]), result["notes"])


if __name__ == "__main__":
    unittest.main()
