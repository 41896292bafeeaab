"""Creating sessions: the options a caller has, and the steps to idle (T01 to T03)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from ..core import Core
from ..errors import (
    InvalidArgument,
    NameTaken,
    ServiceNotBound,
    ServiceUnavailable,
    SessionClosed,
    SessionError,
    StoreUnavailable,
)
from ..lifecycle import Event, Status
from ..live.binding import Binding
from ..live.connector import Connector
from ..live.directory import Directory
from ..live.quota import Quota
from ..live.session import LiveSession
from ..policy import Policy
from ..principals.rates import service_refused
from ..records import (
    BindingRecord,
    Principal,
    SessionRecord,
    SnapshotRecord,
    StateRecord,
    Timeouts,
)
from ..services import Service
from ..state.patch import copy_json, size_of, validate_state
from ..state.state_schema import check_schema, check_value
from ..validation import validate_labels, validate_metadata, validate_name
from ..wording import did_you_mean
from .close import Closing

if TYPE_CHECKING:
    from ..calls.receipts import Operation

logger = logging.getLogger("statehold.sessions")

ROW_BYTES: Final = 1000
"""Approximate bytes of a session besides its state."""


@dataclass(frozen=True, slots=True)
class CreationOptions:
    """Options of a new session. Times are seconds; None takes the configured default."""

    name: str | None = None
    services: Sequence[str] | None = None
    state: dict[str, Any] | None = None
    state_schema: dict[str, Any] | None = None
    """A JSON Schema that the state must fit, now and after each update."""
    metadata: dict[str, Any] | None = None
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Values of LABELS."""
    namespace: str = ""
    idle: float | None = None
    paused: float | None = None
    lifetime: float | None = None
    operation: Operation | None = None
    """The operation that creates the session, which keeps its receipt."""


@dataclass(frozen=True, slots=True)
class ForkSource:
    """Source of a forked session: the parent's id, and the saved connections by service."""

    parent: str
    snapshots: Mapping[str, bytes]


class Creation:
    """Creates the sessions of one registry; it lives as long as the registry."""

    def __init__(
        self,
        core: Core,
        directory: Directory,
        connector: Connector,
        closing: Closing,
        quota: Quota,
    ) -> None:
        self._core = core
        self._directory = directory
        self._connector = connector
        self._closing = closing
        self._quota = quota

    async def create(
        self, principal: Principal, options: CreationOptions, source: ForkSource | None = None
    ) -> LiveSession:
        """Create a session and open its eager services; see Registry.create."""
        limits = self._core.limits.of(principal.key)
        services = self._services_of(principal.key, options.services)
        record = new_record(
            options,
            limits.shorten(timeouts_of(self._core.policy, options)),
            session_id=self._core.new_id(),
            owner=principal.key,
            node=self._core.node.id,
            now=self._core.clock.now(),
        )
        record.parent = None if source is None else source.parent
        record.services = [service.name for service in services]
        session = self._directory.new_session(
            record,
            await state_of(
                record.id,
                record.owner,
                options.state or {},
                options.state_schema,
                self._core.policy.state_bytes,
            ),
        )
        for service in services:
            self.bind(session, service)
        copied_bytes = 0 if source is None else sum(map(len, source.snapshots.values()))
        growth = ROW_BYTES + size_of(session.state.value) + copied_bytes
        growth += size_of(record.metadata) + size_of(session.state.json_schema)
        self._quota.admit(record.owner, growth)
        try:
            await self._insert(session, options.operation)
        except BaseException:
            self._quota.admit(record.owner, -growth)
            raise
        try:
            if source is not None:
                # The write counts them, too.
                self._quota.admit(record.owner, -copied_bytes)
                await session.save(snapshots=self._copied_snapshots(session, source))
            await self._open(session, is_fork=source is not None)
        except BaseException as error:
            await self._open_failed(session, error)
            raise
        return session

    def _services_of(self, owner: str, names: Sequence[str] | None) -> list[Service]:
        if names is None:
            limits = self._core.limits.of(owner)
            return [s for name, s in self._core.services.items() if limits.allows_service(name)]
        services = [self.service(name) for name in dict.fromkeys(names)]
        for service in services:
            self.require_allowed(owner, service.name)
        return services

    def require_allowed(self, owner: str, service: str) -> None:
        """Check that a principal may use a service.

        Raises:
            NotAllowed: a policy forbids it.
        """
        limits = self._core.limits.of(owner)
        if not limits.allows_service(service):
            raise service_refused(limits, service)

    def service(self, name: str) -> Service:
        """Return a configured service.

        Raises:
            InvalidArgument: no service of that name is configured.
        """
        service = self._core.services.get(name)
        if service is None:
            configured = ", ".join(sorted(self._core.services)) or "none"
            hint = did_you_mean(name, self._core.services)
            raise InvalidArgument(
                f"There is no service {name!r:.100}; configured: {configured}.{hint}"
            )
        return service

    def require_binding(self, session: LiveSession, name: str) -> Binding:
        """Return the binding of a session to a service.

        Raises:
            ServiceNotBound: the session does not use the service.
        """
        self.service(name)
        binding = session.bindings.get(name)
        if binding is None:
            raise ServiceNotBound(
                f"The session does not use the service {name}.",
                session_id=session.id,
                recovery=f"Call session_bind with this session_id and service={name}.",
            )
        return binding

    def bind(self, session: LiveSession, service: Service) -> Binding:
        """Bind a service to a session, in memory only."""
        record = BindingRecord(
            session_id=session.id, service=service.name, config_hash=service.config_hash
        )
        binding = session.bindings[service.name] = Binding(record, service)
        return binding

    async def _insert(self, session: LiveSession, operation: Operation | None) -> None:
        record = session.record
        receipt = operation and operation.start(record.id, record.created_at)
        limits = self._core.limits.of(record.owner)
        try:
            with self._directory.reserve(record.id), anyio.CancelScope(shield=True):
                await self._core.store.create(
                    record,
                    session.state,
                    [b.record for b in session.bindings.values()],
                    per_owner=limits.sessions,
                    limit_name=limits.name("sessions"),
                    receipt=receipt,
                )
                if operation is not None:
                    operation.start_receipt = receipt
                self._directory.keep(session)
        except NameTaken as error:
            holder = await self._core.store.find(record.owner, record.namespace, record.name or "")
            error.session_id = holder.id if holder else None
            raise

    def _copied_snapshots(self, session: LiveSession, source: ForkSource) -> list[SnapshotRecord]:
        now = self._core.clock.now()
        return [
            SnapshotRecord(
                session_id=session.id,
                service=service,
                seq=int(now * 1000),
                taken_at=now,
                epoch=session.record.epoch,
                data=data,
            )
            for service, data in source.snapshots.items()
        ]

    async def _open(self, session: LiveSession, *, is_fork: bool) -> None:
        eager = [b for b in session.bindings.values() if b.service.eager]
        for binding in eager:
            try:
                await self._connector.connect(session, binding)
            except ServiceUnavailable:
                # A fork has the state of its parent, which needs no service. Its first call tries again.
                if not is_fork:
                    raise
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
        self._core.budget.mark_idle(session.id)

    async def _open_failed(self, session: LiveSession, error: BaseException) -> None:
        if isinstance(error, SessionError):
            error.session_id = session.id
        if session.status is not Status.CREATING:
            # Opened, but not recorded as open: the caller gets an error, so the session is unknown to it.
            await self._closing.abandon(session)
            return
        with anyio.CancelScope(shield=True):
            session.apply(Event.OPEN_FAILED, cause=str(error)[:1000])
            await self._connector.close(session, session.bindings.values())
            now, retention = self._core.clock.now(), self._core.policy.retention
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
            self._directory.forget(session)


