"""The audit log of one process, over its store."""

from __future__ import annotations

from typing import Protocol

from .entry import AuditEntry


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
