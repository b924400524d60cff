"""`configure`: the form on a real pseudo-terminal, and the writer of the settings file that scripts share with it."""
from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import stat
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from typing import Any, Dict, Mapping, Optional

import websearch
from tests.support import PATIENCE_SECONDS, ROOT, Loopback, Reply, bare_environment, loopback_settings

CONTROL_C, CONTROL_D = "\x03", "\x04"
KEY = "tvly-canary-7f3a9c51e2"
PAGES = {page.title: str(number) for number, page in enumerate(websearch.form_pages(), 1)}
FOUND = {"results": [{"title": "Kestrel", "url": "https://s.example.org/kestrel", "content": "A small falcon."}]}


def take_terminal() -> None:
    """In the new process: stdin is its terminal, and Ctrl-C reaches it (a shell's background jobs ignore that signal)."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """`websearch.py configure` behind a pseudo-terminal of its own, as a person at the keyboard meets it."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.master, slave = pty.openpty()
        self.text = ""  # all that the terminal showed
        self._seen = 0  # how much of it was there when the last key was pressed
        self.process = subprocess.Popen(
            [sys.executable, "-m", "websearch", "configure"], env=bare_environment(settings), cwd=str(ROOT), stdin=slave, stdout=slave,
            stderr=slave, start_new_session=True, preexec_fn=take_terminal)
        os.close(slave)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *unused: object) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)
        os.close(self.master)

    def read(self) -> str:
        """What is shown since the last key, as soon as it ends with a prompt; AssertionError when none comes."""
        self._read_until(lambda shown: shown.endswith("> "))
        return self.text[self._seen:]

    def type(self, *lines: str) -> str:
        """Answers one prompt after the other, a control character without Enter; returns what came of the last one."""
        for line in lines:
            self.press(line if line in (CONTROL_C, CONTROL_D) else line + "\n")
            shown = self.read()
        return shown

    def press(self, keys: str) -> None:
        """Presses keys at the prompt, and waits for nothing."""
        self.read()
        self._seen = len(self.text)
        os.write(self.master, keys.encode())

    def end(self) -> int:
        """The exit status, once the process has ended by itself."""
        self._read_until(lambda shown: False)
        return self.process.wait(PATIENCE_SECONDS)

    def has_echo(self) -> bool:
        """Whether the terminal shows what is typed."""
        return bool(termios.tcgetattr(self.master)[3] & termios.ECHO)

    def _read_until(self, is_enough: Any) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not is_enough(self.text[self._seen:]):
            if not select.select([self.master], [], [], max(0.0, end - time.monotonic()))[0]:
                raise AssertionError(f"nothing more came after {self.text[-600:]!r}")
            try:
                data = os.read(self.master, 65536)
            except OSError:  # the other side has closed the terminal
                data = b""
            if not data:
                break
            self.text += data.decode("utf-8", "replace").replace("\r\n", "\n")
        else:
            return
        if is_enough("> "):
            raise AssertionError(f"it ended after {self.text[-600:]!r}")


class FormTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.settings: Dict[str, str] = {"HOME": folder.name}
        self.path = os.path.join(folder.name, ".config", "websearch-mcp", "env")

    def terminal(self, text: Optional[str] = None, mode: int = 0o600, **settings: str) -> Terminal:
        """The form over a settings file with `text`."""
        if text is not None:
            os.makedirs(os.path.dirname(self.path))
            with open(self.path, "w", encoding="utf-8", newline="") as file:
                file.write(text)
            os.chmod(self.path, mode)
        terminal = Terminal({**self.settings, **settings})
        self.addCleanup(terminal.__exit__)
        return terminal

    def saved(self) -> str:
        """The settings file."""
        with open(self.path, encoding="utf-8", newline="") as file:
            return file.read()


