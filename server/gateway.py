"""Everything one process serves: its sessions, its services, and the tool list made of them."""

from __future__ import annotations

import logging
import math
import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Self

import anyio

from ..sessions.clock import Clock
from ..sessions.cluster import Node
from ..sessions.creation import Wish
from ..sessions.errors import (
    InvalidArgument,
    NameTaken,
    ServiceUnavailable,
    SessionError,
    SessionNotFound,
)
from ..sessions.lifecycle import Status
from ..sessions.receipts import Receipts
from ..sessions.records import Principal, SessionFilter
from ..sessions.registry import Registry
from ..sessions.router import Router
from ..sessions.services import JSON, Service, ToolSpec
from ..sessions.store.base import Store
from ..tools.admin_tools import AdminTools
from ..tools.branch_tools import BranchTools
from ..tools.catalog import Catalog, CatalogError, Entry, Naming, Offer
from ..tools.history_tools import HistoryTools
from ..tools.own import OwnTool
from ..tools.session_tools import SessionTools
from ..tools.state_tools import StateTools
from ..tools.upstream.config import UpstreamConfig
from .config import Config, ServiceConfig
from .own_calls import OwnCalls
from .repeats import Repeats

logger = logging.getLogger("statehold.server")

RETRY_SECONDS = 30.0
"""How long until a service that could not be probed is tried again."""
PATIENCE_SECONDS = 10.0
"""How long after the start the tool list waits for slow services; they are added, and clients told, when they are there."""


