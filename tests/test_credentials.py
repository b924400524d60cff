"""Credentials: the token file, its refresh by threads and processes, the three logins."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from typing import Any, Dict, List
from urllib.parse import parse_qs, parse_qsl, urlsplit

import websearch
from tests.support import Loopback, Reply, closed_port, wait_until

PROJECT = os.path.dirname(os.path.abspath(websearch.__file__))
ROTATED = {"access_token": "access-two", "refresh_token": "refresh-two", "token_type": "Bearer", "expires_in": 21600}
INVALID_GRANT = Reply(400, {"error": "invalid_grant", "error_description": "Refresh token has been revoked"})


def post(request: websearch.Request, deadline: websearch.Deadline) -> websearch.Response:
    """A plain POST that follows no redirect, as the orchestrator passes one in."""
    url = urlsplit(request.url)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=deadline.remaining())
    try:
        connection.request(request.method, url.path, request.body, dict(request.headers))
        reply = connection.getresponse()
        headers = {name.lower(): value for name, value in reply.getheaders()}
        return websearch.Response(request.url, reply.status, headers, reply.read())
    except socket.timeout:
        raise websearch.DeadlineExpired from None
    finally:
        connection.close()


def fields_of(request: Any) -> Dict[str, str]:
    """The form that a token endpoint was sent."""
    return dict(parse_qsl(request.body.decode()))


def jwt(claims: Dict[str, Any]) -> str:
    """An unsigned JWT with these claims."""
    def part(value: Dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
    return f"{part({'alg': 'none'})}.{part(claims)}.sig"


class TokenCase(unittest.TestCase):
    """A folder with a token file that has ended, and an authorization server on loopback."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "grok-oauth.json")
        self.server = Loopback({"/oauth2/token": ROTATED})
        self.addCleanup(self.server.close)
        self.endpoints = websearch.oauth_endpoints({"WEBSEARCH_OAUTH_BASE": self.server.url()})
        self.write(access_token="access-one", refresh_token="refresh-one", expires_at=1_000)

    def write(self, **fields: Any) -> None:
        """Puts a private token file in place."""
        websearch.replace_file(self.path, json.dumps(fields).encode())

    def stored(self) -> Dict[str, Any]:
        """What the token file holds."""
        stored = json.loads(Path(self.path).read_bytes())
        assert isinstance(stored, dict)
        return stored

    def token(self, **arguments: Any) -> websearch.OAuthToken:
        """The token object of this file."""
        return websearch.OAuthToken(self.path, "client", self.endpoints, **arguments)

    def access(self, token: websearch.OAuthToken) -> str:
        """An access token, by whatever it takes."""
        return token.access_token(post, websearch.Deadline(10))

    def failure(self, token: websearch.OAuthToken) -> websearch.WebError:
        """The error instead of a token."""
        with self.assertRaises(websearch.WebError) as caught:
            self.access(token)
        return caught.exception


