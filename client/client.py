"""The connection to one Statehold: its sessions, calls, services and statistics."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio

from . import keeping
from .automatic import AutoSession
from .block import SessionBlock
from .current import Current
from .errors import (
    InvalidArgument,
    NameTaken,
    NoCurrentSession,
    NotAllowed,
    ServerUnreachable,
    ServiceUnavailable,
    SessionNotFound,
)
from .modules import Loaded, StateModule
from .protocol.calls import WITHOUT_SESSION, Calls, present
from .results import JSON, CallResult, ServiceStatus, SessionBrief, SessionInfo, Stats, Tool, taken
from .session import Session
from .transport.base import Progress, TransportBroken

if TYPE_CHECKING:
    from .protocol.retry import RetryingRequests
    from .transport.base import Transport

TRIES = 3
"""Tries to open a session by a name that is taken, while no session of that name is found."""
LOOK_SECONDS = 0.05
"""Seconds between two checks of wait_service()."""

_current: Current[Session] = Current("statehold.client.session")


@dataclass(slots=True)
class Shared:
    """The objects that all views of one connection share."""

    channel: Transport
    calls: Calls
    autos: dict[str, AutoSession] = field(default_factory=dict[str, AutoSession])
    is_open: bool = False
    closed: bool = False


class Client:
    """A connection to one Statehold: `async with connect(...) as client`. Any task may use it while it is open.

    Leaving it ends the connection, not the sessions on a server: blocks close theirs, others stay and can be found by name.
    An embedded Statehold, and one that was started over stdio, end with it.
    """

    current = _current

    def __init__(self, channel: Transport, line: RetryingRequests) -> None:
        self._shared = Shared(channel, Calls(line))
        self.scope = ""
        """The namespace of its sessions."""

    def __repr__(self) -> str:
        return f"<Client {type(self._shared.channel).__name__} namespace={self.scope!r}>"

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            ServerUnreachable: no server answers there, or it is no Statehold.
        """
        shared = self._shared
        if shared.is_open or shared.closed:
            raise RuntimeError("a client is entered once; connect() makes another one")
        try:
            await shared.channel.open()
            if shared.channel.breaks:
                await shared.calls.line.greet()
        except TransportBroken as broken:
            await shared.channel.aclose()
            raise ServerUnreachable(f"Statehold cannot be reached: {broken.cause}.") from None
        except BaseException:
            await shared.channel.aclose()
            raise
        shared.is_open = True
        return self

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
        shared.closed = True
        for auto in list(shared.autos.values()):
            await auto.end(close=True)
        shared.is_open = False
        shared.calls.line.close()
        await shared.channel.aclose()

    @property
    def is_open(self) -> bool:
        return self._shared.is_open

    @property
    def key(self) -> object:
        """The key under which the current sessions of this connection and namespace are kept."""
        return (id(self._shared), self.scope)

    @property
    def calls(self) -> Calls:
        if not self._shared.is_open:
            raise ServerUnreachable(
                "The client is not open.", recovery="Use it inside of `async with connect(...)`."
            )
        return self._shared.calls

    def forget(self, session_id: str) -> None:
        """Drop all data kept here of a closed session. Sends nothing."""
        self._shared.calls.forget(session_id)

    def namespace(self, name: str) -> Client:
        """Return a view of this connection whose sessions have names of their own. It needs no closing."""
        view = object.__new__(type(self))
        view._shared = self._shared
        view.scope = name
        return view

    # Sessions.

    def session(
        self,
        name: str | None = None,
        *,
        services: Sequence[str] | None = None,
        keep: bool | None = None,
        state: Mapping[str, Any] | None = None,
        state_schema: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        workflow_id: str | None = None,
        idle_seconds: float | None = None,
        paused_seconds: float | None = None,
        lifetime_seconds: float | None = None,
    ) -> SessionBlock:
        """Return a block with a session: a new one, or the open one of that name, unchanged.

        At its end the block closes a session that it made and leaves one that it attached to. `keep=True` always leaves it,
        `keep=False` always closes it.
        """
        wish = present(
            name=name,
            services=services,
            state=state,
            state_schema=state_schema,
            metadata=metadata,
            user_id=user_id,
            agent_id=agent_id,
            team_id=team_id,
            workflow_id=workflow_id,
            idle_seconds=idle_seconds,
            paused_seconds=paused_seconds,
            lifetime_seconds=lifetime_seconds,
        )
        return SessionBlock(self, lambda: self._open(wish), keep=keep)

    async def create(
        self,
        name: str | None = None,
        *,
        services: Sequence[str] | None = None,
        state: Mapping[str, Any] | None = None,
        state_schema: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        workflow_id: str | None = None,
        idle_seconds: float | None = None,
        paused_seconds: float | None = None,
        lifetime_seconds: float | None = None,
    ) -> Session:
        """Create a session that stays until it is closed or its times run out.

        Raises:
            NameTaken: an open session has that name.
        """
        wish = present(
            name=name,
            services=services,
            state=state,
            state_schema=state_schema,
            metadata=metadata,
            user_id=user_id,
            agent_id=agent_id,
            team_id=team_id,
            workflow_id=workflow_id,
            idle_seconds=idle_seconds,
            paused_seconds=paused_seconds,
            lifetime_seconds=lifetime_seconds,
        )
        return await self._create(wish)

    async def _create(self, wish: JSON) -> Session:
        given = {**wish, "namespace": self.scope} if self.scope else wish
        result = await self.calls.run(None, "session_create", given)
        return self._of(result.structured or {})

    async def _open(self, wish: JSON) -> Session:
        for attempt in range(TRIES):
            try:
                return await self._create(wish)
            except NameTaken:
                try:
                    return await self.get(wish["name"])
                except SessionNotFound:
                    # It was closed meanwhile.
                    if attempt == TRIES - 1:
                        raise
        raise AssertionError("unreachable")

    async def get(self, ref: str) -> Session:
        """Return the open session with this id, or with this name in the namespace.

        Raises:
            SessionNotFound: there is none.
        """
        if ref.startswith("sh_") or not self.scope:
            result = await self.calls.run(None, "session_info", {"session_id": ref})
            return self._of(result.structured or {}, attached=True)
        name = unicodedata.normalize("NFC", ref)
        found = [each for each in await self.sessions(name=name) if each.name == name]
        if not found:
            raise SessionNotFound(f"There is no session {ref[:128]!r} in {self.scope!r}.")
        return await self.get(found[0].session_id)

    def _of(self, info: JSON, *, attached: bool = False) -> Session:
        brief = SessionBrief(
            info["session_id"],
            info["name"],
            info["status"],
            info["generation"],
            info["expires_at"],
        )
        return Session(self, brief, attached=attached, namespace=info["namespace"])

    async def sessions(
        self,
        *,
        name: str | None = None,
        statuses: Sequence[str] | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        team_id: str | None = None,
        workflow_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        updated_since: str | None = None,
        query: str | None = None,
    ) -> list[SessionInfo]:
        """Return all matching sessions, in a view of a namespace only its own. `name` is a prefix of names."""
        given = present(
            name=name,
            namespace=self.scope or None,
            statuses=statuses,
            user_id=user_id,
            agent_id=agent_id,
            team_id=team_id,
            workflow_id=workflow_id,
            metadata=metadata,
            updated_since=updated_since,
            query=query,
        )
        given["limit"] = 1000
        found: list[SessionInfo] = []
        while True:
            page = (await self.calls.run(None, "session_list", given)).structured or {}
            found += [SessionInfo.of(each) for each in page["sessions"]]
            if page["next_cursor"] is None:
                return found
            given["cursor"] = page["next_cursor"]

    async def import_session(
        self, document: Mapping[str, Any], *, name: str | None = None, strict: bool = True
    ) -> Session:
        """Create a session from the document of Session.export(). Needs the toolset `admin`."""
        given = present(document=document, name=name)
        if not strict:
            given["strict"] = False
        return self._of(await self._admin("session_import", given))

    # The modules of an agent.

    async def save_session_state(self, session: Session | str, /, **modules: StateModule) -> None:
        """Save the states of modules in a session, in one write. If no session has the name, one is created, and stays.

        Raises:
            TypeError: a value in a state is not JSON; nothing was saved.
        """
        given = keeping.as_modules(modules)
        found = session if isinstance(session, Session) else await self._named(session)
        await keeping.save(found.state, given)

    async def _named(self, ref: str) -> Session:
        return await (self.get(ref) if ref.startswith("sh_") else self._open({"name": ref}))

    async def load_session_state(
        self,
        session: Session | str,
        /,
        *,
        allow_not_exist: bool = False,
        strict: bool = True,
        **modules: StateModule,
    ) -> Loaded | None:
        """Load the states of modules from a session: all of them, or none when there is an error.

        `allow_not_exist`: modules without a saved state stay as they are; returns None when none has one.
        `strict=False`: attributes that are missing in the saved state stay as they are.

        Raises:
            SessionNotFound: a module has no saved state; no module was changed.
            KeyError: the saved state lacks an attribute; no module was changed.
        """
        given = keeping.as_modules(modules)
        found: Session | None = None
        try:
            found = session if isinstance(session, Session) else await self.get(session)
        except SessionNotFound:
            if not allow_not_exist:
                raise
        return await keeping.load(found, given, allow_not_exist=allow_not_exist, strict=strict)

    # Calls.

    async def call(
        self, tool: str, given: Mapping[str, Any] | None = None, /, **arguments: Any
    ) -> CallResult:
        """Call a tool in the current session: that of the innermost block, in this task or thread, of this client.

        Raises:
            NoCurrentSession: there is none.
        """
        return await self.call_tool(tool, {**given, **arguments} if given else arguments)

    async def call_tool(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_seconds: float | None = None,
        progress: Progress | None = None,
        operation_id: str | None = None,
        run_id: str | None = None,
        check: bool = True,
    ) -> CallResult:
        """Call a tool in the current session, as Session.call_tool does."""
        given = arguments or {}
        session = self.current_session if self.calls else None
        if session is None and tool not in WITHOUT_SESSION and "session_id" not in given:
            auto = self._shared.autos.get(self.scope)
            if auto is None:
                raise NoCurrentSession(tool)
            session = await auto.session()
        call = self._free_call if session is None or "session_id" in given else session.call_tool
        if tool in WITHOUT_SESSION:
            call = self._free_call
        return await call(
            tool,
            given,
            timeout_seconds=timeout_seconds,
            progress=progress,
            operation_id=operation_id,
            run_id=run_id,
            check=check,
        )

    async def _free_call(
        self, tool: str, arguments: Mapping[str, Any], **options: Any
    ) -> CallResult:
        return await self.calls.run(None, tool, arguments, **options)

    @property
    def current_session(self) -> Session | None:
        """The session of the innermost block of this client around the running code."""
        return self.current.find(self.key)

    def auto_session(self, name: str | None = None, **options: Any) -> AutoSession:
        """From now on, let calls outside of every block share one session, which the first of them creates.

        `async with` the result to end that with a block. Otherwise manual_session() or the end of the client ends it. The
        options are those of session().

        Raises:
            InvalidArgument: an automatic session of another name or with other options is in force.
        """
        found = self._shared.autos.get(self.scope)
        asked = (name, options)
        if found is not None and asked not in (found.asked, (None, {})):
            raise InvalidArgument(
                "Another session is the automatic one here.",
                recovery="End that with manual_session() first, or ask for the same one.",
            )
        if found is None:
            block: Callable[[], SessionBlock] = lambda: self.session(name, **options)  # noqa: E731
            found = self._shared.autos[self.scope] = AutoSession(block, self._forget_auto)
            found.asked = asked
        return found

    def _forget_auto(self, auto: AutoSession) -> None:
        if self._shared.autos.get(self.scope) is auto:
            del self._shared.autos[self.scope]

    async def manual_session(self, *, close: bool = True) -> None:
        """End the automatic session of auto_session(); `close=False` leaves the session open."""
        auto = self._shared.autos.get(self.scope)
        if auto is not None:
            await auto.end(close=close)

    # The server.

    async def tools(self) -> list[Tool]:
        """Return all tools, Statehold's own first."""
        return [Tool.of(found) for found in await self.calls.line.tools()]

    async def services(self) -> list[ServiceStatus]:
        """Return the configured services and their statuses. Needs the toolset `admin`."""
        found = await self._admin("service_list", {})
        return [taken(ServiceStatus, each) for each in found["services"]]

    async def stats(self) -> Stats:
        """Return the statistics of the server. Needs the toolset `admin`."""
        return taken(Stats, await self._admin("server_stats", {}))

    async def wait_service(self, name: str, timeout_seconds: float = 30.0) -> ServiceStatus:
        """Wait until a service is available. Needs the toolset `admin`.

        Raises:
            ServiceUnavailable: it is not available in time; the error says why. At once when there is no such service.
        """
        ends = anyio.current_time() + timeout_seconds
        while True:
            found = {each.service: each for each in await self.services()}
            if name not in found:
                known = ", ".join(found) or "none"
                raise ServiceUnavailable(f"There is no service {name[:128]!r}; there is {known}.")
            if found[name].status == "available":
                return found[name]
            if anyio.current_time() >= ends:
                why = found[name].problem or "it is still starting"
                raise ServiceUnavailable(f"{name} is not available: {why}")
            await anyio.sleep(LOOK_SECONDS)

    async def add_service(self, name: str, spec: Mapping[str, Any]) -> ServiceStatus:
        """Offer one more MCP server, described as in a client's `mcpServers` table; embedded only. New sessions use it.

        Raises:
            NotAllowed: this is no embedded Statehold.
            ConfigError: the description is wrong.
            InvalidArgument: there is a service of that name, or a tool of the same name as one of its tools.
            ServiceUnavailable: it cannot be started, or does not list its tools. It is not added then.
        """
        add = getattr(self._shared.channel, "add_service", None)
        if add is None:
            raise NotAllowed(
                "A server is not given services by its clients.",
                recovery="Add it to the configuration of the server, or embed one: connect(services=...).",
            )
        return taken(ServiceStatus, await add(name, spec))

    async def _admin(self, tool: str, given: JSON) -> JSON:
        return (await self.calls.run(None, tool, given)).structured or {}


__all__ = ["Client"]
