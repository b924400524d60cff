"""The server as a client meets it: the real process over pipes, everything that it ever writes judged."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any, Dict, List, Optional

from tests.support import (
    PATIENCE_SECONDS,
    ROOT,
    Hold,
    Loopback,
    McpProcess,
    RawLoopback,
    bare_environment,
    closed_port,
    loopback_settings,
)

FAKES = ROOT / "tests" / "frame_with_fakes.py"
TOOL_NAMES = ["web_search", "get_sources", "web_fetch", "web_map"]
HANDSHAKE_REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
STATELESS = {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {}}
PING = b'{"jsonrpc":"2.0","id":"ping","method":"ping"}\n'
PONG = {"jsonrpc": "2.0", "id": "ping", "result": {}}


def fakes(**options: Any) -> McpProcess:
    """The frame with the scripted tool of frame_with_fakes.py."""
    return McpProcess(script=FAKES, **options)


def line(request_id: Any, method: str, params: Any = None) -> bytes:
    """One request as bytes."""
    message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {} if params is None else params}
    return json.dumps(message).encode() + b"\n"


def failure(result: Dict[str, Any]) -> Dict[str, Any]:
    """The error object of a failed call's result."""
    assert result["isError"] is True and "structuredContent" not in result, result
    error: Dict[str, Any] = json.loads(result["content"][0]["text"])["error"]
    return error


class FrameTestCase(unittest.TestCase):
    """Assertions on replies."""

    def assert_error(self, reply: Dict[str, Any], code: int, request_id: Any) -> None:
        """`reply` is a JSON-RPC error with this code under this id, and nothing more."""
        self.assertEqual({"jsonrpc", "id", "error"}, set(reply))
        self.assertEqual((code, request_id), (reply["error"]["code"], reply["id"]))
        self.assertIsInstance(reply["error"]["message"], str)
        self.assertLess(len(json.dumps(reply)), 600)


class OneServer(FrameTestCase):
    """Tests that share a process, as each of them leaves it as it was; it must end with status 0."""

    server: McpProcess

    @classmethod
    def make_server(cls) -> McpProcess:
        """The process to share."""
        return fakes()

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = cls.make_server()

    @classmethod
    def tearDownClass(cls) -> None:
        with cls.server as server:
            server.close_stdin()
            status = server.wait()
        assert status == 0, status


