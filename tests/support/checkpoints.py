"""A session whose connection takes checkpoints, and the time until the next one."""

from __future__ import annotations

from typing import Any

import anyio

from statehold.sessions.live.session import LiveSession

from .counting import Counter, Counting
from .engine import Engine

SECONDS = 5.0


def saving(**options: Any) -> Counting:
    return Counting(pause="snapshot", checkpoint_seconds=SECONDS, **options)


async def settle(engine: Engine, seconds: float = 0.0) -> None:
    """Move the clock and let everything that is due happen."""
    engine.clock.advance(seconds)
    await anyio.wait_all_tasks_blocked()
    await engine.store.flush()
    await anyio.wait_all_tasks_blocked()


async def create_counted(engine: Engine) -> tuple[LiveSession, Counter]:
    """Return a session whose count, 1, is saved long enough ago for the next checkpoint to be taken at once."""
    session = await engine.create(idle=600.0)
    await engine.count(session.id)
    await settle(engine)
    await settle(engine, SECONDS)
    counter = engine.counter.live[0]
    assert not counter.unsaved
    return session, counter


__all__ = ["SECONDS", "create_counted", "saving", "settle"]
