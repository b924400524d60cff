"""codex-home seeding: what is appended, what is never touched; what the other clients are given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any, Dict, List

import websearch
from tests.support import Loopback, McpProcess, Reply, bare_environment

PROJECT = os.path.dirname(os.path.abspath(websearch.__file__))
OWN_TABLES = {  # the user's own table, in every spelling
    "plain": b'# mine\n[mcp_servers.websearch]\ncommand = "mine"\nargs = ["keep"]\n',
    "quoted": b'model = "m"\n[mcp_servers."websearch"]\ncommand = "mine"\n',
    "spaced": b"[ mcp_servers . 'websearch' ]  # spaced\ncommand = \"mine\"\n",
    "dotted": b'mcp_servers.websearch.command = "mine"\nmodel = "m"\n',
    "inline": b'[mcp_servers]\nwebsearch = { command = "mine", args = [] }\n',
    "inside": b'mcp_servers = { websearch = { command = "mine" } }\n',
    "escaped": b'[mcp_servers."web\\u0073earch"]\ncommand = "mine"\n',
    "disabled": b'[mcp_servers.websearch]\nenabled = false\ncommand = "mine"\n',
}
APPENDED_TO = {
    "no final newline": (b'# top comment\nmodel = "m" # inline\nfuture_key = { a = 1 }\n\n[mcp_servers.other]\ncommand = "x"  # keep\n'
                         b'startup_timeout_sec = 30\n[mcp_servers.other.env]\nA = "1"\n\n[projects."/srv/a b"]\ntrust_level = "trusted"'),
    "crlf": b"# top\r\nmodel = \"m\"\r\n\r\n[projects.'C:\\work']\r\ntrust_level = \"trusted\"\r\n",
    "text in a string": b'note = """\n[mcp_servers.websearch]\n"""\n# [mcp_servers.websearch]\n',
    "dotted sister": b'mcp_servers.other.command = "x"\n',
    "byte order mark": b'\xef\xbb\xbfmodel = "m"\n',
    "blank lines": b"\n\n",
    "empty": b"",
}
REFUSED = {
    "broken": (b'model = "m"\n[mcp_servers.other]\nargs = ["C:\\Users\\u1\\x"]\n', "line 3"),
    "latin1": (b'# caf\xe9\nmodel = "m"\n', "line 1"),
    "twice": (b"[a]\n[a]\n", "line 2"),
    "no table": (b"mcp_servers = 1\n", "mcp_servers"),
    "closed table": (b'mcp_servers = { other = { command = "x" } }\n', "mcp_servers"),
}


# Runs an action in a child that kills itself at the n-th file operation, for n from 0 until it comes to its end.
KILLER = """
import json, os, signal, sys, websearch
action, folder = sys.argv[1:]

def contents():
    return {name: open(os.path.join(folder, name), 'rb').read() for name in os.listdir(folder)}

def attempt(operations):
    def count(event, arguments):
        nonlocal operations
        if event != 'os.kill' and (event.startswith('os.') or event == 'open' and not str(arguments[0]).endswith('.pyc')):
            operations -= 1
            if operations < 0:
                os.kill(os.getpid(), signal.SIGKILL)
    child = os.fork()
    if child == 0:
        sys.addaudithook(count)
        exec(action)
        os._exit(0)
    return os.waitpid(child, 0)[1]

old, states = contents(), []
assert attempt(1_000_000) == 0
new, status = contents(), 9
while status == 9:
    for name in contents():
        os.unlink(os.path.join(folder, name))
    for name, data in old.items():
        with open(os.path.join(folder, name), 'wb') as file:
            file.write(data)
    status = attempt(len(states))
    states.append({name[:8] + name[-4:] if name.endswith('.bak') else name:
                   'old' if data == old.get(name) else 'copy' if data in old.values() else
                   'new' if data == new.get(name) else 'neither'
                   for name, data in contents().items() if not name.endswith('.tmp')})
