"""A space, of the store or of an agent: services, tools and sessions of its own. It runs in the client's event loop."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Unpack
from weakref import WeakKeyDictionary

import anyio

from ....sessions.lifecycle import Status
from ....tools.own.results import ServiceStatus, SessionInfo
from ...client import Client
from ...errors import InvalidArgument, NameTaken, NotAllowed, ServiceUnavailable, no_session
from ...options import BasicSessionOptions
from ...protocol.calls import arguments_of
from ...results import CallResult, ResourceContent, Tool
from ...scopes import AutoSession, SessionBlock
from ...session import Session
from .names import SpaceTool, find_tool, prefix_of, space_tool, unknown_tool
from .services import ServiceDescriptions, read_descriptions

if TYPE_CHECKING:
    from ....sessions.json_codec import JSON

logger = logging.getLogger("statehold.client")

WAIT_SECONDS: Final = 30.0
"""How long wait_service() waits by default."""
POLL_SECONDS: Final = 0.05
"""Seconds between two looks at the status of a service."""


@dataclass(frozen=True, slots=True)
class AddedService:
    """A service that one space added."""

    agent_id: str | None
    name: str
    spec: JSON


@dataclass(slots=True)
class ServiceRegister:
    """The added services and their spaces, by the name of the service on the server. All spaces of a store share it."""

    services: dict[str, AddedService] = field(default_factory=dict[str, AddedService])
    owns_server: bool = True
    """Whether the store started the Statehold. On any other Statehold all spaces have all services."""
    locks: dict[str, anyio.Lock] = field(default_factory=dict[str, anyio.Lock])
    """A lock per name, so that adding the same service twice at once adds it once."""


def configure_services(register: ServiceRegister, descriptions: ServiceDescriptions) -> JSON:
    """Return services for the configuration of a store's own Statehold; they belong to the space of the store."""
    services = read_descriptions(descriptions)
    for name, spec in services.items():
        register.services[require_service_name(name)] = AddedService(None, name, spec)
    return {name: _add_prefix(spec, prefix_of(None, name)) for name, spec in services.items()}


def require_service_name(name: str) -> str:
    """Return the name of a service.

    Raises:
        InvalidArgument: it has a slash, which separates an agent from its services.
    """
    if "/" in name:
        raise InvalidArgument(f"{name[:128]!r} is no name of a service: it has a slash.")
    return name


def _add_prefix(spec: JSON, prefix: str) -> JSON:
    return {**spec, "prefix": prefix + spec.get("prefix", "")}


