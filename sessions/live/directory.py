"""The sessions this node owns, and claiming those it does not own yet."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final

import anyio

from ..cluster.placement import is_placed_here
from ..core import Core
from ..errors import (
    HumanInControl,
    OwnedByAnotherNode,
    SessionBusy,
    SessionClosed,
    SessionError,
    SessionExpired,
    SessionFailed,
    SessionNotFound,
    StoreUnavailable,
)
from ..ids import ID_PREFIX
from ..lifecycle import LIVE, OPEN, Event, Status
from ..owned_map import OwnedMap
from ..records import (
    BindingStatus,
    Principal,
    SessionDriver,
    SessionFilter,
    SessionRecord,
    StateRecord,
)
from ..store.base import RESTARTED
from ..times import format_duration, timestamp
from ..views import describe, describe_binding
from .binding import Binding
from .control_lease import due_end, ended_lease, is_driven
from .quota import Quota
from .session import LiveSession

MAX_KNOWN_OWNERS = 10_000
"""Sessions of other nodes whose owner is remembered."""

STORED = ""
"""Key in Deadlines for the due times that only the store knows."""


class Directory:
    """The sessions in memory by id and by name, backed by those in the store.

    A session is here while this node owns it. A lookup checks the owner: a foreign session does not exist. A stored session
    is claimed once, however many tasks look for it at the same time.
    """

    def __init__(self, core: Core, on_fenced: Callable[[LiveSession], None], quota: Quota) -> None:
        self._core = core
        self._on_fenced = on_fenced
        self._quota = quota
        self._closes_idle = core.policy.on_idle == "close"
        self.draining = False
        """Set when the process ends, or an operator has the node drain: new work is refused, or left to other nodes."""
        self.on_purged: list[Callable[[str], None]] = []
        """Called with the id of a session when nothing of it is left."""
        self.on_kept: list[Callable[[LiveSession], None]] = []
        """Called with a session that this node holds from now on. They must not block."""
        self._live: dict[str, LiveSession] = {}
        self._names: dict[tuple[str, str, str], str] = {}
        self._claiming: dict[str, anyio.Event] = {}
        self._owners = OwnedMap[str, tuple[str, str, int]](MAX_KNOWN_OWNERS)
        """The owning principal, node and epoch of sessions of other nodes, as the store had them last. It may be out
        of date: the node refuses requests for a session that it does not own any more."""

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[LiveSession]:
        return iter(list(self._live.values()))

    def get(self, session_id: str) -> LiveSession | None:
        """Return a session of this node, without a check of its owner."""
        return self._live.get(session_id)

    def _owned(self, principal: Principal, session_id: str) -> LiveSession | None:
        """Return a session of this node if it belongs to the caller."""
        session = self._live.get(session_id)
        return session if session is not None and session.record.owner == principal.key else None

    def new_session(
        self, record: SessionRecord, state: StateRecord, *, last_seq: int = 0
    ) -> LiveSession:
        """Return the session of a record, for keep() once this node owns it in the store."""
        return LiveSession(
            record,
            state,
            store=self._core.store,
            node=self._core.node.id,
            clock=self._core.clock,
            last_seq=last_seq,
            redactor=self._core.redactor,
            quota=self._quota,
            closes_idle=self._closes_idle,
            metrics=self._core.metrics,
            on_deadline=self.schedule,
            on_fenced=self._on_fenced,
        )

    def keep(self, session: LiveSession) -> None:
        self._live[session.id] = session
        self.name(session)
        self.schedule(session)
        for report in self.on_kept:
            report(session)

    def forget(self, session: LiveSession) -> None:
        """Drop a session from memory: it is closed, paused without a live connection, or another node's."""
        # The same session may have been claimed anew under this id.
        if self._live.get(session.id) is session:
            del self._live[session.id]
            self.unname(session)
            self._core.budget.release(session.id)
            self._core.deadlines.forget(session.id)
        self._core.deadlines.schedule(STORED, session.record.due_at)
        session.creation_ended.set()
        session.ownership_ended.set()

    def schedule(self, session: LiveSession) -> None:
        self._core.deadlines.schedule(session.id, session.deadline())

    def name(self, session: LiveSession) -> None:
        record = session.record
        if record.name is not None:
            self._names[record.owner, record.namespace, record.name] = record.id

    def unname(self, session: LiveSession) -> None:
        record = session.record
        if record.name is not None:
            self._names.pop((record.owner, record.namespace, record.name), None)

    def ready(self, principal: Principal, session_id: str) -> LiveSession | None:
        """Return a session that takes a call at once, without waiting; None when it does not."""
        session = self._live.get(session_id)
        if session is None or session.record.owner != principal.key or self.draining:
            return None
        is_ready = session.status in LIVE and not session.changing.locked() and not session.fenced
        return session if is_ready and self._core.node.may_act() else None

    async def find(
        self, principal: Principal, ref: str, namespace: str | None = None
    ) -> LiveSession:
        """Return a session that this node owns; claim it if no other process holds it. It is not resumed.

        `ref` is an id, or a name of the caller's.

        Raises:
            SessionNotFound: unknown, foreign or purged; each takes the same time.
            SessionExpired, SessionClosed, SessionFailed: it is closed.
            OwnedByAnotherNode: another process holds it.
            NodeSuspended: the lease of this node is over.
        """
        self._core.node.require_lease()
        key = self._key(principal, ref, namespace)
        for _ in range(8):
            session = self._owned(principal, key)
            if session is None:
                # A foreign session is looked for in the store as an unknown one is.
                key = await self._claim_by_ref(principal, key, namespace)
                continue
            if session.ends:
                raise closed_error(session.record)
            if session.fenced:
                raise SessionBusy("Another process took the session over.", session_id=session.id)
            return session
        raise SessionBusy("The session keeps changing hands.")

    def find_here(
        self, principal: Principal, ref: str, namespace: str | None = None
    ) -> LiveSession | None:
        """Return a session that this node owns, in any status; None when it owns none of that id or name."""
        return self._owned(principal, self._key(principal, ref, namespace))

    def _key(self, principal: Principal, ref: str, namespace: str | None) -> str:
        """Return the id that a name stands for in memory, else `ref` itself."""
        name = unicodedata.normalize("NFC", ref)
        return self._names.get((principal.key, self._namespace(namespace), name), ref)

    def _namespace(self, namespace: str | None) -> str:
        return self._core.policy.namespace if namespace is None else namespace

    async def find_record(
        self, principal: Principal, ref: str, namespace: str | None = None
    ) -> SessionRecord:
        """Return the stored record of a session of the caller's; of a name, the open session or the one closed last.

        Raises:
            SessionNotFound: unknown, foreign or purged; each takes the same time.
        """
        record = await self._core.store.get(ref, principal.key)
        if record is None and not ref.startswith(ID_PREFIX):
            name, space = unicodedata.normalize("NFC", ref), self._namespace(namespace)
            record = await self._core.store.find(principal.key, space, name)
            if record is None:
                record = await self._core.store.find_closed(principal.key, space, name)
        if record is None:
            raise SessionNotFound
        return record

    async def _claim_by_ref(self, principal: Principal, ref: str, namespace: str | None) -> str:
        """Claim a stored session for this node and return its id."""
        owner_key, owner_node, epoch = self._owners.get(ref) or ("", "", 0)
        if owner_key == principal.key and self._core.node.lives(owner_node):
            raise OwnedByAnotherNode(ref, owner_node, epoch=epoch)
        record = await self.find_record(principal, ref, namespace)
        if record.status is Status.CLOSED:
            raise closed_error(record)
        node = self._core.node
        if record.node not in (None, node.id) and node.lives(record.node):
            # Its owner lives: a claim, which writes, would be refused.
            raise self._owned_by(record, record.node, record.epoch)
        if record.node is None or node.is_draining:
            node.require_place(record.id, record.epoch)
        await self.claim(record)
        return record.id

    async def wait_claimed(self) -> None:
        """Wait for the claims and creations that are under way."""
        for released in list(self._claiming.values()):
            await released.wait()

    @contextmanager
    def reserve(self, session_id: str) -> Generator[None]:
        """Keep other tasks from claiming a session while this task inserts or claims it."""
        released = self._claiming[session_id] = anyio.Event()
        try:
            yield
        finally:
            del self._claiming[session_id]
            released.set()

    async def claim(self, record: SessionRecord) -> None:
        """Claim a stored session for this node, or wait for a claim that is under way. The caller looks again afterwards.

        This is no use of the session: a call, a resume or a change of its state is.

        Raises:
            OwnedByAnotherNode: another process holds it.
        """
        running_claim = self._claiming.get(record.id)
        if running_claim is not None:
            await running_claim.wait()
            return
        with self.reserve(record.id), anyio.CancelScope(shield=True):
            await self._claim(record)

    async def _claim(self, record: SessionRecord) -> None:
        if record.id in self._live:
            return
        claimed = await self._core.store.claim(
            record.id, self._core.node.id, self._core.clock.now()
        )
        if claimed is None:
            await self._raise_claim_refusal(record)
            return
        control, now = claimed.session.control, self._core.clock.now()
        end = due_end(claimed.session, now)
        if control.driver is SessionDriver.HUMAN and end is not None:
            # Stored with the next change of the lease, or with its notice.
            claimed.session.control = ended_lease(control, now, end, None, ())
        session = self.new_session(claimed.session, claimed.state, last_seq=claimed.last_seq)
        for binding in claimed.bindings:
            service = self._core.services.get(binding.service)
            if service is not None:
                session.bindings[binding.service] = Binding(binding, service)
        if session.status in (Status.IDLE, Status.ERROR):
            session.apply(Event.ADOPTED, cause="server_restart")
            _mark_lost(session)
        self.keep(session)

    async def purge(self, session_id: str) -> bool:
        """Delete all data of a closed session. Return False when it is open or gone."""
        if not await self._core.store.purge(session_id):
            return False
        for tell in self.on_purged:
            tell(session_id)
        return True

    async def _raise_claim_refusal(self, record: SessionRecord) -> None:
        """Raise the reason why a claim was refused, or return when another try may succeed."""
        if await self._core.node.recover():
            return
        fresh = await self._core.store.get(record.id)
        if fresh is None or fresh.node is None or fresh.status is Status.CLOSED:
            return
        address = await self._where(fresh.node)
        raise self._owned_by(record, fresh.node, fresh.epoch, address)

    def _owned_by(
        self, record: SessionRecord, node: str, epoch: int, address: str | None = None
    ) -> OwnedByAnotherNode | HumanInControl:
        """Return the error for a session of another node, and remember that node."""
        if is_driven(record, self._core.clock.now()):
            return HumanInControl(record.id, record.control.reason or "")
        self._owners.put(record.owner, record.id, (record.owner, node, epoch))
        return OwnedByAnotherNode(record.id, node, address, epoch=epoch)

    def forget_owner(self, session_id: str) -> None:
        """Look for the owner of a session in the store again: the node that was known does not own it any more."""
        self._owners.pop(session_id)

    async def _where(self, node: str) -> str:
        for record in await self._core.store.nodes():
            if record.id == node:
                return record.address
        return "which is ending"

    # Reading: never claims, never touches a clock.

    async def info(
        self, principal: Principal, ref: str, namespace: str | None = None
    ) -> dict[str, Any]:
        """Return everything a caller may know of one of its sessions, open or closed."""
        key = self._key(principal, ref, namespace)
        session = self._owned(principal, key)
        if session is not None:
            return session.info()
        return await self._describe(await self.find_record(principal, key, namespace))

    async def _describe(self, record: SessionRecord) -> dict[str, Any]:
        if (session := self._live.get(record.id)) is not None:
            return session.info()
        bindings = await self._core.store.bindings(record.id)
        state = await self._core.store.state(record.id)
        fields = describe(record, record.status, record.used_at, closes_idle=self._closes_idle)
        fields["in_flight"] = 0
        fields["generation"] = max((b.generation for b in bindings), default=0)
        fields["state_version"] = state.version if state else 0
        fields["services"] = [describe_binding(b) for b in bindings]
        return fields

    async def info_of_owner(
        self, principal: Principal, ref: str, namespace: str | None = None
    ) -> dict[str, Any]:
        """Return the same as info(), from the node that owns the session: only that node knows what runs in it.

        Raises:
            OwnedByAnotherNode: another node owns it. It is not raised in a block of place_here().
        """
        key = self._key(principal, ref, namespace)
        session = self._owned(principal, key)
        if session is not None:
            return session.info()
        record = await self.find_record(principal, key, namespace)
        asks = self._core.node.forwards and not is_placed_here()
        if asks and record.node not in (None, self._core.node.id):
            raise OwnedByAnotherNode(record.id, record.node, epoch=record.epoch, adopt=True)
        return await self._describe(record)

    async def state(
        self,
        principal: Principal,
        ref: str,
        namespace: str | None = None,
        *,
        open_only: bool = False,
    ) -> StateRecord:
        """Return the last durable state of a session, in this or another process. The caller must not change it.

        Raises:
            SessionNotFound: unknown, foreign or purged.
            SessionExpired, SessionClosed, SessionFailed: it is closed, with `open_only`.
        """
        key = self._key(principal, ref, namespace)
        session = self._owned(principal, key)
        if session is None:
            record = await self.find_record(principal, key, namespace)
            session = self._live.get(record.id)
            if open_only and session is None and record.status in (Status.CLOSING, Status.CLOSED):
                raise closed_error(record)
            key = record.id
        if open_only and session is not None and session.ends:
            raise closed_error(session.record)
        if session is not None and not session.fenced:
            return session.durable_state
        state = await self._core.store.state(key)
        if state is None:
            raise SessionNotFound
        return state

    async def page(
        self, principal: Principal, session_filter: SessionFilter
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return a page of the caller's sessions, most recently used first, and the cursor of the next page."""
        statuses = session_filter.statuses
        await self._save_use(principal)
        # Only the owner knows that a session is active: the store calls it idle.
        stored_statuses = {Status.IDLE if s is Status.ACTIVE else s for s in statuses or ()}
        records, cursor = await self._core.store.list_sessions(
            session_filter.model_copy(
                update={
                    "owner": principal.key,
                    "statuses": sorted(stored_statuses) if statuses else None,
                }
            )
        )
        descriptions: list[dict[str, Any]] = []
        for record in records:
            session = self._live.get(record.id)
            status = record.status if session is None else session.status
            if not statuses or status in statuses:
                shown_record, used_at = (
                    (record, record.used_at)
                    if session is None
                    else (session.record, session.idle_since)
                )
                descriptions.append(
                    describe(shown_record, status, used_at, closes_idle=self._closes_idle)
                )
        return descriptions, cursor

    async def _save_use(self, principal: Principal) -> None:
        """Store when the sessions in memory were used last, since lists are sorted and filtered by it."""
        async with anyio.create_task_group() as tasks:
            for session in self:
                was_used = session.idle_since > session.record.used_at
                if was_used and session.record.owner == principal.key and session.status in OPEN:
                    tasks.start_soon(_save_use_of, session)


async def _save_use_of(session: LiveSession) -> None:
    try:
        await session.save(used_at=session.idle_since)
    except (SessionError, StoreUnavailable):
        # Another process owns it by now, or the list itself fails as well.
        return


def closed_error(record: SessionRecord) -> SessionError:
    """Return the error for a closed or closing session, by the reason it was closed for."""
    if record.reason in _EXPIRIES:
        return SessionExpired(_describe_expiry(record, record.reason), session_id=record.id)
    if record.reason in ("error", "connect_failed"):
        return SessionFailed(
            f"The session was closed after a failure ({record.reason}).",
            session_id=record.id,
            recovery="Call session_create to make a new session.",
        )
    return SessionClosed("The session is closed.", session_id=record.id)


_EXPIRIES: Final = {
    "idle_timeout": ("idle", "it was not used for {}"),
    "paused_timeout": ("paused", "it was paused and not used for {}"),
    "lifetime": ("lifetime", "its lifetime of {} was over"),
}
"""The reasons of sessions that one of their timeouts closed: the timeout, and the words for it."""


def _describe_expiry(record: SessionRecord, reason: str) -> str:
    """Return when and why a session expired, and how long its state can be read."""
    name, cause = _EXPIRIES[reason]
    words = cause.format(format_duration(getattr(record.timeouts, name)))
    if record.closed_at is None:
        return f"The session expired ({reason}): {words}."
    purged_at = f" until {timestamp(record.due_at)}" if record.due_at else ""
    return (
        f"The session expired at {timestamp(record.closed_at)} ({reason}): {words}. "
        f"Its state and history can be read{purged_at}."
    )


def _mark_lost(session: LiveSession) -> None:
    for binding in session.bindings.values():
        if binding.record.status in (BindingStatus.OPEN, BindingStatus.KEPT):
            binding.update(status=BindingStatus.LOST, last_error=RESTARTED)
