"""A registry over an in-memory store, an in-process service and a clock that only the test moves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from statehold.sessions.actions.summaries import Summarize
from statehold.sessions.calls.request import CallAnswer, Request
from statehold.sessions.calls.router import Router
from statehold.sessions.clock import ManualClock
from statehold.sessions.core import Core
from statehold.sessions.errors import StoreUnavailable
from statehold.sessions.live.session import LiveSession
from statehold.sessions.node import Node
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL, Principal
from statehold.sessions.registry import Registry
from statehold.sessions.store.sql import SQLStore
from statehold.sessions.transitions.create import CreationOptions

from .counting import Counting, Nobody


@dataclass
class Engine:
    """One node with everything a test needs to look into it."""

    registry: Registry
    router: Router
    store: SQLStore
    clock: ManualClock
    node: Node
    services: dict[str, Counting]

    @property
    def counter(self) -> Counting:
        return self.services["counter"]

    async def create(self, principal: Principal = LOCAL, **options: Any) -> LiveSession:
        return await self.registry.create(principal, CreationOptions(**options))

    async def call(
        self,
        session: str,
        tool: str = "inc",
        *,
        principal: Principal = LOCAL,
        service: str = "counter",
        **arguments: Any,
    ) -> CallAnswer:
        return await self.router.call(
            Request(principal, session, service, tool, arguments), Nobody()
        )

    async def count(self, session: str, tool: str = "inc", **options: Any) -> int:
        answer = await self.call(session, tool, **options)
        return answer.payload["structuredContent"]["count"]

    async def until(self, condition: Callable[[], object]) -> None:
        """Let everything else run until something is true."""
        with anyio.fail_after(5):
            while not condition():  # noqa: ASYNC110 nothing tells: the condition is the test's own
                await anyio.sleep(0.001)

    async def pass_time(self, condition: Callable[[], object], step: float = 0.25) -> None:
        """Move the clock on, letting everything else run in between, until something is true."""
        with anyio.fail_after(5):
            while not condition():
                self.clock.advance(step)
                await anyio.sleep(0.001)

    async def status(self, session: str, principal: Principal = LOCAL) -> str:
        return (await self.registry.info(principal, session))["status"]


@contextmanager
def failing(engine: Engine, method: str = "write") -> Generator[None]:
    """Make one method of the store fail until the block ends."""

    async def refuse(*_: object, **__: object) -> None:
        raise StoreUnavailable("The disk is full.")

    setattr(engine.store, method, refuse)
    try:
        yield
    finally:
        delattr(engine.store, method)


Build = Callable[..., Any]


@asynccontextmanager
async def engine(
    *services: Counting,
    folder: Path | None = None,
    policy: Policy | None = None,
    clock: ManualClock | None = None,
    new_id: Callable[[], str] | None = None,
    summarize: Summarize | None = None,
) -> AsyncGenerator[Engine]:
    by_name = {s.name: s for s in services or (Counting(),)}
    clock = clock or ManualClock()
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(
            SQLStore.memory() if folder is None else SQLStore.sqlite(folder)
        )
        node = await stack.enter_async_context(
            Node(store, folder, address="a test", clock=clock.now)
        )
        options: dict[str, Any] = {} if new_id is None else {"new_id": new_id}
        core = Core.create(store, node, by_name, policy=policy, clock=clock, **options)
        registry = await stack.enter_async_context(Registry(core, summarize=summarize))
        yield Engine(registry, Router(registry), store, clock, node, by_name)
