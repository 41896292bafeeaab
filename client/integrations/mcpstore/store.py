"""The store: one Statehold, and the spaces in it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio.to_thread

from ...connect import StrPath
from ...errors import InvalidArgument
from ...sync.client import Client
from ...sync.connect import connect
from .context import Context
from .services import ServiceDescriptions
from .space import ServiceRegister, Space, configure_services

if TYPE_CHECKING:
    from ....server.config.model import Config

logger = logging.getLogger("statehold")


class MCPStore:
    """A store: setup_store() makes one. It lives until close(), the end of its `with` block, or the end of the program.

    Any thread may use it, and any event loop of asyncio by the methods that end in `_async`.
    """

    def __init__(self, client: Client, register: ServiceRegister) -> None:
        self.client = client
        """The blocking client underneath, for features that MCPStore does not have."""
        self._register = register
        self._store = Context(client, Space(client.inner, self._register, None))
        self._agents: dict[str, Context] = {}

    @classmethod
    def setup_store(
        cls,
        url: str | None = None,
        *,
        services: ServiceDescriptions | None = None,
        config: Config | StrPath | None = None,
        data: StrPath | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
        mcpjson_path: StrPath | None = None,
        debug: bool | str = False,
    ) -> MCPStore:
        """Return a store that is ready: a Statehold of its own in this process, or the one that serves at `url`.

        Its own one starts with the services of `services`, in the forms of add_service(), or of `config`, and stores nothing
        on disk without a folder `data`, or one of `config`. The other options are those of statehold.client.connect.

        `mcpjson_path` is a file with an `mcpServers` table, another form of `services`; it is only read. `debug` shows the
        log of Statehold: True from `DEBUG` on, or from the named level on.

        Raises:
            InvalidArgument, ConfigError: `services` or `config` are wrong.
            ServerUnreachable: no server answers at `url`.
            TypeError: there are two forms of `services`.
        """
        if mcpjson_path is not None:
            if services is not None:
                raise TypeError("setup_store() takes services or mcpjson_path, not both")
            services = mcpjson_path
        if debug:
            logging.basicConfig()
            logger.setLevel("DEBUG" if debug is True else debug.upper())
        register = ServiceRegister(owns_server=url is None)
        table = None if services is None else configure_services(register, services)
        if register.owns_server and config is None and table is None:
            table = {}
        client = connect(
            url, services=table, config=config, data=data, headers=headers, token=token
        )
        client.__enter__()
        return cls(client, register)

    @classmethod
    async def setup_store_async(cls, url: str | None = None, **options: Any) -> MCPStore:
        """Return the same, for a program with an event loop."""
        return await anyio.to_thread.run_sync(partial(cls.setup_store, url, **options))

    def for_store(self) -> Context:
        """Return the space of the store itself."""
        return self._store

    def for_agent(self, agent_id: str) -> Context:
        """Return the space of an agent, which has services, tools and sessions of its own.

        Raises:
            InvalidArgument: an agent cannot have that name.
        """
        context = self._agents.get(agent_id)
        if context is not None:
            return context
        if not agent_id or "/" in agent_id:
            raise InvalidArgument(
                f"{agent_id[:128]!r} is no id of an agent: empty, or with a slash."
            )
        context = Context(self.client, Space(self.client.inner, self._register, agent_id))
        return self._agents.setdefault(agent_id, context)

    def close(self) -> None:
        """End the connection; a Statehold of its own ends with its sessions and their connections. May be called twice."""
        self.client.close()

    async def close_async(self) -> None:
        await anyio.to_thread.run_sync(self.client.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close_async()


__all__ = ["MCPStore"]