class RefreshTest(TokenCase):
    def test_a_token_that_holds_is_used_without_any_request(self) -> None:
        self.write(access_token="access-one", refresh_token="refresh-one", expires_at=time.time() + 3_600)

        self.assertEqual(self.access(self.token()), "access-one")

        self.assertEqual(self.server.requests, [])

    def test_a_token_that_ends_within_two_minutes_is_refreshed(self) -> None:
        self.write(access_token="access-one", refresh_token="refresh-one", expires_at=10_119, client_id="stored")

        access = self.access(self.token(clock=lambda: 10_000.0))

        self.assertEqual(access, "access-two")
        self.assertEqual([fields_of(request) for request in self.server.requests],
                         [{"grant_type": "refresh_token", "refresh_token": "refresh-one", "client_id": "stored"}])
        self.assertEqual(self.stored(), {
            "access_token": "access-two", "refresh_token": "refresh-two", "expires_at": 31_600,
            "last_refresh": "1970-01-01T02:46:40Z", "client_id": "stored"})
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o600)

    def test_reply_without_refresh_token_and_life_time_keeps_the_old_and_is_asked_for_once(self) -> None:
        for reply, refresh in (({"access_token": "access-two", "token_type": "Bearer"}, "refresh-one"),
                               ({"access_token": "access-two", "refresh_token": None, "expires_in": None}, "refresh-one"),
                               ({"access_token": "access-two", "refresh_token": "refresh-three", "expires_in": "3600"},
                                "refresh-three")):
            with self.subTest(reply=reply):
                self.write(access_token="access-one", refresh_token="refresh-one", expires_at=1_000)
                self.server.answer("/oauth2/token", reply)
                token, before = self.token(), len(self.server.requests)

                accesses = [self.access(token) for _ in range(3)]

                self.assertEqual(accesses, ["access-two"] * 3)
                self.assertEqual(len(self.server.requests) - before, 1)
                self.assertEqual(self.stored()["refresh_token"], refresh)

    def test_life_time_comes_from_the_jwt_when_the_reply_has_none(self) -> None:
        access = jwt({"exp": 20_000})
        self.server.answer("/oauth2/token", {"access_token": access})

        self.access(self.token(clock=lambda: 10_000.0))

        self.assertEqual(self.stored()["expires_at"], 20_000)
        self.assertEqual(websearch.read_token(self.path).expires_at, 20_000)

    def test_clock_ahead_of_the_server_does_not_refresh_before_every_call(self) -> None:
        self.server.answer("/oauth2/token", {"access_token": jwt({"exp": 9_000}), "expires_in": None})
        token = self.token(clock=lambda: 10_000.0)

        self.access(token)

        self.assertIsNone(self.stored()["expires_at"])

    def test_life_time_of_a_minute_does_not_refresh_before_every_call(self) -> None:
        self.server.answer("/oauth2/token", {**ROTATED, "expires_in": 60})
        token = self.token(clock=lambda: 10_000.0)

        accesses = [self.access(token), self.access(token)]

        self.assertEqual((accesses, len(self.server.requests)), (["access-two"] * 2, 1))

    def test_auth_json_of_grok_search_rs_is_read_and_its_other_fields_stay(self) -> None:
        self.write(access_token=jwt({"exp": 5_000}), refresh_token="refresh-one", id_token="i", base_url="https://api.x.ai/v1",
                   token_endpoint="https://elsewhere.example/token", last_refresh="2026-11-01T10:00:00.123456Z")

        access = self.access(self.token())

        self.assertEqual((access, len(self.server.requests)), ("access-two", 1))
        self.assertEqual((self.stored()["base_url"], self.stored()["id_token"]), ("https://api.x.ai/v1", "i"))

    def test_end_is_read_in_seconds_milliseconds_text_and_iso(self) -> None:
        for value, seconds in ((1_800_000_000, 1_800_000_000), (1_800_000_000_000, 1_800_000_000), ("1800000000", 1_800_000_000),
                               ("2027-01-15T08:00:00Z", 1_800_000_000), ("2027-01-15T09:00:00.5+01:00", 1_800_000_000),
                               (None, None), ("soon", None), (-1, None), (True, None), ([], None)):
            with self.subTest(value=value):
                self.write(access_token="opaque", refresh_token="refresh-one", expires_at=value)
                self.assertEqual(websearch.read_token(self.path).expires_at, seconds)

    def test_two_threads_share_one_refresh(self) -> None:
        self.server.answer("/oauth2/token", Reply(200, ROTATED, delay_seconds=0.2), INVALID_GRANT)
        token, accesses = self.token(), []
        threads = [threading.Thread(target=lambda: accesses.append(self.access(token))) for _ in range(4)]

        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)

        self.assertEqual((accesses, len(self.server.requests)), (["access-two"] * 4, 1))

    def test_dead_grant_is_asked_for_once_and_the_file_stays(self) -> None:
        self.server.answer("/oauth2/token", INVALID_GRANT)
        before, token = Path(self.path).read_bytes(), self.token()

        first, second = self.failure(token), self.failure(token)

        self.assertEqual((first.code, first.hint), (websearch.WEB_PROVIDER_AUTH_ERROR,
                                                    "Log in again: python3 websearch.py login"))
        self.assertEqual((second.code, second.message), (first.code, first.message))
        self.assertIn("invalid_grant", first.message)
        self.assertEqual((len(self.server.requests), Path(self.path).read_bytes()), (1, before))

    def test_new_login_revives_a_dead_grant(self) -> None:
        self.server.answer("/oauth2/token", INVALID_GRANT, ROTATED)
        token = self.token()
        self.failure(token)
        self.write(access_token="", refresh_token="refresh-new", expires_at=1_000)

        self.assertEqual(self.access(token), "access-two")

    def test_grant_that_another_program_has_rotated_meanwhile_is_used(self) -> None:
        def rotate(request: Any) -> Reply:
            self.write(access_token="theirs", refresh_token="refresh-theirs", expires_at=time.time() + 3_600)
            return INVALID_GRANT
        self.server.answer("/oauth2/token", rotate)

        self.assertEqual(self.access(self.token()), "theirs")

    def test_server_that_fails_or_redirects_is_named_and_the_file_stays(self) -> None:
        before = Path(self.path).read_bytes()
        redirect = Reply(302, headers=[("Location", "http://elsewhere.example/stolen?x=refresh-one")])
        for reply, code, words in ((Reply(503, "down"), websearch.WEB_PROVIDER_ERROR, "127.0.0.1 answered 503"),
                                   (redirect, websearch.WEB_PROVIDER_ERROR, "redirected to elsewhere.example"),
                                   (Reply(429, {"error": "slow"}), websearch.WEB_PROVIDER_RATE_LIMITED, "429 (slow)"),
                                   (Reply(401, {"error": "refresh-one <b>"}), websearch.WEB_PROVIDER_AUTH_ERROR, "401"),
                                   (Reply(200, "<html>"), websearch.WEB_PROVIDER_RESPONSE_INVALID, "without a token"),
                                   (Reply(200, ["x"]), websearch.WEB_PROVIDER_RESPONSE_INVALID, "without a token")):
            with self.subTest(words=words):
                self.server.answer("/oauth2/token", reply)

                error = self.failure(self.token())

                self.assertEqual(error.code, code)
                self.assertIn(words, error.message)
                self.assertNotIn("refresh-one", error.message)
        self.assertEqual(Path(self.path).read_bytes(), before)

    def test_token_that_still_holds_for_a_minute_outlives_a_failing_server(self) -> None:
        self.write(access_token="access-one", refresh_token="refresh-one", expires_at=time.time() + 60)
        self.server.answer("/oauth2/token", Reply(503, "down"))

        self.assertEqual(self.access(self.token()), "access-one")

    def test_cancelled_call_returns_at_once_and_the_refresh_is_saved_all_the_same(self) -> None:
        self.server.answer("/oauth2/token", Reply(200, ROTATED, delay_seconds=0.3))
        deadline, codes = websearch.Deadline(10), []

        def call() -> None:
            try:
                self.token().access_token(post, deadline)
            except websearch.WebError as error:
                codes.append(error.code)
        caller = threading.Thread(target=call)
        caller.start()
        self.server.wait_for_requests(1)

        deadline.cancel()
        caller.join(0.2)

        self.assertEqual((caller.is_alive(), codes), (False, [websearch.WEB_ABORTED]))
        wait_until(lambda: self.stored()["refresh_token"] == "refresh-two")

    def test_slow_server_is_waited_for_within_the_deadline(self) -> None:
        self.server.answer("/oauth2/token", Reply(200, ROTATED, delay_seconds=0.5))
        started = time.monotonic()

        with self.assertRaises(websearch.WebError) as caught:
            self.token().access_token(post, websearch.Deadline(0.1))

        self.assertEqual(caught.exception.code, websearch.WEB_PROVIDER_TIMEOUT)
        self.assertLess(time.monotonic() - started, 0.4)
        wait_until(lambda: self.stored()["refresh_token"] == "refresh-two")

    def test_refused_token_is_replaced_once_and_never_again_when_it_is_new(self) -> None:
        self.write(access_token="access-one", refresh_token="refresh-one", expires_at=None)
        token = self.token()

        second = token.refreshed("access-one", post, websearch.Deadline(10))
        late = token.refreshed("access-one", post, websearch.Deadline(10))
        with self.assertRaises(websearch.WebError) as caught:
            token.refreshed("access-two", post, websearch.Deadline(10))

        self.assertEqual((second, late, len(self.server.requests)), ("access-two", "access-two", 1))
        self.assertEqual(caught.exception.code, websearch.WEB_PROVIDER_AUTH_ERROR)

    @unittest.skipIf(os.name != "posix" or os.geteuid() == 0, "root may write everywhere")
    def test_refresh_token_is_not_spent_when_the_new_one_could_not_be_kept(self) -> None:
        os.chmod(os.path.dirname(self.path), 0o500)
        self.addCleanup(os.chmod, os.path.dirname(self.path), 0o700)

        error = self.failure(self.token())

        self.assertEqual((error.code, self.server.requests), (websearch.WEB_PROVIDER_CREDENTIAL_MISSING, []))

    def test_tokens_are_known_to_the_redactor_and_to_no_repr(self) -> None:
        self.server.answer("/oauth2/token", {**ROTATED, "access_token": "secret-access-9", "refresh_token": "secret-next-9"})

        self.access(self.token())

        self.assertEqual(websearch.redact("x secret-access-9 secret-next-9 refresh-one"), "x [redacted] [redacted] [redacted]")
        self.assertEqual(repr(websearch.read_token(self.path)), "Token()")


