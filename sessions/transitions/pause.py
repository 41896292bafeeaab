"""Pausing a session, and resuming it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import anyio

from ..core import Core
from ..errors import CallWithdrawn, StoreUnavailable
from ..lifecycle import Event, Status
from ..live.binding import Binding
from ..live.connector import Connector
from ..live.directory import Directory
from ..live.due_summaries import DueSummaries
from ..live.replacement import CONTENDED, STOPPED
from ..live.session import LiveSession
from ..live.snapshots import Snapshots
from ..records import BindingRecord, BindingStatus, SnapshotRecord
from ..resumption import Orphans

logger = logging.getLogger("statehold.sessions")

END_SECONDS = 2.0
"""Seconds that calls get to end when their unanswered questions are withdrawn."""


@dataclass(frozen=True)
class PauseCause:
    """Why a session is paused, and how much that cause outweighs; see may_pause()."""

    name: str
    """The cause in the journal."""
    event: Event = Event.PAUSE_REQUESTED
    gives_up: bool = False
    """Whether connections are closed that their services would keep open in a paused session."""
    interrupts: bool = False
    """Whether a session in use is paused too. Calls in flight prevent it all the same: the caller ends them first."""
    loses: bool = True
    """Whether a session is paused whose connections cannot be saved. Their content is reported as lost."""


REQUESTED: Final = PauseCause("requested")
IDLE_TIMEOUT: Final = PauseCause("idle_timeout", Event.IDLE_TIMED_OUT)
PLACE_NEEDED: Final = PauseCause("live_budget", gives_up=True)
PLACE_NEEDED_BY_OTHERS: Final = PauseCause("live_budget", gives_up=True, loses=False)
NODE_CROWDED: Final = PauseCause("rebalancing", gives_up=True, loses=False)
CONTENTION: Final = PauseCause(CONTENDED, gives_up=True, interrupts=True)
SHUTDOWN: Final = PauseCause("shutdown", gives_up=True, interrupts=True)


def may_pause(session: LiveSession, cause: PauseCause) -> bool:
    """Return whether a session may be paused now: the one place that decides it, whoever asks.

    LiveSession.use() is the definition of a session in use. A timeout closes an idle session by the same rule.
    """
    if session.ownership_ended.is_set() or session.in_flight:
        return False
    if session.status not in (Status.IDLE, Status.PAUSED):
        return False
    if session.status is Status.IDLE and not cause.interrupts and session.use() is not None:
        return False
    return cause.loses or session.saveable


class Pausing:
    """Pauses and resumes the sessions of one registry; it lives as long as the registry.

    Only one change of a session runs at a time. Cancelling the caller does not interrupt a change that has begun.
    """

    def __init__(
        self,
        core: Core,
        directory: Directory,
        connector: Connector,
        snapshots: Snapshots,
        orphans: Orphans,
        due_summaries: DueSummaries,
    ) -> None:
        self._core = core
        self._directory = directory
        self._connector = connector
        self._snapshots = snapshots
        self._orphans = orphans
        self._due_summaries = due_summaries

    async def pause(self, session: LiveSession, cause: PauseCause) -> bool:
        """Pause an idle session (T07, T08), if may_pause() allows it, and return whether it is paused.

        A connection may turn out to be one that cannot be saved: with a cause that loses nothing, the session goes on then.

        Raises:
            StoreUnavailable: the pause could not be recorded; the session is unchanged.
        """
        async with session.changing:
            with anyio.CancelScope(shield=True):
                return await self._pause_if_allowed(session, cause)
        raise AssertionError("unreachable: a shield is never cancelled")

    async def pause_contenders(self, session_ids: Iterable[str], service: str) -> None:
        """Pause sessions that end each other's connections of a service. One with calls in flight goes on."""
        for session_id in session_ids:
            session = self._directory.get(session_id)
            if session is None:
                continue
            try:
                await self._pause_contender(session, service)
            except StoreUnavailable as error:
                logger.error("session %s was not paused: %s", session_id, error)

    async def _pause_contender(self, session: LiveSession, service: str) -> None:
        async with session.changing:
            if session.in_flight or session.ends or session.ownership_ended.is_set():
                return
            binding = session.bindings.get(service)
            if binding is not None:
                binding.update(last_error=CONTENDED)
            with anyio.CancelScope(shield=True):
                if session.status is Status.ERROR:
                    await self.pause_lost(session, CONTENTION, Event.ADOPTED)
                else:
                    await self._pause_if_allowed(session, CONTENTION)

    async def pause_lost(self, session: LiveSession, cause: PauseCause, event: Event) -> None:
        """Pause a session in error (T16, T20) without calls in flight, while the caller holds `session.changing`.

        Raises:
            StoreUnavailable: the pause could not be recorded; the session is idle.
        """
        session.apply(event, cause=cause.name)
        await self._pause_applied(session, cause)
        if cause is not SHUTDOWN:
            self._due_summaries.record_paused(session)

    async def _pause_if_allowed(self, session: LiveSession, cause: PauseCause) -> bool:
        if session.ownership_ended.is_set():
            # It was paused and given up before, or another process took it over: then it may not be paused.
            return session.status is Status.PAUSED and not session.fenced
        if not may_pause(session, cause):
            return False
        if session.status is Status.PAUSED:
            await self._let_go(session, cause)
            return True
        session.apply(cause.event, cause=cause.name)
        is_paused = await self._pause_applied(session, cause)
        if is_paused and cause is not SHUTDOWN:
            self._due_summaries.record_paused(session)
        return is_paused

    async def _pause_applied(self, session: LiveSession, cause: PauseCause) -> bool:
        session.pausing = True
        snapshots: list[SnapshotRecord] = []
        unsaved: list[Binding] = []
        try:
            snapshots, unsaved = await self._take_snapshots(session)
            if unsaved and not cause.loses:
                session.apply(Event.RESUMED, cause="it could not be saved")
                return False
            kept_open = (
                []
                if cause.gives_up
                else [b for b in open_bindings(session) if b.service.pause == "keep"]
            )
            to_close = [b for b in open_bindings(session) if b not in kept_open]
            mark_bindings(kept_open, BindingStatus.KEPT)
            mark_bindings(to_close, BindingStatus.PAUSED, _reason_of(cause))
            for binding in unsaved:
                # Durable: another process may resume the session, and its next caller must be told.
                why, since = _not_saved(binding), self._core.clock.now()
                binding.update(status=BindingStatus.LOST, last_error=why, since=since)
            columns = self._paused_columns(session)
            gives_up = not open_bindings(session)
            if gives_up:
                columns["node"] = None
            await session.save(
                bindings=[b.record for b in session.bindings.values()],
                snapshots=snapshots,
                state=None if session.durable_state is session.state else session.state,
                **columns,
            )
        except StoreUnavailable:
            session.apply(Event.RESUMED, cause="the store is unavailable")
            mark_bindings(open_bindings(session), BindingStatus.OPEN)
            for binding in unsaved:
                if binding.live is not None:
                    binding.update(status=BindingStatus.OPEN)
            self._snapshots.record_unstored(session, snapshots)
            raise
        finally:
            session.pausing = False
        if gives_up:
            self._directory.forget(session)
            return True
        # Close before giving up: another process may open its own connection as soon as it can claim the session.
        await self._connector.close(session, to_close)
        if open_bindings(session):
            self._core.budget.mark_first(session.id)
        else:
            await self._release(session)
        return True

    async def _let_go(self, session: LiveSession, cause: PauseCause = REQUESTED) -> None:
        """Give up a paused session. If it keeps connections, close them if the cause does, else leave it as it is."""
        kept_open = open_bindings(session)
        if kept_open and not cause.gives_up:
            if session.idle_since > session.record.used_at:
                await session.save(used_at=session.idle_since, due_at=session.deadline())
            return
        if kept_open:
            marked = mark_bindings(kept_open, BindingStatus.PAUSED, _reason_of(cause))
            await session.save(bindings=marked)
            await self._connector.close(session, kept_open)
        await self._release(session)

    async def give_back(self, session: LiveSession) -> None:
        """Give up a paused session that this process claimed and holds no connection of, so that any process may claim it.

        Cancelling the caller does not interrupt it.
        """
        with anyio.CancelScope(shield=True):
            async with session.changing:
                if session.status is Status.PAUSED and not session.ownership_ended.is_set():
                    await self._let_go(session)

    async def _release(self, session: LiveSession) -> None:
        await session.save(node=None, **self._paused_columns(session))
        self._directory.forget(session)

    def _paused_columns(self, session: LiveSession) -> dict[str, Any]:
        return {
            "status": Status.PAUSED,
            "status_at": session.record.status_at,
            "used_at": max(session.idle_since, session.record.used_at),
            "due_at": session.deadline(),
            "reason": session.record.reason,
        }

    async def _take_snapshots(
        self, session: LiveSession
    ) -> tuple[list[SnapshotRecord], list[Binding]]:
        """Save the connections of a session.

        Return the snapshots, and the bindings whose connections could not be saved.
        """
        snapshots: list[SnapshotRecord] = []
        unsaved: list[Binding] = []

        async def take(binding: Binding) -> None:
            record = await self._snapshots.take(session, binding)
            if record is not None:
                snapshots.append(record)
            elif binding.save_error is not None:
                unsaved.append(binding)

        async with anyio.create_task_group() as tasks:
            for binding in open_bindings(session):
                tasks.start_soon(take, binding)
        return snapshots, unsaved

    async def resume(self, session: LiveSession, *, cause: str) -> None:
        """Take a paused session back to idle (T09). A call opens the connections that it needs.

        Connections that outlived their process are resumed.
        """
        async with session.changing:
            if not session.ownership_ended.is_set() and session.status is Status.PAUSED:
                await self.resume_held(session, cause=cause)

    async def resume_held(self, session: LiveSession, *, cause: str) -> None:
        """Resume a paused session while the caller holds `session.changing`."""
        await self._orphans.resume(session)
        session.apply(Event.RESUMED, cause=cause)
        if session.in_flight:
            # Calls that an earlier process sent.
            session.apply(Event.CALL_ADMITTED)
        mark_bindings(open_bindings(session), BindingStatus.OPEN)
        await session.save(
            bindings=[binding.record for binding in session.bindings.values()],
            status=Status.IDLE,
            status_at=session.record.status_at,
            used_at=session.idle_since,
            due_at=None,
            reason=session.record.reason,
        )
        if not session.in_flight:
            self._core.budget.mark_idle(session.id)


