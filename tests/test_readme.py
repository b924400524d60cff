"""README.md is run: each command of its code blocks, its recorded session, the example of each tool; and its links lead somewhere.

A command that is in none of the tables below fails. `sh` blocks hold commands, `console` blocks commands ("$ …") with their
output, in which a line "..." stands for any lines. Both are given to a shell as they stand, in a clean copy of the two files.
"""
from __future__ import annotations

import contextlib
import io
import json
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Dict, List, Tuple
from unittest import mock

import websearch
from tests.support import ROOT, Loopback, McpProcess, bare_environment, fixture, loopback_settings

READMES = ("README.md", "README.zh-CN.md")
DOCUMENTS = (*READMES, "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
FILES = ("websearch.py", "websearch_mcp.py")

# Commands that are run here, with what their output must show. HOME is a folder of its own for each.
RUN = {
    'python3 websearch.py search "how do I cancel an asyncio task"': "3 sources by grok_responses",
    "python3 websearch.py install codex": "codex: installed: ",
    "python3 websearch.py install codex --home /srv/tenants/42/codex-home --container-path /home/agent/.codex": "codex: installed: ",
    "python3 websearch.py doctor": r"search +grok -> tavily\n",
    "python3 websearch.py doctor --probe": r"grok +ok",
    'python3 websearch.py search "rust borrow checker" --limit 3 --json': '"search_provider": "grok_responses"',
    'python3 websearch.py fetch https://docs.python.org/3/library/asyncio.html --focus "cancel a task"': r"\(status 200\)\n\nA task is cancelled",
    "python3 websearch.py map https://docs.python.org/3/ --search asyncio": "1 of 1 addresses, by tavily",
    "python3 websearch.py hosts": r"^127\.0\.0\.1:\d+\n$|^127\.0\.0\.1\n$",
    "python3 websearch.py init": r"^wrote .*/env; edit it",
    "python3 websearch.py configure WEBSEARCH_TIMEOUT=30": "WEBSEARCH_TIMEOUT set in ",
    "python3 websearch.py configure --unset WEBSEARCH_TIMEOUT": "WEBSEARCH_TIMEOUT unset in ",
}
# Commands that need what unit tests have not: the file that runs them, and words there which show it.
ELSEWHERE = {
    "python3 -m unittest": (".ci/run", "-m unittest"),
    "python3 websearch.py configure": ("tests/test_configure.py", "pty.openpty()"),
    "claude mcp add --scope user websearch -- python3 /path/to/websearch_mcp.py": (
        "tests/interop/check_claude.py", "the command that install shows does the same"),
    "pip install websearch-mcp": (".ci/run", 'step "install the wheel by pip"'),
    "pipx install websearch-mcp": (".ci/run", 'step "install the wheel by pipx"'),
    "uvx websearch-mcp": (".ci/run", 'step "uvx serves"'),
    'uvx --from websearch-mcp websearch search "..."': (".ci/run", 'step "uvx serves"'),
    "python3 tests/interop/check_speed.py": (".ci/run", "for script in tests/interop/check_*.py"),
    "python3 benchmarks/startup.py --peers /tmp/peers": ("tests/interop/check_speed.py", "import startup"),
    "python3 benchmarks/concurrency.py --peers /tmp/peers": ("tests/interop/check_speed.py", "import concurrency"),
    "python3 benchmarks/overhead.py": ("tests/interop/check_speed.py", "import overhead"),
}
# These take minutes, and one wants corpora that are not in this repository: only their --help is run here.
TOO_LONG = ("python3 benchmarks/extraction.py --peers /tmp/peers", "python3 benchmarks/growth.py")
SAME_TABLES = {"Tools": "工具", "Providers": "提供方", "Settings": "设置", "Error codes": "错误码", "Beside other servers": "与其他服务器"}
# What cannot be run: there is no docker daemon and no registry of images here or in .ci/run. tests/test_container.py stands in
# for it, with the two files alone in an empty root that is read-only, and no rights; the words after the image are checked below.
NOT_RUN = re.compile(r"docker (?:build|run|network create) ")


def blocks(name: str, languages: str) -> List[str]:
    """The fenced blocks of these languages in a document, in order."""
    return re.findall(rf"^```(?:{languages})\n(.*?)^```$", (ROOT / name).read_text(encoding="utf-8"), re.M | re.S)


def rows(name: str, heading: str) -> List[str]:
    """What is no prose in the rows of a section's table: the first cell, and of settings and tools the second."""
    section = (ROOT / name).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = 2 if heading in ("Settings", "设置", "Tools", "工具") else 1
    return [" | ".join(re.split(r" \| ", line)[:cells]) for line in section.splitlines() if line.startswith("| `")]


def commands(name: str) -> List[str]:
    """Each command line of the `sh` and `bash` blocks, without its comment."""
    lines = [line for block in blocks(name, "sh|bash") for line in block.splitlines()]
    return [command for command in (re.sub(r"(?:^|\s+)#.*", "", line).strip() for line in lines) if command]


def sessions(name: str) -> List[Tuple[str, str]]:
    """(command, output) of the `console` blocks."""
    found = [part.partition("\n") for block in blocks(name, "console") for part in re.split(r"^\$ ", block, flags=re.M)[1:]]
    return [(command, output) for command, _, output in found]


def http(name: str) -> Any:
    """A recorded reply whose pages stand at http addresses, for the site here speaks no TLS."""
    return json.loads(fixture(name).decode("utf-8").replace("https://", "http://"))


def shows(told: Any, real: Any) -> bool:
    """Whether README's shortened value is the beginning of the real one; numbers of milliseconds are not compared."""
    if isinstance(told, str) and told.endswith("…"):
        return isinstance(real, str) and real.startswith(told[:-1].rstrip())
    if isinstance(told, dict) and isinstance(real, dict):
        return set(told) == set(real) and all(name == "elapsed_ms" or shows(told[name], real[name]) for name in told)
    if isinstance(told, list) and isinstance(real, list):
        head = told[:-1] if told[-1:] == ["…"] else told
        return (len(real) > len(head) if head != told else len(real) == len(head)) and all(map(shows, head, real))
    return bool(told == real)


class Readme(unittest.TestCase):
    """In a copy of the two files, in a folder of its own, with the web that README's session was recorded with."""

    folder: ClassVar[Path]
    settings: ClassVar[Dict[str, str]]
    recording: ClassVar[Dict[str, str]]  # the settings of the session and the examples

    @classmethod
    def setUpClass(cls) -> None:
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name)
        for name in FILES:
            shutil.copyfile(ROOT / name, cls.folder / name)
        py_compile.compile(str(cls.folder / "websearch.py"), doraise=True)
        # `python3 websearch.py` compiles the file anew each time, most of a second; as a module its byte code is used.
        python = cls.folder / "bin" / "python3"
        python.parent.mkdir()
        python.write_text('#!/bin/sh\n[ "$1" = websearch.py ] && { shift; set -- -m websearch "$@"; }\n'
                          f'exec "{sys.executable}" "$@"\n', encoding="utf-8")
        python.chmod(0o755)
        web = Loopback({
            "/v1/responses": http("providers/xai_success.json"), "/search": http("providers/tavily_search_success.json"),
            "/extract": {"results": [{"url": "https://docs.python.org/3/library/asyncio.html", "raw_content": "A task is cancelled by `cancel()`."}]},
            "/map": {"results": [f"https://docs.python.org/3/{name}" for name in ("", "library/asyncio.html", "tutorial/")]},
            "http://docs.example.org/kestrel/scheduler": fixture("readme/scheduler.html").decode("utf-8"),
            "http://docs.example.org/kestrel/": "<title>Kestrel</title><main><h1>Kestrel</h1><p><a href=scheduler>Scheduler design</a></main>"})
        cls.addClassCleanup(web.close)
        cls.settings = loopback_settings({
            "GROK_SEARCH_API_KEY": "xai-made-up", "GROK_SEARCH_URL": web.url("/v1"), "TAVILY_API_KEY": "tvly-made-up",
            "TAVILY_API_URL": web.url(), "JINA_ENABLED": "false", "HTTP_PROXY": web.url(), "HTTPS_PROXY": web.url(),
            "NO_PROXY": "127.0.0.1", "WEBSEARCH_ALLOW_PRIVATE": ""})
        cls.recording = {**cls.settings, "WEBSEARCH_FETCH_PROVIDERS": "local", "WEBSEARCH_MAP_PROVIDERS": "local"}

    def run_all(self, lines: List[str], settings: Dict[str, str]) -> Dict[str, Tuple[int, str, str]]:
        """(exit status, stdout, stderr) of each line, given to a shell, a few at once."""
        def run(number: int) -> Tuple[int, str, str]:
            home = tempfile.mkdtemp(dir=str(self.folder))
            environment = bare_environment({**settings, "HOME": home, "PATH": f"{self.folder}/bin:/usr/bin:/bin", "PYTHONUTF8": "1",
                                            "PYTHONDONTWRITEBYTECODE": "1"})  # `install codex` would compile its copy, which takes long
            done = subprocess.run(["sh", "-c", lines[number].replace("/srv/tenants/42", home)], env=environment, cwd=str(self.folder),
                                  capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
            return done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8")

        with ThreadPoolExecutor(3) as pool:
            return dict(zip(lines, pool.map(run, range(len(lines)))))

    def test_every_command_is_run_somewhere(self) -> None:
        for name in READMES:
            for command in commands(name):
                self.assertTrue(command in RUN or command in ELSEWHERE or command in TOO_LONG or NOT_RUN.match(command), f"{name}: {command}")
        told = set(commands("README.md"))
        self.assertEqual([command for command in (*RUN, *ELSEWHERE, *TOO_LONG) if command not in told], [])

    def test_commands_that_are_run_elsewhere_are_run_there(self) -> None:
        for command, (file, words) in ELSEWHERE.items():
            self.assertIn(words, (ROOT / file).read_text(encoding="utf-8"), command)

    def test_commands_do_what_they_are_shown_for(self) -> None:
        for command, (status, text, errors) in self.run_all(list(RUN), self.settings).items():
            with self.subTest(command):
                self.assertEqual((status, errors), (0, ""))
                self.assertRegex(text, RUN[command])

    def test_benchmarks_that_take_long_start(self) -> None:
        for command in TOO_LONG:
            script = command.split()[1]
            done = subprocess.run([sys.executable, str(ROOT / script), "--help"], env=bare_environment(), capture_output=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, b""), script)
            self.assertIn(b"--json", done.stdout)

    def test_what_docker_would_run_is_what_the_image_has(self) -> None:
        image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
        shown = [command for command in commands("README.md") if NOT_RUN.match(command)]
        self.assertIn("docker build -t websearch-mcp .", shown)
        for path in re.findall(r"/opt/websearch/(\w+\.py)", "\n".join(shown)):
            self.assertIn(path, FILES)
        self.assertIn('ENTRYPOINT ["python3", "/opt/websearch/websearch_mcp.py"]', image)

    def test_the_recorded_session_is_what_happens(self) -> None:
        done = self.run_all([command for command, _ in sessions("README.md")], self.recording)
        for name in READMES:
            self.assertEqual([command for command, _ in sessions(name)], list(done), name)
            for command, output in sessions(name):
                with self.subTest(command, document=name):
                    status, text, errors = done[command]
                    self.assertEqual((status, errors), (0, ""))
                    self.assertRegex(text.strip("\n"), "^" + re.escape(output.strip("\n")).replace(r"\.\.\.", r"(?s:.*)") + "$")


    def test_the_example_of_each_tool_is_what_it_gives(self) -> None:
        with McpProcess(self.recording, script=self.folder / "websearch_mcp.py") as server:
            server.initialize()
            for name in READMES:
                self._check_examples(name, server)

    def _check_examples(self, name: str, server: McpProcess) -> None:
        shown = [json.loads(block) for block in blocks(name, "json") if "mcpServers" not in block]
        *pairs, refusal = [block for block in shown if not ({"mcp", "servers"} & set(block))]
        self.assertEqual(len(pairs), 2 * len(websearch.TOOLS), name)
        session = ""
        for tool, call, told in zip(websearch.TOOLS, pairs[::2], pairs[1::2]):
            arguments = {**call, "session_id": session} if "session_id" in call else call
            real = server.call_tool(tool, arguments)["structuredContent"]
            session = real.get("session_id", session)
            with self.subTest(tool, document=name):
                told = {**told, "session_id": session} if "session_id" in told else told
                self.assertTrue(shows(told, real), f"{told}\n{real}")
        refused = server.call_tool("web_fetch", {"url": "http://169.254.169.254/latest/meta-data/"})
        self.assertEqual(refusal, json.loads(refused["content"][0]["text"]))

    def printed(self, *arguments: str) -> str:
        """What the command line prints, in this process, to a user without settings."""
        bare = mock.patch.dict("os.environ", bare_environment(), clear=True)
        with bare, contextlib.redirect_stdout(io.StringIO()) as text:
            self.assertEqual(websearch.main(arguments), 0)
        return text.getvalue()

    def test_what_clients_are_told_is_what_install_prints(self) -> None:
        names = ("codex", "claude", "claude-desktop", "cursor", "vscode", "gemini", "opencode")
        with tempfile.TemporaryDirectory() as home:
            printed = {name: self.printed("install", name, "--dry-run", *(["--home", home] if name == "codex" else []))
                       for name in names}
        path = str(ROOT / "websearch_mcp.py")
        for document in READMES:
            text = (ROOT / document).read_text(encoding="utf-8").replace("/path/to/websearch_mcp.py", path)
            for name in names:
                self.assertIn(f"| `{name}` |", text)
            self.assertIn('[mcp_servers.websearch]\ncommand = "python3"\nargs = [', printed["codex"])
            for command in re.findall(r"^  ((?:claude|code) .*)$", printed["claude"] + printed["vscode"], re.M):
                self.assertIn(command, text)
            told = [json.loads(entry) for entry in re.findall(r"\{\"(?:servers|mcp|mcpServers)\": .*\}(?=`|\n)", text)]
            for name in names[1:]:
                entry = json.loads(re.search(r"^\{.*?^\}", printed[name], re.M | re.S).group())  # type: ignore[union-attr]
                kind, server = next(iter(entry.items()))
                server["websearch"].pop("env", "")
                if kind == "mcpServers":
                    server["websearch"].pop("type", "")
                with self.subTest(name, document=document):
                    self.assertIn({kind: server}, told)


