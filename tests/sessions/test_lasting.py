"""Sessions of a desktop user over ten weeks: calls on some days, restarts, and an upgrade of the program in between."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from keeping import Keeping
from support.browsing import running
from support.counting import Counting
from support.engine import Build, Engine, engine

from statehold.server.gateway.pinned_sessions import PinnedSessions
from statehold.sessions.clock import ManualClock
from statehold.sessions.records import LOCAL

DAY = 86_400.0
WEEKS = 10
Start = Callable[[ManualClock], AbstractAsyncContextManager[Engine]]


async def use(engine: Engine, days: int, calls: Callable[[str], Any], clock: ManualClock) -> None:
    """Let some days pass in one run of the program, and call the pinned session on the first and the last of them."""
    for day in range(days):
        session = await PinnedSessions(engine.registry, "").id_of(LOCAL, "work")
        if day in (0, days - 1):
            await calls(session)
        for _ in range(2):
            clock.advance(DAY / 2)
            await anyio.wait_all_tasks_blocked()


async def spend(start: Start, folder: Path, calls: Callable[[Engine, str, int], Any]) -> None:
    """Spend the weeks. In each one the program runs for five days, and a weekend or a fortnight off follows."""
    clock = ManualClock()
    for week in range(WEEKS):
        async with start(clock) as running_engine:
            number = week

            async def call(
                session: str, engine: Engine = running_engine, number: int = number
            ) -> None:
                await calls(engine, session, number)

            await use(running_engine, 5, call, clock)
        clock.advance(DAY * (2 if week % 3 else 9))


@pytest.mark.thorough
async def test_the_pinned_session_of_a_desktop_user_is_there_after_ten_weeks(
    build: Build, tmp_path: Path
) -> None:
    seen: list[tuple[str, int]] = []

    def start(clock: ManualClock) -> AbstractAsyncContextManager[Engine]:
        return build(Counting(pause="snapshot"), folder=tmp_path, clock=clock)

    async def call(engine: Engine, session: str, week: int) -> None:
        await engine.registry.states.update(LOCAL, session, {f"week {week}": True})
        seen.append((session, await engine.count(session)))

    await spend(start, tmp_path, call)
    assert seen == [(seen[0][0], number + 1) for number in range(2 * WEEKS)]
    async with build(Counting(pause="snapshot"), folder=tmp_path) as engine:
        state = await engine.registry.states.read(LOCAL, "work")
        assert state.value == {f"week {week}": True for week in range(WEEKS)}


@pytest.mark.thorough
@pytest.mark.timeout(600)
async def test_the_login_of_a_pinned_session_is_there_after_ten_weeks(
    tmp_path: Path, headless_shell: str
) -> None:
    kept: list[str] = []
    with Keeping() as site:

        @asynccontextmanager
        async def start(clock: ManualClock) -> AsyncGenerator[Engine]:
            async with running(tmp_path, headless_shell) as browser:
                service: Any = browser
                async with engine(service, folder=tmp_path, clock=clock) as opened:
                    yield opened

        async def call(engine: Engine, session: str, week: int) -> None:
            async def browse(tool: str, **arguments: Any) -> str:
                answer = await engine.call(
                    session, f"browser_{tool}", service="browser", **arguments
                )
                assert not answer.payload.get("isError"), answer.payload
                return answer.payload["content"][-1]["text"]

            if week == 0:
                await browse("navigate", url=site.at(1))
                cookie = "login=ann; path=/; max-age=31536000"
                await browse(
                    "evaluate", function=f"() => {{ document.cookie = {cookie!r}; return 1 }}"
                )
            else:
                kept.append(await browse("evaluate", function="() => document.cookie"))

        await spend(start, tmp_path, call)
    assert len(kept) == 2 * (WEEKS - 1)
    assert all("login=ann" in text for text in kept)
