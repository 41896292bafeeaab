"""The guard: each promise over sessions and principals, with receipts in memory and in the store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from support.counting import Nobody
from support.engine import Build, Engine
from support.selection import matrix

from statehold.sessions.calls import receipt_memory
from statehold.sessions.calls.deadline import WaitProgress
from statehold.sessions.calls.idempotency import (
    CallReceipts,
    IdempotencyGuard,
    Receipts,
    ToolReceipts,
)
from statehold.sessions.calls.receipt_memory import REMEMBERED, ReceiptMemory
from statehold.sessions.calls.receipts import (
    Operation,
    RunningOperations,
    creation_id,
    digest_of,
)
from statehold.sessions.calls.request import Call, Request
from statehold.sessions.errors import (
    InvalidArgument,
    OutcomeUnknown,
    ServiceUnavailable,
    SessionBusy,
    SessionLimit,
    StoreUnavailable,
)
from statehold.sessions.live.session import LiveSession
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL
from statehold.sessions.services import ToolResult
from statehold.sessions.transitions.create import CreationOptions

Kind = Literal["memory", "service", "tool", "creation"]
KINDS: tuple[Kind, ...] = ("service", "creation", "tool", "memory")
STORED: tuple[Kind, ...] = ("service", "tool", "creation")


@dataclass
class Guarded:
    """Runs operations with one kind of receipts, and counts the runs. `go` lets them end."""

    engine: Engine
    kind: Kind
    session: LiveSession
    runs: int = 0
    begun: anyio.Event = field(default_factory=anyio.Event)
    go: anyio.Event = field(default_factory=anyio.Event)
    error: Exception | None = None
    effective: bool = True
    origin: int = 1
    scope: str = ""
    """The scope of operations in memory, if it is not the session."""

    def __post_init__(self) -> None:
        self.go.set()
        self.guard: IdempotencyGuard = self.engine.router.guard
        self.memory = ReceiptMemory(self.engine.clock, self.engine.registry.core.policy, 1)

    def _plan(self, operation_id: str, n: int, is_repeat: bool) -> tuple[Operation, Receipts]:
        session, digest = self.session, digest_of("", "change", {"n": n})
        match self.kind:
            case "memory":
                scope = self.scope or session.id
                operation = Operation(scope, operation_id, digest, self.origin, is_repeat)
                return operation, self.memory
            case "service":
                operation = Operation(session.id, operation_id, digest)
                request = Request(LOCAL, session.id, "counter", "inc", {"n": n}, operation_id)
                waiting = WaitProgress(Nobody())
                call = Call(
                    request, session, session.bindings["counter"], Nobody(), waiting, operation
                )
                return operation, CallReceipts(self.engine.registry.core, call)
            case "tool":
                operation = Operation(session.id, operation_id, digest)
            case "creation":
                operation = Operation(LOCAL.key, creation_id(operation_id), digest)
        return operation, ToolReceipts(self.engine.registry, LOCAL)

    async def run(self, operation_id: str = "op", n: int = 0, *, is_repeat: bool = True) -> Any:
        operation, receipts = self._plan(operation_id, n, is_repeat)
        async with self.guard.once(operation, receipts) as recorded:
            operation.result = recorded or await self._change(operation)
        return operation.result.payload

    async def _change(self, operation: Operation) -> ToolResult:
        operation.effective = self.effective
        self.runs += 1
        if self.kind == "creation":
            await self.engine.registry.create(LOCAL, CreationOptions(operation=operation))
        self.begun.set()
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return ToolResult({"runs": self.runs})


@pytest.fixture
async def home(build: Build) -> AsyncGenerator[Engine]:
    async with build() as engine:
        yield engine


@pytest.fixture(params=matrix(*KINDS, quick=2))
async def guarded(request: pytest.FixtureRequest, home: Engine) -> Guarded:
    return Guarded(home, request.param, await home.create())


async def test_a_repeat_gets_the_result_of_the_first(guarded: Guarded) -> None:
    for _ in range(3):
        assert await guarded.run() == {"runs": 1}
    assert await guarded.run("another") == {"runs": 2}


async def test_an_id_cannot_be_used_for_another_call(guarded: Guarded) -> None:
    await guarded.run(n=1)
    with pytest.raises(InvalidArgument, match="another call"):
        await guarded.run(n=2)
    assert guarded.runs == 1


async def test_concurrent_repeats_wait_for_the_first(guarded: Guarded) -> None:
    guarded.go = anyio.Event()
    results: list[Any] = []

    async def one() -> None:
        results.append(await guarded.run())

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(one)
        await guarded.begun.wait()
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(InvalidArgument):
            await guarded.run(n=1)
        with anyio.move_on_after(0) as gone:
            await guarded.run()
        assert gone.cancelled_caught
        assert (results, guarded.runs) == ([], 1)
        guarded.go.set()
    assert (results, guarded.runs) == ([{"runs": 1}] * 5, 1)


async def test_a_recorded_error_is_raised_again(guarded: Guarded) -> None:
    guarded.error = InvalidArgument("no such thing")
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="no such thing"):
            await guarded.run()
    assert guarded.runs == 1


async def test_a_call_without_effect_leaves_its_id_unused(guarded: Guarded) -> None:
    guarded.error, guarded.effective = ServiceUnavailable("not now"), False
    with pytest.raises(ServiceUnavailable):
        await guarded.run()
    guarded.error = None
    assert await guarded.run() == {"runs": 2}
    assert await guarded.run() == {"runs": 2}


@pytest.mark.parametrize("error", [KeyError("a fault"), StoreUnavailable("down"), None])
async def test_a_call_that_failed_or_was_cancelled_is_unknown(
    guarded: Guarded, error: Exception | None
) -> None:
    guarded.error = error
    if error is None:
        guarded.go = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(guarded.run)
            await guarded.begun.wait()
            tasks.cancel_scope.cancel()
    else:
        with pytest.raises(type(error)):
            await guarded.run()
    for _ in range(2):
        with pytest.raises(OutcomeUnknown, match="may have taken effect"):
            await guarded.run()
    assert guarded.runs == 1


async def test_a_call_of_a_service_and_one_of_a_tool_share_the_ids_of_a_session(
    home: Engine,
) -> None:
    guarded = Guarded(home, "tool", await home.create())
    guarded.go = anyio.Event()
    call = Request(LOCAL, guarded.session.id, "counter", "inc", {}, operation_id="op")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(guarded.run)
        await guarded.begun.wait()
        with pytest.raises(InvalidArgument):
            await home.router.call(call, Nobody())
        guarded.go.set()
    with pytest.raises(InvalidArgument):
        await home.router.call(call, Nobody())
    assert home.counter.calls == []


# Receipts in the store.


@pytest.mark.parametrize("kind", STORED)
async def test_a_stored_receipt_survives_the_process(
    build: Build, tmp_path: Path, kind: Kind
) -> None:
    async with build(folder=tmp_path) as home:
        session = (await home.create()).id
        first = Guarded(home, kind, await home.registry.ready(LOCAL, session))
        await first.run(n=1)
        first.error = KeyError("a fault")
        with pytest.raises(KeyError):
            await first.run("failed")
    async with build(folder=tmp_path) as home:
        again = Guarded(home, kind, await home.registry.ready(LOCAL, session))
        assert await again.run(n=1) == {"runs": 1}
        with pytest.raises(InvalidArgument):
            await again.run(n=2)
        with pytest.raises(OutcomeUnknown):
            await again.run("failed")
        assert again.runs == 0


@pytest.mark.parametrize("kind", matrix("tool", "creation"))
async def test_a_call_that_another_process_runs_is_busy(
    build: Build, tmp_path: Path, kind: Kind
) -> None:
    async with build(folder=tmp_path) as here, build(folder=tmp_path) as there:
        session = await here.create()
        mine, other = Guarded(here, kind, session), Guarded(there, kind, session)
        mine.go = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mine.run)
            await mine.begun.wait()
            with pytest.raises(SessionBusy):
                await other.run()
            mine.go.set()
        assert (await other.run(), mine.runs, other.runs) == ({"runs": 1}, 1, 0)


@pytest.mark.parametrize("kind", matrix("creation", "tool"))
async def test_of_two_processes_at_once_one_runs_the_call(
    build: Build, tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def absent(*_: object) -> None: ...

    async with build(folder=tmp_path) as here, build(folder=tmp_path) as there:
        session = await here.create()
        mine, other = Guarded(here, kind, session), Guarded(there, kind, session)
        await mine.run()
        with monkeypatch.context() as late:
            # As if the other process had looked for the receipt before it was there.
            late.setattr(ToolReceipts, "find", absent)
            with pytest.raises(SessionBusy, match="another process"):
                await other.run()
        assert await other.run() == {"runs": 1}


def fail(patch: pytest.MonkeyPatch, store: object, *names: str) -> None:
    """Make methods of a store fail."""

    async def down(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("down")

    for name in names:
        patch.setattr(store, name, down)


@pytest.mark.parametrize("kind", STORED)
async def test_nothing_runs_before_its_start_is_durable(
    home: Engine, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    guarded = Guarded(home, kind, await home.create())
    with monkeypatch.context() as broken:
        fail(broken, home.store, "write", "start_receipt", "create")
        with pytest.raises(StoreUnavailable):
            await guarded.run()
    # A creation starts with its insert; the others do not even begin.
    assert guarded.begun.is_set() is False
    assert (await guarded.run())["runs"] == guarded.runs


@pytest.mark.parametrize("kind", STORED)
async def test_an_end_that_cannot_be_written_is_written_later(
    home: Engine, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    guarded = Guarded(home, kind, await home.create())
    guarded.go = anyio.Event()
    with monkeypatch.context() as broken:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(guarded.run)
            await guarded.begun.wait()
            fail(broken, home.store, "write", "end_receipt")
            guarded.go.set()
    guarded.guard = IdempotencyGuard(RunningOperations())
    assert (await guarded.run(), guarded.runs) == ({"runs": 1}, 1)


@pytest.mark.parametrize("policy", [Policy(receipts=2), Policy(receipts_bytes=20)])
async def test_a_session_keeps_so_many_receipts_of_services_and_tools(
    build: Build, policy: Policy
) -> None:
    async with build(policy=policy) as home:
        session = await home.create()
        tools = Guarded(home, "tool", session)
        calls = Guarded(home, "service", session)
        await tools.run("a")
        await calls.run("b")
        for guarded in (tools, calls):
            with pytest.raises(SessionLimit):
                await guarded.run("c")
        assert await tools.run("a") == await calls.run("b") == {"runs": 1}
        settled = Request(LOCAL, session.id, "counter", "inc", {}, acknowledged_operations=["a"])
        await home.router.call(settled, Nobody())
        await calls.run("c")
        with pytest.raises(SessionLimit):
            await tools.run("d")


async def test_a_creation_is_replayed_where_no_other_session_has_room(build: Build) -> None:
    async with build(policy=Policy(sessions_per_principal=2)) as home:
        guarded = Guarded(home, "creation", await home.create())
        await guarded.run()
        with pytest.raises(SessionLimit):
            await guarded.run("another")
        assert await guarded.run() == {"runs": 1}


# Receipts in memory.


@pytest.fixture
async def memory(build: Build) -> AsyncGenerator[Callable[..., Guarded]]:
    async with build(policy=Policy(receipts=2)) as home:
        session = await home.create()
        yield lambda: Guarded(home, "memory", session)


async def test_an_id_that_never_came_is_run_and_one_of_another_origin_is_unknown(
    home: Engine,
) -> None:
    guarded = Guarded(home, "memory", await home.create())
    assert await guarded.run("new", is_repeat=True) == {"runs": 1}
    guarded.origin = 0
    assert await guarded.run("new") == {"runs": 1}
    with pytest.raises(OutcomeUnknown):
        await guarded.run("unknown", is_repeat=True)
    assert await guarded.run("first", is_repeat=False) == {"runs": 2}


async def test_a_forgotten_id_is_not_run_again(memory: Callable[..., Guarded]) -> None:
    guarded = memory()
    for each in ("one", "two", "three"):
        await guarded.run(each, is_repeat=False)
    assert await guarded.run("two") == {"runs": 2}
    guarded.engine.clock.advance(REMEMBERED - 1)
    for each in ("one", "never seen"):
        with pytest.raises(OutcomeUnknown, match="not remembered"):
            await guarded.run(each)
    assert await guarded.run("new", is_repeat=False) == {"runs": 4}
    guarded.engine.clock.advance(REMEMBERED)
    assert await guarded.run("never seen") == {"runs": 5}


async def test_only_the_newest_results_are_kept(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipt_memory, "RESULTS_BYTES", 25)
    async with build() as home:
        guarded = Guarded(home, "memory", await home.create())
        for number in range(4):
            await guarded.run(str(number), is_repeat=False)
        for number in range(2):
            with pytest.raises(OutcomeUnknown, match="not kept"):
                await guarded.run(str(number))
        for number in range(2, 4):
            assert await guarded.run(str(number)) == {"runs": number + 1}
        assert guarded.runs == 4


@pytest.mark.parametrize("others", matrix(1, 3))
async def test_many_calls_of_others_cost_a_caller_no_receipt_in_memory(
    build: Build, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    monkeypatch.setattr(receipt_memory, "RESULTS_BYTES", 150)
    async with build(policy=Policy(receipts=10)) as home:
        guarded = Guarded(home, "memory", await home.create())
        guarded.scope = "ada"
        await guarded.run("kept", is_repeat=False)
        for number in range(40):
            guarded.scope = f"eve{number % others}"
            await guarded.run(f"call {number}", is_repeat=False)
        guarded.scope = "ada"
        assert await guarded.run("kept") == {"runs": 1}
        # One that never came is known not to have run, too.
        assert await guarded.run("never came") == {"runs": 42}
        guarded.scope = "eve0"
        with pytest.raises(OutcomeUnknown, match="not remembered"):
            await guarded.run("call 0")


async def test_large_results_of_others_cost_a_caller_no_result_in_memory(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipt_memory, "RESULTS_BYTES", 50)
    async with build() as home:
        guarded = Guarded(home, "memory", await home.create())
        guarded.scope = "ada"
        await guarded.run("kept", is_repeat=False)
        guarded.scope = "eve"
        for number in range(9):
            await guarded.run(str(number), is_repeat=False)
        with pytest.raises(OutcomeUnknown, match="not kept"):
            await guarded.run("0")
        guarded.scope = "ada"
        assert await guarded.run("kept") == {"runs": 1}
