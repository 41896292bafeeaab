"""Calls that are handed over: they go on without their callers, and their receipts have an end."""

from __future__ import annotations

from functools import partial

import anyio
import pytest
from support.counting import Nobody
from support.engine import Build, Engine, failing

from statehold.sessions.calls import hand_over as hand_overs
from statehold.sessions.calls.hand_over import KEPT_SECONDS, HandOver
from statehold.sessions.calls.request import CallAnswer, Request
from statehold.sessions.errors import CallTimedOut, SessionLimit
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL, ReceiptRecord


async def call(
    home: Engine, session: str, hand_over: HandOver | None = None, tool: str = "inc"
) -> CallAnswer:
    operation_id = None if hand_over is None or hand_over.is_ours else hand_over.operation_id
    request = Request(
        LOCAL, session, "counter", tool, {}, operation_id=operation_id, hand_over=hand_over
    )
    return await home.router.call(request, Nobody())


async def receipt_of(home: Engine, session: str, hand_over: HandOver) -> ReceiptRecord | None:
    await home.store.flush()
    return await home.store.receipt(session, hand_over.operation_id)


async def handed_over(home: Engine, session: str) -> HandOver:
    """Hand a call over, let it end, and return its hand-over."""
    hand_over = HandOver(None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(call, home, session, hand_over, tool="hold"))
        assert await hand_over.take()
        home.counter.let_go.set()
    home.counter.let_go = anyio.Event()
    return hand_over


async def test_a_call_that_ends_first_is_not_handed_over_and_writes_no_receipt(
    build: Build,
) -> None:
    async with build() as home:
        session = (await home.create()).id
        hand_over = HandOver(None)
        await call(home, session, hand_over)
        assert not await hand_over.take()
        assert await receipt_of(home, session, hand_over) is None


async def test_a_receipt_is_kept_for_a_day_after_the_end_of_its_call(build: Build) -> None:
    async with build() as home:
        session = (await home.create()).id
        mine = HandOver("mine")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(call, home, session, mine, tool="hold"))
            assert await mine.take()
            home.counter.let_go.set()
        home.counter.let_go = anyio.Event()
        ours = await handed_over(home, session)
        for seconds, is_kept in ((KEPT_SECONDS - 60, True), (120, False)):
            home.clock.advance(seconds)
            await home.registry._expiry.sweep()  # pyright: ignore[reportPrivateUsage]
            assert (await receipt_of(home, session, ours) is not None) == is_kept
        receipt = await receipt_of(home, session, mine)
        assert receipt is not None
        assert receipt.status == "ok"


async def test_receipts_that_expire_take_no_room_of_those_that_callers_chose(build: Build) -> None:
    async with build(policy=Policy(receipts=1)) as home:
        session = (await home.create()).id
        await handed_over(home, session)
        await call(home, session, HandOver("mine"))
        with pytest.raises(SessionLimit):
            await call(home, session, HandOver("another"))
        # Without room for its receipt a call is not handed over, and its caller waits.
        hand_over = HandOver(None)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(call, home, session, hand_over, tool="hold"))
            assert not await hand_over.take()
            home.counter.let_go.set()


async def test_a_call_is_not_handed_over_while_the_store_is_down(build: Build) -> None:
    async with build() as home:
        session = (await home.create()).id
        await call(home, session)
        hand_over, answers = HandOver(None), list[CallAnswer]()

        async def held() -> None:
            answers.append(await call(home, session, hand_over, tool="hold"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(held)
            with failing(home):
                assert not await hand_over.take()
            home.counter.let_go.set()
        assert len(answers) == 1


async def test_a_call_that_was_handed_over_has_a_time_limit_of_its_own(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statehold.sessions.calls.deadline.OPEN_SECONDS", 0.3)
    async with build() as home:
        session = (await home.create()).id
        await call(home, session)
        hand_over, ended = HandOver(None), anyio.Event()

        async def hold() -> None:
            with pytest.raises(CallTimedOut):
                await call(home, session, hand_over, tool="hold")
            ended.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold)
            assert await hand_over.take()
            await ended.wait()
        receipt = await receipt_of(home, session, hand_over)
        assert receipt is not None
        assert receipt.status == CallTimedOut.code


def test_ids_of_calls_are_not_guessable() -> None:
    ids = {hand_overs.new_operation_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(id) >= 5 + 24 for id in ids)