class Editing(FormTest):
    def test_what_is_edited_is_marked_until_it_is_saved_in_a_private_file(self) -> None:
        terminal = self.terminal()
        self.assertRegex(terminal.read(), r"tavily +keyless: TAVILY_API_KEY is not set\n")
        page = terminal.type(PAGES["tavily"], "1", KEY)
        self.assertRegex(page, rf"1\* TAVILY_API_KEY +set, {len(KEY)} characters  \(not saved\)")
        self.assertRegex(page, r"2  TAVILY_API_URL +https://api\.tavily\.com  \(default\)")
        listed = terminal.type("", PAGES["Limits"], "1", "9", "")
        self.assertRegex(listed, r"6\* tavily +ready: its key is set\n +TAVILY_API_KEY +set, \d+ characters  \(not saved\)\n")
        self.assertRegex(listed, r"\* Limits\n +WEBSEARCH_TIMEOUT +9  \(not saved\)\n")
        self.assertIn("not saved yet: TAVILY_API_KEY, WEBSEARCH_TIMEOUT\n", listed)
        self.assertFalse(os.path.exists(self.path))
        self.assertIn("Saved: TAVILY_API_KEY, WEBSEARCH_TIMEOUT\n", terminal.type("s"))
        listed = terminal.type("")
        self.assertRegex(listed, r"6  tavily +ready: its key is set\n +TAVILY_API_KEY +set, \d+ characters  \(file\)\n")
        self.assertNotIn("not saved", listed)
        terminal.press("q\n")
        self.assertEqual(terminal.end(), 0)
        self.assertEqual(self.saved(), f"TAVILY_API_KEY={KEY}\nWEBSEARCH_TIMEOUT=9\n")
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)
        self.assertNotIn(KEY, terminal.text)
        self.assertNotIn(KEY[-4:], terminal.text)

    def test_a_bad_value_is_told_at_once_and_asked_for_again(self) -> None:
        terminal = self.terminal("EXA_API_KEY=exa-old-key\n")
        for page, field, bad, told in (
                ("Limits", "1", "soon", "WEBSEARCH_TIMEOUT is not a number"), ("Limits", "1", "0", "must lie between 0.1 and 600"),
                ("Selection", "2", "tavilly", "there is no provider 'tavilly'"), ("exa", "2", "ftp://h/", "must be an http(s) URL"),
                ("exa", "1", "two words", "has a blank"), ("exa", "3", "maybe", "must be true or false"),
                ("Network", "4", "socks5://h:1", "names a SOCKS proxy"), ("Network", "1", "not a host", "is neither a host name"),
                ("Network", "8", "${CERTIFICATES}", "is an unexpanded placeholder")):
            with self.subTest(bad):
                shown = terminal.type(PAGES[page], field, bad)
                self.assertIn(told, shown)
                self.assertRegex(shown, r"New value.* > $")
                terminal.type("", "")  # keep it; back to the list
        self.assertNotIn("two words", terminal.text)
        self.assertNotIn("not saved", terminal.text)
        terminal.press("q\n")
        self.assertEqual((terminal.end(), self.saved()), (0, "EXA_API_KEY=exa-old-key\n"))

    def test_what_is_discarded_is_gone(self) -> None:
        terminal = self.terminal("WEBSEARCH_TIMEOUT=9\n")
        listed = terminal.type(PAGES["Limits"], "1", "7", "", "d")
        self.assertIn("Discarded: WEBSEARCH_TIMEOUT\n", listed)
        self.assertRegex(listed, r"WEBSEARCH_TIMEOUT +9  \(file\)")
        terminal.type(PAGES["Limits"], "1", "7", "", "q")
        terminal.press("d\n")
        self.assertEqual((terminal.end(), self.saved()), (0, "WEBSEARCH_TIMEOUT=9\n"))

    def test_the_default_is_restored_and_what_sets_nothing_goes_while_comments_and_order_stay(self) -> None:
        terminal = self.terminal("# mine\r\nEXA_API_KEY=exa-key-1\r\n\r\n# gone soon\r\nOLD_NAME=1\r\nWEBSEARCH_DEADLINE=50\r\n"
                                 "WEBSEARCH_TIMEOUT=9 \r\n#TAVILY_API_KEY=an old one\r\nGROK_MODEL=grok-x\r\n"
                                 "OPENAI_SEARCH_KEY_ENV=MY_KEY\r\nexport MY_KEY=sk-mine-1\r\n", 0o644)
        self.assertIn("WEBSEARCH_DEADLINE, OLD_NAME set nothing in the file", terminal.read())
        terminal.type(PAGES["Limits"], "1", "-", "", PAGES["grok"], "3", "grok-y", "", PAGES["brave"], "3", "true")
        listed = terminal.type("")
        self.assertIn("not saved yet: WEBSEARCH_TIMEOUT, GROK_SEARCH_MODEL\n", listed)  # the default of brave is no change
        self.assertIn("Saved: WEBSEARCH_TIMEOUT, GROK_SEARCH_MODEL, WEBSEARCH_DEADLINE, OLD_NAME\n", terminal.type("s"))
        self.assertIn("There is nothing to save.", terminal.type("", "s"))
        self.assertEqual(self.saved(), "# mine\r\nEXA_API_KEY=exa-key-1\r\n\r\n# gone soon\r\n#TAVILY_API_KEY=an old one\r\n"
                                       "GROK_SEARCH_MODEL=grok-y\r\nOPENAI_SEARCH_KEY_ENV=MY_KEY\r\nexport MY_KEY=sk-mine-1\r\n")
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)

    def test_what_the_environment_sets_is_said_and_not_edited_in_vain(self) -> None:
        terminal = self.terminal("EXA_API_KEY=exa-file-key\n", EXA_API_KEY="exa-environment-key", GROK_MODEL="grok-e", WEBSEARCH_TIMEOUT="abc")
        listed = terminal.read()
        self.assertRegex(listed, r"EXA_API_KEY +set, 19 characters  \(environment, the file's value is not used\)\n")
        self.assertRegex(listed, r"GROK_SEARCH_MODEL +grok-e  \(environment GROK_MODEL\)\n")
        self.assertIn("! WEBSEARCH_TIMEOUT is not a number\n", listed)
        for page, field, told in (("exa", "1", "EXA_API_KEY comes from the environment (EXA_API_KEY), which wins over the file"),
                                  ("grok", "3", "GROK_SEARCH_MODEL comes from the environment (GROK_MODEL)"),
                                  ("Limits", "1", "WEBSEARCH_TIMEOUT comes from the environment")):
            shown = terminal.type(PAGES[page], field)
            self.assertIn(told, shown)
            self.assertNotIn("New value", shown)
            terminal.type("")

    def test_nothing_is_lost_when_saving_fails_or_another_program_writes_the_file(self) -> None:
        folder = os.path.join(self.settings["HOME"], "later")
        terminal = self.terminal(WEBSEARCH_CONFIG=os.path.join(folder, "env"))
        terminal.type(PAGES["Limits"], "1", "7", "")
        with open(folder, "w", encoding="utf-8"):
            pass
        shown = terminal.type("s")
        self.assertIn("cannot be read (Not a directory)", shown)
        self.assertIn("not saved yet: WEBSEARCH_TIMEOUT", shown)
        os.remove(folder)
        os.mkdir(folder)
        self.path = os.path.join(folder, "env")
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("EXA_API_KEY=exa-meanwhile\n")
        terminal.type("s")
        self.assertEqual(self.saved(), "EXA_API_KEY=exa-meanwhile\nWEBSEARCH_TIMEOUT=7\n")
        self.assertEqual(os.listdir(folder), ["env"])

    def test_a_choice_that_does_not_exist_is_said(self) -> None:
        terminal = self.terminal()
        for typed in ("99", "x", "²", "9" * 5000):
            self.assertIn("There is no ", terminal.type(typed))
        self.assertIn("There is no 9 here.", terminal.type(PAGES["tavily"], "9"))
        self.assertIn("no settings of its own", terminal.type("", PAGES["local"]))


