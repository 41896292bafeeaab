"""pydantic-ai as it is released, in an environment of its own: an `MCPToolset`, and a new connection for every call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from front import JSON, Running

pytestmark = pytest.mark.peer

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

    async def run(*given: JSON) -> list[JSON]:
        return await pydantic_ai(f"{server.url}/mcp", list(given))

    return run


@pytest.fixture(scope="module")
async def session(steps: Steps) -> str:
    [created] = await steps({"tool": "session_create"})
    return created["result"]["session_id"]


def call(tool: str, session: str, **arguments: object) -> JSON:
    return {"tool": tool, "arguments": {"session_id": session, **arguments}}


async def test_tools_are_listed(steps: Steps) -> None:
    [listed] = await steps({"list": True})
    assert {"session_create", "session_close", "inc", "slow"} <= set(listed["result"])
    assert "session_id" in listed["result"]["inc"]["properties"]


async def test_calls_that_reconnect_count_on(steps: Steps, session: str) -> None:
    found = await steps(*[call("inc", session)] * 3)
    assert [step["result"]["count"] for step in found] == [1, 2, 3]


async def test_a_bad_id_is_an_error_of_the_tool(steps: Steps) -> None:
    [refused] = await steps(call("inc", "sh_unknown"))
    assert refused["error"].startswith("session_not_found: ")


async def test_progress_arrives(steps: Steps, session: str) -> None:
    [slow] = await steps(call("slow", session, seconds=0.2, steps=4))
    assert (slow["progress"], slow["result"]) == ([1, 2, 3, 4], "done")


async def test_a_cancelled_call_leaves_the_session_usable(steps: Steps, session: str) -> None:
    """The client stops waiting. mcp 1.x sends no cancellation, so the call runs to its end in the session."""
    slow = {**call("slow", session, seconds=2, steps=20), "cancel": True}
    before, cancelled, after = await steps(call("inc", session), slow, call("inc", session))
    assert (cancelled["progress"], cancelled["error"]) == ([1], "cancelled")
    assert after["result"]["count"] == before["result"]["count"] + 1


async def test_a_question_is_answered(
    steps: Steps, session: str, in_flight: Callable[[str, int], Awaitable[None]]
) -> None:
    await in_flight(session, 0)
    [asked] = await steps(call("ask", session))
    assert asked["asked"] == ["counter asks: What is the answer?"]
    assert '"answer": "42"' in asked["result"]


async def test_an_image_arrives(steps: Steps, session: str) -> None:
    [shown] = await steps(call("image", session))
    assert shown["result"] == {"image": "image/png", "bytes": 70}