class Documents(unittest.TestCase):
    def test_links_lead_to_files_and_headings(self) -> None:
        for name in DOCUMENTS:
            text = (ROOT / name).read_text(encoding="utf-8")
            for target in re.findall(r"\]\(([^)]+)\)", re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.M | re.S)):
                if not re.match(r"https?:", target):
                    self.assertTrue((ROOT / target.partition("#")[0]).exists(), f"{name}: {target}")

    def test_files_that_are_named_exist(self) -> None:
        for name in DOCUMENTS:
            text = re.sub(r"^```.*?^```$", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.M | re.S)
            for path in re.findall(r"`((?:tests|benchmarks|\.ci)/[\w./*-]*)", text):
                self.assertTrue(list(ROOT.glob(path.rstrip("/"))), f"{name}: {path}")

    def test_sections_of_the_architecture_are_those_of_the_module(self) -> None:
        text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
        titles = re.findall(r"^# ---- (.+?) -{3,}$", (ROOT / "websearch.py").read_text(encoding="utf-8"), re.M)
        self.assertEqual(re.findall(r"^\| \*\*(.*?)\*\* \|", text, re.M), titles)

    def test_the_chinese_tables_have_the_names_of_the_english_ones(self) -> None:
        for english, chinese in SAME_TABLES.items():
            self.assertEqual(rows("README.zh-CN.md", chinese), rows("README.md", english), english)
            self.assertGreater(len(rows("README.md", english)), 5)

    def test_the_changelog_begins_with_this_version(self) -> None:
        first = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
        assert first is not None
        self.assertRegex(first.group(1), rf"^{re.escape(websearch.VERSION)} — \d{{4}}-\d\d-\d\d$")

    def test_documents_are_in_the_source_distribution(self) -> None:
        text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        for name in DOCUMENTS:
            self.assertIn(f'"/{name}"', text)


if __name__ == "__main__":
    unittest.main()
