"""Recovery of sessions that lost a connection (T15, T16)."""

from __future__ import annotations

import logging
from collections.abc import Collection

import anyio

from ..core import Core
from ..errors import SessionError, StoreUnavailable
from ..lifecycle import Event, Status
from ..live.binding import Binding
from ..live.bindings import lost_reason, missing_bindings
from ..live.connector import Connector
from ..live.due_summaries import DueSummaries
from ..live.session import LiveSession
from ..live.snapshots import save_quietly
from ..one_line import one_line
from .close import Closing
from .pause import Pausing

logger = logging.getLogger("statehold.sessions")


class Recovery:
    """Recovers the sessions of one registry, or gives the recovery up; it lives as long as the registry."""

    def __init__(
        self,
        core: Core,
        connector: Connector,
        pausing: Pausing,
        closing: Closing,
        due_summaries: DueSummaries,
    ) -> None:
        self._core = core
        self._connector = connector
        self._pausing = pausing
        self._closing = closing
        self._due_summaries = due_summaries

    async def recover(
        self, session: LiveSession, binding: Binding, contenders: Collection[str]
    ) -> None:
        """Bring a session out of error by itself, within the attempts it has.

        Sessions that end each other's connections are paused instead.
        """
        if contenders:
            await self._end_contention(binding.service.name, contenders)
            if session.status is not Status.ERROR:
                return
        lost_at = self._core.clock.now()
        await save_quietly(session, [b.record for b in session.bindings.values()])
        backoff = self._core.policy.recovery_backoff
        if not backoff:
            return
        attempt_from = lost_at
        for wait in backoff:
            await self._core.clock.sleep_until(attempt_from + wait)
            if session.status is not Status.ERROR:
                return
            if any(b.losses > len(backoff) for b in session.bindings.values()):
                break
            if await self._attempt(session, wait):
                return
            attempt_from = self._core.clock.now()
        await self._give_up(session)

    async def _end_contention(self, service: str, contenders: Collection[str]) -> None:
        logger.warning(
            'service %s: sessions %s end each other\'s processes in turns and are paused; scope = "shared" in '
            "[services.%s] makes them use one",
            service,
            ", ".join(sorted(contenders)),
            service,
        )
        await self._pausing.pause_contenders(contenders, service)

    async def _attempt(self, session: LiveSession, spacing: float) -> bool:
        """Try to open the missing connections. Return whether the recovery is over.

        Nothing is locked meanwhile: opening may take long, and the session may be renamed, restarted or closed.
        """
        for binding in missing_bindings(session):
            if session.status is not Status.ERROR:
                return True
            try:
                await self._connector.connect(session, binding, spacing=spacing)
            except (SessionError, StoreUnavailable) as error:
                logger.warning("session %s not recovered yet: %s", session.id, one_line(str(error)))
                return False
            except Exception:
                logger.exception("session %s not recovered yet", session.id)
                return False
        async with session.changing:
            if session.status is not Status.ERROR:
                return True
            if missing_bindings(session):
                return False
            await self.finish(session, cause="automatic")
        return True

    async def finish(self, session: LiveSession, *, cause: str) -> None:
        """Take a session out of error (T15), under `session.changing`."""
        session.apply(Event.RECOVERED, cause=cause)
        if session.in_flight:
            session.apply(Event.CALL_ADMITTED)
        else:
            self._core.budget.mark_idle(session.id)
        records = [b.record for b in session.bindings.values()]
        await save_quietly(session, records, reason=session.record.reason)

    async def _give_up(self, session: LiveSession) -> None:
        """Pause a session whose connections could not be opened again: its next call tries again.

        While calls run in it, over its other connections, it goes on instead. It is closed if a service wants that.
        """
        async with session.changing:
            if session.status is not Status.ERROR:
                return
            if all(b.service.on_lost == "pause" for b in missing_bindings(session)):
                session.record.reason = reason = lost_reason(session)
                if session.in_flight:
                    await self.finish(session, cause=f"calls run in it, but {reason}")
                    return
                try:
                    with anyio.CancelScope(shield=True):
                        session.apply(Event.RECOVERY_FAILED, cause=reason)
                        await self._pausing.pause_applied(session, release=False, cause="")
                        self._due_summaries.note_paused(session)
                except StoreUnavailable as error:
                    logger.error("session %s was not paused: %s", session.id, error)
                return
        await self._closing.close(session, Event.CLOSE_REQUESTED, reason="error")


__all__ = ["Recovery"]
