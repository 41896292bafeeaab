"""A server that is away for long while many sessions use it."""

from __future__ import annotations

import time
from collections import Counter as Tally
from contextlib import suppress

import anyio
import anyio.lowlevel
import pytest
from support.counting import Counter, Counting
from support.engine import Build, Engine
from support.selection import matrix

from statehold.sessions.errors import ServiceUnavailable, SessionError
from statehold.sessions.live.outages import MAX_KNOWN, RETRY_SECONDS, Outages
from statehold.sessions.metrics.instruments import Metrics
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL, Principal
from statehold.sessions.services import SessionView, Snapshot

HOUR = 3600.0


class Remote(Counting):
    """A service whose server may be away; it notes when it is tried."""

    def __init__(self, engine_now: list[float]) -> None:
        super().__init__(concurrency=16)
        self.is_away = False
        self.now = engine_now
        self.tries: list[float] = []

    async def open(self, session: SessionView, snapshot: Snapshot | None) -> Counter:
        self.tries.append(self.now[0])
        await anyio.lowlevel.checkpoint()
        if self.is_away:
            raise ServiceUnavailable("The server of the counter does not answer.")
        return await super().open(session, snapshot)

    def vanish(self) -> None:
        self.is_away = True
        self.tries.clear()
        for connection in list(self.live):
            connection.die("the server ended the connection")


async def settle(engine: Engine) -> None:
    await anyio.wait_all_tasks_blocked()
    await engine.store.flush()
    await anyio.wait_all_tasks_blocked()


@pytest.mark.thorough
@pytest.mark.timeout(600)
async def test_sessions_outlast_a_server_that_is_away_for_an_hour(build: Build) -> None:
    """It is tried once in five seconds for all of them, and each gets one true note when it is back."""
    count = 20
    now = [0.0]
    remote = Remote(now)
    policy = Policy(live_sessions=count)
    async with build(remote, policy=policy) as engine:

        def advance(seconds: float) -> None:
            engine.clock.advance(seconds)
            now[0] = engine.clock.now()

        advance(0)
        sessions = [await engine.create(state={"n": number}) for number in range(count)]
        for session in sessions:
            await engine.count(session.id)
        gone_at = engine.clock.now()
        remote.vanish()
        # Each session calls once in so many seconds.
        refused, period = 0, max(120, 3 * count)
        for _ in range(3):
            await settle(engine)
            advance(RETRY_SECONDS)
        started = time.process_time()

        async def fail(session: str) -> None:
            nonlocal refused
            with pytest.raises(ServiceUnavailable) as caught:
                await engine.call(session)
            assert "The server of the counter does not answer." in caught.value.message
            refused += 1

        async with anyio.create_task_group() as callers:
            while engine.clock.now() < gone_at + HOUR:
                for number in range(int(engine.clock.now()) % period, count, period):
                    callers.start_soon(fail, sessions[number].id)
                advance(1.0)
                # Waiting until all tasks are blocked takes a tenth of a second where one is not.
                for _ in range(30):
                    await anyio.lowlevel.checkpoint()
            for _ in range(3):
                await settle(engine)
                advance(RETRY_SECONDS)
        assert refused >= count * 5
        assert (time.process_time() - started) / refused < 0.1
        gaps = [
            later - earlier for earlier, later in zip(remote.tries, remote.tries[1:], strict=False)
        ]
        # Three tries of the recovery of all sessions together, then one in five seconds.
        assert min(gaps[3:]) >= RETRY_SECONDS
        assert len(remote.tries) <= HOUR / RETRY_SECONDS + 4
        await settle(engine)
        statuses = Tally([await engine.status(session.id) for session in sessions])
        assert statuses.keys() <= {"paused", "idle"}
        remote.is_away = False
        advance(RETRY_SECONDS)
        notes: list[str] = []

        async def call(number: int) -> None:
            session = sessions[number].id
            answer = await engine.call(session)
            assert answer.payload["structuredContent"] == {"count": 1, "generation": 2}
            assert answer.notice is not None
            notes.append(answer.notice)
            assert (await engine.call(session)).notice is None
            assert (await engine.registry.states.read(LOCAL, session)).value == {"n": number}

        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(call, number)
        assert len(notes) == count
        assert all("generation 1 to 2" in note and "Lost: the count" in note for note in notes)


async def test_a_server_that_was_away_before_its_first_use_is_tried_once_in_five_seconds(
    build: Build,
) -> None:
    now = [0.0]
    remote = Remote(now)
    async with build(remote) as engine:
        now[0] = engine.clock.now()
        remote.is_away = True
        sessions = [await engine.create() for _ in range(20)]

        async def call(session: str) -> None:
            with pytest.raises(ServiceUnavailable):
                await engine.call(session)

        for _ in range(3):
            async with anyio.create_task_group() as tasks:
                for session in sessions:
                    tasks.start_soon(call, session.id)
                for _ in range(6):
                    await settle(engine)
                    engine.clock.advance(1.0)
                    now[0] = engine.clock.now()
        # All calls of the first moment may begin before the first of them fails.
        first = remote.tries[0]
        assert [tried - first for tried in remote.tries if tried > first] == [6.0, 12.0]


