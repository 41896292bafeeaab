"""A service that lives in this process: it counts, and the tests can make it fail in every way a connection can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import anyio.lowlevel

from statehold.sessions.errors import ConnectionLost, OutcomeUnknown, ServiceUnavailable
from statehold.sessions.json_codec import JSON
from statehold.sessions.services import (
    ApprovalRule,
    CallContext,
    CallerOptions,
    LossPolicy,
    PausePolicy,
    RestoreReport,
    Resumption,
    SessionView,
    Snapshot,
    ToolResult,
    ToolSpec,
)


class Nobody:
    """A caller that wants nothing."""

    options = CallerOptions()
    capabilities: JSON = {}  # noqa: RUF012 a constant of the tests
    wants_facts = False
    operation_id: str | None = None
    note_upstream_task = None
    reachable = True

    async def progress(self, progress: float, total: float | None, message: str | None) -> None: ...

    async def log(self, params: JSON) -> None: ...

    async def ask(self, method: str, params: JSON) -> JSON:
        raise AssertionError("nobody is asked")


async def refuse() -> Snapshot | None:
    """Stands in for snapshot() or checkpoint() of a connection that cannot be saved."""
    raise ServiceUnavailable("The counter does not answer.\nNor does anybody.")


@dataclass(eq=False)
class Counter:
    """One connection: a number."""

    service: Counting
    view: SessionView
    count: int = 0
    restore_report: RestoreReport = field(default_factory=RestoreReport)
    lost: anyio.Event = field(default_factory=anyio.Event)
    reason: str | None = None
    closed: bool = False
    busy: str | None = None
    unsaved: bool = False

    @property
    def resumption(self) -> Resumption | None:
        return None

    async def call(self, tool: str, arguments: Mapping[str, Any], ctx: CallContext) -> ToolResult:
        self.service.calls.append((self.view.id, tool))
        if tool == "hold":
            return await self._hold()
        if tool == "die":
            self.die("told to die")
            raise OutcomeUnknown("The connection died during the call.")
        if tool == "fail":
            return ToolResult({"content": [{"type": "text", "text": "no"}], "isError": True})
        if tool == "inc":
            self.count += 1
            self.unsaved = True
        return ToolResult(
            {
                "content": [{"type": "text", "text": str(self.count)}],
                "structuredContent": {"count": self.count, "generation": self.view.generation},
            }
        )

    async def _hold(self) -> ToolResult:
        self.service.holding.set()
        async with anyio.create_task_group() as race:

            async def until(event: anyio.Event) -> None:
                await event.wait()
                race.cancel_scope.cancel()

            race.start_soon(until, self.lost)
            race.start_soon(until, self.service.let_go)
        if self.lost.is_set():
            raise OutcomeUnknown("The connection died during the call.")
        return ToolResult({"content": [{"type": "text", "text": "held"}]})

    def die(self, reason: str) -> None:
        self.reason = reason
        self.lost.set()

    async def snapshot(self) -> Snapshot | None:
        if self.service.pause != "snapshot":
            return None
        self.unsaved = False
        return Snapshot({"count": self.count})

    async def checkpoint(self) -> Snapshot | None:
        self.service.checkpoints += 1
        return await self.snapshot()

    async def aclose(self) -> None:
        if not self.closed:
            self.closed = True
            self.service.open_now -= 1
            self.service.live.remove(self)


SPECS = {
    name: ToolSpec(
        name,
        {
            "name": name,
            "inputSchema": {"type": "object", "properties": {}},
            "annotations": {"readOnlyHint": name == "get"},
        },
    )
    for name in ("inc", "get", "hold", "die", "fail")
}


@dataclass(eq=False)
class Counting:
    """The service. `live` are its open connections, `opened` counts how many were ever opened."""

    name: str = "counter"
    config_hash: str = "1"
    pause: PausePolicy = "keep"
    on_lost: LossPolicy = "pause"
    scope: Literal["session", "shared"] = "session"
    concurrency: int = 16
    eager: bool = False
    approve: ApprovalRule = "never"
    connect_seconds: float = 5.0
    call_seconds: float = 30.0
    checkpoint_seconds: float | None = None
    refuse: int = 0
    """The number of openings that still fail."""
    checkpoints: int = 0
    """The number of checkpoints taken."""
    opened: int = 0
    open_now: int = 0
    live: list[Counter] = field(default_factory=list[Counter])
    calls: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    holding: anyio.Event = field(default_factory=anyio.Event)
    let_go: anyio.Event = field(default_factory=anyio.Event)
    specs: dict[str, ToolSpec] = field(default_factory=lambda: dict(SPECS))

    async def tools(self) -> Sequence[ToolSpec]:
        return tuple(self.specs.values())

    async def resume(self, session: SessionView, token: str, snapshot: Snapshot | None) -> Counter:
        raise ConnectionLost("the counter ended with its process")

    async def open(self, session: SessionView, snapshot: Snapshot | None) -> Counter:
        await anyio.lowlevel.checkpoint()
        if self.refuse:
            self.refuse -= 1
            raise ServiceUnavailable("The counter does not open.")
        self.opened += 1
        self.open_now += 1
        counter = self.connection(session)
        if snapshot is not None:
            counter.count = snapshot.data["count"]
            counter.restore_report = RestoreReport("the count")
        elif session.generation > 1:
            counter.restore_report = RestoreReport("", "the count")
        self.live.append(counter)
        return counter

    def connection(self, session: SessionView) -> Counter:
        return Counter(self, session)


__all__ = ["Counter", "Counting", "Nobody", "refuse"]
