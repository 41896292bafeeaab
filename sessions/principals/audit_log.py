"""Entries of the audit log, and the chain of hashes that binds each to those before it.

An entry is stored as the JSON text of its members. Its hash covers its position, that text and the hash of the entry before
it, so that a changed, removed or moved entry breaks the chain from there on. Whoever can write to the database can also
write a whole new chain: keep the position and hash of the last entry elsewhere, and compare."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

import orjson

from ..json_codec import JSON
from ..records import LOCAL, Principal

AdmitRequest: TypeAlias = Callable[..., Awaitable[AbstractContextManager[None]]]
"""Records an operation of one actor before it runs, and its outcome at the end of the context; see Audit.admit()."""

FIRST_HASH: Final = "0" * 64
"""The hash before the first entry."""


class AuditEvent(StrEnum):
    """The kind of an entry."""

    REQUEST = "request"
    """A request was admitted or refused; it has not run yet."""
    RESULT = "result"
    """A request that was admitted has ended."""
    LOGIN = "login"
    """A person logged in or out, or failed to."""
    REFUSAL = "refusal"
    """A request was refused before it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One entry. `at` is a time in seconds since 1970; the other members say who, what, where from and with which end."""

    at: float
    event: AuditEvent
    actor: Principal = LOCAL
    actor_name: str | None = None
    """The person in words, for a login of the console or a command."""
    on_behalf: tuple[str, ...] = ()
    """The parties that act for the actor, the nearest first: the delegation path of its token."""
    operation: str = ""
    """The method, or the tool of a person."""
    tool: str | None = None
    session_id: str | None = None
    """The id or the name by which the request names its session."""
    call: str | None = None
    """The number that a request and its result share."""
    decision: str = "allow"
    """`allow` or `deny`."""
    outcome: str | None = None
    """`ok`, `error` or an error code; None before the end."""
    duration_seconds: float | None = None
    transport: str = ""
    address: str | None = None
    """The address of the client, None where it has none."""
    trace_id: str | None = None
    omitted: int | None = None
    """Refusals before this one that have no entry, since there were too many of them."""
    arguments: JSON | None = None
    """The arguments, if the log is to hold them; redacted as in the journal."""

    def document(self, node: str) -> str:
        """Return the text that is stored and hashed. Members without a value are left out."""
        members: JSON = {
            "at": round(self.at, 6),
            "event": self.event.value,
            "node": node,
            "issuer": self.actor.issuer,
            "subject": self.actor.subject,
            "client_id": self.actor.client_id,
            "actor_name": self.actor_name,
            "on_behalf": list(self.on_behalf),
            "operation": self.operation,
            "tool": self.tool,
            "session_id": self.session_id,
            "call": self.call,
            "decision": self.decision,
            "outcome": self.outcome,
            "duration_ms": None
            if self.duration_seconds is None
            else round(self.duration_seconds * 1000, 1),
            "transport": self.transport,
            "address": self.address,
            "trace_id": self.trace_id,
            "omitted": self.omitted,
            "arguments": self.arguments,
        }
        kept = {name: value for name, value in members.items() if value not in (None, "", [])}
        return orjson.dumps(kept, default=str).decode()


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An entry as it is stored."""

    seq: int
    document: str
    hash: str


@dataclass(frozen=True, slots=True)
class AuditHead:
    """The position and the hash of the last entry; 0 and FIRST_HASH of an empty log."""

    seq: int = 0
    hash: str = FIRST_HASH


@dataclass(slots=True)
class ChainCheck:
    """A check of a chain, entry by entry. `faults` holds one line for each break, at most LIMIT of them."""

    LIMIT: Final = 20  # pyright: ignore[reportGeneralTypeIssues]

    head: AuditHead = field(default_factory=AuditHead)
    faults: list[str] = field(default_factory=list[str])

    def read(self, rows: Iterable[AuditRow]) -> None:
        """Check the next rows, which come in the order of their positions."""
        seq, previous = self.head.seq, self.head.hash
        for row in rows:
            if row.seq != seq + 1:
                self._note(f"entries {seq + 1} to {row.seq - 1} are missing")
            elif row.hash != chain_hash(row.seq, row.document, previous):
                self._note(f"entry {row.seq} or the one before it was changed")
            seq, previous = row.seq, row.hash
        self.head = AuditHead(seq, previous)

    def end(self, head: AuditHead) -> None:
        """Compare the last row with the end of the log that the store keeps beside it."""
        if self.head != head:
            self._note(f"the log should end with entry {head.seq}, and ends with {self.head.seq}")

    def _note(self, fault: str) -> None:
        if len(self.faults) < self.LIMIT:
            self.faults.append(fault)


def chain_hash(seq: int, document: str, previous: str) -> str:
    """Return the hash of an entry after one with the hash `previous`."""
    return hashlib.sha256(f"{previous}\n{seq}\n{document}".encode()).hexdigest()


class AuditStore(Protocol):
    """The part of a store that keeps the log."""

    async def write_audit(self, document: str) -> None:
        """Append an entry, durable on return.

        Raises:
            StoreUnavailable: it could not be written.
        """
        ...

    def append_audit(self, document: str, owner: str) -> None:
        """Queue an entry of a principal, by its key; never blocks. It is written within 50 ms."""
        ...


class AuditLog:
    """Appends entries for one node. It lives as long as its store and needs no closing.

    With `is_required`, an entry of admit() is durable before the operation may run, and without the entry it does not run.
    Otherwise entries are queued; a full queue or a kill can lose them, which breaks no chain.
    """

    def __init__(self, store: AuditStore, node: str, *, is_required: bool) -> None:
        self._store = store
        self._node = node
        self.is_required = is_required

    async def admit(self, entry: AuditEntry) -> None:
        """Record an operation that is about to run.

        Raises:
            StoreUnavailable: the log is required and could not be written; the operation must not run.
        """
        document = entry.document(self._node)
        if self.is_required:
            await self._store.write_audit(document)
        else:
            self._store.append_audit(document, entry.actor.key)

    def note(self, entry: AuditEntry) -> None:
        """Record what has happened. Never blocks."""
        self._store.append_audit(entry.document(self._node), entry.actor.key)
