"""The toolsets `core` and `lifecycle`: create, list, change and close sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field, JsonValue, WithJsonSchema

from ...sessions.actions.rename_delete import SAME
from ...sessions.calls.notices import take_notices
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import Status
from ...sessions.live.session import LiveSession
from ...sessions.records import LABELS, SessionFilter, labels_of
from ...sessions.registry import Registry
from ...sessions.transitions.create import CreationOptions
from ...sessions.validation import Plain
from ..definition import Arguments
from .own_tool import (
    Handler,
    Outcome,
    OwnTool,
    Pinned,
    ToolContext,
    describe_creation,
    grantees_of,
    parse_time,
)
from .results import SessionInfo, ShareInfo

SessionId = Annotated[str, Field(min_length=1, max_length=256, description="Its id or name")]
Seconds = Annotated[float, Field(ge=0, le=3.2e9), WithJsonSchema({"type": "number"})]
Name = Annotated[str, Field(min_length=1, max_length=128)]
Label = Annotated[Plain, Field(min_length=1, max_length=128)] | None


class CreateArguments(Arguments):
    name: Annotated[
        str | None,
        Field(
            max_length=128,
            description="To find it by later; unique among your open sessions",
        ),
    ] = None
    services: Annotated[
        list[str] | None,
        Field(description="Services that it uses. Default: all"),
    ] = None
    state: Annotated[dict[str, Any] | None, Field(description="Its first state")] = None
    state_schema: Annotated[
        dict[str, Any] | None,
        Field(description="JSON Schema (2020-12) of its state"),
    ] = None
    metadata: Annotated[
        dict[str, JsonValue] | None,
        Field(description="Shown by session_info and session_list"),
    ] = None
    user_id: Annotated[
        Label, Field(description="A label for session_list, like the next three; grants nothing")
    ] = None
    agent_id: Label = None
    team_id: Label = None
    workflow_id: Label = None
    namespace: Annotated[str, Field(max_length=128, description="Keeps names apart")] = ""
    idle_seconds: Annotated[
        Seconds | None, Field(description="Pause it when unused so long. 0: never")
    ] = None
    paused_seconds: Annotated[
        Seconds | None, Field(description="Close it when paused so long. 0: never")
    ] = None
    lifetime_seconds: Annotated[
        Seconds | None, Field(description="Close it at this age. 0: never")
    ] = None


class ListArguments(Arguments):
    name: Annotated[str | None, Field(max_length=128, description="Beginning of the name")] = None
    namespace: Annotated[str | None, Field(max_length=128)] = None
    statuses: Annotated[
        list[Literal["creating", "idle", "active", "paused", "error", "closing", "closed"]] | None,
        Field(description="Default: all but closed"),
    ] = None
    user_id: Label = None
    agent_id: Label = None
    team_id: Label = None
    workflow_id: Label = None
    metadata: Annotated[
        dict[str, JsonValue] | None,
        Field(description="Keys and values that its metadata has"),
    ] = None
    updated_since: Annotated[
        str | None,
        Field(max_length=64, description="Used at this time (ISO 8601) or later"),
    ] = None
    query: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=256,
            description="Text in names, ids, metadata or summaries",
        ),
    ] = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    cursor: Annotated[
        str | None, Field(max_length=256, description="next_cursor of the page before")
    ] = None


class SharedListArguments(ListArguments):
    shared: Annotated[
        bool, Field(description="Those that others share with you, without other filters")
    ] = False


class SessionArguments(Arguments):
    session_id: SessionId


class CloseArguments(SessionArguments):
    force: Annotated[bool, Field(description="Cancel running calls at once")] = False


class ExtendArguments(SessionArguments):
    seconds: Annotated[
        float,
        Field(ge=-3.2e9, le=3.2e9, description="Negative: shorter"),
        WithJsonSchema({"type": "number"}),
    ] = 3600.0


class RestartArguments(SessionArguments):
    services: Annotated[
        list[str] | None,
        Field(description="Default: all that are open"),
    ] = None


class RenameArguments(SessionArguments):
    name: Annotated[
        str | None,
        Field(
            max_length=128,
            description="Left out: none, or with metadata the old one",
        ),
    ] = None
    metadata: Annotated[
        dict[str, JsonValue] | None,
        Field(description="Merged into its metadata; null deletes"),
    ] = None


class BindArguments(SessionArguments):
    service: Name


@dataclass(frozen=True, slots=True)
class CreatedSession:
    """The part of a new session's description that the list of tools shows: what later calls need."""

    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedSession(SessionInfo):
    """A session after session_close."""

    already_closed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDetails(SessionInfo):
    """A session as session_info shows it."""

    shares: list[ShareInfo] | None = None
    """The shares that its owner made; None: there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSession(SessionInfo):
    """A session in a list."""

    owner: dict[str, str] | None = None
    """The owner of a session that is shared with the caller."""
    rights: str | None = None
    """The rights of that share."""


@dataclass(frozen=True, slots=True)
class SessionPage:
    """A page of the list of sessions. `next_cursor` leads to the next page; None: there is none."""

    sessions: list[ListedSession]
    next_cursor: str | None = None


LISTED: Final = (
    *("session_id", "name", "namespace", "status", "reason", "created_at", "used_at", "expires_at"),
    *("closed_at", "metadata", *LABELS),
)
"""The members of a session in a list."""


class SessionTools:
    """The tools of these toolsets for one registry. `services` returns the status of the services."""

    def __init__(
        self,
        registry: Registry,
        services: Callable[[], list[JSON]] = list[JSON],
        *,
        shares: bool = False,
    ) -> None:
        """`shares`: callers are told apart, and may share sessions."""
        self._registry = registry
        self._services = services
        self._shares = shares

    def tools(self, toolsets: Iterable[str]) -> list[OwnTool]:
        """Return the tools that `toolsets` includes, in a fixed order."""
        chosen = set(toolsets)
        return [
            tool
            for tool in [*self._core_tools(), *self._lifecycle_tools()]
            if tool.toolset in chosen
        ]

    def _core_tools(self) -> list[OwnTool]:
        return [
            OwnTool(
                "session_create",
                "Create a session",
                describe_creation(self._registry.core.policy, self._registry.core.services),
                CreateArguments,
                SessionInfo,
                self._create,
                output_schema=CreatedSession,
                pinned="never",
            ),
            OwnTool(
                "session_list",
                "List your sessions",
                "List your sessions that fit all arguments, most recently used first. Does not count as use. While there "
                "is a next_cursor there may be more, also after a page with few.",
                SharedListArguments if self._shares else ListArguments,
                SessionPage,
                self._list,
                read_only=True,
                pinned="never",
            ),
            OwnTool(
                "session_info",
                "Show a session",
                "Show a session: status, services, timeouts, when it expires. Does not count as use.",
                SessionArguments,
                SessionDetails,
                self._info,
                read_only=True,
                pinned="always",
            ),
            OwnTool(
                "session_close",
                "Close a session",
                "Close a session for good, with all that it keeps: logins, tabs, state.",
                CloseArguments,
                ClosedSession,
                self._close,
                pinned="always",
                destructive=True,
                idempotent=True,
                frees_name=True,
            ),
        ]

    def _lifecycle_tools(self) -> list[OwnTool]:
        def tool(
            name: str,
            title: str,
            text: str,
            arguments: type[Arguments],
            handler: Handler,
            *,
            pinned: Pinned = "asked",
            destructive: bool = False,
            idempotent: bool = False,
            frees_name: bool = False,
        ) -> OwnTool:
            return OwnTool(
                name=name,
                title=title,
                description=text,
                arguments=arguments,
                output=SessionInfo,
                handler=handler,
                toolset="lifecycle",
                pinned=pinned,
                destructive=destructive,
                idempotent=idempotent,
                frees_name=frees_name,
            )

        return [
            tool(
                "session_pause",
                "Pause a session",
                "Save a session and free what it takes. The next call resumes it.",
                SessionArguments,
                self._pause,
                idempotent=True,
            ),
            tool(
                "session_resume",
                "Resume a session",
                "Resume a paused session now; the result says what came back and what did not.",
                SessionArguments,
                self._resume,
                idempotent=True,
            ),
            tool(
                "session_extend",
                "Extend a session",
                "Let a session live longer.",
                ExtendArguments,
                self._extend,
            ),
            tool(
                "session_restart",
                "Restart a session",
                "Replace the connections of a session, such as a browser that hangs. Saved things come back (logins, tabs), "
                "what was in memory does not.",
                RestartArguments,
                self._restart,
                pinned="always",
                destructive=True,
            ),
            tool(
                "session_rename",
                "Rename a session",
                "Change the name or the metadata of a session.",
                RenameArguments,
                self._rename,
                idempotent=True,
                frees_name=True,
                # The URL or the command line may name the session; a new name would break it.
                pinned="never",
            ),
            tool(
                "session_bind",
                "Add a service",
                "Let a session use one more configured service.",
                BindArguments,
                self._bind,
                idempotent=True,
            ),
            tool(
                "session_unbind",
                "Remove a service",
                "Close a session's connection to a service and delete what was saved of it.",
                BindArguments,
                self._unbind,
                destructive=True,
                idempotent=True,
            ),
        ]

    async def _create(self, context: ToolContext, arguments: CreateArguments) -> Outcome:
        session = await self._registry.create(
            context.principal,
            CreationOptions(
                name=arguments.name,
                services=arguments.services,
                state=arguments.state,
                state_schema=arguments.state_schema,
                metadata=arguments.metadata,
                labels=labels_of(arguments),
                namespace=arguments.namespace or context.namespace,
                idle=arguments.idle_seconds,
                paused=arguments.paused_seconds,
                lifetime=arguments.lifetime_seconds,
                operation=context.operation,
            ),
        )
        return self._outcome(session)

    async def _list(self, context: ToolContext, arguments: ListArguments) -> Outcome:
        statuses = [Status(status) for status in arguments.statuses or ()] or [
            status for status in Status if status is not Status.CLOSED
        ]
        if isinstance(arguments, SharedListArguments) and arguments.shared:
            return await self._list_shared(context, statuses, arguments.limit)
        session_filter = SessionFilter(
            namespace=arguments.namespace,
            name_prefix=arguments.name,
            statuses=statuses,
            updated_since=parse_time(arguments.updated_since, "updated_since"),
            labels=labels_of(arguments),
            metadata=arguments.metadata,
            query=arguments.query,
            limit=arguments.limit,
            cursor=arguments.cursor,
        )
        entries, cursor = await self._registry.page(context.principal, session_filter)
        sessions = [{name: entry[name] for name in LISTED} for entry in entries]
        return Outcome({"sessions": sessions, "next_cursor": cursor})

    async def _list_shared(
        self, context: ToolContext, statuses: Sequence[Status], limit: int
    ) -> Outcome:
        grantees = grantees_of(context.principal, context.groups)
        found = await self._registry.sharing.shared_with(grantees, limit, statuses)
        keys = (*LISTED, "owner", "rights")
        sessions = [{key: session[key] for key in keys} for session in found]
        return Outcome({"sessions": sessions, "next_cursor": None})

    async def _info(self, context: ToolContext, arguments: SessionArguments) -> Outcome:
        info = await self._registry.info_of_owner(
            context.principal, arguments.session_id, context.namespace
        )
        # A service that never started has no connection that could have failed.
        problems = {status["service"]: status["problem"] for status in self._services()}
        services = [
            {**each, "last_error": each["last_error"] or problems.get(each["service"])}
            for each in info["services"]
        ]
        content = {**info, "services": services}
        if self._shares and not context.is_shared:
            content["shares"] = await self._registry.sharing.shares(info["session_id"]) or None
        return Outcome(content, summary(info))

    async def _close(self, context: ToolContext, arguments: CloseArguments) -> Outcome:
        info, already_closed = await self._registry.close(
            context.principal, arguments.session_id, force=arguments.force, reason=context.cause
        )
        return Outcome({**info, "already_closed": already_closed}, summary(info))

    async def _pause(self, context: ToolContext, arguments: SessionArguments) -> Outcome:
        session = await self._registry.pause(
            context.principal, arguments.session_id, cause=context.cause
        )
        return self._outcome(session)

    async def _resume(self, context: ToolContext, arguments: SessionArguments) -> Outcome:
        return self._outcome(await self._registry.resume(context.principal, arguments.session_id))

    async def _extend(self, context: ToolContext, arguments: ExtendArguments) -> Outcome:
        return self._outcome(
            await self._registry.extend(context.principal, arguments.session_id, arguments.seconds)
        )

    async def _restart(self, context: ToolContext, arguments: RestartArguments) -> Outcome:
        return self._outcome(
            await self._registry.restart(
                context.principal, arguments.session_id, arguments.services
            )
        )

    async def _rename(self, context: ToolContext, arguments: RenameArguments) -> Outcome:
        keeps_name = arguments.metadata is not None and "name" not in arguments.model_fields_set
        name = SAME if keeps_name else arguments.name
        rename_delete = self._registry.rename_delete
        return self._outcome(
            await rename_delete.rename(
                context.principal, arguments.session_id, name, metadata=arguments.metadata
            )
        )

    async def _bind(self, context: ToolContext, arguments: BindArguments) -> Outcome:
        return self._outcome(
            await self._registry.bind(context.principal, arguments.session_id, arguments.service)
        )

    async def _unbind(self, context: ToolContext, arguments: BindArguments) -> Outcome:
        return self._outcome(
            await self._registry.unbind(context.principal, arguments.session_id, arguments.service)
        )

    def _outcome(self, session: LiveSession) -> Outcome:
        bindings = list(session.bindings.values())
        delivery = take_notices(session, *bindings)
        if delivery is None:
            return Outcome(session.info(), session.summary())
        self._registry.connector.save_notices_soon(session, delivery.bindings)
        return Outcome(session.info(), session.summary(), delivery.text, delivery)


def summary(info: JSON) -> JSON:
    """Return the summary of a session that is part of every result about it."""
    return {
        "id": info["session_id"],
        "name": info["name"],
        "status": info["status"],
        "generation": info["generation"],
        "expires_at": info["expires_at"],
    }
