"""Exporting and importing the sessions of one registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..calls.receipts import Operation
from ..core import Core
from ..live.directory import STORED, Directory
from ..live.quota import Quota
from ..records import Principal, SessionRecord
from .branches import Branches
from .document import Document
from .export import export_document
from .import_ import ImportOutcome, ImportTarget, import_document

DOCUMENT_LIMIT: Final = 3 << 20
"""Most bytes of a document passed through a tool, so that an exported one fits into a request. A file may have more."""


class Porting:
    """Exports and imports the sessions of one registry. It keeps no state and lives as long as the registry."""

    def __init__(
        self,
        core: Core,
        directory: Directory,
        branches: Branches,
        quota: Quota,
    ) -> None:
        self._core = core
        self._directory = directory
        self._branches = branches
        self._target = ImportTarget(core, directory, quota)

    async def save_session(
        self, principal: Principal, ref: str, namespace: str | None = None
    ) -> None:
        """If this process holds a session, make durable its journal and the snapshots that its services can take."""
        record = await self._directory.find_record(principal, ref, namespace)
        session = self._directory.get(record.id)
        if session is not None and not session.ownership_ended.is_set():
            await self._branches.save_services(session)
            await self._core.store.flush()

    async def export_session(
        self,
        principal: Principal,
        ref: str,
        *,
        secrets: bool = False,
        namespace: str | None = None,
        limit: int | None = None,
    ) -> tuple[SessionRecord, Document]:
        """Return a session of the caller's as a document, open or closed. This does not count as use of the session.

        Raises:
            SessionNotFound: unknown, foreign or purged.
            InvalidArgument: the document takes more than `limit` bytes.
        """
        record = await self._directory.find_record(principal, ref, namespace)
        if secrets:
            await self.save_session(principal, record.id)
        elif self._directory.get(record.id) is not None:
            await self._core.store.flush()
        session = self._directory.get(record.id)
        if session is not None:
            record = session.record.model_copy(update={"status": session.status})
        document = await export_document(
            self._core.store,
            record,
            now=self._core.clock.now(),
            redactor=self._core.redactor,
            secrets=secrets,
            limit=limit,
        )
        return record, document

    async def import_session(
        self,
        principal: Principal,
        document: Document,
        *,
        name: str | None = None,
        strict: bool = True,
        operation: Operation | None = None,
        report: Callable[[int, int], None] | None = None,
    ) -> ImportOutcome:
        """Import a document as a session of the caller's; see import_.import_document()."""
        result = await import_document(
            self._target,
            document,
            principal.key,
            name=name,
            strict=strict,
            operation=operation,
            report=report,
        )
        self._core.deadlines.schedule(STORED, result.record.due_at)
        return result