class JunkLines(OneServer):
    """One line that is no good request: the stated answer once, and the process answers ping afterwards."""

    def reply_to(self, data: bytes) -> Optional[Dict[str, Any]]:
        """The one answer to `data`; None when there is none."""
        messages = []
        self.server.send_bytes(data + b"\n" + PING)
        while PONG not in messages:
            messages.append(self.server.receive())
        self.assertLessEqual(len(messages), 2)
        self.assertEqual(PONG, messages.pop())
        return messages[0] if messages else None

    def assert_refused(self, code: int, request_id: Any, data: bytes) -> None:
        """`data` gets one error."""
        reply = self.reply_to(data)
        assert reply is not None, data[:80]
        self.assert_error(reply, code, request_id)

    def assert_ignored(self, data: bytes) -> None:
        """`data` gets no answer."""
        self.assertIsNone(self.reply_to(data))

    def test_text_that_is_no_json_is_a_parse_error(self) -> None:
        self.assert_refused(-32700, None, b"hello")

    def test_half_an_object_is_a_parse_error(self) -> None:
        self.assert_refused(-32700, None, b'{"jsonrpc":"2.0","id":7,"method":"tools/list"')

    def test_bytes_that_are_no_utf8_are_a_parse_error(self) -> None:
        self.assert_refused(-32700, None, b'\xff\xfe{"jsonrpc":"2.0","id":5,"method":"ping"}')

    def test_utf16_is_a_parse_error(self) -> None:
        self.assert_refused(-32700, None, '{"jsonrpc":"2.0","id":5,"method":"ping"}'.encode("utf-16-be"))

    def test_an_encoded_surrogate_is_a_parse_error(self) -> None:
        self.assert_refused(-32700, None, b'{"jsonrpc":"2.0","id":"\xed\xa0\x80","method":"ping"}')

    def test_nan_is_a_parse_error(self) -> None:
        self.assert_refused(-32700, None, b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}')

    def test_minus_infinity_is_a_parse_error(self) -> None:
        self.assert_refused(-32700, None, b'{"jsonrpc":"2.0","id":-Infinity,"method":"ping"}')

    def test_nesting_of_100000_unclosed_arrays_is_a_parse_error(self) -> None:
        self.assert_refused(-32700, None, b"[" * 100_000)

    def test_nesting_of_100000_balanced_arrays_is_a_parse_error(self) -> None:
        self.assert_refused(-32700, None, b"[" * 100_000 + b"]" * 100_000)
        self.assertIn(b"nested too deep", json.dumps(self.reply_to(b"[" * 10_000 + b"]" * 10_000)).encode())

    def test_nesting_of_100000_objects_is_a_parse_error(self) -> None:
        self.assert_refused(-32700, None, b'{"a":' * 100_000 + b"1" + b"}" * 100_000)

    def test_nesting_inside_params_is_a_parse_error(self) -> None:
        deep = b"[" * 100_000 + b"]" * 100_000
        self.assert_refused(-32700, None, b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + deep + b"}}")

    def test_an_integer_of_5000_digits_is_a_parse_error(self) -> None:
        self.assert_refused(-32700, None, b'{"jsonrpc":"2.0","id":' + b"9" * 5_000 + b',"method":"ping"}')

    def test_an_integer_of_a_million_digits_is_refused_at_once(self) -> None:
        started = time.monotonic()
        self.assert_refused(-32700, None, b"1" * 1_000_000)
        self.assertLess(time.monotonic() - started, 3)

    def test_a_number_is_an_invalid_request(self) -> None:
        self.assert_refused(-32600, None, b"42")

    def test_a_string_is_an_invalid_request(self) -> None:
        self.assert_refused(-32600, None, b'"ping"')

    def test_null_is_an_invalid_request(self) -> None:
        self.assert_refused(-32600, None, b"null")

    def test_an_array_is_one_invalid_request(self) -> None:
        self.assert_refused(-32600, None, b"[%s,%s]" % (PING.strip(), PING.strip()))

    def test_an_empty_array_is_an_invalid_request(self) -> None:
        self.assert_refused(-32600, None, b"[]")

    def test_an_empty_object_is_an_invalid_request(self) -> None:
        self.assert_refused(-32600, None, b"{}")

    def test_a_request_without_method_is_refused_under_its_id(self) -> None:
        self.assert_refused(-32600, 3, b'{"jsonrpc":"2.0","id":3}')

    def test_a_method_that_is_no_string_is_refused_under_its_id(self) -> None:
        self.assert_refused(-32600, "m", b'{"jsonrpc":"2.0","id":"m","method":["ping"]}')

    def test_another_version_of_jsonrpc_is_refused_under_its_id(self) -> None:
        self.assert_refused(-32600, 4, b'{"jsonrpc":"1.0","id":4,"method":"ping"}')

    def test_a_missing_version_of_jsonrpc_is_refused_under_its_id(self) -> None:
        self.assert_refused(-32600, 4, b'{"id":4,"method":"ping"}')

    def test_ids_of_a_wrong_type_are_never_sent_back(self) -> None:
        for wrong in (b"null", b"true", b"1.5", b"1.0", b"1e3", b"1e999", b"{}", b"[1]"):
            with self.subTest(id=wrong):
                self.assert_refused(-32600, None, b'{"jsonrpc":"2.0","id":' + wrong + b',"method":"ping"}')

    def test_notifications_are_never_answered(self) -> None:
        for method in (b"notifications/initialized", b"notifications/made_up", b"no/such", b"ping", b"tools/list"):
            with self.subTest(method=method):
                self.assert_ignored(b'{"jsonrpc":"2.0","method":"' + method + b'","params":[1]}')

    def test_a_call_without_id_is_not_run(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            sign = os.path.join(folder, "ran")
            call = {"name": "web_search", "arguments": {"touch": sign}}
            self.assert_ignored(json.dumps({"jsonrpc": "2.0", "method": "tools/call", "params": call}).encode())
            self.assertFalse(os.path.exists(sign))

    def test_answers_that_nobody_asked_for_are_passed_over(self) -> None:
        self.assert_ignored(b'{"jsonrpc":"2.0","id":1,"result":{}}')
        self.assert_ignored(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}')

    def test_params_that_are_no_object_are_refused_under_their_id(self) -> None:
        for params in (b"[1]", b"null", b'"x"', b"5"):
            with self.subTest(params=params):
                self.assert_refused(-32602, 8, b'{"jsonrpc":"2.0","id":8,"method":"ping","params":' + params + b"}")

    def test_an_unknown_method_is_not_echoed_at_length(self) -> None:
        self.assert_refused(-32601, 9, line(9, "x" * 100_000).strip())

    def test_unknown_members_and_meta_keys_are_ignored(self) -> None:
        extra = b'{"jsonrpc":"2.0","id":1,"method":"ping","x":[],"params":{"y":1,"_meta":{"z":{}}}}'
        self.assertEqual({"jsonrpc": "2.0", "id": 1, "result": {}}, self.reply_to(extra))

    def test_blank_lines_get_no_answer(self) -> None:
        self.assert_ignored(b"\n\r\n   \n\t\n")

    def test_a_byte_order_mark_before_the_first_message_is_tolerated(self) -> None:
        self.assertEqual({"jsonrpc": "2.0", "id": 1, "result": {}}, self.reply_to(b"\xef\xbb\xbf" + line(1, "ping")))


class Wire(OneServer):
    """How lines are cut, and that ids come back as they were."""

    def test_ids_come_back_with_type_and_value(self) -> None:
        ids: List[Any] = ["1", 1, 0, -3, 2**53 + 1, 2**63, 10**30, "req-é", "ü-😀-中", "", "\u2028", "a" * 10_000, "\ud800"]
        self.server.send_bytes(b"".join(line(one, "ping") for one in ids))
        replies = [self.server.receive() for _ in ids]
        self.assertEqual([(type(one), one) for one in ids], [(type(reply["id"]), reply["id"]) for reply in replies])

    def test_an_id_is_written_as_an_integer(self) -> None:
        self.server.send_bytes(b'{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}\n')
        self.server.receive()
        self.assertTrue(bytes(self.server.stdout).endswith(b'{"jsonrpc":"2.0","id":9007199254740993,"result":{}}\n'))

    def test_lines_end_at_newline_only(self) -> None:
        odd = "\u2028\u2029\x85"
        data = json.dumps({"jsonrpc": "2.0", "id": odd, "method": "ping"}, ensure_ascii=False).encode()
        self.server.send_bytes(data + b"\r\n" + PING)
        self.assertEqual([odd, "ping"], [self.server.receive()["id"] for _ in range(2)])

    def test_a_message_may_come_byte_by_byte(self) -> None:
        for byte in PING:
            self.server.send_bytes(bytes([byte]))
        self.assertEqual(PONG, self.server.receive())

    def test_a_valid_line_of_32_mb_is_answered(self) -> None:
        self.server.send_bytes(line(1, "ping", {"x": "y" * 32_000_000}) + PING)
        self.assertEqual([1, "ping"], [self.server.receive()["id"] for _ in range(2)])

    def test_an_invalid_line_of_32_mb_is_one_parse_error(self) -> None:
        self.server.send_bytes(b"y" * 32_000_000 + b"\n" + PING)
        self.assert_error(self.server.receive(), -32700, None)
        self.assertEqual(PONG, self.server.receive())

    def test_ten_thousand_requests_in_one_go_are_all_answered_in_order(self) -> None:
        self.server.send_bytes(b"".join(line(number, "ping") for number in range(10_000)))
        self.assertEqual(list(range(10_000)), [self.server.receive()["id"] for _ in range(10_000)])

    def test_a_last_line_without_newline_is_handled(self) -> None:
        with fakes() as server:
            self.assertEqual([PONG], server.run(PING.strip()))

    def test_a_last_line_that_is_cut_off_is_a_parse_error(self) -> None:
        with fakes() as server:
            messages = server.run(PING + b'{"jsonrpc":"2.0","id":1,"meth')
        self.assertEqual(PONG, messages[0])
        self.assert_error(messages[1], -32700, None)

    def test_odd_locales_change_nothing(self) -> None:
        odd = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0",
               "PYTHONIOENCODING": "ascii:strict"}
        data = json.dumps({"jsonrpc": "2.0", "id": "ü-😀-中", "method": "ping"}, ensure_ascii=False).encode()
        with fakes(settings=odd) as server:
            messages = server.run(b"\xff\xfe\r\n" + data + b"\r\n42\r\n" + PING)
        self.assertEqual([None, "ü-😀-中", None, "ping"], [message["id"] for message in messages])

    def test_a_line_over_the_limit_is_read_away_with_bounded_memory(self) -> None:
        piece = b"y" * 1_000_000
        with fakes() as server:
            for _ in range(150):
                server.send_bytes(piece)
            self.assertLess(server.resident_kib(), 110_000)
            server.send_bytes(b"\n" + PING)
            self.assert_error(server.receive(), -32700, None)
            self.assertEqual(PONG, server.receive())

    def test_nothing_is_written_before_the_first_request(self) -> None:
        with fakes() as server:
            time.sleep(0.2)
            self.assertEqual(b"", bytes(server.stdout + server.stderr))
            self.assertEqual({}, server.request("ping")["result"])