class TokenFileTest(TokenCase):
    def refusal(self) -> str:
        """Why the token file is not read."""
        with self.assertRaises(websearch.WebError) as caught:
            websearch.read_token(self.path)
        self.assertEqual(caught.exception.code, websearch.WEB_PROVIDER_CREDENTIAL_MISSING)
        return caught.exception.message

    def test_missing_file_says_how_to_log_in(self) -> None:
        os.unlink(self.path)
        self.assertIn("there is no token file", self.refusal())
        self.assertEqual(websearch.auth_status(self.path)["logged_in"], False)

    def test_file_that_others_can_read_is_refused(self) -> None:
        for mode in (0o640, 0o604, 0o620):
            os.chmod(self.path, mode)
            self.assertIn("can be read by others", self.refusal())

    def test_symbolic_link_is_refused(self) -> None:
        os.rename(self.path, self.path + ".real")
        os.symlink(self.path + ".real", self.path)
        self.assertIn("symbolic link", self.refusal())

    @unittest.skipUnless(os.name == "posix" and os.geteuid() == 0, "only root can give a file away")
    def test_file_of_another_user_is_refused(self) -> None:
        os.chown(self.path, 12_345, 12_345)
        self.assertIn("another user", self.refusal())

    def test_folder_pipe_large_file_and_junk_are_refused(self) -> None:
        for content, words in ((b" " * 70_000, "too large"), (b"{", "holds no token"), (b"[]", "holds no token"),
                               (b'{"access_token": 5}', "holds no token"), (b"\xff\xfe", "holds no token")):
            websearch.replace_file(self.path, content)
            self.assertIn(words, self.refusal())
        os.unlink(self.path)
        os.mkfifo(self.path, 0o600)
        self.assertIn("no regular file", self.refusal())

    def test_new_file_and_folder_are_private_under_any_umask(self) -> None:
        program = ("import os, sys, websearch; os.umask(0); websearch._private_folder(sys.argv[1]);"
                   "websearch.replace_file(sys.argv[1], b'{}')")
        path = os.path.join(os.path.dirname(self.path), "websearch-mcp", "grok-oauth.json")

        subprocess.run([sys.executable, "-c", program, path], cwd=PROJECT, check=True, timeout=20)

        self.assertEqual([os.stat(name).st_mode & 0o777 for name in (path, os.path.dirname(path))], [0o600, 0o700])

    def test_kill_at_any_point_of_a_write_leaves_the_old_or_the_new_file(self) -> None:
        contents = [Path(self.path).read_bytes(), *(bytes([letter]) * 300_000 for letter in b"ab")]
        program = ("import sys, websearch\nprint(flush=True)\nwhile True:\n for letter in b'ab':\n"
                   "  websearch.replace_file(sys.argv[1], bytes([letter]) * 300_000)")
        for number in range(6):
            child = subprocess.Popen([sys.executable, "-c", program, self.path], cwd=PROJECT, stdout=subprocess.PIPE)
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(0.01 + number * 0.0037)
            child.send_signal(signal.SIGKILL)
            child.wait()
            child.stdout.close()
            self.assertTrue(Path(self.path).read_bytes() in contents, "neither the old nor the new file")

    def test_next_refresh_removes_what_a_killed_one_left(self) -> None:
        litter = os.path.join(os.path.dirname(self.path), ".grok-oauth.json.abc.tmp")
        Path(litter).write_bytes(b"{")

        self.access(self.token())

        self.assertEqual(sorted(os.listdir(os.path.dirname(self.path))), ["grok-oauth.json", "grok-oauth.json.lock"])

    def test_status_tells_the_state_and_no_token(self) -> None:
        status = websearch.auth_status(self.path, lambda: 900.0)

        self.assertEqual(status, {"path": self.path, "logged_in": True, "expires_at": "1970-01-01T00:16:40Z", "expired": False,
                                  "can_refresh": True, "client_id": "", "problem": ""})

    def test_logout_removes_the_file_and_says_whether_there_was_one(self) -> None:
        self.assertEqual([websearch.logout(self.path), websearch.logout(self.path)], [True, False])
        self.assertFalse(os.path.exists(self.path))

    def test_path_is_beside_the_settings_file_unless_named(self) -> None:
        for environ, path in (({"HOME": "/h"}, "/h/.config/websearch-mcp/grok-oauth.json"), ({}, ""),
                              ({"HOME": "/h", "WEBSEARCH_CONFIG": "/etc/ws/env"}, "/etc/ws/grok-oauth.json"),
                              ({"HOME": "/h", "GROK_SEARCH_AUTH_FILE": "~/auth.json"}, "/h/auth.json"),
                              ({"GROK_SEARCH_AUTH_FILE": "/x/auth.json"}, "/x/auth.json")):
            self.assertEqual(websearch.token_path(websearch.Settings.from_env(environ)), path)


