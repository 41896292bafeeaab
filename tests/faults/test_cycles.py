"""Sessions opened and ended in every bad way: nothing of them is left."""

from __future__ import annotations

import logging
import os
import random
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.rig import Rig, rig
from support.selection import matrix
from support.waiting import until

from statehold.sessions.errors import SessionError
from statehold.sessions.records import LOCAL
from statehold.sessions.transitions.create import CreationOptions

AT_ONCE = 12

pytestmark = pytest.mark.fault


async def cycle(rig: Rig, way: str) -> None:
    """Open a session, use it, and end it in one of the ways it can end."""
    session = (await rig.registry.create(LOCAL, CreationOptions())).id
    if way == "opener_cancelled":
        with anyio.move_on_after(0.01):
            await rig.call(session, "inc")
    else:
        first = await rig.call(session, "inc")
        assert first["structuredContent"]["count"] == 1
        await end(rig, session, way, first["structuredContent"]["pid"])
    await rig.registry.close(LOCAL, session, force=way == "force")
    with pytest.raises(SessionError):
        await rig.call(session, "inc")


async def end(rig: Rig, session: str, way: str, pid: int) -> None:
    match way:
        case "crash":
            with pytest.raises(SessionError) as caught:
                await rig.call(session, "crash")
            assert caught.value.code == "outcome_unknown"
        case "kill":
            os.kill(pid, signal.SIGKILL)
        case "cancel":
            with anyio.move_on_after(0.02):
                await rig.call(session, "hang")
            assert (await rig.call(session, "inc"))["structuredContent"]["count"] == 2
        case "force" | "close_pending":
            await close_pending(rig, session, force=way == "force")
        case "pause":
            await rig.registry.pause(LOCAL, session)
        case _:
            pass


async def close_pending(rig: Rig, session: str, *, force: bool) -> None:
    codes: list[str] = []

    async def hang() -> None:
        try:
            await rig.call(session, "hang")
        except SessionError as error:
            codes.append(error.code)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hang)
        await until(lambda: rig.registry.statistics()["in_flight"])
        await rig.registry.close(LOCAL, session, force=force)
    assert codes == ["session_closed"]


WAYS = ("close", "crash", "kill", "cancel", "force", "close_pending", "pause", "opener_cancelled")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("rounds", matrix(2, 20))
async def test_cycles_leave_nothing_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, leaks: Any, rounds: int
):
    chance = random.Random(7)
    caplog.set_level(logging.ERROR)
    slots = anyio.Semaphore(AT_ONCE)

    async def one(running: Rig, way: str) -> None:
        async with slots:
            await cycle(running, way)

    async with rig(tmp_path) as running:
        async with anyio.create_task_group() as tasks:
            for way in chance.sample(WAYS * rounds, len(WAYS) * rounds):
                tasks.start_soon(one, running, way)
        assert running.registry.statistics()["owned"] == 0
        assert running.registry.statistics()["live"] == 0
    await leaks.check()
    assert not caplog.records, caplog.text
