"""A session of a desktop user over ten weeks: calls on some days, restarts, and times in which nothing runs."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from support.counting import Counting
from support.engine import Build

from statehold.server.gateway.pinned_sessions import PinnedSessions
from statehold.sessions.clock import ManualClock
from statehold.sessions.records import LOCAL

DAY = 86_400.0
WEEKS = 10


@pytest.mark.thorough
async def test_the_pinned_session_of_a_desktop_user_is_there_after_ten_weeks(
    build: Build, tmp_path: Path
) -> None:
    """In each week the program runs for five days, and a weekend or a fortnight off follows."""
    clock = ManualClock()
    seen: list[tuple[str, int]] = []
    for week in range(WEEKS):
        async with build(Counting(pause="snapshot"), folder=tmp_path, clock=clock) as engine:
            for day in range(5):
                session = await PinnedSessions(engine.registry, "").id_of(LOCAL, "work")
                if day in (0, 4):
                    await engine.registry.states.update(LOCAL, session, {f"week {week}": True})
                    seen.append((session, await engine.count(session)))
                for _ in range(2):
                    clock.advance(DAY / 2)
                    await anyio.wait_all_tasks_blocked()
        clock.advance(DAY * (2 if week % 3 else 9))
    assert seen == [(seen[0][0], number + 1) for number in range(2 * WEEKS)]
    async with build(Counting(pause="snapshot"), folder=tmp_path) as engine:
        state = await engine.registry.states.read(LOCAL, "work")
        assert state.value == {f"week {week}": True for week in range(WEEKS)}