async def end_questions(session: LiveSession) -> None:
    """End the calls that wait for an answer of their caller, if nothing else is running in the session."""
    connections = [b.live for b in session.bindings.values() if b.live is not None]
    asking_calls = [call for live in connections for call in live.questions.calls_of(session.id)]
    queued_calls = sum(live.waiting_calls for live in connections if live.blocked_by_questions)
    if not asking_calls or session.in_flight > len(asking_calls) + queued_calls:
        return
    error = CallWithdrawn("The session was restarted before the caller answered.")
    for call in asking_calls:
        call.end(error)
    with anyio.move_on_after(END_SECONDS):
        await session.quiet.wait()


def open_bindings(session: LiveSession) -> list[Binding]:
    return [
        b for b in session.bindings.values() if b.live is not None and b.service.scope == "session"
    ]


def mark_bindings(
    bindings: list[Binding], status: BindingStatus, reason: str | None = None
) -> list[BindingRecord]:
    """Set the status of bindings that are not missing; with `reason`, also why their connections will be replaced."""
    replaceable = (BindingStatus.OPEN, BindingStatus.KEPT, BindingStatus.PAUSED)
    values: dict[str, Any] = {"status": status}
    if reason is not None:
        values["last_error"] = reason
    return [b.update(**values) if b.record.status in replaceable else b.record for b in bindings]


def _reason_of(cause: PauseCause) -> str | None:
    """Return the reason for the note about a replaced connection, None where it is the pause."""
    return STOPPED if cause is SHUTDOWN else None


def _not_saved(binding: Binding) -> str:
    earlier_snapshot = (
        "what was saved before is older" if binding.snapshot_seq else "nothing was saved before"
    )
    reason = (binding.save_error or "no reason given").splitlines()[0].rstrip(".")
    return f"saving it failed when the session was paused, and {earlier_snapshot}: {reason}"
