"""Calls of services with an operation id: what the router adds to the guard, which test_idempotency.py tests."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.counting import Counter, Nobody
from support.engine import Build, Engine
from support.selection import matrix

from statehold.sessions.calls import receipt_memory
from statehold.sessions.calls.request import CallAnswer, Request
from statehold.sessions.errors import (
    CallTimedOut,
    OutcomeUnknown,
    RequestRefused,
    ServiceUnavailable,
    SessionClosed,
    SessionError,
    SessionNotFound,
    StoreUnavailable,
)
from statehold.sessions.policy import Policy
from statehold.sessions.records import (
    LOCAL,
    HistoryFilter,
    JournalKind,
    JournalRecord,
    NodeRecord,
    Principal,
)
from statehold.sessions.services import CallerOptions, ToolResult


async def call(
    home: Engine,
    session: str,
    operation: str = "op",
    tool: str = "inc",
    principal: Principal = LOCAL,
    ctx: Any = None,
    **arguments: Any,
) -> CallAnswer:
    request = Request(principal, session, "counter", tool, arguments, operation_id=operation)
    return await home.router.call(request, ctx or Nobody())


async def attempt(
    home: Engine,
    session: str,
    operation: str = "op",
    *,
    epoch: int = 1,
    is_repeat: bool = False,
    ctx: Any = None,
) -> CallAnswer:
    request = Request(LOCAL, session, "counter", "inc", {}, operation, epoch, is_repeat)
    return await home.router.call(request, ctx or Nobody())


async def entries(home: Engine, session: str) -> list[JournalRecord]:
    await home.store.flush()
    return await home.store.history(session, HistoryFilter(kinds=[JournalKind.CALL]))


async def test_an_id_belongs_to_its_session(build: Build) -> None:
    async with build() as home:
        one, two = (await home.create()).id, (await home.create()).id
        for session in (one, two, one):
            assert (await call(home, session)).payload["structuredContent"]["count"] == 1
        with pytest.raises(SessionNotFound):
            await call(home, one, principal=Principal(subject="mallory"))


async def test_the_outcome_is_unknown_when_another_node_took_the_session_during_the_call(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with build() as home:
        session = (await home.create()).id

        async def answer(*_: Any) -> ToolResult:
            await home.store.join(NodeRecord(id="n_thief", proof_key="", started_at=0.0))
            await home.store.declare_dead(home.node.id)
            assert await home.store.claim(session, "n_thief", home.clock.now()) is not None
            return ToolResult({"content": []})

        monkeypatch.setattr(Counter, "call", answer)
        # The record of the new owner says the same.
        with pytest.raises(OutcomeUnknown):
            await call(home, session)
        receipt = await home.store.receipt(session, "op")
        assert receipt is not None
        assert receipt.status == OutcomeUnknown.code


async def test_an_unsent_call_may_be_sent_again(build: Build) -> None:
    async with build() as home:
        session = (await home.create()).id
        home.counter.refuse = 1
        with pytest.raises(ServiceUnavailable):
            await call(home, session)
        assert await home.store.receipt(session, "op") is None
        assert (await call(home, session)).payload["structuredContent"]["count"] == 1
        assert [each.status for each in await entries(home, session)] == [
            "service_unavailable",
            "ok",
        ]


async def test_a_call_whose_connection_died_is_unknown_for_ever(build: Build) -> None:
    async with build(policy=Policy(recovery_backoff=(0.0,))) as home:
        session = (await home.create()).id
        for _ in range(3):
            with pytest.raises(OutcomeUnknown):
                await call(home, session, tool="die")
        assert [tool for _, tool in home.counter.calls] == ["die"]


async def test_a_call_that_declares_itself_harmless_is_not_repeated_either(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dying(counter: Counter, tool: str, *_: Any) -> ToolResult:
        counter.service.calls.append((counter.view.id, tool))
        raise OutcomeUnknown("The connection died during the call.")

    monkeypatch.setattr(Counter, "call", dying)
    async with build() as home:
        session = (await home.create()).id
        with pytest.raises(OutcomeUnknown):
            await call(home, session, tool="get")
        assert len(home.counter.calls) == 1


@pytest.mark.parametrize(
    "error",
    matrix(
        RequestRefused(-32602, "no such thing", {"n": 2**70}),
        CallTimedOut("It took too long."),
        ServiceUnavailable("Not now."),
    ),
)
async def test_a_failure_is_repeated_as_it_was(
    build: Build, monkeypatch: pytest.MonkeyPatch, error: SessionError, tmp_path: Path
) -> None:
    sent: list[str] = []

    async def failing(counter: Counter, tool: str, *_: Any) -> ToolResult:
        sent.append(tool)
        raise error

    monkeypatch.setattr(Counter, "call", failing)
    async with build(folder=tmp_path) as home:
        session = (await home.create()).id
        with pytest.raises(type(error), match=error.message):
            await call(home, session)
        with pytest.raises(SessionError, match=error.message) as caught:
            await call(home, session)
        again = caught.value
        assert len(sent) == 1
        assert (again.code, again.retryable) == (error.code, False)
        if isinstance(error, RequestRefused):
            assert isinstance(again, RequestRefused)
            assert (again.rpc_code, again.data) == (-32602, {"n": 2**70})


async def test_a_caller_that_goes_away_leaves_the_outcome_unknown(build: Build) -> None:
    async with build() as home:
        session = (await home.create()).id
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, home, session, "op", "hold")
            await home.counter.holding.wait()
            tasks.cancel_scope.cancel()
        with pytest.raises(OutcomeUnknown, match="may have taken effect"):
            await call(home, session, tool="hold")
        assert len(home.counter.calls) == 1
        assert [each.status for each in await entries(home, session)] == ["cancelled"]


async def test_a_session_that_closes_ends_the_wait_of_a_repeat(build: Build) -> None:
    async with build() as home:
        session = (await home.create()).id
        raised: list[type] = []

        async def one() -> None:
            try:
                await call(home, session, tool="hold")
            except SessionClosed as error:
                raised.append(type(error))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one)
            await home.counter.holding.wait()
            tasks.start_soon(one)
            await anyio.wait_all_tasks_blocked()
            await home.registry.close(LOCAL, session, force=True)
        assert raised == [SessionClosed, SessionClosed]


async def test_results_are_kept_up_to_a_size(build: Build) -> None:
    async with build(policy=Policy(receipt_bytes=20)) as home:
        session = (await home.create()).id
        await call(home, session)
        with pytest.raises(OutcomeUnknown, match=r"ended \(ok\).* not kept"):
            await call(home, session)
        assert len(home.counter.calls) == 1


async def test_a_repeat_carries_the_note_of_the_first_answer_until_that_is_settled(
    build: Build,
) -> None:
    async with build() as home:
        session = (await home.create()).id
        await call(home, session, "before")
        await home.registry.restart(LOCAL, session)
        first = await call(home, session)  # and its answer gets lost
        assert first.notice is not None
        assert "Lost:" in first.notice
        assert (await call(home, session, "another")).notice is None
        repeat = await call(home, session)
        assert (repeat.payload, repeat.notice) == (first.payload, first.notice)
        settled = Request(LOCAL, session, "counter", "inc", {}, acknowledged_operations=["op"])
        await home.router.call(settled, Nobody())
        assert home.registry.live(LOCAL, session) is not None
        assert (await call(home, session)).notice is None


async def test_a_repeat_after_a_restart_carries_the_note_of_the_first_answer(
    build: Build, tmp_path: Path
) -> None:
    async with build(folder=tmp_path) as home:
        session = (await home.create()).id
        await call(home, session, "before")
        await home.registry.restart(LOCAL, session)
        first = await call(home, session)
        assert first.notice is not None
    async with build(folder=tmp_path) as home:
        repeat = await call(home, session)
        assert (repeat.payload, repeat.notice) == (first.payload, first.notice)
        assert home.counter.opened == 0


async def test_a_note_whose_answer_was_not_delivered_is_due_again(build: Build) -> None:
    async with build() as home:
        session = (await home.create()).id
        await call(home, session, "before")
        await home.registry.restart(LOCAL, session)
        request = Request(LOCAL, session, "counter", "inc", {})
        first = await home.router.call(request, Nobody())
        assert first.notice is not None
        for _ in range(2):
            home.router.return_notice(first.delivery)
        binding = (await home.registry.ready(LOCAL, session)).bindings["counter"]
        assert binding.record.told_generation < 2
        assert (await call(home, session, "next")).notice == first.notice
        assert binding.record.told_generation == 2
        assert (await call(home, session, "later")).notice is None


async def test_a_note_that_was_not_delivered_is_part_of_the_note_of_the_next_loss(
    build: Build,
) -> None:
    async with build() as home:
        session = (await home.create()).id
        await call(home, session, "before")
        await home.registry.restart(LOCAL, session)
        request = Request(LOCAL, session, "counter", "inc", {})
        first = await home.router.call(request, Nobody())
        home.router.return_notice(first.delivery)
        await home.registry.restart(LOCAL, session)
        notice = (await call(home, session, "next")).notice
        assert notice is not None
        assert "generation 1 to 3" in notice


async def test_refused_calls_and_notes_leave_no_gap_in_the_journal(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with build() as home:
        session = (await home.create()).id

        async def down(*_: Any) -> None:
            raise StoreUnavailable("down")

        async def note() -> None:
            await home.registry.history.note(LOCAL, session, "user", "x")

        async def refused(work: Awaitable[object]) -> None:
            with pytest.raises(StoreUnavailable):
                await work

        with monkeypatch.context() as broken:
            broken.setattr(home.store, "write", down)
            async with anyio.create_task_group() as tasks:
                for number in range(3):
                    tasks.start_soon(refused, call(home, session, f"refused {number}"))
                tasks.start_soon(refused, note())
        await call(home, session)
        await note()
        await home.store.flush()
        numbers = [entry.seq for entry in await home.store.journal(session)]
        assert numbers == list(range(1, len(numbers) + 1))


async def test_a_call_that_asks_for_input_goes_on_under_its_id(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    question: Any = {"resultType": "input_required", "inputRequests": {}, "requestState": "s"}

    async def asking(counter: Counter, tool: str, arguments: Any, ctx: Any) -> ToolResult:
        counter.service.calls.append((counter.view.id, tool))
        return ToolResult(question if ctx.options.input_responses is None else {"content": []})

    answering: Any = Nobody()
    answering.options = CallerOptions(input_responses={"q": {}})
    monkeypatch.setattr(Counter, "call", asking)
    async with build() as home:
        session = (await home.create()).id
        for _ in range(2):
            assert (await call(home, session)).payload == question
        assert len(home.counter.calls) == 1
        for ctx in (answering, answering, Nobody()):
            assert (await call(home, session, ctx=ctx)).payload == {"content": []}
        assert len(home.counter.calls) == 2


# Ids of an epoch: their receipts are kept in memory.


async def test_an_id_of_the_epoch_is_answered_without_a_write(build: Build) -> None:
    async with build() as home:
        session = (await home.create()).id
        first = await attempt(home, session)
        assert first.session.record.epoch == 1
        again = await attempt(home, session, is_repeat=True)
        assert again.payload == first.payload
        assert len(home.counter.calls) == 1
        await home.store.flush()
        assert await home.store.receipts(session) == (0, 0)


async def test_results_in_memory_have_a_total_of_all_sessions(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with build() as home:
        sessions = [(await home.create()).id for _ in range(3)]
        for operation in ("one", "two"):
            await attempt(home, sessions[0], operation)
        await attempt(home, sessions[1])
        monkeypatch.setattr(receipt_memory, "TOTAL_BYTES", 300)
        await attempt(home, sessions[2])
        # The session with the most has lost its results, and calls that ran are not run again.
        with pytest.raises(OutcomeUnknown, match="not kept"):
            await attempt(home, sessions[0], "one", is_repeat=True)
        for session in sessions[1:]:
            await attempt(home, session, is_repeat=True)
        assert len(home.counter.calls) == 4


async def test_a_call_that_was_not_sent_leaves_its_id_unused(build: Build) -> None:
    async with build() as home:
        session = (await home.create()).id
        home.counter.refuse = 1
        with pytest.raises(ServiceUnavailable):
            await attempt(home, session)
        answer = await attempt(home, session, is_repeat=True)
        assert answer.payload["structuredContent"]["count"] == 1


async def test_the_outcome_of_a_call_of_an_earlier_epoch_is_unknown(
    build: Build, tmp_path: Path
) -> None:
    async with build(folder=tmp_path) as home:
        session = (await home.create()).id
        await attempt(home, session)
    async with build(folder=tmp_path) as home:
        for operation in ("op", "never seen"):
            with pytest.raises(OutcomeUnknown):
                await attempt(home, session, operation, is_repeat=True)
        assert home.counter.calls == []
        # A call that is sent for the first time is new, whatever epoch its caller names.
        answer = await attempt(home, session, "new", epoch=0)
        epoch: int = answer.session.record.epoch
        assert epoch > 1
        again = await attempt(home, session, "new", epoch=epoch, is_repeat=True)
        assert again.payload == answer.payload
        assert len(home.counter.calls) == 1


async def test_any_call_may_acknowledge_results(build: Build) -> None:
    async with build() as home:
        session = (await home.create()).id
        await attempt(home, session)
        for operation in (None, "durable"):
            settling = Request(
                LOCAL,
                session,
                "counter",
                "inc",
                {},
                operation_id=operation,
                acknowledged_operations=["op"],
            )
            await home.router.call(settling, Nobody())
            # Its receipt is gone, so the call runs as a new one.
            await attempt(home, session, is_repeat=True)
        assert len(home.counter.calls) == 5


async def test_an_id_that_was_continued_is_as_old_as_its_last_answer(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload: Any = {"resultType": "input_required", "inputRequests": {}}
    calls: list[str] = []

    async def answer(_: Counter, tool: str, arguments: Any, ctx: Any) -> ToolResult:
        calls.append(tool)
        return ToolResult(payload if len(calls) == 1 else {"content": []})

    monkeypatch.setattr(Counter, "call", answer)
    answering: Any = Nobody()
    answering.options = CallerOptions(input_responses={"q": {}})
    async with build(policy=Policy(receipts=2)) as home:
        session = (await home.create()).id
        await attempt(home, session, "asks")
        await attempt(home, session, "plain")
        await attempt(home, session, "asks", ctx=answering)
        await attempt(home, session, "new")
        await attempt(home, session, "asks", is_repeat=True)
        assert len(calls) == 4
        with pytest.raises(OutcomeUnknown):
            await attempt(home, session, "plain", is_repeat=True)