class Handshake(OneServer):
    """The four revisions that begin with initialize."""

    def test_each_revision_is_granted(self) -> None:
        for version in HANDSHAKE_REVISIONS:
            with self.subTest(version=version):
                result = self.server.initialize(version)
                self.assertEqual({"protocolVersion", "capabilities", "serverInfo", "instructions"}, set(result))
                self.assertEqual((version, {"tools": {}}), (result["protocolVersion"], result["capabilities"]))
                self.assertEqual("websearch-mcp", result["serverInfo"]["name"])
                self.assertEqual({}, self.server.request("ping")["result"])

    def test_other_versions_are_offered_the_newest_with_a_handshake(self) -> None:
        server = self.server
        for version in ("2026-07-28", "1.0", "", "2025-06-18 "):
            self.assertEqual("2025-11-25", server.initialize(version)["protocolVersion"])

    def test_a_version_that_is_no_string_is_refused(self) -> None:
        server = self.server
        for params in ({}, {"protocolVersion": 5}, {"protocolVersion": None}):
            self.assert_error(server.request("initialize", params), -32602, server.last_id)

    def test_client_info_and_capabilities_may_be_missing_and_initialize_may_come_twice(self) -> None:
        server = self.server
        for version in ("2025-06-18", "2024-11-05"):
            reply = server.request("initialize", {"protocolVersion": version})
            self.assertEqual(version, reply["result"]["protocolVersion"])

    def test_requests_before_initialize_are_served(self) -> None:
        with fakes() as server:
            self.assertEqual({}, server.request("ping")["result"])
            self.assertEqual(4, len(server.request("tools/list")["result"]["tools"]))
            self.assertFalse(server.call_tool("web_search", {"value": 1})["isError"])

    def test_the_first_line_of_the_instructions_fits_what_codex_shows(self) -> None:
        with McpProcess() as server:
            first = server.initialize()["instructions"].split("\n")[0]
        self.assertTrue(0 < len(first) <= 250, len(first))

    def test_methods_of_other_features_are_unknown(self) -> None:
        server = self.server
        server.initialize()
        for method in ("logging/setLevel", "prompts/list", "resources/list", "subscriptions/listen", "initialized"):
            self.assert_error(server.request(method, {}), -32601, server.last_id)


