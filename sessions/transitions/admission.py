"""Counting calls in and out: the two steps between idle and active (T04, T05)."""

from __future__ import annotations

import anyio

from ..core import Core
from ..lifecycle import OPEN, Event, Status
from ..live.session import Session
from .pause import busy

USED_SECONDS = 60.0
"""Shortest time between two writes of the last use of an open session."""


class Admission:
    """Counts the calls in flight in the sessions of one registry. Both steps are synchronous."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def admit(self, session: Session) -> None:
        """Count a call in. The session cannot change between a check by the caller and this, if the caller does not await.

        Raises:
            SessionBusy: too many calls are in flight already.
        """
        if session.in_flight >= self._core.policy.calls_per_session:
            raise busy(session)
        self.count_in(session)

    def count_in(self, session: Session) -> None:
        """Count in a call that runs already, in a session of any status."""
        if session.in_flight == 0:
            session.quiet = anyio.Event()
            self._core.budget.mark_busy(session.id)
        session.in_flight += 1
        if session.status is Status.IDLE:
            session.apply(Event.CALL_ADMITTED)

    def release(self, session: Session) -> None:
        """Count a call out. The idle time starts with the end of the last one."""
        session.in_flight -= 1
        if session.in_flight:
            return
        session.quiet.set()
        now = self._core.clock.now()
        session.idle_since = now
        if session.status is Status.ACTIVE:
            session.apply(Event.CALLS_SETTLED)
            self._core.budget.mark_idle(session.id)
        if now - session.used_saved_at > USED_SECONDS and session.status in OPEN:
            session.used_saved_at = now
            self._core.tasks.spawn(_save_used, session, now)


async def _save_used(session: Session, now: float) -> None:
    if not session.ownership_ended.is_set():
        await session.save(used_at=now)


__all__ = ["Admission"]