class Interrupting(FormTest):
    def test_control_c_and_control_d_lose_nothing_at_any_prompt(self) -> None:
        for key in (CONTROL_C, CONTROL_D):
            with self.subTest(key), Terminal({**self.settings, "WEBSEARCH_CONFIG": os.path.join(self.settings["HOME"], str(ord(key)))}) as terminal:
                listed = terminal.type(PAGES["Limits"], "1", "7", key)  # at a page
                self.assertIn("Nothing is lost; not saved yet: WEBSEARCH_TIMEOUT\n", listed)
                terminal.type(PAGES["Limits"], "2")
                self.assertIn("Nothing is lost", terminal.type(key))  # at a field
                terminal.type(PAGES["tavily"], "1")
                self.assertFalse(terminal.has_echo())
                self.assertIn("Nothing is lost", terminal.type(key))  # at a secret
                self.assertTrue(terminal.has_echo())
                self.assertIn("Not saved: WEBSEARCH_TIMEOUT. s: save and quit", terminal.type(key))  # at the list
                self.assertIn("Nothing is lost", terminal.type(key))  # at that question
                self.assertIn("A search to try", terminal.type("s"))
                self.assertRegex(terminal.type(key), r"WEBSEARCH_TIMEOUT +7  \(file\)")  # at the search
                terminal.press(key)  # at the list, with nothing to lose
                self.assertEqual(terminal.end(), 0)
                self.assertNotIn("Traceback", terminal.text)
                with open(os.path.join(self.settings["HOME"], str(ord(key))), encoding="utf-8") as file:
                    self.assertEqual(file.read(), "WEBSEARCH_TIMEOUT=7\n")

    def test_a_search_is_broken_off(self) -> None:
        with Loopback({"*": Reply(200, FOUND, delay_seconds=3)}) as searxng:
            terminal = self.terminal(**loopback_settings({"SEARXNG_URL": searxng.url()}))
            terminal.type(PAGES["Limits"], "1", "7", "", "t")
            terminal.press("falcon\n")
            searxng.wait_for_requests(1)
            os.write(terminal.master, CONTROL_C.encode())
            self.assertIn("Nothing is lost", terminal.read())
        self.assertNotIn("Traceback", terminal.text)

    def test_an_input_that_is_gone_ends_it_and_says_what_is_not_saved(self) -> None:
        terminal = self.terminal()
        terminal.type(PAGES["Limits"], "1", "7", "", CONTROL_D, CONTROL_D, CONTROL_D)
        terminal.press(CONTROL_D)
        self.assertEqual(terminal.end(), 1)
        self.assertTrue(terminal.text.endswith("The input has ended. Not saved: WEBSEARCH_TIMEOUT\n"))

    def test_bytes_that_are_no_text_are_asked_for_again(self) -> None:
        terminal = self.terminal(LC_ALL="C.UTF-8", PYTHONUTF8="0", PYTHONIOENCODING="utf-8:strict")
        terminal.type(PAGES["tavily"])
        terminal.read()
        os.write(terminal.master, b"\xff\xfe\n")
        self.assertIn("This cannot be read as text; try again.\n", self._after(terminal, "again."))

    def _after(self, terminal: Terminal, word: str) -> str:
        terminal._read_until(lambda shown: word in shown and shown.endswith("> "))
        return terminal.text