class OriginTest(unittest.TestCase):
    def test_endpoints_are_xais_unless_a_loopback_base_is_named(self) -> None:
        for base, token in (("", "https://auth.x.ai/oauth2/token"), ("http://127.0.0.1:99/", "http://127.0.0.1:99/oauth2/token"),
                            ("https://evil.example", "https://auth.x.ai/oauth2/token"),
                            ("http://127.0.0.1.evil.example:80", "https://auth.x.ai/oauth2/token"),
                            ("http://127.0.0.1:80@evil.example", "https://auth.x.ai/oauth2/token"),
                            ("http://localhost:80", "https://auth.x.ai/oauth2/token")):
            self.assertEqual(websearch.oauth_endpoints({"WEBSEARCH_OAUTH_BASE": base}).token, token)

    def test_access_token_goes_to_the_official_host_only(self) -> None:
        test = {"WEBSEARCH_OAUTH_BASE": "http://127.0.0.1:1"}
        for url, environ, may in (("https://api.x.ai/v1", {}, True), ("https://api.x.ai:443", {}, True),
                                  ("http://api.x.ai/v1", {}, False), ("https://api.x.ai.evil.example/v1", {}, False),
                                  ("https://gateway.example/v1", test, False), ("http://127.0.0.1:5/v1", {}, False),
                                  ("http://127.0.0.1:5/v1", test, True)):
            self.assertEqual(websearch.may_receive_token(url, environ), may)

    def test_oauth_with_a_gateway_is_refused_before_any_request(self) -> None:
        settings = websearch.Settings.from_env({"HOME": "/nowhere", "GROK_SEARCH_URL": "https://gateway.example/v1"})

        with self.assertRaises(websearch.WebError) as caught:
            websearch.oauth_token(settings).access_token(post, websearch.Deadline(1))

        self.assertEqual(caught.exception.code, websearch.WEB_PROVIDER_AUTH_ERROR)


