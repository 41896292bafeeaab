"""The runs of the sessions of one registry: groups of calls, messages and changes of the state.

A run has an entry in the journal, which is written when it begins and again when it ends.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from ..core import Core
from ..errors import SessionBusy, StoreUnavailable
from ..journal.entries import OVERHEAD, RUNNING, run_entry
from ..json_codec import JSON
from ..lifecycle import Status
from ..live.directory import Directory
from ..live.quota import Quota
from ..live.session import LiveSession
from ..records import HistoryFilter, JournalKind, JournalRecord, Principal
from ..transitions.access import Access
from ..validation import label
from .history import show

RunStatus: TypeAlias = Literal["running", "completed", "error", "cancelled"]

MAX_ERROR_LENGTH: Final = 1000
"""Characters kept of the error of a run."""


class Runs:
    """Begins and ends runs. It keeps no state."""

    def __init__(self, core: Core, directory: Directory, access: Access, quota: Quota) -> None:
        self._core = core
        self._directory = directory
        self._access = access
        self._quota = quota

    async def write(
        self, principal: Principal, ref: str, run: str, status: RunStatus, error: str | None = None
    ) -> tuple[LiveSession, JSON]:
        """Begin a run, or end the newest one of this id; durable on return. Return its entry.

        An id may be used again: each beginning gets an entry. The end of a run without a beginning gets one, too. A paused
        session stays paused.

        Raises:
            InvalidArgument: the id cannot be stored.
            SessionClosed, SessionExpired, SessionFailed: the session is closed.
        """
        label("run_id", run)
        session = self._directory.ready(principal, ref)
        if session is not None:
            return session, await self._write(session, run, status, error)
        async with self._access.hold(principal, ref) as session:
            return session, await self._write(session, run, status, error)

    async def _write(
        self, session: LiveSession, run: str, status: RunStatus, error: str | None
    ) -> JSON:
        core, now = self._core, self._core.clock.now()
        if error is not None:
            error = core.redactor.text(error, MAX_ERROR_LENGTH)
        self._quota.check(session.record.owner, OVERHEAD + len(error or ""))
        begun = None if status == RUNNING else await self._running_entry(session, run)
        entry = run_entry(
            session_id=session.id,
            epoch=session.record.epoch,
            seq=session.next_seq() if begun is None else begun.seq,
            run=run,
            status=status,
            started_at=now if begun is None else begun.started_at,
            ended_at=None if status == RUNNING else now,
            error=error,
        )
        if begun is not None:
            await session.save(ended_entries=[entry])
        else:
            try:
                await session.save(journal=[entry])
            except (SessionBusy, StoreUnavailable):
                session.free_seq(entry.seq)
                raise
        if session.status is Status.IDLE:
            session.idle_since = now
        return show(entry)

    async def _running_entry(self, session: LiveSession, run: str) -> JournalRecord | None:
        """Return the newest entry of a run if it has not ended."""
        newest = HistoryFilter(kinds=[JournalKind.RUN], runs=[run], limit=1)
        entries = await self._core.store.history(session.id, newest)
        return entries[0] if entries and entries[0].status == RUNNING else None
