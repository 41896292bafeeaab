"""The units of change to sessions, the record of a login, and a store that loads its database library late."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

from ..records import (
    BindingRecord,
    JournalRecord,
    ReceiptRecord,
    SessionRecord,
    SnapshotRecord,
    StateRecord,
    SummaryRecord,
)

RESTARTED: Final = "the server was restarted"
"""The `last_error` of a connection that was lost with its process, as callers see it."""


OK: Final = "ok"
NEEDS_HUMAN: Final = "needs_human"
REVOKED: Final = "revoked"
"""The states of a login: it can be used, or its person has to log in again, in the last because it was revoked."""
NEW: Final = "new"
UNCHECKED: Final = "unchecked"
LENDABLE: Final = (OK, NEW, UNCHECKED)
"""The states in which a session may have a login of a browser: also without a value yet, or with one that may be old."""
RENEWING: Final = "renewing"
"""The state of a login of a browser that its site ended, until a command has logged in again."""


@dataclass(slots=True)
class Write:
    """One unit of durable change to one session, applied as a whole or not at all.

    It is fenced: it takes effect only while `node` owns the session with this `epoch`. `session` maps column names of
    SessionRecord to new values (`timeouts`, `metadata` and `services` as their models or plain JSON values). Setting
    `node` to None there releases the session. Bindings, state and snapshots are upserted; the last two snapshots per
    binding are kept. `unbind` names services whose binding and snapshots are deleted. `ended` are entries that replace
    those written as `started`; receipts are upserted, and `forget` names operations whose receipts are deleted.
    """

    session_id: str
    node: str | None
    """The node that owns the session; None for a session without an owner, such as a closed one."""
    epoch: int
    session: dict[str, Any] = field(default_factory=dict[str, Any])
    bindings: Sequence[BindingRecord] = ()
    unbind: Sequence[str] = ()
    state: StateRecord | None = None
    snapshots: Sequence[SnapshotRecord] = ()
    journal: Sequence[JournalRecord] = ()
    ended_entries: Sequence[JournalRecord] = ()
    receipts: Sequence[ReceiptRecord] = ()
    forget: Sequence[str] = ()
    summary: SummaryRecord | None = None
    at: float = 0.0
    """The time of a new state."""


@dataclass(frozen=True, slots=True)
class ClaimedSession:
    """A session with everything needed to open it, read after it was claimed."""

    session: SessionRecord
    bindings: list[BindingRecord]
    state: StateRecord
    last_seq: int
    """The highest journal position in use, 0 for none."""


@dataclass(frozen=True, slots=True)
class LoginRecord:
    """A login of one principal."""

    owner: str
    """The key of the principal."""
    name: str
    kind: str
    site: str
    """The server that its value goes to. The whole address may hold a secret, and is sealed."""
    issuer: str
    """The authorization server; empty if that is not known."""
    state: str
    since: float
    """When the state began."""
    sealed: bytes = field(repr=False)
    reason: str = ""
    """Why its person has to log in again."""
    version: int = 0
    """Rises with each new value and lease. It begins at the time of a new login, so that none repeats a former one."""
    expires_at: float | None = None
    """When the access token ends; None if that is not known."""
    lease_ends_at: float = 0.0
    """Until when one process renews it, or its session has it."""
    session: str = ""
    """The id of the session that has it; empty if none has, or it may be used by any number."""
    used_at: float | None = None
    """When a session got it last, as it is known."""
    checked_at: float | None = None
    """When it was checked last, None if the next check is due at once. With a `reason`, that check found nothing out."""
    in_check: int = 0
    """1 if the lease is for a check or a renewal; `session` is then the one that had it before."""
    renewals: str = ""
    """When its command ended, or started, since the login was seen to be valid: whole seconds, separated by spaces."""

    def __post_init__(self) -> None:
        if not self.version:
            object.__setattr__(self, "version", int(self.since * 1000))


def login_id(owner: str, name: str) -> str:
    """Return the id of the row of a login."""
    return hashlib.sha256(f"{owner}\n{name}".encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class PinRecord:
    """One definition that is pinned, and the one that its service offers in its place."""

    service: str
    config_hash: str
    kind: str
    name: str
    digest: str
    """SHA-256 of the definition, in hexadecimal."""
    definition: str
    """JSON."""
    since: float
    """When it was first seen, or accepted."""
    offered_digest: str = ""
    """That of another definition which the service offers now, and nobody has accepted; empty without one."""
    offered: str = ""
    offered_at: float | None = None

    @property
    def id(self) -> str:
        text = "\n".join((self.service, self.config_hash, self.kind, self.name))
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


class ApprovalState(StrEnum):
    """The state of an approval until it ends."""

    PENDING = "pending"
    APPROVED = "approved"
    REFUSED = "refused"
    USED = "used"
    STANDING = "standing"
    """It covers every call of a tool in a session until it ends."""


@dataclass(frozen=True, slots=True)
class ApprovalRecord:
    """The approval of one exact call, which a person gives or refuses; or a standing one for a tool in a session."""

    id: str
    owner: str
    """The key of the principal whose session it is."""
    session_id: str
    service: str
    tool: str
    digest: str
    """SHA-256 of what it is for, in hexadecimal: service, definition, tool, arguments, session, epoch and caller."""
    standing: str
    """That of all calls of the tool by its caller in the session."""
    arguments: str
    """The arguments as they will be sent, and who asks if it is not the owner, as JSON; empty once a person has decided."""
    state: str
    created_at: float
    ends_at: float


class DeferredStore:
    """A store that imports and builds the SQLStore when it is opened, and passes every call to it.

    So a process can list its tools before it imports a database library. Opening it raises what `build` raises.
    """

    def __init__(self, build: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        self._build = build

    async def __aenter__(self) -> Self:
        self._store = self._build()
        await self._store.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self._store.__aexit__(*exc)

    def __getattr__(self, name: str) -> Any:
        if name == "_store":
            raise AttributeError("the store is not open")
        value = getattr(self._store, name)
        if callable(value):
            # The next call reaches the method without this one; a property has to be read again.
            setattr(self, name, value)
        return value
