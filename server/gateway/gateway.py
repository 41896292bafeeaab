"""The gateway of one process: its sessions, its services, and their merged tool list."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Self

import anyio

from ...sessions.calls.deadline import WaitProgress
from ...sessions.calls.router import Router
from ...sessions.clock import Clock
from ...sessions.core import Core
from ...sessions.errors import InvalidArgument, ServiceUnavailable, SessionError
from ...sessions.json_codec import JSON
from ...sessions.node import Node
from ...sessions.plural import plural
from ...sessions.registry import Registry
from ...sessions.services import Service, ToolSpec
from ...sessions.store.base import Store
from ...tools.catalog import Catalog, CatalogEntry, Naming, Offer
from ...tools.footprint import bytes_of_files
from ...tools.own.definition import OwnTool
from ...tools.own.toolsets import build_own_tools
from ...tools.processes.ledger import Ledger
from ...tools.upstream.service import UpstreamService
from ..config.model import Config, ServiceConfig
from ..forwarding.listener import Owner, OwnerServer
from ..forwarding.peers import Peers
from .added_services import AddedServices
from .opening import Opening
from .own_tools import OwnToolCalls
from .pinned_sessions import PinnedSessions
from .summary_command import ask_summary_command
from .tool_names import hold_names, log_renames, offer_of
from .uris import page_uri

logger = logging.getLogger("statehold.server")

RETRY_SECONDS = 30.0
"""Seconds until a failed probe of a service is repeated."""
ORPHANS_SECONDS = 2.0
LIST_WAIT_SECONDS = 10.0
"""Seconds after the start that the tool list waits for slow services; later ones are added, and clients notified."""


class Gateway:
    """The sessions and services of one process. `async with` opens it, after recall(); leaving it drains.

    recall() offers the tools that are known without starting anything: those of the browser, and those that an earlier
    process stored of a service. Opening the gateway starts a probe of every other service in the background: a request
    for its tool list; clients are notified when it finds another list than the stored one. The merged list waits a few
    seconds for services without stored tools, a call waits only for the service that has the tool. A failed probe is
    repeated until it succeeds. Leaving the gateway refuses the calls that wait for a probe with ServiceUnavailable.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        node: Node,
        ledger: Ledger,
        services: Mapping[str, Service],
        *,
        clock: Clock | None = None,
    ) -> None:
        self.config = config
        self.store = store
        self.node = node
        self.ledger = ledger
        """The child processes of this process."""
        self.services = dict(services)
        self.opening = Opening()
        self.peers: Peers | None = None
        """The connections to other nodes of the data folder; None without a data folder."""
        self.owner_server: OwnerServer | None = None
        """Answers the requests that other nodes forward; None before there is an MCP server."""
        self.owner_http: Owner | None = None
        """Answers the HTTP requests that other nodes forward; None in a process that does not listen for them."""
        self.on_fenced: Callable[[], None] = _nothing
        """Called when other nodes have declared this one dead: the process has to end."""
        core = Core.create(
            store,
            node,
            services,
            policy=config.policy(),
            clock=clock,
            file_bytes=partial(bytes_of_files, config.data),
        )
        self.registry = Registry(core)
        if config.summary.command:
            self.registry.summaries.model = partial(ask_summary_command, config.summary)
        self.router = Router(self.registry)
        self.own_tool_calls = OwnToolCalls(self.registry, self.router.guard)
        self.pinned_sessions = PinnedSessions(self.registry, config.namespace)
        self.on_tools_changed: list[Callable[[], Awaitable[None]]] = []
        self.on_prompts_changed: list[Callable[[], Awaitable[None]]] = []
        self.on_resource_changed: list[Callable[[str, str | None, str], None]] = []
        """Called with a changed resource: service, session (None: any), URI (empty: the list changed). Must not block."""
        self._tools: dict[str, Sequence[ToolSpec]] = {}
        self._recalled_services: set[str] = set()
        """Services that offer the tools stored by an earlier process, because their first probe still runs."""
        self._problems: dict[str, str] = {}
        self._renames: dict[str, str] = {}
        self._catalogs: dict[Naming, Catalog] = {}
        self._holders: dict[str, str] = {}
        self.orphans_resumed: anyio.Event | None = None  # Probes that can wait for it do.
        self._probes_done = anyio.Event()
        self._list_grown = anyio.Event()
        """Set, and replaced by a new event, when a service was probed, added or changed."""
        self._is_stopped = False
        self._wait_deadline = math.inf
        self._names_being_added: set[str] = set()
        self._naming: Naming = "explicit" if config.server.session is None else "pinned"
        self._added_services = AddedServices()
        self.service_factory: Callable[[str, ServiceConfig], Service] | None = None
        """Creates a service from its settings; None where none can be added."""
        self.settle_lists: Callable[[], Awaitable[None]] = _settle_nothing
        """Waits a while for the changes of lists that services have announced. ListWatcher sets it."""
        self.own_tools = build_own_tools(
            self.registry, store, config.toolsets, services=self.describe_services
        )

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            # Before the registry: services outlive the connections that it closes when it drains.
            await stack.enter_async_context(self._added_services)
            for service in self.services.values():
                if isinstance(service, AbstractAsyncContextManager):
                    await stack.enter_async_context(service)  # pyright: ignore[reportUnknownArgumentType]
            await stack.enter_async_context(self.registry)
            self._stack = stack.pop_all()
        self.registry.spawn(self._probe)
        self.opening.complete()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._is_stopped = True
        self._end_waits()
        return await self._stack.__aexit__(kind, error, traceback)

    async def drain(self) -> None:
        """Refuse new work, end the calls within `close_grace`, also those that other nodes run, and pause every session."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.wait_answered)
            await self.registry.drain()

    async def wait_answered(self) -> None:
        """Wait until other nodes have answered the requests that were forwarded to them, at most `close_grace` seconds."""
        if self.peers is not None:
            await self.peers.wait_answered(self.config.timeouts.close_grace)

    @property
    def offers_state(self) -> bool:
        """Whether callers may see and change the states of their sessions."""
        return "state" in self.config.toolsets

    @property
    def are_services_known(self) -> bool:
        """Whether every service was probed in this process, and its tools are listed."""
        return self._probes_done.is_set() and not self._problems and not self._recalled_services

    @property
    def problems(self) -> Mapping[str, str]:
        """Services that could not be probed, with the reason."""
        return self._problems

    def describe_services(self) -> list[JSON]:
        """The status of each service, for service_list."""
        return [self._describe_service(name, service) for name, service in self.services.items()]

    def _describe_service(self, name: str, service: Service) -> JSON:
        tools = self._tools.get(name)
        status = "starting" if tools is None else "available"
        return {
            "service": name,
            "status": "unavailable" if name in self._problems else status,
            "problem": self._problems.get(name),
            "renamed": self._renames.get(name),
            "tools": None if tools is None else len(tools),
            "scope": service.scope,
            "pause": service.pause,
        }

    # The tool list.

    async def catalog(self, naming: Naming) -> Catalog:
        """Return the tool list, waiting a while for services that were not probed yet.

        Raises:
            ServiceUnavailable: the gateway was left meanwhile.
        """
        await self.wait_for_services()
        catalog = self.catalog_nowait(naming)
        self._hold_names(catalog)
        return catalog

    async def wait_for_services(self) -> None:
        """Wait a while for services that were not probed yet, and for changes of lists that were announced.

        Raises:
            ServiceUnavailable: the gateway was left meanwhile.
        """
        await self.settle_lists()
        with anyio.CancelScope(deadline=self._wait_deadline):
            while not self._probes_done.is_set() and any(
                self._is_unprobed(name) for name in self.services
            ):
                await self._list_grown.wait()
        self._refuse_when_stopped()

    def _is_unprobed(self, name: str) -> bool:
        """Whether the first probe of a service still runs, and no earlier process stored its tools."""
        return name not in self._tools and name not in self._problems

    async def entry(self, name: str, naming: Naming, waiting: WaitProgress) -> CatalogEntry | None:
        """Return the entry of a tool in the list, None for an unknown tool.

        Waits until a service has the tool or all services were probed; meanwhile `waiting` reports the starting services to
        the caller. If a service that was not probed yet precedes the found one in the configuration, and may have a tool of
        the same name, the wait for it is as long as that of a list.

        Raises:
            ServiceUnavailable: the gateway was left before the tool was found.
        """
        if self._probes_done.is_set():
            entry = self.catalog_nowait(naming).entries.get(name)
            if entry is None:
                self._refuse_when_stopped()
                await self.settle_lists()
                entry = self.catalog_nowait(naming).entries.get(name)
            return entry
        starting, find = partial(self._starting, name, naming), partial(self._find, name, naming)
        return await (waiting.run_service_start(starting, find) if starting() else find())

    async def _find(self, name: str, naming: Naming) -> CatalogEntry | None:
        while True:
            entry = self.catalog_nowait(naming).entries.get(name)
            if entry is None:
                self._refuse_when_stopped()
            if self._probes_done.is_set():
                return entry
            deadline = math.inf
            if entry is not None:
                deadline = self._wait_deadline if self._may_belong_to_earlier(entry) else -math.inf
            if anyio.current_time() >= deadline:
                return entry
            with anyio.CancelScope(deadline=deadline):
                await self._list_grown.wait()

    def _starting(self, name: str, naming: Naming) -> str:
        """Return a message naming the services that a call of a tool waits for; empty when _find() returns at once."""
        entry = self.catalog_nowait(naming).entries.get(name)
        if self._probes_done.is_set() or (
            entry is not None and not self._may_belong_to_earlier(entry)
        ):
            return ""
        unprobed = (
            self.services.keys() - self._problems - (self._tools.keys() - self._recalled_services)
        )
        names = [service for service in self.services if service in unprobed]
        likely = [service for service in names if self._offer(service).may_have(name)] or names
        return f"Starting service{'s' if len(likely) > 1 else ''} {', '.join(likely)}"

    def _may_belong_to_earlier(self, entry: CatalogEntry) -> bool:
        """Whether an unprobed service that precedes the entry's service may have a tool of the same name."""
        for name in self.services:
            if name == entry.service:
                return False
            if self._is_unprobed(name) and self._offer(name).may_have(entry.name):
                return True
        return False

    def missing_tool_reason(self, name: str) -> str | None:
        """Return why a tool outside the list may still exist: services that may have it could not be probed."""
        candidates = [each for each in self._problems if self._offer(each).may_have(name)]
        # A prefix names the service; without one, any of them may have the tool.
        likely = [each for each in candidates if self.config.services[each].prefix] or candidates
        return " ".join(f"{each} is unavailable: {self._problems[each]}" for each in likely) or None

    def catalog_nowait(self, naming: Naming) -> Catalog:
        """Return the tool list of the services that were probed by now."""
        catalog = self._catalogs.get(naming)
        if catalog is None:
            catalog = self._catalogs[naming] = self._build(naming)
        return catalog

    def _build(self, naming: Naming) -> Catalog:
        header = self.config.server.session_header
        own = [
            tool.definition(naming=naming, header=header)
            for tool in self.own_tools.values()
            if self._offers(tool, naming)
        ]
        offers = [self._offer(name) for name in self.services if name in self._tools]
        own_uris = naming == "pinned" and len(self.services) == 1
        return Catalog(
            offers,
            own,
            reserved_names=self.own_tools,
            naming=naming,
            header=header,
            address=None if own_uris else page_uri,
            holders=self._holders,
        )

    def own_tool(self, name: str, naming: Naming) -> OwnTool | None:
        """Return the tool of ours that callers who name the session like this get under a name, None if there is none."""
        tool = self.own_tools.get(name)
        return tool if tool is not None and self._offers(tool, naming) else None

    def _offers(self, tool: OwnTool, naming: Naming) -> bool:
        return tool.offered(naming, asked="toolsets" in self.config.model_fields_set)

    def is_browser_tool(self, name: object, naming: Naming) -> bool:
        """Whether a tool of the built-in browser is in the list under a name."""
        entry = self.catalog_nowait(naming).entries.get(name) if isinstance(name, str) else None
        return entry is not None and entry.service in self.config.browsers()

    def _offer(self, name: str) -> Offer:
        return offer_of(name, self.config.services[name], self._tools.get(name, ()))

    # Probing.

    async def ready(self) -> None:
        """Wait until every service was probed; ServiceUnavailable if the gateway is left meanwhile."""
        await self._probes_done.wait()
        self._refuse_when_stopped()

    async def recall(self) -> None:
        """Offer the tools that are known before anything is started; called once, before the gateway is opened.

        Those are the tools of the browser, and those that earlier processes stored of other services. If the tools of any
        service are not known, its probe cannot wait: request the opening.
        """
        self._wait_deadline = anyio.current_time() + LIST_WAIT_SECONDS
        for name, service in self.services.items():
            if not isinstance(service, UpstreamService):
                await self._probe_first(name, service)
            elif await service.recall():
                self._recalled_services.add(name)
                self._set_tools(name, await service.tools())
        # Clients know the names from the earlier process.
        self._hold_names(self.catalog_nowait(self._naming))
        if any(map(self._is_unprobed, self.services)):
            self.opening.request()

    async def _probe(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                for name, service in self.services.items():
                    if name in self._recalled_services or self._is_unprobed(name):
                        tasks.start_soon(self._probe_first, name, service)
        finally:
            # A cancelled or failed probe does not run again; end the waits for it.
            self._end_waits()
        if self._problems:
            self.registry.spawn(self._probe_again)

    def _end_waits(self) -> None:
        self._probes_done.set()
        self._wake_waiters()

    def _refuse_when_stopped(self) -> None:
        if self._is_stopped:
            raise ServiceUnavailable("Statehold is stopping.", recovery="Open it again.")

    async def _probe_first(self, name: str, service: Service) -> None:
        is_recalled = name in self._recalled_services
        if is_recalled and self.orphans_resumed is not None:
            with anyio.move_on_after(ORPHANS_SECONDS):
                await self.orphans_resumed.wait()
        tools = await self._probe_one(name, service)
        if tools is not None and is_recalled:
            await self.update_tools(name, tools)
        elif tools is not None:
            late = anyio.current_time() > self._wait_deadline
            self._set_tools(name, tools)
            if late:
                await self.notify_tools_changed()
        self._wake_waiters()

    def _hold_names(self, catalog: Catalog) -> None:
        hold_names(self._holders, {name: tool.service for name, tool in catalog.entries.items()})

    def _set_tools(self, name: str, tools: Sequence[ToolSpec]) -> None:
        """List the tools of a service from now on, and log the renamed ones."""
        # Before the first list, the order of the configuration decides who has a name.
        if self._probes_done.is_set() or anyio.current_time() >= self._wait_deadline:
            self._hold_names(self.catalog_nowait(self._naming))
        self._tools[name] = tools
        self._catalogs.clear()
        self._renames = log_renames(self.catalog_nowait(self._naming), self._renames)

    def _wake_waiters(self) -> None:
        self._list_grown.set()
        self._list_grown = anyio.Event()

    async def _probe_one(self, name: str, service: Service) -> Sequence[ToolSpec] | None:
        try:
            if isinstance(service, UpstreamService) and name in self._recalled_services:
                await self._renew(service)
            tools = await service.tools()
        except SessionError as error:
            if self._problems.get(name) != error.message:
                logger.warning("service %s is not available: %s", name, error.message)
            self._problems[name] = error.message
            return None
        self._problems.pop(name, None)
        logger.info("service %s is available: %s", name, plural(len(tools), "tool"))
        return tools

    async def _renew(self, service: UpstreamService) -> None:
        before = service.prompts
        await service.refresh()
        self._recalled_services.discard(service.name)
        if service.prompts != before:
            await self.notify_prompts_changed()

    async def _probe_again(self) -> None:
        while self._problems:
            await anyio.sleep(RETRY_SECONDS)
            for name in list(self._problems):
                tools = await self._probe_one(name, self.services[name])
                if tools is not None:
                    await self.update_tools(name, tools)

    async def update_tools(self, name: str, tools: Sequence[ToolSpec]) -> None:
        """Set the tool list of a service, and notify clients if it differs."""
        previous = self._tools.get(name)
        if previous is not None and [s.definition for s in previous] == [
            s.definition for s in tools
        ]:
            return
        self._set_tools(name, tools)
        self._wake_waiters()
        await self.notify_tools_changed()

    async def add_service(self, name: str, settings: ServiceConfig) -> None:
        """Offer one more service from now on. New sessions use it; existing sessions have to be bound to it.

        Raises:
            InvalidArgument: there is a service of that name.
            ServiceUnavailable: it cannot be opened, or does not list its tools; it was not added.
        """
        if self.service_factory is None or name in self.services or name in self._names_being_added:
            raise InvalidArgument(
                f"services.{name}: there is a service of that name; choose another name."
            )
        self._names_being_added.add(name)
        try:
            service = self.service_factory(name, settings)
            tools = await service.tools()
            await self._added_services.open(service)
            self._register_service(name, settings, service, tools)
        finally:
            self._names_being_added.discard(name)
        self._wake_waiters()
        await self.notify_tools_changed()

    def _register_service(
        self, name: str, settings: ServiceConfig, service: Service, tools: Sequence[ToolSpec]
    ) -> None:
        services = {**self.config.services, name: settings}
        self.config = self.config.model_copy(update={"services": services})
        self.services[name] = service
        self.registry.core.services[name] = service
        self._set_tools(name, tools)

    async def notify_tools_changed(self) -> None:
        """Discard the cached tool list and notify every client."""
        self._catalogs.clear()
        for notify in self.on_tools_changed:
            await notify()

    async def notify_prompts_changed(self) -> None:
        """Notify every client that the prompts changed."""
        for notify in self.on_prompts_changed:
            await notify()


def _nothing() -> None: ...


async def _settle_nothing() -> None: ...


__all__ = ["Gateway"]
