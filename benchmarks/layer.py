"""(l) The time of the session layer in a call: the lookup, the lock and the journal, around a tool that does nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from statehold.sessions.calls.request import Request
from statehold.sessions.calls.router import Router
from statehold.sessions.clock import SystemClock
from statehold.sessions.core import Core
from statehold.sessions.json_codec import JSON
from statehold.sessions.node import Node
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL
from statehold.sessions.registry import Registry
from statehold.sessions.services import (
    ApprovalRule,
    CallContext,
    LossPolicy,
    PausePolicy,
    RestoreReport,
    SessionView,
    Snapshot,
    ToolResult,
    ToolSpec,
)
from statehold.sessions.store.sql import SQLStore
from statehold.sessions.transitions.create import CreationOptions
from statehold.tools.upstream.recipe import InternalContext

from .plan import Plan
from .report import Row, Table, Target
from .samples import quantile, undisturbed

OWN_MS = {50: 0.3, 99: 1.0}
"""The ms of a call that the session layer may take, by percentile."""
CALLS = 25
"""Factor over the number of calls to another process in other parts."""
TOOL = "nothing"


async def measure(plan: Plan) -> Table:
    table = Table("(l) layer: ms of a call that does nothing, in a session with a data folder")
    for journal in (True, False):
        latencies = await _latencies(
            plan, plan.folder / f"layer-{journal}", Policy(journal_calls=journal)
        )
        row: Row = {"journal": "on" if journal else "off"}
        row |= {f"p{part}": quantile(latencies, part / 100) * 1000 for part in (10, 50, 99)}
        table.rows.append(row | {"calls": len(latencies)})
        if journal:
            table.targets += [
                Target(f"own time of the session layer, p{part}", value, bound, "ms")
                for part, bound in OWN_MS.items()
                if isinstance(value := row[f"p{part}"], float)
            ]
    return table


async def _latencies(plan: Plan, folder: Path, policy: Policy) -> list[float]:
    clock = SystemClock()
    latencies: list[float] = []
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(SQLStore.sqlite(folder))
        node = await stack.enter_async_context(
            Node(store, folder, address="benchmarks", clock=clock.now)
        )
        registry = await stack.enter_async_context(
            Registry(Core.create(store, node, {TOOL: Nothing()}, policy=policy, clock=clock))
        )
        router = Router(registry)
        session = await registry.create(LOCAL, CreationOptions())
        for number in range(plan.rounds + 1):
            with undisturbed():
                for _ in range(plan.calls * CALLS):
                    began = time.perf_counter()
                    await router.call(Request(LOCAL, session.id, TOOL, TOOL, {}), InternalContext())
                    # The first round warms up.
                    if number:
                        latencies.append(time.perf_counter() - began)
    return latencies


@dataclass(eq=False)
class _Connection:
    restore_report: RestoreReport = field(default_factory=RestoreReport)
    lost: anyio.Event = field(default_factory=anyio.Event)
    reason: str | None = None
    busy: str | None = None
    unsaved: bool = False
    resumption: None = None

    async def call(self, tool: str, arguments: Mapping[str, Any], ctx: CallContext) -> ToolResult:
        # A real tool waits, and the journal is written meanwhile.
        await anyio.lowlevel.checkpoint()
        return ToolResult({"content": [{"type": "text", "text": "done"}]})

    async def snapshot(self) -> Snapshot | None:
        return None

    checkpoint = snapshot

    async def aclose(self) -> None: ...


@dataclass(eq=False)
class Nothing:
    """A service in this process, whose one tool does nothing."""

    name: str = TOOL
    config_hash: str = "1"
    pause: PausePolicy = "keep"
    on_lost: LossPolicy = "pause"
    scope: Any = "session"
    concurrency: int = 1
    eager: bool = False
    approve: ApprovalRule = "never"
    connect_seconds: float = 5.0
    call_seconds: float = 30.0
    checkpoint_seconds: float | None = None

    async def tools(self) -> Sequence[ToolSpec]:
        return tuple(self.specs.values())

    @property
    def specs(self) -> Mapping[str, ToolSpec]:
        schema: JSON = {"type": "object", "properties": {}}
        return {TOOL: ToolSpec(TOOL, {"name": TOOL, "inputSchema": schema})}

    async def open(self, session: SessionView, snapshot: Snapshot | None) -> _Connection:
        return _Connection()

    async def resume(
        self, session: SessionView, token: str, snapshot: Snapshot | None
    ) -> _Connection:
        return _Connection()