class Trying(FormTest):
    def test_a_search_with_the_saved_settings_shows_who_was_asked(self) -> None:
        with Loopback({"*": FOUND}) as searxng, Loopback({"*": Reply(401, {"detail": {"error": "wrong key"}})}) as tavily:
            terminal = self.terminal(**loopback_settings({"TAVILY_API_URL": tavily.url()}))
            terminal.type(PAGES["tavily"], "1", KEY, "", PAGES["searxng"], "1", searxng.url(), "", "s")
            shown = terminal.type("small falcon")
            self.assertEqual(searxng.requests[0].query["q"], "small falcon")
        self.assertIn("https://s.example.org/kestrel", shown)
        self.assertRegex(shown, r"attempted:\n  tavily  error  WEB_PROVIDER_AUTH_ERROR  .*elapsed_ms \d+\n  searxng  ok  sources 1  elapsed_ms \d+\n")
        self.assertNotIn(KEY, terminal.text)

    def test_a_search_that_fails_says_why_and_who_was_asked(self) -> None:
        with Loopback({"*": 500}) as searxng:
            terminal = self.terminal(**loopback_settings({"SEARXNG_URL": searxng.url()}))
            shown = terminal.type("t", "falcon")
        self.assertIn("WEB_", shown)
        self.assertRegex(shown, r"attempted:\n  searxng  error  WEB_PROVIDER_ERROR ")


