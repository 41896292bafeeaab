"""Calls with an operation id run at most once, whichever caller repeats them and whatever happened in between."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import anyio
import pytest
from counting import Counter, Nobody
from house import Build, House

from statehold.sessions.calls.request import Answer, Request
from statehold.sessions.errors import (
    CallTimedOut,
    InvalidArgument,
    OutcomeUnknown,
    RequestRefused,
    ServiceUnavailable,
    SessionClosed,
    SessionError,
    SessionLimit,
    SessionNotFound,
    StoreUnavailable,
)
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL, HistoryFilter, JournalKind, JournalRecord, Principal
from statehold.sessions.services import CallResult


async def call(
    home: House,
    session: str,
    operation: str = "op",
    tool: str = "inc",
    principal: Principal = LOCAL,
    ctx: Any = None,
    **arguments: Any,
) -> Answer:
    request = Request(principal, session, "counter", tool, arguments, operation_id=operation)
    return await home.router.call(request, ctx or Nobody())


async def entries(home: House, session: str) -> list[JournalRecord]:
    await home.store.flush()
    return await home.store.history(session, HistoryFilter(kinds=[JournalKind.CALL]))


async def test_a_repeat_gets_the_result_of_the_first(build: Build) -> None:
    async with build() as home:
        session = (await home.create()).id
        first = await call(home, session)
        again = await call(home, session)
        other = await call(home, session, "another")
        assert again.payload == first.payload
        assert other.payload["structuredContent"]["count"] == 2
        assert [tool for _, tool in home.counter.calls] == ["inc", "inc"]
        kept = await entries(home, session)
        assert [(found.operation_id, found.status) for found in kept] == [
            ("op", "ok"),
            ("another", "ok"),
        ]


async def test_an_id_belongs_to_its_session(build: Build) -> None:
    async with build() as home:
        one, two = (await home.create()).id, (await home.create()).id
        for session in (one, two, one):
            assert (await call(home, session)).payload["structuredContent"]["count"] == 1
        with pytest.raises(SessionNotFound):
            await call(home, one, principal=Principal(subject="mallory"))


async def test_repeats_at_once_wait_for_the_first(build: Build) -> None:
    async with build() as home:
        session = (await home.create()).id
        answers: list[Answer] = []

        async def one() -> None:
            answers.append(await call(home, session, tool="hold"))

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(one)
            await home.counter.holding.wait()
            await anyio.wait_all_tasks_blocked()
            assert len(home.counter.calls) == 1
            home.counter.let_go.set()
        assert len(answers) == 10
        assert len(home.counter.calls) == 1
        assert all(answer.payload == answers[0].payload for answer in answers)


async def test_a_result_comes_back_whole(
    build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    payload: Any = {
        "content": [{"type": "image", "data": "aGk=" * 300_000, "mimeType": "image/png"}],
        "structuredContent": {"big": 2**80, "float": 1.0, "half": "\ud83d", "token": "hunter2"},
        "isError": True,
        "_meta": {"x": [1]},
    }

    async def answer(*_: Any) -> CallResult:
        return CallResult(payload)

    monkeypatch.setattr(Counter, "call", answer)
    async with build(folder=tmp_path) as home:
        session = (await home.create()).id
        assert (await call(home, session)).payload == payload
        again = (await call(home, session)).payload
        assert again == payload
        assert isinstance(again["structuredContent"]["float"], float)


@pytest.mark.parametrize(
    ("tool", "arguments"), [("get", {}), ("inc", {"n": 2}), ("inc", {"n": 1.0})]
)
async def test_an_id_cannot_be_used_for_another_call(
    build: Build, tool: str, arguments: dict[str, Any]
) -> None:
    async with build() as home:
        session = (await home.create()).id
        await call(home, session, n=1)
        with pytest.raises(InvalidArgument, match="another call"):
            await call(home, session, tool=tool, **arguments)
        assert len(home.counter.calls) == 1


async def test_not_even_while_the_first_runs(build: Build) -> None:
    async with build() as home:
        session = (await home.create()).id
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, home, session, "op", "hold")
            await home.counter.holding.wait()
            with pytest.raises(InvalidArgument, match="another call"):
                await call(home, session)
            home.counter.let_go.set()


@pytest.mark.parametrize("operation", ["", "x" * 129])
async def test_an_id_has_1_to_128_characters(build: Build, operation: str) -> None:
    async with build() as home:
        session = (await home.create()).id
        with pytest.raises(InvalidArgument):
            await call(home, session, operation)
        await call(home, session, "x" * 128)
        assert len(home.counter.calls) == 1


async def test_what_was_not_sent_may_be_sent(build: Build) -> None:
    async with build() as home:
        session = (await home.create()).id
        home.counter.refuse = 1
        with pytest.raises(ServiceUnavailable):
            await call(home, session)
        assert await home.store.receipt(session, "op") is None
        assert (await call(home, session)).payload["structuredContent"]["count"] == 1
        assert [found.status for found in await entries(home, session)] == [
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
    async def dying(counter: Counter, tool: str, *_: Any) -> CallResult:
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
    [
        RequestRefused(-32602, "no such thing", {"n": 2**70}),
        CallTimedOut("It took too long."),
        ServiceUnavailable("Not now."),
    ],
)
async def test_a_failure_is_repeated_as_it_was(
    build: Build, monkeypatch: pytest.MonkeyPatch, error: SessionError, tmp_path: Path
) -> None:
    sent: list[str] = []

    async def failing(counter: Counter, tool: str, *_: Any) -> CallResult:
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
        with pytest.raises(OutcomeUnknown, match="cancelled"):
            await call(home, session, tool="hold")
        assert len(home.counter.calls) == 1
        assert [found.status for found in await entries(home, session)] == ["cancelled"]


async def test_a_repeat_that_goes_away_leaves_the_first_alone(build: Build) -> None:
    async with build() as home:
        session = (await home.create()).id
        answers: list[Answer] = []

        async def first() -> None:
            answers.append(await call(home, session, tool="hold"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            await home.counter.holding.wait()
            with anyio.move_on_after(0.01):
                await call(home, session, tool="hold")
            home.counter.let_go.set()
        assert len(answers) == 1


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


async def test_a_restart_forgets_nothing(build: Build, tmp_path: Path) -> None:
    async with build(folder=tmp_path) as home:
        session = (await home.create()).id
        first = await call(home, session, n=1)
    async with build(folder=tmp_path) as home:
        assert (await call(home, session, n=1)).payload == first.payload
        assert home.counter.opened == 0
        with pytest.raises(InvalidArgument):
            await call(home, session, n=2)


async def test_results_are_kept_up_to_a_size(build: Build) -> None:
    async with build(policy=Policy(receipt_bytes=20)) as home:
        session = (await home.create()).id
        await call(home, session)
        with pytest.raises(OutcomeUnknown, match=r"ended \(ok\).* too large"):
            await call(home, session)
        assert len(home.counter.calls) == 1


@pytest.mark.parametrize("policy", [Policy(receipts=2), Policy(receipts_bytes=100)])
async def test_the_receipts_of_a_session_are_bounded_and_none_is_dropped(
    build: Build, policy: Policy, tmp_path: Path
) -> None:
    async with build(policy=policy, folder=tmp_path) as home:
        session = (await home.create()).id
        await call(home, session, "1")
        await call(home, session, "2")
        with pytest.raises(SessionLimit):
            await call(home, session, "3")
    async with build(policy=policy, folder=tmp_path) as home:
        with pytest.raises(SessionLimit):
            await call(home, session, "3")
        assert (await call(home, session, "1")).payload["structuredContent"]["count"] == 1
        assert home.counter.opened == 0
        await home.call(session)


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
        settled = Request(LOCAL, session, "counter", "inc", {}, settled=["op"])
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
            home.router.return_notice(request.delivery)
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
        await home.router.call(request, Nobody())
        home.router.return_notice(request.delivery)
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
        found = [entry.seq for entry in await home.store.journal(session)]
        assert found == list(range(1, len(found) + 1))


async def test_nothing_is_sent_before_the_start_is_durable(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with build() as home:
        session = (await home.create()).id

        async def down(*_: Any) -> None:
            raise StoreUnavailable("down")

        with monkeypatch.context() as broken:
            broken.setattr(home.store, "write", down)
            with pytest.raises(StoreUnavailable):
                await call(home, session)
        assert home.counter.calls == []
        await call(home, session)


async def test_a_result_that_is_not_recorded_at_once_is_recorded_behind(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with build() as home:
        session = (await home.create()).id
        write = home.store.write

        async def down_at_the_end(work: Any) -> None:
            if work.ended:
                raise StoreUnavailable("down")
            await write(work)

        monkeypatch.setattr(home.store, "write", down_at_the_end)
        first = await call(home, session)
        # The record was not awaited, but is used at once.
        assert (await call(home, session)).payload == first.payload
        assert [found.status for found in await entries(home, session)] == ["ok"]


async def test_a_call_that_asks_for_input_goes_on_under_its_id(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Any = {"resultType": "input_required", "inputRequests": {}, "requestState": "s"}

    async def asking(counter: Counter, tool: str, arguments: Any, ctx: Any) -> CallResult:
        counter.service.calls.append((counter.view.id, tool))
        return CallResult(asked if ctx.input_responses is None else {"content": []})

    answering: Any = Nobody()
    answering.input_responses = {"q": {}}
    monkeypatch.setattr(Counter, "call", asking)
    async with build() as home:
        session = (await home.create()).id
        for _ in range(2):
            assert (await call(home, session)).payload == asked
        assert len(home.counter.calls) == 1
        for ctx in (answering, answering, Nobody()):
            assert (await call(home, session, ctx=ctx)).payload == {"content": []}
        assert len(home.counter.calls) == 2
