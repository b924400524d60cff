"""What registries, package builders and users are told about the project agrees with the project."""

from __future__ import annotations

import json
import re
import unittest
from typing import Any, Dict, List

import websearch
from tests.support import ROOT

# The rules of the registry's schema, 2025-12-11, as far as server.json makes use of them (modelcontextprotocol/registry,
# internal/validators/schemas/2025-12-11.json, read 2026-11-30): allowed keys with the form of their text.
SERVER_KEYS = {"$schema": r"https://static\.modelcontextprotocol\.io/schemas/2025-12-11/server\.schema\.json",
               "name": r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", "title": r".{1,100}", "description": r".{1,100}",
               "version": r"[0-9]+\.[0-9]+\.[0-9]+", "packages": None}
PACKAGE_KEYS = {"registryType": "pypi", "registryBaseUrl": r"https://pypi\.org", "identifier": "websearch-mcp",
                "version": r"[0-9]+\.[0-9]+\.[0-9]+", "runtimeHint": "uvx", "transport": None, "environmentVariables": None}
VARIABLE_KEYS = {"name": r"[A-Z_]+", "description": r".+", "format": "string|number|boolean|filepath", "isSecret": None, "choices": None}


class RegistryTest(unittest.TestCase):
    def setUp(self) -> None:
        self.server: Dict[str, Any] = json.loads((ROOT / "server.json").read_text(encoding="utf-8"))
        self.readme = (ROOT / "README.md").read_text(encoding="utf-8")
        (self.package,) = self.server["packages"]
        self.variables: List[Dict[str, Any]] = self.package["environmentVariables"]

    def assert_form(self, found: Dict[str, Any], forms: Dict[str, Any]) -> None:
        self.assertLessEqual(set(found), set(forms))
        for key, form in forms.items():
            if form is not None and key in found:
                self.assertRegex(found[key], f"^(?:{form})$", key)

    def test_server_json_has_the_form_that_the_registry_wants(self) -> None:
        self.assert_form(self.server, SERVER_KEYS)
        self.assert_form(self.package, PACKAGE_KEYS)
        self.assertEqual(self.package["transport"], {"type": "stdio"})
        self.assertLessEqual({"name", "description", "version"}, set(self.server))
        for variable in self.variables:
            self.assert_form(variable, VARIABLE_KEYS)
            self.assertIn(variable.get("isSecret", True), (True,))
            self.assertTrue(all(isinstance(choice, str) and choice for choice in variable.get("choices", ["x"])))

    def test_versions_and_names_agree(self) -> None:
        self.assertEqual([self.server["version"], self.package["version"]], [websearch.VERSION] * 2)
        self.assertIn(f"<!-- mcp-name: {self.server['name']} -->", self.readme)  # how the registry knows the package as ours
        self.assertIn(f'name = "{self.package["identifier"]}"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    def test_variables_are_those_of_the_module_and_every_key_is_a_secret(self) -> None:
        names = [variable["name"] for variable in self.variables]
        self.assertEqual(len(names), len(set(names)))
        self.assertLessEqual(set(names), {variable.name for variable in websearch.VARIABLES})
        secrets = {variable["name"] for variable in self.variables if "isSecret" in variable}
        self.assertEqual(secrets, {v.name for v in websearch.VARIABLES if v.kind == "secret"} | {"HTTP_PROXY", "HTTPS_PROXY"})


class ExamplesTest(unittest.TestCase):
    def test_json_in_the_readme_can_be_pasted(self) -> None:
        blocks = re.findall(r"```json\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
        servers = [json.loads(block)["mcpServers"]["websearch"] for block in blocks if "mcpServers" in block]
        self.assertEqual([server["command"] for server in servers], ["python3", "python3"])
        self.assertLessEqual(set(servers[1]["env"]), {variable.name for variable in websearch.VARIABLES})

    def test_image_has_both_files_and_no_rights(self) -> None:
        text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
        self.assertIn("COPY websearch.py websearch_mcp.py ", text)
        self.assertRegex(text, r"(?m)^USER (?!0|root)")


if __name__ == "__main__":
    unittest.main()
