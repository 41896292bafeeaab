"""The scenarios of logins of the official conformance suite: each that the SDK's client passes is passed through Statehold.

The suite starts a service and its authorization server, and runs a client with the address of the service.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from support.fork_server import ForkServer

pytestmark = [pytest.mark.peer, pytest.mark.thorough, pytest.mark.timeout(600)]

UNSUPPORTED = {
    "auth/enterprise-managed-authorization": "the SDK's client exchanges no identity of an enterprise for an assertion",
    "auth/dpop": "the SDK's client binds no token to a key",
    "auth/dpop-nonce": "the SDK's client binds no token to a key",
    "auth/wif-jwt-bearer": "the SDK's client sends no assertion of a workload as a grant",
}
"""Scenarios of extensions that the direct client does not pass, with the reason."""
SCENARIO = re.compile(r"- (auth/\S+) \[(?:.*,)?(\S+)\]")
LEAST = 25
"""Scenarios that the suite has at least."""


class Scenario(NamedTuple):
    name: str
    version: str


class Suite(NamedTuple):
    """Runs the scenarios of the suite with the client of support/conformance_login.py."""

    node: str
    program: Path
    folder: Path
    client: str
    """Its command line."""

    def scenarios(self) -> list[Scenario]:
        listed = self._run("list", "--client").stdout
        found = [Scenario(*match) for match in SCENARIO.findall(listed)]
        return [each for each in found if each.name not in UNSUPPORTED]

    def faults(self, scenario: Scenario) -> list[str]:
        """Return the checks that fail, and the last words of a client that does."""
        name, version = scenario
        folder = self.folder / name.replace("/", "_")
        chosen = [] if version == "extension" else ["--spec-version", version]
        words = ["--command", self.client, "--scenario", name, *chosen, "--timeout", "60000"]
        run = self._run("client", *words, "-o", str(folder))
        [file] = folder.rglob("checks.json")
        checks = cast("list[dict[str, Any]]", json.loads(file.read_text()))
        assert any(each["status"] == "SUCCESS" for each in checks), checks
        faults = [each["id"] for each in checks if each["status"] in ("FAILURE", "WARNING")]
        return faults if faults or run.returncode == 0 else [run.stderr[-2000:]]

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        tests = Path(__file__).resolve().parents[1]
        return subprocess.run(
            [self.node, str(self.program), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(tests)},
            timeout=120,
            check=False,
        )


def test_logins_pass_through(
    node22: str, npm_peers: Path, tmp_path: Path, fork_server: ForkServer
) -> None:
    program = npm_peers / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    client = fork_server.command("-m", "support.conformance_login", str(fork_server.address))
    suite = Suite(node22, program, tmp_path, shlex.join(client))
    scenarios = suite.scenarios()
    assert len(scenarios) >= LEAST
    with ThreadPoolExecutor(3) as pool:
        runs = {each.name: pool.submit(suite.faults, each) for each in scenarios}
    assert {key: run.result() for key, run in runs.items() if run.result()} == {}
