"""The toolset `admin`: delete, export and import sessions, and look at the server. Off by default."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import anyio.to_thread
from pydantic import Field

from ...sessions.actions.document import json_text, read_document
from ...sessions.actions.porting import DOCUMENT_LIMIT
from ...sessions.errors import InvalidArgument
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import Status
from ...sessions.registry import Registry
from ...sessions.times import timestamp
from ..definition import Arguments
from .own_tool import Outcome, OwnTool, ToolContext
from .results import ServiceStatus, SessionInfo, Stats
from .session_arguments import CloseArguments, Name, SessionArguments
from .session_tools import summary

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore


class ExportArguments(SessionArguments):
    secrets: Annotated[
        bool,
        Field(
            description="Also what its services saved (logins) and the results kept for operation ids. Anybody who has "
            "the document can use them."
        ),
    ] = False


class ImportArguments(Arguments):
    document: Annotated[dict[str, Any], Field(description="The result of session_export.")]
    name: Annotated[Name | None, Field(description="Another name than the one in it.")] = None
    strict: Annotated[
        bool, Field(description="false: leave out what is not possible here, and say so.")
    ] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSession(SessionInfo):
    """A session that session_import made, and the parts of the document that it could not use."""

    imported_from: str
    left_out: list[str]


@dataclass(frozen=True, slots=True)
class DeletedSession:
    """A session that is gone."""

    session_id: str
    name: str | None
    deleted: bool


@dataclass(frozen=True, slots=True)
class ExportedSession:
    """A session as a document for session_import."""

    session_id: str
    document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ServiceList:
    """The configured services."""

    services: list[ServiceStatus]


class AdminTools:
    """The tools of this toolset for one registry and its store. `services` returns the status of the configured services."""

    def __init__(
        self, registry: Registry, store: SQLStore, services: Callable[[], list[JSON]]
    ) -> None:
        self._registry = registry
        self._store = store
        self._services = services
        self._started_at = registry.core.clock.now()

    def tools(self, toolsets: Iterable[str]) -> list[OwnTool]:
        """Return the tools if `toolsets` includes this toolset, else none."""
        if "admin" not in set(toolsets):
            return []
        return [*self._transfer_tools(), *self._status_tools()]

    def _transfer_tools(self) -> list[OwnTool]:
        return [
            OwnTool(
                "session_delete",
                "Delete a session",
                "Delete a session and everything that is kept of it: state, history, what its services saved. An open one "
                "is closed first. This cannot be undone, and its id is never used again.",
                CloseArguments,
                DeletedSession,
                self._delete,
                destructive=True,
                frees_name=True,
                toolset="admin",
            ),
            OwnTool(
                "session_export",
                "Export a session",
                "Get all that is kept of a session as one JSON document, for session_import here or elsewhere. Without "
                "secrets, what its services saved is left out, and what looks secret is replaced. Does not count as use.",
                ExportArguments,
                ExportedSession,
                self._export,
                read_only=True,
                toolset="admin",
            ),
            OwnTool(
                "session_import",
                "Import a session",
                "Make a session of a document that session_export returned. It is new, yours and paused, with an id of its "
                "own; the next call resumes it. All of the document is checked before anything is made.",
                ImportArguments,
                ImportedSession,
                self._import,
                toolset="admin",
                pinned="never",
            ),
        ]

    def _status_tools(self) -> list[OwnTool]:
        return [
            OwnTool(
                "service_list",
                "List the services",
                "List the configured services: whether each is available, why not, and how many tools it has.",
                Arguments,
                ServiceList,
                self._service_list,
                read_only=True,
                toolset="admin",
            ),
            OwnTool(
                "server_stats",
                "Count what the server does",
                "Count the sessions of everybody by status, what is live in this process, the bytes that yours take, and "
                "your limits.",
                Arguments,
                Stats,
                self._stats,
                read_only=True,
                toolset="admin",
            ),
        ]

    async def _delete(self, context: ToolContext, arguments: CloseArguments) -> Outcome:
        session = await self._registry.rename_delete.delete(
            context.principal, arguments.session_id, force=arguments.force
        )
        return Outcome(
            {"session_id": session["session_id"], "name": session["name"], "deleted": True}
        )

    async def _export(self, context: ToolContext, arguments: ExportArguments) -> Outcome:
        record, document = await self._registry.porting.export_session(
            context.principal,
            arguments.session_id,
            secrets=arguments.secrets,
            namespace=context.namespace,
            limit=DOCUMENT_LIMIT,
        )
        info = await self._registry.info(context.principal, record.id)
        content: JSON = {"session_id": record.id, "document": document.model_dump()}
        return Outcome(content, summary(info))

    async def _import(self, context: ToolContext, arguments: ImportArguments) -> Outcome:
        text = json_text(arguments.document)
        if len(text) > DOCUMENT_LIMIT:
            raise InvalidArgument(
                f"document: takes {len(text)} bytes; {DOCUMENT_LIMIT} are allowed through a tool.",
                recovery="The operator of this server can import it with `statehold sessions import`.",
            )
        document = await anyio.to_thread.run_sync(partial(read_document, text))
        imported = await self._registry.porting.import_session(
            context.principal,
            document,
            name=arguments.name,
            strict=arguments.strict,
            operation=context.operation,
        )
        info = await self._registry.info(context.principal, imported.record.id)
        content = {**info, "imported_from": document.session.id, "left_out": imported.left_out}
        return Outcome(content, summary(info))

    async def _service_list(self, context: ToolContext, arguments: Arguments) -> Outcome:
        return Outcome({"services": self._services()})

    async def _stats(self, context: ToolContext, arguments: Arguments) -> Outcome:
        counts = await self._store.counts()
        usage = self._registry.quota.usage(context.principal.key)
        measured_at = timestamp(usage.pop("measured_at"))
        limits = self._registry.core.limits.of(context.principal.key)
        content: JSON = {
            "started_at": timestamp(self._started_at),
            "sessions": {status.value: counts.get(status.value, 0) for status in Status},
            "here": self._registry.statistics(),
            "journal_dropped": self._store.dropped_entries,
            "stored": usage if measured_at is None else {**usage, "measured_at": measured_at},
        }
        return Outcome({**content, "limits": limits.describe()})
