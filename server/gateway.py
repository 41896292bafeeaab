"""Everything one process serves: its sessions, its services, and the tool list made of them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import anyio

from ..sessions.clock import Clock
from ..sessions.cluster import Node
from ..sessions.creation import Wish
from ..sessions.errors import SessionError, SessionNotFound
from ..sessions.records import Principal
from ..sessions.registry import Registry
from ..sessions.router import Router
from ..sessions.services import JSON, Service, ToolSpec
from ..sessions.store.base import Store
from ..tools.catalog import Catalog, CatalogError, Naming, Offer
from ..tools.own import OwnTool
from ..tools.session_tools import SessionTools
from .config import Config

logger = logging.getLogger("statehold.server")

RETRY_SECONDS = 30.0
"""How long until a service that could not be probed is tried again."""


class Gateway:
    """The sessions and services of one process. `async with` opens it; leaving it drains.

    Services are probed in the background as soon as it is open: whoever needs the tool list waits for the first answers.
    A service that cannot be probed contributes no tools until it can; the others do not wait for it longer than its
    `connect_seconds`.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        node: Node,
        services: Mapping[str, Service],
        *,
        clock: Clock | None = None,
    ) -> None:
        self.config = config
        self.store = store
        self.services = dict(services)
        self.registry = Registry(store, node, services, policy=config.policy(), clock=clock)
        self.router = Router(self.registry, store, node.id)
        self.on_tools_changed: list[Callable[[], Awaitable[None]]] = []
        self._tools: dict[str, Sequence[ToolSpec]] = {}
        self._problems: dict[str, str] = {}
        self._catalogs: dict[Naming, Catalog] = {}
        self._probed = anyio.Event()
        self._stack = AsyncExitStack()
        self.own: dict[str, OwnTool] = {}

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        await self._stack.enter_async_context(self.registry)
        tools = SessionTools(self.registry).tools(self.config.toolsets)
        self.own = {tool.name: tool for tool in tools}
        self.registry.spawn(self._probe)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, traceback)

    @property
    def problems(self) -> Mapping[str, str]:
        """Services that could not be probed, with the reason."""
        return self._problems

    # The tool list.

    async def catalog(self, naming: Naming) -> Catalog:
        """Return the tool list, waiting for the first probe of every service."""
        await self._probed.wait()
        found = self._catalogs.get(naming)
        if found is None:
            found = self._catalogs[naming] = self._build(naming)
        return found

    def catalog_nowait(self, naming: Naming) -> Catalog | None:
        return self._catalogs.get(naming)

    def _build(self, naming: Naming) -> Catalog:
        header = self.config.server.session_header and naming == "explicit"
        own = [
            tool.definition(pinned=naming == "pinned", header=header)
            for tool in self.own.values()
            if tool.pinned or naming != "pinned"
        ]
        offers = [self._offer(name) for name in self.services if name in self._tools]
        return Catalog(offers, own, naming=naming, header=header)

    def _offer(self, name: str) -> Offer:
        settings = self.config.services[name]
        return Offer(
            name, self._tools[name], settings.prefix, settings.include, tuple(settings.exclude)
        )

    async def _probe(self) -> None:
        async with anyio.create_task_group() as tasks:
            for name, service in self.services.items():
                tasks.start_soon(self._probe_one, name, service)
        try:
            self._catalogs["explicit"] = self._build("explicit")
        except CatalogError as error:
            self.refused = error
            raise
        finally:
            self._probed.set()
        if self._problems:
            self.registry.spawn(self._probe_again)

    refused: CatalogError | None = None
    """Why the configured services cannot be served together."""

    async def ready(self) -> None:
        """Wait until every service was probed.

        Raises:
            CatalogError: two tools would have the same name.
        """
        await self._probed.wait()
        if self.refused is not None:
            raise self.refused

    async def _probe_one(self, name: str, service: Service) -> None:
        try:
            self._tools[name] = await service.tools()
            self._problems.pop(name, None)
        except SessionError as error:
            self._problems[name] = error.message
            logger.warning("service %s is not available: %s", name, error.message)

    async def _probe_again(self) -> None:
        while self._problems:
            await anyio.sleep(RETRY_SECONDS)
            before = len(self._problems)
            for name in list(self._problems):
                await self._probe_one(name, self.services[name])
            if len(self._problems) < before:
                await self.tools_changed()

    async def update_tools(self, name: str, tools: Sequence[ToolSpec]) -> None:
        """Take over a changed tool list of a service and tell clients when it really is another one."""
        before = [spec.definition for spec in self._tools.get(name, ())]
        if before == [spec.definition for spec in tools]:
            return
        kept, self._tools[name] = self._tools.get(name, ()), tools
        try:
            self._build("explicit")
        except CatalogError as error:
            self._tools[name] = kept
            logger.warning("the new tools of %s are not served: %s", name, error)
            return
        await self.tools_changed()

    async def tools_changed(self) -> None:
        self._catalogs.clear()
        self._catalogs["explicit"] = self._build("explicit")
        for tell in self.on_tools_changed:
            await tell()

    # Pinned sessions.

    async def pinned(self, principal: Principal, name: str) -> str:
        """Return the id of the session that a URL or a command line names, created on first use."""
        namespace = self.config.namespace
        for _ in range(3):
            try:
                return (await self.registry.find(principal, name, namespace)).id
            except SessionNotFound:
                if name.startswith("sh_"):
                    raise
            try:
                return (
                    await self.registry.create(principal, Wish(name=name, namespace=namespace))
                ).id
            except SessionError as error:
                if error.code != "name_taken":
                    raise
        raise SessionNotFound

    def health(self) -> JSON:
        """What `/health` says: no names, no ids."""
        found: dict[str, Any] = {"status": "draining" if self.registry.draining else "ok"}
        found["services"] = {
            name: "unavailable" if name in self._problems else "ok" for name in self.services
        }
        return found


__all__ = ["Gateway"]
