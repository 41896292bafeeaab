"""Opens the browser of a session in this process, for a person; no other process may hold the session."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from ...server.gateway.services import service_of
from ...sessions.clock import SystemClock
from ...sessions.errors import ServiceUnavailable, SessionBusy, SessionError, StoreUnavailable
from ...sessions.journal.entries import control_entry
from ...sessions.lifecycle import Event, Status
from ...sessions.live.control_lease import ended_lease, human_lease, renewed_lease
from ...sessions.live.replacement import OPENED_IN_WINDOW
from ...sessions.live.session import LiveSession
from ...sessions.live.snapshots import decode_snapshot, encode_snapshot
from ...sessions.node import Node
from ...sessions.records import (
    LOCAL,
    BindingRecord,
    BindingStatus,
    ControlEnd,
    ControlLease,
    SessionDriver,
    SessionRecord,
    SnapshotRecord,
)
from ...sessions.services import SessionView, Snapshot
from ...tools.browser.config import BrowserConfig
from ...tools.browser.connection import BrowserConnection
from ...tools.browser.human_control import Shown
from ...tools.browser.service import BrowserService
from ...tools.processes.ledger import Ledger
from .tool_calls import ToolCaller

SAVE_SECONDS = 20.0
RENEWAL_SECONDS = 20.0
"""Seconds between two renewals of the person's control, which ends LEASE_SECONDS after the last one."""
CAUSE = "window"


class HeldBrowser:
    """A session held by this process, with the open connection of its browser. Created by hold_browser()."""

    def __init__(
        self,
        session: LiveSession,
        binding: BindingRecord,
        connection: BrowserConnection,
        *,
        newest: int = 0,
    ) -> None:
        self.session = session
        self.binding = binding
        self.connection = connection
        self.final_snapshot: Snapshot | None = None
        """The snapshot that end() stores; if it is None, end() takes one."""
        self.shown: Shown | None = None
        """The pages that the closed window showed last."""
        self._newest = newest

    async def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot of the browser now, in case this process dies.

        Raises:
            SessionBusy: another process holds the session now; nothing was written.
        StoreUnavailable: the snapshot could not be written.
        """
        await self.session.save(snapshots=[self._record(snapshot)])

    async def renew_control(self) -> None:
        """Renew the person's control of the session until cancelled; return when another process holds the session."""
        while True:
            await anyio.sleep(RENEWAL_SECONDS)
            try:
                await self.session.save(
                    control=renewed_lease(self.session.record.control, time.time())
                )
            except StoreUnavailable:
                continue
            except SessionBusy:
                return

    async def end(self) -> None:
        """Save the browser, close it, hand the session back to its agent, and pause and release it."""
        snapshot = self.final_snapshot or await self._take_snapshot()
        changes: list[str] = []
        with anyio.move_on_after(SAVE_SECONDS):
            changes = await self.connection.human_control.end(self.shown)
        await self.connection.aclose()
        status = BindingStatus.PAUSED if snapshot is not None else BindingStatus.LOST
        reason = self.connection.reason or "it was not saved"
        error = reason if snapshot is None else OPENED_IN_WINDOW
        binding = self.binding.model_copy(
            update={"status": status, "last_error": error, "since": time.time()}
        )
        snapshots = [] if snapshot is None else [self._record(snapshot)]
        await _pause(self.session, changes=changes, bindings=[binding], snapshots=snapshots)

    async def _take_snapshot(self) -> Snapshot | None:
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
            data=encode_snapshot(snapshot),
        )


