"""The timeouts of new sessions, and the longest that an operator allows."""

from __future__ import annotations

import anyio
import pytest
from support.engine import Build
from support.waiting import until

from statehold.sessions.errors import InvalidArgument, SessionExpired, SessionLimit
from statehold.sessions.policy import Policy
from statehold.sessions.records import (
    LOCAL,
    CredentialKind,
    CredentialRecord,
    HistoryFilter,
    Timeouts,
)
from statehold.sessions.times import timestamp

MONTH = 30 * 86_400.0
LONGEST = Policy(longest=Timeouts(idle=60, paused=600, lifetime=3600))


@pytest.mark.parametrize("seconds", [0.0, -1.0, 3601.0])
@pytest.mark.parametrize("name", ["idle", "paused", "lifetime"])
async def test_a_time_above_its_bound_or_without_end_is_refused(
    build: Build, name: str, seconds: float
) -> None:
    async with build(policy=LONGEST) as engine:
        with pytest.raises(InvalidArgument, match=f"{name}_seconds must be above 0"):
            await engine.create(**{name: seconds})


async def test_a_refused_time_is_answered_with_the_allowed_one_and_its_setting(
    build: Build,
) -> None:
    async with build(
        policy=Policy(longest=Timeouts(idle=0, paused=2_592_000, lifetime=0))
    ) as engine:
        with pytest.raises(InvalidArgument, match=r"at most 2592000 \(timeouts\.max_paused\)"):
            await engine.create(paused=3_000_000.0)
        # A session with a name stays whatever others may ask for.
        session = await engine.create(name="mine", paused=0.0)
        assert session.info()["expires_at"] is None


@pytest.mark.parametrize("name", ["idle", "paused", "lifetime"])
async def test_zero_means_never_where_there_is_no_bound(build: Build, name: str) -> None:
    async with build() as engine:
        session = await engine.create(**{name: 0.0})
        assert getattr(session.record.timeouts, name) == 0
        with pytest.raises(InvalidArgument, match="must not be negative; 0 means never"):
            await engine.create(**{name: -1.0})


async def test_a_session_with_a_name_stays_and_one_without_ends_after_a_month_without_use(
    build: Build,
) -> None:
    async with build() as engine:
        named, unnamed = await engine.create(name="mine"), await engine.create()
        assert named.info()["expires_at"] is None
        assert unnamed.info()["expires_at"] == timestamp(engine.clock.now() + 900 + MONTH)
        for session in (named, unnamed):
            await engine.registry.pause(LOCAL, session.id)
        engine.clock.advance(MONTH - 1)
        # A note is a use, and opens nothing.
        await engine.registry.history.note(LOCAL, unnamed.id, "user", "still here")
        for _ in range(2):
            engine.clock.advance(MONTH - 1)
            await anyio.wait_all_tasks_blocked()
            assert await engine.status(unnamed.id) == "paused"
            await engine.registry.states.update(LOCAL, unnamed.id, {})
            await engine.registry.pause(LOCAL, unnamed.id)
        engine.clock.advance(MONTH + 1)

        async def is_closed() -> bool:
            engine.clock.advance(1)
            return await engine.status(unnamed.id) == "closed"

        await until(is_closed)
        assert await engine.status(named.id) == "paused"


async def test_a_session_that_a_timer_ended_says_so_to_the_next_caller(build: Build) -> None:
    policy = Policy(retention=7 * 86_400.0)
    async with build(policy=policy) as engine:
        session = await engine.create(name="mine", state={"n": 1}, lifetime=3600.0)
        engine.clock.advance(3600)
        closed_at = engine.clock.now()
        await engine.until(session.ownership_ended.is_set)
        for ref in (session.id, "mine"):
            with pytest.raises(SessionExpired) as caught:
                await engine.call(ref)
            assert str(timestamp(closed_at)) in caught.value.message
            assert "its lifetime of 1 hour was over" in caught.value.message
            assert str(timestamp(closed_at + policy.retention)) in caught.value.message
            assert (await engine.registry.states.read(LOCAL, ref)).value == {"n": 1}
            info = await engine.registry.info(LOCAL, ref)
            assert (info["status"], info["expires_at"]) == ("closed", None)
            record, _, _ = await engine.registry.history.page(LOCAL, ref, HistoryFilter())
            assert record.id == session.id
            assert (await engine.registry.history.summary(LOCAL, ref))[0].id == session.id


async def test_expired_credentials_of_the_console_are_swept(build: Build) -> None:
    async with build() as engine:
        now = engine.clock.now()
        record = CredentialRecord(
            id="a", kind=CredentialKind.LOGIN, digest="d", created_at=now, expires_at=now + 100
        )
        await engine.store.access.add_credential(record, most=10)
        engine.clock.advance(99)
        await anyio.wait_all_tasks_blocked()
        assert await engine.store.access.credential("d") == record

        async def is_deleted() -> bool:
            engine.clock.advance(1)
            return await engine.store.access.credential("d") is None

        await until(is_deleted)


async def test_a_name_takes_the_end_from_a_session_and_gives_it_back(build: Build) -> None:
    async with build() as engine:
        rename = engine.registry.rename_delete.rename
        session = await engine.create()
        await rename(LOCAL, session.id, "mine")
        assert session.info()["expires_at"] is None
        forked = await engine.registry.branches.fork(LOCAL, session.id, count=2, names=["a", "b"])
        assert [child.record.timeouts.paused for child in forked.children] == [0, 0]
        [child] = (await engine.registry.branches.fork(LOCAL, session.id)).children
        assert child.record.timeouts.paused == MONTH
        await rename(LOCAL, session.id, None)
        assert session.info()["expires_at"] is not None
        chosen = await engine.create(paused=60.0)
        await rename(LOCAL, chosen.id, "chosen")
        assert chosen.record.timeouts.paused == 60


async def test_a_session_that_is_closed_when_idle_shows_that_end(build: Build) -> None:
    async with build(policy=Policy(on_idle="close")) as engine:
        session = await engine.create(name="mine")
        assert session.info()["expires_at"] == timestamp(engine.clock.now() + 900)


async def test_the_limit_of_sessions_says_that_pausing_does_not_help(build: Build) -> None:
    async with build(policy=Policy(sessions_per_principal=1)) as engine:
        session = await engine.create()
        await engine.registry.pause(LOCAL, session.id)
        with pytest.raises(SessionLimit, match=r"limits\.sessions_per_principal") as caught:
            await engine.create()
        assert "Close or delete" in caught.value.recovery
        assert "pausing them does not help" in caught.value.recovery
        await engine.registry.close(LOCAL, session.id)
        await engine.create()