assert status == 0, status
print(json.dumps(states))
"""


class HomeCase(unittest.TestCase):
    """An empty codex-home."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.home = os.path.join(folder.name, "codex-home")
        os.mkdir(self.home)
        self.config = Path(self.home, "config.toml")
        self.environ: Dict[str, str] = {"HOME": folder.name}

    def ensure(self, args: Any = None) -> str:
        """What the helper says it did."""
        return websearch.ensure_codex_home_websearch(self.home, args, self.environ)

    def table(self) -> Dict[str, Any]:
        """Our table as it is read back."""
        table = websearch.parse_toml(self.config.read_bytes().decode("utf-8"))["mcp_servers"]["websearch"]
        assert isinstance(table, dict)
        return table


    def states_after_kill(self, action: str, folder: str, old: Dict[str, bytes]) -> List[Dict[str, str]]:
        """{file name: "old", "new" or "neither"} after `action` was killed at its first file operation, at its second, …; the
        last is that of a run which came to its end. Each run starts from `old` (name: content)."""
        for name, data in old.items():
            Path(folder, name).write_bytes(data)
        printed = subprocess.run([sys.executable, "-c", KILLER, action, folder], cwd=PROJECT, stdout=subprocess.PIPE, timeout=30,
                                 check=True).stdout
        states: List[Dict[str, str]] = json.loads(printed)
        self.assertLess(4, len(states))
        return states


