"""The result of for_store() and for_agent(): the interface of a program to a space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self, Unpack

from ....tools.own.results import ServiceStatus
from ... import session
from ...errors import SessionNotFound
from ...results import CallResult, ResourceContent, Tool
from .block import SessionBlock
from .session import Session, current_sessions
from .space import WAIT_SECONDS

if TYPE_CHECKING:
    from ....sessions.json_codec import JSON
    from ...options import BasicSessionOptions
    from ...sync.client import Client
    from .langchain import LangChain
    from .services import ServiceDescriptions
    from .space import Space


class Context:
    """The services, tools and sessions of the store, or of one agent. It lives as long as the store."""

    def __init__(self, client: Client, space: Space) -> None:
        self.client = client
        self.space = space

    def __repr__(self) -> str:
        agent = self.space.agent_id
        return "<Context of the store>" if agent is None else f"<Context of the agent {agent!r}>"

    @property
    def agent_id(self) -> str | None:
        return self.space.agent_id

    def add_service(self, config: ServiceDescriptions) -> Self:
        """Add a service, several, or those of an `mcpServers` table or file, and wait until they are ready.

        Raises:
            NameTaken: there is another service of that name.
            ServiceUnavailable: it does not start, or does not list its tools; it is not added then.
            ConfigError: its description is wrong.
            NotAllowed: the store uses a server, whose own configuration defines the services.
        """
        self.client.portal.run(self.space.add_service, config)
        return self

    async def add_service_async(self, config: ServiceDescriptions) -> Self:
        await self.client.portal.wait(self.space.add_service, config)
        return self

    def wait_service(self, name: str, timeout: float = WAIT_SECONDS) -> ServiceStatus:
        """Wait until a service is available, and return its status.

        Raises:
            ServiceUnavailable: it is not available in time; the error says why. At once when there is no such service.
        """
        return self.client.portal.run(self.space.wait_service, name, timeout)

    async def wait_service_async(self, name: str, timeout: float = WAIT_SECONDS) -> ServiceStatus:
        return await self.client.portal.wait(self.space.wait_service, name, timeout)

    def list_services(self) -> list[ServiceStatus]:
        """Return the services of this space."""
        return self.client.portal.run(self.space.services)

    async def list_services_async(self) -> list[ServiceStatus]:
        return await self.client.portal.wait(self.space.services)

    def get_service_info(self, name: str) -> ServiceStatus:
        """Return a service of this space.

        Raises:
            ServiceUnavailable: there is no such service; the error names those that there are.
        """
        return self.client.portal.run(self.space.service, name)

    async def get_service_info_async(self, name: str) -> ServiceStatus:
        return await self.client.portal.wait(self.space.service, name)

    service_info = get_service_info
    service_info_async = get_service_info_async

    def get_service_status(self, name: str) -> JSON:
        """Return the same as a dict, with the keys `service` and `status` among others."""
        return asdict(self.get_service_info(name))

    async def get_service_status_async(self, name: str) -> JSON:
        return asdict(await self.get_service_info_async(name))

    service_status = get_service_status
    service_status_async = get_service_status_async

    def check_services(self) -> JSON:
        """Return the services of this space as dicts, and how many are available."""
        return _check(self.list_services())

    async def check_services_async(self) -> JSON:
        return _check(await self.list_services_async())

    def restart_service(self, name: str) -> bool:
        """Replace the connections of a service in all sessions of this space that use it."""
        return self.client.portal.run(self.space.restart_service, name)

    async def restart_service_async(self, name: str) -> bool:
        return await self.client.portal.wait(self.space.restart_service, name)

    def read_resource(self, uri: str, service_name: str) -> list[ResourceContent]:
        """Read a resource of a service, in the session of session_auto(), else in one of its own."""
        return self.client.portal.run(self.space.read_resource, uri, service_name)

    async def read_resource_async(self, uri: str, service_name: str) -> list[ResourceContent]:
        return await self.client.portal.wait(self.space.read_resource, uri, service_name)

    def show_config(self) -> JSON:
        """Return the services that this space added, as an `mcpServers` table."""
        return {"mcpServers": self.space.specs()}

    show_mcpconfig = show_config

    async def show_config_async(self) -> JSON:
        return self.show_config()

    show_mcpconfig_async = show_config_async

    def list_tools(self) -> list[Tool]:
        """Return the tools of all services of this space."""
        return self.client.portal.run(self._list_tools)

    async def list_tools_async(self) -> list[Tool]:
        return await self.client.portal.wait(self._list_tools)

    async def _list_tools(self) -> list[Tool]:
        return [each.tool for each in await self.space.tools(again=True)]

    def use_tool(
        self,
        tool_name: str,
        args: Mapping[str, Any] | None = None,
        *,
        service: str | None = None,
        timeout: float | None = None,
    ) -> CallResult:
        """Call a tool in the session whose `with` block is active, else in that of session_auto().

        Without either the call has a session of its own, which ends with the call.
        """
        within = self.current_session
        if within is not None:
            return within.use_tool(tool_name, args, service=service, timeout=timeout)
        call = self.space.call_without_session
        return self.client.portal.run(call, tool_name, args, service=service, timeout=timeout)

    async def use_tool_async(
        self,
        tool_name: str,
        args: Mapping[str, Any] | None = None,
        *,
        service: str | None = None,
        timeout: float | None = None,
    ) -> CallResult:
        within = self.current_session
        if within is not None:
            return await within.use_tool_async(tool_name, args, service=service, timeout=timeout)
        call = self.space.call_without_session
        return await self.client.portal.wait(
            call, tool_name, args, service=service, timeout=timeout
        )

    call_tool = use_tool
    call_tool_async = use_tool_async

    def for_langchain(self) -> LangChain:
        """Return the object that lists the tools for LangChain and LangGraph. Needs the extra `langchain`."""
        from .langchain import LangChain

        return LangChain(self.client.portal, self.space)

    for_langgraph = for_langchain

    def with_session(
        self, session_id: str | None = None, **options: Unpack[BasicSessionOptions]
    ) -> SessionBlock:
        """Return a block with the open session of this name, or with a new one; see SessionBlock for its end."""
        return SessionBlock(self.client, self.space, session_id, **options)

    def with_session_async(
        self, session_id: str | None = None, **options: Unpack[BasicSessionOptions]
    ) -> SessionBlock:
        """Return the same, for `async with`."""
        return SessionBlock(self.client, self.space, session_id, **options)

    def create_session(
        self, session_id: str | None = None, **options: Unpack[BasicSessionOptions]
    ) -> Session:
        """Return the open session of this name, or a new one, which stays until it is closed or its times run out.

        Raises:
            InvalidArgument: a session cannot have that name.
        """
        return self._session_of(
            self.client.portal.run(self.space.open, session_id, **options), session_id
        )

    async def create_session_async(
        self, session_id: str | None = None, **options: Unpack[BasicSessionOptions]
    ) -> Session:
        return self._session_of(
            await self.client.portal.wait(self.space.open, session_id, **options), session_id
        )

    get_session = create_session
    get_session_async = create_session_async

    def find_session(self, session_id: str) -> Session | None:
        """Return the open session of this name or handle, None when this space has none."""
        return self.client.portal.run(self._find, session_id)

    async def find_session_async(self, session_id: str) -> Session | None:
        return await self.client.portal.wait(self._find, session_id)

    async def _find(self, session_id: str) -> Session | None:
        try:
            return self._session_of(await self.space.get(session_id))
        except SessionNotFound:
            return None

    def list_sessions(self) -> list[Session]:
        """Return all open sessions of this space. This does not count as use of them."""
        return self.client.portal.run(self._list_sessions)

    async def list_sessions_async(self) -> list[Session]:
        return await self.client.portal.wait(self._list_sessions)

    async def _list_sessions(self) -> list[Session]:
        return [self._session_of(inner) for inner in await self.space.handles()]

    def _session_of(self, inner: session.Session, session_id: str | None = None) -> Session:
        return Session(self.client, self.space, inner, session_id)

    @property
    def current_session(self) -> Session | None:
        """The session of the innermost block of this space around the running code, in this task or thread."""
        return current_sessions.find(self.space)

    def session_auto(
        self, session_id: str | None = None, **options: Unpack[BasicSessionOptions]
    ) -> Self:
        """From now on, let calls outside of every block share one session of this space, made by the first of them.

        With another name than before, the session before is closed.
        """
        self.client.portal.run(self.space.begin_auto, session_id, **options)
        return self

    async def session_auto_async(
        self, session_id: str | None = None, **options: Unpack[BasicSessionOptions]
    ) -> Self:
        await self.client.portal.wait(self.space.begin_auto, session_id, **options)
        return self

    def session_manual(self, *, close: bool = True) -> Self:
        """End the automatic session of session_auto(), and close it unless `close=False`."""
        self.client.portal.run(self.space.end_auto, close=close)
        return self

    async def session_manual_async(self, *, close: bool = True) -> Self:
        await self.client.portal.wait(self.space.end_auto, close=close)
        return self

    def is_session_auto(self) -> bool:
        return self.space.auto is not None

    def close_all_sessions(self) -> int:
        """Close all sessions of this space; return how many."""
        return self.client.portal.run(self.space.call_each, "session_close")

    async def close_all_sessions_async(self) -> int:
        return await self.client.portal.wait(self.space.call_each, "session_close")

    def restart_sessions(self) -> int:
        """Replace the live connections of all sessions of this space; return how many sessions there are."""
        return self.client.portal.run(self.space.call_each, "session_restart")

    async def restart_sessions_async(self) -> int:
        return await self.client.portal.wait(self.space.call_each, "session_restart")

    def cleanup_sessions(self) -> int:
        """Delete the stored data of closed sessions of this space; return how many there were. Needs the toolset `admin`."""
        return self.client.portal.run(self.space.call_each, "session_delete", ["closed"])

    async def cleanup_sessions_async(self) -> int:
        return await self.client.portal.wait(self.space.call_each, "session_delete", ["closed"])

    def get_session_statistics(self) -> JSON:
        """Return how many sessions this space has, closed ones too, by their status."""
        return self.client.portal.run(self.space.statistics)

    async def get_session_statistics_async(self) -> JSON:
        return await self.client.portal.wait(self.space.statistics)


def _check(services: Sequence[ServiceStatus]) -> JSON:
    available = sum(each.status == "available" for each in services)
    return {"active_services": available, "services": [asdict(each) for each in services]}


__all__ = ["Context"]
