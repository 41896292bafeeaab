"""The toolsets `core` and `lifecycle`: create, list, change and close sessions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, JsonValue

from ...sessions.actions.rename_delete import SAME
from ...sessions.calls.deliveries import take_notices
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import Status
from ...sessions.live.session import Session
from ...sessions.records import SessionFilter, labels_of
from ...sessions.registry import Registry
from ...sessions.transitions.create import SessionOptions
from ...sessions.validation import Plain
from ..definition import Arguments
from .definition import Context, Handler, Outcome, OwnTool, format_duration, parse_time

SessionId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=256,
        description="The session: the session_id that session_create returned, or the name you gave it.",
    ),
]
Seconds = Annotated[float, Field(ge=0, le=3.2e9)]
Name = Annotated[str, Field(min_length=1, max_length=128)]
Label = Annotated[Plain, Field(min_length=1, max_length=128)] | None


class CreateArguments(Arguments):
    name: Annotated[
        str | None,
        Field(
            max_length=128,
            description="A name to find the session by later; unique among your open sessions.",
        ),
    ] = None
    services: Annotated[
        list[str] | None,
        Field(description="Names of the services it uses. Default: all that are configured."),
    ] = None
    state: Annotated[
        dict[str, Any] | None, Field(description="A JSON object the session starts with.")
    ] = None
    state_schema: Annotated[
        dict[str, Any] | None,
        Field(description="A JSON Schema (2020-12) that its state has to fit, now and later."),
    ] = None
    metadata: Annotated[
        dict[str, JsonValue] | None,
        Field(description="Anything you want to see again in session_info and session_list."),
    ] = None
    user_id: Annotated[
        Label, Field(description="A user in your words, for session_list; it grants no access.")
    ] = None
    agent_id: Annotated[Label, Field(description="An agent, for session_list.")] = None
    team_id: Annotated[Label, Field(description="A team, for session_list.")] = None
    workflow_id: Annotated[Label, Field(description="A workflow, for session_list.")] = None
    namespace: Annotated[str, Field(max_length=128, description="Keeps names apart.")] = ""
    idle_seconds: Annotated[
        Seconds | None, Field(description="Pause it after this time without a call. 0: never.")
    ] = None
    paused_seconds: Annotated[
        Seconds | None, Field(description="Close it after this time paused. 0: never.")
    ] = None
    lifetime_seconds: Annotated[
        Seconds | None, Field(description="Close it at this age, whatever it does. 0: never.")
    ] = None


class ListArguments(Arguments):
    name: Annotated[str | None, Field(max_length=128, description="Only names that start so.")] = (
        None
    )
    namespace: Annotated[str | None, Field(max_length=128)] = None
    statuses: Annotated[
        list[Literal["creating", "idle", "active", "paused", "error", "closing", "closed"]] | None,
        Field(description="Only these. Default: all that are not closed."),
    ] = None
    user_id: Label = None
    agent_id: Label = None
    team_id: Label = None
    workflow_id: Label = None
    metadata: Annotated[
        dict[str, JsonValue] | None,
        Field(description="Only those whose metadata has exactly these values under these keys."),
    ] = None
    updated_since: Annotated[
        str | None,
        Field(max_length=64, description="Only those used at this time or later, in ISO 8601."),
    ] = None
    query: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=256,
            description="Only those with this text in their name, ids, metadata or summary.",
        ),
    ] = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    cursor: Annotated[
        str | None, Field(max_length=256, description="next_cursor of the page before.")
    ] = None


class SessionArguments(Arguments):
    session_id: SessionId


class CloseArguments(SessionArguments):
    force: Annotated[
        bool, Field(description="Cancel running calls at once instead of letting them finish.")
    ] = False


class ExtendArguments(SessionArguments):
    seconds: Annotated[
        float, Field(ge=-3.2e9, le=3.2e9, description="How much later its lifetime ends.")
    ] = 3600.0


class RestartArguments(SessionArguments):
    services: Annotated[
        list[str] | None,
        Field(description="The services to reconnect. Default: all that are open."),
    ] = None


class RenameArguments(SessionArguments):
    name: Annotated[
        str | None,
        Field(
            max_length=128,
            description="The new name; left out: none, or the old one when there is metadata.",
        ),
    ] = None
    metadata: Annotated[
        dict[str, JsonValue] | None,
        Field(
            description="Is merged into its metadata: what it does not name stays, null deletes."
        ),
    ] = None


class BindArguments(SessionArguments):
    service: Name


class Labels(BaseModel):
    user_id: str | None
    agent_id: str | None
    team_id: str | None
    workflow_id: str | None


class ServiceInfo(BaseModel):
    service: str
    status: str
    connected: bool
    generation: int
    last_error: str | None
    since: str | None


class SessionInfo(Labels):
    session_id: str
    name: str | None
    namespace: str
    status: str
    reason: str | None
    created_at: str
    used_at: str
    expires_at: str | None
    closed_at: str | None
    idle_seconds: float
    paused_seconds: float
    lifetime_seconds: float
    metadata: dict[str, JsonValue]
    parent: str | None
    in_flight: int
    generation: int
    state_version: int
    services: list[ServiceInfo]


class CloseResult(SessionInfo):
    already_closed: bool


class ListedSession(Labels):
    session_id: str
    name: str | None
    namespace: str
    status: str
    reason: str | None
    created_at: str
    used_at: str
    expires_at: str | None
    metadata: dict[str, JsonValue]


class ListResult(BaseModel):
    sessions: list[ListedSession]
    next_cursor: str | None


class SessionTools:
    """The tools of these toolsets for one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

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
                self._create_description(),
                CreateArguments,
                SessionInfo,
                self._create,
                offered_when_pinned=False,
            ),
            OwnTool(
                "session_list",
                "List your sessions",
                "List your sessions, most recently used first, all or those that fit what is given. Looking does not count "
                "as use. While there is a next_cursor there may be more, also after a page with few.",
                ListArguments,
                ListResult,
                self._list,
                read_only=True,
                offered_when_pinned=False,
            ),
            OwnTool(
                "session_info",
                "Show a session",
                "Show a session: status, services, timeouts, when it expires. Looking does not count as use.",
                SessionArguments,
                SessionInfo,
                self._info,
                read_only=True,
            ),
            OwnTool(
                "session_close",
                "Close a session",
                "Close a session and everything it keeps open. Its id is never used again. Closing it twice does no harm.",
                CloseArguments,
                CloseResult,
                self._close,
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
            **hints: bool,
        ) -> OwnTool:
            return OwnTool(
                name, title, text, arguments, SessionInfo, handler, toolset="lifecycle", **hints
            )

        return [
            tool(
                "session_pause",
                "Pause a session",
                "Pause a session that has no call running: what its services can save is saved. "
                "The next call resumes it.",
                SessionArguments,
                self._pause,
                idempotent=True,
            ),
            tool(
                "session_resume",
                "Resume a session",
                "Resume a paused session now and open its connections; the result says what came back and what did not.",
                SessionArguments,
                self._resume,
                idempotent=True,
            ),
            tool(
                "session_extend",
                "Extend a session",
                "Let a session live longer (or shorter, with negative seconds) than its lifetime says.",
                ExtendArguments,
                self._extend,
            ),
            tool(
                "session_restart",
                "Restart a session's connections",
                "Replace the live connections of a session by fresh ones. What can be saved of them comes back, "
                "what they held in memory does not.",
                RestartArguments,
                self._restart,
                destructive=True,
            ),
            tool(
                "session_rename",
                "Rename a session",
                "Give a session another name, or none, or change its metadata.",
                RenameArguments,
                self._rename,
                idempotent=True,
                frees_name=True,
                # The URL or the command line may name the session; a new name would break it.
                offered_when_pinned=False,
            ),
            tool(
                "session_bind",
                "Add a service to a session",
                "Let a session use another configured service.",
                BindArguments,
                self._bind,
                idempotent=True,
            ),
            tool(
                "session_unbind",
                "Remove a service from a session",
                "End a session's use of a service; its connection is closed and what was saved of it is deleted.",
                BindArguments,
                self._unbind,
                destructive=True,
                idempotent=True,
            ),
        ]

    def _create_description(self) -> str:
        policy = self._registry.core.policy
        times = policy.timeouts
        services = ", ".join(self._registry.core.services) or "none"
        idle = "paused" if policy.on_idle == "pause" else "closed"
        return (
            "Create a session and get its session_id, which every tool that needs a session takes. The session keeps "
            f"its live connections between calls. Services: {services}. Unused, it is {idle} after "
            f"{format_duration(times.idle)} and a paused session is closed after {format_duration(times.paused)}; "
            f"its lifetime ends after {format_duration(times.lifetime)}. A paused session is resumed by the next call. "
            "Keep the session_id: it stays valid when your connection or the server restarts."
        )

    async def _create(self, context: Context, arguments: CreateArguments) -> Outcome:
        session = await self._registry.create(
            context.principal,
            SessionOptions(
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

    async def _list(self, context: Context, arguments: ListArguments) -> Outcome:
        statuses = arguments.statuses or [
            status.value for status in Status if status is not Status.CLOSED
        ]
        session_filter = SessionFilter(
            namespace=arguments.namespace,
            name_prefix=arguments.name,
            statuses=[Status(status) for status in statuses],
            updated_since=parse_time(arguments.updated_since, "updated_since"),
            labels=labels_of(arguments),
            metadata=arguments.metadata,
            query=arguments.query,
            limit=arguments.limit,
            cursor=arguments.cursor,
        )
        entries, cursor = await self._registry.page(context.principal, session_filter)
        keys = ListedSession.model_fields
        sessions = [{key: entry[key] for key in keys} for entry in entries]
        return Outcome({"sessions": sessions, "next_cursor": cursor})

    async def _info(self, context: Context, arguments: SessionArguments) -> Outcome:
        info = await self._registry.info(context.principal, arguments.session_id, context.namespace)
        return Outcome(info, summary(info))

    async def _close(self, context: Context, arguments: CloseArguments) -> Outcome:
        info, already_closed = await self._registry.close(
            context.principal, arguments.session_id, force=arguments.force, reason=context.cause
        )
        return Outcome({**info, "already_closed": already_closed}, summary(info))

    async def _pause(self, context: Context, arguments: SessionArguments) -> Outcome:
        session = await self._registry.pause(
            context.principal, arguments.session_id, cause=context.cause
        )
        return self._outcome(session)

    async def _resume(self, context: Context, arguments: SessionArguments) -> Outcome:
        return self._outcome(await self._registry.resume(context.principal, arguments.session_id))

    async def _extend(self, context: Context, arguments: ExtendArguments) -> Outcome:
        return self._outcome(
            await self._registry.extend(context.principal, arguments.session_id, arguments.seconds)
        )

    async def _restart(self, context: Context, arguments: RestartArguments) -> Outcome:
        return self._outcome(
            await self._registry.restart(
                context.principal, arguments.session_id, arguments.services
            )
        )

    async def _rename(self, context: Context, arguments: RenameArguments) -> Outcome:
        keeps_name = arguments.metadata is not None and "name" not in arguments.model_fields_set
        name = SAME if keeps_name else arguments.name
        rename_delete = self._registry.rename_delete
        return self._outcome(
            await rename_delete.rename(
                context.principal, arguments.session_id, name, metadata=arguments.metadata
            )
        )

    async def _bind(self, context: Context, arguments: BindArguments) -> Outcome:
        return self._outcome(
            await self._registry.bind(context.principal, arguments.session_id, arguments.service)
        )

    async def _unbind(self, context: Context, arguments: BindArguments) -> Outcome:
        return self._outcome(
            await self._registry.unbind(context.principal, arguments.session_id, arguments.service)
        )

    def _outcome(self, session: Session) -> Outcome:
        bindings = list(session.bindings.values())
        delivery = take_notices(session, *bindings)
        if delivery is None:
            return Outcome(session.info(), session.summary())
        for binding in delivery.bindings:
            self._registry.connector.save_soon(session, binding)
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


__all__ = ["SessionTools", "summary"]
