"""A session with the names that MCPStore has for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Self

from ....tools.own.results import SessionInfo
from ... import session, sync
from ...blocks import Current
from ...errors import SessionNotFound
from ...results import CallResult

if TYPE_CHECKING:
    from ....sessions.json_codec import JSON
    from ...sync.client import Client
    from .space import Space

HOUR: Final = 3600.0


class Session:
    """A handle to a session of a space. Any thread may use it, and by the `_async` methods any event loop of asyncio.

    It asks the server for each description of itself, so that all handles return the same, current values.
    """

    def __init__(
        self, client: Client, space: Space, inner: session.Session, session_id: str | None = None
    ) -> None:
        self._client = client
        self._space = space
        self._session_id = session_id
        self._inner: session.Session | None = inner

    def __repr__(self) -> str:
        return f"<Session {self.session_id!r} {self.inner.status}>"

    @property
    def inner(self) -> session.Session:
        """The same handle of the async client, whose event loop is in another thread."""
        assert self._inner is not None
        return self._inner

    async def _opened(self) -> session.Session:
        """Return `inner`, for methods of async code."""
        return self.inner

    @property
    def session_id(self) -> str:
        """The name that it was opened with, its handle where it has none."""
        return self._session_id or self.inner.name or self.inner.id

    @property
    def id(self) -> str:
        """The server's handle, which is unique for all time."""
        return self.inner.id

    @property
    def agent_id(self) -> str | None:
        return self._space.agent_id

    @property
    def attached(self) -> bool:
        """Whether it was open before, under this name."""
        return self.inner.attached

    @property
    def generation(self) -> int:
        """A counter that rises whenever one of its live connections was replaced, whose state in memory was lost."""
        return self.inner.generation

    @property
    def native(self) -> sync.Session:
        """The session's handle of the blocking client, with its state, its history, fork() and all other methods."""
        return sync.Session(self._client.portal, self.inner)

    @property
    def is_active(self) -> bool:
        return self._client.is_open and self._client.portal.run(self._is_active, self.inner)

    async def is_active_async(self) -> bool:
        return self._client.is_open and await self._client.portal.wait(
            self._is_active, await self._opened()
        )

    async def _is_active(self, inner: session.Session) -> bool:
        info = await self._find_info(inner)
        return info is not None and info.status not in ("closing", "closed")

    async def _find_info(self, inner: session.Session) -> SessionInfo | None:
        try:
            return await inner.info()
        except SessionNotFound:
            return None

    @property
    def service_count(self) -> int:
        return len(self.list_services())

    async def service_count_async(self) -> int:
        return len(await self.list_services_async())

    @property
    def tool_count(self) -> int:
        return len(self.list_tools())

    async def tool_count_async(self) -> int:
        return len(await self.list_tools_async())

    def session_info(self) -> JSON:
        """Return its full description: MCPStore's keys, and the server's further ones. This does not count as use of it."""
        return self._client.portal.run(self._info, self.inner)

    async def session_info_async(self) -> JSON:
        return await self._client.portal.wait(self._info, await self._opened())

    async def _info(self, inner: session.Session) -> JSON:
        info = await inner.info()
        services = await self._space.bound_services(inner)
        tools = await self._list_tools(inner)
        return {
            **asdict(info),
            "session_id": self.session_id,
            "id": info.session_id,
            "agent_id": self.agent_id,
            "is_active": info.status not in ("closing", "closed"),
            "last_active": info.used_at,
            "service_count": len(services),
            "services": services,
            "tool_count": len(tools),
            "tools": tools,
            "available_tools": tools,
        }

    def list_services(self) -> list[str]:
        """Return the services that it is bound to."""
        return self._client.portal.run(self._space.bound_services, self.inner)

    async def list_services_async(self) -> list[str]:
        return await self._client.portal.wait(self._space.bound_services, await self._opened())

    def list_tools(self) -> list[str]:
        """Return the names of its tools: of the services it is bound to, of all of its space while it is bound to none."""
        return self._client.portal.run(self._list_tools, self.inner)

    async def list_tools_async(self) -> list[str]:
        return await self._client.portal.wait(self._list_tools, await self._opened())

    async def _list_tools(self, inner: session.Session) -> list[str]:
        return [each.tool.name for each in await self._space.tools_of(inner)]

    def connection_status(self) -> dict[str, JSON]:
        """Return by service whether it is connected, its generation, and its last error."""
        return self._client.portal.run(self._connection_status, self.inner)

    async def connection_status_async(self) -> dict[str, JSON]:
        return await self._client.portal.wait(self._connection_status, await self._opened())

    async def _connection_status(self, inner: session.Session) -> dict[str, JSON]:
        statuses: dict[str, JSON] = {}
        for each in (await inner.info()).services:
            name = self._space.local(each.service)
            if name is not None:
                statuses[name] = {**asdict(each), "service": name}
        return statuses

    def bind_service(self, service_name: str) -> Self:
        """Let it use a service of its space. Binding a bound service does nothing; the first call connects.

        Raises:
            ServiceUnavailable: there is no such service, or it is not available.
        """
        self._client.portal.run(self._space.bind, self.inner, service_name)
        return self

    async def bind_service_async(self, service_name: str) -> Self:
        await self._client.portal.wait(self._space.bind, await self._opened(), service_name)
        return self

    def unbind_service(self, service_name: str) -> Self:
        """End its use of a service. The next call of one of its tools binds it again."""
        self._client.portal.run(self._space.unbind, self.inner, service_name)
        return self

    async def unbind_service_async(self, service_name: str) -> Self:
        await self._client.portal.wait(self._space.unbind, await self._opened(), service_name)
        return self

    def use_tool(
        self,
        tool_name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        service: str | None = None,
        timeout: float | None = None,
    ) -> CallResult:
        """Call a tool, by its own name or as `<service>_<tool>`. A failure of the tool itself is a result: `is_error`.

        Raises:
            UnknownTool: there is none of that name; the error lists similar names.
            CallTimedOut: after `timeout` seconds; it was cancelled.
            SessionError: everything else, see statehold.client.errors.
        """
        call = self._space.call
        return self._client.portal.run(
            call, self.inner, tool_name, arguments, service=service, timeout=timeout
        )

    async def use_tool_async(
        self,
        tool_name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        service: str | None = None,
        timeout: float | None = None,
    ) -> CallResult:
        call = self._space.call
        return await self._client.portal.wait(
            call, await self._opened(), tool_name, arguments, service=service, timeout=timeout
        )

    def restart_session(self) -> Self:
        """Replace its live connections by fresh ones; their state in memory is lost, and `generation` rises by one."""
        self._client.portal.run(self.inner.restart)
        return self

    async def restart_session_async(self) -> Self:
        inner = await self._opened()
        await self._client.portal.wait(inner.restart)
        return self

    def extend_session(self, seconds: float = HOUR) -> Self:
        """Let it live longer by so many seconds. Its idle clock starts anew with each call by itself."""
        self._client.portal.run(self.inner.extend, seconds)
        return self

    async def extend_session_async(self, seconds: float = HOUR) -> Self:
        inner = await self._opened()
        await self._client.portal.wait(inner.extend, seconds)
        return self

    def clear_cache(self) -> Self:
        """Forget the list of tools, so that the next use asks the server. Connections stay as they are."""
        self._space.forget_tools()
        return self

    async def clear_cache_async(self) -> Self:
        return self.clear_cache()

    def close_session(self) -> None:
        """Close it and its connections. May be called twice."""
        self._client.portal.run(self.inner.close)

    async def close_session_async(self) -> None:
        inner = await self._opened()
        await self._client.portal.wait(inner.close)


current_sessions: Final[Current[Session]] = Current(
    "statehold.client.integrations.mcpstore.session"
)
"""The sessions of the blocks around the running code, in this task or thread, by their space."""

__all__ = ["Session", "current_sessions"]
