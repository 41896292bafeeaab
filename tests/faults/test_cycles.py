"""Three hundred sessions opened and ended in every bad way: nothing of them is left."""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from counting import Nobody

from statehold.sessions.clock import SystemClock
from statehold.sessions.cluster import Node
from statehold.sessions.creation import Wish
from statehold.sessions.errors import SessionError
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL
from statehold.sessions.registry import Registry
from statehold.sessions.router import Request, Router
from statehold.sessions.store.sql import SQLStore
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.ledger import Ledger
from statehold.tools.upstream.service import UpstreamService

QUICK = Path(__file__).resolve().parents[1] / "upstreams" / "quick.py"
CYCLES, AT_ONCE = 300, 12

pytestmark = pytest.mark.fault


class Rig:
    """A node over real processes."""

    def __init__(self, registry: Registry, router: Router) -> None:
        self.registry = registry
        self.router = router

    async def call(self, session: str, tool: str, **arguments: Any) -> dict[str, Any]:
        answer = await self.router.call(Request(LOCAL, session, "quick", tool, arguments), Nobody())
        return answer.payload


@asynccontextmanager
async def rig(data: Path) -> AsyncGenerator[Rig]:
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(SQLStore.sqlite(data))
        starting = Node.start(store, data, address="a test", clock=clock.now)
        node = await stack.enter_async_context(starting)
        ledger = Ledger(data, node=node.id)
        stack.push_async_callback(ledger.aclose)
        config = UpstreamConfig(command=sys.executable, args=[str(QUICK)])
        service = UpstreamService("quick", config, data=data, ledger=ledger)
        policy = Policy(recovery_backoff=(0.01, 0.05), close_grace=0.5)
        registry = await stack.enter_async_context(
            Registry(store, node, {"quick": service}, policy=policy, clock=clock)
        )
        yield Rig(registry, Router(registry, store, node.id))


async def cycle(rig: Rig, way: str) -> None:
    """Open a session, use it, and end it in one of the ways it can end."""
    session = (await rig.registry.create(LOCAL, Wish())).id
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
        while not rig.registry.statistics()["in_flight"]:
            await anyio.lowlevel.checkpoint()
        await rig.registry.close(LOCAL, session, force=force)
    assert codes == ["session_closed"]


WAYS = ("close", "crash", "kill", "cancel", "force", "close_pending", "pause", "opener_cancelled")


@pytest.mark.timeout(180)
async def test_three_hundred_cycles_leave_nothing_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, leaks: Any
):
    chance = random.Random(7)
    caplog.set_level(logging.ERROR)
    slots = anyio.Semaphore(AT_ONCE)

    async def one(rig: Rig, way: str) -> None:
        async with slots:
            await cycle(rig, way)

    async with rig(tmp_path) as running:
        async with anyio.create_task_group() as tasks:
            for _ in range(CYCLES):
                tasks.start_soon(one, running, chance.choice(WAYS))
        assert running.registry.statistics()["owned"] == 0
        assert running.registry.statistics()["live"] == 0
    await leaks.check()
    assert not caplog.records, caplog.text
