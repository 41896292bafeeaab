"""Repeated calls of our own tools: one call of each operation id runs, and an unknown outcome is reported."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from statehold.server.gateway import repeats as module
from statehold.server.gateway.repeats import AnotherProcess, Repeats
from statehold.server.sdk.caller import Caller
from statehold.sessions.calls.attempts import REMEMBERED
from statehold.sessions.calls.request import Request
from statehold.sessions.clock import ManualClock
from statehold.sessions.errors import InvalidArgument, NameTaken, OutcomeUnknown
from statehold.sessions.records import LOCAL, Principal
from statehold.tools.own.definition import Outcome

HERE = "node-1"


def request(n: int = 1, principal: Principal = LOCAL) -> Request:
    return Request(principal, "", "", "state_update", {"n": n})


def caller(operation: str | None, *, repeated: bool = False, instance: str | None = HERE) -> Caller:
    given = {
        "statehold/operation_id": operation,
        "statehold/operation_instance": instance,
        "statehold/operation_repeated": repeated,
    }
    meta = {key: value for key, value in given.items() if value is not None}
    return Caller(cast("Any", SimpleNamespace()), {"_meta": meta})


class Work:
    """Counts how often it is run; `go` lets it end."""

    def __init__(self, error: Exception | None = None) -> None:
        self.times = 0
        self.begun, self.go = anyio.Event(), anyio.Event()
        self.go.set()
        self._error = error

    async def __call__(self) -> Outcome:
        self.times += 1
        self.begun.set()
        await self.go.wait()
        if self._error is not None:
            raise self._error
        return Outcome({"times": self.times})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def repeats(clock: ManualClock) -> Repeats:
    return Repeats(HERE, clock)


async def test_a_repeat_gets_what_the_first_one_got_and_another_id_runs(repeats: Repeats) -> None:
    work = Work()
    for again in (False, True, True):
        found = await repeats.run(request(), caller("a", repeated=again), work)
        assert found.content == {"times": 1}
    assert (await repeats.run(request(), caller("b"), work)).content == {"times": 2}
    other = Principal(subject="other")
    assert (await repeats.run(request(1, other), caller("a"), work)).content == {"times": 3}


async def test_what_the_first_one_raised_is_raised_again(repeats: Repeats) -> None:
    work = Work(NameTaken("There is one."))
    for again in (False, True):
        with pytest.raises(NameTaken, match="There is one"):
            await repeats.run(request(), caller("a", repeated=again), work)
    assert work.times == 1


async def test_an_id_is_of_one_call(repeats: Repeats) -> None:
    work = Work()
    await repeats.run(request(1), caller("a"), work)
    with pytest.raises(InvalidArgument):
        await repeats.run(request(2), caller("a", repeated=True), work)
    assert work.times == 1


@pytest.mark.parametrize("who", [(None, HERE), ("a", None)])
async def test_without_an_id_or_a_process_each_is_run(
    repeats: Repeats, who: tuple[str | None, str | None]
) -> None:
    work = Work()
    for again in (False, True):
        await repeats.run(request(), caller(who[0], repeated=again, instance=who[1]), work)
    assert work.times == 2


async def test_one_that_never_came_is_run_and_one_of_another_process_is_not(
    repeats: Repeats,
) -> None:
    work = Work()
    await repeats.run(request(), caller("a", repeated=True), work)
    with pytest.raises(AnotherProcess) as caught:
        await repeats.run(request(), caller("b", instance="node-0"), work)
    assert caught.value.instance == HERE
    await repeats.run(request(), caller("b"), work)
    # It is remembered here, whatever its caller takes this for.
    await repeats.run(request(), caller("b", repeated=True, instance="node-0"), work)
    assert work.times == 2
    with pytest.raises(OutcomeUnknown):
        await repeats.run(request(), caller("c", repeated=True, instance="node-0"), work)
    assert work.times == 2


async def test_it_ends_when_its_caller_is_gone_and_a_repeat_waits_for_it(repeats: Repeats) -> None:
    work, found = Work(), list[Outcome]()
    work.go = anyio.Event()

    async def run(who: Caller) -> None:
        found.append(await repeats.run(request(), who, work))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            first = anyio.CancelScope()

            async def leave() -> None:
                with first:
                    await run(caller("a"))

            tasks.start_soon(leave)
            await work.begun.wait()
            first.cancel()
            tasks.start_soon(run, caller("a", repeated=True))
            await anyio.wait_all_tasks_blocked()
            assert found == []
            work.go.set()
    assert [each.content for each in found][-1] == {"times": 1}
    assert work.times == 1


async def test_of_many_only_the_ids_are_remembered_and_of_more_that_something_was_forgotten(
    repeats: Repeats, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESULTS", 2)
    monkeypatch.setattr(module, "KEPT", 3)
    work = Work()
    again: Callable[[str], Awaitable[Outcome]] = lambda key: repeats.run(  # noqa: E731
        request(), caller(key, repeated=True), work
    )
    for key in "abc":
        await repeats.run(request(), caller(key), work)
    assert (await again("c")).content == {"times": 3}
    with pytest.raises(OutcomeUnknown, match="took effect"):
        await again("a")
    await repeats.run(request(), caller("d"), work)
    for key in ("a", "never seen"):
        with pytest.raises(OutcomeUnknown):
            await again(key)
    assert work.times == 4
    clock.advance(REMEMBERED)
    assert (await again("never seen")).content == {"times": 5}
