"""Timed events of sessions: idle, paused too long, lifetime over, retention over."""

from __future__ import annotations

import logging

from ..core import Core
from ..errors import SessionError, StoreUnavailable
from ..lifecycle import Event, Status
from ..live.directory import STORED, Directory
from ..live.session import LiveSession
from ..records import SessionRecord
from .close import Closing
from .control import Controls
from .pause import IDLE_TIMEOUT, Pausing, may_pause

logger = logging.getLogger("statehold.sessions")

SWEEP_SECONDS = 60.0
"""Longest time between two checks of the store: another process may have died or paused something."""


class Expiry:
    """Runs the transitions that are due by time. Deadlines calls on_due(). It lives as long as the registry."""

    def __init__(
        self,
        core: Core,
        directory: Directory,
        pausing: Pausing,
        closing: Closing,
        controls: Controls,
    ) -> None:
        self._core = core
        self._controls = controls
        self._directory = directory
        self._pausing = pausing
        self._closing = closing

    def on_due(self, key: str) -> float | None:
        """Start the work that is due for a key; return its next deadline when none is due yet."""
        if key == STORED:
            self._core.tasks.spawn(self.sweep)
            return None
        session = self._directory.get(key)
        if session is None:
            return None
        self._core.budget.ask_holders()
        due_at, now = session.deadline(), self._core.clock.now()
        if due_at is None or due_at > now:
            return due_at
        self._core.tasks.spawn(self._expire, session)
        return None

    async def _expire(self, session: LiveSession) -> None:
        try:
            await self._run_due(session, self._core.clock.now())
        except (SessionError, StoreUnavailable) as error:
            logger.warning("session %s: its time is over, but %s", session.id, error)
        finally:
            if not session.ownership_ended.is_set():
                # Look again soon, for any failure, but not in a tight loop.
                due_at = session.deadline()
                retry_at = self._core.clock.now() + 1.0
                self._core.deadlines.schedule(session.id, max(due_at, retry_at) if due_at else None)

    async def _run_due(self, session: LiveSession, now: float) -> None:
        await self._controls.end_due(session)
        due_at = session.deadline()
        if due_at is None or due_at > now:
            return
        end = session.record.lifetime_ends_at
        if end is not None and end <= now:
            await self._closing.close(session, Event.LIFETIME_OVER, reason="lifetime")
        elif session.status is Status.IDLE and not may_pause(session, IDLE_TIMEOUT):
            # It is in use, though not by a call: its idle time starts again.
            session.idle_since = now
        elif session.status is Status.PAUSED:
            await self._closing.close(session, Event.PAUSED_TIMED_OUT, reason="paused_timeout")
        elif session.status is Status.IDLE and self._core.policy.on_idle == "close":
            await self._closing.close(session, Event.IDLE_EXPIRED, reason="idle_timeout")
        elif session.status is Status.IDLE:
            await self._pausing.pause(session, IDLE_TIMEOUT)

    async def sweep(self) -> None:
        """Close and purge due sessions that only the store knows (T10, T17, T19), and schedule the next sweep.

        Expired credentials of the console and approvals are deleted too.
        """
        now = self._core.clock.now()
        due_at: float | None = None
        try:
            await self._core.node.recover()
            if self._core.node.is_sweeper():
                for record in await self._core.store.due(now):
                    await self._sweep_one(record, now)
                await self._core.store.access.delete_expired(now)
                await self._core.store.delete_expired_receipts(now)
                await self._core.store.delete_expired_subscriptions(now)
                due_at = await self._core.store.next_due()
        except (StoreUnavailable, OSError) as error:
            logger.error("the sweep failed: %s", error)
        finally:
            # Schedule the next sweep even after a failure, or this one would be the last.
            latest = now + SWEEP_SECONDS
            next_sweep_at = latest if due_at is None else min(latest, max(due_at, now + 1.0))
            self._core.deadlines.schedule(STORED, next_sweep_at)

    async def _sweep_one(self, record: SessionRecord, now: float) -> None:
        if record.status is Status.CLOSED:
            await self._directory.purge(record.id)
            return
        try:
            await self._directory.claim(record)
        except SessionError:
            return
        session = self._directory.get(record.id)
        if session is None:
            return
        due_at = session.deadline()
        if due_at is not None and due_at <= now:
            await self._expire(session)
        await self._pausing.give_back(session)
