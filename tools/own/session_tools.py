"""The toolsets `core` and `lifecycle`: create, list, change and close sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

import anyio

from ...sessions.actions.rename_delete import SAME
from ...sessions.calls.notices import take_notices
from ...sessions.errors import SessionError
from ...sessions.json_codec import JSON
from ...sessions.lifecycle import Status
from ...sessions.live.session import LiveSession
from ...sessions.records import LABELS, SessionFilter, labels_of
from ...sessions.registry import Registry
from ...sessions.transitions.create import CreationOptions
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
from .session_arguments import (
    BindArguments,
    CloseArguments,
    CreateArguments,
    ExtendArguments,
    LendingCreateArguments,
    ListArguments,
    RenameArguments,
    RestartArguments,
    SessionArguments,
    SharedListArguments,
)


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


Lend: TypeAlias = Callable[[ToolContext, LiveSession, str], Awaitable[None]]
"""Lends a login to a session, as its tool login_use does."""


class SessionTools:
    """The tools of these toolsets for one registry. `services` returns the status of the services."""

    def __init__(
        self,
        registry: Registry,
        services: Callable[[], list[JSON]] = list[JSON],
        *,
        shares: bool = False,
        lend: Lend | None = None,
    ) -> None:
        """`shares`: callers are told apart, and may share sessions. `lend` lends a login to a session, if there are some."""
        self._registry = registry
        self._services = services
        self._shares = shares
        self._lend = lend

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
                CreateArguments if self._lend is None else LendingCreateArguments,
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
        if isinstance(arguments, LendingCreateArguments) and arguments.logins:
            await self._lend_all(context, session, arguments.logins)
        return self._outcome(session)

    async def _lend_all(
        self, context: ToolContext, session: LiveSession, logins: Sequence[str]
    ) -> None:
        """Lend logins to a new session, which is closed if one cannot be had. Raises like login_use."""
        assert self._lend is not None
        try:
            # In one order for all, so that two sessions do not wait for each other.
            for login in sorted(set(logins)):
                await self._lend(context, session, login)
        except BaseException:
            with anyio.CancelScope(shield=True), suppress(SessionError):
                await self._registry.close(context.principal, session.id, force=True)
            raise

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