def new_record(
    options: CreationOptions, times: Timeouts, *, session_id: str, owner: str, node: str, now: float
) -> SessionRecord:
    """Return the record of a session that begins now.

    Raises:
        InvalidArgument: a name, a label or the metadata is not valid.
    """
    return SessionRecord(
        id=session_id,
        owner=owner,
        namespace=validate_name(options.namespace, "namespace") if options.namespace else "",
        name=validate_name(options.name, "name") if options.name is not None else None,
        created_at=now,
        used_at=now,
        status_at=now,
        timeouts=times,
        lifetime_ends_at=now + times.lifetime if times.lifetime else None,
        metadata=validate_metadata(options.metadata or {}),
        node=node,
        epoch=1,
        **cast("dict[str, Any]", validate_labels(options.labels)),
    )


def timeouts_of(policy: Policy, options: CreationOptions) -> Timeouts:
    """Return the timeouts of a new session.

    Raises:
        InvalidArgument: one is longer than allowed.
    """
    defaults = policy.timeouts_of_name(options.name)
    longest = policy.longest_of_name(options.name)
    timeouts: dict[str, float] = {}
    for key in ("idle", "paused", "lifetime"):
        value: float | None = getattr(options, key)
        bound: float = getattr(longest, key)
        if value is None:
            timeouts[key] = getattr(defaults, key)
        elif value < 0 or (bound and not 0 < value <= bound):
            allowed = (
                f"be above 0 and at most {bound:.15g} (timeouts.max_{key})"
                if bound
                else "not be negative; 0 means never"
            )
            raise InvalidArgument(f"{key}_seconds must {allowed}.")
        else:
            timeouts[key] = value
    return Timeouts(**timeouts)


async def state_of(
    session_id: str,
    owner: str,
    state: Mapping[str, Any],
    state_schema: Mapping[str, Any] | None,
    limit: int,
) -> StateRecord:
    """Return the first state of a session.

    Raises:
        StateInvalid: it is too large, not JSON, or does not fit the schema.
        InvalidArgument: the schema is not valid.
    """
    validate_state(state, limit=limit)
    value = copy_json(state)
    if state_schema is not None:
        await check_schema(state_schema, owner=owner)
        await check_value(dict(state_schema), value, owner=owner)
    # Already validated; validation by the record would copy it once more.
    return StateRecord.model_construct(
        session_id=session_id, version=0, value=value, json_schema=copy_json(state_schema)
    )