class Batches(OneServer):
    """Arrays are batches in 2025-03-26 and nowhere else."""

    def batch(self, version: str, *messages: Any) -> List[Dict[str, Any]]:
        """What the batch `messages` is answered by after a handshake with `version`."""
        server = self.server
        server.initialize(version)
        server.send(list(messages))
        server.send_bytes(PING)
        server.reply_to("ping")
        return server.receive_all(0.1)

    def test_a_batch_is_answered_under_2025_03_26(self) -> None:
        call = {"name": "web_search", "arguments": {"value": 5}}
        messages = self.batch(
            "2025-03-26",
            {"jsonrpc": "2.0", "id": 1, "method": "ping"},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
            7,
        )
        by_id = {message["id"]: message for message in messages}
        self.assertEqual({1, 2, None}, set(by_id))
        self.assertEqual(5, by_id[2]["result"]["structuredContent"]["value"])
        self.assert_error(by_id[None], -32600, None)

    def test_initialize_inside_a_batch_is_refused(self) -> None:
        params = {"protocolVersion": "2025-06-18"}
        messages = self.batch("2025-03-26", {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        self.assert_error(messages[0], -32600, 1)

    def test_an_empty_batch_is_one_invalid_request(self) -> None:
        messages = self.batch("2025-03-26")
        self.assertEqual(1, len(messages))
        self.assert_error(messages[0], -32600, None)

    def test_a_batch_is_one_invalid_request_elsewhere(self) -> None:
        for version in ("2024-11-05", "2025-06-18", "2025-11-25"):
            with self.subTest(version=version):
                ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
                messages = self.batch(version, ping, ping)
                self.assertEqual(1, len(messages))
                self.assert_error(messages[0], -32600, None)


class Stateless(OneServer):
    """Revision 2026-07-28: each request says for itself which revision it means."""

    def test_discover_says_what_there_is(self) -> None:
        server = self.server
        result = server.request("server/discover", {"_meta": STATELESS})["result"]
        instructions, info = result.pop("instructions"), result.pop("_meta")[SERVER_INFO_KEY]
        self.assertEqual(
            {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
             "ttlMs": 3_600_000, "cacheScope": "public"},
            result,
        )
        self.assertTrue(instructions)
        self.assertEqual("websearch-mcp", info["name"])

    def test_lists_and_results_carry_what_the_revision_wants(self) -> None:
        server = self.server
        listed = server.request("tools/list", {"_meta": STATELESS})["result"]
        call = {"name": "web_search", "arguments": {"value": 1}, "_meta": STATELESS}
        called = server.request("tools/call", call)["result"]
        failed = server.request("tools/call", {**call, "arguments": {"fail": "WebError"}})["result"]
        self.assertEqual({"tools", "resultType", "ttlMs", "cacheScope", "_meta"}, set(listed))
        self.assertEqual({"content", "structuredContent", "isError", "resultType", "_meta"}, set(called))
        self.assertEqual({"content", "isError", "resultType", "_meta"}, set(failed))

    def test_both_kinds_of_request_may_be_mixed(self) -> None:
        server = self.server
        server.request("server/discover", {"_meta": STATELESS})
        server.initialize("2025-06-18")
        self.assertNotIn("resultType", server.request("tools/list")["result"])
        self.assertIn("resultType", server.request("tools/list", {"_meta": STATELESS})["result"])
        self.assertEqual({}, server.request("ping")["result"])
        self.assertNotIn("ttlMs", server.request("tools/list", {"_meta": {"x": 1}})["result"])

    def test_another_version_is_told_which_there_are(self) -> None:
        server = self.server
        meta = {VERSION_KEY: "2031-01-01", CAPABILITIES_KEY: {}}
        error = server.request("tools/list", {"_meta": meta})["error"]
        self.assertEqual(-32022, error["code"])
        supported = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
        self.assertEqual({"supported": supported, "requested": "2031-01-01"}, error["data"])

    def test_incomplete_meta_is_refused(self) -> None:
        server = self.server
        for meta in (
            {VERSION_KEY: "2026-07-28"},
            {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: None},
            {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: []},
            {VERSION_KEY: 20260728, CAPABILITIES_KEY: {}},
            {VERSION_KEY: None, CAPABILITIES_KEY: {}},
        ):
            self.assert_error(server.request("tools/list", {"_meta": meta}), -32602, server.last_id)

    def test_discover_without_meta_is_answered_by_an_error(self) -> None:
        server = self.server
        for params in (None, {}, {"_meta": {}}, {"_meta": {CAPABILITIES_KEY: {}}}, {"_meta": 5}):
            self.assert_error(server.request("server/discover", params), -32602, server.last_id)

    def test_methods_that_were_removed_are_unknown(self) -> None:
        server = self.server
        for method in ("ping", "logging/setLevel", "subscriptions/listen", "initialize"):
            reply = server.request(method, {"_meta": STATELESS, "protocolVersion": "2025-06-18"})
            self.assert_error(reply, -32601, server.last_id)


class ListTools(OneServer):
    """tools/list of the real server."""

    @classmethod
    def make_server(cls) -> McpProcess:
        return McpProcess()

    def test_the_four_tools_come_in_one_page_and_in_order(self) -> None:
        server = self.server
        server.initialize()
        first, second = (server.request("tools/list", params)["result"] for params in (None, {"cursor": None}))
        self.assertEqual(TOOL_NAMES, [tool["name"] for tool in first["tools"]])
        self.assertEqual(first, second)

    def test_a_cursor_is_refused(self) -> None:
        server = self.server
        for cursor in ("", "x", 0, False, {}):
            reply = server.request("tools/list", {"cursor": cursor})
            self.assert_error(reply, -32602, server.last_id)

    def test_schemas_stay_within_what_model_apis_take(self) -> None:
        server = self.server
        reply = server.request("tools/list")
        self.assertLessEqual(len(json.dumps(reply, separators=(",", ":"))), 10 * 1024)
        for tool in reply["result"]["tools"]:
            self.assertEqual(
                {"name", "title", "description", "inputSchema", "outputSchema", "annotations"}, set(tool) - {"_meta"}
            )
            self.assertTrue(40 <= len(tool["description"]) <= 2000, tool["name"])
            self.assertIs(True, tool["annotations"]["readOnlyHint"])
            for schema in (tool["inputSchema"], tool["outputSchema"]):
                self.assertEqual("object", schema["type"])
                self.assertFalse(set(schema) & {"anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref", "$schema"})
                self.assertLessEqual(set(schema.get("required", ())), set(schema["properties"]))
                for name, value in schema["properties"].items():
                    self.assertRegex(name, r"\A[a-zA-Z0-9_.-]{1,64}\Z")
                    if schema is tool["inputSchema"]:
                        self.assertTrue(value.get("description"), (tool["name"], name))


class CallTools(OneServer):
    """tools/call, with the scripted tool."""

    def test_a_name_that_is_missing_unknown_or_no_string_is_refused(self) -> None:
        server = self.server
        for params in ({}, {"name": None}, {"name": 5}, {"name": ["web_search"]}, {"name": "no_such_tool"}):
            reply = server.request("tools/call", params)
            self.assert_error(reply, -32602, server.last_id)
            self.assertIn("tool", reply["error"]["message"])

    def test_arguments_may_be_absent_or_null(self) -> None:
        server = self.server
        for params in ({"name": "web_map"}, {"name": "web_map", "arguments": None}):
            self.assertIs(False, server.request("tools/call", params)["result"]["isError"])

    def test_arguments_that_are_no_object_are_refused_by_name(self) -> None:
        server = self.server
        for arguments in ("{}", [], 5, True):
            reply = server.request("tools/call", {"name": "web_map", "arguments": arguments})
            self.assert_error(reply, -32602, server.last_id)
            self.assertIn("arguments", reply["error"]["message"])

    def test_a_defect_is_an_error_result_and_tells_nothing_but_its_type(self) -> None:
        names = ("KeyError", "RecursionError", "MemoryError", "SystemExit", "KeyboardInterrupt")
        with fakes() as server:
            for name in names:
                error = failure(server.call_tool("web_search", {"fail": name}))
                self.assertEqual("WEB_INTERNAL_ERROR", error["code"])
            self.assertEqual({}, server.request("ping")["result"])
            server.close_stdin()
            self.assertEqual(0, server.wait())
        self.assertNotIn(b"canary", bytes(server.stdout + server.stderr))
        self.assertNotIn(b"Traceback", bytes(server.stderr))
        self.assertEqual([], [name for name in names if name.encode() not in bytes(server.stderr)])

    def test_a_failure_of_the_web_is_an_error_result(self) -> None:
        server = self.server
        error = failure(server.call_tool("web_search", {"fail": "WebError"}))
        self.assertEqual(("WEB_NO_RESULTS", "nothing found"), (error["code"], error["message"]))

    def test_a_result_that_is_no_json_is_a_defect(self) -> None:
        server = self.server
        self.assertEqual("WEB_INTERNAL_ERROR", failure(server.call_tool("web_search", {"value": "NaN"}))["code"])

    def test_lone_surrogates_never_reach_the_wire(self) -> None:
        text = 'a\ud800b\udc00c\U0001f680d\\ud800e"\\\ud83d\\'
        server = self.server
        result = server.call_tool("web_search", {"value": text})
        self.assertEqual('a\ufffdb\ufffdc\U0001f680d\\ud800e"\\\ufffd\\', result["structuredContent"]["value"])

    def test_line_separators_are_escaped_on_the_wire(self) -> None:
        text = "alpha\u2028beta\u2029gamma\x85delta\x0bepsilon\x0c\x1c\x1d\x1e \U0001f680"
        with fakes() as server:
            messages = server.run(line(1, "tools/call", {"name": "web_search", "arguments": {"value": text}}))
            self.assertEqual(1, len(bytes(server.stdout).decode().splitlines()))
        self.assertEqual(text, messages[0]["result"]["structuredContent"]["value"])

    def test_a_stray_print_goes_to_stderr(self) -> None:
        with fakes() as server:
            messages = server.run(line(1, "tools/call", {"name": "web_search", "arguments": {"print": "stray"}}))
            self.assertIn(b"stray", bytes(server.stderr))
        self.assertEqual([1], [message["id"] for message in messages])

    def test_a_result_of_ten_megabytes_arrives_whole(self) -> None:
        server = self.server
        result = server.call_tool("web_search", {"size": 10_000_000})
        self.assertEqual(10_000_000, len(result["structuredContent"]["text"]))


class Concurrency(OneServer):
    """Calls run side by side, and the reader never waits for one."""

    def test_64_calls_run_at_once_and_ping_does_not_wait(self) -> None:
        server = self.server
        server.call_tool("web_search", {})
        started = time.monotonic()
        ids = [server.send_call("web_search", {"sleep": 0.5}) for _ in range(64)]
        for _ in range(5):
            asked = time.monotonic()
            server.request("ping")
            self.assertLess(time.monotonic() - asked, 0.2)
        self.assertEqual(4, len(server.request("tools/list")["result"]["tools"]))
        self.assertLess(time.monotonic() - started, 0.5)
        for request_id in ids:
            self.assertFalse(server.reply_to(request_id)["result"]["isError"])
        self.assertLess(time.monotonic() - started, 1.5)

    def test_ping_is_answered_while_calls_compute(self) -> None:
        server = self.server
        for _ in range(8):
            server.send_call("web_search", {"burn": 1.0})
        delays = []
        for _ in range(10):
            asked = time.monotonic()
            server.request("ping")
            delays.append(time.monotonic() - asked)
            time.sleep(0.02)
        self.assertLess(sorted(delays)[len(delays) // 2], 0.1, delays)

    def test_a_call_that_finds_threads_and_queue_full_is_told_so(self) -> None:
        server = self.server
        server.send_bytes(b"".join(
            line(number, "tools/call", {"name": "web_search", "arguments": {"sleep": 30}}) for number in range(258)
        ))
        for number in (256, 257):
            error = failure(server.reply_to(number)["result"])
            self.assertEqual(("WEB_BUSY", True), (error["code"], error["retryable"]))
        self.assertEqual({}, server.request("ping")["result"])
        for number in range(258):
            server.cancel(number)
        self.assertFalse(server.call_tool("web_search", {})["isError"])
        self.assertEqual([], server.receive_all(0))

    def test_queued_calls_run_when_threads_get_free(self) -> None:
        with fakes() as server:
            messages = server.run(b"".join(
                line(number, "tools/call", {"name": "web_search", "arguments": {"sleep": 0.05, "value": number}})
                for number in range(200)
            ))
        self.assertEqual(set(range(200)), {message["result"]["structuredContent"]["value"] for message in messages})

    def test_an_id_used_twice_at_once_is_answered_twice(self) -> None:
        with fakes() as server:
            call = {"name": "web_search", "arguments": {"sleep": 0.1}}
            messages = server.run(line(1, "tools/call", call) + line(1, "tools/call", call))
        self.assertEqual([1, 1], [message["id"] for message in messages])

    def test_an_id_may_be_used_again(self) -> None:
        server = self.server
        for value in (1, 2):
            server.send_call("web_search", {"value": value}, id="same")
            self.assertEqual(value, server.reply_to("same")["result"]["structuredContent"]["value"])


class Cancellation(OneServer):
    """notifications/cancelled ends a call, and nothing more is written for it."""

    def test_a_running_call_ends_at_once_without_an_answer(self) -> None:
        with fakes() as server:
            server.send_call("web_search", {"sleep": 30}, id=5)
            server.request("ping")
            server.cancel(5)
            self.assertEqual({}, server.request("ping")["result"])
            self.assertFalse(server.call_tool("web_search", {})["isError"])
            started = time.monotonic()
            server.close_stdin()
            self.assertEqual(0, server.wait())
            self.assertLess(time.monotonic() - started, 0.8)  # nothing was waited for
            self.assertNotIn(5, [message["id"] for message in server.messages()])

    def test_a_call_that_does_not_heed_its_cancellation_is_not_answered_either(self) -> None:
        server = self.server
        server.send_call("web_search", {"stubborn": 0.15, "late": 0}, id=5, progress_token=5)
        server.cancel(5)
        time.sleep(0.3)
        self.assertEqual([], server.receive_all())

    def test_a_queued_call_is_never_run(self) -> None:
        server = self.server
        with tempfile.TemporaryDirectory() as folder:
            sign = os.path.join(folder, "ran")
            ids = [server.send_call("web_search", {"sleep": 0.4}) for _ in range(64)]
            server.send_call("web_search", {"touch": sign}, id="queued")
            server.cancel("queued")
            for request_id in ids:
                server.reply_to(request_id)
            server.call_tool("web_search", {})
            self.assertFalse(os.path.exists(sign))
            self.assertEqual([], server.receive_all(0))

    def test_a_late_cancellation_is_ignored(self) -> None:
        server = self.server
        server.send_call("web_search", {}, id=5)
        server.reply_to(5)
        server.cancel(5)
        self.assertFalse(server.call_tool("web_search", {})["isError"])

    def test_ids_match_by_type_and_value(self) -> None:
        server = self.server
        server.send_call("web_search", {"sleep": 0.3}, id=1)
        server.send_call("web_search", {"sleep": 0.3}, id="5")
        for wrong in ("1", 1.0, True, None, [1], {"id": 1}, 999, 5, "", "5 "):
            server.cancel(wrong)
        server.notify("notifications/cancelled")
        server.notify("notifications/cancelled", {})
        server.notify("notifications/cancelled", [1])
        self.assertFalse(server.reply_to(1)["result"]["isError"])
        self.assertFalse(server.reply_to("5")["result"]["isError"])

    def test_a_cancellation_may_carry_meta(self) -> None:
        server = self.server
        server.send_call("web_search", {"stubborn": 0.15}, id=5)
        server.notify("notifications/cancelled", {"requestId": 5, "_meta": STATELESS})
        time.sleep(0.3)
        self.assertEqual([], server.receive_all())

    def test_the_connection_of_a_cancelled_fetch_is_dropped_at_once(self) -> None:
        with RawLoopback(Hold()) as origin, McpProcess(loopback_settings()) as server:
            server.send_call("web_fetch", {"url": origin.url("/slow")}, id=5)
            origin.wait_for_requests()
            cancelled_at = time.monotonic()
            server.cancel(5)
            dropped_at = origin.wait_for_drop().at
            self.assertLess(dropped_at - cancelled_at, 0.3)
            self.assertEqual({}, server.request("ping")["result"])
            self.assertEqual([], server.receive_all(0.2))


class Progress(OneServer):
    """notifications/progress."""

    def progress_of(self, token: Any, arguments: Dict[str, Any]) -> List[Dict[str, Any]]:
        """The params of all progress that came before the answer."""
        server = self.server
        request_id = server.send_call("web_search", arguments, progress_token=token)
        server.reply_to(request_id)
        return [message["params"] for message in server.receive_all(0)]

    def test_progress_increases_and_comes_under_its_token(self) -> None:
        tokens = (0, "token", 2**60)
        for request_id in [self.server.send_call("web_search", {"report": [2, 0.26]}, progress_token=token) for token in tokens]:
            self.server.reply_to(request_id)
        seen = [message["params"] for message in self.server.receive_all(0)]
        self.assertEqual(6, len(seen))
        for token in tokens:
            own = [params for params in seen if (type(params["progressToken"]), params["progressToken"]) == (type(token), token)]
            self.assertEqual(["step 0", "step 1"], [params["message"] for params in own])
            self.assertLess(own[0]["progress"], own[1]["progress"])

    def test_at_most_four_a_second_are_sent(self) -> None:
        self.assertLessEqual(len(self.progress_of("t", {"report": [100, 0.005]})), 4)

    def test_none_comes_after_the_answer(self) -> None:
        self.assertEqual([], self.progress_of("t", {"late": 0.05}))
        self.assertEqual([], self.server.receive_all(0.2))

    def test_none_comes_without_a_valid_token(self) -> None:
        for token in (None, True, 1.5, [1], {}):
            with self.subTest(token=token):
                self.assertEqual([], self.progress_of(token, {"report": [2, 0]}))


class Ends(FrameTestCase):
    """The ways in which the process ends: always with status 0, soon, and with whole lines only."""

    def assert_ended(self, server: McpProcess, within_seconds: float, since: float) -> None:
        """The process ends in time, with status 0, silent stderr and whole lines."""
        self.assertEqual(0, server.wait())
        self.assertLess(time.monotonic() - since, within_seconds)
        self.assertEqual(b"", bytes(server.stderr))
        server.messages()

    def test_an_empty_input_ends_it_silently(self) -> None:
        with fakes() as server:
            self.assertEqual([], server.run(b""))
            self.assertEqual(b"", bytes(server.stderr))

    def test_what_was_piped_in_is_answered_before_the_end(self) -> None:
        with fakes() as server:
            since = time.monotonic()
            messages = server.run(line("init", "initialize", {"protocolVersion": "2025-06-18"}) + line(2, "tools/list"))
            self.assert_ended(server, 2, since)
        self.assertEqual(["init", 2], [message["id"] for message in messages])

    def test_calls_that_still_run_one_second_after_the_input_are_aborted(self) -> None:
        with fakes() as server:
            server.send_call("web_search", {"sleep": 0.3, "value": 1}, id="quick")
            server.send_call("web_search", {"sleep": 30}, id="slow")
            server.send_call("web_search", {"stubborn": 30}, id="stubborn")
            server.send_call("web_search", {"sleep": 30}, id="cancelled")
            server.cancel("cancelled")
            server.close_stdin()
            self.assert_ended(server, 2, time.monotonic())
            results = {message["id"]: message["result"] for message in server.messages()}
        self.assertEqual({"quick", "slow", "stubborn"}, set(results))
        self.assertEqual(1, results["quick"]["structuredContent"]["value"])
        self.assertEqual(["WEB_ABORTED"] * 2, [failure(results[name])["code"] for name in ("slow", "stubborn")])

    def test_the_end_of_input_does_not_wait_for_a_client_that_reads_no_more(self) -> None:
        with fakes(read_stdout=False) as server:
            server.send_call("web_search", {"size": 500_000})
            server.send_call("web_search", {"sleep": 30})
            server.wait_for_output()
            since = time.monotonic()
            server.close_stdin()
            self.assertEqual(0, server.wait())
            self.assertLess(time.monotonic() - since, 2.2)

    def test_a_signal_ends_it_at_once(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(signal=number, when="idle"), fakes() as server:
                server.request("ping")
                since = time.monotonic()
                server.signal(number)
                self.assert_ended(server, 0.5, since)
            with self.subTest(signal=number, when="in flight"), fakes() as server:
                for call in ({"sleep": 30}, {"stubborn": 30}, {"burn": 30}):
                    server.send_call("web_search", call)
                server.request("ping")
                since = time.monotonic()
                server.signal(number)
                self.assert_ended(server, 0.5, since)

    def test_a_signal_leaves_no_half_line(self) -> None:
        for delay in (0.0, 0.002, 0.01):
            with self.subTest(delay=delay), fakes() as server:
                for _ in range(20):
                    server.send_call("web_search", {"size": 1_000_000})
                server.receive()
                time.sleep(delay)
                since = time.monotonic()
                server.signal(signal.SIGTERM)
                self.assert_ended(server, 1, since)

    def test_a_signal_ends_it_while_the_client_does_not_read(self) -> None:
        with fakes(read_stdout=False) as server:
            server.send_bytes(line(1, "tools/list") * 100)
            server.wait_for_output()
            time.sleep(0.1)
            since = time.monotonic()
            server.signal(signal.SIGTERM)
            self.assertEqual(0, server.wait())
            self.assertLess(time.monotonic() - since, 1)

    def test_a_closed_stdout_ends_it_quietly(self) -> None:
        with fakes(read_stdout=False) as server:
            server.send_bytes(PING)
            server.wait_for_output()
            server.stop_listening()
            since = time.monotonic()
            server.send_bytes(PING)
            self.assertEqual(0, server.wait())
            self.assertLess(time.monotonic() - since, 2)
            self.assertEqual(b"", bytes(server.stderr))


class Pipes(FrameTestCase):
    """Clients that do not read."""

    def test_a_client_that_stops_reading_loses_nothing(self) -> None:
        with fakes(read_stdout=False) as server:
            server.send_bytes(b"".join(line(number, "tools/list") for number in range(300)))
            ids = [server.send_call("web_search", {"size": 100_000, "value": number}) for number in range(20)]
            time.sleep(0.3)
            self.assertTrue(server.is_running())
            self.assertLess(server.resident_kib(), 60_000)
            server.start_reading()
            for number in range(300):
                self.assertEqual(number, server.reply_to(number)["id"])
            for number, request_id in enumerate(ids):
                self.assertEqual(number, server.reply_to(request_id)["result"]["structuredContent"]["value"])

    def test_a_stderr_that_nobody_reads_stops_nothing(self) -> None:
        with fakes(read_stderr=False) as server:
            self.assertFalse(server.call_tool("web_search", {"log": 2000}, timeout=PATIENCE_SECONDS)["isError"])
            self.assertEqual({}, server.request("ping")["result"])

    def test_pipes_that_do_not_block_are_no_trouble(self) -> None:
        ours, theirs = os.pipe(), os.pipe()
        os.set_blocking(ours[0], False)
        os.set_blocking(theirs[1], False)
        process = subprocess.Popen([sys.executable, str(FAKES)], stdin=ours[0], stdout=theirs[1], env=bare_environment())
        os.close(ours[0])
        os.close(theirs[1])
        with open(ours[1], "wb", buffering=0) as stdin, open(theirs[0], "rb") as stdout:
            time.sleep(0.2)
            stdin.write(line(1, "tools/list") * 50)
            time.sleep(0.2)
            stdin.write(PING)
            stdin.close()
            replies = [json.loads(reply)["id"] for reply in stdout]
        self.assertEqual(0, process.wait(PATIENCE_SECONDS))
        self.assertEqual([1] * 50 + ["ping"], replies)

    def test_a_closed_stderr_is_no_trouble(self) -> None:
        command = 'exec "$0" "$1" 2>&-'
        arguments = ["sh", "-c", command, sys.executable, str(FAKES)]
        call = line(1, "tools/call", {"name": "web_search", "arguments": {"print": "stray", "fail": "KeyError"}})
        done = subprocess.run(arguments, input=PING + call, stdout=subprocess.PIPE, env=bare_environment(), timeout=20)
        self.assertEqual([PONG], [json.loads(reply) for reply in done.stdout.splitlines()][:1])
        self.assertEqual(0, done.returncode)


class Start(FrameTestCase):
    """From the start of the process to its first answers."""

    def test_tools_are_listed_within_the_second_that_codex_waits(self) -> None:
        with McpProcess() as server:
            server.initialize()
            server.request("tools/list")
            self.assertLess(time.monotonic() - server.started_at, 1.0)

    def test_nothing_heavy_is_imported_for_it(self) -> None:
        heavy = ["ssl", "socket", "http", "urllib", "html", "asyncio", "concurrent", "email", "sqlite3", "dataclasses",
                 "ipaddress", "subprocess", "hashlib", "signal", "json", "re", "enum", "functools", "threading", "typing"]
        asked = line(1, "initialize", {"protocolVersion": "2025-06-18"}) + line(2, "tools/list")
        done = subprocess.run([sys.executable, "-I", "-S", "-X", "importtime", str(ROOT / "websearch_mcp.py")], capture_output=True,
                              input=asked, env=bare_environment())
        imported = [line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()]
        self.assertEqual(2, done.stdout.count(b'"result"'))
        self.assertIn("websearch", imported)
        self.assertEqual([], [name for name in heavy if name in imported])

    def test_bad_settings_are_told_in_a_result_and_not_at_the_start(self) -> None:
        settings = loopback_settings({
            "WEBSEARCH_TIMEOUT": "abc", "WEBSEARCH_PROVIDERS": "tavily,,exaa, brave ,", "EXA_API_KEY": "",
            "TAVILY_API_KEY": "${TAVILY_API_KEY}", "SEARXNG_URL": "  ", "HTTPS_PROXY": f"http://127.0.0.1:{closed_port()}",
        })
        with McpProcess(settings) as server:
            server.initialize()
            self.assertEqual(4, len(server.request("tools/list")["result"]["tools"]))
            self.assertLess(time.monotonic() - server.started_at, 2)
            error = failure(server.call_tool("web_search", {"query": "x", "provider": "tavily"}))
            chain = failure(server.call_tool("web_search", {"query": "x"}))
            self.assertIn("TAVILY_API_KEY", error["message"])
            self.assertNotIn("${", json.dumps(error))
            self.assertTrue("exaa" in json.dumps(chain) or b"exaa" in bytes(server.stderr))

    def test_a_terminal_is_told_what_this_is(self) -> None:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "websearch_mcp.py")], stdin=theirs, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=bare_environment(),
        )
        os.close(theirs)
        os.write(ours, PING + b"\x04")
        output, errors = process.communicate(timeout=PATIENCE_SECONDS)
        os.close(ours)
        self.assertEqual(PONG, json.loads(output))
        self.assertIn(b"install codex", errors)
        self.assertEqual(0, process.returncode)

    def test_version_help_and_wrong_usage(self) -> None:
        def run(argument: str) -> Any:
            command = [sys.executable, str(ROOT / "websearch_mcp.py"), argument]
            return subprocess.run(command, capture_output=True, env=bare_environment())

        self.assertRegex(run("--version").stdout, rb"\A[0-9]+\.[0-9.a-z]+\n\Z")
        self.assertIn(b"MCP server", run("--help").stdout)
        wrong = run("--no-such-option")
        self.assertEqual((2, b""), (wrong.returncode, wrong.stdout))
        self.assertIn(b"no argument --no-such-option\n", wrong.stderr)
        self.assertIn(b"--help", wrong.stderr)

    def test_a_copy_without_the_module_says_what_is_missing(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            alone = shutil.copy(ROOT / "websearch_mcp.py", folder)
            done = subprocess.run([sys.executable, alone], capture_output=True, env=bare_environment())
        self.assertEqual((1, b"websearch.py must lie beside websearch_mcp.py\n"), (done.returncode, done.stderr))


SOURCES = [{"title": f"T{n}", "url": f"https://docs.example.test/{n}", "content": f"c{n}"} for n in range(8)]


class WholeServer(FrameTestCase):
    """The real tools behind the frame: what clients and models get wrong, and what pages do to the wire."""


    def settings(self, mock: Loopback) -> Dict[str, str]:
        """One provider: a Tavily on loopback."""
        return loopback_settings({"TAVILY_API_KEY": "tvly-case", "TAVILY_API_URL": mock.url()})

    def test_line_separators_in_a_snippet_do_not_split_the_message(self) -> None:
        text = "alpha\u2028beta\u2029gamma\x85delta\x0bepsilon \U0001f680"
        answer = {"results": [{"title": "T", "url": "https://docs.example.test/a", "content": text, "score": 0.9}]}
        call = {"name": "web_search", "arguments": {"query": "line separators", "provider": "tavily"}}
        with Loopback({"*": answer}) as mock, McpProcess(self.settings(mock)) as server:
            messages = server.run(line(1, "tools/call", call))
            self.assertEqual(1, len(bytes(server.stdout).decode().splitlines()))
        snippet = messages[0]["result"]["structuredContent"]["sources"][0]["snippet"]
        self.assertRegex(snippet, "alpha\\sbeta\\sgamma\\s?delta\\s?epsilon \U0001f680")

    def test_odd_arguments_get_one_clear_answer_each(self) -> None:
        calls = {
            "null": None,
            "three": {"query": "x", "provider": "tavily", "limit": "3"},
            "px": {"query": "x", "provider": "tavily", "limit": "3px"},
            "float": {"query": "x", "provider": "tavily", "limit": 3.0},
            "list": {"query": ["x", "y"], "provider": "tavily"},
            "blank": {"query": "   ", "provider": "tavily"},
            "extra": {"query": "x", "provider": "tavily", "limit": None, "foo": 1, "wait_for_previous": True},
        }
        with Loopback({"*": {"results": SOURCES}}) as mock, McpProcess(self.settings(mock)) as server:
            results = {name: server.call_tool("web_search", arguments) for name, arguments in calls.items()}
            self.assertLessEqual(len(mock.requests), 3)  # equal searches may share one
            self.assertNotRegex(bytes(server.stdout).decode(), "Traceback|NoneType|KeyError|AttributeError|-32603")
        for name in ("three", "float"):
            self.assertIs(False, results[name]["isError"], results[name])
            self.assertLessEqual(len(results[name]["structuredContent"]["sources"]), 3)
        self.assertIs(False, results["extra"]["isError"])
        for name in ("null", "list", "blank"):
            self.assertIn("query", failure(results[name])["message"])
        self.assertIn("limit", failure(results["px"])["message"])

    def test_a_whole_reply_is_bounded_by_bytes_links_included(self) -> None:
        paragraph = '<p>Paragraph {0} with some words to fill the line and <a href="/long/path/{0}?q={0}">link {0}</a>.</p>'
        page = "<!doctype html><title>Big</title><main><h1>Big</h1>" + "".join(map(paragraph.format, range(4000))) + "</main>"
        with Loopback({"/page": page}) as origin, McpProcess(loopback_settings()) as server:
            url = origin.url("/page")
            first = server.call_tool("web_fetch", {"url": url})["structuredContent"]
            second = server.call_tool("web_fetch", {"url": url, "char_limit": 400})["structuredContent"]
        self.assertLessEqual(len(json.dumps(first, ensure_ascii=False, separators=(",", ":")).encode()), 38_000)
        self.assertLessEqual(len(json.dumps(second, ensure_ascii=False, separators=(",", ":")).encode()), 4_096)
        self.assertIn("Paragraph 0", first["text"])
        self.assertIn("[TRUNCATED", first["text"])
        for result in (first, second):
            self.assertIs(True, result["truncated"])
            self.assertGreater(result["total_chars"], 100_000)

    def test_a_fetch_that_never_ends_does_not_outlive_its_client(self) -> None:
        with RawLoopback(Hold()) as origin, McpProcess(loopback_settings()) as server:
            server.send_call("web_fetch", {"url": origin.url("/never")}, id=1)
            origin.wait_for_requests()
            since = time.monotonic()
            server.close_stdin()
            self.assertEqual(0, server.wait())
            self.assertLess(time.monotonic() - since, 2)
            self.assertEqual("WEB_ABORTED", failure(server.messages()[0]["result"])["code"])
            self.assertNotIn(b"Traceback", bytes(server.stderr))

    def test_the_same_page_can_be_fetched_after_a_cancelled_fetch(self) -> None:
        with Loopback({"/slow": "<p>later</p>"}) as origin, McpProcess(loopback_settings()) as server:
            server.send_call("web_fetch", {"url": origin.url("/slow")}, id=5)
            server.cancel(5)
            result = server.call_tool("web_fetch", {"url": origin.url("/slow")})
            self.assertIn("later", result["structuredContent"]["text"])
            self.assertEqual([], [message for message in server.messages() if message["id"] == 5])


class FrameSource(unittest.TestCase):
    """The file itself."""

    def test_the_frame_names_no_tool_and_no_provider(self) -> None:
        text = Path(ROOT / "websearch_mcp.py").read_text(encoding="utf-8")
        self.assertEqual([], [word for word in (*TOOL_NAMES, "tavily", "grok", "exa_") if word in text.lower()])


if __name__ == "__main__":
    unittest.main()