class Languages(FormTest):
    def test_the_locale_chooses_chinese(self) -> None:
        terminal = self.terminal("TAVILY_ENABLED=maybe\n", LANG="zh_CN.UTF-8", EXA_API_KEY="exa-environment-key")
        listed = terminal.read()
        self.assertRegex(listed, r"exa +可用: 已设置密钥\n +EXA_API_KEY +已设置，19 个字符  \(环境变量\)\n")
        self.assertIn("brave        未使用: BRAVE_API_KEY 未设置\n", listed)
        self.assertIn("! TAVILY_ENABLED 必须是 true 或 false\n", listed)
        self.assertIn("Exa 的密钥，可用逗号分隔多个轮换\n", terminal.type(PAGES["exa"]))
        self.assertIn("优先于文件", terminal.type("1"))
        self.assertIn("WEBSEARCH_TIMEOUT 必须介于 0.1 与 600", terminal.type("", PAGES["Limits"], "1", "0"))
        self.assertIn("尚未保存：WEBSEARCH_TIMEOUT", terminal.type("7", ""))
        self.assertIn("已保存：WEBSEARCH_TIMEOUT", terminal.type("s"))

    def test_lc_all_wins_over_lang_and_an_ascii_terminal_gets_ascii(self) -> None:
        for settings in ({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, {"LC_MESSAGES": "POSIX", "LANG": "zh_CN.UTF-8"},
                         {"LANG": "zh_CN.UTF-8", "PYTHONIOENCODING": "ascii"}):
            with self.subTest(settings), Terminal({**self.settings, "WEBSEARCH_USER_AGENT": "Käfer/1", **settings}) as terminal:
                listed = terminal.read()
                self.assertIn("WEBSEARCH_USER_AGENT         K?fer/1  (environment)", listed)
                self.assertIn("Number: open", listed)
                terminal.type(PAGES["Network"], "1", "10.0.0.0/8", "", "s", "")
                terminal.press("q\n")
                self.assertEqual(terminal.end(), 0)
                self.assertTrue(terminal.text.isascii())
                os.remove(self.path)

    def test_every_message_and_description_has_its_chinese(self) -> None:
        source = (ROOT / "websearch.py").read_text(encoding="utf-8")
        form = source[source.index("class SettingsForm"):source.index("# -- login and installation --")]
        texts = set(re.findall(r'self\._(?:tell|ask|words)\("([^"]+)"', form)) | {page.title for page in websearch.form_pages() if not page.provider}
        texts |= {variable.text.replace(variable.group, "{}") for page in websearch.form_pages() for variable in page.variables}
        self.assertEqual(sorted(text for text in texts if text not in websearch.CHINESE), [])
        for english, chinese in websearch.CHINESE.items():
            self.assertEqual(english.count("{}"), chinese.count("{}"), english)
            self.assertTrue(english.isascii(), english)


class Writer(unittest.TestCase):
    def run_script(self, *arguments: str, **settings: str) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            return subprocess.run([sys.executable, "-m", "websearch", "configure", *arguments], cwd=str(ROOT), timeout=60, stdin=subprocess.DEVNULL,
                                  env=bare_environment({"HOME": folder, **settings}), capture_output=True)

    def test_without_a_terminal_it_says_what_to_do_instead(self) -> None:
        done = self.run_script()
        self.assertEqual((done.returncode, done.stdout, done.stderr.count(b"\n")), (2, b"", 1))
        for word in (b"needs a terminal", b"docker exec -it", b"configure NAME=VALUE", b"--unset NAME"):
            self.assertIn(word, done.stderr)

    def test_a_script_is_told_what_became_of_each_value(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "env")
            with open(path, "w", encoding="utf-8") as file:
                file.write("OLD_NAME=1\nWEBSEARCH_DEADLINE=50\n")
            done = self.run_script("WEBSEARCH_TIMEOUT=20", "EXA_API_KEY=exa-script-key", WEBSEARCH_CONFIG=path, EXA_API_KEY="exa-environment-key")
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), "EXA_API_KEY=exa-script-key\n")
        self.assertEqual(done.stdout.decode().replace(path, "FILE"), (
            "WEBSEARCH_TIMEOUT is the default and is not written in FILE\n"
            "EXA_API_KEY set in FILE, but the environment sets it too, and wins\n"
            "OLD_NAME removed from FILE: it set nothing\nWEBSEARCH_DEADLINE removed from FILE: it set nothing\n"))

    def test_a_line_break_cannot_smuggle_in_a_second_setting(self) -> None:
        with self.assertRaisesRegex(websearch.WebError, "WEBSEARCH_USER_AGENT has a line break inside"):
            websearch.read_changes(["WEBSEARCH_USER_AGENT=a\nEXA_API_KEY=b"], [])

    def test_the_file_that_a_setting_names_cannot_be_changed_in_that_file(self) -> None:
        with self.assertRaisesRegex(websearch.WebError, "holds no setting WEBSEARCH_CONFIG"):
            websearch.read_changes(["WEBSEARCH_CONFIG=/x"], [])

    def test_what_is_written_is_what_will_be_read(self) -> None:
        template = websearch.settings_template()
        rows: Any = (  # (file, changes, file afterwards)
            ("", {"EXA_API_KEY": "k-1"}, "EXA_API_KEY=k-1\n"),
            ("", {"EXA_API_KEY": None}, ""),
            ("A=1", {"EXA_API_KEY": "k-1"}, "EXA_API_KEY=k-1\n"),
            ("# c\nEXA_API_KEY=k-1\nEXA_API_KEY=k-2\n# d\n", {"EXA_API_KEY": "k-3"}, "# c\nEXA_API_KEY=k-3\n# d\n"),
            ("# c\nEXA_API_KEY=k-1\nEXA_API_KEY=k-2", {"EXA_API_KEY": None}, "# c\n"),
            ("GROK_API_URL=https://g.example\nGROK_SEARCH_URL=https://h.example\n", {"GROK_SEARCH_URL": None}, ""),  # not the alias's value
            ("GROK_API_URL=https://g.example\nGROK_SEARCH_URL=https://api.x.ai/v1/\n", {}, ""),
            ("http_proxy=http://l:1\n", {"HTTP_PROXY": "http://u:1"}, "HTTP_PROXY=http://u:1\n"),  # the lower-case name would win
            ("WEBSEARCH_TIMEOUT=9\nWEBSEARCH_TIMEOUT='20.0'\n", {}, ""),
            ("WEBSEARCH_TIMEOUT=abc\nEXA_API_KEY=${EXA}\nnot a setting\n", {}, "WEBSEARCH_TIMEOUT=abc\nEXA_API_KEY=${EXA}\nnot a setting\n"),
            ("MINE=k\n", websearch.read_changes(["CHAT_SEARCH_KEY_ENV=MINE"], []), "MINE=k\nCHAT_SEARCH_KEY_ENV=MINE\n"),
            ("CHAT_SEARCH_KEY_ENV=MINE\nMINE=k\nOTHER=k\n", {}, "CHAT_SEARCH_KEY_ENV=MINE\nMINE=k\n"),
            ("CHAT_SEARCH_KEY_ENV=MINE\nMINE=k\n", {"CHAT_SEARCH_KEY_ENV": None}, ""),
            ("export EXA_API_KEY=k-1\n", {"EXA_API_KEY": "k-2"}, "export EXA_API_KEY=k-2\n"),
            (template, {}, template),
            (template.replace("#EXA_API_KEY=", "EXA_API_KEY=k-1"), {"EXA_API_KEY": None}, template),
            (template, {"EXA_API_KEY": "k-1"}, template.replace("#EXA_API_KEY=", "EXA_API_KEY=k-1")))
        for text, changes, expected in rows:
            with self.subTest(text[:60], changes=changes):
                self.assertEqual(websearch.sparse_text(text, changes, {}), expected)

    def test_the_file_is_replaced_whole_and_the_link_to_it_and_bytes_that_are_no_utf_8_stay(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            real, link = os.path.join(folder, "real"), os.path.join(folder, "link")
            with open(real, "wb") as file:
                file.write(b"\xef\xbb\xbfEXA_API_KEY=k-1\n# caf\xe9\n")
            os.symlink(real, link)
            os.link(real, os.path.join(folder, "before"))  # another name for the old file: it keeps its content
            websearch.write_settings(link, {"EXA_API_KEY": "k-2"}, {})
            self.assertTrue(os.path.islink(link))
            with open(real, "rb") as file:
                self.assertEqual(file.read(), b"EXA_API_KEY=k-2\n# caf\xe9\n")
            with open(os.path.join(folder, "before"), "rb") as file:
                self.assertIn(b"k-1", file.read())
            self.assertEqual(sorted(os.listdir(folder)), ["before", "link", "real"])


if __name__ == "__main__":
    unittest.main()
