"""pydantic-ai as it is released, in an environment of its own: an `MCPToolset`, and a new connection for every call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from support.gateway_process import JSON, Running

pytestmark = [pytest.mark.peer, pytest.mark.thorough]

Steps = Callable[..., Awaitable[list[JSON]]]


@pytest.fixture(scope="module")
def settings(counter_command: list[str]) -> JSON:
    """The counting server alone."""
    return {"services": {"counter": {"command": counter_command[0], "args": counter_command[1:]}}}


@pytest.fixture(scope="module")
def steps(
    server: Running, pydantic_ai: Callable[[str, list[JSON]], Awaitable[list[JSON]]]
) -> Steps:
    """Runs steps, each on a connection of its own."""

    async def run(*requests: JSON) -> list[JSON]:
        return await pydantic_ai(f"{server.url}/mcp", list(requests))

    return run


def call(tool: str, session: str, **arguments: object) -> JSON:
    return {"tool": tool, "arguments": {"session_id": session, **arguments}}


async def test_calls_that_reconnect_use_one_session(
    steps: Steps, in_flight: Callable[[str, int], Awaitable[None]]
) -> None:
    """The client stops waiting for one call. mcp 1.x sends no cancellation, so that call runs to its end."""
    listed, created = await steps({"list": True}, {"tool": "session_create"})
    assert {"session_create", "session_close", "inc", "slow"} <= set(listed["result"])
    # One tool of that server has a session_id of its own, so that ours has its longer name.
    assert {"session_id", "statehold_session_id"} & listed["result"]["inc"]["properties"].keys()
    session = created["result"]["session_id"]
    slow = call("slow", session, seconds=0.2, steps=4)
    *counted, refused, long, image, question, cancelled, after = await steps(
        *[call("inc", session)] * 3,
        call("inc", "sh_unknown"),
        slow,
        call("image", session),
        call("ask", session),
        {**call("slow", session, seconds=1, steps=10), "cancel": True},
        call("inc", session),
    )
    assert [step["result"]["count"] for step in counted] == [1, 2, 3]
    assert refused["error"].startswith("session_not_found: ")
    assert (long["progress"], long["result"]) == ([1, 2, 3, 4], "done")
    assert image["result"] == {"image": "image/png", "bytes": 70}
    assert (cancelled["progress"], cancelled["error"]) == ([1], "cancelled")
    assert after["result"]["count"] == 4
    await in_flight(session, 0)
    assert question["asked"] == ["counter asks: What is the answer?"]
    assert '"answer": "42"' in question["result"]
