"""The official conformance suite, directly against a reference server and through a pinned session of Statehold.

Every check that passes directly passes through, but for those that are listed here with the reason.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from front import UPSTREAMS, Running, serving, toml

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]

VERSIONS = ["2025-06-18", "2025-11-25", "2026-07-28"]
RANKS = ["FAILURE", "WARNING", "SKIPPED", "SUCCESS"]
REFERENCE = [sys.executable, str(UPSTREAMS / "conformance.py")]
SUITE_SECONDS = 240
TIME = re.compile(r"-\d{4}-\d\d-\d\dT.*")
"""The end of the name of a folder of results: the time of the run."""

KEYS = "the server asks its questions one by one during the call; Statehold names their keys"
HANDSHAKE = (
    "the server learned the capabilities in the handshake with Statehold, not with the request"
)
LEGACY_UPSTREAM = {
    "input-required-result-basic-elicitation/": KEYS,
    "input-required-result-multiple-input-requests/": KEYS,
    "input-required-result-ignore-extra-params/": KEYS,
    "input-required-result-capability-check/": HANDSHAKE,
    "server-stateless/sep-2575-missing-capability-http-400": HANDSHAKE,
    "server-stateless/sep-2575-server-rejects-undeclared-capability": HANDSHAKE,
}
"""Checks of 2026-07-28, by the beginning of their names, that fail with an upstream of the older era."""
PENDING = {
    "server-sse-polling/server-sse-disconnect-resume": "a stream stays open until the call ends",
}
"""Checks that fail with every upstream."""
SCENARIO_MS = 20_000
"""The longest time of one scenario, so that a hanging one does not use up the time of the others."""


class Check(NamedTuple):
    scenario: str
    check: str


class Suite(NamedTuple):
    """Runs the suite against a URL and returns the lowest rank of each check."""

    node: str
    program: Path
    folder: Path

    def run(self, url: str, version: str) -> dict[Check, int]:
        found: dict[Check, int] = {}
        command = [self.node, str(self.program), "server", "--url", url, "--suite", "all"]
        command += ["--timeout", str(SCENARIO_MS)]
        subprocess.run(
            [*command, "--spec-version", version, "-o", str(self.folder)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SUITE_SECONDS,
            check=False,
        )
        for file in self.folder.glob("*/checks.json"):
            scenario = TIME.sub("", file.parent.name.removeprefix("server-"))
            for check in cast("list[dict[str, Any]]", json.loads(file.read_text())):
                if check["status"] in RANKS:
                    key = Check(scenario, check["id"])
                    rank = RANKS.index(check["status"])
                    found[key] = min(found.get(key, rank), rank)
        return found


@pytest.fixture(scope="module")
def suite(
    node22: str, npm_peers: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], Suite]:
    program = npm_peers / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"

    def made() -> Suite:
        return Suite(node22, program, tmp_path_factory.mktemp("checks"))

    return made


@contextmanager
def reference() -> Generator[str]:
    """Run the reference server; its URL."""
    command = [*REFERENCE, "--transport", "http"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            port = json.loads(process.stdout.readline())["port"]
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def direct(version: str, suite: Callable[[], Suite]) -> dict[Check, int]:
    """The checks of one version without Statehold."""
    with reference() as url:
        return suite().run(url, version)


@pytest.fixture(scope="module", params=["modern", "legacy"])
def gateway_of(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[tuple[str, Running]]:
    """A Statehold in front of a reference server of one era."""
    folder = tmp_path_factory.mktemp("gateway")
    config = folder / "statehold.toml"
    command = [*REFERENCE[1:], "--era", request.param]
    config.write_text(toml({"services": {"ref": {"command": REFERENCE[0], "args": command}}}))
    with serving(config, folder / "data") as running:
        yield request.param, running


def test_the_reference_passes_every_check(version: str, direct: dict[Check, int]) -> None:
    assert len(direct) > 40
    below = {check: RANKS[rank] for check, rank in direct.items() if rank < len(RANKS) - 1}
    assert below == {}


def test_what_passes_directly_passes_through_a_pinned_session(
    version: str,
    direct: dict[Check, int],
    gateway_of: tuple[str, Running],
    suite: Callable[[], Suite],
) -> None:
    era, running = gateway_of
    excepted = dict(PENDING)
    if era == "legacy" and version == "2026-07-28":
        excepted |= LEGACY_UPSTREAM
    through = suite().run(f"{running.url}/s/conformance-{version}/mcp", version)
    worse = {
        check: RANKS[through[check]] if check in through else "missing"
        for check, rank in direct.items()
        if through.get(check, -1) < rank and not "/".join(check).startswith(tuple(excepted))
    }
    assert worse == {}
