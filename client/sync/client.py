"""The connection to one Statehold, for programs that block."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from .. import automatic, client
from ..current import Current
from ..modules import Loaded, StateModule
from ..protocol.calls import WITHOUT_SESSION
from ..results import CallResult, ServiceStatus, SessionInfo, Stats, Tool
from .block import AutoSession, SessionBlock
from .portal import Portal, in_thread
from .session import Progress, Session

T = TypeVar("T")

_current: Current[Session] = Current("statehold.client.sync.session")


class Client:
    """A connection to one Statehold: `with connect(...) as client`. Any thread may use it while it is open.

    Leaving it ends the connection, not the sessions on a server: blocks close theirs, others stay and can be found by name.
    An embedded Statehold, and one that was started over stdio, end with it. The end of the program closes a client that is
    still open.
    """

    current = _current

    def __init__(self, inner: client.Client, portal: Portal | None = None) -> None:
        self.inner = inner
        """The same connection of the async client, whose event loop is in another thread."""
        self._portal = portal or Portal()

    def __repr__(self) -> str:
        return repr(self.inner)

    def __enter__(self) -> Self:
        """Connect.

        Raises:
            ServerUnreachable: no server answers there, or it is no Statehold.
        """
        if self._portal.is_started:
            raise RuntimeError("a client is entered once; connect() makes another one")
        self._portal.start(self)
        try:
            self.run(self.inner.__aenter__)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection, and the sessions that auto_session() made. May be called twice."""
        if self._portal.is_started:
            try:
                self.run(self.inner.aclose)
            finally:
                self._portal.stop(self)

    def run(self, function: Callable[..., Awaitable[T]], /, *args: Any, **options: Any) -> T:
        """Run a function of the async client in its thread and return its result."""
        return self._portal.run(function, *args, **options)

    async def wait(self, function: Callable[..., Awaitable[T]], /, *args: Any, **options: Any) -> T:
        """The same for a task of another event loop."""
        return await self._portal.wait(function, *args, **options)

    @property
    def is_open(self) -> bool:
        return self.inner.is_open

    @property
    def key(self) -> object:
        """The key under which the current sessions of this connection and namespace are kept."""
        return self.inner.key

    @property
    def scope(self) -> str:
        """The namespace of its sessions."""
        return self.inner.scope

    def namespace(self, name: str) -> Client:
        """Return a view of this connection whose sessions have names of their own. It needs no closing."""
        return Client(self.inner.namespace(name), self._portal)

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
        block = self.inner.session(
            name,
            services=services,
            keep=keep,
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
        return SessionBlock(self, block)

    def create(
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
        made = self.run(
            self.inner.create,
            name,
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
        return Session(self, made)

    def get(self, ref: str) -> Session:
        """Return the open session with this id, or with this name in the namespace.

        Raises:
            SessionNotFound: there is none.
        """
        return Session(self, self.run(self.inner.get, ref))

    def sessions(
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
        return self.run(
            self.inner.sessions,
            name=name,
            statuses=statuses,
            user_id=user_id,
            agent_id=agent_id,
            team_id=team_id,
            workflow_id=workflow_id,
            metadata=metadata,
            updated_since=updated_since,
            query=query,
        )

    def import_session(
        self, document: Mapping[str, Any], *, name: str | None = None, strict: bool = True
    ) -> Session:
        """Create a session from the document of Session.export(). Needs the toolset `admin`."""
        return Session(
            self, self.run(self.inner.import_session, document, name=name, strict=strict)
        )

    # The modules of an agent.

    def save_session_state(self, session: Session | str, /, **modules: StateModule) -> None:
        """Save the states of modules in a session, in one write. If no session has the name, one is created, and stays.

        Raises:
            TypeError: a value in a state is not JSON; nothing was saved.
        """
        ref = session if isinstance(session, str) else session.inner
        self.run(self.inner.save_session_state, ref, **modules)

    def load_session_state(
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
        ref = session if isinstance(session, str) else session.inner
        return self.run(
            self.inner.load_session_state,
            ref,
            allow_not_exist=allow_not_exist,
            strict=strict,
            **modules,
        )

    # Calls.

    def call(
        self, tool: str, given: Mapping[str, Any] | None = None, /, **arguments: Any
    ) -> CallResult:
        """Call a tool in the current session: that of the innermost block, in this thread, of this client.

        Raises:
            NoCurrentSession: there is none.
        """
        return self.call_tool(tool, {**given, **arguments} if given else arguments)

    def call_tool(
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
        session = self.current_session
        named = tool in WITHOUT_SESSION or "session_id" in given
        call = self.inner.call_tool if session is None or named else session.inner.call_tool
        return self.run(
            call,
            tool,
            given,
            timeout_seconds=timeout_seconds,
            progress=None if progress is None else in_thread(progress, "progress"),
            operation_id=operation_id,
            run_id=run_id,
            check=check,
        )

    @property
    def current_session(self) -> Session | None:
        """The session of the innermost block of this client around the running code, in this thread."""
        return self.current.find(self.key)

    def auto_session(self, name: str | None = None, **options: Any) -> AutoSession:
        """From now on, let calls outside of every block share one session, which the first of them creates.

        `with` the result to end that with a block. Otherwise manual_session() or the end of the client ends it. It takes the
        options of session().
        """
        auto: automatic.AutoSession = self.inner.auto_session(name, **options)
        return AutoSession(self, auto)

    def manual_session(self, *, close: bool = True) -> None:
        """End the automatic session of auto_session(); `close=False` leaves the session open."""
        self.run(self.inner.manual_session, close=close)

    # The server.

    def tools(self) -> list[Tool]:
        """Return all tools, Statehold's own first."""
        return self.run(self.inner.tools)

    def services(self) -> list[ServiceStatus]:
        """Return the configured services and their statuses. Needs the toolset `admin`."""
        return self.run(self.inner.services)

    def stats(self) -> Stats:
        """Return the statistics of the server. Needs the toolset `admin`."""
        return self.run(self.inner.stats)

    def wait_service(self, name: str, timeout_seconds: float = 30.0) -> ServiceStatus:
        """Wait until a service is available. Needs the toolset `admin`.

        Raises:
            ServiceUnavailable: it is not available in time; the error says why. At once when there is no such service.
        """
        return self.run(self.inner.wait_service, name, timeout_seconds)

    def add_service(self, name: str, spec: Mapping[str, Any]) -> ServiceStatus:
        """Offer one more MCP server, described as in a client's `mcpServers` table; embedded only. New sessions use it.

        Raises:
            NotAllowed: this is no embedded Statehold.
            ConfigError: the description is wrong.
            InvalidArgument: there is a service of that name, or a tool of the same name as one of its tools.
            ServiceUnavailable: it cannot be started, or does not list its tools. It is not added then.
        """
        return self.run(self.inner.add_service, name, spec)


__all__ = ["Client"]
