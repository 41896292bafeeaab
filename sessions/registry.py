"""The sessions of this node: create, find, list, change and close them."""

from __future__ import annotations

import logging
import re
import secrets
import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import anyio
import orjson
from anyio.abc import TaskGroup

from .changes import Changes, busy
from .clock import Clock, SystemClock
from .cluster import Node
from .errors import (
    InvalidArgument,
    NameTaken,
    ServiceNotBound,
    ServiceUnavailable,
    SessionBusy,
    SessionClosed,
    SessionError,
    SessionExpired,
    SessionFailed,
    SessionNotFound,
    SessionPaused,
    StoreUnavailable,
)
from .lifecycle import OPEN, Event, Status
from .limits import Budget
from .links import Links
from .policy import Policy
from .reaper import Reaper
from .records import (
    BindingRecord,
    BindingStatus,
    Principal,
    SessionFilter,
    SessionRecord,
    StateRecord,
    Timeouts,
)
from .services import Service
from .session import Binding, Session, describe, describe_binding
from .state import Mode, check, updated
from .store.base import Store

logger = logging.getLogger("statehold.sessions")

ID_PREFIX = "sh_"
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_NAME = re.compile(r"[^\x00-\x1f\x7f/\\]{1,128}")
_STORED = ""
"""The reaper's key for sessions that only the store knows."""
METADATA_LIMIT = 16_384
"""Bytes of a session's metadata as JSON text."""


def new_id() -> str:
    """Return an unguessable handle: `sh_` and 26 characters of base32, 130 random bits. It encodes nothing."""
    return ID_PREFIX + "".join(_ALPHABET[b & 31] for b in secrets.token_bytes(26))


