"""Sessions whose servers end each other in turns are paused, and told the setting that helps."""

from __future__ import annotations

from typing import Any

from support.counting import Counting
from support.engine import Build, Engine

from statehold.sessions.live.session import LiveSession
from statehold.sessions.records import LOCAL


def connection_of(session: LiveSession) -> Any:
    live = session.bindings["counter"].live
    assert live is not None
    return live.connection


async def end(engine: Engine, session: LiveSession) -> None:
    """End the server of a session and wait until its loss is noted."""
    connection = connection_of(session)
    connection.die("killed")
    await engine.until(lambda: session.bindings["counter"].live is None)


async def reopened(engine: Engine, session: LiveSession) -> None:
    await engine.pass_time(lambda: session.status == "idle", step=0.05)


async def test_two_sessions_that_end_each_others_server_are_paused(build: Build):
    async with build(Counting(pause="keep")) as engine:
        one, two = await engine.create(), await engine.create()
        await engine.count(one.id)
        await engine.count(two.id)
        for loser in (one, two):
            await end(engine, loser)
            await reopened(engine, loser)
        await end(engine, one)
        await engine.until(lambda: one.status == two.status == "paused")
        for session in (one, two):
            info = await engine.registry.info(LOCAL, session.id)
            assert 'scope = "shared"' in info["services"][0]["last_error"]
        answer = await engine.call(one.id)
        assert answer.notice is not None
        assert 'scope = "shared"' in answer.notice
        again = await engine.call(two.id)
        assert 'scope = "shared"' in (again.notice or "")


async def test_losses_that_do_not_follow_from_the_other_session_are_recovered(build: Build):
    async with build(Counting(pause="keep")) as engine:
        one, two = await engine.create(), await engine.create()
        await engine.count(one.id)
        await engine.count(two.id)
        for _ in range(4):
            # The older connection of the two stays.
            await end(engine, two)
            await reopened(engine, two)
            await engine.count(two.id)
        for loser in (one, two, one):
            await end(engine, loser)
            await reopened(engine, loser)
            engine.clock.advance(40)
        assert (one.status, two.status) == ("idle", "idle")
