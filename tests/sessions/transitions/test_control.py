"""A person's control of a session: who may act, how it ends, and what the agent is told."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.counting import Counter, Counting
from support.engine import Build, Engine, failing

from statehold.sessions.errors import (
    ControlRefused,
    HumanInControl,
    OutcomeUnknown,
    SessionBusy,
    StoreUnavailable,
)
from statehold.sessions.journal.entries import LinkEvent
from statehold.sessions.live.control_lease import LEASE_SECONDS, due_end, user_of
from statehold.sessions.live.session import LiveSession
from statehold.sessions.policy import Policy
from statehold.sessions.records import (
    LOCAL,
    ControlEnd,
    HistoryFilter,
    JournalKind,
    SessionDriver,
    Timeouts,
)
from statehold.sessions.services import SessionView
from statehold.sessions.transitions.control import DRAIN_SECONDS, REQUEST_SECONDS

PERSON = "ada at the console"


@dataclass(eq=False)
class DrivenCounter(Counter):
    """A counter that a person can drive."""

    control: list[str] = field(default_factory=list[str])

    async def begin_human_control(self) -> None:
        self.control.append("begin")

    async def end_human_control(self) -> list[str]:
        self.control.append("end")
        return [f"The count is {self.count}."]


class Driven(Counting):
    def connection(self, session: SessionView) -> Counter:
        return DrivenCounter(self, session)


async def taken(engine: Engine, session: LiveSession) -> int:
    held = await engine.registry.controls.take(LOCAL, session.id, PERSON)
    return held.record.control.epoch


async def control_of(engine: Engine, session: LiveSession) -> Any:
    return (await engine.registry.info(LOCAL, session.id))["control"]


async def entries(engine: Engine, session: LiveSession) -> list[tuple[str | None, Any]]:
    await engine.store.flush()
    records = await engine.store.history(session.id, HistoryFilter(kinds=[JournalKind.CONTROL]))
    return [(record.status, record.request) for record in records]


async def test_calls_are_refused_until_the_hand_back_which_tells_the_changes(build: Build):
    async with build(Driven(pause="snapshot")) as engine:
        session = await engine.create()
        await engine.count(session.id)
        assert await control_of(engine, session) is None
        epoch = await taken(engine, session)
        counter = engine.counter.live[0]
        with pytest.raises(HumanInControl) as refusal:
            await engine.count(session.id)
        assert refusal.value.did_not_run
        assert refusal.value.details()["retry_after_seconds"] == 5.0
        assert (await control_of(engine, session))["holder"] == PERSON
        counter.count = 41
        engine.clock.advance(30)
        await engine.registry.controls.give_back(LOCAL, session.id, epoch, reply="logged\nin")
        answer = await engine.call(session.id)
        assert answer.payload["structuredContent"]["count"] == 42
        assert answer.notice == (
            "Note from Statehold: a person had control of the session for 30 seconds and handed it back: "
            'done with the words "logged in". The count is 41.'
        )
        assert (await engine.call(session.id)).notice is None
        assert counter.control == ["begin", "end"]  # pyright: ignore[reportAttributeAccessIssue]
        described = await control_of(engine, session)
        assert (described["driver"], described["end"]) == ("agent", "done")
        assert [status for status, _ in await entries(engine, session)] == ["human", "done"]


async def test_a_running_call_may_end_before_control_is_granted(build: Build):
    async with build(Driven()) as engine, anyio.create_task_group() as tasks:
        session = await engine.create()
        tasks.start_soon(engine.call, session.id, "hold")
        await engine.counter.holding.wait()
        granted = anyio.Event()

        async def take() -> None:
            await taken(engine, session)
            granted.set()

        tasks.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(HumanInControl):
            await engine.count(session.id)
        assert not granted.is_set()
        engine.counter.let_go.set()
        with anyio.fail_after(5):
            await granted.wait()


async def test_a_call_that_goes_on_is_cancelled_and_its_outcome_is_unknown(
    build: Build, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("statehold.sessions.transitions.control.DRAIN_SECONDS", 0.01)
    async with build(Driven()) as engine, anyio.create_task_group() as tasks:
        session = await engine.create()
        unknown: list[OutcomeUnknown] = []

        async def hold() -> None:
            with pytest.raises(OutcomeUnknown) as error:
                await engine.call(session.id, "hold")
            unknown.append(error.value)

        tasks.start_soon(hold)
        await engine.counter.holding.wait()
        await taken(engine, session)
        assert "A person took control" in unknown[0].message
    assert DRAIN_SECONDS == 5.0


async def test_control_belongs_to_the_login_that_took_it(build: Build):
    async with build(Driven()) as engine:
        controls = engine.registry.controls
        session = await engine.create()
        held = await controls.take(LOCAL, session.id, PERSON, user="ada", login="first")
        epoch = held.record.control.epoch
        grant = await controls.grant(LOCAL, session.id, epoch, login="first")
        with pytest.raises(ControlRefused, match=PERSON):
            await controls.renew(LOCAL, session.id, epoch, user="bob", login="bob's")
        for login in ("second", None):
            with pytest.raises(ControlRefused):
                await controls.grant(LOCAL, session.id, epoch, login=login)
            with pytest.raises(ControlRefused):
                await controls.give_back(LOCAL, session.id, epoch, login=login)
        grant.require(epoch)
        await controls.renew(LOCAL, session.id, epoch, user="ada", login="first")
        grant.require(epoch)
        moved = await controls.renew(LOCAL, session.id, epoch, user="ada", login="second")
        with pytest.raises(ControlRefused):
            grant.require(epoch)
        with pytest.raises(ControlRefused):
            # The page of the first login does not take it back.
            await controls.renew(LOCAL, session.id, epoch, user="ada", login="first")
        epoch = moved.record.control.epoch
        (await controls.grant(LOCAL, session.id, epoch, login="second")).require(epoch)
        await controls.give_back(LOCAL, session.id, epoch, login="machine", by_operator=True)
        assert (await control_of(engine, session))["driver"] == "agent"


async def test_links_are_in_the_journal_and_a_revoked_one_ends_control(build: Build):
    async with build(Driven(pause="snapshot")) as engine:
        controls = engine.registry.controls
        session = await engine.create()
        await engine.count(session.id)

        async def note(event: LinkEvent, guest: str = "link a") -> None:
            await controls.record_link(
                LOCAL,
                session.id,
                event,
                link=guest.removeprefix("link "),
                by="ada\n",
                rights="control",
                guest=guest,
            )

        await note("created")
        await controls.take(LOCAL, session.id, "a guest", user="link a", login="b")
        await note("revoked", "link b")
        assert session.has_human_driver
        await note("revoked")
        answer = await engine.call(session.id)
        assert "until the access of that person was revoked" in (answer.notice or "")
        assert (await control_of(engine, session))["end"] == "revoked"
        written = await entries(engine, session)
        assert [status for status, _ in written] == [
            *("link_created", "human", "link_revoked", "link_revoked", "revoked")
        ]
        assert written[0][1] == {"link": "a", "by": "ada", "rights": "control"}
        await engine.registry.pause(LOCAL, session.id)
        await note("opened")
        assert await engine.status(session.id) == "paused"


async def test_agent_and_person_never_act_at_the_same_time(build: Build):
    """A thousand races between calls and takers, in an order that differs each time."""
    chance = random.Random(7)
    async with build(Driven()) as engine:
        session = await engine.create()
        await engine.count(session.id)
        counter = engine.counter.live[0]
        for _ in range(1000):
            held = anyio.Event()
            at_grant: list[int] = []

            async def call(steps: int) -> None:
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                try:
                    await engine.call(session.id)
                except HumanInControl:
                    return

            async def take(steps: int, held: anyio.Event, at_grant: list[int]) -> None:
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                epoch = await taken(engine, session)
                at_grant.append(counter.count)
                for _ in range(5):
                    await anyio.lowlevel.checkpoint()
                at_grant.append(counter.count)
                held.set()
                await engine.registry.controls.give_back(LOCAL, session.id, epoch)

            with anyio.fail_after(30):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(take, chance.randrange(6), held, at_grant)
                    for _ in range(3):
                        tasks.start_soon(call, chance.randrange(12))
            assert at_grant[0] == at_grant[1]


async def test_control_that_nobody_renews_ends_by_itself(build: Build):
    async with build(Driven()) as engine:
        session = await engine.create()
        await engine.count(session.id)
        epoch = await taken(engine, session)
        engine.clock.advance(LEASE_SECONDS - 1)
        await engine.registry.controls.renew(LOCAL, session.id, epoch)
        engine.clock.advance(LEASE_SECONDS - 1)
        with pytest.raises(HumanInControl):
            await engine.count(session.id)
        await engine.pass_time(lambda: not session.has_human_driver)
        answer = await engine.call(session.id)
        assert "left without handing it back" in (answer.notice or "")
        with pytest.raises(ControlRefused):
            await engine.registry.controls.renew(LOCAL, session.id, epoch)
        with pytest.raises(ControlRefused):
            await engine.registry.controls.give_back(LOCAL, session.id, epoch)


@pytest.mark.parametrize(
    ("driver", "user", "ends"),
    [
        # The driver, its user, and the ends of the lease: now, after its time, and when the access of one of USERS ends.
        ("agent", None, [None, None, None, None, None]),
        ("requested", None, [None, "expired", None, None, None]),
        ("human", "link a", [None, "expired", None, "revoked", "revoked"]),
        ("human", user_of("ada"), [None, "expired", "revoked", None, "revoked"]),
    ],
)
async def test_one_decision_for_each_lease_and_each_end(
    build: Build, driver: str, user: str | None, ends: list[str | None]
):
    async with build(Driven()) as engine:
        session = await engine.create()
        await engine.count(session.id)
        if driver == "requested":
            await engine.registry.controls.request(LOCAL, session.id, "a login")
        elif driver == "human":
            await engine.registry.controls.take(LOCAL, session.id, PERSON, user=user)
        record, now = session.record, engine.clock.now()
        users = [user_of("ada"), "link a", user_of(record.owner)]
        assert record.control.driver == driver
        assert ends == [
            due_end(record, now),
            due_end(record, (record.control.expires_at or now) + 1),
            *(due_end(record, now, {each}) for each in users),
        ]


async def test_a_controlled_session_is_neither_paused_nor_changed_by_its_agent(build: Build):
    policy = Policy(timeouts=Timeouts(idle=20))
    async with build(Driven(pause="snapshot"), policy=policy) as engine:
        session = await engine.create()
        await engine.count(session.id)
        epoch = await taken(engine, session)
        registry = engine.registry
        engine.clock.advance(30)
        await anyio.wait_all_tasks_blocked()
        assert session.status == "idle"
        for change in (
            registry.pause(LOCAL, session.id),
            registry.restart(LOCAL, session.id),
            registry.unbind(LOCAL, session.id, "counter"),
            registry.branches.fork(LOCAL, session.id),
            registry.close(LOCAL, session.id),
        ):
            with pytest.raises(HumanInControl):
                await change
        assert session.record.control.epoch == epoch


async def test_a_forced_close_ends_a_controlled_session(build: Build):
    async with build(Driven()) as engine:
        session = await engine.create()
        epoch = await taken(engine, session)
        await engine.registry.close(LOCAL, session.id, force=True)
        with pytest.raises(Exception, match="closed"):
            await engine.registry.controls.renew(LOCAL, session.id, epoch)


async def test_a_lost_connection_is_opened_anew_for_the_person(build: Build):
    async with build(Driven(pause="snapshot")) as engine:
        session = await engine.create()
        await engine.count(session.id)
        await taken(engine, session)
        engine.counter.live[0].die("it crashed")
        await engine.pass_time(
            lambda: engine.counter.live and engine.counter.live[0].control == ["begin"]  # pyright: ignore[reportAttributeAccessIssue]
        )
        with pytest.raises(HumanInControl):
            await engine.count(session.id)


async def test_control_outlives_the_process_and_so_does_its_notice(build: Build, tmp_path: Path):
    async with build(Driven(pause="snapshot"), folder=tmp_path) as engine:
        clock = engine.clock
        session = await engine.create()
        await engine.count(session.id)
        epoch = await taken(engine, session)
    async with build(Driven(pause="snapshot"), folder=tmp_path, clock=clock) as engine:
        with pytest.raises(HumanInControl):
            await engine.count(session.id)
        await engine.registry.controls.renew(LOCAL, session.id, epoch)
        await engine.registry.controls.give_back(LOCAL, session.id, epoch, end=ControlEnd.COULD_NOT)
    async with build(Driven(pause="snapshot"), folder=tmp_path, clock=clock) as engine:
        assert "handed it back: could not do it" in ((await engine.call(session.id)).notice or "")
    async with build(Driven(pause="snapshot"), folder=tmp_path, clock=clock) as engine:
        assert "a person" not in ((await engine.call(session.id)).notice or "")
        later = await engine.registry.controls.take(LOCAL, session.id, PERSON)
        assert later.record.control.epoch == epoch + 1


async def test_control_of_a_dead_process_ends_when_its_time_is_over(build: Build, tmp_path: Path):
    async with build(Driven(pause="snapshot"), folder=tmp_path) as engine:
        clock = engine.clock
        session = await engine.create()
        await engine.count(session.id)
        await taken(engine, session)
    clock.advance(LEASE_SECONDS + 1)
    async with build(Driven(pause="snapshot"), folder=tmp_path, clock=clock) as engine:
        await engine.until(lambda: True)
        with anyio.fail_after(5):
            while True:
                try:
                    answer = await engine.call(session.id)
                    break
                except HumanInControl:
                    await anyio.sleep(0.001)
        assert "left without handing it back" in (answer.notice or "")


async def test_a_request_stands_while_the_agent_goes_on_and_ends_with_the_take(build: Build):
    async with build(Driven()) as engine:
        controls = engine.registry.controls
        session = await engine.create()
        await controls.request(LOCAL, session.id, "solve the captcha\nof the shop")
        assert (await control_of(engine, session))["driver"] == "requested"
        assert await engine.count(session.id) == 1
        await taken(engine, session)
        assert session.record.control.reason == "solve the captcha of the shop"
        with pytest.raises(HumanInControl, match="solve the captcha of the shop"):
            await engine.count(session.id)


async def test_a_request_whose_agent_has_left_ends_after_its_wait(build: Build):
    async with build(Driven()) as engine:
        controls = engine.registry.controls
        session = await engine.create()
        await controls.request(LOCAL, session.id, "look", wait_seconds=50)
        since = session.record.control.since
        await controls.note_agent_left(LOCAL, session.id, since - 1)
        assert not session.record.control.agent_left
        await controls.note_agent_left(LOCAL, session.id, since)
        assert (await control_of(engine, session))["agent_left"]
        # An agent that asks again is there.
        await controls.request(LOCAL, session.id, "look", wait_seconds=50)
        assert not session.record.control.agent_left
        await controls.note_agent_left(LOCAL, session.id, since)
        engine.clock.advance(49)
        assert (await control_of(engine, session))["driver"] == "requested"
        await engine.pass_time(lambda: session.record.control.driver is SessionDriver.AGENT)
        assert engine.clock.now() < since + REQUEST_SECONDS


async def test_a_repeated_request_stands_since_the_first_and_ends_after_its_last_wait(
    build: Build,
):
    async with build(Driven()) as engine:
        controls = engine.registry.controls
        session = await engine.create()
        await controls.request(LOCAL, session.id, "look", wait_seconds=50)
        begin = session.record.control.since
        engine.clock.advance(100)
        await controls.request(LOCAL, session.id, "look", wait_seconds=50)
        assert session.record.control.since == begin
        engine.clock.advance(REQUEST_SECONDS + 49)
        assert session.record.control.driver is SessionDriver.REQUESTED
        await controls.request(LOCAL, session.id, "something else")
        assert session.record.control.since > begin
        assert engine.registry.core.metrics.human_requests.values == {(): [2.0]}


async def test_a_request_that_nobody_answers_ends_without_a_notice(build: Build):
    async with build(Driven()) as engine:
        session = await engine.create()
        await engine.registry.controls.request(LOCAL, session.id, "look")
        engine.clock.advance(REQUEST_SECONDS + 1)
        await engine.until(lambda: session.record.control.driver is SessionDriver.AGENT)
        assert (await engine.call(session.id)).notice is None


async def test_control_that_cannot_be_stored_is_not_granted(build: Build):
    async with build(Driven()) as engine:
        session = await engine.create()
        await engine.count(session.id)
        with failing(engine), pytest.raises(StoreUnavailable):
            await taken(engine, session)
        assert await engine.count(session.id) == 2
        assert engine.counter.live[0].control == ["begin", "end"]  # pyright: ignore[reportAttributeAccessIssue]


async def test_a_connection_that_is_not_ready_for_a_person_keeps_control_with_the_agent(
    build: Build,
):
    async with build(Driven()) as engine:
        session = await engine.create()
        await engine.count(session.id)

        async def refuse() -> None:
            raise SessionBusy("It records.")

        engine.counter.live[0].begin_human_control = refuse  # pyright: ignore[reportAttributeAccessIssue]
        with pytest.raises(SessionBusy, match="It records"):
            await taken(engine, session)
        assert await engine.count(session.id) == 2
