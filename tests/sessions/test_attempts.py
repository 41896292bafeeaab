"""Repeatable calls whose operation ids are not stored: they run at most once, as far as can be known, without a write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from counting import Counter, Nobody
from house import Build, House

from statehold.sessions.calls import attempts
from statehold.sessions.calls.request import Answer, Request
from statehold.sessions.errors import (
    InvalidArgument,
    OutcomeUnknown,
    ServiceUnavailable,
    SessionError,
    SessionLimit,
)
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL
from statehold.sessions.services import CallResult


async def attempt(
    home: House,
    session: str,
    operation: str = "op",
    tool: str = "inc",
    *,
    epoch: int = 1,
    repeated: bool = False,
    settled: tuple[str, ...] = (),
    **arguments: Any,
) -> Answer:
    request = Request(LOCAL, session, "counter", tool, arguments, operation_id=operation)
    request.epoch, request.repeated, request.settled = epoch, repeated, settled
    return await home.router.call(request, Nobody())


def count(answer: Answer) -> int:
    return answer.payload["structuredContent"]["count"]


async def test_a_repeat_gets_the_result_of_the_first_and_nothing_is_written(build: Build) -> None:
    async with build() as home:
        session = (await home.create()).id
        first = await attempt(home, session)
        assert first.session["epoch"] == 1
        again = await attempt(home, session, repeated=True)
        assert again.payload == first.payload
        assert count(await attempt(home, session, "another")) == 2
        assert len(home.counter.calls) == 2
        await home.store.flush()
        assert await home.store.receipts(session) == (0, 0)
        with pytest.raises(InvalidArgument):
            await attempt(home, session, repeated=True, n=1)


async def test_repeats_at_once_wait_for_the_first(build: Build) -> None:
    async with build() as home:
        session = (await home.create()).id
        answers: list[Answer] = []

        async def one(number: int) -> None:
            answers.append(await attempt(home, session, tool="hold", repeated=number > 0))

        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(one, number)
            await home.counter.holding.wait()
            await anyio.wait_all_tasks_blocked()
            assert len(home.counter.calls) == 1
            home.counter.let_go.set()
        assert len(answers) == 5
        assert len(home.counter.calls) == 1


async def test_a_repeat_of_what_never_came_is_run(build: Build) -> None:
    async with build() as home:
        session = (await home.create()).id
        assert count(await attempt(home, session, repeated=True)) == 1


async def test_a_call_that_was_not_sent_leaves_its_id_unused(build: Build) -> None:
    async with build() as home:
        session = (await home.create()).id
        home.counter.refuse = 1
        with pytest.raises(ServiceUnavailable):
            await attempt(home, session)
        assert count(await attempt(home, session, repeated=True)) == 1


async def test_nobody_knows_what_became_of_a_call_of_an_earlier_epoch(
    build: Build, tmp_path: Path
) -> None:
    async with build(folder=tmp_path) as home:
        session = (await home.create()).id
        await attempt(home, session)
    async with build(folder=tmp_path) as home:
        for operation in ("op", "never seen"):
            with pytest.raises(OutcomeUnknown):
                await attempt(home, session, operation, repeated=True)
        assert home.counter.calls == []
        # A call that is sent for the first time is new, whatever epoch its caller names.
        answer = await attempt(home, session, "new", epoch=0)
        epoch: int = answer.session["epoch"]
        assert epoch > 1
        again = await attempt(home, session, "new", epoch=epoch, repeated=True)
        assert again.payload == answer.payload
        assert len(home.counter.calls) == 1


async def test_a_call_that_was_cancelled_is_unknown_to_its_repeat(build: Build) -> None:
    async with build() as home:
        session = (await home.create()).id
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: attempt(home, session, tool="hold"))
            await home.counter.holding.wait()
            tasks.cancel_scope.cancel()
        with pytest.raises(OutcomeUnknown):
            await attempt(home, session, tool="hold", repeated=True)
        assert len(home.counter.calls) == 1


async def test_results_that_arrived_give_room_for_others(build: Build) -> None:
    async with build(policy=Policy(receipts=2)) as home:
        session = (await home.create()).id
        await attempt(home, session, "one")
        await attempt(home, session, "two")
        with pytest.raises(SessionLimit):
            await attempt(home, session, "three")
        assert count(await attempt(home, session, "three", settled=("one",))) == 3
        assert count(await attempt(home, session, "two", repeated=True)) == 2


async def test_any_call_may_say_which_results_arrived(build: Build) -> None:
    async with build(policy=Policy(receipts=1)) as home:
        session = (await home.create()).id
        await attempt(home, session, "one")
        for operation in (None, "durable"):
            request = Request(LOCAL, session, "counter", "inc", {}, operation_id=operation)
            request.settled = ("one",)
            await home.router.call(request, Nobody())
            await attempt(home, session, "one")
        assert len(home.counter.calls) == 5


async def test_of_large_results_only_the_last_are_kept(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "RESULTS_BYTES", 3000)

    async def answer(*_: Any) -> CallResult:
        return CallResult({"content": [{"type": "text", "text": "x" * 1000}]})

    async with build() as home:
        session = (await home.create()).id
        monkeypatch.setattr(Counter, "call", answer)
        for number in range(4):
            await attempt(home, session, f"op {number}")
        found: list[str] = []
        for number in range(4):
            try:
                await attempt(home, session, f"op {number}", repeated=True)
                found.append("result")
            except SessionError as error:
                found.append(error.code)
        assert found == ["outcome_unknown"] * 2 + ["result"] * 2


async def test_answers_nobody_fetches_are_forgotten_when_there_is_no_room(build: Build) -> None:
    async with build(policy=Policy(receipts=2)) as home:
        session = (await home.create()).id
        await attempt(home, session, "one")
        await attempt(home, session, "two")
        home.clock.advance(attempts.REMEMBERED - 1)
        with pytest.raises(SessionLimit):
            await attempt(home, session, "three")
        assert count(await attempt(home, session, "one", repeated=True)) == 1
        home.clock.advance(1)
        assert count(await attempt(home, session, "three")) == 3
        assert count(await attempt(home, session, "three", repeated=True)) == 3
        assert len(home.counter.calls) == 3


async def test_a_repeat_of_a_forgotten_id_is_not_run_again(build: Build) -> None:
    async with build(policy=Policy(receipts=2)) as home:
        session = (await home.create()).id
        await attempt(home, session, "one")
        home.clock.advance(attempts.REMEMBERED)
        await attempt(home, session, "two")
        await attempt(home, session, "three")
        home.clock.advance(attempts.REMEMBERED - 1)
        for operation in ("one", "never seen"):
            with pytest.raises(OutcomeUnknown):
                await attempt(home, session, operation, repeated=True)
        assert count(await attempt(home, session, "two", repeated=True)) == 2
        assert len(home.counter.calls) == 3
        # From then on a forgotten call is never run again.
        home.clock.advance(1)
        assert count(await attempt(home, session, "never seen", repeated=True)) == 4


async def test_an_id_that_was_continued_is_as_old_as_its_last_answer(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload: Any = {"resultType": "input_required", "inputRequests": {}}
    calls: list[str] = []

    async def answer(_: Counter, tool: str, arguments: Any, ctx: Any) -> CallResult:
        calls.append(tool)
        return CallResult(payload if len(calls) == 1 else {"content": []})

    monkeypatch.setattr(Counter, "call", answer)
    async with build(policy=Policy(receipts=2)) as home:
        session = (await home.create()).id
        await attempt(home, session, "asks")
        await attempt(home, session, "plain")
        home.clock.advance(attempts.REMEMBERED)
        request = Request(LOCAL, session, "counter", "inc", {}, operation_id="asks")
        request.epoch = 1
        answering: Any = Nobody()
        answering.input_responses = {"q": {}}
        await home.router.call(request, answering)
        await attempt(home, session, "new")
        await attempt(home, session, "asks", repeated=True)
        assert len(calls) == 4
        with pytest.raises(OutcomeUnknown):
            await attempt(home, session, "plain", repeated=True)
