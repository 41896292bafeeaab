"""A node over real processes: the registry, the router, a store in a folder, and the quick counter as an upstream."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from statehold.sessions.calls.request import CallAnswer, Request
from statehold.sessions.calls.router import Router
from statehold.sessions.clock import SystemClock
from statehold.sessions.core import Core
from statehold.sessions.node import Node
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL
from statehold.sessions.registry import Registry
from statehold.sessions.store.sql import SQLStore
from statehold.tools.processes.ledger import Ledger
from statehold.tools.upstream.config import UpstreamConfig
from statehold.tools.upstream.service import UpstreamService

from .counting import Nobody
from .waiting import until

QUICK = Path(__file__).resolve().parents[1] / "upstreams" / "quick.py"


class Rig:
    """A node over real processes."""

    def __init__(
        self, registry: Registry, router: Router, service: UpstreamService, log: Path
    ) -> None:
        self.log = log
        self.registry = registry
        self.router = router
        self.services = {"quick": service}

    async def answer(self, session: str, tool: str, **arguments: Any) -> CallAnswer:
        return await self.router.call(Request(LOCAL, session, "quick", tool, arguments), Nobody())

    async def call(self, session: str, tool: str, **arguments: Any) -> dict[str, Any]:
        return (await self.answer(session, tool, **arguments)).payload

    async def arrived(self, tool: str) -> None:
        """Return when an upstream has got a call of a tool."""
        await until(lambda: self.log.exists() and f'"{tool}"' in self.log.read_text())

    async def in_flight(self, count: int) -> None:
        """Return when so many calls are under way."""
        with anyio.fail_after(10):
            while self.registry.statistics()["in_flight"] != count:
                await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def rig(data: Path) -> AsyncGenerator[Rig]:
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(SQLStore.sqlite(data))
        starting = Node(store, data, address="a test", clock=clock.now)
        node = await stack.enter_async_context(starting)
        ledger = Ledger(data, node=node.id)
        stack.push_async_callback(ledger.aclose)
        log = data / "calls.jsonl"
        config = UpstreamConfig(command=sys.executable, args=[str(QUICK), "--log", str(log)])
        service = UpstreamService("quick", config, data=data, ledger=ledger)
        policy = Policy(recovery_backoff=(0.01, 0.05), close_grace=0.5)
        registry = await stack.enter_async_context(
            Registry(Core.create(store, node, {"quick": service}, policy=policy, clock=clock))
        )
        yield Rig(registry, Router(registry), service, log)
