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
            text = "".join(piece.format(number) for number in range(8_000))
            started = time.monotonic()
            websearch.parse_toml(text)
            self.assertLess(time.monotonic() - started, 2.0)
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


if __name__ == "__main__":
    unittest.main()
