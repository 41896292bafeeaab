"""The toolsets `core` and `lifecycle`: the tools that make, show, change and end sessions."""

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
from .definition import Context, Handler, Outcome, OwnTool, moment, words

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


class Create(Arguments):
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


class Listing(Arguments):
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


class One(Arguments):
    session_id: SessionId


class Close(One):
    force: Annotated[
        bool, Field(description="Cancel running calls at once instead of letting them finish.")
    ] = False


class Extend(One):
    seconds: Annotated[
        float, Field(ge=-3.2e9, le=3.2e9, description="How much later its lifetime ends.")
    ] = 3600.0


class Restart(One):
    services: Annotated[
        list[str] | None,
        Field(description="The services to reconnect. Default: all that are open."),
    ] = None


class Rename(One):
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


class Bind(One):
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


class ClosedInfo(SessionInfo):
    already_closed: bool


class ListedInfo(Labels):
    session_id: str
    name: str | None
    namespace: str
    status: str
    reason: str | None
    created_at: str
    used_at: str
    expires_at: str | None
    metadata: dict[str, JsonValue]


class Listed(BaseModel):
    sessions: list[ListedInfo]
    next_cursor: str | None


class SessionTools:
    """The tools over one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def tools(self, toolsets: Iterable[str]) -> list[OwnTool]:
        """Return the tools of the chosen toolsets, in a fixed order."""
        wanted = set(toolsets)
        return [tool for tool in [*self._core(), *self._lifecycle()] if tool.toolset in wanted]

    def _core(self) -> list[OwnTool]:
        return [
            OwnTool(
                "session_create",
                "Create a session",
                self._create_description(),
                Create,
                SessionInfo,
                self._create,
                pinned=False,
            ),
            OwnTool(
                "session_list",
                "List your sessions",
                "List your sessions, most recently used first, all or those that fit what is given. Looking does not count "
                "as use. While there is a next_cursor there may be more, also after a page with few.",
                Listing,
                Listed,
                self._list,
                read_only=True,
                pinned=False,
            ),
            OwnTool(
                "session_info",
                "Show a session",
                "Show a session: status, services, timeouts, when it expires. Looking does not count as use.",
                One,
                SessionInfo,
                self._info,
                read_only=True,
            ),
            OwnTool(
                "session_close",
                "Close a session",
                "Close a session and everything it keeps open. Its id is never used again. Closing it twice does no harm.",
                Close,
                ClosedInfo,
                self._close,
                destructive=True,
                idempotent=True,
                frees_name=True,
            ),
        ]

    def _lifecycle(self) -> list[OwnTool]:
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
                One,
                self._pause,
                idempotent=True,
            ),
            tool(
                "session_resume",
                "Resume a session",
                "Resume a paused session now and open its connections; the result says what came back and what did not.",
                One,
                self._resume,
                idempotent=True,
            ),
            tool(
                "session_extend",
                "Extend a session",
                "Let a session live longer (or shorter, with negative seconds) than its lifetime says.",
                Extend,
                self._extend,
            ),
            tool(
                "session_restart",
                "Restart a session's connections",
                "Replace the live connections of a session by fresh ones. What can be saved of them comes back, "
                "what they held in memory does not.",
                Restart,
                self._restart,
                destructive=True,
            ),
            tool(
                "session_rename",
                "Rename a session",
                "Give a session another name, or none, or change its metadata.",
                Rename,
                self._rename,
                idempotent=True,
                frees_name=True,
                # The URL or the command line may find the session by its name.
                pinned=False,
            ),
            tool(
                "session_bind",
                "Add a service to a session",
                "Let a session use another configured service.",
                Bind,
                self._bind,
                idempotent=True,
            ),
            tool(
                "session_unbind",
                "Remove a service from a session",
                "End a session's use of a service; its connection is closed and what was saved of it is deleted.",
                Bind,
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
            f"{words(times.idle)} and a paused session is closed after {words(times.paused)}; its lifetime ends after "
            f"{words(times.lifetime)}. A paused session is resumed by the next call. Keep the session_id: it stays "
            "valid when your connection or the server restarts."
        )

    async def _create(self, context: Context, args: Create) -> Outcome:
        session = await self._registry.create(
            context.principal,
            SessionOptions(
                name=args.name,
                services=args.services,
                state=args.state,
                state_schema=args.state_schema,
                metadata=args.metadata,
                labels=labels_of(args),
                namespace=args.namespace or context.namespace,
                idle=args.idle_seconds,
                paused=args.paused_seconds,
                lifetime=args.lifetime_seconds,
                operation=context.operation,
            ),
        )
        return self._outcome(session)

    async def _list(self, context: Context, args: Listing) -> Outcome:
        statuses = args.statuses or [s.value for s in Status if s is not Status.CLOSED]
        wanted = SessionFilter(
            namespace=args.namespace,
            name_prefix=args.name,
            statuses=[Status(s) for s in statuses],
            updated_since=moment(args.updated_since, "updated_since"),
            labels=labels_of(args),
            metadata=args.metadata,
            query=args.query,
            limit=args.limit,
            cursor=args.cursor,
        )
        found, cursor = await self._registry.page(context.principal, wanted)
        keys = ListedInfo.model_fields
        sessions = [{key: entry[key] for key in keys} for entry in found]
        return Outcome({"sessions": sessions, "next_cursor": cursor})

    async def _info(self, context: Context, args: One) -> Outcome:
        found = await self._registry.info(context.principal, args.session_id, context.namespace)
        return Outcome(found, summary(found))

    async def _close(self, context: Context, args: Close) -> Outcome:
        found, already = await self._registry.close(
            context.principal, args.session_id, force=args.force, reason=context.cause
        )
        return Outcome({**found, "already_closed": already}, summary(found))

    async def _pause(self, context: Context, args: One) -> Outcome:
        session = await self._registry.pause(
            context.principal, args.session_id, cause=context.cause
        )
        return self._outcome(session)

    async def _resume(self, context: Context, args: One) -> Outcome:
        return self._outcome(await self._registry.resume(context.principal, args.session_id))

    async def _extend(self, context: Context, args: Extend) -> Outcome:
        return self._outcome(
            await self._registry.extend(context.principal, args.session_id, args.seconds)
        )

    async def _restart(self, context: Context, args: Restart) -> Outcome:
        return self._outcome(
            await self._registry.restart(context.principal, args.session_id, args.services)
        )

    async def _rename(self, context: Context, args: Rename) -> Outcome:
        keep = args.metadata is not None and "name" not in args.model_fields_set
        name = SAME if keep else args.name
        life = self._registry.rename_delete
        return self._outcome(
            await life.rename(context.principal, args.session_id, name, metadata=args.metadata)
        )

    async def _bind(self, context: Context, args: Bind) -> Outcome:
        return self._outcome(
            await self._registry.bind(context.principal, args.session_id, args.service)
        )

    async def _unbind(self, context: Context, args: Bind) -> Outcome:
        return self._outcome(
            await self._registry.unbind(context.principal, args.session_id, args.service)
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
    """Return the part of a session's description that every result about the session holds."""
    return {
        "id": info["session_id"],
        "name": info["name"],
        "status": info["status"],
        "generation": info["generation"],
        "expires_at": info["expires_at"],
    }


__all__ = ["SessionTools", "summary"]