class CodexHomeTest(HomeCase):
    def test_empty_home_gets_both_files_and_the_table(self) -> None:
        outcomes = [self.ensure(), self.ensure()]

        self.assertEqual(outcomes, ["installed", "unchanged"])
        self.assertEqual(sorted(os.listdir(self.home)), ["config.toml", "websearch.py", "websearch_mcp.py"])
        for name in ("websearch.py", "websearch_mcp.py"):
            self.assertEqual(Path(self.home, name).read_bytes(), Path(PROJECT, name).read_bytes())
        table = self.table()
        names = table.pop("env_vars")
        self.assertEqual(table, {"command": "python3", "args": [os.path.join(self.home, "websearch_mcp.py")],
                                 "startup_timeout_sec": 20, "tool_timeout_sec": 120})
        self.assertTrue(all(isinstance(name, str) for name in names))
        self.assertEqual(len(names), len(set(names)))

    def test_home_that_is_not_there_yet_is_made_private(self) -> None:
        os.rmdir(self.home)
        self.assertEqual(self.ensure(), "installed")
        self.assertEqual(os.stat(self.home).st_mode & 0o777, 0o700)

    def test_every_name_is_forwarded_and_no_value_is_written(self) -> None:
        self.environ.update({"TAVILY_API_KEY": "tvly-CASE", "HTTPS_PROXY": "http://proxy.example.test:3128",
                             "GROK_SEARCH_KEY_ENV": "MY_GROK_KEY", "CHAT_SEARCH_KEY_ENV": "not a name"})
        self.config.write_text('model_provider = "gw"\n[model_providers.gw]\nenv_key = "GW_KEY"\n'
                               'env_http_headers = { X = "GW_HEADER" }\n')

        self.ensure()

        names = self.table()["env_vars"]
        expected = {name for variable in websearch.VARIABLES for name in websearch.names_of(variable)}
        expected |= {"http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE",
                     "CODEX_HOME", "MY_GROK_KEY", "GW_KEY", "GW_HEADER"}
        self.assertEqual(set(names), expected)
        for value in (b"tvly-CASE", b"proxy.example.test", b"not a name"):
            self.assertNotIn(value, self.config.read_bytes())

    def test_openai_itself_needs_its_two_variables(self) -> None:
        for config in ({}, {"model": "gpt-x"}):  # it is codex's default
            self.assertLessEqual({"OPENAI_API_KEY", "OPENAI_BASE_URL"}, set(websearch.forwarded_names({}, config)))
        self.assertNotIn("OPENAI_API_KEY", websearch.forwarded_names({}))

    def test_any_path_survives_the_file(self) -> None:
        for number, args in enumerate((["C:\\Users\\u1\\codex-home\\websearch_mcp.py"], ["D:\\it's here\\new\\tools\\x.py"],
                                       ["/srv/a \"quoted\" dir/x.py"], ["/srv/文件/é\ttab\x7f\x01.py"],
                                       ["C:\\Users\\u1\\x.py", "--flag", ""])):
            with self.subTest(args=args):
                self.home = os.path.join(self.root, str(number))
                self.config = Path(self.home, "config.toml")

                outcomes = [self.ensure(args), self.ensure(args)]

                self.assertEqual((outcomes, self.table()["args"]), (["installed", "unchanged"], args))
                if sys.version_info >= (3, 11):
                    import tomllib
                    text = self.config.read_bytes().decode("utf-8")
                    self.assertEqual(tomllib.loads(text)["mcp_servers"]["websearch"]["args"], args)

    def test_arguments_that_are_no_list_of_strings_are_refused(self) -> None:
        for args in ("x.py", [], [1], ["\ud800"]):
            with self.subTest(args=args), self.assertRaises(websearch.WebError) as caught:
                self.ensure(args)
            self.assertEqual(caught.exception.code, websearch.WEB_INVALID_ARGUMENT)
        self.assertFalse(self.config.exists())

    def test_the_users_own_table_is_kept_in_every_spelling(self) -> None:
        for name, data in OWN_TABLES.items():
            with self.subTest(name=name):
                self.config.write_bytes(data)

                outcomes = [self.ensure(), self.ensure()]

                self.assertEqual((outcomes, self.config.read_bytes()), (["kept", "kept"], data))
                self.assertEqual(os.listdir(self.home), ["config.toml"])

    def test_old_bytes_stay_and_the_table_comes_behind_them(self) -> None:
        for name, data in APPENDED_TO.items():
            with self.subTest(name=name):
                self.config.write_bytes(data)

                outcomes = [self.ensure(), self.ensure()]

                new = self.config.read_bytes()
                self.assertEqual(outcomes, ["installed", "unchanged"])
                self.assertEqual(new[:len(data)], data)
                self.assertEqual(new.count(b"\n") if b"\r\n" in data else 0, new.count(b"\r\n"))
                before, after = (websearch.parse_toml(text.decode("utf-8")) for text in (data, new))
                self.assertEqual(after["mcp_servers"].pop("websearch")["command"], "python3")
                self.assertEqual(after, {"mcp_servers": {}, **before})

    def test_what_is_not_understood_is_not_touched(self) -> None:
        for name, (data, words) in REFUSED.items():
            with self.subTest(name=name):
                self.config.write_bytes(data)
                with self.assertRaises(websearch.WebError) as caught:
                    self.ensure()
                self.assertIn(str(self.config), caught.exception.message)
                self.assertIn(words, caught.exception.message)
                self.assertEqual((self.config.read_bytes(), os.listdir(self.home)), (data, ["config.toml"]))

    def test_what_cannot_be_read_is_an_error_and_leaves_nothing_behind(self) -> None:
        self.config.mkdir()
        with self.assertRaises(websearch.WebError):
            self.ensure()
        self.config.rmdir()
        os.mkfifo(self.config)
        with self.assertRaises(websearch.WebError):
            self.ensure()
        self.assertEqual(os.listdir(self.home), ["config.toml"])

    @unittest.skipUnless(os.name == "posix" and os.geteuid() == 0, "needs root to become somebody else")
    def test_config_that_this_user_may_not_read_is_an_error(self) -> None:
        self.config.write_bytes(b'model = "m"\n')
        os.chmod(self.config, 0)
        os.chmod(self.root, 0o755)
        os.chown(self.home, 12_345, 12_345)
        program = ("import os, sys; sys.path.insert(0, sys.argv[1]); import websearch; os.setgid(12345); os.setuid(12345)\n"
                   "try: websearch.ensure_codex_home_websearch(sys.argv[2])\nexcept websearch.WebError as e: print(e.message)")

        printed = subprocess.run([sys.executable, "-c", program, PROJECT, self.home], stdout=subprocess.PIPE, timeout=20, check=True)

        self.assertIn(b"config.toml cannot be read", printed.stdout)
        self.assertEqual((self.config.read_bytes(), os.listdir(self.home)), (b'model = "m"\n', ["config.toml"]))

    @unittest.skipUnless(os.name == "posix" and os.geteuid() == 0, "only root can write into another user's home")
    def test_files_made_by_root_belong_to_the_owner_of_the_home(self) -> None:
        os.chown(self.home, 12_345, 12_346)
        self.ensure()
        for name in os.listdir(self.home):
            info = os.stat(os.path.join(self.home, name))
            self.assertEqual((name, info.st_uid, info.st_gid), (name, 12_345, 12_346))

    def test_mode_is_kept_and_a_link_is_written_through(self) -> None:
        real = Path(self.root, "dotfiles.toml")
        real.write_bytes(b'model = "m"\n')
        os.chmod(real, 0o640)
        self.config.symlink_to(real)

        self.ensure()

        self.assertTrue(self.config.is_symlink())
        self.assertEqual(real.stat().st_mode & 0o777, 0o640)
        self.assertIn(b"[mcp_servers.websearch]", real.read_bytes())

    def test_older_copies_are_replaced_and_newer_ones_kept(self) -> None:
        self.ensure()
        for version, outcome in (("0.0.9", "updated"), ("999.0", "unchanged")):
            text = f'VERSION = "{version}"\n'
            Path(self.home, "websearch.py").write_text(text)

            self.assertEqual(self.ensure(), outcome)

            self.assertEqual(Path(self.home, "websearch.py").read_text() == text, outcome == "unchanged")

    def test_table_with_a_container_path_is_ours_as_well(self) -> None:
        self.ensure(["/home/agent/.codex/websearch_mcp.py"])
        Path(self.home, "websearch_mcp.py").write_text("old")
        before = self.config.read_bytes()

        self.assertEqual([self.ensure(), self.ensure()], ["updated", "unchanged"])

        self.assertEqual(self.config.read_bytes(), before)

    def test_long_deadline_gives_a_longer_tool_timeout(self) -> None:
        self.environ["WEBSEARCH_DEADLINE"] = "300"
        self.ensure()
        self.assertEqual(self.table()["tool_timeout_sec"], 330)

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_seeding_that_is_killed_at_any_point_leaves_old_or_new_files(self) -> None:
        states = self.states_after_kill("websearch.ensure_codex_home_websearch(folder, None, {})", self.home, {
            "config.toml": b'model = "m"\n', "websearch.py": b'VERSION = "0.0.1"\n', "websearch_mcp.py": b"old"})
        for name in ("config.toml", "websearch.py", "websearch_mcp.py"):
            self.assertEqual({state[name] for state in states}, {"old", "new"})
        self.assertEqual(set(states[-1].values()), {"new"})


