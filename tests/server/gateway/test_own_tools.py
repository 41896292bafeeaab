"""Operation ids of our own tools whose receipts are kept in memory, because the caller names this process."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from statehold.server.gateway.gateway import Gateway
from statehold.server.gateway.own_tools import AnotherProcess
from statehold.server.sdk.caller import OwnMeta
from statehold.sessions.errors import InvalidArgument, NameTaken, OutcomeUnknown
from statehold.sessions.records import LOCAL
from statehold.tools.own.own_tool import Outcome, ToolContext


async def call(
    gateway: Gateway,
    operation: str,
    tool: str = "session_create",
    *,
    repeated: bool = False,
    instance: str | None = None,
    **arguments: Any,
) -> Outcome:
    instance = instance or gateway.own_tool_calls.instance
    who = OwnMeta(operation, is_repeat=repeated, instance=instance)
    return await gateway.own_tool_calls.run(
        gateway.tools.own[tool], ToolContext(LOCAL), arguments, who
    )


async def test_a_repeat_gets_the_same_outcome_and_nothing_is_stored(gateway: Gateway) -> None:
    first = await call(gateway, "create", name="one")
    again = await call(gateway, "create", repeated=True, name="one")
    assert again.content == first.content
    assert again.session == first.session
    assert await gateway.store.receipts(first.content["session_id"]) == (0, 0)
    with pytest.raises(InvalidArgument):
        await call(gateway, "create", repeated=True, name="two")


async def test_an_error_is_raised_again(gateway: Gateway) -> None:
    await call(gateway, "taken", name="taken")
    for repeated in (False, True):
        with pytest.raises(NameTaken):
            await call(gateway, "taken again", repeated=repeated, name="taken")


async def test_a_call_for_another_process_is_not_run(gateway: Gateway) -> None:
    with pytest.raises(AnotherProcess) as error_info:
        await call(gateway, "moved", instance="another", name="moved")
    assert error_info.value.instance == gateway.own_tool_calls.instance
    with pytest.raises(OutcomeUnknown):
        await call(gateway, "moved", instance="another", repeated=True, name="moved")
    moved = await call(gateway, "moved", name="moved")
    # It is remembered here, whatever process its caller names when it repeats the call.
    again = await call(gateway, "moved", instance="another", repeated=True, name="moved")
    assert again.content == moved.content


async def test_a_call_runs_to_its_end_when_its_caller_is_gone(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go, create = anyio.Event(), anyio.Event(), gateway.registry.create

    async def slow(*arguments: Any) -> Any:
        begun.set()
        await go.wait()
        return await create(*arguments)

    monkeypatch.setattr(gateway.registry, "create", slow)
    outcomes: list[Outcome] = []
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            first = anyio.CancelScope()

            async def leave() -> None:
                with first:
                    await call(gateway, "slow", name="slow")

            async def repeat() -> None:
                outcomes.append(await call(gateway, "slow", repeated=True, name="slow"))

            tasks.start_soon(leave)
            await begun.wait()
            first.cancel()
            tasks.start_soon(repeat)
            await anyio.wait_all_tasks_blocked()
            assert outcomes == []
            go.set()
    [outcome] = outcomes
    assert (await gateway.registry.find(LOCAL, "slow")).id == outcome.content["session_id"]
