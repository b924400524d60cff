"""The two files alone, as in a container: nothing beside them, nothing to write to, no rights, no home, no environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

import websearch
from tests.support import ROOT, Loopback

FILES = ["websearch.py", "websearch_mcp.py"]
PAGE = "<title>Harrier</title><main><h1>Harrier</h1><p>Harriers quarter the reed beds at dusk.</p></main>"
NOBODY = 12_345  # a user and group that own nothing
# Starts PYTHON as NOBODY in a root that holds nothing but it, the system's libraries and /srv, all of it read-only.
EMPTY_ROOT = """
set -e
root=$1 srv=$2 prefix=$3 nobody=$4; shift 4
mount -t tmpfs none "$root"
for folder in /usr /lib /lib64 "$prefix" "$srv"; do
  if [ -d "$folder" ]; then mkdir -p "$root$folder"; mount --bind -o ro "$folder" "$root$folder"; fi
done
mount -o remount,ro "$root"
exec chroot --userspec="$nobody:$nobody" "$root" "$@"
"""


def become_nobody() -> None:
    """Gives up root's rights, in the child before the program starts."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def python_for_nobody() -> str:
    """A Python of 3.9 or newer that a user without rights can start; SkipTest when there is none."""
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            done = subprocess.run([python, "-c", "import sys; sys.exit(sys.version_info < (3, 9))"], preexec_fn=become_nobody)
        except OSError:
            continue
        if done.returncode == 0:
            return python
    raise unittest.SkipTest("no Python here can be started by another user")


class AloneTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)
        self.folder = Path(folder.name, "srv")
        self.folder.mkdir()
        for name in FILES:
            shutil.copyfile(ROOT / name, self.folder / name)
            os.chmod(self.folder / name, 0o444)
        os.chmod(self.folder, 0o555)
        self.addCleanup(os.chmod, self.folder, 0o755)

    def run_file(self, name: str, *arguments: str, settings: Mapping[str, str] = {}, data: bytes = b"",
                 **options: Any) -> Tuple[int, str, str]:
        """(exit status, stdout, stderr) of `python3 -I -S NAME` with no environment but `settings`."""
        python = options.pop("python", [sys.executable])
        done = subprocess.run([*python, "-I", "-S", str(self.folder / name), *arguments], env=dict(settings), input=data, cwd="/",
                              capture_output=True, timeout=60, **options)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def serve(self, **options: Any) -> List[Dict[str, Any]]:
        """The replies of a session that fetches a page, whose stderr is empty and that leaves the folder as it was."""
        with Loopback({"/harrier": PAGE}) as site:
            fetch = {"name": "web_fetch", "arguments": {"url": site.url("/harrier")}}
            session: List[Dict[str, Any]] = [
                {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {},
                                                             "clientInfo": {"name": "tests", "version": "1"}}},
                {"method": "notifications/initialized"},
                {"id": 2, "method": "tools/list"},
                {"id": 3, "method": "tools/call", "params": fetch}]
            data = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in session).encode()
            settings = {"WEBSEARCH_ALLOW_PRIVATE": "127.0.0.1/32", "WEBSEARCH_FETCH_PROVIDERS": "local"}
            status, text, errors = self.run_file("websearch_mcp.py", settings=settings, data=data, **options)
        self.assertEqual((status, errors), (0, ""))
        replies = [json.loads(line) for line in text.splitlines()]
        return sorted(replies, key=lambda reply: int(reply["id"]))

    def assert_served(self, replies: List[Dict[str, Any]]) -> None:
        results = [reply["result"] for reply in replies]
        self.assertEqual(results[0]["serverInfo"]["version"], websearch.VERSION)
        self.assertEqual(len(results[1]["tools"]), 4)
        self.assertIn("Harriers quarter the reed beds", results[2]["structuredContent"]["text"])

    def test_isolated_python_serves_without_an_environment(self) -> None:
        self.assert_served(self.serve())

    @unittest.skipUnless(os.name == "posix" and os.geteuid() == 0, "needs root to become somebody without rights")
    def test_user_without_rights_is_served_from_a_folder_that_cannot_be_written(self) -> None:
        self.assert_served(self.serve(preexec_fn=become_nobody, python=[python_for_nobody()]))
        self.assertEqual(sorted(os.listdir(self.folder)), FILES)

    def test_empty_root_that_is_read_only_is_enough(self) -> None:
        path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
        if not sys.platform.startswith("linux") or subprocess.run(["env", path, "unshare", "-m", "true"], capture_output=True).returncode:
            self.skipTest("no other root can be made here")
        root = tempfile.TemporaryDirectory()
        self.addCleanup(root.cleanup)
        self.assert_served(self.serve(python=["/usr/bin/env", path, "unshare", "-m", "sh", "-c", EMPTY_ROOT, "sh", root.name, str(self.folder),
                                              sys.base_prefix, str(NOBODY), "/usr/bin/env", "-i", "WEBSEARCH_ALLOW_PRIVATE=127.0.0.1/32",
                                              "WEBSEARCH_FETCH_PROVIDERS=local", os.path.realpath(sys.executable)]))
        self.assertEqual(os.listdir(root.name), [])

    def test_command_line_needs_no_home(self) -> None:
        status, text, errors = self.run_file("websearch.py", "doctor", "--json", settings={"TAVILY_API_KEY": "tvly-canary"})
        self.assertEqual((status, errors, json.loads(text)["search_chain"][0]), (0, "", "tavily"))
        program = ("import sys; sys.path.insert(0, sys.argv[1]); import websearch\n"
                   "for command in ('init', 'login', 'logout', 'status'): print(command, websearch.main([command]))")
        done = subprocess.run([sys.executable, "-I", "-S", "-c", program, str(self.folder)], env={}, capture_output=True, timeout=60)
        for words in (b"init 1", b"login 1", b"nobody was logged in", b"logout 0", b"status 1"):
            self.assertIn(words, done.stdout)
        self.assertRegex(done.stderr, rb"^[^\n]*WEBSEARCH_CONFIG[^\n]*\n[^\n]*GROK_SEARCH_AUTH_FILE[^\n]*\n$")


if __name__ == "__main__":
    unittest.main()
