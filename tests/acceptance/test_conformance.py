"""The official conformance suite, directly against a reference server and through a pinned session of Statehold: at the
node that owns the session, and at one that owns none and forwards to the owner.

Every check passes directly, and every one passes through, but for those that are listed here with the reason.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.request import urlopen

import pytest
from support.databases import PostgreSQL
from support.gateway_process import UPSTREAMS, serving, toml
from support.machines import cluster
from support.waiting import until_blocking

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]

EDGE = "edge"
WAYS = {"owner": "both", EDGE: "both"}
"""The ways through Statehold, each with the eras of its upstream. EDGE is the one through a node that owns nothing: the
requests pass both nodes. Of both eras, the newer one is spoken."""
MODERN_WAYS = {**WAYS, "legacy": "legacy"}
"""The ways for clients of 2026-07-28. Of both eras, clients of older revisions are served in the older one."""
VERSIONS = [
    pytest.param("2025-06-18", marks=pytest.mark.load),
    pytest.param("2025-11-25", marks=pytest.mark.thorough),
    pytest.param("2026-07-28", marks=pytest.mark.thorough),
]
RANKS = ["FAILURE", "WARNING", "SKIPPED", "SUCCESS"]
REFERENCE = [sys.executable, str(UPSTREAMS / "conformance.py")]
SUITE_SECONDS = 240
TIME = re.compile(r"-\d{4}-\d\d-\d\dT.*")
"""The end of the name of a folder of results: the time of the run."""

HANDSHAKE = "the server learns what the client can do in the handshake, which is Statehold's, and not with each request"
LEGACY_UPSTREAM = {
    "input-required-result-basic-elicitation/": "the suite expects the key user_name; a question of this era has no key",
    "input-required-result-multiple-input-requests/": (
        "the suite expects three questions in one result; the server asks the second after the answer to the first"
    ),
    "input-required-result-ignore-extra-params/": (
        "the suite answers under the key user_name before it is asked; a question of this era has no key to find it by"
    ),
    "input-required-result-capability-check/": HANDSHAKE,
    "server-stateless/sep-2575-missing-capability-http-400": HANDSHAKE,
    "server-stateless/sep-2575-server-rejects-undeclared-capability": HANDSHAKE,
}
"""Checks of 2026-07-28, by the beginning of their names, that an upstream of the older era cannot serve, with the reason."""
OWNER_ONLY = "a tool or prompt that appears in one session is known to the node that owns the session, not to others"
EDGE_LISTS = {
    "server-stateless/sep-2575-server-sends-prompts-list-changed-on-subscription": OWNER_ONLY,
    "server-stateless/sep-2575-server-sends-tools-list-changed-on-subscription": OWNER_ONLY,
}
"""Checks that a node which owns nothing cannot pass, with the reason."""
UNTESTED = {
    "server-sse-polling/server-sse-disconnect-resume": (
        "Statehold keeps the stream open until the answer, so there is nothing to take up; the suite calls that INFO"
    ),
}
"""Checks that the suite leaves open with every upstream. The scenario passes."""
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
        results: dict[Check, int] = {}
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
                    results[key] = min(results.get(key, rank), rank)
        return results


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


def health(url: str) -> dict[str, Any]:
    with urlopen(f"{url}/health") as answer:
        return cast("dict[str, Any]", json.load(answer))


@contextmanager
def gateway_of(way: str, folder: Path, database: str) -> Generator[str]:
    """Run a Statehold in front of a reference server; the URL of a session."""
    command = [*REFERENCE[1:], "--era", MODERN_WAYS[way]]
    settings = {"services": {"ref": {"command": REFERENCE[0], "args": command}}}
    config = folder / "statehold.toml"
    with ExitStack() as stack:
        if way == EDGE:
            owner = folder / "owner.toml"
            owner.write_text(toml({**settings, **cluster(database)}))
            stack.enter_context(serving(owner, folder / "owner"))
            settings |= cluster(database, capacity=0)
        config.write_text(toml(settings))
        running = stack.enter_context(serving(config, folder / "data"))
        # The suite waits 20 seconds for an answer, and a busy machine may take as long for the start of the server.
        until_blocking(lambda: health(running.url)["services"]["ok"], within=SUITE_SECONDS)
        yield f"{running.url}/s/conformance/mcp"


@pytest.mark.parametrize("version", VERSIONS)
def test_checks_that_pass_directly_pass_through_a_pinned_session(
    version: str, node22: str, npm_peers: Path, tmp_path: Path, postgresql: PostgreSQL
) -> None:
    database = postgresql.fresh()
    program = npm_peers / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"

    def checks(way: str) -> dict[Check, int]:
        folder = tmp_path / way
        folder.mkdir()
        served = reference() if way == "direct" else gateway_of(way, folder, database)
        with served as url:
            return Suite(node22, program, folder / "checks").run(url, version)

    ways = MODERN_WAYS if version == "2026-07-28" else WAYS
    # Side by side: most of their time the scenarios wait.
    with ThreadPoolExecutor() as pool:
        direct, *through = pool.map(checks, ["direct", *ways])
    assert len(direct) > 40
    assert {check: RANKS[rank] for check, rank in direct.items() if rank < len(RANKS) - 1} == {}
    for way, results in zip(ways, through, strict=True):
        excepted = dict(UNTESTED)
        if way == "legacy":
            excepted |= LEGACY_UPSTREAM
        if way == EDGE:
            excepted |= EDGE_LISTS
        worse = {
            check: RANKS[results[check]] if check in results else "missing"
            for check, rank in direct.items()
            if results.get(check, -1) < rank and not "/".join(check).startswith(tuple(excepted))
        }
        assert worse == {}, way