@pytest.mark.parametrize("kind", matrix("fails", "lost", "many", "hangs"))
async def test_a_service_that_fails_in_sessions_of_one_owner_is_open_to_others_at_once(
    build: Build, kind: str
) -> None:
    ann, bob = Principal(subject="ann"), Principal(subject="bob")
    faulty: set[str] = set()

    class Partial(Remote):
        async def open(self, session: SessionView, snapshot: Snapshot | None) -> Counter:
            self.is_away = session.id in faulty
            if self.is_away and kind == "hangs" and len(self.tries) > 2:
                await anyio.sleep_forever()
            return await super().open(session, snapshot)

    remote = Partial([0.0])
    async with build(remote) as engine:
        of_ann = [(await engine.create(ann)).id for _ in range(10 if kind == "many" else 3)]
        of_bob = [(await engine.create(bob)).id for _ in range(3)]
        if kind == "lost":
            for session in of_ann:
                await engine.call(session, principal=ann)
        faulty.update(of_ann)
        for connection in list(remote.live):
            connection.die("it crashed")
        for session in of_ann[:2]:
            engine.registry.spawn(_refused, engine, session, ann)
        await settle(engine)
        for session in of_ann[2:]:
            engine.registry.spawn(_refused, engine, session, ann)
        await settle(engine)
        # The clock stands: a call that waits for its time never ends.
        with anyio.fail_after(5):
            for session in of_bob:
                await engine.call(session, principal=bob)


async def _refused(engine: Engine, session: str, principal: Principal) -> None:
    with suppress(SessionError):
        await engine.call(session, principal=principal)


async def test_the_words_of_a_server_stay_with_the_caller_that_they_were_for(build: Build) -> None:
    ann, bob = Principal(subject="ann"), Principal(subject="bob")

    class Naming(Remote):
        async def open(self, session: SessionView, snapshot: Snapshot | None) -> Counter:
            raise ServiceUnavailable(f"The server of the counter knows no {session.id}.")

    async with build(Naming([0.0])) as engine:
        sessions = {who: [(await engine.create(who)).id for _ in range(2)] for who in (ann, bob)}
        refusals: list[tuple[Principal, str]] = []

        async def call(session: str, principal: Principal) -> None:
            with pytest.raises(ServiceUnavailable) as caught:
                await engine.call(session, principal=principal)
            refusals.append((principal, caught.value.message))

        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                for who, own in sessions.items():
                    for session in own:
                        tasks.start_soon(call, session, who)
                await settle(engine)
            await engine.pass_time(lambda: len(refusals) == 8)
        for who, words in refusals:
            assert any(session in words for session in sessions[who])


@pytest.mark.parametrize("owners", matrix(1, 3, MAX_KNOWN))
async def test_failures_of_others_do_not_hide_the_failure_of_a_session(
    build: Build, owners: int
) -> None:
    async with build(Counting()) as engine:
        outages = Outages(engine.clock, attempts=3, metrics=Metrics())
        lost = ServiceUnavailable("It does not answer.")
        for number in range(3):
            outages.record_failure("counter", f"ann {number}", "ann", lost, by_call=False)
        for number in range(MAX_KNOWN + (owners < MAX_KNOWN)):
            outages.record_loss(
                "counter", f"{number}", f"bob {number % owners}", "the server ended"
            )
        outages.record_opened("counter", "1")
        for number in range(3):
            with pytest.raises(ServiceUnavailable):
                await outages.admit("counter", f"ann {number}", "ann", spacing=60)


async def test_a_session_is_not_created_without_an_eager_service_that_is_away(build: Build) -> None:
    async with build(Counting(eager=True)) as engine:
        parent = await engine.create(state={"n": 1})
        engine.counter.refuse = 1000
        with pytest.raises(ServiceUnavailable):
            await engine.create()
        # A fork has the state, whatever its services do.
        [child] = (await engine.registry.branches.fork(LOCAL, parent.id)).children
        assert (await engine.registry.states.read(LOCAL, child.id)).value == {"n": 1}
        assert await engine.status(child.id) == "idle"


@pytest.mark.parametrize("status", ["error", "paused"])
async def test_all_that_a_session_keeps_is_at_hand_while_its_server_hangs(
    build: Build, status: str
) -> None:
    class Hanging(Counting):
        hangs = False

        async def open(self, session: SessionView, snapshot: Snapshot | None) -> Counter:
            if self.hangs:
                await anyio.sleep_forever()
            return await super().open(session, snapshot)

    service = Hanging(connect_seconds=0.1 if status == "paused" else 3600.0)
    async with build(service) as engine:
        session = await engine.create(name="mine", state={"n": 1})
        await engine.count(session.id)
        service.hangs = True
        service.live[0].die("the server hangs")
        await engine.until(lambda: session.status == "error")
        if status == "paused":
            await engine.pass_time(lambda: session.status == "paused")
        else:
            engine.clock.advance(1.0)
            await settle(engine)
        registry = engine.registry
        with anyio.fail_after(5):
            assert (await registry.info(LOCAL, "mine"))["status"] == status
            state = await registry.states.update(LOCAL, "mine", {"n": 2})
            assert (await registry.states.read(LOCAL, "mine")).value == {"n": 2}
            await registry.history.note(LOCAL, "mine", "user", "hello")
            await registry.history.write_summary(LOCAL, "mine", "so far", [])
            await registry.history.summary(LOCAL, "mine")
            await registry.rename_delete.rename(LOCAL, "mine", "yours", metadata={"a": 1})
            _, document = await registry.porting.export_session(LOCAL, "yours")
            assert (document.state.value, document.state.version) == ({"n": 2}, state.version)
            [child] = (await registry.branches.fork(LOCAL, "yours")).children
            assert (await registry.states.read(LOCAL, child.id)).value == {"n": 2}
            await registry.close(LOCAL, "yours")
