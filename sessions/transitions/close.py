"""Closing a session, and putting all sessions down when the process ends."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import anyio

from ..concurrency import RaceLost, race
from ..core import Core
from ..errors import (
    SessionBusy,
    SessionClosed,
    SessionError,
    SessionExpired,
    SessionFailed,
    StoreUnavailable,
)
from ..lifecycle import TABLE, Event, Status
from ..live.connector import Connector
from ..live.directory import Directory
from ..live.due_summaries import DueSummaries
from ..live.session import LiveSession
from ..records import BindingStatus, Principal
from ..resumption import Orphans
from .pause import SHUTDOWN, Pausing, mark_bindings

logger = logging.getLogger("statehold.sessions")

DRAIN_BOUND = 25.0
"""Seconds that the shutdown waits for one session to be saved and paused."""


class Closing:
    """Closes the sessions of one registry; it lives as long as the registry.

    Cancelling the caller does not interrupt a close that has begun.
    """

    def __init__(
        self,
        core: Core,
        directory: Directory,
        connector: Connector,
        orphans: Orphans,
        pausing: Pausing,
        due_summaries: DueSummaries,
    ) -> None:
        self._core = core
        self._directory = directory
        self._connector = connector
        self._orphans = orphans
        self._pausing = pausing
        self._due_summaries = due_summaries

    async def close_by_ref(
        self, principal: Principal, ref: str, *, force: bool = False, reason: str = "requested"
    ) -> tuple[dict[str, Any], bool]:
        """Close a session of the caller's. Return its description and whether it was closed already; see Registry.close."""
        event = Event.CLOSE_FORCED if force else Event.CLOSE_REQUESTED
        for _ in range(8):
            session, already = await self._find(principal, ref)
            if isinstance(session, str):
                return await self._directory.info(principal, session), True
            if not force:
                session.require_agent()
            if await self.close(session, event, reason=reason, force=force):
                return session.info(), already
        raise SessionBusy("The session keeps changing.")

    async def _find(self, principal: Principal, ref: str) -> tuple[LiveSession | str, bool]:
        """Return a session that is to be closed, its id when it is closed, and whether it is closing already."""
        try:
            return await self._directory.find(principal, ref), False
        except (SessionClosed, SessionExpired, SessionFailed) as error:
            session_id = error.session_id or ref
            closing = self._directory.get(session_id)
            if closing is None or closing.record.owner != principal.key:
                return session_id, True
            return closing, True

    async def close(
        self, session: LiveSession, event: Event, *, reason: str, force: bool = False
    ) -> bool:
        """Close a session and return when it is closed, within the grace and the bounds of its connections.

        Calls in flight get `close_grace` seconds, none with `force`, and are then cancelled. A second close waits for
        the first; with `force` it ends the first one's grace.

        Returns False when this node no longer holds the session, or `event` cannot happen in its status.
        """
        if session.status is Status.PAUSED:
            # Wait for a pause under way. It ends soon: the session is given up, or its connections are kept.
            async with session.changing:
                pass
        if session.ends:
            if force:
                cancel_calls(session)
            await session.ownership_ended.wait()
            return True
        if session.status is Status.CREATING and event is Event.CLOSE_REQUESTED:
            event = Event.CLOSE_FORCED
        if session.ownership_ended.is_set() or (session.status, event) not in TABLE:
            return False
        session.apply(event, cause=reason)
        session.record.reason = reason
        self._core.budget.mark_busy(session.id)
        self._core.tasks.spawn(
            self._finish, session, reason, 0.0 if force else self._core.policy.close_grace
        )
        await session.ownership_ended.wait()
        return True

    async def _finish(self, session: LiveSession, reason: str, grace: float) -> None:
        try:
            if session.in_flight:
                with anyio.move_on_after(grace):
                    await session.quiet.wait()
            cancel_calls(session)
            await self._orphans.end(session, session.bindings.values())
            mark_bindings(list(session.bindings.values()), BindingStatus.PAUSED)
            await self._connector.close(session, session.bindings.values())
            # The results of cancelled calls are on their way: journal them before the session is given up.
            with anyio.move_on_after(1.0):
                await session.quiet.wait()
            session.apply(Event.RELEASED, cause=reason)
        finally:
            if await self._record_closed(session, reason):
                self._directory.forget(session)
            else:
                # Callers of this process find it closed; it stays in memory until the store has recorded that.
                session.ownership_ended.set()
                self._core.tasks.spawn(self._record_later, session, reason)

    async def _record_closed(self, session: LiveSession, reason: str) -> bool:
        now, retention = self._core.clock.now(), self._core.policy.retention
        try:
            await session.save(
                bindings=[b.record for b in session.bindings.values()],
                status=Status.CLOSED,
                status_at=now,
                reason=reason,
                closed_at=now,
                used_at=max(session.idle_since, session.record.used_at),
                due_at=now + retention if retention else None,
                node=None,
            )
        except StoreUnavailable as error:
            logger.error("session %s is not recorded as closed: %s", session.id, error)
            return False
        except SessionError as error:
            logger.error("session %s: %s", session.id, error)
        else:
            self._due_summaries.record_closed(session)
        return True

    async def _record_later(self, session: LiveSession, reason: str) -> None:
        wait = 1.0
        while True:
            await self._core.clock.sleep_until(self._core.clock.now() + wait)
            if await self._record_closed(session, reason):
                self._directory.forget(session)
                return
            wait = min(wait * 2, 60.0)

    async def abandon(self, session: LiveSession) -> None:
        """Close a session that could not be created as a whole."""
        await self.close(session, Event.CLOSE_FORCED, reason="connect_failed", force=True)

    async def drop(self, session: LiveSession) -> None:
        """Give up a session that another node took: close its connections and write nothing."""
        cancel_calls(session)
        await self._connector.close(session, session.bindings.values())
        self._directory.forget(session)

    async def drain(self, sessions: Iterable[LiveSession], *, leaves_tasks: bool) -> None:
        """Pause all sessions because the process ends; calls in flight, and creations, get `close_grace`.

        With `leaves_tasks`, those with calls that the next process can go on with are left to it, as after a kill; if the
        store is lost with this process, there are none.
        """
        grace_over = anyio.Event()
        leaves_tasks = leaves_tasks and self._core.store.is_durable

        async def grace() -> None:
            await anyio.sleep(self._core.policy.close_grace)
            grace_over.set()

        async with anyio.create_task_group() as timer:
            timer.start_soon(grace)
            async with anyio.create_task_group() as tasks:
                for session in sessions:
                    tasks.start_soon(self._drain_one, session, grace_over, leaves_tasks)
            timer.cancel_scope.cancel()

    async def _drain_one(
        self, session: LiveSession, grace_over: anyio.Event, leaves_tasks: bool
    ) -> None:
        """Pause one session because the process ends. If its calls do not end, the next start pauses it."""
        while (ended := _end_of_work(session)) is not None and not grace_over.is_set():
            if leaves_tasks and session.in_flight == session.tasks.lasting > 0:
                break
            with suppress(RaceLost):
                await race(grace_over.wait, ended.wait)
        if leaves_tasks and session.tasks.lasting:
            await self._leave(session)
            return
        cancel_calls(session)
        with anyio.move_on_after(1.0):
            await session.quiet.wait()
        # A running change may wait for a connection that takes long to open.
        with anyio.move_on_after(DRAIN_BOUND):
            try:
                await self._put_down(session)
            except (SessionError, StoreUnavailable) as error:
                logger.error("session %s was not paused: %s", session.id, error)
            except Exception:
                logger.exception("session %s was not paused", session.id)
        if not session.ownership_ended.is_set():
            # Not recorded, but nothing of it may go on: the next start treats it as a dead node's session.
            await self.drop(session)

    async def _leave(self, session: LiveSession) -> None:
        """Give a session up without a write: the next process finds its tasks and connections as after a kill."""
        # Before the calls are cancelled, which would cancel them at the servers.
        await self._connector.leave(session)
        await self.drop(session)
        with anyio.move_on_after(1.0):
            await session.quiet.wait()

    async def _put_down(self, session: LiveSession) -> None:
        if session.status is Status.ERROR:
            await self._pausing.pause_lost(session, SHUTDOWN, Event.ADOPTED)
        elif session.status is Status.CREATING:
            await self.close(session, Event.CLOSE_FORCED, reason="shutdown", force=True)
        else:
            await self._pausing.pause(session, SHUTDOWN)


def _end_of_work(session: LiveSession) -> anyio.Event | None:
    """Return the event that ends the calls or the creation of a session; None when nothing of that is under way."""
    if session.in_flight:
        return session.quiet
    if session.ownership_ended.is_set():
        return None
    return session.creation_ended if session.status is Status.CREATING else None


def cancel_calls(session: LiveSession) -> None:
    for scope in list(session.calls):
        scope.cancel()
