"""Connections that outlive their process: the next owner takes them up, and reports only what is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from counting import Counter, Counting
from engine import Build, Engine

from statehold.sessions.errors import ConnectionLost, ServiceUnavailable, SessionBusy
from statehold.sessions.records import LOCAL
from statehold.sessions.services import CallContext, CallResult, SessionView


@dataclass(eq=False)
class LastingCounter(Counter):
    """A connection to one of the counters of `Lasting.remote`. Closing it removes the counter."""

    token: str = ""
    abandoned: bool = False

    def __post_init__(self) -> None:
        self.remote.setdefault(str(self.resume_token), self.count)

    @property
    def remote(self) -> dict[str, int]:
        assert isinstance(self.service, Lasting)
        return self.service.remote

    @property
    def resume_token(self) -> str | None:
        return self.token or f"{self.view.id} {self.view.generation}"

    async def call(self, tool: str, arguments: Mapping[str, Any], ctx: CallContext) -> CallResult:
        if self.resume_token not in self.remote:
            raise ConnectionLost("The counter is gone.")
        result = await super().call(tool, arguments, ctx)
        self.remote[str(self.resume_token)] = self.count
        return result

    def abandon(self) -> None:
        self.abandoned = True

    def was_sent(self, operation_id: str) -> bool | None:
        return None

    async def interrupted_result(self, operation_id: str) -> CallResult:
        raise AssertionError("no call is known")

    async def aclose(self) -> None:
        await super().aclose()
        if not self.abandoned:
            self.remote.pop(str(self.resume_token), None)


@dataclass(eq=False)
class Lasting(Counting):
    """A service whose counters live outside of the processes that share `remote`."""

    remote: dict[str, int] = field(default_factory=dict[str, int])
    reachable: bool = True

    def connection(self, session: SessionView) -> Counter:
        return LastingCounter(self, session)

    async def resume(self, session: SessionView, token: str) -> Counter:
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


async def test_a_loss_that_no_caller_was_told_of_is_reported_after_a_kill(
    build: Build, tmp_path: Path
):
    folder = tmp_path / "data"
    async with build(Lasting(), folder=folder) as engine:
        session = await engine.create()
        await engine.count(session.id)
        engine.counter.live[0].die("killed")
        await engine.until(lambda: session.status == "error")
        await engine.pass_time(lambda: session.status == "idle")
        left, remote = await left_by_kill(engine, folder)
    async with build(Lasting(remote=remote), folder=left) as engine:
        answer = await engine.call(session.id)
        assert answer.payload["structuredContent"] == {"count": 1, "generation": 2}
        assert answer.notice is not None
        assert "1 to 2; the server was restarted before it reported this" in answer.notice
        assert (await engine.call(session.id)).notice is None


@pytest.mark.parametrize("end", ["close", "unbind"])
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