class Space:
    """The services, tools and sessions of the store, or of one agent. It lives as long as the store."""

    def __init__(self, client: Client, register: ServiceRegister, agent_id: str | None) -> None:
        self.client = client if agent_id is None else client.namespace(agent_id)
        self.agent_id = agent_id
        self.auto: AutoSession | None = None
        self._auto_id: str | None = None
        self._register = register
        self._tools: list[SpaceTool] | None = None
        self._bindings: WeakKeyDictionary[Session, set[str]] = WeakKeyDictionary()

    async def add_service(self, descriptions: ServiceDescriptions) -> None:
        """Add services; a service that exists with the same description stays unchanged.

        Raises:
            NameTaken: there is another service of that name.
            ServiceUnavailable: it does not start, or does not list its tools.
            NotAllowed: this Statehold is not the store's own.
        """
        for name, spec in read_descriptions(descriptions).items():
            remote = self._remote(require_service_name(name))
            async with self._register.locks.setdefault(remote, anyio.Lock()):
                await self._add(remote, name, spec)

    async def _add(self, remote: str, name: str, spec: JSON) -> None:
        existing = self._register.services.get(remote)
        if existing is not None:
            if existing.spec == spec:
                return
            raise NameTaken(f"There is another service {name!r}; choose another name.")
        await self.client.add_service(remote, _add_prefix(spec, prefix_of(self.agent_id, name)))
        self._register.services[remote] = AddedService(self.agent_id, name, spec)
        self._tools = None

    def _remote(self, name: str) -> str:
        """Return the name on the server of a service of this space."""
        is_prefixed = self._register.owns_server and self.agent_id is not None
        return f"{self.agent_id}/{name}" if is_prefixed else name

    def local(self, remote: str | None) -> str | None:
        """Return the name of a service of the server in this space, None for one that it does not have."""
        service = self._register.services.get(remote or "")
        if service is not None:
            return service.name if service.agent_id == self.agent_id else None
        return remote if self.agent_id is None or not self._register.owns_server else None

    async def services(self) -> list[ServiceStatus]:
        """Return the services of this space and their statuses."""
        try:
            statuses = await self.client.list_services()
        except NotAllowed:
            # A server without the toolset `admin`: services with tools in the list are available.
            statuses = self._statuses_of(await self.client.list_tools())
        return [
            replace(each, service=name)
            for each in statuses
            if (name := self.local(each.service)) is not None
        ]

    def _statuses_of(self, tools: list[Tool]) -> list[ServiceStatus]:
        counts: dict[str, int] = {}
        for tool in tools:
            if tool.service is not None:
                counts[tool.service] = counts.get(tool.service, 0) + 1
        return [
            ServiceStatus(name, "available", None, count, "", "") for name, count in counts.items()
        ]

    async def service(self, name: str) -> ServiceStatus:
        """Return a service of this space.

        Raises:
            ServiceUnavailable: there is no such service; the error names those that there are.
        """
        statuses = {each.service: each for each in await self.services()}
        if name not in statuses:
            here = "" if self.agent_id is None else f" of the agent {self.agent_id!r}"
            raise ServiceUnavailable(
                f"There is no service {name[:128]!r}{here}; there is {', '.join(statuses) or 'none'}.",
                recovery=self._advise_to_add([name])
                or f"Add it with {self._add_call}, or correct the name.",
            )
        return statuses[name]

    @property
    def _add_call(self) -> str:
        agent = "" if self.agent_id is None else f"for_agent({self.agent_id!r})."
        return f"{agent}add_service(...)"

    async def wait_service(self, name: str, timeout: float = WAIT_SECONDS) -> ServiceStatus:
        """Wait until a service is available.

        Raises:
            ServiceUnavailable: it is not available in time; the error says why. At once when there is no such service.
        """
        deadline = anyio.current_time() + timeout
        while True:
            status = await self.service(name)
            if status.status == "available":
                return status
            if anyio.current_time() >= deadline:
                reason = status.problem or "it is still starting"
                raise ServiceUnavailable(f"{name} is not available: {reason}")
            await anyio.sleep(POLL_SECONDS)

    async def tools(self, *, again: bool = False) -> list[SpaceTool]:
        """Return the tools of all services of this space; `again` asks the server instead of the cache."""
        if self._tools is None or again:
            self._tools = [
                space_tool(tool, name, self._prefix(tool.service or ""))
                for tool in await self.client.list_tools()
                if tool.service is not None and (name := self.local(tool.service)) is not None
            ]
        return self._tools

    def _prefix(self, remote: str) -> str:
        service = self._register.services.get(remote)
        return "" if service is None else prefix_of(service.agent_id, service.name)

    async def tools_of(self, session: Session) -> list[SpaceTool]:
        """Return the tools that a session has: of the services it is bound to, of all while it is bound to none."""
        services = await self.bound_services(session)
        return [
            each for each in await self.tools() if not services or each.tool.service in services
        ]

    async def find(self, name: str, service: str | None, session: Session | None) -> SpaceTool:
        """Return the tool that a caller means.

        Raises:
            UnknownTool: there is none; the error lists similar names.
            InvalidArgument: several services have one of that name.
        """
        bound_names = () if session is None else self._bindings.get(session, ())
        for again in (False, True):
            tools = await self.tools(again=again)
            tool = find_tool(tools, name, service, bound_names)
            if tool is not None:
                return tool
        error = unknown_tool(tools, name)
        error.recovery = self._advise_to_add(await self._services_with(name)) or error.recovery
        raise error

    async def _services_with(self, name: str) -> list[str]:
        """Return the services of the store alone that have a tool of this name."""
        found: list[str] = []
        for tool in await self.client.list_tools():
            service = self._register.services.get(tool.service or "")
            if service is not None and service.agent_id is None:
                named = space_tool(tool, service.name, prefix_of(None, service.name))
                if name in (named.tool.name, named.original):
                    found.append(service.name)
        return found

    def _advise_to_add(self, names: Sequence[str]) -> str | None:
        """Return the advice for services that the store has and this agent has not; None when it has none of them."""
        if self.agent_id is None or not self._register.owns_server:
            return None
        for name in names:
            service = self._register.services.get(name)
            if service is not None and service.agent_id is None:
                return (
                    f"The store has {name}, this agent has not: add it to the agent, with "
                    f"{self._add_call}."
                )
        return None

    def forget_tools(self) -> None:
        self._tools = None

    def block(self, session_id: str | None, **options: Unpack[BasicSessionOptions]) -> SessionBlock:
        """Return a block with the open session of this name, or with a new one, which is bound to nothing yet."""
        return self.client.session(session_id, services=[], agent_id=self.agent_id, **options)

    async def open(self, session_id: str | None, **options: Unpack[BasicSessionOptions]) -> Session:
        """Return the open session of this name, or a new one."""
        arguments = arguments_of(name=session_id, services=[], agent_id=self.agent_id, **options)
        return await self.client.directory.open(arguments)

    async def sessions(self, statuses: Sequence[str] | None = None) -> list[SessionInfo]:
        """Return the sessions of this space with some statuses: by default those that are not closed."""
        sessions = await self.client.list_sessions(statuses=statuses)
        return [each for each in sessions if each.namespace == self.client.scope]

    async def handles(self) -> list[Session]:
        """Return a handle to each open session of this space."""
        return [
            self.client.directory.session_of(each, attached=True) for each in await self.sessions()
        ]

    async def get(self, session_id: str) -> Session:
        """Return the open session of this name or handle.

        Raises:
            SessionNotFound: there is none in this space.
        """
        session = await self.client.get(session_id)
        if session.namespace != self.client.scope or not session.is_open:
            raise no_session(f"There is no session {session_id[:128]!r} here.")
        return session

    async def bound_services(self, session: Session) -> list[str]:
        """Return the services that a session is bound to, by their names in this space."""
        names = (self.local(each.service) for each in (await session.info()).services)
        services = [name for name in names if name is not None]
        self._bindings[session] = set(services)
        return services

    async def bind(self, session: Session, name: str) -> None:
        """Let a session use a service of this space.

        Raises:
            ServiceUnavailable: there is no such service, or it is not available.
        """
        await self.wait_service(name)
        await self._bind(session, name)

    async def _bind(self, session: Session, name: str) -> None:
        await session.bind(self._remote(name))
        self._bindings.setdefault(session, set()).add(name)

    async def unbind(self, session: Session, name: str) -> None:
        """End a session's use of a service. The next call of one of its tools binds it again."""
        self._bindings.get(session, set[str]()).discard(name)
        await session.unbind(self._remote(name))

    async def call(
        self,
        session: Session,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        service: str | None = None,
        timeout: float | None = None,
        check: bool = False,
    ) -> CallResult:
        """Call a tool in a session. The first call of a tool binds the session to its service."""
        tool = await self.find(name, service, session)
        owner = tool.tool.service or ""
        if owner not in self._bindings.get(session, ()):
            await self._bind(session, owner)
        result = await session.call_tool(
            tool.remote, arguments, read_timeout_seconds=timeout, check=check
        )
        if result.notice is not None:
            # Programs that read MCPStore results do not know the notice.
            logger.warning("session %s: %s", session.name or session.id, result.notice)
        return result

    async def call_without_session(
        self, name: str, arguments: Mapping[str, Any] | None = None, **options: Any
    ) -> CallResult:
        """Call a tool for a caller without a session: in the automatic one, else in a new one, which is closed again."""
        if self.auto is not None:
            return await self.call(await self.auto.session(), name, arguments, **options)
        await self.find(name, options.get("service"), None)
        async with self.block(None) as session:
            return await self.call(session, name, arguments, **options)

    async def begin_auto(
        self, session_id: str | None, **options: Unpack[BasicSessionOptions]
    ) -> None:
        """Let calls outside of every block share a session. With another name, the one before is closed."""
        if self.auto is not None and session_id in (None, self._auto_id):
            return
        await self.end_auto()
        self._auto_id = session_id
        self.auto = self.client.auto_session(
            session_id, services=[], agent_id=self.agent_id, **options
        )

    async def end_auto(self, *, close: bool = True) -> None:
        auto, self.auto = self.auto, None
        if auto is not None:
            await auto.end(close=close)

    async def restart_service(self, name: str) -> bool:
        """Replace the connections of a service in all sessions of this space that use it."""
        await self.service(name)
        for session in await self.handles():
            if name in await self.bound_services(session):
                await session.restart([self._remote(name)])
        return True

    async def read_resource(self, uri: str, service: str) -> list[ResourceContent]:
        """Read a resource of a service, in the automatic session, else in a new one, which is closed again."""
        await self.service(service)
        if self.auto is not None:
            return await self._read_resource(await self.auto.session(), uri, service)
        async with self.block(None) as session:
            return await self._read_resource(session, uri, service)

    async def _read_resource(
        self, session: Session, uri: str, service: str
    ) -> list[ResourceContent]:
        await self._bind(session, service)
        return await session.read_resource(uri, service=self._remote(service))

    def specs(self) -> JSON:
        """Return the descriptions of the services that this space added."""
        services = self._register.services.values()
        return {each.name: each.spec for each in services if each.agent_id == self.agent_id}

    async def call_each(self, tool: str, statuses: Sequence[str] | None = None) -> int:
        """Call an own tool for each session with some statuses, by default not closed; return how many there are."""
        sessions = await self.sessions(statuses)
        for each in sessions:
            await self.client.calls.call(each.session_id, tool, {})
        return len(sessions)

    async def statistics(self) -> JSON:
        sessions = await self.sessions([status.value for status in Status])
        by_status = Counter(each.status for each in sessions)
        live = sum(each.status not in ("closing", "closed") for each in sessions)
        return {
            "total_sessions": len(sessions),
            "active_sessions": live,
            "by_status": dict(by_status),
        }


__all__ = ["AddedService", "ServiceRegister", "Space", "configure_services"]
