"""The end of the access of revoked principals: their sessions, and their control of the sessions of others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import anyio

from ..core import Core
from ..errors import SessionError, StoreUnavailable
from ..lifecycle import OPEN, Event
from ..live.control_lease import due_end, user_of
from ..live.directory import Directory
from ..live.session import LiveSession
from ..principals.rules import RevocationRecord
from ..records import ControlEnd, Principal, SessionFilter
from .close import Closing, cancel_calls
from .control import Controls
from .pause import PauseCause, Pausing

logger = logging.getLogger("statehold.sessions")

REVOKED: Final = "revoked"
"""The reason of sessions that a revocation closed or paused."""
REVOCATION: Final = PauseCause(REVOKED, gives_up=True, interrupts=True)
CANCEL_SECONDS = 1.0
"""Seconds that cancelled calls get to end before their session is paused."""


class Revocations:
    """Keeps the revoked principals of one process up to date. It lives as long as the registry.

    Each look ends what it finds, so that work which began just before a revocation ends with the next one. While the store
    is down, the former revocations hold.
    """

    def __init__(
        self,
        core: Core,
        directory: Directory,
        pausing: Pausing,
        closing: Closing,
        controls: Controls,
    ) -> None:
        self._core = core
        self._directory = directory
        self._pausing = pausing
        self._closing = closing
        self._controls = controls
        self.on_look: list[Callable[[], None]] = []
        """Called at each look that finds revoked principals in Core.revoked. They must not block."""
        self._ending: set[str] = set()
        """The sessions that are being ended, and the owners whose stored sessions are."""
        self._ended_at: dict[str, float] = {}
        """The time of the last revocation of each owner after which no session of it was open any more."""

    async def refresh(self) -> None:
        """Take over what has changed in the store.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        records = await self._core.store.access.revocations()
        now, revoked = self._core.clock.now(), self._core.revoked
        current = {each.owner: each for each in records if each.is_in_force(now)}
        for owner in current.keys() - revoked.keys():
            logger.warning("the access of %s is revoked", Principal.of_key(owner).words)
        for owner in revoked.keys() - current.keys():
            logger.warning("the access of %s is restored", Principal.of_key(owner).words)
        # In place and without an await: others hold the mapping.
        revoked.clear()
        revoked.update(current)

    async def look(self) -> None:
        """Refresh, and end what revoked principals have in this process, also if the store cannot be read.

        Raises:
            StoreUnavailable: the store cannot be read.
        """
        try:
            await self.refresh()
        finally:
            if self._core.revoked:
                self._begin_all()

    def _begin_all(self) -> None:
        for notify in self.on_look:
            notify()
        users, now = self._revoked_users(), self._core.clock.now()
        for session in self._directory:
            record = self._core.revoked.get(session.record.owner)
            if record is not None or due_end(session.record, now, users) is ControlEnd.REVOKED:
                self._begin(session, record)
        for record in self._core.revoked.values():
            is_pending = self._ended_at.get(record.owner) != record.revoked_at
            if is_pending and not record.keeps_sessions and record.owner not in self._ending:
                self._ending.add(record.owner)
                self._core.tasks.spawn(self._close_stored, record)

    def _begin(self, session: LiveSession, record: RevocationRecord | None) -> None:
        if session.id in self._ending or session.ends or session.ownership_ended.is_set():
            return
        self._ending.add(session.id)
        self._core.tasks.spawn(self._end, session, record)

    async def _end(self, session: LiveSession, record: RevocationRecord | None) -> None:
        try:
            if record is None:
                await self._controls.end_due(session, self._revoked_users())
            elif record.keeps_sessions:
                await self._pause(session)
            else:
                event = Event.CLOSE_FORCED
                await self._closing.close(session, event, reason=REVOKED, force=True)
        except (SessionError, StoreUnavailable) as error:
            logger.error("session %s of a revoked principal goes on: %s", session.id, error)
        finally:
            self._ending.discard(session.id)

    async def _pause(self, session: LiveSession) -> None:
        cancel_calls(session)
        with anyio.move_on_after(CANCEL_SECONDS):
            await session.quiet.wait()
        await self._controls.end_due(session, self._revoked_users())
        await self._pausing.pause(session, REVOCATION)

    async def _close_stored(self, record: RevocationRecord) -> None:
        """Close the sessions that no node holds. Those of other nodes are closed there."""
        try:
            if not self._core.node.is_sweeper() or await self._close_page(record):
                return
            self._ended_at[record.owner] = record.revoked_at
        except StoreUnavailable as error:
            logger.error("the sessions of a revoked principal stay open: %s", error)
        finally:
            self._ending.discard(record.owner)

    async def _close_page(self, record: RevocationRecord) -> int:
        """Close some sessions without a node, and return how many were open."""
        session_filter = SessionFilter(owner=record.owner, statuses=sorted(OPEN))
        found, _ = await self._core.store.list_sessions(session_filter)
        for stored in found:
            if stored.node is not None:
                continue
            try:
                await self._directory.claim(stored)
            except SessionError:
                continue
            session = self._directory.get(stored.id)
            if session is not None and session.id not in self._ending:
                self._ending.add(session.id)
                await self._end(session, record)
        return len(found)

    def _revoked_users(self) -> set[str]:
        return {user_of(owner) for owner in self._core.revoked}
