"""Signing in over the real processes: the command line's login, status and logout, and servers that share a token file."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import List, Tuple
from urllib.parse import parse_qs, parse_qsl, urlsplit

from tests.support import ROOT, Loopback, McpProcess, Reply, bare_environment, loopback_settings

TOKEN = {"access_token": "AT1-canary", "refresh_token": "RT1-canary", "token_type": "Bearer", "expires_in": 21600}
ROTATED = {**TOKEN, "access_token": "AT2-canary", "refresh_token": "RT2-canary"}
ANSWER = {"id": "r", "status": "completed", "output": [
    {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok", "annotations": [
        {"type": "url_citation", "url": "https://docs.example.test/", "title": "Docs"}]}]}]}
STRAY = ["GET /favicon.ico", "GET /callback", "GET /callback?code=EVIL&state=WRONG",
         "GET /callback?error=access_denied&state=WRONG", "HEAD /callback"]


class LoginTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.server = Loopback({"/oauth2/token": TOKEN, "/v1/responses": ANSWER})
        self.addCleanup(self.server.close)
        self.settings = loopback_settings({"HOME": folder.name, "WEBSEARCH_OAUTH_BASE": self.server.url(),
                                           "GROK_SEARCH_AUTH_MODE": "oauth", "GROK_SEARCH_URL": self.server.url("/v1")})
        self.path = Path(folder.name, ".config", "websearch-mcp", "grok-oauth.json")

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """The command line, which has been started."""
        return subprocess.Popen([sys.executable, "-u", "-m", "websearch", *arguments], env=bare_environment(self.settings),
                                cwd=str(ROOT), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run_command(self, *arguments: str, typed: str = "") -> Tuple[int, str]:
        """(exit status, all that it printed)."""
        process = self.start(*arguments)
        text, _ = process.communicate(typed.encode(), timeout=30)
        return process.returncode, text.decode()

    def assert_stored(self, text: str) -> None:
        """The token file is there, private, and nothing of it or of the code was printed."""
        self.assertEqual(json.loads(self.path.read_text())["access_token"], "AT1-canary")
        self.assertEqual((self.path.stat().st_mode & 0o777, self.path.parent.stat().st_mode & 0o777), (0o600, 0o700))
        self.assertNotRegex(text, "canary|GOOD")

    def test_stray_callbacks_do_not_end_the_login_of_the_command(self) -> None:
        process = self.start("login", "--yes", "--port", "0")
        assert process.stdout is not None
        printed: List[str] = []
        while not printed or "/oauth2/authorize?" not in printed[-1]:
            printed.append(process.stdout.readline().decode())
        query = {name: values[0] for name, values in parse_qs(urlsplit(printed[-1].strip()).query).items()}
        target = urlsplit(query["redirect_uri"])
        with self.assertRaises(OSError):
            socket.create_connection(("127.0.0.2", target.port or 0), timeout=1)

        statuses = []
        for line in [*STRAY, f"GET /callback?code=GOOD&state={query['state']}"]:
            with socket.create_connection(("127.0.0.1", target.port or 0), timeout=5) as caller:
                caller.sendall(f"{line} HTTP/1.1\r\nHost: {target.netloc}\r\n\r\n".encode())
                statuses.append(int(caller.recv(100).split()[1]))
        rest, _ = process.communicate(timeout=30)

        self.assertEqual(([status // 100 for status in statuses], process.returncode), ([4, 4, 4, 4, 4, 2], 0))
        self.assertEqual(len(self.server.requests), 1)
        sent = dict(parse_qsl(self.server.requests[0].body.decode()))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(sent["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        self.assertEqual((sent["code"], sent["redirect_uri"], challenge), ("GOOD", query["redirect_uri"], query["code_challenge"]))
        self.assert_stored("".join(printed) + rest.decode())

    def test_manual_login_status_and_logout(self) -> None:
        before, _ = self.run_command("status")
        status, text = self.run_command("login", "--manual", typed="y\nGOOD\n")
        self.assertEqual((before, status), (1, 0), text)
        self.assertIn("breach of its terms", text)
        self.assert_stored(text)

        status, text = self.run_command("status", "--json")
        found = json.loads(text)
        self.assertEqual((status, found["logged_in"], found["expired"], found["can_refresh"]), (0, True, False, True))

        self.assertEqual([self.run_command("logout")[1].split()[0] for _ in range(2)], ["removed", "nobody"])
        self.assertFalse(self.path.exists())

    def test_device_login(self) -> None:
        self.server.answer("/oauth2/device/code", {"device_code": "canary-device", "user_code": "ABCD-EFGH", "interval": 1,
                                                   "verification_uri": self.server.url("/device"), "expires_in": 60})
        status, text = self.run_command("login", "--device", "--yes")
        self.assertEqual(status, 0, text)
        self.assertIn("enter the code ABCD-EFGH", text)
        self.assert_stored(text)

    def test_login_that_is_not_agreed_to_or_refused_is_one_line_and_status_1(self) -> None:
        self.server.answer("/oauth2/token", Reply(400, {"error": "invalid_grant"}))
        for typed, words in (("n\n", "not agreed to"), ("y\nGOOD\n", "invalid_grant")):
            status, text = self.run_command("login", "--manual", typed=typed)
            self.assertEqual((status, words in text, "Traceback" in text), (1, True, False), text)
        self.assertFalse(self.path.exists())

    def test_four_servers_that_share_an_expired_token_refresh_it_once(self) -> None:
        self.path.parent.mkdir(parents=True, mode=0o700)
        self.path.write_text(json.dumps({**TOKEN, "expires_at": 1}))
        os.chmod(self.path, 0o600)
        self.server.answer("/oauth2/token", Reply(200, ROTATED, delay_seconds=0.3), Reply(400, {"error": "invalid_grant"}))
        servers = [McpProcess(self.settings) for _ in range(4)]
        for server in servers:
            self.addCleanup(server.kill)
            server.initialize()

        ids = [(server, server.send_call("web_search", {"query": f"q{number}", "provider": "grok"}))
               for number, server in enumerate([*servers, servers[0]])]
        texts = set()
        with ThreadPoolExecutor() as pool:
            replies = pool.map(lambda pair: pair[0].reply_to(pair[1], 20.0), ids[:4])
            while not self.server.requests_to("/v1/responses"):
                texts.add(self.path.read_text())
            results = [reply["result"] for reply in replies] + [ids[4][0].reply_to(ids[4][1], 20.0)["result"]]

        self.assertEqual([result["isError"] for result in results], [False] * 5, results)
        refreshes = [dict(parse_qsl(request.body.decode())) for request in self.server.requests_to("/oauth2/token")]
        self.assertEqual([fields["refresh_token"] for fields in refreshes], ["RT1-canary"])
        self.assertEqual([request.header("authorization") for request in self.server.requests_to("/v1/responses")],
                         ["Bearer AT2-canary"] * 5)
        stored = json.loads(self.path.read_text())
        self.assertEqual((stored["access_token"], stored["refresh_token"], self.path.stat().st_mode & 0o777),
                         ("AT2-canary", "RT2-canary", 0o600))
        self.assertTrue(all(json.loads(text) for text in texts))
        for server in servers:
            self.assertIsNone(re.search(rb"canary", bytes(server.stdout + server.stderr)))


if __name__ == "__main__":
    unittest.main()
