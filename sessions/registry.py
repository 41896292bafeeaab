"""The sessions of this node: create, find, list, change and close them."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import TaskGroup

from .actions.branches import Forking
from .actions.history import History
from .actions.import_ import ImportTarget
from .actions.porting import Porting
from .actions.rename_delete import RenameDelete
from .actions.state import States
from .clock import Clock, SystemClock
from .errors import (
    ServiceUnavailable,
    SessionBusy,
    SessionClosed,
    SessionError,
    SessionExpired,
    SessionFailed,
    SessionPaused,
    StoreUnavailable,
)
from .journal.redaction import Redactor
from .lifecycle import LIVE, Event, Status
from .live.budget import Budget
from .live.connector import Connector
from .live.deadlines import Deadlines
from .live.directory import STORED, Directory
from .live.quota import Quota
from .live.session import Session
from .node import Node
from .one_line import one_line
from .policy import Policy
from .records import Principal, SessionFilter
from .services import Service
from .store.base import Store
from .transitions.admission import Admission
from .transitions.changes import Transitions, busy, end_questions
from .transitions.create import Creation, SessionOptions, new_id
from .transitions.eviction import Eviction
from .transitions.expiry import Expiry

logger = logging.getLogger("statehold.sessions")


class Registry:
    """The sessions this node owns, and access to those it does not own yet.

    It lives as long as the process: `async with Registry(...)` adopts the sessions of dead nodes, starts the deadlines and,
    at the end, drains: calls in flight get `close_grace`, then every session is paused and its connections are closed.
    Every method may be called from any task. Methods with a `principal` check it: a foreign session does not exist. `ref`
    is an id or a name of the caller's. `files` returns the bytes of the files that services keep for some sessions; it may
    block.
    """

    def __init__(
        self,
        store: Store,
        node: Node,
        services: Mapping[str, Service],
        *,
        policy: Policy | None = None,
        clock: Clock | None = None,
        mint: Callable[[], str] = new_id,
        files: Callable[[Sequence[str]], int] | None = None,
    ) -> None:
        self.policy = policy or Policy()
        self.clock = clock or SystemClock()
        self.services = dict(services)
        self.on_purged: list[Callable[[str], None]] = []
        """Called with the id of a session when nothing of it is left."""
        self.draining = False
        self._store = store
        self._node = node
        self._tasks: TaskGroup | None = None
        self._budget = Budget(
            self.policy.live_sessions,
            queue=self.policy.queue,
            queue_seconds=self.policy.queue_seconds,
            make_room=lambda session_id, foreign: self._eviction.start(session_id, foreign),
            may_leave=lambda session_id, foreign: self._eviction.may_leave(session_id, foreign),
            most=self.policy.live_per_principal,
            queue_most=self.policy.queue_per_principal,
            shared=self.policy.shared,
        )
        self._reaper = Deadlines(self.clock, lambda key: self._expiry.on_due(key))
        self._directory = Directory(
            store=store,
            node=node,
            services=self.services,
            clock=self.clock,
            budget=self._budget,
            reaper=self._reaper,
            on_fenced=self._fenced,
            namespace=self.policy.namespace,
        )
        policy = self.policy
        self.redactor = Redactor(policy.redact, policy.redact_patterns, policy.secrets)
        self._directory.redactor = self.redactor
        self.links = Connector(
            spawn=self.spawn,
            start=self._start,
            store=store,
            clock=self.clock,
            policy=self.policy,
            budget=self._budget,
            on_failed=self._recovery_failed,
        )
        self.changes = Transitions(
            spawn=self.spawn,
            links=self.links,
            budget=self._budget,
            clock=self.clock,
            policy=self.policy,
            forget=self._directory.forget,
        )
        self._eviction: Eviction = Eviction(self._directory, self.changes, self._budget, self.spawn)
        self.admission = Admission(
            spawn=self.spawn, clock=self.clock, policy=self.policy, budget=self._budget
        )
        self.quota = Quota(store, self.clock, self.policy, spawn=self.spawn, files=files)
        self._creation = Creation(
            store=store,
            node=node.id,
            services=self.services,
            clock=self.clock,
            policy=self.policy,
            budget=self._budget,
            links=self.links,
            directory=self._directory,
            mint=mint,
            abandon=self._abandon,
            quota=self.quota,
        )
        self.states = States(self._directory, self.ready, self._changing, self.policy, self.quota)
        self.forking = Forking(
            store,
            self._directory,
            self._creation,
            self.changes,
            self.links,
            self.states,
            abandon=self._abandon,
            admit=self._refuse_when_draining,
        )
        self.history = History(
            self._directory, store, self.clock, self.redactor, self.live, self._changing
        )
        self.life = RenameDelete(store, self._directory, self._changing, self.close, self._purged)
        self.porting = Porting(
            store,
            self._directory,
            self.forking,
            self._reaper,
            self.clock,
            self.redactor,
            ImportTarget(
                store=store,
                node=node.id,
                clock=self.clock,
                policy=self.policy,
                services=self.services,
                redactor=self.redactor,
                mint=mint,
                admit=self.quota.admit_new,
                alone=self._directory.alone,
            ),
        )
        self._expiry = Expiry(
            spawn=self.spawn,
            store=store,
            node=node,
            clock=self.clock,
            policy=self.policy,
            directory=self._directory,
            reaper=self._reaper,
            changes=self.changes,
            purged=self._purged,
        )

    # Lifetime.

    async def __aenter__(self) -> Self:
        await self._node.recover()
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._reaper.run)
        self._reaper.schedule(STORED, self.clock.now())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._tasks is not None
        try:
            with anyio.CancelScope(shield=True):
                await self.drain()
        finally:
            self._tasks.cancel_scope.cancel()
            ended = await self._tasks.__aexit__(kind, error, traceback)
        return ended

    async def drain(self) -> None:
        """Refuse new work, let running calls finish within `close_grace`, then pause everything (SIGTERM)."""
        self.draining = True
        await self.changes.drain(self._directory)
        await self.links.close_shared()
        try:
            await self._store.flush()
        except StoreUnavailable as error:
            logger.error("the end of the journal was not written: %s", error)

    def spawn(self, work: Callable[..., Coroutine[Any, Any, object]], *args: object) -> None:
        """Start background work of the registry. A failure is logged and stops nothing else."""
        self._start(self._guarded, work, args)

    def _start(self, work: Callable[..., Coroutine[Any, Any, object]], *args: object) -> None:
        assert self._tasks is not None, "the registry is not open"
        self._tasks.start_soon(work, *args)

    async def _guarded(
        self, work: Callable[..., Coroutine[Any, Any, object]], args: tuple[object, ...]
    ) -> None:
        try:
            await work(*args)
        except (SessionError, StoreUnavailable) as error:
            logger.warning("background work failed: %s", one_line(str(error)))
        except Exception:
            logger.exception("background work failed")

    def statistics(self) -> dict[str, int]:
        """Counts for health and tests."""
        budget = self._budget.statistics()
        return {
            "owned": len(self._directory),
            "live": budget.used,
            "idle": budget.idle,
            "waiting": budget.waiting,
            "in_flight": sum(s.in_flight for s in self._directory),
            "deadlines": len(self._reaper),
        }

    # Finding.

    async def create(self, principal: Principal, wish: SessionOptions | None = None) -> Session:
        """Create a session and open its eager services (T01 to T03). Durable on return.

        Raises:
            InvalidArgument, NameTaken, SessionLimit: nothing was created.
            ServiceUnavailable: an eager service did not open; the session is closed and no child is left.
        """
        self._refuse_when_draining()
        return await self._creation.create(principal, wish or SessionOptions())

    async def find(self, principal: Principal, ref: str, namespace: str | None = None) -> Session:
        """Return a session that this node owns, in any open status; see Directory.find."""
        return await self._directory.find(principal, ref, namespace)

    def live(self, principal: Principal, session_id: str) -> Session | None:
        """Return a session that takes a call at once, without waiting; None when it does not."""
        return None if self.draining else self._directory.ready(principal, session_id)

    def held(self) -> list[Session]:
        """Return every session this node owns, of all principals; for operators."""
        return list(self._directory)

    async def info(
        self, principal: Principal, ref: str, namespace: str | None = None
    ) -> dict[str, Any]:
        """Return everything a caller may know of one of its sessions, open or closed."""
        return await self._directory.info(principal, ref, namespace)

    async def page(
        self, principal: Principal, wanted: SessionFilter
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return a page of the caller's sessions, most recently used first, and the cursor of the next page."""
        return await self._directory.page(principal, wanted)

    async def ready(self, principal: Principal, ref: str, namespace: str | None = None) -> Session:
        """Return a session that is idle or active; resume it or wait for its recovery if necessary.

        Raises:
            SessionPaused: it is paused and resuming is not automatic.
            SessionBusy: it is being created, or another process holds it.
        """
        for _ in range(8):
            self._refuse_when_draining()
            session = await self._directory.find(principal, ref, namespace)
            if session.status is Status.CREATING:
                raise SessionBusy("The session is still being created.", session_id=session.id)
            async with session.changing:
                pass
            if session.status is Status.PAUSED and not session.gone.is_set():
                if not self.policy.auto_resume:
                    await self.changes.give_back(session)
                    raise SessionPaused("The session is paused.", session_id=session.id)
                await self.changes.resume(session, cause="call")
            await self.steady(session)
            if session.status in LIVE and not session.gone.is_set():
                return session
        raise SessionBusy("The session keeps changing.")

    async def steady(self, session: Session) -> None:
        """Wait, within a bound, until a session is not in error.

        Raises:
            SessionFailed: it is not recovered by itself, or not in time.
        """
        if session.status is not Status.ERROR:
            return
        if not self.policy.recovery_backoff:
            raise SessionFailed("The session is in error.", session_id=session.id)
        longest = sum(self.policy.recovery_backoff) + max(
            (b.service.connect_seconds for b in session.bindings.values()), default=0.0
        )
        with anyio.move_on_after(longest):
            await session.steady.wait()
            return
        raise SessionFailed("The session was not recovered in time.", session_id=session.id)

    # Changing.

    async def pause(self, principal: Principal, ref: str, *, cause: str = "requested") -> Session:
        """Pause a session (T08); pausing a paused one does nothing.

        Raises:
            SessionBusy: calls are in flight, or a connection has something under way that would be lost.
        """
        session = await self._directory.find(principal, ref)
        if not await self.changes.pause(session, Event.PAUSE_REQUESTED, cause=cause):
            raise busy(session)
        return session

    async def resume(self, principal: Principal, ref: str) -> Session:
        """Resume a session (T09) and reopen its connections; the notice of each binding says what was restored."""
        session = await self._directory.find(principal, ref)
        if session.status is Status.PAUSED:
            await self.changes.resume(session, cause="requested")
        session = await self.ready(principal, session.id)
        for binding in list(session.bindings.values()):
            if binding.record.generation and binding.live is None:
                await self.links.connect(session, binding)
        self._budget.mark_idle(session.id)
        return session

    async def close(
        self, principal: Principal, ref: str, *, force: bool = False, reason: str = "requested"
    ) -> tuple[dict[str, Any], bool]:
        """Close a session (T12, T13). Return its description and whether it was closed already."""
        event = Event.CLOSE_FORCED if force else Event.CLOSE_REQUESTED
        for _ in range(8):
            session, already = await self._to_close(principal, ref)
            if session is None:
                return await self.info(principal, ref), True
            if await self.changes.close(session, event, reason=reason, force=force):
                return session.info(), already
        raise SessionBusy("The session keeps changing.")

    async def _to_close(self, principal: Principal, ref: str) -> tuple[Session | None, bool]:
        """Return a session that is to be closed, None when it is closed, and whether it is closing already."""
        try:
            return await self._directory.find(principal, ref), False
        except (SessionClosed, SessionExpired, SessionFailed):
            closing = self._directory.get(ref)
            if closing is None or closing.record.owner != principal.key:
                return None, True
            return closing, True

    @asynccontextmanager
    async def _changing(self, principal: Principal, ref: str) -> AsyncGenerator[Session]:
        """Hold an open session while the block changes it; release a paused one afterwards."""
        for _ in range(8):
            session = await self._directory.find(principal, ref)
            try:
                async with session.changing:
                    if session.gone.is_set() or session.ends:
                        continue
                    yield session
                    return
            finally:
                # Only if paused: give_back() waits for `changing`, so a pause that holds it would delay the caller's notice.
                if session.status is Status.PAUSED:
                    await self.changes.give_back(session)
        raise SessionBusy("The session keeps changing.")

    async def extend(self, principal: Principal, ref: str, seconds: float) -> Session:
        """Move the end of a session's lifetime by `seconds`, at most to the longest lifetime from now.

        A session without an end stays without. Negative seconds shorten it, down to now.
        """
        async with self._changing(principal, ref) as session:
            end = session.record.lifetime_ends_at
            if end is not None:
                now, longest = self.clock.now(), self.policy.longest.lifetime
                end = max(now, min(end + seconds, now + longest) if longest else end + seconds)
                await session.save(lifetime_ends_at=end, **self._due(session, end))
                self._directory.schedule(session)
        return session

    def _due(self, session: Session, end: float) -> dict[str, Any]:
        if session.status is not Status.PAUSED:
            return {}
        paused = session.record.timeouts.paused
        return {"due_at": min(end, session.record.status_at + paused) if paused else end}

    async def restart(
        self, principal: Principal, ref: str, services: Sequence[str] | None = None
    ) -> Session:
        """Replace the live connections of a session by fresh ones (T15 when it was in error).

        Raises:
            SessionBusy: calls are in flight. Those that wait for an answer of their caller are ended.
        """
        async with self._changing(principal, ref) as session:
            await end_questions(session)
            if session.in_flight:
                raise busy(session)
            if session.status is Status.PAUSED:
                await self.changes.resumed(session, cause="restart")
            wanted = [self._creation.bound(session, name) for name in services or session.bindings]
            started = [b for b in wanted if services or b.record.generation or b.live]
            await self.links.restart(session, started)
            if session.status is Status.ERROR:
                await self.links.recovered(session, cause="restart")
            self._budget.mark_idle(session.id)
        return session

    async def bind(self, principal: Principal, ref: str, service: str) -> Session:
        """Bind a service to a session; binding it twice does nothing."""
        found = self._creation.service(service)
        await self.ready(principal, ref)
        async with self._changing(principal, ref) as session:
            if service not in session.bindings:
                binding = self._creation.bind(session, found)
                services = [*session.record.services, service]
                try:
                    await session.save(bindings=[binding.record], services=services)
                except BaseException:
                    del session.bindings[service]
                    raise
        if found.eager:
            await self.links.connect(session, session.bindings[service])
        return session

    async def unbind(self, principal: Principal, ref: str, service: str) -> Session:
        """Unbind a service from a session: close its connection and delete its snapshots."""
        self._creation.service(service)
        async with self._changing(principal, ref) as session:
            binding = session.bindings.get(service)
            if binding is not None:
                if session.in_flight:
                    raise busy(session)
                services = [name for name in session.record.services if name != service]
                await session.save(unbind=[service], services=services)
                del session.bindings[service]
                await self.links.close(session, [binding])
        return session

    # Events without a caller.

    def _purged(self, session_id: str) -> None:
        for tell in self.on_purged:
            tell(session_id)

    def _fenced(self, session: Session) -> None:
        logger.error("session %s was taken over by another process", session.id)
        self.spawn(self.changes.drop, session)

    def _recovery_failed(self, session: Session) -> None:
        self.spawn(self._close_failed, session)

    async def _close_failed(self, session: Session) -> None:
        await self.changes.close(session, Event.RECOVERY_FAILED, reason="error")

    async def _abandon(self, session: Session) -> None:
        await self.changes.close(session, Event.CLOSE_FORCED, reason="connect_failed", force=True)

    def _refuse_when_draining(self) -> None:
        if self.draining:
            raise ServiceUnavailable("The server is shutting down.")


__all__ = ["Registry"]
