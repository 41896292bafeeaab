"""The space that the sessions of one principal may take in the store, and the space that stays free on the disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import counting
from support.counting import Counter, Counting, Nobody
from support.engine import Build, Engine

from statehold.sessions.calls.request import Request
from statehold.sessions.errors import NameTaken, SessionLimit
from statehold.sessions.live.quota import MEASURE_SECONDS, Quota
from statehold.sessions.policy import Policy
from statehold.sessions.records import JournalKind, Principal
from statehold.sessions.services import CallContext, ToolResult

ANN, BOB = Principal(subject="ann"), Principal(subject="bob")
LARGE = {"text": "x" * 100_000}


async def measured(engine: Engine, owner: Principal) -> int:
    """Wait for the measurement that is due, and return its result."""
    start = engine.clock.now()

    def done() -> bool:
        when = engine.registry.quota.usage(owner.key)["measured_at"]
        return when is not None and when >= start

    await engine.until(done)
    return engine.registry.quota.usage(owner.key)["bytes"]


async def test_creating_and_closing_sessions_ends_at_the_budget_of_a_principal(build: Build):
    """Seen without: a caller wrote 559 MB in 20 seconds with states of 1 MB."""
    policy = Policy(stored_bytes_per_principal=1_000_000, retention=1000.0)
    async with build(policy=policy) as engine:
        ids: list[str] = []

        async def create_and_close() -> None:
            session = await engine.create(ANN, state=LARGE)
            ids.append(session.id)
            await engine.registry.close(ANN, session.id)

        await create_and_close()
        await measured(engine, ANN)
        for _ in range(7):
            await create_and_close()

        async def create_some() -> None:
            for _ in range(3):
                await create_and_close()

        with pytest.raises(SessionLimit, match="closed ones included") as caught:
            await create_some()
        assert caught.value.retry_after == MEASURE_SECONDS
        assert await engine.store.usage(ANN.key) <= 1_000_000
        await engine.create(BOB, state=LARGE)
        for session in ids[:2]:
            await engine.store.purge(session)
        engine.clock.advance(MEASURE_SECONDS)
        await measured(engine, ANN)
        await engine.create(ANN, state=LARGE)


async def test_a_state_may_not_grow_past_the_budget_and_calls_go_on(build: Build):
    async with build(policy=Policy(stored_bytes_per_principal=350_000)) as engine:
        session = await engine.create(ANN, state=LARGE)
        for _ in range(20):
            await engine.registry.states.update(ANN, session.id, {"text": "y" * 100_000})
        with pytest.raises(SessionLimit):
            await engine.registry.states.update(ANN, session.id, {"more": "y" * 300_000})
        state = await engine.registry.states.read(ANN, session.id)
        assert "more" not in state.value
        assert await engine.count(session.id, principal=ANN) == 1
        engine.clock.advance(MEASURE_SECONDS)
        await measured(engine, ANN)
        await engine.registry.states.update(ANN, session.id, {"text": None})
        await engine.registry.states.update(ANN, session.id, {"more": "y" * 200_000})


async def test_no_call_waits_for_the_measurement(build: Build, monkeypatch: pytest.MonkeyPatch):
    async with build(policy=Policy(stored_bytes_per_principal=1_000_000)) as engine:
        usage, go, owners = engine.store.usage, anyio.Event(), list[str]()

        async def slow_usage(owner: str) -> int:
            owners.append(owner)
            await go.wait()
            return await usage(owner)

        monkeypatch.setattr(engine.store, "usage", slow_usage)
        with anyio.fail_after(10):
            session = await engine.create(ANN, state=LARGE)
            await engine.until(lambda: owners)
            for number in range(5):
                await engine.registry.states.update(ANN, session.id, {f"n{number}": LARGE["text"]})
            with pytest.raises(SessionLimit):
                await engine.create(ANN, state={"text": "x" * 500_000})
        assert owners == [ANN.key], "one measurement at a time"
        go.set()
        assert await measured(engine, ANN) >= 600_000


@pytest.mark.thorough
async def test_the_next_measurement_sees_what_others_stored(build: Build, tmp_path: Path):
    async with build(folder=tmp_path) as engine:
        for _ in range(5):
            await engine.create(ANN, state=LARGE)
    policy = Policy(stored_bytes_per_principal=500_000)
    async with build(folder=tmp_path, policy=policy) as engine:
        await engine.create(ANN)
        assert await measured(engine, ANN) > 500_000
        with pytest.raises(SessionLimit):
            await engine.create(ANN)


async def test_files_of_open_and_closed_sessions_count(build: Build):
    policy = Policy(stored_bytes_per_principal=1_000_000)
    async with build() as engine:
        sessions = [await engine.create(ANN) for _ in range(2)]
        await engine.create(BOB)
        await engine.registry.close(ANN, sessions[0].id)
        owners: list[str] = []

        def files(ids: Sequence[str]) -> int:
            owners.extend(ids)
            return 600_000

        quota = Quota(replace(engine.registry.core, policy=policy, file_bytes=files))
        quota.admit(ANN.key, 1)
        await engine.until(lambda: quota.usage(ANN.key)["bytes"] >= 600_000)
        assert sorted(owners) == sorted(session.id for session in sessions)
        with pytest.raises(SessionLimit):
            quota.admit(ANN.key, 400_000)


async def test_a_refused_session_does_not_count(build: Build):
    async with build(policy=Policy(stored_bytes_per_principal=1_000_000)) as engine:
        await engine.create(ANN, name="one")
        await measured(engine, ANN)
        for _ in range(20):
            with pytest.raises(NameTaken):
                await engine.create(ANN, name="one", state=LARGE)
        assert engine.registry.quota.usage(ANN.key)["bytes"] < 10_000


async def test_with_a_disk_nearly_full_nothing_new_is_stored_and_calls_go_on(
    build: Build, tmp_path: Path
):
    policy = Policy(free_disk_bytes=1 << 60)
    async with build(folder=tmp_path) as engine:
        session = await engine.create(ANN)
    async with build(folder=tmp_path, policy=policy) as engine:
        with pytest.raises(SessionLimit, match="MiB left"):
            await engine.create(ANN)
        with pytest.raises(SessionLimit, match="MiB left"):
            await engine.registry.states.update(ANN, session.id, {"a": 1})
        assert await engine.count(session.id, principal=ANN) == 1


def _stored(engine: Engine) -> int:
    return engine.registry.quota.usage(ANN.key)["bytes"]


async def _call(engine: Engine, session: str, operation: str | None = None) -> None:
    arguments = {"text": "x" * 3000}
    request = Request(ANN, session, "counter", "inc", arguments, operation_id=operation)
    await engine.router.call(request, Nobody())


async def _fill(engine: Engine, session: str) -> None:
    """Store states until the budget of the principal is used up but for 10,000 bytes."""
    limit = engine.registry.core.policy.stored_bytes_per_principal
    await measured(engine, ANN)
    room = limit - _stored(engine) - 10_000
    await engine.registry.states.update(ANN, session, {"text": "x" * room})


@pytest.mark.parametrize("way", ["note", "summary", "metadata", "operation", "fork", "import"])
async def test_every_write_that_a_caller_asks_for_counts_at_once_and_ends_at_the_budget(
    build: Build, way: str
):
    policy = Policy(stored_bytes_per_principal=500_000)
    async with build(policy=policy) as engine:
        session = (await engine.create(ANN)).id
        await _fill(engine, session)
        registry = engine.registry
        _, document = await registry.porting.export_session(ANN, session, secrets=True)

        async def write(number: int) -> None:
            match way:
                case "note":
                    await registry.history.note(ANN, session, "user", "x" * 3000)
                case "summary":
                    await registry.history.write_summary(ANN, session, "x" * 3000, [])
                case "metadata":
                    await registry.rename_delete.rename(
                        ANN, session, metadata={f"n{number}": "x" * 800}
                    )
                case "fork":
                    await registry.branches.fork(ANN, session)
                case "import":
                    await registry.porting.import_session(ANN, document)
                case _:
                    await _call(engine, session, f"op{number}")

        async def write_all() -> None:
            for number in range(100):
                await write(number)

        with pytest.raises(SessionLimit, match="closed ones included"):
            await write_all()
        # The last operation may exceed the rest of the budget with its own entry.
        assert _stored(engine) <= 505_000


async def test_calls_go_on_without_texts_in_the_journal_when_the_budget_is_used_up(build: Build):
    """Seen without: journal entries took 1.5 GB under a budget of 50 MB."""
    async with build(policy=Policy(stored_bytes_per_principal=500_000)) as engine:
        session = (await engine.create(ANN)).id
        await _fill(engine, session)
        for _ in range(30):
            await _call(engine, session)
        await engine.store.flush()
        requests = [entry.request for entry in await engine.store.journal(session)]
        assert requests.count({"withheld": True}) > 10
        assert _stored(engine) <= 550_000

        async def call_on() -> None:
            for _ in range(1000):
                await _call(engine, session)

        with pytest.raises(SessionLimit):
            await call_on()
        assert len(engine.counter.calls) < 500
        assert await engine.count((await engine.create(BOB)).id, principal=BOB) == 1


async def test_results_of_operation_ids_are_not_kept_beyond_the_budget(
    build: Build, monkeypatch: pytest.MonkeyPatch
):
    class Big(Counter):
        async def call(self, tool: str, arguments: Any, ctx: CallContext) -> ToolResult:
            await super().call(tool, arguments, ctx)
            return ToolResult({"content": [{"type": "text", "text": "y" * 100_000}]})

    monkeypatch.setattr(counting, "Counter", Big)
    async with build(policy=Policy(stored_bytes_per_principal=500_000)) as engine:
        session = (await engine.create(ANN)).id
        await measured(engine, ANN)
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(_call, engine, session, f"op{number}")
        kept = [receipt.result for receipt in await engine.store.all_receipts(session)]
        assert 3 <= len(kept) - kept.count(None) <= 5
        assert await engine.store.usage(ANN.key) <= 550_000


async def test_snapshots_that_replace_others_count_once(build: Build):
    async with build(Counting(pause="snapshot")) as engine:
        session = (await engine.create(ANN)).id
        for _ in range(5):
            await engine.count(session, principal=ANN)
            await engine.registry.pause(ANN, session)
        await measured(engine, ANN)
        size = _stored(engine)
        for _ in range(20):
            await engine.count(session, principal=ANN)
            await engine.registry.pause(ANN, session)
        assert _stored(engine) - size < 40_000


async def test_with_a_disk_nearly_full_calls_leave_next_to_nothing(build: Build, tmp_path: Path):
    async with build(folder=tmp_path) as engine:
        session = (await engine.create(ANN)).id
    policy = Policy(free_disk_bytes=1 << 60)
    async with build(folder=tmp_path, policy=policy) as engine:
        history = engine.registry.history
        for write in (
            partial(_call, engine, session, "op"),
            partial(history.note, ANN, session, "user", "x"),
            partial(history.write_summary, ANN, session, "x", []),
            partial(engine.registry.rename_delete.rename, ANN, session, metadata={"a": 1}),
        ):
            with pytest.raises(SessionLimit, match="MiB left"):
                await write()
        await _call(engine, session)
        await engine.store.flush()
        [entry] = [e for e in await engine.store.journal(session) if e.kind == JournalKind.CALL]
        assert entry.request == {"withheld": True}
