"""The changes of a session that take time: pausing, resuming and closing it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import anyio

from ..clock import Clock
from ..errors import CallWithdrawn, SessionBusy, SessionError, StoreUnavailable
from ..lifecycle import LIVE, TABLE, Event, Status
from ..live.budget import Budget
from ..live.connector import Connector
from ..live.session import Binding, Session
from ..policy import Policy
from ..records import BindingRecord, BindingStatus, SnapshotRecord

logger = logging.getLogger("statehold.sessions")

END_SECONDS = 2.0
"""Seconds that calls get to end when their unanswered questions are withdrawn."""

DRAIN_BOUND = 25.0
"""Seconds that the shutdown waits for one session to be saved and paused."""


class Transitions:
    """Pauses, resumes and closes the sessions of one registry; it lives as long as the registry.

    Only one change of a session runs at a time. Cancelling the caller does not interrupt a change that has begun.
    """

    def __init__(
        self,
        *,
        spawn: Callable[..., None],
        links: Connector,
        budget: Budget,
        clock: Clock,
        policy: Policy,
        forget: Callable[[Session], None],
    ) -> None:
        self._spawn = spawn
        self._links = links
        self._budget = budget
        self._clock = clock
        self._policy = policy
        self._forget = forget

    # Pausing.

    async def pause(
        self,
        session: Session,
        event: Event,
        *,
        cause: str,
        release: bool = False,
        anyway: bool = False,
        saved_only: bool = False,
    ) -> bool:
        """Pause an idle session (T07, T08); `release` also gives up connections that its services would keep.

        Returns False when the session is not idle, or when a connection is busy and `anyway` is not set. A connection that
        cannot be saved is closed all the same, and its content is reported as lost. With `saved_only` the session stays as
        it is in that case, and False is returned.

        Raises:
            StoreUnavailable: the pause could not be recorded; the session is unchanged.
        """
        async with session.changing:
            with anyio.CancelScope(shield=True):
                return await self._pause_if_idle(session, event, cause, release, anyway, saved_only)
        raise AssertionError("unreachable: a shield is never cancelled")

    async def _pause_if_idle(
        self,
        session: Session,
        event: Event,
        cause: str,
        release: bool,
        anyway: bool,
        saved_only: bool,
    ) -> bool:
        if session.gone.is_set():
            # It was paused and given up before, or another process took it over: then it may not be paused.
            return session.status is Status.PAUSED and not session.fenced
        if session.in_flight or (saved_only and not session.saveable):
            return False
        if session.status is Status.PAUSED:
            await self._let_go(session, release)
            return True
        if session.status is not Status.IDLE or (session.busy and not anyway):
            return False
        session.apply(event, cause=cause)
        return await self._pause(session, release, saved_only)

    async def _pause(self, session: Session, release: bool, saved_only: bool = False) -> bool:
        session.pausing = True
        snapshots: list[SnapshotRecord] = []
        failed: list[Binding] = []
        try:
            snapshots, failed = await self._snapshots(session)
            if failed and saved_only:
                session.apply(Event.RESUMED, cause="it could not be saved")
                return False
            kept = [] if release else [b for b in _open(session) if b.service.pause == "keep"]
            closing = [b for b in _open(session) if b not in kept]
            _marked(kept, BindingStatus.KEPT)
            _marked(closing, BindingStatus.PAUSED)
            for binding in failed:
                # Durable: another process may resume the session, and its next caller must be told.
                why, since = _not_saved(binding), self._clock.now()
                binding.changed(status=BindingStatus.LOST, last_error=why, since=since)
            await session.save(
                bindings=[b.record for b in session.bindings.values()],
                snapshots=snapshots,
                state=None if session.stored is session.state else session.state,
                **self._paused_columns(session),
            )
        except StoreUnavailable:
            session.apply(Event.RESUMED, cause="the store is unavailable")
            _marked(_open(session), BindingStatus.OPEN)
            for binding in failed:
                if binding.live is not None:
                    binding.changed(status=BindingStatus.OPEN)
            self._links.saving.note_unstored(session, snapshots)
            raise
        finally:
            session.pausing = False
        # Close before giving up: another process may open its own connection as soon as it can claim the session.
        await self._links.close(session, closing)
        if _open(session):
            self._budget.mark_first(session.id)
        else:
            await self._release(session)
        return True

    async def _let_go(self, session: Session, release: bool) -> None:
        """Give up a paused session. If it keeps connections, close them with `release`, else leave it as it is."""
        kept = _open(session)
        if kept and not release:
            return
        if kept:
            await session.save(bindings=_marked(kept, BindingStatus.PAUSED))
            await self._links.close(session, kept)
        await self._release(session)

    async def give_back(self, session: Session) -> None:
        """Give up a paused session that this process claimed and holds no connection of, so that any process may claim it.

        Cancelling the caller does not interrupt it.
        """
        with anyio.CancelScope(shield=True):
            async with session.changing:
                if session.status is Status.PAUSED and not session.gone.is_set():
                    await self._let_go(session, release=False)

    async def _release(self, session: Session) -> None:
        await session.save(node=None, **self._paused_columns(session))
        self._forget(session)

    def _paused_columns(self, session: Session) -> dict[str, Any]:
        return {
            "status": Status.PAUSED,
            "status_at": session.record.status_at,
            "used_at": max(session.idle_since, session.record.used_at),
            "due_at": session.deadline(),
        }

    async def _snapshots(self, session: Session) -> tuple[list[SnapshotRecord], list[Binding]]:
        """Save its connections; return the snapshots, and the bindings whose connections could not be saved."""
        found: list[SnapshotRecord] = []
        failed: list[Binding] = []

        async def take(binding: Binding) -> None:
            record = await self._links.saving.take(session, binding)
            if record is not None:
                found.append(record)
            elif binding.save_error is not None:
                failed.append(binding)

        async with anyio.create_task_group() as tasks:
            for binding in _open(session):
                tasks.start_soon(take, binding)
        return found, failed

    # Resuming.

    async def resume(self, session: Session, *, cause: str) -> None:
        """Take a paused session back to idle (T09). This opens no connections; a call opens those it needs."""
        async with session.changing:
            if not session.gone.is_set() and session.status is Status.PAUSED:
                await self.resumed(session, cause=cause)

    async def resumed(self, session: Session, *, cause: str) -> None:
        """Resume a paused session while the caller holds `session.changing`."""
        session.apply(Event.RESUMED, cause=cause)
        await session.save(
            bindings=_marked(_open(session), BindingStatus.OPEN),
            status=Status.IDLE,
            status_at=session.record.status_at,
            due_at=None,
        )
        self._budget.mark_idle(session.id)

    # Closing.

    async def close(
        self, session: Session, event: Event, *, reason: str, force: bool = False
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
            await session.gone.wait()
            return True
        if session.status is Status.CREATING and event is Event.CLOSE_REQUESTED:
            event = Event.CLOSE_FORCED
        if session.gone.is_set() or (session.status, event) not in TABLE:
            return False
        session.apply(event, cause=reason)
        session.record.reason = reason
        self._budget.mark_busy(session.id)
        self._spawn(self._finish, session, reason, 0.0 if force else self._policy.close_grace)
        await session.gone.wait()
        return True

    async def _finish(self, session: Session, reason: str, grace: float) -> None:
        try:
            if session.in_flight:
                with anyio.move_on_after(grace):
                    await session.quiet.wait()
            cancel_calls(session)
            _marked(list(session.bindings.values()), BindingStatus.PAUSED)
            await self._links.close(session, session.bindings.values())
            # The results of cancelled calls are on their way: journal them before the session is given up.
            with anyio.move_on_after(1.0):
                await session.quiet.wait()
            session.apply(Event.RELEASED, cause=reason)
        finally:
            if await self._recorded(session, reason):
                self._forget(session)
            else:
                # Callers of this process find it closed; it stays in memory until the store has recorded that.
                session.gone.set()
                self._spawn(self._record_later, session, reason)

    async def _recorded(self, session: Session, reason: str) -> bool:
        now, retention = self._clock.now(), self._policy.retention
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
        return True

    async def _record_later(self, session: Session, reason: str) -> None:
        wait = 1.0
        while True:
            await self._clock.sleep_until(self._clock.now() + wait)
            if await self._recorded(session, reason):
                self._forget(session)
                return
            wait = min(wait * 2, 60.0)

    async def drop(self, session: Session) -> None:
        """Give up a session that another node took: close its connections and write nothing."""
        cancel_calls(session)
        await self._links.close(session, session.bindings.values())
        self._forget(session)

    # Ending.

    async def drain(self, sessions: Iterable[Session]) -> None:
        """Pause all sessions because the process ends; calls in flight get `close_grace`."""
        grace_over = anyio.Event()

        async def grace() -> None:
            await anyio.sleep(self._policy.close_grace)
            grace_over.set()

        async with anyio.create_task_group() as timer:
            timer.start_soon(grace)
            async with anyio.create_task_group() as tasks:
                for session in sessions:
                    tasks.start_soon(self._drain_one, session, grace_over)
            timer.cancel_scope.cancel()

    async def _drain_one(self, session: Session, grace_over: anyio.Event) -> None:
        """Pause one session because the process ends. If its calls do not end, the next start pauses it."""
        while session.in_flight and not grace_over.is_set():
            async with anyio.create_task_group() as race:

                async def wait(event: anyio.Event, scope: anyio.CancelScope) -> None:
                    await event.wait()
                    scope.cancel()

                race.start_soon(wait, session.quiet, race.cancel_scope)
                race.start_soon(wait, grace_over, race.cancel_scope)
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
        if not session.gone.is_set():
            # Not recorded, but nothing of it may go on: the next start treats it as a dead node's session.
            await self.drop(session)

    async def _put_down(self, session: Session) -> None:
        if session.status is Status.ERROR:
            session.apply(Event.ADOPTED, cause="shutdown")
            await self._pause(session, release=True)
        elif session.status is Status.CREATING:
            await self.close(session, Event.CLOSE_FORCED, reason="shutdown", force=True)
        else:
            event = Event.PAUSE_REQUESTED
            await self.pause(session, event, cause="shutdown", release=True, anyway=True)


def cancel_calls(session: Session) -> None:
    for scope in list(session.calls):
        scope.cancel()


async def end_questions(session: Session) -> None:
    """End the calls that wait for an answer of their caller, if nothing else is running in the session."""
    lives = [b.live for b in session.bindings.values() if b.live is not None]
    asked = [call for live in lives for call in live.questions.of(session.id)]
    behind = sum(live.slots.statistics().tasks_waiting for live in lives if live.parked)
    if not asked or session.in_flight > len(asked) + behind:
        return
    error = CallWithdrawn("The session was restarted before the caller answered.")
    for call in asked:
        call.end(error)
    with anyio.move_on_after(END_SECONDS):
        await session.quiet.wait()


def _open(session: Session) -> list[Binding]:
    return [
        b for b in session.bindings.values() if b.live is not None and b.service.scope == "session"
    ]


def _marked(bindings: list[Binding], status: BindingStatus) -> list[BindingRecord]:
    before = (BindingStatus.OPEN, BindingStatus.KEPT, BindingStatus.PAUSED)
    return [b.changed(status=status) if b.record.status in before else b.record for b in bindings]


def _not_saved(binding: Binding) -> str:
    before = (
        "what was saved before is older" if binding.snapshot_seq else "nothing was saved before"
    )
    why = (binding.save_error or "no reason given").splitlines()[0].rstrip(".")
    return f"saving it failed when the session was paused, and {before}: {why}"


def busy(session: Session) -> SessionBusy:
    count = session.in_flight
    if session.status is Status.IDLE and session.busy is not None:
        return SessionBusy(
            f"The session is in use ({session.busy}).",
            session_id=session.id,
            recovery="End that, or wait until it is over, then try again.",
        )
    if session.status is Status.ERROR:
        return SessionBusy(
            "The session lost a connection and is connecting again.",
            session_id=session.id,
            recovery="Try again in a moment, or restart the session.",
        )
    calls = f"{count} call{'s' if count != 1 else ''} in flight"
    asked = sum(len(b.live.questions.of(session.id)) for b in session.bindings.values() if b.live)
    if asked:
        return SessionBusy(
            f"The session has {calls}, {asked} of them waiting for an answer of the caller.",
            session_id=session.id,
            recovery="Answer it, or end it with session_restart or session_close with force.",
        )
    what = f"has {calls}" if session.status in LIVE else f"is {session.status}"
    return SessionBusy(f"The session {what}.", session_id=session.id)


__all__ = ["Transitions", "busy", "cancel_calls", "end_questions"]
