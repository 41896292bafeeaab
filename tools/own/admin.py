"""The toolset `admin`: deleting sessions, moving them elsewhere and back, and looking at the server. Off by default."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any, Literal

import anyio.to_thread
from pydantic import BaseModel, Field

from ...sessions.actions.document import json_text, read_document
from ...sessions.actions.porting import DOCUMENT_LIMIT
from ...sessions.errors import InvalidArgument
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import Status
from ...sessions.registry import Registry
from ...sessions.store.base import Store
from ...sessions.views import timestamp
from ..definition import Arguments
from .definition import Context, Outcome, OwnTool
from .sessions import Close, Name, One, SessionInfo, summary


class Export(One):
    secrets: Annotated[
        bool,
        Field(
            description="Also what its services saved (logins) and the results kept for operation ids. Anybody who has "
            "the document can use them."
        ),
    ] = False


class Import(Arguments):
    document: Annotated[dict[str, Any], Field(description="The result of session_export.")]
    name: Annotated[Name | None, Field(description="Another name than the one in it.")] = None
    strict: Annotated[
        bool, Field(description="false: leave out what is not possible here, and say so.")
    ] = True


class Deleted(BaseModel):
    session_id: str
    name: str | None
    deleted: bool


class Exported(BaseModel):
    session_id: str
    document: dict[str, Any]


class ImportedInfo(SessionInfo):
    imported_from: str
    left_out: list[str]


class ServiceState(BaseModel):
    service: str
    status: Literal["available", "unavailable", "starting"]
    problem: str | None
    renamed: str | None
    tools: int | None
    scope: str
    pause: str


class Services(BaseModel):
    services: list[ServiceState]


class Stored(BaseModel):
    """The bytes that the caller's sessions store, and their limit. `measured_at` is null until the first measurement."""

    bytes: int
    limit: int
    measured_at: str | None


class Stats(BaseModel):
    started_at: str
    sessions: dict[str, int]
    here: dict[str, int]
    journal_dropped: int
    stored: Stored


class AdminTools:
    """The tools over one registry and its store. `services` returns the status of the configured services."""

    def __init__(
        self, registry: Registry, store: Store, services: Callable[[], list[JSON]]
    ) -> None:
        self._registry = registry
        self._store = store
        self._services = services
        self._started_at = registry.core.clock.now()

    def tools(self, toolsets: Iterable[str]) -> list[OwnTool]:
        """Return the tools when their toolset is among the chosen ones."""
        if "admin" not in set(toolsets):
            return []
        return [*self._moving(), *self._looking()]

    def _moving(self) -> list[OwnTool]:
        return [
            OwnTool(
                "session_delete",
                "Delete a session",
                "Delete a session and everything that is kept of it: state, history, what its services saved. An open one "
                "is closed first. This cannot be undone, and its id is never used again.",
                Close,
                Deleted,
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
                Export,
                Exported,
                self._export,
                read_only=True,
                toolset="admin",
            ),
            OwnTool(
                "session_import",
                "Import a session",
                "Make a session of a document that session_export returned. It is new, yours and paused, with an id of its "
                "own; the next call resumes it. All of the document is checked before anything is made.",
                Import,
                ImportedInfo,
                self._import,
                toolset="admin",
                pinned=False,
            ),
        ]

    def _looking(self) -> list[OwnTool]:
        return [
            OwnTool(
                "service_list",
                "List the services",
                "List the configured services: whether each is available, why not, and how many tools it has.",
                Arguments,
                Services,
                self._service_list,
                read_only=True,
                toolset="admin",
            ),
            OwnTool(
                "server_stats",
                "Count what the server does",
                "Count the sessions of everybody by status, what is live in this process, and the bytes that yours take.",
                Arguments,
                Stats,
                self._stats,
                read_only=True,
                toolset="admin",
            ),
        ]

    async def _delete(self, context: Context, args: Close) -> Outcome:
        found = await self._registry.rename_delete.delete(
            context.principal, args.session_id, force=args.force
        )
        return Outcome({"session_id": found["session_id"], "name": found["name"], "deleted": True})

    async def _export(self, context: Context, args: Export) -> Outcome:
        record, document = await self._registry.porting.export_session(
            context.principal,
            args.session_id,
            secrets=args.secrets,
            namespace=context.namespace,
            limit=DOCUMENT_LIMIT,
        )
        info = await self._registry.info(context.principal, record.id)
        content: JSON = {"session_id": record.id, "document": document.model_dump()}
        return Outcome(content, summary(info))

    async def _import(self, context: Context, args: Import) -> Outcome:
        text = json_text(args.document)
        if len(text) > DOCUMENT_LIMIT:
            raise InvalidArgument(
                f"document: takes {len(text)} bytes; {DOCUMENT_LIMIT} are allowed through a tool.",
                recovery="The operator of this server can import it with `statehold sessions import`.",
            )
        document = await anyio.to_thread.run_sync(partial(read_document, text))
        found = await self._registry.porting.import_session(
            context.principal,
            document,
            name=args.name,
            strict=args.strict,
            operation=context.operation,
        )
        info = await self._registry.info(context.principal, found.record.id)
        content = {**info, "imported_from": document.session.id, "left_out": found.left_out}
        return Outcome(content, summary(info))

    async def _service_list(self, context: Context, args: Arguments) -> Outcome:
        return Outcome({"services": self._services()})

    async def _stats(self, context: Context, args: Arguments) -> Outcome:
        counts = await self._store.counts()
        stored = self._registry.quota.usage(context.principal.key)
        measured = stored["measured_at"]
        content: JSON = {
            "started_at": timestamp(self._started_at),
            "sessions": {status.value: counts.get(status.value, 0) for status in Status},
            "here": self._registry.statistics(),
            "journal_dropped": self._store.dropped_entries,
            "stored": {**stored, "measured_at": measured and timestamp(measured)},
        }
        return Outcome(content)


__all__ = ["AdminTools"]
