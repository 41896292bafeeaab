"""Random calls, pauses, closes, kills, outages and passing time: sessions change exactly as the table and the clocks say.

No session ends but by its owner or a clock that was set for it, and no acknowledged change of a state is ever unreadable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from support.counting import Counting
from support.engine import Engine, engine

from statehold.sessions.errors import SessionError, SessionNotFound
from statehold.sessions.lifecycle import TABLE, Event, Status
from statehold.sessions.live.outages import RETRY_SECONDS
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL, JournalKind, Timeouts

T = TypeVar("T")

IDLE, PAUSED, LIFETIME = 60.0, 200.0, 2000.0
BACKOFF = (0.2, 1.0, 5.0)
CLOSED = ("session_closed", "session_expired", "session_failed", "session_not_found")
POLICY = Policy(
    timeouts=Timeouts(idle=IDLE, paused=PAUSED, lifetime=LIFETIME),
    close_grace=0.0,
    recovery_backoff=BACKOFF,
    live_sessions=100,
)


@dataclass
class Model:
    """The expected state of a session."""

    status: str
    since: float
    fork_client: float
    held: int = 0
    connected: bool = False
    losses: int = 0
    answered: bool = False
    lasting: bool = False
    """Whether it has a name and no lifetime: then no clock ends it."""
    opened: bool = False
    """Whether it ever had a connection."""
    state: dict[str, int] = field(default_factory=dict[str, int])
    """The acknowledged changes of its state."""
    version: int = 0
    deleted: bool = False
    seen_closed: bool = False
    """Closed is for good: it is looked at when it happens and once more at the end."""

    def to(self, status: str, now: float) -> None:
        self.status, self.since = status, now


class Machine(RuleBasedStateMachine):
    sessions = Bundle("sessions")

    def __init__(self) -> None:
        super().__init__()
        self.models: dict[str, Model] = {}
        self.is_away = False
        """Whether the server behind all sessions has vanished."""
        # In this thread, and running only while it is asked to: a change of threads costs more than a step.
        self.runner = asyncio.Runner()
        self.loop = self.runner.get_loop()
        # As many calls of one session may be held as the steps like.
        self.counter = Counting(concurrency=1000)
        self.opened: asyncio.Future[Engine] = self.loop.create_future()
        self.over = asyncio.Event()
        self.held = set[asyncio.Task[str]]()
        self.life = self.loop.create_task(self.live())
        self.engine = self.run(self.opened)

    async def live(self) -> None:
        try:
            async with engine(self.counter, policy=POLICY) as opened:
                self.opened.set_result(opened)
                await self.over.wait()
        except BaseException as problem:
            if self.opened.done():
                raise
            self.opened.set_exception(problem)

    def run(self, what: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
        return self.loop.run_until_complete(what)

    def teardown(self) -> None:
        try:
            self.run(self.check_journals())
            self.run(self.release_all())
        finally:
            self.over.set()
            self.run(self.life)
            self.runner.close()
        assert self.counter.open_now == 0

    @property
    def now(self) -> float:
        return self.engine.clock.now()

    @initialize(target=sessions)
    def first(self) -> str:
        return self.made()

    @rule(target=sessions)
    def create(self) -> str:
        return self.made()

    @rule(target=sessions)
    def create_lasting(self) -> str:
        return self.made(name=f"name {len(self.models)}", lifetime=0.0)

    def made(self, **options: Any) -> str:
        session = self.run(self.engine.create(**options))
        self.models[session.id] = Model("idle", self.now, self.now, lasting=bool(options))
        return session.id

    @rule(session=sessions)
    def call(self, session: str) -> None:
        self.pass_backoff()
        model = self.models[session]
        outcome = self.run(self.attempt(session, "inc"))
        if model.status == "closed":
            assert outcome in CLOSED
            return
        if self.is_away:
            # An upstream that is away has no connections.
            assert outcome == "service_unavailable"
        else:
            assert outcome == "ok"
            model.connected, model.answered, model.losses, model.opened = True, True, 0, True
        if not model.held:
            model.to("idle", self.now)

    @rule(session=sessions, number=st.integers(0, 9))
    def change_state(self, session: str, number: int) -> None:
        """A state changes whatever its session's connections are like."""
        model = self.models[session]
        change = {f"key {number}": model.version}
        outcome = self.run(self.update(session, change))
        if model.status == "closed":
            assert outcome in CLOSED
            return
        assert outcome == "ok"
        model.state |= change
        model.version += 1
        if model.status != "active":
            model.to("idle", self.now)

    @rule(session=sessions)
    def read_state(self, session: str) -> None:
        self.run(self.check_state(session))

    @rule()
    def vanish(self) -> None:
        """The upstream goes away; when no session tries any more, all that used it are paused."""
        if self.is_away:
            return
        self.is_away = True
        self.counter.refuse = 1_000_000
        self.run(self.die_all())
        lost = {session for session, model in self.models.items() if model.connected}
        for number, seconds in enumerate((0.25, *BACKOFF[1:])):
            self.run(self.settle())
            self.elapse(seconds, besides=lost)
            self.run(self.settle())
            for session in lost:
                model = self.models[session]
                if model.connected and (
                    number == len(BACKOFF) - 1
                    or (not model.answered and model.losses == number + 3)
                ):
                    model.held, model.connected, model.losses, model.answered = 0, False, 0, False
                    model.to("paused", self.now)
        for session in lost:
            self.expire_one(session, self.models[session])

    @rule()
    def come_back(self) -> None:
        self.pass_backoff()
        self.is_away = False
        self.counter.refuse = 0

    def pass_backoff(self) -> None:
        """Move the clock past the time for which calls wait while the upstream is away."""
        if self.is_away:
            self.elapse(RETRY_SECONDS)

    @rule(session=sessions)
    def hold(self, session: str) -> None:
        model = self.models[session]
        if model.status == "closed" or self.is_away:
            return
        self.counter.holding = anyio.Event()
        call = self.loop.create_task(self.attempt(session, "hold"))
        self.held.add(call)
        call.add_done_callback(self.held.discard)
        self.run(self.holding())
        model.held += 1
        model.connected, model.opened = True, True
        model.to("active", self.now)

    @rule()
    def let_go(self) -> None:
        self.run(self.release_all())
        for model in self.models.values():
            if model.held:
                model.held, model.answered, model.losses = 0, True, 0
                model.to("idle", self.now)

    @rule(session=sessions)
    def pause(self, session: str) -> None:
        model = self.models[session]
        outcome = self.run(self.change("pause", session))
        if model.status == "idle":
            assert outcome == "ok"
            model.to("paused", self.now)
        elif model.status == "active":
            assert outcome == "session_busy"

    @rule(session=sessions)
    def resume(self, session: str) -> None:
        self.pass_backoff()
        model = self.models[session]
        outcome = self.run(self.change("resume", session))
        if model.status == "closed":
            assert outcome in CLOSED
        else:
            expected = "service_unavailable" if self.is_away and model.opened else "ok"
            assert outcome == expected
            model.connected |= model.opened and not self.is_away
        if model.status == "paused" or (model.status == "idle" and outcome == "ok"):
            # It counts as a use of a session that is idle.
            model.to("idle", self.now)

    @rule(session=sessions, force=st.booleans())
    def close(self, session: str, force: bool) -> None:
        if self.models[session].deleted:
            return
        self.run(self.end(session, force))
        self.closed(session)

    @rule(session=sessions)
    def delete(self, session: str) -> None:
        model = self.models[session]
        if model.deleted:
            return
        self.run(self.engine.registry.rename_delete.delete(LOCAL, session))
        self.closed(session)
        model.deleted, model.seen_closed = True, True

    @rule(session=sessions)
    def kill(self, session: str) -> None:
        """The far side dies; half a second later the session is idle again, or paused until its next call."""
        model = self.models[session]
        if model.status == "closed" or not model.connected:
            return
        self.run(self.die(session))
        model.held = 0
        model.losses = 0 if model.answered else model.losses + 1
        model.answered = False
        self.elapse(0.25, besides={session})
        if model.losses > len(BACKOFF):
            model.losses, model.connected = 0, False
            model.to("paused", self.now)
        else:
            model.to("idle", self.now)
        self.expire_one(session, model)

    @rule(seconds=st.sampled_from([1.0, 30.0, 59.0, 61.0, 150.0, 201.0, 1000.0]))
    def wait(self, seconds: float) -> None:
        self.elapse(seconds)

    def elapse(self, seconds: float, besides: Collection[str] = ()) -> None:
        self.run(self.pass_by(seconds))
        for session, model in self.models.items():
            if session not in besides:
                self.expire_one(session, model)

    def expire_one(self, session: str, model: Model) -> None:
        if model.status == "closed":
            return
        is_over = self.now >= model.fork_client + LIFETIME or (
            model.status == "paused" and self.now >= model.since + PAUSED
        )
        if is_over and not model.lasting:
            self.closed(session)
        elif model.status == "idle" and self.now >= model.since + IDLE:
            model.to("paused", self.now)

    def closed(self, session: str) -> None:
        model = self.models[session]
        model.held, model.connected = 0, False
        model.to("closed", self.now)

    @invariant()
    def every_session_is_where_it_should_be(self) -> None:
        self.run(self.settled())

    async def settled(self) -> None:
        async def same() -> dict[str, tuple[str, str]]:
            wrong: dict[str, tuple[str, str]] = {}
            for session in self.engine.registry.owned_sessions():
                if session.changing.locked():
                    wrong[session.id] = ("changing", "still")
            for session, model in self.models.items():
                if model.seen_closed:
                    continue
                status = await self.engine.status(session)
                if status != model.status:
                    wrong[session] = (status, model.status)
                model.seen_closed = status == "closed"
            return wrong

        wrong: dict[str, tuple[str, str]] = {}
        for _ in range(200):
            # Not only equal at some moment: still equal when nothing is left to run.
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            wrong = await same()
            if not wrong:
                break
            await anyio.sleep(0.005)
        assert not wrong, wrong
        connected = sum(model.connected for model in self.models.values())
        assert self.counter.open_now == connected

    async def attempt(self, session: str, tool: str) -> str:
        try:
            await self.engine.call(session, tool)
        except SessionError as error:
            return error.code
        return "ok"

    async def update(self, session: str, change: dict[str, int]) -> str:
        try:
            state = await self.engine.registry.states.update(LOCAL, session, change)
        except SessionError as error:
            return error.code
        assert state.version == self.models[session].version + 1
        return "ok"

    async def check_state(self, session: str) -> None:
        """Every acknowledged change is there, also after the end of the session, until it is deleted."""
        model = self.models[session]
        if model.deleted:
            with pytest.raises(SessionNotFound):
                await self.engine.registry.states.read(LOCAL, session)
            return
        state = await self.engine.registry.states.read(LOCAL, session)
        assert (state.value, state.version) == (model.state, model.version)

    async def change(self, what: str, session: str) -> str:
        try:
            await getattr(self.engine.registry, what)(LOCAL, session)
        except SessionError as error:
            return error.code
        return "ok"

    async def end(self, session: str, force: bool) -> None:
        await self.engine.registry.close(LOCAL, session, force=force)

    async def die(self, session: str) -> None:
        [connection] = [c for c in self.counter.live if c.view.id == session]
        connection.die("killed")
        await self.engine.until(lambda: connection.closed)

    async def settle(self) -> None:
        for _ in range(3):
            await anyio.wait_all_tasks_blocked()
            await self.engine.store.flush()

    async def die_all(self) -> None:
        connections = list(self.counter.live)
        for connection in connections:
            connection.die("the server is away")
        await self.engine.until(lambda: all(each.closed for each in connections))

    async def holding(self) -> None:
        await self.counter.holding.wait()

    async def pass_by(self, seconds: float) -> None:
        self.engine.clock.advance(seconds)

    async def release_all(self) -> None:
        self.counter.let_go.set()
        self.counter.let_go = anyio.Event()
        await self.engine.until(lambda: not self.engine.registry.statistics()["in_flight"])

    async def check_journals(self) -> None:
        """Every recorded transition is a row of the table, and each starts where the one before ended."""
        await self.engine.store.flush()
        for session, model in self.models.items():
            await self.check_state(session)
            if model.deleted:
                continue
            status = await self.engine.status(session)
            assert status == model.status, (session, status, model)
            entries = await self.engine.store.journal(session, last=1000)
            steps: list[dict[str, Any]] = [
                e.request for e in entries if e.kind is JournalKind.TRANSITION
            ]
            assert steps[0]["code"] == "T02"
            for before, after in pairwise(steps):
                row = TABLE[Status(after["from"]), Event(after["event"])]
                assert (row.code, row.target) == (after["code"], after["to"])
                # Calls are journalled as calls: between two entries idle and active are one.
                assert _open(before["to"]) == _open(after["from"])


def _open(status: str) -> str:
    return "idle" if status == "active" else status


STEPS = settings(
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
        HealthCheck.large_base_example,
    ],
    phases=[Phase.explicit, Phase.generate],
)


class TestSessionMachine(Machine.TestCase):
    """Two hundred and forty random steps."""

    settings = settings(STEPS, max_examples=4)


@pytest.mark.thorough
@pytest.mark.timeout(300)
class TestSessionMachineForLong(Machine.TestCase):
    """Nine hundred random steps."""

    settings = settings(STEPS, max_examples=15)
