"""Work with something beside it."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from statehold.sessions.concurrency import RaceLost, race


async def work() -> str:
    await anyio.wait_all_tasks_blocked()
    return "done"


async def test_what_was_done_is_returned_to_who_is_cancelled_when_it_ends() -> None:
    async def other() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            scope.cancel()

    found: list[str] = []
    with anyio.CancelScope() as scope:
        found.append(await race(other, work))
        await anyio.lowlevel.checkpoint()
        found.append("went on")
    assert found == ["done"]


async def test_who_is_overtaken_is_told() -> None:
    async def other() -> None:
        pass

    with pytest.raises(RaceLost):
        await race(other, anyio.sleep_forever)


async def test_what_the_work_raises_is_raised_as_it_is() -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await race(anyio.sleep_forever, fail)
