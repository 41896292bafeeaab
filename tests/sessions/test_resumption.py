"""Connections that outlive their process: the next owner resumes them, and reports only what is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copytree
from typing import Any

import anyio
import pytest
from support.counting import Counter, Counting, Nobody
from support.engine import Build, Engine
from support.selection import matrix

from statehold.sessions.calls.request import Request
from statehold.sessions.errors import (
    ConnectionLost,
    OutcomeUnknown,
    ServiceUnavailable,
    SessionBusy,
)
from statehold.sessions.live.session import LiveSession
from statehold.sessions.records import LOCAL
from statehold.sessions.services import (
    CallContext,
    Resumption,
    SessionView,
    Snapshot,
    ToolResult,
)


@dataclass(eq=False)
class LastingCounter(Counter):
    """A connection to one of the counters of `Lasting.remote`. Closing it removes the counter."""

    token: str = ""
    is_left: bool = False

    def __post_init__(self) -> None:
        self.remote.setdefault(self.key, self.count)

    @property
    def remote(self) -> dict[str, int]:
        assert isinstance(self.service, Lasting)
        return self.service.remote

    @property
    def key(self) -> str:
        return self.token or f"{self.view.id} {self.view.generation}"

    @property
    def resumption(self) -> CounterResumption:
        return CounterResumption(self)

    async def call(self, tool: str, arguments: Mapping[str, Any], ctx: CallContext) -> ToolResult:
        if self.key not in self.remote:
            raise ConnectionLost("The counter is gone.")
        result = await super().call(tool, arguments, ctx)
        self.remote[self.key] = self.count
        return result

    async def aclose(self) -> None:
        await super().aclose()
        if not self.is_left:
            self.remote.pop(self.key, None)


@dataclass(eq=False)
class CounterResumption(Resumption):
    """How a counter of `Lasting.remote` outlives its process."""

    counter: LastingCounter

    @property
    def service(self) -> Lasting:
        assert isinstance(self.counter.service, Lasting)
        return self.counter.service

    @property
    def token(self) -> str:
        return self.counter.key

    def leave(self) -> None:
        self.counter.is_left = True

    def was_sent(self, operation_id: str) -> bool | None:
        return None if self.service.sent is None else operation_id in self.service.sent

    async def keep(self, seconds: float) -> None:
        self.service.kept_seconds = seconds

    def begin(self, operation_id: str, ctx: CallContext) -> Callable[[], Awaitable[ToolResult]]:
        async def result() -> ToolResult:
            await self.service.let_go.wait()
            words = f"late answer to {operation_id}"
            return ToolResult({"content": [{"type": "text", "text": words}]})

        return result


@dataclass(eq=False)
class Lasting(Counting):
    """A service whose counters live outside of the processes that share `remote`."""

    remote: dict[str, int] = field(default_factory=dict[str, int])
    reachable: bool = True
    kept_seconds: float = 0.0
    sent: set[str] | None = None
    """The operations whose calls an earlier process sent; None when that is not known."""

    def connection(self, session: SessionView) -> Counter:
        return LastingCounter(self, session)

    async def resume(self, session: SessionView, token: str, snapshot: Snapshot | None) -> Counter:
        if not self.reachable:
            raise ServiceUnavailable("The counter does not answer.")
        if token not in self.remote:
            raise ConnectionLost("the counter does not know it any more")
        self.opened += 1
        self.open_now += 1
        counter = LastingCounter(self, session, self.remote[token], token=token)
        self.live.append(counter)
        return counter


async def left_by_kill(engine: Engine, folder: Path) -> tuple[Path, dict[str, int]]:
    """Return the data and the counters that a kill of the process would leave."""
    await engine.store.flush()
    service = engine.counter
    assert isinstance(service, Lasting)
    return Path(copytree(folder, folder.with_name("left"))), dict(service.remote)


async def killed(build: Build, tmp_path: Path) -> tuple[str, Path, dict[str, int]]:
    """Count once in a session and kill its process; return the session with the data and the counters."""
    folder = tmp_path / "data"
    async with build(Lasting(), folder=folder) as engine:
        session = await engine.create()
        await engine.count(session.id)
        return session.id, *await left_by_kill(engine, folder)


async def replace_connection(engine: Engine, session: LiveSession) -> None:
    """Kill the connection of a session, and wait until the session has another."""
    engine.counter.live[0].die("killed")
    await engine.until(lambda: session.status == "error")
    await engine.pass_time(lambda: session.status == "idle")


async def test_a_connection_is_taken_up_in_its_generation_without_a_notice(
    build: Build, tmp_path: Path
):
    session, folder, remote = await killed(build, tmp_path)
    async with build(Lasting(remote=remote), folder=folder) as engine:
        answer = await engine.call(session)
        assert answer.payload["structuredContent"] == {"count": 2, "generation": 1}
        assert answer.notice is None


async def test_a_connection_that_is_gone_is_replaced_in_the_same_call(build: Build, tmp_path: Path):
    session, folder, _ = await killed(build, tmp_path)
    async with build(Lasting(), folder=folder) as engine:
        answer = await engine.call(session)
        assert answer.payload["structuredContent"] == {"count": 1, "generation": 2}
        assert answer.notice is not None
        assert "1 to 2; the counter does not know it any more)" in answer.notice
        assert (await engine.call(session)).notice is None


async def test_a_connection_of_a_service_with_other_settings_is_lost(build: Build, tmp_path: Path):
    session, folder, remote = await killed(build, tmp_path)
    service = Lasting(config_hash="2", remote=remote)
    async with build(service, folder=folder) as engine:
        answer = await engine.call(session)
        assert answer.notice is not None
        assert "1 to 2; the server was restarted)" in answer.notice


async def test_a_connection_that_cannot_be_reached_waits_for_the_next_call(
    build: Build, tmp_path: Path
):
    session, folder, remote = await killed(build, tmp_path)
    service = Lasting(remote=remote, reachable=False)
    async with build(service, folder=folder) as engine:
        for _ in range(2):
            with pytest.raises(ServiceUnavailable):
                await engine.call(session)
        [described] = (await engine.registry.info(LOCAL, session))["services"]
        assert (described["status"], described["last_error"]) == (
            "kept",
            "The counter does not answer.",
        )
        await engine.registry.pause(LOCAL, session)
        service.reachable = True
        answer = await engine.call(session)
        assert answer.payload["structuredContent"] == {"count": 2, "generation": 1}
        assert answer.notice is None


async def test_an_unreported_loss_is_reported_after_a_kill(build: Build, tmp_path: Path):
    folder = tmp_path / "data"
    async with build(Lasting(), folder=folder) as engine:
        session = await engine.create()
        await engine.count(session.id)
        await replace_connection(engine, session)
        left, remote = await left_by_kill(engine, folder)
    async with build(Lasting(remote=remote), folder=left) as engine:
        answer = await engine.call(session.id)
        assert answer.payload["structuredContent"] == {"count": 1, "generation": 2}
        assert answer.notice is not None
        assert "1 to 2; the server was restarted before it reported this" in answer.notice
        assert (await engine.call(session.id)).notice is None


@pytest.mark.parametrize("end", matrix("close", "unbind"))
async def test_a_connection_that_was_not_taken_up_ends_with_its_binding(
    build: Build, tmp_path: Path, end: str
):
    session, folder, remote = await killed(build, tmp_path)
    service = Lasting(remote=remote)
    async with build(service, folder=folder) as engine:
        if end == "close":
            await engine.registry.close(LOCAL, session)
        else:
            await engine.registry.unbind(LOCAL, session, "counter")
        assert service.remote == {}


async def test_a_process_that_lost_a_session_leaves_its_connection_to_the_next_owner(
    build: Build, tmp_path: Path
):
    remote: dict[str, int] = {}
    folder = tmp_path / "data"
    async with (
        build(Lasting(remote=remote), folder=folder) as engine,
        build(Lasting(remote=remote), folder=folder) as other,
    ):
        session = await engine.create()
        await engine.count(session.id)
        await other.store.declare_dead(engine.node.id)
        assert await other.count(session.id) == 2
        with pytest.raises(SessionBusy):
            await engine.registry.states.update(LOCAL, session.id, {"n": 1})
        await engine.until(lambda: not engine.counter.live)
        assert await other.count(session.id) == 3
        assert len(remote) == 1


def hold_request(session: str) -> Request:
    return Request(LOCAL, session, "counter", "hold", {}, operation_id="op")


async def killed_during_call(
    build: Build, tmp_path: Path, *, losses: int = 0
) -> tuple[str, Path, dict[str, int]]:
    """Kill the process of a session during a call with an operation id, which its connection began to answer.

    With `losses`, the connection was replaced so often after the call began.
    """
    folder = data = tmp_path / "data"
    remote: dict[str, int] = {}
    async with build(Lasting(), folder=folder) as engine:
        session = await engine.create()
        await engine.count(session.id)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.router.call, hold_request(session.id), Nobody())
            await engine.counter.holding.wait()
            binding = session.bindings["counter"]
            binding.update(generation=binding.record.generation + losses)
            await session.save(bindings=[binding.record])
            data, remote = await left_by_kill(engine, folder)
            engine.counter.let_go.set()
        return session.id, data, remote | {f"{session.id} {1 + losses}": 1}


async def test_a_repeat_waits_for_the_answer_to_the_call_of_a_killed_process(
    build: Build, tmp_path: Path
):
    session, folder, remote = await killed_during_call(build, tmp_path)
    service = Lasting(remote=remote, sent={"op"})
    answers: list[str] = []

    async def repeat(engine: Engine) -> None:
        answer = await engine.router.call(hold_request(session), Nobody())
        answers.append(answer.payload["content"][0]["text"])

    async with build(service, folder=folder) as engine:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(repeat, engine)
            tasks.start_soon(repeat, engine)
            await engine.until(lambda: service.live)
            service.let_go.set()
        await repeat(engine)
        entries = await engine.store.journal(session)
        assert [e.status for e in entries if e.operation_id == "op"] == ["ok"]
    assert answers == ["late answer to op"] * 3
    assert (session, "hold") not in service.calls


async def test_a_call_of_a_killed_process_is_in_flight_until_its_answer(
    build: Build, tmp_path: Path
):
    session, folder, remote = await killed_during_call(build, tmp_path)
    service = Lasting(remote=remote, sent={"op"}, concurrency=1)
    async with build(service, folder=folder) as engine:
        resumed = await engine.registry.resume(LOCAL, session)
        assert resumed.status == "active"
        for change in (engine.registry.pause, engine.registry.restart):
            with pytest.raises(SessionBusy, match="1 call in flight"):
                await change(LOCAL, session)
        live = resumed.bindings["counter"].live
        assert live is not None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.count, session)
            await engine.until(lambda: live.waiting_calls)
            service.let_go.set()
        await resumed.quiet.wait()
        assert await engine.status(session) == "idle"
        assert (await engine.registry.pause(LOCAL, session)).status == "paused"


@pytest.mark.thorough
async def test_a_restart_of_a_paused_session_leaves_the_call_of_a_killed_process(
    build: Build, tmp_path: Path
):
    session, folder, remote = await killed_during_call(build, tmp_path)
    service = Lasting(remote=remote, sent={"op"})
    async with build(service, folder=folder) as engine:
        with pytest.raises(SessionBusy, match="1 call in flight"):
            await engine.registry.restart(LOCAL, session)
        service.let_go.set()
        answer = await engine.router.call(hold_request(session), Nobody())
        assert answer.payload["content"][0]["text"] == "late answer to op"


@pytest.mark.parametrize("end", matrix("drain", "close"))
async def test_the_end_of_a_session_waits_for_the_call_of_a_killed_process(
    build: Build, tmp_path: Path, end: str
):
    session, folder, remote = await killed_during_call(build, tmp_path)
    service = Lasting(remote=remote, sent={"op"})
    async with build(service, folder=folder) as engine:
        resumed = await engine.registry.resume(LOCAL, session)
        async with anyio.create_task_group() as tasks:
            if end == "drain":
                tasks.start_soon(engine.registry.drain)
                await engine.until(lambda: engine.registry.draining)
            else:
                tasks.start_soon(engine.registry.close, LOCAL, session)
                await engine.until(lambda: resumed.status == "closing")
            service.let_go.set()
        entries = await engine.store.journal(session)
        assert [e.status for e in entries if e.operation_id == "op"] == ["ok"]


@pytest.mark.thorough
async def test_a_forced_close_ends_the_call_of_a_killed_process(build: Build, tmp_path: Path):
    session, folder, remote = await killed_during_call(build, tmp_path)
    service = Lasting(remote=remote, sent={"op"})
    async with build(service, folder=folder) as engine:
        await engine.registry.resume(LOCAL, session)
        with anyio.fail_after(5):
            await engine.registry.close(LOCAL, session, force=True)
        entries = await engine.store.journal(session)
        assert [e.status for e in entries if e.operation_id == "op"] == ["session_closed"]


async def test_a_call_that_was_not_sent_before_the_kill_runs_when_it_is_repeated(
    build: Build, tmp_path: Path
):
    session, folder, remote = await killed_during_call(build, tmp_path)
    service = Lasting(remote=remote, sent=set())
    service.let_go.set()
    async with build(service, folder=folder) as engine:
        answer = await engine.router.call(hold_request(session), Nobody())
        assert answer.payload["content"][0]["text"] == "held"
    assert service.calls.count((session, "hold")) == 1


@pytest.mark.parametrize(("sent", "losses"), [(None, 0), (set[str](), 1)])
async def test_a_call_that_may_have_been_sent_has_no_known_outcome(
    build: Build, tmp_path: Path, sent: set[str] | None, losses: int
):
    """The connection that is resumed does not know the calls of the connection before it."""
    session, folder, remote = await killed_during_call(build, tmp_path, losses=losses)
    service = Lasting(remote=remote, sent=sent)
    async with build(service, folder=folder) as engine:
        for _ in range(2):
            with pytest.raises(OutcomeUnknown):
                await engine.router.call(hold_request(session), Nobody())
    assert (session, "hold") not in service.calls


@pytest.mark.thorough
async def test_a_notice_that_only_an_interrupted_call_can_have_carried_is_repeated(
    build: Build, tmp_path: Path
):
    folder = left = tmp_path / "data"
    remote: dict[str, int] = {}
    async with build(Lasting(), folder=folder) as engine:
        session = await engine.create()
        await engine.count(session.id)
        await replace_connection(engine, session)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.router.call, hold_request(session.id), Nobody())
            await engine.counter.holding.wait()
            # As if the answer with the notice were on its way.
            binding = session.bindings["counter"]
            binding.update(told_generation=2)
            await session.save(bindings=[binding.record])
            left, remote = await left_by_kill(engine, folder)
            engine.counter.let_go.set()
    async with build(Lasting(remote=remote), folder=left) as engine:
        with pytest.raises(OutcomeUnknown):
            await engine.router.call(hold_request(session.id), Nobody())
        answer = await engine.call(session.id)
        assert answer.notice is not None
        assert "1 to 2; the server was restarted before it reported this" in answer.notice
        assert (await engine.call(session.id)).notice is None


@pytest.mark.thorough
async def test_a_call_of_a_service_that_is_not_configured_any_more_has_no_known_outcome(
    build: Build, tmp_path: Path
):
    session, folder, _ = await killed_during_call(build, tmp_path)
    async with build(Counting("another"), folder=folder) as engine:
        await engine.registry.resume(LOCAL, session)
        entries = await engine.store.journal(session)
        assert [e.status for e in entries if e.operation_id == "op"] == ["outcome_unknown"]
