"""Control requests over one registry."""

from __future__ import annotations

from dataclasses import fields

import pytest
from support.counting import Counting
from support.engine import engine

from statehold.server.control.handler import ControlHandler
from statehold.server.control.operator_tools import OperatorTools
from statehold.server.control.requests import ControlRequest
from statehold.sessions.errors import InvalidArgument, SessionNotFound
from statehold.tools.own.results import parse_result


async def test_a_tool_is_called_for_the_owner_it_is_asked_for() -> None:
    async with engine() as running:
        session = await running.create(name="work")
        handler = ControlHandler(running.registry, running.store)
        arguments = {"session_id": session.id, "values": {"n": 2**80}}
        request = ControlRequest(tool="state_update", arguments=arguments)
        assert await handler(request) == {"version": 1}
        with pytest.raises(SessionNotFound):
            await handler(request.model_copy(update={"owner": ":bob"}))


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("session_drop", {}),
        ("session_fork", {"count": "many"}),
        ("session_close", {"force": "yes, please"}),
        ("operator_screenshot", {"kind": "gif"}),
        ("session_pause", {"seconds": 1}),
    ],
)
async def test_the_models_of_the_tools_check_a_request(
    tool: str, arguments: dict[str, object]
) -> None:
    async with engine() as running:
        session = await running.create()
        named = {"session_id": session.id, **arguments}
        handler = ControlHandler(running.registry, running.store)
        with pytest.raises(InvalidArgument):
            await handler(ControlRequest(tool=tool, arguments=named))


async def test_a_command_leaves_notices_to_the_next_caller() -> None:
    async with engine(Counting("counter", pause="release")) as running:
        session = await running.create()
        assert await running.count(session.id) == 1
        handler = ControlHandler(running.registry, running.store)
        for tool in ("session_pause", "session_resume", "session_rename"):
            await handler(ControlRequest(tool=tool, arguments={"session_id": session.id}))
        answer = await running.call(session.id)
        assert answer.notice is not None
        assert (await running.call(session.id)).notice is None


async def test_the_results_of_operator_tools_have_the_form_of_their_classes() -> None:
    async with engine(Counting("counter")) as running:
        session = await running.create()
        await running.count(session.id)
        tools = {tool.name: tool for tool in OperatorTools(running.registry).tools()}
        del tools["operator_screenshot"]  # needs a browser
        handler = ControlHandler(running.registry, running.store)
        for name, tool in tools.items():
            arguments = {"session_id": session.id} if tool.takes_session else {}
            content = await handler(ControlRequest(tool=name, arguments=arguments))
            result = parse_result(tool.output, tool.without_nulls(content))
            assert {each.name for each in fields(result)} <= content.keys()
