"""An agent asks for a person: the address in its result, and the question to a client that opens addresses."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.to_thread
import mcp_types as types
import pytest
from mcp import Client, MCPError
from support.console_client import ConsoleClient
from support.gateway_process import JSON, Running, Way, opened_session, serving, structured
from support.selection import matrix
from support.waiting import until

ALICE, BEN = "alice-token-0123456789", "ben-token-0123456789abc"
Action = Literal["accept", "decline", "cancel"]
ERAS = matrix("modern", "legacy")
ASK: JSON = {"reason": "enter the code", "wait_seconds": 30}


class Asked:
    """A user who is shown the questions of the client, and answers each with `action` after `act`."""

    def __init__(self, action: Action, act: Callable[[], Awaitable[object]] | None = None) -> None:
        self.questions: list[types.ElicitRequestURLParams] = []
        self._action: Action = action
        self._act = act

    async def answer(self, context: object, params: Any) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        self.questions.append(params)
        if self._act is not None:
            await self._act()
        return types.ElicitResult(action=self._action)


@asynccontextmanager
async def agent_of(
    server: Running, config_file: Path, era: Any, user: Asked | None, token: str = ALICE
) -> AsyncGenerator[Client]:
    way = Way("http", era, config_file, server.data, url=server.url)
    more: JSON = {} if user is None else {"elicitation_callback": user.answer}
    async with way.connect(headers={"authorization": f"Bearer {token}"}, **more) as client:
        yield client


async def ask(client: Client, session: str, **more: Any) -> JSON:
    arguments = {"session_id": session, **ASK, **more}
    return structured(await client.call_tool("session_request_human", arguments))


async def test_the_result_names_the_address_in_the_console(agent: Client, server: Running) -> None:
    session = await opened_session(agent, name="my shop")
    result = await ask(agent, session, wait_seconds=0)
    assert result["address"] == f"{server.url}/console#/s/{session}"
    assert result["commands"] == ["statehold sessions open 'my shop'"]


@pytest.mark.parametrize("era", ERAS)
async def test_the_console_says_that_the_agent_has_left(
    server: Running, config_file: Path, alice: ConsoleClient, era: Any
) -> None:
    async with agent_of(server, config_file, era, None) as client:
        session = await opened_session(client)

        async def control() -> JSON:
            return (await alice.get(f"/sessions/{session}"))["control"] or {}

        async def is_asked() -> bool:
            return (await control()).get("driver") == "requested"

        async def has_left() -> bool:
            return bool((await control()).get("agent_left"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, client, session)
            await until(is_asked)
            assert not await has_left()
            tasks.cancel_scope.cancel()
        await until(has_left)


@pytest.mark.parametrize("era", ERAS)
async def test_the_client_opens_the_address_and_the_agent_goes_on_when_the_person_is_done(
    server: Running, config_file: Path, alice: ConsoleClient, era: Any
) -> None:
    session = ""

    async def help_out() -> None:
        taken = await alice.act(session, "take")
        await alice.act(session, "give-back", epoch=taken["epoch"], end="done", reply="it was 12")

    user = Asked("accept", help_out)
    async with agent_of(server, config_file, era, user) as client:
        session = await opened_session(client)
        with anyio.fail_after(20):
            result = await ask(client, session)
        assert (result["control"]["end"], result["control"]["reply"]) == ("done", "it was 12")
        [question] = user.questions
        assert question.url == f"{server.url}/console#/s/{session}"
        assert "enter the code" in question.message
        assert bool(question.elicitation_id) == (era == "legacy")


@pytest.mark.parametrize(
    ("era", "action", "words"),
    matrix(
        ("modern", "decline", "declined"),
        ("legacy", "decline", "declined"),
        ("modern", "cancel", "put the question off"),
        ("legacy", "cancel", "put the question off"),
        quick=2,
    ),
)
async def test_a_refusal_ends_the_wait_and_is_asked_for_once(
    server: Running, config_file: Path, era: Any, action: Action, words: str
) -> None:
    user = Asked(action)
    async with agent_of(server, config_file, era, user) as client:
        session = await opened_session(client)
        with anyio.fail_after(10):
            result = await ask(client, session)
        assert words in result["next_step"]
        assert result["control"]["driver"] == "requested"
        assert result["address"].endswith(f"/console#/s/{session}")
        again = await ask(client, session, wait_seconds=0.1)
        assert "Nobody came yet" in again["next_step"]
        assert len(user.questions) == 1


async def parked(client: Client, session: str, **more: Any) -> types.InputRequiredResult:
    result: Any = await client.session.call_tool(
        "session_request_human",
        {"session_id": session, **ASK},
        allow_input_required=True,
        **more,
    )
    assert isinstance(result, types.InputRequiredResult)
    return result


async def resume(
    client: Client, session: str, question: types.InputRequiredResult, **changed: Any
) -> types.CallToolResult:
    answer = types.ElicitResult(action="decline")
    arguments = {"session_id": session, **ASK, **changed.pop("arguments", {})}
    request: JSON = {
        "input_responses": dict.fromkeys(question.input_requests or {}, answer),
        "request_state": question.request_state,
        **changed,
    }
    session_calls: Any = client.session
    return await session_calls.call_tool("session_request_human", arguments, **request)


async def test_a_state_belongs_to_one_caller_one_request_and_one_answer(
    server: Running, config_file: Path
) -> None:
    user = Asked("decline")
    async with (
        agent_of(server, config_file, "modern", user) as client,
        agent_of(server, config_file, "modern", user, token=BEN) as ben,
    ):
        session, other = await opened_session(client), await opened_session(client)
        question = await parked(client, session)
        state = question.request_state or ""
        for caller, target, changed in (
            (client, session, {"request_state": state[:-2] + "xx"}),
            (client, session, {"arguments": {"reason": "something else"}}),
            (client, other, {}),
            (ben, session, {}),
        ):
            with pytest.raises(MCPError, match="has ended"):
                await resume(caller, target, question, **changed)
        assert "declined" in structured(await resume(client, session, question))["next_step"]
        with pytest.raises(MCPError, match="has ended"):
            await resume(client, session, question)


async def test_an_open_question_does_not_keep_the_server_from_its_end(
    server: Running, config_file: Path, tmp_path: Path
) -> None:
    with serving(config_file, tmp_path / "data") as running:
        async with agent_of(running, config_file, "modern", Asked("accept")) as client:
            session = await opened_session(client)
            await parked(client, session, meta={"statehold/operation_id": "one"})
            assert await anyio.to_thread.run_sync(running.stop) == 0
