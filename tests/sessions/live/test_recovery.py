"""Lost connections and the recovery of their sessions."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import pytest
from support.checkpoints import create_counted, saving, settle
from support.counting import Counter, Counting
from support.engine import Build, Engine

from statehold.sessions.errors import (
    ServiceUnavailable,
    SessionBusy,
    SessionError,
    SessionFailed,
)
from statehold.sessions.policy import Policy
from statehold.sessions.records import LOCAL, SessionFilter
from statehold.sessions.services import SessionView, Snapshot


async def transitions(engine: Engine, session: str) -> list[str]:
    await engine.store.flush()
    entries = await engine.store.journal(session)
    steps = [entry.request["code"] for entry in entries if entry.kind == "transition"]
    return [code for code in steps if code not in ("T09",)]


async def test_a_call_during_recovery_waits_for_it(build: Build):
    async with build() as engine:
        session = await engine.create()
        await engine.count(session.id)
        engine.counter.live[0].die("killed")
        await engine.until(lambda: session.status == "error")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.call, session.id)
            await engine.pass_time(lambda: session.status == "active" or session.status == "idle")
        assert session.generation == 2


async def test_a_pause_during_a_recovery_is_refused_with_the_reason(build: Build):
    async with build() as engine:
        session = await engine.create()
        await engine.count(session.id)
        engine.counter.live[0].die("killed")
        await engine.until(lambda: session.status == "error")
        with pytest.raises(SessionBusy, match="connecting again"):
            await engine.registry.pause(LOCAL, session.id)
        await engine.pass_time(lambda: session.status == "idle")
        await engine.registry.pause(LOCAL, session.id)


async def test_a_session_that_cannot_be_recovered_is_paused_and_its_next_call_tries_at_once(
    build: Build,
):
    """The reason stands with the session until the connection is open again, and the state was there all along."""
    async with build() as engine:
        session = await engine.create(name="mine", state={"n": 1})
        await engine.count(session.id)
        engine.counter.refuse = 3
        engine.counter.live[0].die("exit code 7")
        await engine.pass_time(lambda: session.status == "paused")
        assert engine.counter.refuse == 0
        info = await engine.registry.info(LOCAL, "mine")
        assert info["reason"] == "connection_lost: counter: The counter does not open."
        [listed], _ = await engine.registry.page(LOCAL, SessionFilter())
        assert (listed["status"], listed["reason"]) == ("paused", info["reason"])
        assert await transitions(engine, session.id) == ["T02", "T14", "T16"]
        await engine.registry.states.update(LOCAL, "mine", {"n": 2})
        answer = await engine.call("mine")
        assert answer.payload["structuredContent"] == {"count": 1, "generation": 2}
        assert answer.notice is not None
        assert (await engine.call("mine")).notice is None
        info = await engine.registry.info(LOCAL, "mine")
        assert (info["status"], info["reason"], info["state_version"]) == ("idle", None, 1)


async def test_the_reason_of_a_pause_outlives_a_restart(build: Build, tmp_path: Path):
    async with build(folder=tmp_path) as engine:
        session = await engine.create()
        await engine.count(session.id)
        engine.counter.refuse = 3
        engine.counter.live[0].die("killed")
        await engine.pass_time(lambda: session.status == "paused")
    async with build(folder=tmp_path) as engine:
        assert "counter" in (await engine.registry.info(LOCAL, session.id))["reason"]
        assert await engine.count(session.id) == 1
        assert (await engine.registry.info(LOCAL, session.id))["reason"] is None


async def test_calls_try_a_service_that_is_away_every_five_seconds(build: Build):
    """A back-off delays a call and refuses none; the first calls after a loss wait for nothing."""
    async with build() as engine:
        session = await engine.create()
        await engine.count(session.id)
        engine.counter.refuse = 1000
        engine.counter.live[0].die("killed")
        await engine.pass_time(lambda: session.status == "paused")
        opening, tried_at = engine.counter.open, list[float]()

        async def open_noted(session: SessionView, snapshot: Snapshot | None) -> Counter:
            tried_at.append(engine.clock.now())
            return await opening(session, snapshot)

        engine.counter.open = open_noted
        for number in range(8):
            async with anyio.create_task_group() as tasks:
                failed = anyio.Event()

                async def call(failed: anyio.Event = failed) -> None:
                    with pytest.raises(ServiceUnavailable) as caught:
                        await engine.call(session.id)
                    assert caught.value.message == "The counter does not open."
                    assert caught.value.session_id == session.id
                    failed.set()

                tasks.start_soon(call)
                if number < 4:
                    with anyio.fail_after(5):
                        await failed.wait()
                else:
                    await engine.pass_time(failed.is_set)
        assert len(tried_at) == 8
        assert all(tried_at[number + 1] - tried_at[number] >= 5 for number in range(3, 7))
        engine.counter.refuse = 0
        counts: list[int] = []

        async def count() -> None:
            counts.append(await engine.count(session.id))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(count)
            await engine.pass_time(lambda: counts)
        assert counts == [1]


async def test_a_session_is_paused_although_a_call_waits_for_its_recovery(build: Build):
    async with build() as engine:
        session = await engine.create()
        await engine.count(session.id)
        engine.counter.refuse = 1000
        engine.counter.live[0].die("killed")
        await engine.until(lambda: session.status == "error")
        codes: list[str] = []

        async def call() -> None:
            try:
                await engine.call(session.id)
            except SessionError as error:
                codes.append(error.code)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await engine.pass_time(lambda: codes)
        assert codes == ["service_unavailable"]
        await engine.until(lambda: session.status == "paused")
        assert "T16" in await transitions(engine, session.id)
        engine.counter.refuse = 0
        assert await engine.count(session.id) == 1


async def test_a_session_goes_on_with_its_other_services_when_one_cannot_be_opened(build: Build):
    async with build(Counting(), Counting("other")) as engine:
        session = await engine.create()
        await engine.count(session.id)
        other = engine.services["other"]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(engine.call, session.id, "hold", service="other"))
            await other.holding.wait()
            engine.counter.refuse = 3
            engine.counter.live[0].die("killed")
            await engine.pass_time(lambda: session.record.reason)
            info = await engine.registry.info(LOCAL, session.id)
            assert info["status"] == "active"
            assert "counter" in info["reason"]
            other.let_go.set()
        assert other.open_now == 1
        assert await engine.count(session.id) == 1


async def test_a_dead_service_stops_no_call_to_another(build: Build):
    """Several recover at once, each in its own time; the session is in error only while all connections are lost."""

    class Gated(Counting):
        gate: anyio.Event | None = None

        async def open(self, session: SessionView, snapshot: Snapshot | None) -> Counter:
            if self.gate is not None:
                await self.gate.wait()
            return await super().open(session, snapshot)

    others = [Gated(f"other-{n}") for n in range(7)]
    dead, services = others[:4], [Counting(), *others]
    async with build(*services) as engine:
        session = await engine.create(state={"n": 1})
        for service in services:
            await engine.count(session.id, service=service.name)
        gates = {service.name: anyio.Event() for service in dead}
        for service in dead:
            service.gate = gates[service.name]
            service.live[0].die("killed")
        await engine.until(lambda: not any(service.live for service in dead))
        counts: dict[str, int] = {}

        async def count(name: str) -> None:
            counts[name] = await engine.count(session.id, service=name)

        async with anyio.create_task_group() as tasks:
            for service in dead:
                tasks.start_soon(count, service.name)
            await engine.until(lambda: session.in_flight == len(dead))
            engine.clock.advance(0.25)
            with anyio.fail_after(5):
                assert await engine.count(session.id) == 2
                info = await engine.registry.info(LOCAL, session.id)
                assert info["status"] == "active"
                opening = [
                    each["service"] for each in info["services"] if each["status"] == "opening"
                ]
                assert opening == [service.name for service in dead]
                state = await engine.registry.states.update(LOCAL, session.id, {"n": 2})
                assert state.value == {"n": 2}
                await engine.registry.history.note(LOCAL, session.id, "user", "hello")
                await engine.registry.restart(LOCAL, session.id, ["counter", "other-6"])
                assert await engine.count(session.id, service="other-6") == 1
                for service in reversed(dead):
                    gates[service.name].set()
                    await engine.until(partial(counts.get, service.name))
        assert counts == {service.name: 1 for service in dead}
        assert "T14" not in await transitions(engine, session.id)


@pytest.mark.parametrize("change", ["restart", "resume"])
async def test_a_change_opens_what_it_can(build: Build, change: str):
    """A service that does not open shows its error at its binding."""
    async with build(Counting(), Counting("other"), Counting("third")) as engine:
        session = await engine.create()
        for name in engine.services:
            await engine.count(session.id, service=name)
        await engine.registry.pause(LOCAL, session.id)
        engine.services["other"].refuse = 1000
        for service in engine.services.values():
            service.live[0].die("killed")
        await engine.until(lambda: not any(s.live for s in engine.services.values()))
        await getattr(engine.registry, change)(LOCAL, session.id)
        info = await engine.registry.info(LOCAL, session.id)
        statuses = {each["service"]: each["status"] for each in info["services"]}
        assert statuses == {"counter": "open", "other": "failed", "third": "open"}
        assert info["status"] == "idle"


async def test_a_session_that_lost_everything_answers_the_first_service_that_is_back(build: Build):
    async with build(Counting(), Counting("other"), Counting("new")) as engine:
        session = await engine.create()
        await engine.count(session.id)
        await engine.count(session.id, service="other")
        for service in engine.services.values():
            service.refuse = 1000
            for connection in list(service.live):
                connection.die("killed")
        await engine.until(lambda: session.status == "error")
        # One that was never open is not lost either.
        engine.services["new"].refuse = 0
        with anyio.fail_after(5):
            assert await engine.count(session.id, service="new") == 1
        assert session.status == "idle"
        assert await transitions(engine, session.id) == ["T02", "T14", "T15"]
        await engine.pass_time(lambda: session.record.reason)
        assert await engine.status(session.id) == "idle"
        await engine.registry.pause(LOCAL, session.id)
        assert await engine.count(session.id, service="new") == 2


async def test_without_recovery_only_a_restart_opens_a_lost_connection(build: Build):
    async with build(Counting(), Counting("other"), policy=Policy(recovery_backoff=())) as engine:
        session = await engine.create()
        await engine.count(session.id)
        await engine.count(session.id, service="other")
        engine.counter.live[0].die("killed")
        await engine.until(lambda: not engine.counter.live)
        with pytest.raises(SessionFailed):
            await engine.call(session.id)
        assert await engine.count(session.id, service="other") == 2
        await engine.registry.restart(LOCAL, session.id, ["counter"])
        assert await engine.count(session.id) == 1


async def test_a_session_is_paused_while_one_of_its_connections_is_lost(build: Build):
    async with build(Counting(), Counting("other", pause="release")) as engine:
        session = await engine.create()
        await engine.count(session.id)
        await engine.count(session.id, service="other")
        engine.counter.refuse = 1
        engine.counter.live[0].die("killed")
        await engine.until(lambda: not engine.counter.live)
        engine.clock.advance(0.25)
        await engine.until(lambda: not engine.counter.refuse)
        await engine.registry.pause(LOCAL, session.id)
        await settle(engine, 60.0)
        assert await engine.status(session.id) == "paused"
        assert not engine.counter.live
        answer = await engine.call(session.id)
        assert answer.payload["structuredContent"] == {"count": 1, "generation": 2}
        assert answer.notice is not None


async def test_a_service_may_have_its_sessions_closed_when_they_cannot_be_recovered(build: Build):
    async with build(Counting(on_lost="close")) as engine:
        session = await engine.create(name="mine")
        await engine.count(session.id)
        engine.counter.refuse = 10
        engine.counter.live[0].die("killed")
        await engine.pass_time(lambda: session.status == "closed")
        assert engine.counter.refuse == 7
        for ref in (session.id, "mine"):
            with pytest.raises(SessionError) as caught:
                await engine.call(ref)
            assert caught.value.code == "session_failed"
            assert "error" in caught.value.message
        assert await transitions(engine, session.id) == ["T02", "T14", "T12", "T18"]


async def test_a_session_that_is_saved_is_restored_once_its_service_is_back(build: Build):
    async with build(saving()) as engine:
        session, _ = await create_counted(engine)
        engine.counter.refuse = 4
        engine.counter.live[0].die("killed")
        await engine.pass_time(lambda: session.status == "paused")
        with pytest.raises(ServiceUnavailable):
            await engine.call(session.id)
        assert await engine.count(session.id) == 2


async def test_a_session_that_ends_each_connection_is_not_opened_over_and_over(build: Build):
    async with build(saving()) as engine:
        session, _ = await create_counted(engine)
        for _ in range(5):
            await engine.pass_time(lambda: bool(engine.counter.live))
            engine.counter.live[0].die("killed")
            await engine.until(lambda: not engine.counter.live)
        await engine.pass_time(lambda: session.status == "paused")
        await settle(engine, 60.0)
        assert not engine.counter.live
        assert await engine.count(session.id) == 2


async def test_one_session_that_cannot_be_opened_does_not_keep_others_from_it(build: Build):
    class Choosy(Counting):
        async def open(self, session: SessionView, snapshot: Snapshot | None) -> Counter:
            if session.metadata.get("broken"):
                raise ServiceUnavailable("This session does not open.")
            return await super().open(session, snapshot)

    async with build(Choosy()) as engine:
        broken = await engine.create(metadata={"broken": True})

        async def call() -> None:
            with pytest.raises(ServiceUnavailable):
                await engine.call(broken.id)

        for _ in range(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await anyio.wait_all_tasks_blocked()
                other = await engine.create()
                assert await engine.count(other.id) == 1
                engine.clock.advance(5.0)
