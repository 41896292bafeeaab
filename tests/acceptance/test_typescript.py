"""The TypeScript SDK as it is released, 1.x and 2.x: a new connection for every call, in both eras."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest
from support.gateway_process import JSON, Running

pytestmark = [pytest.mark.peer, pytest.mark.thorough]

RELEASES = {
    "1": ({"sdk": "1"}, "2025-11-25"),
    "2-legacy": ({"sdk": "2", "mode": "legacy"}, "2025-11-25"),
    "2-modern": ({"sdk": "2", "mode": "auto"}, "2026-07-28"),
}
"""How the client connects, and the version of the protocol that it negotiates."""


class Caller(NamedTuple):
    """Runs steps with one release, each on a connection of its own."""

    run: Callable[[JSON], Awaitable[list[JSON]]]
    settings: JSON
    version: str
    url: str

    async def steps(self, *steps: JSON) -> list[JSON]:
        results = await self.run({**self.settings, "url": self.url, "steps": steps})
        assert {step["version"] for step in results} == {self.version}
        return results


@pytest.fixture(scope="module")
def settings(counter_command: list[str]) -> JSON:
    """The counting server alone."""
    return {"services": {"counter": {"command": counter_command[0], "args": counter_command[1:]}}}


@pytest.fixture(scope="module", params=RELEASES)
def caller(
    request: pytest.FixtureRequest,
    server: Running,
    typescript: Callable[[JSON], Awaitable[list[JSON]]],
) -> Caller:
    connection, version = RELEASES[request.param]
    return Caller(typescript, connection, version, f"{server.url}/mcp")


def call(tool: str, session: str, **arguments: object) -> JSON:
    return {"tool": tool, "arguments": {"session_id": session, **arguments}}


async def test_calls_that_reconnect_use_one_session(
    caller: Caller, in_flight: Callable[[str, int], Awaitable[None]]
) -> None:
    listed, created = await caller.steps({"list": True}, {"tool": "session_create"})
    schemas = {tool["name"]: tool["inputSchema"] for tool in listed["result"]["tools"]}
    assert {"session_create", "session_close", "inc", "slow"} <= set(schemas)
    # One tool of that server has a session_id of its own, so that ours has its longer name.
    assert {"session_id", "statehold_session_id"} & schemas["inc"]["properties"].keys()
    session = created["result"]["structuredContent"]["session_id"]
    *counted, refused, slow, question, shown, aborted = await caller.steps(
        *[call("inc", session)] * 3,
        call("inc", "sh_unknown"),
        call("slow", session, seconds=0.2, steps=4),
        call("ask", session),
        call("image", session),
        {**call("slow", session, seconds=60, steps=600), "cancel": True},
    )
    assert [step["result"]["structuredContent"]["count"] for step in counted] == [1, 2, 3]
    assert refused["result"]["isError"]
    assert refused["result"]["content"][0]["text"].startswith("session_not_found: ")
    assert slow["progress"] == [1, 2, 3, 4]
    assert slow["result"]["content"][0]["text"] == "done"
    assert question["asked"] == ["counter asks: What is the answer?"]
    assert "42" in question["result"]["content"][0]["text"]
    [image] = shown["result"]["content"]
    assert (image["type"], image["mimeType"]) == ("image", "image/png")
    assert image["data"].startswith("iVBORw0KGgo")
    assert aborted["error"].endswith("the person pressed stop")
    await in_flight(session, 0)