class LoginTest(TokenCase):
    def setUp(self) -> None:
        super().setUp()
        os.unlink(self.path)
        self.shown: List[str] = []
        self.server.answer("/oauth2/token", {"access_token": "access-one", "refresh_token": "refresh-one",
                                             "token_type": "Bearer", "expires_in": 21600})

    def client(self) -> websearch.OAuthClient:
        """Who logs in, at the server on loopback."""
        return websearch.OAuthClient(self.path, "client", self.endpoints, post)

    def shown_url(self) -> str:
        """The address that the user is to open."""
        text = wait_until(lambda: next((text for text in self.shown if "/authorize" in text), ""))
        return next(line for line in str(text).splitlines() if "/authorize" in line)

    def send(self, port: int, method: str, target: str, host: str = "") -> int:
        """The status that the listener answers with."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request(method, target, headers={"Host": host} if host else {})
        reply = connection.getresponse()
        page = reply.read().decode()
        connection.close()
        self.assertNotIn("EVIL", page)
        self.assertEqual(reply.getheader("Cache-Control"), "no-store")
        return reply.status

    def test_stray_callbacks_do_not_end_the_login(self) -> None:
        thread = threading.Thread(target=websearch.login_loopback, args=(self.client(), self.shown.append, 0))
        thread.start()
        url = self.shown_url()
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        port, state = urlsplit(query["redirect_uri"]).port or 0, query["state"]
        silent = socket.create_connection(("127.0.0.1", port))  # as browsers open them in advance
        large = socket.create_connection(("127.0.0.1", port))
        large.sendall(b"GET /callback HTTP/1.1\r\nX: " + b"x" * 17_000)

        statuses = [self.send(port, *request) for request in (
            ("GET", "/favicon.ico"), ("GET", "/callback"), ("GET", "/callback?code=EVIL&state=WRONG"),
            ("GET", "/callback?error=access_denied&state=WRONG"), ("HEAD", "/callback"),
            ("GET", f"/callback?code=EVIL&state={state}", f"evil.example:{port}"),
            ("GET", f"/callback?code=EVIL&state={state}&state=WRONG"), ("POST", f"/callback?code=EVIL&state={state}"))]
        refused = large.recv(20)
        with self.assertRaises(OSError):
            socket.create_connection(("127.0.0.2", port), timeout=1)
        last = self.send(port, "GET", f"/callback?code=GOOD-CODE&state={state}")
        thread.join(10)
        silent.close()
        large.close()

        self.assertEqual(([status // 100 for status in statuses], last), ([4] * 8, 200))
        self.assertTrue(refused.startswith(b"HTTP/1.1 4"))
        self.assertEqual(len(self.server.requests), 1)
        sent = fields_of(self.server.requests[0])
        challenge = base64.urlsafe_b64encode(hashlib.sha256(sent.pop("code_verifier").encode()).digest()).rstrip(b"=").decode()
        self.assertEqual(sent, {"grant_type": "authorization_code", "code": "GOOD-CODE", "client_id": "client",
                                "redirect_uri": query["redirect_uri"]})
        self.assertEqual((query["code_challenge"], query["code_challenge_method"], query["response_type"]),
                         (challenge, "S256", "code"))
        self.assertEqual(query["redirect_uri"], f"http://127.0.0.1:{port}/callback")
        self.assertEqual((self.stored()["access_token"], os.stat(self.path).st_mode & 0o777), ("access-one", 0o600))
        for secret in ("GOOD-CODE", "access-one", "refresh-one"):
            self.assertNotIn(secret, "".join(self.shown))

    def test_refusal_with_the_right_state_ends_the_login(self) -> None:
        codes: List[str] = []

        def run() -> None:
            try:
                websearch.login_loopback(self.client(), self.shown.append, 0)
            except websearch.WebError as error:
                codes.append(error.message)
        thread = threading.Thread(target=run)
        thread.start()
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.shown_url()).query).items()}
        port = urlsplit(query["redirect_uri"]).port or 0

        status = self.send(port, "GET", f"/callback?error=access_denied&state={query['state']}")
        thread.join(10)

        self.assertEqual((status, codes, self.server.requests), (200, ["the login was refused (access_denied)"], []))

    def test_login_that_nobody_finishes_ends_in_time(self) -> None:
        with self.assertRaises(websearch.WebError) as caught:
            websearch.login_loopback(self.client(), self.shown.append, 0, seconds=0.1)
        self.assertEqual(caught.exception.code, websearch.WEB_PROVIDER_TIMEOUT)

    def test_port_that_is_taken_is_named(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen(1)
            port = taken.getsockname()[1]
            with self.assertRaises(websearch.WebError) as caught:
                websearch.login_loopback(self.client(), self.shown.append, port)
        self.assertIn(f"port {port}", caught.exception.message)

    def test_manual_login_takes_the_address_or_the_code(self) -> None:
        def pasted(form: str) -> str:
            state = parse_qs(urlsplit(self.shown_url()).query)["state"][0]
            return form.replace("STATE", state)
        for form in ("http://127.0.0.1:56121/callback?code=GOOD&state=STATE", " GOOD#STATE ", "GOOD", "code=GOOD&state=STATE"):
            self.shown.clear()

            websearch.login_manual(self.client(), self.shown.append, lambda _, form=form: pasted(form))

            self.assertEqual(fields_of(self.server.requests[-1])["code"], "GOOD")
            self.assertEqual(self.stored()["access_token"], "access-one")

    def test_pasted_text_of_another_login_or_without_code_is_refused(self) -> None:
        for text in ("http://127.0.0.1:56121/callback?code=EVIL&state=WRONG", "GOOD#WRONG", "", "two words",
                     "http://127.0.0.1:56121/callback?code=EVIL", "?error=access_denied&state=s"):
            with self.subTest(text=text), self.assertRaises(websearch.WebError) as caught:
                websearch.code_of(text, "s")
            self.assertEqual(caught.exception.code, websearch.WEB_INVALID_ARGUMENT)
            self.assertNotIn("EVIL", caught.exception.message)

    def test_device_login_slows_down_when_told_and_stores_the_token(self) -> None:
        self.server.answer("/oauth2/device/code", {
            "device_code": "device-secret", "user_code": "ABCD-EFGH", "verification_uri": self.server.url("/device"),
            "expires_in": 600, "interval": 2})
        self.server.answer("/oauth2/token", Reply(400, {"error": "authorization_pending"}), Reply(400, {"error": "slow_down"}),
                           Reply(503, "busy"), {"access_token": "access-one", "refresh_token": "refresh-one"})
        waits: List[float] = []

        websearch.login_device(self.client(), self.shown.append, wait=waits.append)

        self.assertEqual(waits, [2, 2, 7, 7])
        self.assertEqual(self.shown, [f"Open {self.server.url('/device')} on any device and enter the code ABCD-EFGH"])
        self.assertEqual(fields_of(self.server.requests[-1]), {
            "grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": "device-secret",
            "client_id": "client"})
        self.assertEqual(self.stored()["refresh_token"], "refresh-one")

    def test_device_login_that_is_denied_or_expired_says_so(self) -> None:
        self.server.answer("/oauth2/device/code", {"device_code": "device-secret", "user_code": "A",
                                                   "verification_uri": self.server.url("/device")})
        for word in ("access_denied", "expired_token"):
            self.server.answer("/oauth2/token", Reply(400, {"error": word}))
            with self.assertRaises(websearch.WebError) as caught:
                websearch.login_device(self.client(), self.shown.append, wait=lambda _: None)
            self.assertIn(word, caught.exception.message)
        self.assertFalse(os.path.exists(self.path))

    def test_notice_must_be_agreed_to_unless_yes_or_an_own_client(self) -> None:
        environ = {"GROK_SEARCH_AUTH_FILE": self.path, "WEBSEARCH_OAUTH_BASE": self.server.url()}

        def login(own: Dict[str, str], answer: str, yes: bool) -> str:
            settings = websearch.Settings.from_env({**environ, **own})
            return websearch.login(settings, "manual", post, self.shown.append,
                                   lambda prompt: answer if "y/N" in prompt else "GOOD", yes=yes)

        with self.assertRaises(websearch.WebError) as caught:
            login({}, "", False)
        self.assertEqual((caught.exception.code, self.shown, self.server.requests),
                         (websearch.WEB_ABORTED, [websearch.OAUTH_NOTICE], []))
        self.assertEqual(login({}, "", True), self.path)
        self.assertEqual(login({}, "y", False), self.path)
        self.assertEqual(fields_of(self.server.requests[0])["client_id"], websearch.OAUTH_CLIENT_ID)
        self.shown.clear()
        self.assertEqual(login({"GROK_SEARCH_OAUTH_CLIENT_ID": "mine"}, "", False), self.path)
        self.assertNotIn(websearch.OAUTH_NOTICE, self.shown)

    def test_server_that_cannot_be_reached_is_an_error(self) -> None:
        endpoints = websearch.oauth_endpoints({"WEBSEARCH_OAUTH_BASE": f"http://127.0.0.1:{closed_port()}"})
        with self.assertRaises(OSError):  # of this `post`; the product's transport raises WebError
            websearch.login_device(self.client()._replace(endpoints=endpoints), self.shown.append)
        self.assertFalse(os.path.exists(self.path))


if __name__ == "__main__":
    unittest.main()
