"""Work with something beside it."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from statehold.sessions.concurrency import LazyEvent, RaceLost, race
from statehold.sessions.json_codec import LARGE, is_large


async def work() -> str:
    await anyio.wait_all_tasks_blocked()
    return "done"


async def test_a_caller_that_is_cancelled_at_the_end_gets_the_result() -> None:
    async def other() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            scope.cancel()

    results: list[str] = []
    with anyio.CancelScope() as scope:
        results.append(await race(other, work))
        await anyio.lowlevel.checkpoint()
        results.append("went on")
    assert results == ["done"]


async def test_an_overtaken_caller_gets_an_error() -> None:
    async def other() -> None:
        pass

    with pytest.raises(RaceLost):
        await race(other, anyio.sleep_forever)


async def test_an_exception_of_the_work_is_raised_unchanged() -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await race(anyio.sleep_forever, fail)


async def test_a_lazy_event_wakes_those_that_still_wait_and_delays_nobody_later() -> None:
    event, woken = LazyEvent(), list[str]()

    async def wait(name: str) -> None:
        await event.wait()
        woken.append(name)

    async with anyio.create_task_group() as tasks:
        with anyio.move_on_after(0):
            await wait("too late")
        tasks.start_soon(wait, "first")
        tasks.start_soon(wait, "second")
        await anyio.wait_all_tasks_blocked()
        assert not event.is_set()
        event.set()
    await wait("later")
    assert (woken, event.is_set()) == (["first", "second", "later"], True)


@pytest.mark.parametrize(
    "value",
    [{"content": [{"text": "x" * LARGE}]}, {"rows": [[1, 2]] * LARGE}, {"x" * LARGE: 1}],
)
def test_work_on_a_large_value_does_not_delay_the_event_loop(value: Any) -> None:
    assert is_large(value)
    assert not is_large({"text": "x"})
