"""The owner task of one connection opens it once and closes it once, whichever caller is cancelled."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.counting import Counter, Counting
from support.engine import Build, engine
from support.selection import matrix

from statehold.sessions.errors import ServiceUnavailable
from statehold.sessions.live.connection import LiveConnection
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL, Principal
from statehold.sessions.services import SessionView, Snapshot

VIEW = SessionView("sh_test", None, "", "", 1)
seen_in_request: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="nothing")


class Slow(Counting):
    """A counter that opens when it is let."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.may_open = anyio.Event()
        self.context = ""

    async def open(self, session: SessionView, snapshot: Snapshot | None) -> Counter:
        self.context = seen_in_request.get()
        await self.may_open.wait()
        return await super().open(session, snapshot)


class Stubborn(Counter):
    """A connection that does not close by itself."""

    async def aclose(self) -> None:
        await super().aclose()
        raise RuntimeError("closing failed")


@asynccontextmanager
async def owned(
    service: Counting, on_lost: Callable[[LiveConnection], None] | None = None, **options: Any
) -> AsyncGenerator[LiveConnection]:
    live = LiveConnection(service, VIEW, None, on_lost=on_lost or (lambda _: None), **options)
    async with anyio.create_task_group() as tasks:
        live.start(tasks.start_soon)
        yield live
        await live.aclose()


async def test_a_waiter_that_is_cancelled_leaves_the_opening_alone():
    service = Slow()
    async with owned(service) as live:
        with anyio.move_on_after(0.01) as scope:
            await live.wait_until_open()
        assert scope.cancelled_caught
        assert live.phase == "opening"
        service.may_open.set()
        await live.wait_until_open()
        assert live.usable
    assert (service.opened, service.open_now) == (1, 0)


async def test_closing_gives_up_an_opening():
    service = Slow()
    async with owned(service) as live:
        await anyio.lowlevel.checkpoint()
        with anyio.fail_after(10):
            await live.aclose()
        with pytest.raises(ServiceUnavailable):
            await live.wait_until_open()
        assert live.phase == "failed"
    assert service.opened == 0


async def test_the_reason_of_a_loss_is_logged_and_kept_as_one_line(
    build: Build, caplog: pytest.LogCaptureFixture
):
    async with build() as engine:
        session = await engine.create()
        await engine.count(session.id)
        engine.counter.live[0].die("gone\nWARNING forged\r\x1b[2J\u2028end")
        await engine.until(lambda: session.bindings["counter"].live is None)
        error = session.bindings["counter"].record.last_error
    (logged,) = [line for line in caplog.messages if f"{session.id} lost counter" in line]
    assert logged.endswith(r"gone WARNING forged \x1b[2J end")
    assert error == r"gone WARNING forged \x1b[2J end"


async def test_closing_twice_at_once_closes_once_without_a_report():
    reports: list[LiveConnection] = []
    service = Counting()
    async with owned(service, reports.append) as live:
        await live.wait_until_open()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(live.aclose)
            tasks.start_soon(live.aclose)
        await live.aclose()
    assert (reports, service.open_now, live.phase) == ([], 0, "closed")


async def test_a_connection_that_fails_to_close_is_logged_and_forgotten(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    service = Counting()
    monkeypatch.setattr("support.counting.Counter", Stubborn)
    async with owned(service) as live:
        await live.wait_until_open()
    assert live.phase == "closed"
    assert "failed to close" in caplog.text


async def test_the_owner_does_not_keep_the_openers_context():
    service = Slow()
    service.may_open.set()
    seen_in_request.set("a token")
    async with owned(service) as live:
        await live.wait_until_open()
    assert service.context == "nothing"


@pytest.mark.parametrize("waiting", matrix(12, 1, 3))
async def test_the_owners_of_calls_to_a_shared_connection_take_turns(waiting: int) -> None:
    bob, eve = Principal(subject="bob"), Principal(subject="eve")
    order: list[str] = []
    async with engine(Counting(scope="shared", concurrency=1)) as running:
        service = running.counter
        sessions = {each.subject: await running.create(each) for each in (bob, eve, LOCAL)}

        async def call(caller: Principal, tool: str) -> None:
            await running.call(sessions[caller.subject].id, tool, principal=caller)
            order.append(caller.subject)

        def count_waiting() -> int:
            live = sessions["bob"].bindings["counter"].live
            return 0 if live is None else live.waiting_calls

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, bob, "hold")
                await service.holding.wait()
                for _ in range(waiting):
                    tasks.start_soon(call, bob, "inc")
                await running.until(lambda: count_waiting() == waiting)
                for number, caller in enumerate((eve, LOCAL), waiting + 1):
                    tasks.start_soon(call, caller, "inc")
                    await running.until(lambda number=number: count_waiting() == number)
                service.let_go.set()
        # One call of bob had asked for the slot already; then each owner has one turn.
        assert order[:2] == ["bob", "bob"]
        assert {"eve", "local"} <= set(order[2:5])
        assert len(order) == waiting + 3


@pytest.mark.parametrize("calls", matrix(16, 4, 2, 200))
async def test_calls_of_one_owner_leave_slots_of_a_shared_connection_to_others(calls: int) -> None:
    bob, eve = Principal(subject="bob"), Principal(subject="eve")
    service = Counting(scope="shared", concurrency=min(calls, 16))
    async with engine(service, policy=Policy(shared=True)) as running:
        of_bob, of_eve = await running.create(bob), await running.create(eve)

        async def hold() -> None:
            await running.call(of_bob.id, "hold", principal=bob)

        async with anyio.create_task_group() as tasks:
            for _ in range(calls):
                tasks.start_soon(hold)
            await anyio.wait_all_tasks_blocked()
            with anyio.fail_after(5):
                await running.call(of_eve.id, principal=eve)
            service.let_go.set()


async def test_the_owner_of_a_connection_of_its_own_may_use_all_slots() -> None:
    service = Counting(concurrency=4)
    async with engine(service, policy=Policy(shared=True)) as running:
        session = await running.create()
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(running.call, session.id, "hold")
            live = session.bindings["counter"]
            await running.until(
                lambda: live.live is not None and live.live.slots.statistics().used == 4
            )
            assert live.live is not None
            assert live.live.waiting_calls == 0
            assert live.live.slots.take_free("a sharee") is None
            service.let_go.set()


async def test_a_sharee_leaves_slots_of_a_session_to_its_owner() -> None:
    async with owned(Counting(concurrency=8), shared=True, host="owner") as live:
        taken = [live.slots.take_free("sharee") for _ in range(8)]
        assert 0 < taken.count(None) < 8
        assert live.slots.take_free("owner") is not None
