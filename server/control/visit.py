"""The browser of a session that no process holds, opened by a command for as long as the command needs it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from ...sessions.errors import ServiceUnavailable, SessionBusy, SessionError
from ...sessions.lifecycle import Event, Status
from ...sessions.live.connector import OPENED_IN_WINDOW
from ...sessions.live.session import Session
from ...sessions.live.snapshots import packed, unpacked
from ...sessions.records import LOCAL, BindingRecord, BindingStatus, SessionRecord, SnapshotRecord
from ...sessions.services import SessionView, Snapshot
from ...tools.browser.config import BrowserConfig
from ...tools.browser.connection import BrowserConnection
from ...tools.browser.service import BrowserService
from ...tools.processes.ledger import Ledger
from ..cli.changes import SessionChanger
from ..gateway.services import service_of

SAVE_SECONDS = 20.0

CAUSES = {"window": OPENED_IN_WINDOW}
"""The reason of a replaced connection in the next caller's notice, by the cause of the visit."""


class Visit:
    """A session that this process holds, and the open connection of its browser. See visiting()."""

    def __init__(
        self,
        session: Session,
        binding: BindingRecord,
        connection: BrowserConnection,
        *,
        newest: int = 0,
    ) -> None:
        self.session = session
        self.binding = binding
        self.connection = connection
        self.saved: Snapshot | None = None
        """The snapshot to store at the end; None to take one then."""
        self._newest = newest

    async def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot of the browser now, in case this process dies.

        Raises:
            SessionBusy, StoreUnavailable: it was not written.
        """
        await self.session.save(snapshots=[self._record(snapshot)])

    async def end(self, cause: str, **columns: Any) -> None:
        """Save the browser, close it, and release the session, which is paused then."""
        saved = self.saved or await self._last()
        await self.connection.aclose()
        status = BindingStatus.PAUSED if saved is not None else BindingStatus.LOST
        unsaved = self.connection.reason or "it was not saved"
        error = unsaved if saved is None else CAUSES.get(cause)
        binding = self.binding.model_copy(
            update={"status": status, "last_error": error, "since": time.time()}
        )
        await _paused(
            self.session,
            cause,
            bindings=[binding],
            snapshots=[] if saved is None else [self._record(saved)],
            **columns,
        )

    async def _last(self) -> Snapshot | None:
        with anyio.move_on_after(SAVE_SECONDS):
            try:
                return await self.connection.snapshot()
            except SessionError:
                return None
        return None

    def _record(self, snapshot: Snapshot) -> SnapshotRecord:
        now = time.time()
        self._newest = max(self._newest + 1, int(now * 1000))
        return SnapshotRecord(
            session_id=self.session.id,
            service=self.binding.service,
            seq=self._newest,
            taken_at=now,
            epoch=self.session.record.epoch,
            data=packed(snapshot),
        )


@asynccontextmanager
async def visiting(
    changer: SessionChanger,
    record: SessionRecord,
    name: str,
    browser: BrowserConfig,
    *,
    cause: str,
    unseen: bool = False,
) -> AsyncGenerator[Visit]:
    """Claim a session that no process holds, open its browser `name`, and pause the session at the end.

    `unseen`: the visit leaves the times of the session as they were.

    Raises:
        Refused: another process holds it by now.
        SessionError: its browser does not open. The session is paused then as well.
    """
    session = await changer.claimed(record)
    columns = _times(record) if unseen else {}
    try:
        if session.status is not Status.PAUSED:
            session.apply(Event.ADOPTED, cause=cause)
        session.apply(Event.RESUMED, cause=cause)
        await session.save(status=Status.IDLE, status_at=session.record.status_at, due_at=None)
        async with _connected(changer, session, name, browser) as visit:
            try:
                yield visit
            finally:
                with anyio.CancelScope(shield=True):
                    await visit.end(cause, **columns)
    finally:
        with anyio.CancelScope(shield=True):
            if not session.released:
                await _paused(session, cause, **columns)


@asynccontextmanager
async def _connected(
    changer: SessionChanger, session: Session, name: str, browser: BrowserConfig
) -> AsyncGenerator[Visit]:
    store, config = changer.store, changer.config
    found = {binding.service: binding for binding in await store.bindings(session.id)}
    binding = found.get(name, BindingRecord(session_id=session.id, service=name))
    record = await store.snapshot(session.id, name) if binding.generation else None
    ledger = Ledger(config.data, node=(await changer.joined()).id)
    try:
        await ledger.sweep()
        alone = session.record.owner == LOCAL.key
        service = service_of(name, browser, config, ledger, alone=alone)
        assert isinstance(service, BrowserService)
        async with service:
            saved = None if record is None else unpacked(record.data)
            connection = await _opened(service, session.view(binding.generation + 1), saved)
            binding = _replaced(binding)
            try:
                await session.save(bindings=[binding])
            except BaseException:
                await connection.aclose()
                raise
            yield Visit(session, binding, connection, newest=record.seq if record else 0)
    finally:
        with anyio.CancelScope(shield=True):
            await ledger.aclose()


async def _opened(
    service: BrowserService, view: SessionView, saved: Snapshot | None
) -> BrowserConnection:
    try:
        with anyio.fail_after(service.connect_seconds):
            return await service.open(view, saved)
    except TimeoutError:
        seconds = f"{service.connect_seconds:g} seconds"
        raise ServiceUnavailable(f"The browser did not open within {seconds}.") from None


def _replaced(binding: BindingRecord) -> BindingRecord:
    """Return a binding with its next connection. The first connection needs no notice to a caller."""
    told = binding.told_generation if binding.generation else 1
    return binding.model_copy(
        update={
            "status": BindingStatus.OPEN,
            "generation": binding.generation + 1,
            "told_generation": told,
            "since": time.time(),
        }
    )


async def _paused(session: Session, cause: str, **columns: Any) -> None:
    try:
        session.apply(Event.PAUSE_REQUESTED, cause=cause)
        given: dict[str, Any] = {
            "status": Status.PAUSED,
            "status_at": session.record.status_at,
            "used_at": session.idle_since,
            "due_at": session.deadline(),
        }
        given |= {**columns, "node": None}
        await session.save(**given)
    except SessionBusy:
        # Another process took it over: it is that one's now.
        session.released = True


def _times(record: SessionRecord) -> dict[str, Any]:
    found: dict[str, Any] = {"used_at": record.used_at}
    if record.status is Status.PAUSED:
        found |= {"status_at": record.status_at, "due_at": record.due_at}
    return found


__all__ = ["Visit", "visiting"]
