"""Settings: environment, settings file, aliases, warnings; what no one may see."""
from __future__ import annotations

import os
import tempfile
import unittest
from typing import Dict

import websearch


def settings_of(**environ: str) -> websearch.Settings:
    return websearch.Settings.from_env(environ)


class Values(unittest.TestCase):
    def test_values_are_trimmed_and_blank_ones_count_as_unset(self) -> None:
        settings = settings_of(TAVILY_API_KEY=" tvly-abcdef\r\n", SEARXNG_URL="   ", WEBSEARCH_TIMEOUT=" 7.5 ")
        self.assertEqual((settings["TAVILY_API_KEY"], settings["SEARXNG_URL"], settings["WEBSEARCH_TIMEOUT"]),
                         ("tvly-abcdef", "", 7.5))
        self.assertFalse(settings.is_set("SEARXNG_URL"))

    def test_a_bad_value_falls_back_with_a_warning_that_names_it(self) -> None:
        rows = {"WEBSEARCH_TIMEOUT": "abc", "WEBSEARCH_DEADLINE": "-1", "WEBSEARCH_CACHE_SIZE": "2.5",
                "OPEN_ENABLED": "maybe", "WEBSEARCH_KEYLESS": "sometimes", "SEARXNG_URL": "http://u:p@h/",
                "TAVILY_API_URL": "ftp://h/", "EXA_API_URL": "https://h/?a=b", "WEBSEARCH_EXTRA_SOURCES": "1e999"}
        settings = settings_of(**rows)
        for name in rows:
            with self.subTest(name):
                self.assertEqual(settings[name], websearch.VARIABLE_BY_NAME[name].default)
                self.assertTrue([warning for warning in settings.warnings if warning.startswith(name)])

    def test_a_placeholder_counts_as_unset(self) -> None:
        for text in ("${TAVILY_API_KEY}", "$TAVILY_API_KEY"):
            settings = settings_of(TAVILY_API_KEY=text)
            self.assertEqual(settings["TAVILY_API_KEY"], "")
            self.assertIn("placeholder", settings.problem("TAVILY_API_KEY"))

    def test_a_key_with_a_line_break_inside_is_refused_by_name(self) -> None:
        settings = settings_of(PERPLEXITY_API_KEY="pplx-SECRET\nX: 1", BRAVE_API_KEY="\u200bbrave-SECRET\ufeff")
        self.assertEqual((settings["PERPLEXITY_API_KEY"], settings["BRAVE_API_KEY"]), ("", "brave-SECRET"))
        self.assertIn("line break", settings.problem("PERPLEXITY_API_KEY"))
        self.assertNotIn("SECRET", " ".join(settings.warnings))

    def test_aliases_of_the_predecessor_are_read(self) -> None:
        settings = settings_of(GROK_API_KEY="xai-alias", GROK_API_URL="https://gateway.example/v1", GROK_MODEL="m",
                               GROK_SEARCH_TIMEOUT_SECONDS="9", GROK_SEARCH_RESPONSE_MAX_CHARS="20000",
                               GROK_SEARCH_CACHE_SIZE="12", GROK_SEARCH_EXTRA_SOURCES="1", GROK_SEARCH_FALLBACK_SOURCES="2")
        self.assertEqual([settings[name] for name in (
            "GROK_SEARCH_API_KEY", "GROK_SEARCH_URL", "GROK_SEARCH_MODEL", "WEBSEARCH_TIMEOUT", "WEBSEARCH_RESPONSE_BYTES",
            "WEBSEARCH_CACHE_SIZE", "WEBSEARCH_EXTRA_SOURCES", "WEBSEARCH_FALLBACK_SOURCES")],
            ["xai-alias", "https://gateway.example/v1", "m", 9.0, 20000, 12, 1, 2])
        self.assertEqual(settings_of(GROK_API_KEY="old", GROK_SEARCH_API_KEY="new-key")["GROK_SEARCH_API_KEY"], "new-key")

    def test_source_providers_of_the_predecessor_leave_the_answer_in_front(self) -> None:
        settings = settings_of(GROK_SEARCH_SOURCE_PROVIDERS="exa,tavily", XAI_API_KEY="xai-test", TAVILY_API_KEY="tvly-test",
                               EXA_API_KEY="exa-test")
        self.assertEqual([p.id for p in websearch.provider_chain(settings)], ["grok", "exa", "tavily"])

    def test_a_variable_can_name_the_variable_that_holds_the_key(self) -> None:
        settings = settings_of(OPENAI_SEARCH_KEY_ENV="MY_KEY", MY_KEY="sk-from-my-key")
        self.assertEqual(settings["OPENAI_SEARCH_API_KEY"], "sk-from-my-key")
        self.assertEqual(settings_of(OPENAI_API_KEY="sk-not-ours")["OPENAI_SEARCH_API_KEY"], "")
        self.assertEqual(settings.warnings, ())
        empty = settings_of(OPENAI_SEARCH_KEY_ENV="NOPE")
        self.assertEqual(empty.warnings, ("OPENAI_SEARCH_KEY_ENV names NOPE, which is empty",))
        self.assertIn(empty.warnings[0], websearch.availability(websearch.PROVIDER_BY_ID["openai"], empty).reason)
        self.assertNotIn("sk-pasted", str(settings_of(OPENAI_SEARCH_KEY_ENV="sk-pasted").warnings))

    def test_lower_case_proxy_names_win(self) -> None:
        settings = settings_of(http_proxy="http://lower:1", HTTP_PROXY="http://upper:1", HTTPS_PROXY="http://upper:2")
        self.assertEqual((settings["HTTP_PROXY"], settings["HTTPS_PROXY"]), ("http://lower:1", "http://upper:2"))

    def test_no_value_shows_in_repr(self) -> None:
        settings = settings_of(TAVILY_API_KEY="tvly-canary-1", HTTPS_PROXY="http://user:canary-2@h:1")
        self.assertNotIn("canary", repr(settings))
        endpoint = websearch.Endpoint("https://h/", "tvly-canary-1")
        request = websearch.Request.get("https://h/", {"q": "canary"}, {"Authorization": "canary"})
        self.assertNotIn("canary", repr(endpoint) + repr(request))
        self.assertEqual(websearch.redact("a tvly-canary-1 b canary-2"), "a [redacted] b [redacted]")


class SettingsFileTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "env")

    def _settings(self, text: str, mode: int = 0o600, **environ: str) -> websearch.Settings:
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path, mode)
        return settings_of(WEBSEARCH_CONFIG=self.path, **environ)

    def test_the_environment_wins_name_by_name(self) -> None:
        settings = self._settings("TAVILY_API_KEY=tvly-file\nEXA_API_KEY='exa-file'\n", TAVILY_API_KEY="tvly-environment")
        self.assertEqual((settings["TAVILY_API_KEY"], settings["EXA_API_KEY"]), ("tvly-environment", "exa-file"))
        self.assertEqual((settings.origin("TAVILY_API_KEY"), settings.origin("EXA_API_KEY"), settings.origin("WEBSEARCH_LOG")),
                         ("environment TAVILY_API_KEY", "file EXA_API_KEY", "default"))

    def test_junk_lines_warn_and_the_rest_serves(self) -> None:
        settings = self._settings("\ufeff# comment\n\nthis is junk\n9=x\nexport EXA_API_KEY=exa-file\n\x00\x01\n")
        self.assertEqual(settings["EXA_API_KEY"], "exa-file")
        self.assertEqual(len(settings.warnings), 3)
        self.assertIn("line 3", settings.warnings[0])

    def test_a_key_that_others_can_read_is_used_with_a_warning(self) -> None:
        settings = self._settings("EXA_API_KEY=exa-file\n", 0o644)
        self.assertEqual(settings["EXA_API_KEY"], "exa-file")
        self.assertIn("chmod 600", settings.warnings[0])

    def test_a_file_that_cannot_be_read_says_so(self) -> None:
        self.assertIn("cannot be read", settings_of(WEBSEARCH_CONFIG="/dev/null/x").warnings[0])

    def test_what_is_no_regular_file_is_not_waited_for(self) -> None:
        os.mkfifo(self.path)
        for path in (self.path, os.path.dirname(self.path)):
            self.assertIn("is no regular file", settings_of(WEBSEARCH_CONFIG=path).warnings[0])
        self.assertEqual(settings_of(WEBSEARCH_CONFIG=os.devnull).warnings, ())

    def test_a_name_that_is_set_twice_has_its_last_value_and_a_warning(self) -> None:
        settings = self._settings("EXA_API_KEY=exa-one\nEXA_API_KEY=exa-two\n")
        self.assertEqual(settings["EXA_API_KEY"], "exa-two")
        self.assertIn("line 2 sets EXA_API_KEY once more", settings.warnings[0])

    def test_no_file_and_no_home_are_no_fault(self) -> None:
        self.assertEqual(settings_of().warnings, ())
        self.assertEqual(settings_of(HOME="/nonexistent").warnings, ())

    def test_every_variable_has_a_text_and_its_default_reads_as_itself(self) -> None:
        for variable in websearch.VARIABLES:
            with self.subTest(variable.name):
                self.assertTrue(variable.text)
                if variable.default not in ("", ()):
                    text = ",".join(variable.default) if isinstance(variable.default, tuple) else str(variable.default)
                    self.assertEqual(websearch.read_value(variable, text), variable.default)


    def test_a_dollar_inside_a_password_is_no_placeholder(self) -> None:
        self.assertEqual(settings_of(SEARXNG_PASSWORD="pa$word")["SEARXNG_PASSWORD"], "pa$word")


class Helpers(unittest.TestCase):
    def test_dates_in_every_form_that_providers_send(self) -> None:
        rows: Dict[str, str] = {
            "2026-11-02": "2026-11-02", "2026-11-02T08:15:00Z": "2026-11-02", "Tue, 24 Nov 2026 09:30:00 GMT": "2026-11-24",
            "November 2, 2026": "2026-11-02", "Nov 2, 2026": "2026-11-02", "20261102T081500Z": "2026-11-02",
            "4 weeks ago": "", "": "", "2026-13-40": "", "yesterday": ""}
        self.assertEqual({text: websearch.iso_date(text) for text in rows}, rows)

    def test_text_loses_what_no_reader_sees(self) -> None:
        self.assertEqual(websearch.clean_text("a\u2028b\r\nc\x0bd\u200be\x1bf\U000e0041g\u202eh\ud800i\u200dj"),
                         "a\nb\nc\ndefghi\u200dj")

    def test_long_references_do_not_raise(self) -> None:
        self.assertEqual(websearch.unescape_html("&#" + "9" * 5000 + ";&euro;&#x80;"), "\ufffd\u20ac\u20ac")

    def test_deep_and_broken_json_is_a_value_error(self) -> None:
        for text in ("[" * 100_000, "{", "", "1" * 5000 + "x"):
            with self.subTest(text[:9]), self.assertRaises(ValueError):
                websearch.parse_json(text)


if __name__ == "__main__":
    unittest.main()
