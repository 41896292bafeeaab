"""The connection to one Statehold: its sessions, calls, services and statistics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

import anyio

from ..tools.own.results import ServiceStatus, SessionInfo, Stats, parse_result
from .directory import SessionDirectory
from .errors import (
    InvalidArgument,
    NoCurrentSession,
    NotAllowed,
    ServerUnreachable,
    ServiceUnavailable,
    SessionNotFound,
)
from .modules import (
    LoadResult,
    Stateful,
    dump_modules,
    load_modules,
    read_states,
    require_modules,
    save_states,
)
from .options import CallOptions, SessionFilters, SessionOptions, merge_arguments
from .protocol.calls import WITHOUT_SESSION, ToolCalls, arguments_of
from .results import CallResult, SessionList, Tool, select_tools
from .scopes import AutoSession, SessionBlock
from .session import Session, current_sessions
from .transport.base import TransportBroken

if TYPE_CHECKING:
    from .protocol.retry import RetryingRequests

POLL_SECONDS: Final = 0.05
"""Seconds between two checks of wait_service()."""


@dataclass(slots=True)
class SharedState:
    """The objects that all views of one connection share."""

    requests: RetryingRequests
    calls: ToolCalls
    auto_sessions: dict[str, AutoSession] = field(default_factory=dict[str, AutoSession])
    """The automatic session of each namespace that has one."""
    is_closed: bool = False


class Client:
    """A connection to one Statehold: `async with connect(...) as client`. Any task may use it while it is open.

    Leaving it ends the connection, not the sessions on a server: blocks close theirs, others stay and can be found by name.
    An embedded Statehold, and one that was started over stdio, end with it.
    """

    scope: str
    """The namespace of its sessions."""

    def __init__(self, requests: RetryingRequests) -> None:
        self._shared = SharedState(requests, ToolCalls(requests))
        self.scope = ""
        self.directory = SessionDirectory(self._shared.calls, "")

    def __repr__(self) -> str:
        return f"<Client {type(self.requests.transport).__name__} namespace={self.scope!r}>"

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            ServerUnreachable: no server answers there, or it is no Statehold.
        """
        shared, transport = self._shared, self.requests.transport
        if shared.calls.is_open or shared.is_closed:
            raise RuntimeError("a client is entered once; connect() makes another one")
        try:
            await transport.open()
            if transport.breaks:
                await shared.requests.check_server()
        except TransportBroken as error:
            await transport.aclose()
            raise ServerUnreachable(f"Statehold cannot be reached: {error.cause}.") from None
        except BaseException:
            await transport.aclose()
            raise
        shared.calls.is_open = True
        return self

    if not TYPE_CHECKING:

        def __enter__(self):
            raise TypeError(
                "this client needs `async with`; the one of statehold.client.sync has `with`"
            )

        def __exit__(self, *_):
            """Exist, so that `with` calls __enter__."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the connection, and the sessions that auto_session() made. May be called twice."""
        shared = self._shared
        shared.is_closed = True
        for auto in list(shared.auto_sessions.values()):
            await auto.end(close=True)
        shared.calls.is_open = False
        shared.requests.close()
        await shared.requests.transport.aclose()

    @property
    def is_open(self) -> bool:
        return self._shared.calls.is_open

    @property
    def calls(self) -> ToolCalls:
        """Calls in sessions that are named by their id."""
        return self._shared.calls

    @property
    def requests(self) -> RetryingRequests:
        """Requests of other methods than tool calls."""
        return self._shared.requests

    def namespace(self, name: str) -> Client:
        """Return a view of this connection whose sessions have names of their own. It needs no closing."""
        view = object.__new__(type(self))
        view._shared = self._shared
        view.scope = name
        view.directory = SessionDirectory(self._shared.calls, name)
        return view

    def session(
        self,
        name: str | None = None,
        *,
        keep: bool | None = None,
        **options: Unpack[SessionOptions],
    ) -> SessionBlock:
        """Return a block with a session: a new one, or the open one of that name, unchanged.

        At its end the block closes a session that it made and leaves one that it attached to. `keep=True` always leaves it,
        `keep=False` always closes it.
        """
        return SessionBlock(self.directory, arguments_of(name=name, **options), keep=keep)

    async def create(self, name: str | None = None, **options: Unpack[SessionOptions]) -> Session:
        """Create a session that stays until it is closed or its times run out.

        Raises:
            NameTaken: an open session has that name.
        """
        return await self.directory.create(arguments_of(name=name, **options))

    async def get(self, ref: str) -> Session:
        """Return the session with this id, or the open session with this name in the namespace.

        Raises:
            SessionNotFound: there is none.
        """
        return await self.directory.get(ref)

    async def list_sessions(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        **filters: Unpack[SessionFilters],
    ) -> SessionList:
        """Return the matching sessions, those used last first; in a view of a namespace only its own.

        Without a limit all of them are returned. With one, the `next_cursor` of the list is the `cursor` of the next one.
        """
        return await self.directory.list(arguments_of(**filters), limit, cursor)

    async def find(
        self, ref: str | None = None, /, **filters: Unpack[SessionFilters]
    ) -> Session | None:
        """Return the open session with this id or name, or the one used last that matches; None when there is none."""
        return await self.directory.find(ref, arguments_of(**filters))

    async def import_session(
        self, document: Mapping[str, Any], *, name: str | None = None, strict: bool = True
    ) -> Session:
        """Create a session from the document of Session.export(). Needs the toolset `admin`."""
        arguments = arguments_of(document=document, name=name, strict=None if strict else False)
        info = await self.directory.call_own("session_import", arguments)
        return self.directory.session_of(parse_result(SessionInfo, info))

    async def save_session_state(self, session: Session | str, /, **modules: Stateful) -> None:
        """Save the states of modules in a session, in one write. If no session has the name, one is created, and stays.

        Raises:
            TypeError: a value in a state is not JSON; nothing was saved.
        """
        states = dump_modules(modules)
        if isinstance(session, str):
            session = await self.directory.get_or_create(session)
        await save_states(session.state, states)

    async def load_session_state(
        self,
        session: Session | str,
        /,
        *,
        allow_not_exist: bool = False,
        strict: bool = True,
        **modules: Stateful,
    ) -> LoadResult | None:
        """Load the states of modules from a session: all of them, or none when there is an error.

        A closed session is read as long as it is kept; of several with the name, the open one or the one closed last.

        `allow_not_exist`: modules without a saved state stay as they are; returns None when none has one.
        `strict=False`: attributes that are missing in the saved state stay as they are.

        Raises:
            SessionNotFound: a module has no saved state; no module was changed.
            KeyError: the saved state lacks an attribute; no module was changed.
        """
        require_modules(modules)
        source: Session | None = None
        try:
            is_handle = isinstance(session, Session)
            source = session if is_handle else await self.directory.get_readable(session)
        except SessionNotFound:
            if not allow_not_exist:
                raise
        return load_modules(
            await read_states(source),
            modules,
            session=None if source is None else source.id,
            allow_not_exist=allow_not_exist,
            strict=strict,
        )

    async def call(
        self,
        tool: str,
        mapping: Mapping[str, Any] | None = None,
        /,
        *,
        run_id: str | None = None,
        **arguments: Any,
    ) -> CallResult:
        """Call a tool in the current session: that of the innermost block, in this task or thread, of this client.

        See Session.call.

        Raises:
            NoCurrentSession: there is none.
        """
        arguments = merge_arguments(mapping, arguments)
        return await self.call_tool(tool, arguments, run_id=run_id)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> CallResult:
        """Call a tool in the current session, as Session.call_tool does."""
        self.calls.require_open()
        arguments = arguments or {}
        if name in WITHOUT_SESSION or "session_id" in arguments:
            return await self.calls.call(None, name, arguments, **options)
        session = self.current_session or await self._auto_session_for(name)
        return await session.call_tool(name, arguments, **options)

    async def _auto_session_for(self, tool: str) -> Session:
        auto = self._shared.auto_sessions.get(self.scope)
        if auto is None or auto.is_ended:
            raise NoCurrentSession(tool)
        return await auto.session()

    @property
    def current_session(self) -> Session | None:
        """The session of the innermost block of this client around the running code, in this task or thread."""
        return current_sessions.find(self.directory.scope)

    def auto_session(
        self, name: str | None = None, **options: Unpack[SessionOptions]
    ) -> AutoSession:
        """From now on, let calls outside of every block share one session, which the first of them creates.

        `async with` the result to end that with a block. Otherwise manual_session() or the end of the client ends it.
        It takes the options of session().

        Raises:
            InvalidArgument: an automatic session of another name or with other options is in force.
        """
        arguments = arguments_of(name=name, **options)
        auto = self._shared.auto_sessions.get(self.scope)
        if auto is None or auto.is_ended:
            auto = self._shared.auto_sessions[self.scope] = AutoSession(self.directory, arguments)
        elif arguments and arguments != auto.options:
            raise InvalidArgument(
                "Another session is the automatic one here.",
                recovery="End that with manual_session() first, or ask for the same one.",
            )
        return auto

    async def manual_session(self, *, close: bool = True) -> None:
        """End the automatic session of auto_session(); `close=False` leaves the session open."""
        auto = self._shared.auto_sessions.get(self.scope)
        if auto is not None:
            await auto.end(close=close)

    async def list_tools(self, *, names: Collection[str] | None = None) -> list[Tool]:
        """Return all tools, Statehold's own first; with `names` only those tools.

        Raises:
            ValueError: there is no tool of one of the names.
        """
        tools = await self.calls.list_tools()
        return tools if names is None else select_tools(tools, names)

    async def list_services(self) -> list[ServiceStatus]:
        """Return the configured services and their statuses. Needs the toolset `admin`."""
        answer = await self.directory.call_own("service_list", {})
        return [parse_result(ServiceStatus, each) for each in answer["services"]]

    async def stats(self) -> Stats:
        """Return the statistics of the server. Needs the toolset `admin`."""
        return parse_result(Stats, await self.directory.call_own("server_stats", {}))

    async def wait_service(self, name: str, timeout_seconds: float = 30.0) -> ServiceStatus:
        """Wait until a service is available. Needs the toolset `admin`.

        Raises:
            ServiceUnavailable: it is not available in time; the error says why. At once when there is no such service.
        """
        deadline = anyio.current_time() + timeout_seconds
        while True:
            services = {each.service: each for each in await self.list_services()}
            if name not in services:
                names = ", ".join(services) or "none"
                raise ServiceUnavailable(f"There is no service {name[:128]!r}; there is {names}.")
            if services[name].status == "available":
                return services[name]
            if anyio.current_time() >= deadline:
                reason = services[name].problem or "it is still starting"
                raise ServiceUnavailable(f"{name} is not available: {reason}")
            await anyio.sleep(POLL_SECONDS)

    async def add_service(self, name: str, spec: Mapping[str, Any]) -> ServiceStatus:
        """Offer one more MCP server, described as in a client's `mcpServers` table; embedded only. New sessions use it.

        Raises:
            NotAllowed: this is no embedded Statehold.
            ConfigError: the description is wrong.
            InvalidArgument: there is a service of that name, or a tool of the same name as one of its tools.
            ServiceUnavailable: it cannot be started, or does not list its tools. It is not added then.
        """
        add = getattr(self.requests.transport, "add_service", None)
        if add is None:
            raise NotAllowed(
                "A server is not given services by its clients.",
                recovery="Add it to the configuration of the server, or embed one: connect(services=...).",
            )
        return parse_result(ServiceStatus, await add(name, spec))


__all__ = ["Client"]