class Gateway:
    """The sessions and services of one process. `async with` opens it; leaving it drains.

    Services are probed in the background as soon as it is open. The tool list waits for them a few seconds; a call waits
    for nothing but the service it is for. A service that cannot be probed contributes no tools until it can. Whoever waits
    for a probe when the gateway is left is refused with ServiceUnavailable.
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
        receipts = Receipts(self.registry, store, node.id)
        self.calls = OwnCalls(self.registry, receipts, Repeats(node.id, self.registry.clock))
        self.on_tools_changed: list[Callable[[], Awaitable[None]]] = []
        self.on_prompts_changed: list[Callable[[], Awaitable[None]]] = []
        self._tools: dict[str, Sequence[ToolSpec]] = {}
        self._problems: dict[str, str] = {}
        self._left_out: set[str] = set()
        self._catalogs: dict[Naming, Catalog] = {}
        self._probed = anyio.Event()
        self._settled = anyio.Event()
        self._more = anyio.Event()
        self._stopped = False
        self._patient_until = math.inf
        self._pinning: dict[tuple[str, str], anyio.Lock] = {}
        self._stack = AsyncExitStack()
        self._adding: set[str] = set()
        self.make: Callable[[str, ServiceConfig], Service] | None = None
        """Makes a service of its settings; None where none can be added."""
        self.own: dict[str, OwnTool] = {}
        self.refused: CatalogError | None = None
        """Why the configured services cannot be served together."""

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        for service in self.services.values():
            # Before the registry: they outlive the connections that it closes when it drains.
            if isinstance(service, AbstractAsyncContextManager):
                await self._stack.enter_async_context(service)  # pyright: ignore[reportUnknownArgumentType]
        await self._stack.enter_async_context(self.registry)
        chosen = self.config.toolsets
        sets = (
            SessionTools(self.registry),
            StateTools(self.registry),
            HistoryTools(self.registry),
            BranchTools(self.registry),
            AdminTools(self.registry, self.store, self.services_seen),
        )
        self.own = {tool.name: tool for tools in sets for tool in tools.tools(chosen)}
        self._patient_until = anyio.current_time() + PATIENCE_SECONDS
        self.registry.spawn(self._probe)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._stopped = True
        self._release()
        return await self._stack.__aexit__(kind, error, traceback)

    @property
    def offers_state(self) -> bool:
        """Whether callers may see and change the states of their sessions."""
        return "state" in self.config.toolsets

    @property
    def problems(self) -> Mapping[str, str]:
        """Services that could not be probed, with the reason."""
        return self._problems

    def services_seen(self) -> list[JSON]:
        """How each service stands, for service_list."""
        return [self._seen(name, service) for name, service in self.services.items()]

    def _seen(self, name: str, service: Service) -> JSON:
        tools = self._tools.get(name)
        unavailable = "unavailable" if name in self._problems else "starting"
        return {
            "service": name,
            "status": unavailable if tools is None else "available",
            "problem": self._problems.get(name),
            "tools": None if tools is None else len(tools),
            "scope": service.scope,
            "pause": service.pause,
        }

    # The tool list.

    async def catalog(self, naming: Naming) -> Catalog:
        """Return the tool list, waiting a while for services that were not probed yet.

        Raises:
            ServiceUnavailable: the gateway is left.
        """
        await self._patient()
        return self.catalog_nowait(naming)

    async def _patient(self) -> None:
        with anyio.CancelScope(deadline=self._patient_until):
            await self._probed.wait()
        self._refuse_when_stopped()

    async def entry(self, name: str, naming: Naming) -> Entry | None:
        """Return where a call of a tool goes, None for an unknown tool.

        Waits for services that were not probed yet only as long as none of the others has the tool.

        Raises:
            ServiceUnavailable: the gateway is left, and nobody knows whether there is such a tool.
        """
        while True:
            found = self.catalog_nowait(naming).entries.get(name)
            if found is not None:
                return found
            self._refuse_when_stopped()
            if self._probed.is_set():
                return None
            await self._more.wait()

    def missing(self, name: str) -> str | None:
        """Return why a tool that is in no list may exist all the same: the service that may have it cannot be asked."""
        for service, reason in self._problems.items():
            settings = self.config.services[service]
            inner = name.removeprefix(settings.prefix)
            included = settings.include is None or inner in settings.include
            if name.startswith(settings.prefix) and included and inner not in settings.exclude:
                return f"The tools of {service} are not known: {reason}"
        return None

    def catalog_nowait(self, naming: Naming) -> Catalog:
        """Return the tool list of the services that were probed by now."""
        found = self._catalogs.get(naming)
        if found is None:
            found = self._catalogs[naming] = self._build(naming)
        return found

    def _build(self, naming: Naming) -> Catalog:
        header = self.config.server.session_header
        own = [
            tool.definition(naming=naming, header=header)
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

    # Probing.

    async def ready(self) -> None:
        """Wait until every service was probed.

        Raises:
            CatalogError: two tools would have the same name; as soon as that is known.
            ServiceUnavailable: the gateway is left.
        """
        await self._settled.wait()
        if self.refused is not None:
            raise self.refused
        self._refuse_when_stopped()

    async def _probe(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                for name, service in self.services.items():
                    tasks.start_soon(self._probe_first, name, service)
        finally:
            # Cancelled or failed, it will not be done any more: nobody may go on waiting for it.
            self._release()
        if self._problems:
            self.registry.spawn(self._probe_again)

    def _release(self) -> None:
        self._probed.set()
        self._settled.set()
        self._tell_more()

    def _refuse_when_stopped(self) -> None:
        if self._stopped:
            raise ServiceUnavailable("Statehold is stopping.", recovery="Open it again.")

    async def _probe_first(self, name: str, service: Service) -> None:
        tools = await self._probe_one(name, service)
        if tools is None:
            return
        late = anyio.current_time() > self._patient_until
        error = self._offered(name, tools)
        if error is None:
            self._tell_more()
            if late:
                await self.tools_changed()
        elif late:
            self._leave_out(name, error)
        else:
            self.refused = error
            self._settled.set()

    def _offered(self, name: str, tools: Sequence[ToolSpec]) -> CatalogError | None:
        """Have the tools of a service listed. Returns why they cannot be; then the list is as it was."""
        kept = self._tools.get(name)
        self._tools[name] = tools
        self._catalogs.clear()
        try:
            self.catalog_nowait("explicit")
        except CatalogError as error:
            if kept is None:
                del self._tools[name]
            else:
                self._tools[name] = kept
            return error
        return None

    def _tell_more(self) -> None:
        self._more.set()
        self._more = anyio.Event()

    async def _probe_one(self, name: str, service: Service) -> Sequence[ToolSpec] | None:
        try:
            tools = await service.tools()
        except SessionError as error:
            self._problems[name] = error.message
            logger.warning("service %s is not available: %s", name, error.message)
            return None
        self._problems.pop(name, None)
        return tools

    async def _probe_again(self) -> None:
        while self._problems.keys() - self._left_out:
            await anyio.sleep(RETRY_SECONDS)
            for name in self._problems.keys() - self._left_out:
                tools = await self._probe_one(name, self.services[name])
                if tools is not None:
                    await self.update_tools(name, tools)

    async def update_tools(self, name: str, tools: Sequence[ToolSpec]) -> None:
        """Take over a changed tool list of a service and tell clients when it really is another one."""
        kept = self._tools.get(name)
        if kept is not None and [s.definition for s in kept] == [s.definition for s in tools]:
            return
        error = self._offered(name, tools)
        # At the start a clash would have been refused; now the others must not suffer from it.
        if error is None:
            await self.tools_changed()
        elif kept is not None:
            logger.warning("the new tools of %s are not served: %s", name, error)
        else:
            self._leave_out(name, error)

    def _leave_out(self, name: str, error: CatalogError) -> None:
        """Go on without a service that came too late to be refused: the names of its tools are in use."""
        self._problems[name] = str(error)
        self._left_out.add(name)
        logger.warning("the tools of %s are not served: %s", name, error)

    async def add_service(self, name: str, settings: UpstreamConfig) -> None:
        """Offer one more service from now on. New sessions use it; older ones have to be bound to it.

        Waits a while for services that were not probed yet: theirs are the names that they have.

        Raises:
            InvalidArgument: there is a service of that name, or one of its tools has the name of another tool.
            ServiceUnavailable: it cannot be opened, or does not list its tools. It is not added then.
        """
        if self.make is None or name in self.services or name in self._adding:
            raise InvalidArgument(
                f"services.{name}: there is a service of that name; choose another name."
            )
        self._adding.add(name)
        try:
            service = self.make(name, settings)
            tools = await service.tools()
            await self._patient()
            self._take_in(name, settings, service, tools)
        finally:
            self._adding.discard(name)
        self._tell_more()
        await self.tools_changed()

    def _take_in(
        self, name: str, settings: UpstreamConfig, service: Service, tools: Sequence[ToolSpec]
    ) -> None:
        before = self.config
        services = {**before.services, name: settings}
        self.config = before.model_copy(update={"services": services})
        self.services[name] = service
        error = self._offered(name, tools)
        if error is not None:
            self.config = before
            del self.services[name]
            raise InvalidArgument(f"{error}.")
        self.registry.services[name] = service

    async def tools_changed(self) -> None:
        """Forget the tool list and tell every client to ask again."""
        self._catalogs.clear()
        for tell in self.on_tools_changed:
            await tell()

    async def prompts_changed(self) -> None:
        """Tell every client to ask for the prompts again."""
        for tell in self.on_prompts_changed:
            await tell()

    # Pinned sessions.

    async def pinned(self, principal: Principal, name: str) -> str:
        """Return the id of the session that a URL or a command line names, created on first use."""
        name = unicodedata.normalize("NFC", name)
        lock = self._pinning.setdefault((principal.key, name), anyio.Lock())
        try:
            # One after the other: of many first calls at once only one creates it, and all of them find it open.
            async with lock:
                return await self._find_or_create(principal, name)
        finally:
            if not lock.statistics().tasks_waiting and not lock.locked():
                self._pinning.pop((principal.key, name), None)

    async def _find_or_create(self, principal: Principal, name: str) -> str:
        namespace = self.config.namespace
        for _ in range(3):
            try:
                return (await self.registry.find(principal, name, namespace)).id
            except SessionNotFound:
                if name.startswith("sh_"):
                    raise
            try:
                session = await self.registry.create(
                    principal, Wish(name=name, namespace=namespace)
                )
                session.notice = await self._predecessor(principal, name)
                return session.id
            except NameTaken:
                # Another process was faster.
                continue
        raise SessionNotFound

    async def _predecessor(self, principal: Principal, name: str) -> str | None:
        """Say what became of the session that had a pinned name before, so that it is not mistaken for the new one."""
        wanted = SessionFilter(
            namespace=self.config.namespace, name_prefix=name, statuses=[Status.CLOSED], limit=10
        )
        found, _ = await self.registry.page(principal, wanted)
        for before in found:
            if before["name"] == name:
                return (
                    f"Note from Statehold: this is a new session. The one called {name!r} before was closed "
                    f"({before['reason']}, {before['closed_at']}); nothing of it is left in this one."
                )
        return None

    def health(self) -> JSON:
        """What `/health` says to anybody: counts, no names and no ids."""
        unavailable = len(self._problems)
        return {
            "status": "draining" if self.registry.draining else "ok",
            "services": {"ok": len(self._tools), "unavailable": unavailable},
        }


__all__ = ["Gateway"]
