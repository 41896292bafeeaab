"""A call that waits for an answer of its caller: other calls continue, or their callers learn the reason to wait."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from support.gateway_process import (
    JSON,
    code_of,
    count,
    opened_session,
    service,
    structured,
    text_of,
)
from support.open_gateways import serving_gateway

from statehold.server.gateway.gateway import Gateway
from statehold.server.protocol.server import StateholdServer
from statehold.sessions.calls import deadline


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Gateway]:
    """A service that takes many calls at once, one that takes one, and one that all sessions share."""
    services: JSON = {
        "many": service("asking", "--era", "legacy", prefix="many_"),
        "one": service("asking", "--era", "legacy", prefix="one_", concurrency=1),
        "all": service("asking", "--era", "legacy", prefix="all_", scope="shared"),
    }
    async with serving_gateway(tmp_path_factory.mktemp("parked"), **services) as opened:
        yield opened


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell a caller that waits of the reason sooner."""
    monkeypatch.setattr(deadline, "PROGRESS_SECONDS", 0.05)
    monkeypatch.setattr(deadline, "BLOCKED_SECONDS", 0.15)


async def elicit(context: object, params: Any) -> types.ElicitResult:
    raise AssertionError("these tests answer by themselves")


@pytest.fixture
async def client(gateway: Gateway) -> AsyncGenerator[Client]:
    mcp_server = StateholdServer(gateway, version="0")
    async with Client(mcp_server, cache=None, elicitation_callback=elicit) as connected:
        yield connected


async def parked(client: Client, session: str, tool: str) -> types.InputRequiredResult:
    result: Any = await client.session.call_tool(
        tool, {"session_id": session}, allow_input_required=True
    )
    assert isinstance(result, types.InputRequiredResult)
    return result


async def answered(
    client: Client, session: str, tool: str, question: types.InputRequiredResult
) -> types.CallToolResult:
    answer = types.ElicitResult(action="accept", content={"answer": "late"})
    result: Any = await client.session.call_tool(
        tool,
        {"session_id": session},
        input_responses=dict.fromkeys(question.input_requests or {}, answer),
        request_state=question.request_state,
        allow_input_required=True,
    )
    return result


async def test_a_question_without_an_answer_holds_up_no_other_call(client: Client) -> None:
    session = await opened_session(client)
    with anyio.fail_after(20):
        first = await parked(client, session, "many_ask")
        assert await count(client, session, "many_inc") == 1
        second = await parked(client, session, "many_ask")
        assert await count(client, session, "many_inc") == 2
        for question in (second, first):
            result = await answered(client, session, "many_ask", question)
            assert json.loads(text_of(result))["content"] == {"answer": "late"}


async def test_a_question_over_a_shared_connection_holds_up_no_call_of_another_session(
    client: Client,
) -> None:
    one, other = await opened_session(client), await opened_session(client)
    with anyio.fail_after(8):
        question = await parked(client, one, "all_ask")
        assert await count(client, other, "all_inc") == 1
        # Only one caller at a time can be asked over a connection that several share.
        refused = await client.call_tool("all_ask", {"session_id": other})
        assert "2 calls in flight" in text_of(refused)
        assert await count(client, other, "all_inc") == 2
        result = await answered(client, one, "all_ask", question)
        assert json.loads(text_of(result))["content"] == {"answer": "late"}


@pytest.mark.usefixtures("hasty")
async def test_a_call_that_has_to_wait_for_a_question_is_refused_with_the_reason(
    client: Client,
) -> None:
    session = await opened_session(client)
    question = await parked(client, session, "one_ask")
    with anyio.fail_after(20):
        refused = await client.call_tool("one_inc", {"session_id": session})
        assert code_of(refused) == "session_busy"
        assert "not run: ask has waited" in text_of(refused)
        assert "session_restart" in text_of(refused)
        await answered(client, session, "one_ask", question)
        assert await count(client, session, "one_inc") == 1


@pytest.mark.usefixtures("hasty")
async def test_a_caller_that_wants_progress_waits_and_gets_the_reason(
    gateway: Gateway, client: Client
) -> None:
    session = await opened_session(client)
    question = await parked(client, session, "one_ask")
    heard = anyio.Event()

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        if message is not None and "its caller's answer" in message:
            heard.set()

    async with Client(StateholdServer(gateway, version="0"), cache=None, mode="legacy") as other:

        async def wait() -> None:
            arguments = {"session_id": session}
            result = await other.call_tool("one_inc", arguments, progress_callback=progress)
            assert structured(result)["count"] == 1

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await heard.wait()
                await answered(client, session, "one_ask", question)


async def test_a_restart_ends_the_call_that_is_asked(client: Client) -> None:
    session = await opened_session(client)
    question = await parked(client, session, "one_ask")
    paused = await client.call_tool("session_pause", {"session_id": session})
    assert code_of(paused) == "session_busy"
    assert "waiting for an answer" in text_of(paused)
    with anyio.fail_after(20):
        restarted = await client.call_tool("session_restart", {"session_id": session})
        assert structured(restarted)["in_flight"] == 0
        assert await count(client, session, "one_inc") == 1
    with pytest.raises(MCPError, match="has ended"):
        await answered(client, session, "one_ask", question)


async def test_a_cancelled_caller_frees_the_call_that_asked_it(gateway: Gateway) -> None:
    question = anyio.Event()

    async def wait(context: object, params: Any) -> types.ElicitResult:
        question.set()
        await anyio.sleep_forever()
        raise AssertionError

    mcp_server = StateholdServer(gateway, version="0")
    async with (
        Client(mcp_server, cache=None, mode="legacy", elicitation_callback=wait) as client,
        Client(mcp_server, cache=None) as other,
    ):
        session = await opened_session(other)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "one_ask", {"session_id": session})
                await question.wait()
                tasks.cancel_scope.cancel()
            assert await count(other, session, "one_inc") == 1
