"""Opening, losing, recovering and closing the connections of the sessions of this node."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

import anyio

from ..core import Core
from ..errors import (
    ConnectionLost,
    ServiceUnavailable,
    SessionBusy,
    SessionClosed,
    SessionError,
    SessionFailed,
    SessionPaused,
    StoreUnavailable,
)
from ..lifecycle import Event, Status
from ..metrics.spans import SPANS
from ..one_line import one_line
from ..records import BindingStatus
from ..services import Drivable, SelfChanging, Snapshot
from .binding import Binding, is_orphan, lost_reason
from .connection import LiveConnection
from .outages import Outages
from .replacement import (
    PAUSE_REASONS,
    Contention,
    copy_notice,
    replacement_notice,
    unreported_notice,
)
from .session import LiveSession
from .snapshots import UNSTORED, Snapshots, save_quietly

logger = logging.getLogger("statehold.sessions")

RESTART_SECONDS: Final = 5.0
"""Seconds allowed for saving a connection before it is replaced."""
MAX_UNREPORTED: Final = 1000
"""Characters kept of the losses that are not yet reported to a caller."""
UNSAVED: Final = "what was done after it was last saved"


class Connector:
    """The connections of all sessions of this node. It lives as long as the registry, which owns the task group.

    Concurrent requests for the connection of one session and service open it once. `recover` is called when a session has
    lost a connection, with the binding of the connection, and with the sessions that end each other's connections of that
    service. It starts the recovery of the binding and returns at once.
    """

    def __init__(
        self,
        core: Core,
        snapshots: Snapshots,
        recover: Callable[[LiveSession, Binding, Collection[str]], None],
    ) -> None:
        self._core = core
        self._snapshots = snapshots
        self._recover = recover
        self._contention = Contention(core.clock)
        attempts = len(core.policy.recovery_backoff)
        self._outages = Outages(core.clock, attempts, core.metrics)
        self._shared_connections: dict[str, LiveConnection] = {}

    async def connect(
        self, session: LiveSession, binding: Binding, *, spacing: float | None = None
    ) -> LiveConnection:
        """Return the live connection of a binding, opening it when there is none.

        `spacing`: for an automatic recovery, the seconds since the last try of any session; None for a call.

        Raises:
            ServiceUnavailable: it could not be opened, or the service is away and is not tried again yet.
            SessionLimit: no place for another live session became free in time.
        """
        if binding.service.scope == "shared":
            return await self._connect_shared(session, binding)
        live = binding.live
        if live is None or live.phase in ("failed", "closed"):
            live = await self._start(session, binding, spacing)
        elif live.phase in ("closing", "lost"):
            await live.closed.wait()
            return await self.connect(session, binding, spacing=spacing)
        try:
            await self._wait_until_open(session, binding, live)
        except SessionError as error:
            is_gone = isinstance(error, ConnectionLost) and live.resume_token is not None
            if not is_gone and not live.is_stopped:
                raise
            # The connection of an earlier process is gone, or a restart closed this one. A new one replaces it.
            return await self.connect(session, binding, spacing=spacing)
        if live.resume_token is not None and live.resumption is not None:
            live.resumption.ask_again()
        return live

    async def connect_for_call(self, session: LiveSession, binding: Binding) -> LiveConnection:
        """Return the live connection of a binding for a call, which waits for the recovery of this connection alone.

        A lost connection is opened at once. If that fails, the automatic recovery is waited for.

        Raises:
            ServiceUnavailable: it could not be opened, neither now nor by the automatic recovery.
            SessionFailed: it was lost, and only session_restart opens it again.
            SessionLimit: no place for another live session became free in time.
        """
        recovery, backoff = binding.recovery, self._core.policy.recovery_backoff
        if recovery is not None and not backoff:
            reason = binding.record.last_error or "it ended"
            raise SessionFailed(
                f"The connection to {binding.service.name} was lost: {reason}.",
                session_id=session.id,
            )
        try:
            return await self.connect(session, binding)
        except (ServiceUnavailable, ConnectionLost):
            if recovery is None:
                raise
            with anyio.move_on_after(sum(backoff) + binding.service.connect_seconds):
                await recovery.wait()
            if binding.live is None or not binding.usable:
                raise
            return binding.live

    async def connect_all(self, session: LiveSession, bindings: Collection[Binding]) -> None:
        """Open the connections of several bindings at once, each in its own time.

        Raises:
            SessionError: none of them could be opened; the first error. Otherwise the record of its binding has an error.
        """
        errors: list[SessionError | StoreUnavailable] = []
        opened: list[LiveConnection] = []

        async def connect(binding: Binding) -> None:
            try:
                opened.append(await self.connect(session, binding))
            except (SessionError, StoreUnavailable) as error:
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            for binding in bindings:
                tasks.start_soon(connect, binding)
        if errors and not opened:
            raise errors[0]

    async def _wait_until_open(
        self, session: LiveSession, binding: Binding, live: LiveConnection
    ) -> None:
        try:
            with SPANS.step("restore" if live.restores else "open", binding.service.name):
                await live.wait_until_open()
        except SessionError as error:
            if not live.is_stopped:
                self._open_failed(session, binding, live, error)
            elif binding.live is live:
                binding.live = None
            raise
        self._record_opened(session, binding, live)

    async def _start(
        self, session: LiveSession, binding: Binding, spacing: float | None = None
    ) -> LiveConnection:
        _refuse_ended(session)
        await self._admit(session, binding, spacing)
        binding.opening += 1
        try:
            await self._core.budget.acquire(session.id, session.record.owner)
            snapshot = await self._snapshots.find(session, binding)
            # Again: another session may have begun a try meanwhile.
            await self._admit(session, binding, spacing)
            _refuse_ended(session)
            if spacing is not None and session.status is Status.PAUSED:
                raise SessionPaused("The session was paused.", session_id=session.id)
            self._core.node.require_lease()
        except BaseException:
            binding.opening -= 1
            if not session.holds_connection:
                self._core.budget.release(session.id)
            raise
        binding.opening -= 1
        # Another task may have started it while this one waited for a place or the snapshot.
        if binding.live is not None and binding.live.phase not in ("failed", "closed"):
            return binding.live
        if is_orphan(binding):
            live = self.orphan_connection(session, binding, snapshot)
        else:
            live = LiveConnection(
                binding.service,
                session.view(binding.record.generation + 1),
                snapshot,
                on_lost=partial(self._record_lost, session, binding),
                on_opening_ended=self._outcome_noter(session, binding, by_call=spacing is None),
                shared=self._core.policy.shared,
                host=session.record.owner,
            )
        self._outages.record_start(live, session.record.owner)
        binding.live = live
        binding.save_error = None if binding.unstored_snapshot is None else UNSTORED
        binding.save_failures = 0
        live.start(self._core.tasks.start)
        self._contention.record_start(session.id, live)
        self._core.tasks.spawn(self._record_opening, session, binding, live)
        return live

    async def _admit(self, session: LiveSession, binding: Binding, spacing: float | None) -> None:
        key, owner = _key_of(session, binding), session.record.owner
        try:
            await self._outages.admit(binding.service.name, key, owner, spacing=spacing)
        except ServiceUnavailable as error:
            error.session_id = session.id
            raise

    def _outcome_noter(
        self, session: LiveSession, binding: Binding, *, by_call: bool = True
    ) -> Callable[[SessionError | None], None]:
        name, key, owner = binding.service.name, _key_of(session, binding), session.record.owner
        return self._outages.watch_opening(name, key, owner, by_call=by_call)

    async def resume_all(self, session: LiveSession, bindings: Iterable[Binding]) -> None:
        """Resume connections that outlived their process, each in its own time, under `session.changing`.

        One that is gone becomes lost. One whose other end does not answer stays as it is: connect() tries again.

        Raises:
            SessionLimit: no place for another live session became free in time.
        """
        refusals: list[SessionError | StoreUnavailable] = []

        async def resume(binding: Binding) -> None:
            try:
                live = await self._start(session, binding)
            except ServiceUnavailable as error:
                binding.update(last_error=error.message)
                return
            except (SessionError, StoreUnavailable) as error:
                refusals.append(error)
                return
            with suppress(SessionError):
                await self._wait_until_open(session, binding, live)

        async with anyio.create_task_group() as tasks:
            for binding in bindings:
                tasks.start_soon(resume, binding)
        if refusals:
            raise refusals[0]

    def orphan_connection(
        self, session: LiveSession, binding: Binding, snapshot: Snapshot | None
    ) -> LiveConnection:
        """Return the connection of a binding that outlived its process, to be started. Nothing is recorded of it yet."""
        return LiveConnection(
            binding.service,
            session.view(binding.record.generation),
            snapshot,
            on_lost=partial(self._record_lost, session, binding),
            on_opening_ended=self._outcome_noter(session, binding),
            resume_token=binding.record.resume_token,
            shared=self._core.policy.shared,
            host=session.record.owner,
        )

    def record_gone(self, binding: Binding, reason: str) -> None:
        """Record that a connection which outlived its process is gone: the next one replaces it, with a notice."""
        binding.update(
            status=BindingStatus.LOST,
            last_error=one_line(reason),
            resume_token=None,
            since=self._core.clock.now(),
        )

    def _follow_changes(self, session: LiveSession, binding: Binding, live: LiveConnection) -> None:
        if isinstance(live.connection, SelfChanging):
            live.connection.report_changes(
                partial(self._snapshots.record_own_change, session, binding, live)
            )

    async def _record_opening(
        self, session: LiveSession, binding: Binding, live: LiveConnection
    ) -> None:
        """Record the result of an opening, even if every waiting caller was cancelled."""
        try:
            await self._wait_until_open(session, binding, live)
        except SessionError:
            return
        try:
            await save_quietly(session, [binding.record], reason=session.record.reason)
        finally:
            live.opening_recorded.set()

    def _record_opened(self, session: LiveSession, binding: Binding, live: LiveConnection) -> None:
        record, generation = binding.record, live.view.generation
        # Until then the output of the lost connection is the one that explains.
        binding.last_live = live
        if live.resume_token is not None and record.status is BindingStatus.KEPT:
            if max(record.told_generation, 1) < generation:
                binding.notice = unreported_notice(record, binding.unreported_losses)
        elif record.generation >= generation:
            return
        elif record.generation:
            report = live.connection.restore_report
            lost_parts = ", ".join(
                filter(None, (UNSAVED if binding.snapshot_outdated else "", report.lost))
            )
            unreported = (
                "" if binding.unreported_losses in lost_parts else binding.unreported_losses
            )
            binding.notice = replacement_notice(
                record, generation, replace(report, lost=lost_parts), unreported
            )
            losses = ", ".join(filter(None, (unreported, lost_parts)))
            binding.unreported_losses = losses[:MAX_UNREPORTED]
            if losses:
                self._core.metrics.notices.add(record.service)
            if record.status is BindingStatus.LOST:
                self._core.metrics.restarts.add(record.service)
                session.activity.usage_of(record.service).record_restart(self._core.clock.now())
        elif live.restores:
            binding.notice = copy_notice(record.service, live.connection.restore_report)
        self._follow_changes(session, binding, live)
        if session.has_human_driver and isinstance(live.connection, Drivable):
            self._core.tasks.spawn(live.connection.begin_human_control)
        self._end_error(session, binding)
        resumption = live.resumption
        was_lost = record.status is BindingStatus.LOST
        binding.update(
            status=BindingStatus.OPEN,
            generation=generation,
            resume_token=None if resumption is None else resumption.token,
            config_hash=binding.service.config_hash,
            # A lost one gets such a reason when its session is about to be paused.
            last_error=None
            if record.last_error in PAUSE_REASONS and not was_lost
            else record.last_error,
            since=self._core.clock.now(),
        )
        if session.record.reason is not None:
            session.record.reason = lost_reason(session.bindings.values())

    def _end_error(self, session: LiveSession, binding: Binding) -> None:
        """Record that a connection is open: its recovery ends, and its session is not in error any more (T15)."""
        binding.end_recovery()
        if session.status is not Status.ERROR:
            return
        session.apply(Event.RECOVERED, cause=f"{binding.service.name} is open again")
        if session.in_flight:
            session.apply(Event.CALL_ADMITTED)
        else:
            self._core.budget.mark_idle(session.id)

    def _open_failed(
        self, session: LiveSession, binding: Binding, live: LiveConnection, error: SessionError
    ) -> None:
        if binding.live is not live:
            return
        binding.live = None
        if live.resume_token is None:
            binding.update(
                status=BindingStatus.FAILED, last_error=error.message, since=self._core.clock.now()
            )
        elif isinstance(error, ConnectionLost):
            self.record_gone(binding, error.message)
        else:
            binding.update(last_error=error.message)
        error.session_id = session.id
        if not session.holds_connection:
            self._core.budget.release(session.id)

    async def _connect_shared(self, session: LiveSession, binding: Binding) -> LiveConnection:
        name = binding.service.name
        if not self._has_shared(name):
            await self._admit(session, binding, None)
        if not self._has_shared(name):
            live = LiveConnection(
                binding.service,
                session.view(1),
                None,
                on_lost=lambda _: None,
                on_opening_ended=self._outcome_noter(session, binding),
                shared=self._core.policy.shared,
            )
            self._shared_connections[name] = live
            # Shared connections give no replacement notice.
            live.opening_recorded.set()
            live.start(self._core.tasks.start)
        live = self._shared_connections[name]
        await live.wait_until_open()
        binding.live = binding.last_live = live
        if binding.record.status is not BindingStatus.OPEN:
            binding.update(status=BindingStatus.OPEN, generation=1, told_generation=1)
        self._end_error(session, binding)
        return live

    def _has_shared(self, name: str) -> bool:
        live = self._shared_connections.get(name)
        return live is not None and live.phase in ("opening", "open")

    def _record_lost(self, session: LiveSession, binding: Binding, live: LiveConnection) -> None:
        if binding.live is not live or session.ends:
            return
        # The reason may quote the output of a program.
        reason = one_line(live.reason or "the connection ended")
        logger.warning(
            "session %s lost %s generation %d: %s",
            session.id,
            binding.service.name,
            live.view.generation,
            reason,
        )
        binding.losses = 0 if live.calls else binding.losses + 1
        binding.live = None
        binding.update(status=BindingStatus.LOST, last_error=reason, since=self._core.clock.now())
        self._outages.record_loss(
            binding.service.name, _key_of(session, binding), session.record.owner, reason
        )
        contenders = self._contention.record_loss(session.id, live)
        if session.status is Status.CREATING or session.pausing:
            return
        if session.status is not Status.ERROR and not any(
            other.usable for other in session.bindings.values()
        ):
            session.apply(Event.CONNECTION_LOST, cause=f"{binding.service.name}: {reason}"[:1000])
            self._core.budget.mark_busy(session.id)
        binding.recovery = anyio.Event()
        self._recover(session, binding, contenders)

    async def close_for_restart(
        self, session: LiveSession, bindings: Iterable[Binding]
    ) -> list[Binding]:
        """Save connections and begin to close them, under `session.changing`. Return the bindings to open again.

        They are opened without that lock: no other call waits for them.
        """
        # A shared connection belongs to all sessions; one of them may not restart it.
        own = [binding for binding in bindings if binding.service.scope == "session"]

        await self._snapshots.save_all(session, own, RESTART_SECONDS)
        for binding in own:
            if binding.live is not None:
                binding.live.close_nowait()
            if binding.record.generation:
                binding.update(status=BindingStatus.LOST, last_error="restarted on request")
        return own

    def save_notices_soon(self, session: LiveSession, bindings: Sequence[Binding]) -> None:
        """Make durable in the background that notices of a session and of its bindings were taken, or put back."""
        if session.ownership_ended.is_set():
            return
        columns: dict[str, Any] = {}
        control = session.record.control
        if control.notice != session.notice:
            columns["control"] = control.model_copy(update={"notice": session.notice})
        if bindings or columns:
            records = [binding.record for binding in bindings]
            self._core.tasks.spawn(partial(save_quietly, session, records, **columns))

    async def leave(self, session: LiveSession) -> None:
        """Close all connections of a session; the next process resumes them, and the others are saved before."""
        lost = [b for b in session.bindings.values() if b.live and not b.live.resumption]
        await self._snapshots.save_all(session, lost, RESTART_SECONDS)
        session.is_left = session.fenced = True
        await self.close(session, session.bindings.values())

    async def close(self, session: LiveSession, bindings: Iterable[Binding]) -> None:
        """Close the connections of some bindings at once, each within its bound."""
        async with anyio.create_task_group() as tasks:
            for binding in bindings:
                live, binding.live = binding.live, None
                if live is not None and binding.service.scope == "session":
                    if session.fenced and live.resumption is not None:
                        live.resumption.leave()
                    tasks.start_soon(live.aclose)
        if not session.holds_connection:
            self._core.budget.release(session.id)

    async def close_shared(self) -> None:
        for live in self._shared_connections.values():
            live.close_nowait()
        for live in self._shared_connections.values():
            await live.aclose()


def _key_of(session: LiveSession, binding: Binding) -> str:
    """Return the name of a session among those that fail to open a service; a shared connection fails for all."""
    return "" if binding.service.scope == "shared" else session.id


def _refuse_ended(session: LiveSession) -> None:
    if session.fenced:
        raise SessionBusy("Another process took the session over.", session_id=session.id)
    if session.ends or session.ownership_ended.is_set():
        raise SessionClosed("The session is being closed.", session_id=session.id)