@asynccontextmanager
async def hold_browser(
    caller: ToolCaller,
    node: Node,
    record: SessionRecord,
    name: str,
    browser: BrowserConfig,
    *,
    holder: str,
) -> AsyncGenerator[HeldBrowser]:
    """Claim a session that no process holds, open its browser `name`, and pause the session at the end.

    Meanwhile the person `holder` has control of the session.

    Raises:
        CommandError: another process holds it by now.
        SessionError: its browser does not open. The session is paused then as well.
    """
    session = await _claim(caller, node, record)
    try:
        if session.status is not Status.PAUSED:
            session.apply(Event.ADOPTED, cause=CAUSE)
        session.apply(Event.RESUMED, cause=CAUSE)
        columns: dict[str, Any] = {"status": Status.IDLE, "due_at": None}
        columns["status_at"] = session.record.status_at
        lease = human_lease(session.record.control, holder, time.time(), node=node.id)
        columns |= _control_of(session, lease)
        await session.save(**columns)
        async with _connect(caller, node, session, name, browser) as held:
            await held.connection.begin_human_control()
            try:
                yield held
            finally:
                with anyio.CancelScope(shield=True):
                    await held.end()
    finally:
        with anyio.CancelScope(shield=True):
            if not session.released:
                await _pause(session)


async def _claim(caller: ToolCaller, node: Node, record: SessionRecord) -> LiveSession:
    store = caller.store
    claimed = await store.claim(record.id, node.id, time.time())
    if claimed is None:
        current = await store.get(record.id) or record
        raise await caller.busy(current, "which was faster; try again")
    return LiveSession(
        claimed.session,
        claimed.state,
        store=store,
        node=node.id,
        clock=SystemClock(),
        last_seq=claimed.last_seq,
    )


@asynccontextmanager
async def _connect(
    caller: ToolCaller, node: Node, session: LiveSession, name: str, browser: BrowserConfig
) -> AsyncGenerator[HeldBrowser]:
    store, config = caller.store, caller.config
    bindings = {binding.service: binding for binding in await store.bindings(session.id)}
    binding = bindings.get(name, BindingRecord(session_id=session.id, service=name))
    record = await store.snapshot(session.id, name) if binding.generation else None
    ledger = Ledger(config.data, node=node.id)
    try:
        await ledger.sweep()
        has_local_callers = session.record.owner == LOCAL.key
        service = service_of(name, browser, config, ledger, has_local_callers=has_local_callers)
        assert isinstance(service, BrowserService)
        async with service:
            snapshot = None if record is None else decode_snapshot(record.data)
            connection = await _open(service, session.view(binding.generation + 1), snapshot)
            binding = _with_next_connection(binding)
            try:
                await session.save(bindings=[binding])
            except BaseException:
                await connection.aclose()
                raise
            yield HeldBrowser(session, binding, connection, newest=record.seq if record else 0)
    finally:
        with anyio.CancelScope(shield=True):
            await ledger.aclose()


async def _open(
    service: BrowserService, view: SessionView, snapshot: Snapshot | None
) -> BrowserConnection:
    try:
        with anyio.fail_after(service.connect_seconds):
            return await service.open(view, snapshot)
    except TimeoutError:
        seconds = f"{service.connect_seconds:g} seconds"
        raise ServiceUnavailable(f"The browser did not open within {seconds}.") from None


def _with_next_connection(binding: BindingRecord) -> BindingRecord:
    """Return a binding with its next connection. The first connection needs no notice to a caller."""
    told_generation = binding.told_generation if binding.generation else 1
    return binding.model_copy(
        update={
            "status": BindingStatus.OPEN,
            "generation": binding.generation + 1,
            "told_generation": told_generation,
            "since": time.time(),
        }
    )


async def _pause(session: LiveSession, *, changes: Sequence[str] = (), **records: Any) -> None:
    """Pause and release a session, and end the person's control of it."""
    lease = session.record.control
    if lease.driver is SessionDriver.HUMAN:
        lease = ended_lease(lease, time.time(), ControlEnd.DONE, None, changes)
        records |= _control_of(session, lease)
    try:
        session.apply(Event.PAUSE_REQUESTED, cause=CAUSE)
        await session.save(
            status=Status.PAUSED,
            status_at=session.record.status_at,
            used_at=session.idle_since,
            due_at=session.deadline(),
            node=None,
            **records,
        )
    except SessionBusy:
        # Another process holds the session by now.
        session.released = True


def _control_of(session: LiveSession, lease: ControlLease) -> dict[str, Any]:
    """Return the arguments of LiveSession.save() for a new lease, with its journal entry."""
    entry = control_entry(session.id, session.record.epoch, session.next_seq(), lease)
    return {"control": lease, "journal": [entry]}
