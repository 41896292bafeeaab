"""The time limit of a call, which stands still while its caller is asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from support.counting import Counter, Counting, Nobody
from support.engine import Build, Engine
from support.loop_clock import LoopClock

from statehold.sessions.calls import deadline
from statehold.sessions.calls.deadline import enforce_deadline
from statehold.sessions.calls.request import Request
from statehold.sessions.errors import OutcomeUnknown
from statehold.sessions.json_codec import JSON
from statehold.sessions.live.session import LiveSession
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL
from statehold.sessions.services import (
    CallContext,
    CallerOptions,
    SessionView,
    Snapshot,
    ToolResult,
)


class Thinking(Nobody):
    """A caller that answers on request of the test."""

    def __init__(self) -> None:
        self.answering = anyio.Event()

    async def ask(self, method: str, params: JSON) -> JSON:
        await self.answering.wait()
        return {"method": method, **params}


class Running:
    """A call of 300 seconds: it runs `begin`, and then never ends."""

    def __init__(self, caller: CallContext, begin: Callable[[CallContext], Awaitable[Any]]) -> None:
        self._caller = caller
        self._begin = begin
        self.begun = anyio.Event()
        self.timed_out = anyio.Event()

    async def run(self) -> None:
        try:
            with enforce_deadline(300, self._caller) as timed:
                await self._begin(timed)
                self.begun.set()
                await anyio.sleep_forever()
        except TimeoutError:
            self.timed_out.set()

    async def ends_after(self, seconds: float, loop_clock: LoopClock) -> None:
        """Check that it has that much time left, and no more."""
        await loop_clock.by(seconds - 1)
        assert not self.timed_out.is_set()
        await loop_clock.by(2)
        with anyio.fail_after(5):
            await self.timed_out.wait()


async def test_the_time_before_a_question_counts(loop_clock: LoopClock) -> None:
    caller = Thinking()

    async def begin(timed: CallContext) -> None:
        await anyio.sleep(100)
        await timed.ask("one", {})

    call = Running(caller, begin)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.run)
        await anyio.wait_all_tasks_blocked()
        await loop_clock.by(101)
        await anyio.wait_all_tasks_blocked()
        await loop_clock.by(3000)
        caller.answering.set()
        await call.begun.wait()
        await call.ends_after(199, loop_clock)


async def test_of_two_questions_at_once_the_longer_one_counts(loop_clock: LoopClock) -> None:
    quick, slow = Thinking(), Thinking()

    class Two(Nobody):
        async def ask(self, method: str, params: JSON) -> JSON:
            return await (quick if method == "quick" else slow).ask(method, params)

    async def begin(timed: CallContext) -> None:
        async with anyio.create_task_group() as questions:
            for name in ("quick", "slow"):
                questions.start_soon(timed.ask, name, JSON())

    call = Running(Two(), begin)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.run)
        await anyio.wait_all_tasks_blocked()
        await loop_clock.by(400)
        quick.answering.set()
        await anyio.wait_all_tasks_blocked()
        await loop_clock.by(400)
        assert not call.timed_out.is_set()
        slow.answering.set()
        await call.begun.wait()
        await call.ends_after(300, loop_clock)


async def test_a_question_that_is_given_up_starts_the_clock_again(loop_clock: LoopClock) -> None:
    async def begin(timed: CallContext) -> None:
        with anyio.move_on_after(600):
            await timed.ask("one", {})

    call = Running(Thinking(), begin)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.run)
        await anyio.wait_all_tasks_blocked()
        await loop_clock.by(601)
        await call.begun.wait()
        await call.ends_after(300, loop_clock)


class Told(Nobody):
    """A caller that wants progress notifications."""

    options = CallerOptions(wants_progress=True)

    def __init__(self) -> None:
        self.heard: list[tuple[float, float | None, str | None]] = []
        self.twice = anyio.Event()

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.heard.append((progress, total, message))
        if len(self.heard) == 2:
            self.twice.set()


async def called(engine: Engine, session: LiveSession, caller: CallContext) -> None:
    request = Request(LOCAL, session.id, "counter", "inc", {})
    await engine.router.call(request, caller)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "PROGRESS_SECONDS", 0.01)


@pytest.mark.usefixtures("often")
async def test_a_caller_with_a_progress_callback_is_notified_of_an_opening_connection(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with build(Counting()) as engine:
        session, reports = await engine.create(), Told()
        whole = engine.counter.open

        async def open(view: SessionView, snapshot: Snapshot | None) -> Counter:
            await reports.twice.wait()
            return await whole(view, snapshot)

        monkeypatch.setattr(engine.counter, "open", open)
        with anyio.fail_after(5):
            await called(engine, session, reports)
        seconds = [progress for progress, _, _ in reports.heard]
        assert seconds == sorted(set(seconds))
        assert reports.heard[0][2] == "Opening counter: 0.01 seconds so far"


@asynccontextmanager
async def held(engine: Engine) -> AsyncGenerator[LiveSession]:
    """A session in which a call runs until it is let go; it has ended afterwards."""
    session = await engine.create()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.call, session.id, "hold")
        with anyio.fail_after(5):
            await engine.counter.holding.wait()
        yield session


@pytest.mark.usefixtures("often")
async def test_a_waiting_caller_is_notified_of_the_calls_before_it(build: Build) -> None:
    async with build(Counting(concurrency=1)) as engine:
        reports = Told()
        async with held(engine) as session, anyio.create_task_group() as tasks:
            tasks.start_soon(called, engine, session, reports)
            with anyio.fail_after(5):
                await reports.twice.wait()
            engine.counter.let_go.set()
        assert reports.heard[0][2] == "Waiting for the calls before: 0.01 seconds so far"


@pytest.mark.usefixtures("often")
async def test_a_cancelled_waiter_leaves_its_turn_to_others(build: Build) -> None:
    async with build(Counting(concurrency=1)) as engine:
        reports = Told()
        async with held(engine) as session:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as waiting:
                    waiting.start_soon(called, engine, session, reports)
                    with anyio.fail_after(5):
                        await reports.twice.wait()
                    engine.counter.let_go.set()
                    scope.cancel()
        with anyio.fail_after(5):
            await engine.call(session.id)


async def test_progress_of_a_tool_follows_progress_of_the_gateway() -> None:
    reports = Told()
    waiting = deadline.WaitProgress(reports)
    with enforce_deadline(5, reports, waiting) as timed:
        await timed.progress(1, None, "as it is")
        waiting.reported_seconds = 3.0
        await timed.progress(1, 10, "later")
    assert reports.heard == [(1, None, "as it is"), (4, 13, "later")]


@pytest.mark.usefixtures("often")
async def test_progress_of_a_repeated_call_follows_its_earlier_progress(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with build(Counting(), policy=Policy(recovery_backoff=(0.0,))) as engine:
        session, reports = await engine.create(), Told()
        await engine.call(session.id)
        [counter], whole = engine.counter.live, engine.counter.open

        async def call(tool: str, arguments: Mapping[str, Any], ctx: CallContext) -> ToolResult:
            await ctx.progress(7, None, "at work")
            counter.die("killed")
            raise OutcomeUnknown("The connection died during the call.")

        async def open(view: SessionView, snapshot: Snapshot | None) -> Counter:
            await reports.twice.wait()
            return await whole(view, snapshot)

        monkeypatch.setattr(counter, "call", call)
        monkeypatch.setattr(engine.counter, "open", open)
        with anyio.fail_after(5):
            await engine.router.call(Request(LOCAL, session.id, "counter", "get", {}), reports)
        seconds = [progress for progress, _, _ in reports.heard]
        assert seconds == sorted(set(seconds))
        assert reports.heard[1][2] == "Opening counter: 0.01 seconds so far"


async def test_a_call_whose_time_is_over_gets_no_more_by_a_hand_over() -> None:
    async def end_late() -> None:
        with enforce_deadline(0, Nobody()) as timed:
            try:
                await anyio.sleep_forever()
            finally:
                timed.hand_over()

    with pytest.raises(TimeoutError):
        await end_late()
