"""Timed events of sessions: idle, paused too long, lifetime over, retention over."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..clock import Clock
from ..errors import SessionError, StoreUnavailable
from ..lifecycle import Event, Status
from ..live.deadlines import Deadlines
from ..live.directory import STORED, Directory
from ..live.session import Session
from ..node import Node
from ..policy import Policy
from ..records import SessionRecord
from ..store.base import Store
from .changes import Transitions

logger = logging.getLogger("statehold.sessions")

SWEEP_SECONDS = 60.0
"""Longest time between two checks of the store: another process may have died or paused something."""


class Expiry:
    """Runs the transitions that are due by time. Deadlines calls on_due(). It lives as long as the registry."""

    def __init__(
        self,
        *,
        spawn: Callable[..., None],
        store: Store,
        node: Node,
        clock: Clock,
        policy: Policy,
        directory: Directory,
        reaper: Deadlines,
        changes: Transitions,
        purged: Callable[[str], None],
    ) -> None:
        self._spawn = spawn
        self._store = store
        self._node = node
        self._clock = clock
        self._policy = policy
        self._directory = directory
        self._reaper = reaper
        self._changes = changes
        self._purged = purged

    def on_due(self, key: str) -> float | None:
        """Start the work that is due for a key; return its next deadline when none is due yet."""
        if key == STORED:
            self._spawn(self.sweep)
            return None
        session = self._directory.get(key)
        if session is None:
            return None
        when, now = session.deadline(), self._clock.now()
        if when is None or when > now:
            return when
        self._spawn(self._expire, session)
        return None

    async def _expire(self, session: Session) -> None:
        try:
            await self._take(session, self._clock.now())
        except (SessionError, StoreUnavailable) as error:
            logger.warning("session %s: its time is over, but %s", session.id, error)
        finally:
            if not session.gone.is_set():
                # Look again soon, for any failure, but not in a tight loop.
                when = session.deadline()
                soon = self._clock.now() + 1.0
                self._reaper.schedule(session.id, max(when, soon) if when else None)

    async def _take(self, session: Session, now: float) -> None:
        end = session.record.lifetime_ends_at
        if end is not None and end <= now:
            await self._changes.close(session, Event.LIFETIME_OVER, reason="lifetime")
        elif session.status is Status.IDLE and session.busy is not None:
            # It is in use, though not by a call: its idle time starts again.
            session.idle_since = now
        elif session.status is Status.PAUSED:
            await self._changes.close(session, Event.PAUSED_TIMED_OUT, reason="paused_timeout")
        elif session.status is Status.IDLE and self._policy.on_idle == "close":
            await self._changes.close(session, Event.IDLE_EXPIRED, reason="idle_timeout")
        elif session.status is Status.IDLE:
            await self._changes.pause(session, Event.IDLE_TIMED_OUT, cause="idle_timeout")

    async def sweep(self) -> None:
        """Close and purge due sessions that only the store knows (T10, T17, T19), and schedule the next sweep."""
        now = self._clock.now()
        when: float | None = None
        try:
            await self._node.recover()
            for record in await self._store.due(now):
                await self._sweep_one(record, now)
            when = await self._store.next_due()
        except (StoreUnavailable, OSError) as error:
            logger.error("the sweep failed: %s", error)
        finally:
            # Schedule the next sweep even after a failure, or this one would be the last.
            later = now + SWEEP_SECONDS
            soon = later if when is None else min(later, max(when, now + 1.0))
            self._reaper.schedule(STORED, soon)

    async def _sweep_one(self, record: SessionRecord, now: float) -> None:
        if record.status is Status.CLOSED:
            if await self._store.purge(record.id):
                self._purged(record.id)
            return
        try:
            await self._directory.claim(record)
        except SessionError:
            return
        session = self._directory.get(record.id)
        if session is None:
            return
        when = session.deadline()
        if when is not None and when <= now:
            await self._expire(session)
        else:
            await self._changes.give_back(session)


__all__ = ["Expiry"]