class CommandTest(HomeCase):
    """`install` by the command line; what codex makes of it is for tests/interop/check_codex.py."""

    # What codex hands on to a server without being told to.
    CODEX_DEFAULTS = ("HOME", "LOGNAME", "PATH", "SHELL", "USER", "__CF_USER_TEXT_ENCODING", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ")

    def run_install(self, *arguments: str) -> str:
        """What `install` prints; it must succeed."""
        return subprocess.run([sys.executable, "-m", "websearch", "install", *arguments], env=bare_environment(self.environ),
                              cwd=PROJECT, stdout=subprocess.PIPE, timeout=60, check=True).stdout.decode()

    def test_server_started_as_codex_starts_it_has_the_key_and_uses_the_proxy(self) -> None:
        with Loopback({"api.tavily.com:443": Reply(403, "not on the list")}) as proxy:
            self.environ.update({"TAVILY_API_KEY": "tvly-CASE", "HTTPS_PROXY": proxy.url(), "WEBSEARCH_KEYLESS": "off",
                                 "UNRELATED": "x"})
            self.run_install("codex", "--home", self.home)
            self.assertTrue(list(Path(self.home, "__pycache__").glob("websearch.*.pyc")))  # codex waits a second for the first start
            table, own = self.table(), bare_environment(self.environ)
            passed = {name: own[name] for name in (*self.CODEX_DEFAULTS, *table["env_vars"]) if name in own}
            with McpProcess(passed, script=table["args"][0]) as server:
                server.initialize()
                answer = server.call_tool("web_search", {"query": "x", "provider": "tavily"})["content"][0]["text"]
        self.assertEqual([(request.method, request.target) for request in proxy.requests], [("CONNECT", "api.tavily.com:443")])
        self.assertIn("api.tavily.com", answer)
        self.assertNotIn("UNRELATED", passed)
        for value in (b"tvly-CASE", proxy.host.encode()):
            self.assertNotIn(value, self.config.read_bytes())

    def test_codex_config_behind_a_link_with_windows_line_ends_is_only_added_to(self) -> None:
        self.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # the test above looks at that
        old = b"# mine\r\nmodel = \"m\"\r\n[mcp_servers . 'other']\r\ncommand = \"x\""
        real = Path(self.root, "dotfiles.toml")
        real.write_bytes(old)
        self.config.symlink_to(real)
        arguments = ("codex", "--home", self.home, "--container-path", "/home/agent/.codex")

        shown = self.run_install(*arguments, "--dry-run")
        self.assertEqual((real.read_bytes(), os.listdir(self.home)), (old, ["config.toml"]))
        said = self.run_install(*arguments)
        again = self.run_install(*arguments)

        new = real.read_bytes()
        self.assertTrue(self.config.is_symlink())
        self.assertEqual((new[:len(old)], new.count(b"\n")), (old, new.count(b"\r\n")))
        self.assertIn(new[len(old):].decode().strip().replace("\r\n", "\n"), shown.replace("\r\n", "\n"))
        self.assertEqual(self.table()["args"], ["/home/agent/.codex/websearch_mcp.py"])
        self.assertEqual([text.split(":")[1].strip() for text in (said, again)], ["installed", "unchanged"])
        self.assertEqual(self.config.read_bytes(), new)

    def test_claude_is_merged_into_with_a_copy(self) -> None:
        path = Path(self.root, ".claude.json")
        path.write_text('{"mine": 1}')
        self.assertIn("claude mcp add", self.run_install("claude"))
        self.run_install("claude", "--write", "--dry-run")
        self.assertEqual(path.read_text(), '{"mine": 1}')
        self.run_install("claude", "--write", "--container-path", "/srv/ws")
        self.assertEqual(json.loads(path.read_text()), {"mine": 1, "mcpServers": {"websearch": {
            "type": "stdio", "command": "python3", "args": ["/srv/ws/websearch_mcp.py"]}}})
        self.assertEqual([copy.read_text() for copy in Path(self.root).glob(".claude.json.*.bak")], ['{"mine": 1}'])


class InstallTest(HomeCase):
    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(setattr, sys, "dont_write_bytecode", sys.dont_write_bytecode)
        sys.dont_write_bytecode = True  # `install codex` would compile; CommandTest looks at that

    def install(self, name: str, **options: Any) -> str:
        """The text that the user sees."""
        return websearch.install_client(name, environ=self.environ, **options)

    def test_codex_is_written_unless_it_is_a_dry_run(self) -> None:
        dry = self.install("codex", home=self.home, container_path="/home/agent/.codex", dry_run=True)
        self.assertEqual(os.listdir(self.home), [])
        self.assertIn('args = ["/home/agent/.codex/websearch_mcp.py"]', dry)

        first = self.install("codex", home=self.home, container_path="/home/agent/.codex")
        second = self.install("codex", home=self.home)

        self.assertEqual([text.split(":")[1].strip() for text in (first, second)], ["installed", "unchanged"])
        self.assertIn(f"copies of both files lie in {self.home}: run this again after an update", first)
        self.assertIn(dry.partition("\n\n")[2], self.config.read_text())

    def test_codex_home_comes_from_the_environment(self) -> None:
        self.environ["CODEX_HOME"] = self.home
        self.assertIn("installed", self.install("codex"))
        self.assertIn("already there", self.install("codex", dry_run=True))

    def test_every_client_is_shown_what_it_wants_and_nothing_is_written(self) -> None:
        script = os.path.join(PROJECT, "websearch_mcp.py")
        plain: Dict[str, Any] = {"command": "python3", "args": [script]}
        for name, key, entry in (("claude", "mcpServers", {"type": "stdio", **plain}), ("claude-desktop", "mcpServers", plain),
                                 ("cursor", "mcpServers", {"type": "stdio", **plain}),
                                 ("vscode", "servers", {"type": "stdio", **plain}),
                                 ("opencode", "mcp", {"type": "local", "command": ["python3", script], "enabled": True})):
            with self.subTest(name=name):
                text = self.install(name)
                shown, _ = json.JSONDecoder().raw_decode(text[text.index("\n{") + 1:])
                self.assertEqual(shown, {key: {"websearch": entry}})
        self.assertEqual(os.listdir(self.root), ["codex-home"])
        self.assertIn(f"claude mcp add --scope user websearch -- python3 {script}", self.install("claude"))

    def test_gemini_is_told_the_names_of_what_it_would_withhold(self) -> None:
        self.environ.update({"EXA_API_KEY": "exa-canary", "CHAT_SEARCH_KEY_ENV": "MY_CHAT_KEY"})
        path = Path(self.root, ".gemini", "settings.json")
        self.install("gemini", write=True)
        env = json.loads(path.read_bytes())["mcpServers"]["websearch"]["env"]
        self.assertTrue(all(value == "${" + name + "}" for name, value in env.items()))
        self.assertLessEqual({v.name for v in websearch.VARIABLES if v.kind in ("secret", "proxy")} | {"MY_CHAT_KEY"}, set(env))
        self.assertNotIn("SEARXNG_URL", env)
        self.assertNotIn("canary", path.read_text())
        path.write_text(json.dumps({"mcpServers": {"websearch": {"args": ["/old/websearch_mcp.py"], "env": {"EXA_API_KEY": "own"}}}}))
        self.install("gemini", write=True)
        self.assertEqual(json.loads(path.read_bytes())["mcpServers"]["websearch"]["env"], {**env, "EXA_API_KEY": "own"})
        self.assertIn("unchanged", self.install("gemini", write=True))

    def test_write_merges_and_leaves_a_copy_of_the_old_file(self) -> None:
        path = Path(self.root, ".cursor", "mcp.json")
        path.parent.mkdir()
        old = '{\n\t"é": 1.5,\n\t"mcpServers": {\n\t\t"other": {"command": "x"}\n\t}\n}'
        path.write_bytes(old.encode())
        os.chmod(path, 0o640)

        first, second = self.install("cursor", write=True), self.install("cursor", write=True)

        new = json.loads(path.read_bytes())
        entry = new["mcpServers"].pop("websearch")
        self.assertEqual((new, list(new)), (json.loads(old), ["é", "mcpServers"]))
        self.assertEqual(entry["args"], [os.path.join(PROJECT, "websearch_mcp.py")])
        self.assertIn('\n\t"é": 1.5,', path.read_text(encoding="utf-8"))
        self.assertEqual(path.stat().st_mode & 0o777, 0o640)
        self.assertIn("installed", first)
        self.assertIn("unchanged", second)
        backups = [name for name in os.listdir(path.parent) if name != "mcp.json"]
        self.assertEqual([Path(path.parent, name).read_bytes() for name in backups], [old.encode()])

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_write_that_is_killed_at_any_point_leaves_the_old_or_the_new_file(self) -> None:
        folder = os.path.join(self.root, ".cursor")
        os.mkdir(folder)
        action = "websearch.install_client('cursor', os.path.dirname(folder), write=True, environ={})"
        states = self.states_after_kill(action, folder, {"mcp.json": b'{"own": 1}'})
        self.assertEqual({state["mcp.json"] for state in states}, {"old", "new"})
        self.assertEqual({state["mcp.json"] for state in states if len(state) == 1}, {"old"})  # no new one without a copy
        self.assertEqual(states[-1], {"mcp.json": "new", "mcp.json.bak": "copy"})

    def test_write_makes_a_missing_file_with_its_folder(self) -> None:
        self.install("opencode", write=True, container_path="/opt/ws/")
        new = json.loads(Path(self.root, ".config", "opencode", "opencode.json").read_bytes())
        self.assertEqual(new["mcp"]["websearch"]["command"], ["python3", "/opt/ws/websearch_mcp.py"])

    def test_own_entry_of_the_user_is_kept_and_an_older_one_of_ours_is_updated(self) -> None:
        entry = {"command": "python3", "args": ["/new/websearch_mcp.py"]}
        for there, outcome, after in (
                ({"command": "mine"}, "kept", {"command": "mine"}),
                ({"command": "python3", "args": ["/old/websearch_mcp.py"], "env": {"A": "1"}}, "updated", {**entry, "env": {"A": "1"}}),
                (dict(entry), "unchanged", entry)):
            data, said = websearch.merged_json(json.dumps({"mcpServers": {"websearch": there}}).encode(), "mcpServers", entry)
            self.assertEqual((said, json.loads(data)["mcpServers"]["websearch"]), (outcome, after))

    def test_half_an_emoji_in_the_users_file_stays_what_it_was(self) -> None:
        old = b'{"history": "cut \\ud83d here, whole \\ud83d\\ude00 there"}'
        data, said = websearch.merged_json(old, "mcpServers", {"command": "python3"})
        self.assertEqual((said, json.loads(data)["history"]), ("installed", json.loads(old)["history"]))
        self.assertIn(b"cut \\ud83d here", data)

    def test_json_that_would_lose_something_is_refused_and_not_touched(self) -> None:
        path = Path(self.root, ".gemini", "settings.json")
        path.parent.mkdir()
        bad: Dict[bytes, str] = {
            b'{ // comment\n}': "line 1", b'{"a": 1,}': "line 1", b"[]": "no JSON object", b"null": "no JSON object",
            b'{"mcpServers": []}': "mcpServers is no object", b'{"mcpServers": null}': "mcpServers is no object",
            b'{"a": 1, "a": 2}': "twice", b"\xff": "not UTF-8", b"[" * 100_000: "", b'{"a": 1e999}': ""}
        for data, why in bad.items():
            with self.subTest(data=data[:20]):
                path.write_bytes(data)
                with self.assertRaises(websearch.WebError) as caught:
                    self.install("gemini", write=True)
                self.assertIn(str(path), caught.exception.message)
                self.assertIn(why, caught.exception.message)
                self.assertEqual((path.read_bytes(), os.listdir(path.parent)), (data, ["settings.json"]))

    def test_each_write_has_a_copy_of_its_own(self) -> None:
        path = Path(self.root, ".claude.json")
        path.write_text('{"mine": 1}')
        for place in ("/a", "/b"):  # within the same second
            self.install("claude", write=True, container_path=place)
        self.assertEqual(len(list(Path(self.root).glob(".claude.json.*.bak"))), 2)

    def test_read_only_file_is_left_alone(self) -> None:
        path = Path(self.root, ".claude.json")
        path.write_text('{"mine": 1}')
        path.chmod(0o444)
        with self.assertRaisesRegex(websearch.WebError, "read-only"):
            self.install("claude", write=True)
        self.assertEqual((path.read_text(), list(Path(self.root).glob("*.bak"))), ('{"mine": 1}', []))

    @unittest.skipUnless(sys.platform.startswith("linux"), "other systems have other places")
    def test_moved_configuration_folder_is_used(self) -> None:
        for name, variable in (("opencode", "XDG_CONFIG_HOME"), ("vscode", "XDG_CONFIG_HOME"), ("claude", "CLAUDE_CONFIG_DIR")):
            self.environ[variable] = os.path.join(self.root, "moved")
            self.assertIn(os.path.join(self.root, "moved", ""), self.install(name))

    def test_unknown_client_is_an_error_with_the_names(self) -> None:
        with self.assertRaises(websearch.WebError) as caught:
            self.install("emacs")
        self.assertIn("claude-desktop", caught.exception.hint)


if __name__ == "__main__":
    unittest.main()