class Registry:
    """Every session this node owns, and the way to those it does not own yet.

    It lives as long as the process: `async with Registry(...)` joins the node, adopts what dead nodes left behind, runs the
    reaper and, at the end, drains: calls in flight get `close_grace`, then every session is paused and its connections are
    closed. Every method may be called from any task. `principal` is checked by each one: a foreign session does not exist.
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
    ) -> None:
        self.policy = policy or Policy()
        self.clock = clock or SystemClock()
        self.services = dict(services)
        self.on_purged: list[Callable[[str], None]] = []
        """Called with the id of a session of which nothing is left."""
        self._store = store
        self._node = node
        self._mint = mint
        self._live: dict[str, Session] = {}
        self._names: dict[tuple[str, str, str], str] = {}
        self._claiming: dict[str, anyio.Event] = {}
        self.draining = False
        self._budget = Budget(
            self.policy.live_sessions,
            queue=self.policy.queue,
            queue_seconds=self.policy.queue_seconds,
            make_room=self._make_room,
        )
        self._reaper = Reaper(self.clock, self._on_due)
        self._tasks: TaskGroup | None = None
        self._links: Links | None = None
        self._changes: Changes | None = None

    # Lifetime.

    async def __aenter__(self) -> Self:
        await self._node.recover(self.clock.now())
        self._tasks = await anyio.create_task_group().__aenter__()
        self._links = Links(
            tasks=self._tasks,
            spawn=self.spawn,
            store=self._store,
            clock=self.clock,
            policy=self.policy,
            budget=self._budget,
            on_failed=self._recovery_failed,
        )
        self._changes = Changes(
            spawn=self.spawn,
            links=self._links,
            budget=self._budget,
            clock=self.clock,
            policy=self.policy,
            forget=self._forget,
            schedule=self._schedule,
        )
        self._tasks.start_soon(self._reaper.run)
        self._reaper.schedule(_STORED, self.clock.now())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._tasks is not None
        with anyio.CancelScope(shield=True):
            await self.drain()
        self._tasks.cancel_scope.cancel()
        return await self._tasks.__aexit__(kind, error, traceback)

    async def drain(self) -> None:
        """Refuse new work, let running calls finish within `close_grace`, then pause everything (SIGTERM)."""
        self.draining = True
        grace_over = anyio.Event()

        async def grace() -> None:
            await anyio.sleep(self.policy.close_grace)
            grace_over.set()

        async with anyio.create_task_group() as timer:
            timer.start_soon(grace)
            async with anyio.create_task_group() as tasks:
                for session in list(self._live.values()):
                    tasks.start_soon(self.changes.drain, session, grace_over)
            timer.cancel_scope.cancel()
        await self.links.close_shared()
        await self._store.flush()

    @property
    def links(self) -> Links:
        assert self._links is not None, "the registry is not open"
        return self._links

    @property
    def changes(self) -> Changes:
        assert self._changes is not None, "the registry is not open"
        return self._changes

    def spawn(self, work: Callable[..., Awaitable[object]], *args: object) -> None:
        """Start background work of the registry; its failure is logged and takes nothing along."""
        assert self._tasks is not None
        self._tasks.start_soon(self._guarded, work, args)

    async def _guarded(
        self, work: Callable[..., Awaitable[object]], args: tuple[object, ...]
    ) -> None:
        try:
            await work(*args)
        except Exception:
            logger.exception("background work failed")

    def statistics(self) -> dict[str, int]:
        """Counts for health and tests."""
        budget = self._budget.statistics()
        return {
            "owned": len(self._live),
            "live": budget.used,
            "idle": budget.idle,
            "waiting": budget.waiting,
            "in_flight": sum(s.in_flight for s in self._live.values()),
            "deadlines": len(self._reaper),
        }

    # Creating.

    async def create(
        self,
        principal: Principal,
        *,
        name: str | None = None,
        services: Sequence[str] | None = None,
        state: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        namespace: str = "",
        idle: float | None = None,
        paused: float | None = None,
        lifetime: float | None = None,
    ) -> Session:
        """Make a session and open its eager services (T01 to T03). Durable on return.

        Raises:
            InvalidArgument, NameTaken, SessionLimit: nothing was made.
            ServiceUnavailable: an eager service did not open; the session is closed and no child is left.
        """
        self._refuse_when_draining()
        chosen = self._chosen(services)
        record = self._new_record(principal, name, namespace, metadata, idle, paused, lifetime)
        record.services = [service.name for service in chosen]
        check(state or {}, record.id)
        session = Session(
            record,
            StateRecord(session_id=record.id, value=state or {}),
            store=self._store,
            node=self._node.id,
            clock=self.clock,
        )
        for service in chosen:
            self._bind(session, service)
        eager = [b for b in session.bindings.values() if b.service.eager]
        await self._insert(session)
        try:
            await self._open_eager(session, eager)
        except BaseException as error:
            await self._open_failed(session, error)
            raise
        return session

    def _new_record(
        self,
        principal: Principal,
        name: str | None,
        namespace: str,
        metadata: dict[str, Any] | None,
        idle: float | None,
        paused: float | None,
        lifetime: float | None,
    ) -> SessionRecord:
        now = self.clock.now()
        times = self._timeouts(idle, paused, lifetime)
        if metadata and len(orjson.dumps(metadata)) > METADATA_LIMIT:
            raise InvalidArgument(f"metadata takes more than {METADATA_LIMIT} bytes.")
        return SessionRecord(
            id=self._mint(),
            owner=principal.key,
            namespace=checked_name(namespace, "namespace") if namespace else "",
            name=checked_name(name, "name") if name is not None else None,
            created_at=now,
            used_at=now,
            status_at=now,
            timeouts=times,
            lifetime_ends_at=now + times.lifetime if times.lifetime else None,
            metadata=metadata or {},
            node=self._node.id,
            epoch=1,
        )

    def _timeouts(
        self, idle: float | None, paused: float | None, lifetime: float | None
    ) -> Timeouts:
        wanted = {"idle": idle, "paused": paused, "lifetime": lifetime}
        found: dict[str, float] = {}
        for key, value in wanted.items():
            default, longest = getattr(self.policy.timeouts, key), getattr(self.policy.longest, key)
            if value is None:
                found[key] = default
                continue
            if value < 0 or (longest and (value == 0 or value > longest)):
                raise InvalidArgument(
                    f"{key}_seconds must be from {'1' if longest else '0'} to {longest:g}."
                    if longest
                    else f"{key}_seconds must not be negative."
                )
            found[key] = value
        return Timeouts(**found)

    def _chosen(self, names: Sequence[str] | None) -> list[Service]:
        if names is None:
            return list(self.services.values())
        return [self._service(name) for name in dict.fromkeys(names)]

    def _service(self, name: str) -> Service:
        service = self.services.get(name)
        if service is None:
            known = ", ".join(sorted(self.services)) or "none"
            raise InvalidArgument(f"There is no service {name!r:.100}; configured: {known}.")
        return service

    def _bind(self, session: Session, service: Service) -> Binding:
        record = BindingRecord(
            session_id=session.id, service=service.name, config_hash=service.config_hash
        )
        binding = session.bindings[service.name] = Binding(record, service)
        return binding

    async def _insert(self, session: Session) -> None:
        record = session.record
        try:
            with anyio.CancelScope(shield=True):
                await self._store.create(
                    record,
                    session.state,
                    [b.record for b in session.bindings.values()],
                    per_owner=self.policy.sessions_per_principal,
                )
        except NameTaken as error:
            taken = await self._store.find(record.owner, record.namespace, record.name or "")
            error.session_id = taken.id if taken else None
            raise
        self._keep(session)

    async def _open_eager(self, session: Session, eager: list[Binding]) -> None:
        for binding in eager:
            await self.links.connect(session, binding)
        if session.status is not Status.CREATING:
            raise SessionClosed(
                "The session was closed while it was created.", session_id=session.id
            )
        session.apply(Event.OPENED)
        await session.save(
            bindings=[b.record for b in eager],
            status=Status.IDLE,
            status_at=session.record.status_at,
        )
        self._budget.mark_idle(session.id)
        self._schedule(session)

    async def _open_failed(self, session: Session, error: BaseException) -> None:
        with anyio.CancelScope(shield=True):
            if session.status is Status.CREATING:
                session.apply(Event.OPEN_FAILED, cause=str(error)[:1000])
                session.record.reason = "connect_failed"
                await self.links.close(session, session.bindings.values())
                now = self.clock.now()
                retention = self.policy.retention
                try:
                    await session.save(
                        bindings=[b.record for b in session.bindings.values()],
                        status=Status.CLOSED,
                        status_at=now,
                        reason="connect_failed",
                        closed_at=now,
                        due_at=now + retention if retention else None,
                        node=None,
                    )
                except (SessionError, StoreUnavailable):
                    logger.exception("session %s not recorded as closed", session.id)
                self._forget(session)
        if isinstance(error, SessionError):
            error.session_id = session.id

    # Finding.

    async def find(self, principal: Principal, ref: str, namespace: str = "") -> Session:
        """Return a session as this node's, claiming it when nobody else has it. Its status is left alone.

        `ref` is an id, or a name of the caller's.

        Raises:
            SessionNotFound: unknown, foreign or purged, in the same time.
            SessionExpired, SessionClosed, SessionFailed: it is closed.
            SessionBusy: another process holds it.
        """
        key = self._names.get((principal.key, namespace, ref), ref)
        for _ in range(8):
            session = self._live.get(key)
            if session is not None:
                if session.record.owner != principal.key:
                    # As long as a look for an unknown id takes.
                    await self._store.get(key)
                    raise SessionNotFound
                if session.status in (Status.CLOSING, Status.CLOSED):
                    raise ended(session.record)
                return session
            key = await self._bring(principal, key, namespace)
        raise SessionBusy("The session keeps changing hands.")

    def live(self, principal: Principal, session_id: str) -> Session | None:
        """Return a session that is ready for a call at once, without waiting for anything, else None."""
        session = self._live.get(session_id)
        if session is None or session.record.owner != principal.key or session.changing.locked():
            return None
        return session if session.status in (Status.IDLE, Status.ACTIVE) else None

    async def ready(self, principal: Principal, ref: str, namespace: str = "") -> Session:
        """Return a session that is idle or active, resuming it or waiting for its recovery where that is needed."""
        for _ in range(8):
            self._refuse_when_draining()
            session = await self.find(principal, ref, namespace)
            async with session.changing:
                pass
            if session.gone.is_set() or session.status is Status.CREATING:
                await self._opened_elsewhere(session)
                continue
            if session.status is Status.PAUSED:
                if not self.policy.auto_resume:
                    raise SessionPaused("The session is paused.", session_id=session.id)
                await self.changes.resume(session, cause="call")
            await self.steady(session)
            if session.status in (Status.IDLE, Status.ACTIVE):
                return session
        raise SessionBusy("The session keeps changing.", session_id=None)

    async def _opened_elsewhere(self, session: Session) -> None:
        if session.status is Status.CREATING and not session.gone.is_set():
            raise SessionBusy("The session is still being created.", session_id=session.id)

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

    async def _bring(self, principal: Principal, ref: str, namespace: str) -> str:
        """Make a stored session this node's; return its id."""
        record = await self._stored(principal, ref, namespace)
        if record.status is Status.CLOSED:
            raise ended(record)
        waiting = self._claiming.get(record.id)
        if waiting is not None:
            await waiting.wait()
            return record.id
        done = self._claiming[record.id] = anyio.Event()
        try:
            with anyio.CancelScope(shield=True):
                await self._claim(record)
        finally:
            del self._claiming[record.id]
            done.set()
        return record.id

    async def _stored(self, principal: Principal, ref: str, namespace: str) -> SessionRecord:
        record = await self._store.get(ref)
        if record is None and not ref.startswith(ID_PREFIX):
            record = await self._store.find(principal.key, namespace, ref)
        if record is None or record.owner != principal.key:
            raise SessionNotFound
        return record

    async def _claim(self, record: SessionRecord) -> None:
        if record.id in self._live:
            return
        loaded = await self._store.claim(record.id, self._node.id, self.clock.now())
        if loaded is None:
            if await self._node.recover(self.clock.now()):
                return
            fresh = await self._store.get(record.id)
            if fresh is None or fresh.status in (Status.CLOSED, Status.CLOSING):
                return
            raise SessionBusy(
                f"The session is open in another process ({await self._node.address(fresh.node)}).",
                session_id=record.id,
                recovery="Use it there, or close that process; then try again.",
            )
        session = Session(
            loaded.session,
            loaded.state,
            store=self._store,
            node=self._node.id,
            clock=self.clock,
            last_seq=loaded.last_seq,
        )
        for binding in loaded.bindings:
            service = self.services.get(binding.service)
            if service is not None:
                session.bindings[binding.service] = Binding(binding, service)
        if session.status in (Status.IDLE, Status.ERROR):
            session.apply(Event.ADOPTED, cause="server_restart")
            _mark_lost(session)
        self._keep(session)

    # Reading: never claims, never touches a clock.

    async def info(self, principal: Principal, ref: str, namespace: str = "") -> dict[str, Any]:
        """Return everything a caller may know of one of its sessions, open or closed."""
        key = self._names.get((principal.key, namespace, ref), ref)
        session = self._live.get(key)
        if session is not None and session.record.owner == principal.key:
            return session.info()
        record = await self._stored(principal, key, namespace)
        if (session := self._live.get(record.id)) is not None:
            return session.info()
        bindings = await self._store.bindings(record.id)
        state = await self._store.state(record.id)
        found = describe(record, record.status, record.used_at)
        found["in_flight"] = 0
        found["generation"] = max((b.generation for b in bindings), default=0)
        found["state_version"] = state.version if state else 0
        found["services"] = [describe_binding(b) for b in bindings]
        return found

    async def list(
        self, principal: Principal, wanted: SessionFilter
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return a page of the caller's sessions, most recently used first, and the cursor of the next page."""
        wanted = wanted.model_copy(update={"owner": principal.key})
        records, cursor = await self._store.list_sessions(wanted)
        found: list[dict[str, Any]] = []
        for record in records:
            session = self._live.get(record.id)
            found.append(
                describe(session.record, session.status, session.idle_since)
                if session is not None
                else describe(record, record.status, record.used_at)
            )
        return found, cursor

    # Changing.

    async def pause(self, principal: Principal, ref: str, *, cause: str = "requested") -> Session:
        """Pause a session (T08); pausing a paused one does nothing.

        Raises:
            SessionBusy: calls are in flight.
        """
        session = await self.find(principal, ref)
        if not await self.changes.pause(session, Event.PAUSE_REQUESTED, cause=cause):
            raise busy(session)
        return session

    async def resume(self, principal: Principal, ref: str) -> Session:
        """Resume a session (T09) and open again what was open; what came back is in each binding's notice."""
        session = await self.find(principal, ref)
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
        try:
            session = await self.find(principal, ref)
        except (SessionClosed, SessionExpired, SessionFailed):
            closing = self._live.get(ref)
            if closing is None or closing.record.owner != principal.key:
                return await self.info(principal, ref), True
            session = closing
        event = Event.CLOSE_FORCED if force else Event.CLOSE_REQUESTED
        await self.changes.close(session, event, reason=reason, force=force)
        return session.info(), False

    async def extend(self, principal: Principal, ref: str, seconds: float) -> Session:
        """Move the end of a session's lifetime by `seconds`, at most to the longest lifetime from now.

        A session without an end stays without. Negative seconds shorten it.
        """
        session = await self.find(principal, ref)
        end = session.record.lifetime_ends_at
        if end is not None:
            longest = self.policy.longest.lifetime or self.policy.timeouts.lifetime
            now = self.clock.now()
            end = max(now, min(end + seconds, now + longest) if longest else end + seconds)
            await session.save(lifetime_ends_at=end, **self._due(session, end))
            self._schedule(session)
        return session

    def _due(self, session: Session, end: float) -> dict[str, Any]:
        if session.status is not Status.PAUSED:
            return {}
        return {"due_at": min(end, session.record.due_at or end)}

    async def restart(
        self, principal: Principal, ref: str, services: Sequence[str] | None = None
    ) -> Session:
        """Replace the live connections of a session by fresh ones (T15 when it was in error).

        Raises:
            SessionBusy: calls are in flight.
        """
        session = await self.find(principal, ref)
        if session.status is Status.PAUSED:
            await self.changes.resume(session, cause="restart")
        async with session.changing:
            if session.in_flight:
                raise busy(session)
            wanted = [self._bound(session, name) for name in services or session.bindings]
            started = [b for b in wanted if services or b.record.generation or b.live]
            await self.links.restart(session, started)
            if session.status is Status.ERROR:
                await self.links.recovered(session, cause="restart")
        self._budget.mark_idle(session.id)
        return session

    async def rename(self, principal: Principal, ref: str, name: str | None) -> Session:
        """Give a session another name, or none.

        Raises:
            NameTaken: another open session of the caller has it.
        """
        name = checked_name(name, "name") if name is not None else None
        session = await self.find(principal, ref)
        self._unname(session)
        try:
            await session.save(name=name)
        finally:
            self._name(session)
        return session

    async def bind(self, principal: Principal, ref: str, service: str) -> Session:
        """Have a session use a service; binding it twice does nothing."""
        found = self._service(service)
        session = await self.ready(principal, ref)
        async with session.changing:
            if service not in session.bindings:
                binding = self._bind(session, found)
                services = [*session.record.services, service]
                await session.save(bindings=[binding.record], services=services)
        binding = session.bindings[service]
        if found.eager:
            await self.links.connect(session, binding)
        return session

    async def unbind(self, principal: Principal, ref: str, service: str) -> Session:
        """End a session's use of a service: its connection is closed and its snapshots are deleted."""
        self._service(service)
        session = await self.find(principal, ref)
        async with session.changing:
            binding = session.bindings.get(service)
            if binding is not None:
                if session.in_flight:
                    raise busy(session)
                del session.bindings[service]
                services = [name for name in session.record.services if name != service]
                await self.links.close(session, [binding])
                await session.save(unbind=[service], services=services)
        return session

    def _bound(self, session: Session, name: str) -> Binding:
        self._service(name)
        binding = session.bindings.get(name)
        if binding is None:
            raise ServiceNotBound(
                f"The session does not use the service {name}.", session_id=session.id
            )
        return binding

    async def update_state(
        self,
        principal: Principal,
        ref: str,
        values: dict[str, Any],
        *,
        mode: Mode = "merge",
        if_version: int | None = None,
    ) -> StateRecord:
        """Change the state of a session (T06). The new version is durable on return.

        Raises:
            StateConflict, StateInvalid: nothing was changed.
        """
        session = await self.ready(principal, ref)
        state = updated(session.state, values, mode=mode, if_version=if_version)
        before, session.state = session.state, state
        session.apply(Event.STATE_UPDATED)
        try:
            await session.save(state=state)
        except BaseException:
            if session.state is state:
                session.state = before
            raise
        return state

    # Calls, for the router.

    def begin(self, session: Session) -> None:
        """Count a call in (T04). Synchronous: the session cannot change between the look and this."""
        if session.in_flight >= self.policy.calls_per_session:
            raise busy(session)
        if session.in_flight == 0:
            session.quiet = anyio.Event()
            self._budget.mark_busy(session.id)
        session.in_flight += 1
        if session.status is Status.IDLE:
            session.apply(Event.CALL_ADMITTED)

    def settle(self, session: Session) -> None:
        """Count a call out (T05). The idle clock starts with the last one."""
        session.in_flight -= 1
        if session.in_flight:
            return
        session.quiet.set()
        now = self.clock.now()
        session.idle_since = now
        if session.status is Status.ACTIVE:
            session.apply(Event.CALLS_SETTLED)
            self._budget.mark_idle(session.id)
            self._schedule(session)
        if now - session.used_saved_at > 60.0 and session.status in OPEN:
            session.used_saved_at = now
            self.spawn(self._save_used, session, now)

    async def _save_used(self, session: Session, now: float) -> None:
        if not session.gone.is_set():
            await session.save(used_at=now)

    # What happens by itself.

    def _on_due(self, key: str) -> float | None:
        if key == _STORED:
            self.spawn(self._sweep)
            return None
        session = self._live.get(key)
        if session is None:
            return None
        when, now = session.deadline(), self.clock.now()
        if when is None or when > now:
            return when
        self.spawn(self._expire, session, now)
        return None

    async def _expire(self, session: Session, now: float) -> None:
        end = session.record.lifetime_ends_at
        if end is not None and end <= now:
            await self.changes.close(session, Event.LIFETIME_OVER, reason="lifetime")
        elif session.status is Status.PAUSED:
            await self.changes.close(session, Event.PAUSED_TIMED_OUT, reason="paused_timeout")
        elif session.status is Status.IDLE and self.policy.on_idle == "close":
            await self.changes.close(session, Event.IDLE_EXPIRED, reason="idle_timeout")
        elif session.status is Status.IDLE:
            await self.changes.pause(session, Event.IDLE_TIMED_OUT, cause="idle_timeout")
        if session.id in self._live:
            # Whatever stood in the way, look again: soon, but never in a loop.
            when = session.deadline()
            self._reaper.schedule(session.id, max(when, now + 1.0) if when else None)

    async def _sweep(self) -> None:
        """Close and purge what only the store knows (T10, T17, T19), and look again when the next is due."""
        now = self.clock.now()
        try:
            await self._node.recover(now)
            for record in await self._store.due(now):
                await self._sweep_one(record, now)
            when = await self._store.next_due()
        finally:
            # At least once a minute: another process may have died or paused something.
            later = now + 60.0
            self._reaper.schedule(_STORED, later)
        if when is not None:
            self._reaper.schedule(_STORED, max(when, now + 1.0))

    async def _sweep_one(self, record: SessionRecord, now: float) -> None:
        if record.status is Status.CLOSED:
            if await self._store.purge(record.id):
                self._purged(record.id)
            return
        done = self._claiming[record.id] = anyio.Event()
        try:
            await self._claim(record)
        except SessionBusy:
            return
        finally:
            self._claiming.pop(record.id, None)
            done.set()
        session = self._live.get(record.id)
        if session is not None and (session.deadline() or now + 1) <= now:
            await self._expire(session, now)

    def _purged(self, session_id: str) -> None:
        for tell in self.on_purged:
            tell(session_id)

    async def purge(self, principal: Principal, ref: str) -> None:
        """Delete everything of a closed session (T19).

        Raises:
            SessionBusy: it is still open.
        """
        record = await self._stored(principal, ref, "")
        if not await self._store.purge(record.id):
            raise SessionBusy("The session is still open.", session_id=record.id)
        self._purged(record.id)

    def _make_room(self, session_id: str) -> None:
        self.spawn(self._give_way, session_id)

    async def _give_way(self, session_id: str) -> None:
        session = self._live.get(session_id)
        done = session is not None and await self.changes.pause(
            session, Event.PAUSE_REQUESTED, cause="live_budget", release=True
        )
        if not done:
            self._budget.stays(session_id)

    def _recovery_failed(self, session: Session) -> None:
        self.spawn(self._close_failed, session)

    async def _close_failed(self, session: Session) -> None:
        await self.changes.close(session, Event.RECOVERY_FAILED, reason="error")

    # Membership.

    def _keep(self, session: Session) -> None:
        self._live[session.id] = session
        self._name(session)
        self._schedule(session)

    def _forget(self, session: Session) -> None:
        if self._live.pop(session.id, None) is not None:
            self._unname(session)
        self._budget.release(session.id)
        self._reaper.forget(session.id)
        if session.record.due_at is not None:
            self._reaper.schedule(_STORED, session.record.due_at)
        session.steady.set()
        session.gone.set()

    def _name(self, session: Session) -> None:
        record = session.record
        if record.name is not None:
            self._names[record.owner, record.namespace, record.name] = record.id

    def _unname(self, session: Session) -> None:
        record = session.record
        if record.name is not None:
            self._names.pop((record.owner, record.namespace, record.name), None)

    def _schedule(self, session: Session) -> None:
        self._reaper.schedule(session.id, session.deadline())

    def _refuse_when_draining(self) -> None:
        if self.draining:
            raise ServiceUnavailable("The server is shutting down.")


def checked_name(name: str, what: str) -> str:
    """Return a name as it may be stored.

    Raises:
        InvalidArgument: it is empty, longer than 128 characters, has a slash or a control character, is `.` or `..`, or
            looks like an id.
    """
    name = unicodedata.normalize("NFC", name)
    if not _NAME.fullmatch(name) or name in (".", "..") or name.startswith(ID_PREFIX):
        raise InvalidArgument(
            f"{what} must have 1 to 128 characters without slashes or control characters, "
            f"and not start with {ID_PREFIX!r}."
        )
    return name


def ended(record: SessionRecord) -> SessionError:
    """Return the error that a closed or closing session answers with, by the reason it was closed for."""
    if record.reason in ("idle_timeout", "paused_timeout", "lifetime"):
        return SessionExpired(f"The session expired ({record.reason}).", session_id=record.id)
    if record.reason in ("error", "connect_failed"):
        return SessionFailed(
            f"The session was closed after a failure ({record.reason}).",
            session_id=record.id,
            recovery="Call session_create to make a new session.",
        )
    return SessionClosed("The session is closed.", session_id=record.id)


def _mark_lost(session: Session) -> None:
    for binding in session.bindings.values():
        if binding.record.status in (BindingStatus.OPEN, BindingStatus.KEPT):
            binding.changed(status=BindingStatus.LOST, last_error="the server was restarted")


__all__ = ["ID_PREFIX", "Registry", "checked_name", "ended", "new_id"]
