"""The gateway of one process: its sessions and its services behind one tool list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, cast

import anyio
import anyio.to_thread

from ...access.audit.recorder import Actor, Audit
from ...sessions.calls.approval import Approvals
from ...sessions.calls.notices import ServiceNotes
from ...sessions.calls.router import Router
from ...sessions.clock import Clock, SystemClock
from ...sessions.core import Core
from ...sessions.errors import InvalidArgument, ServiceUnavailable
from ...sessions.json_codec import JSON
from ...sessions.metrics.instruments import Metrics
from ...sessions.node import Node
from ...sessions.principals.audit_log import AdmitRequest, AuditLog
from ...sessions.records import Principal
from ...sessions.registry import Registry
from ...sessions.services import Service, ToolSpec
from ...tools.logins.audit import LoginAudit
from ...tools.logins.keys import Keys
from ...tools.own.control_tools import ConsoleAddress
from ...tools.own.toolsets import build_own_tools
from ...tools.pins.definitions import Kind
from ...tools.pins.pins import Pins
from ...tools.processes.ledger import Ledger
from ...tools.processes.workdir import bytes_of_files
from ...tools.upstream.connection import UpstreamConnection
from ...tools.upstream.oauth.logins import ServiceLogins
from ...tools.upstream.service import UpstreamService
from ..cluster.node_pool import Peers
from ..config.model import Config, ServiceConfig
from .browser_logins import BrowserLogins
from .commands import ask_summary_command
from .list_changes import ListWatcher, ResourceChangeCallback
from .list_updates import ListUpdates
from .names import HeldNames
from .own_tools import OwnToolCalls
from .pinned_sessions import PinnedSessions
from .probing import Probes
from .services import AddedServices, AnyService, browser_logins_of, forget, service_of
from .tool_list import ToolList

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore

METHODS_BEFORE_OPENING: Final = frozenset(
    {"initialize", "server/discover", "ping", "logging/setLevel", "tools/list"}
)
"""Requests that are answered before the sessions are open."""
STEADY_MS: Final = 60_000
"""The time for lists that depend on the configuration only, in milliseconds."""


class GatewayOpening:
    """Whether the sessions of a gateway are open, and whether they are needed already.

    A process over stdio answers the first list of its tools before it opens its sessions.
    """

    def __init__(self) -> None:
        self._requested = anyio.Event()
        self._ended = anyio.Event()
        self._problem: str | None = None

    @property
    def is_complete(self) -> bool:
        return self._ended.is_set() and self._problem is None

    def delays(self, method: str) -> bool:
        """Whether a request has to wait() for the sessions, or is refused there because they cannot be opened."""
        if self._ended.is_set():
            return self._problem is not None
        return method not in METHODS_BEFORE_OPENING

    def request(self) -> None:
        """Have the sessions opened now, unless they are open."""
        self._requested.set()

    def complete(self) -> None:
        """Let the requests continue that wait for the sessions."""
        self._ended.set()

    def fail(self, problem: str) -> None:
        """Refuse the requests that wait for the sessions, and all later ones; the problem says why and what to do."""
        self._problem = problem
        self._ended.set()

    async def wait_requested(self) -> None:
        await self._requested.wait()

    async def wait(self) -> None:
        """Request the opening, and return when the sessions are open.

        Raises:
            ServiceUnavailable: they cannot be opened.
        """
        if not self._ended.is_set():
            self.request()
            await self._ended.wait()
        if self._problem is not None:
            raise ServiceUnavailable(self._problem, recovery="Then start this client again.")


class Gateway:
    """The sessions and services of one process. `async with` opens it, after recall(); leaving it drains.

    `has_local_callers`: the only caller is the user who started the process. `port`: the port on which the process listens
    for callers, which no web page may reach.

    Opening the gateway starts the probes of its services in the background. Leaving it refuses the calls that wait for a
    probe with ServiceUnavailable.
    """

    def __init__(
        self,
        config: Config,
        store: SQLStore,
        node: Node,
        ledger: Ledger,
        *,
        has_local_callers: bool = False,
        port: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config = config
        self.store = store
        self.node = node
        self.ledger = ledger
        """The child processes of this process."""
        self.opening = GatewayOpening()
        self.orphans_resumed = None if ledger.keeper is None else anyio.Event()
        """Set when the sessions whose connections outlived an earlier process are resumed; None if none can be."""
        self.peers: Peers | None = None
        """The connections to other nodes of the data folder; None without a data folder, and before this node has joined
        them: the keys and certificates of a cluster are read then."""
        self._has_local_callers = has_local_callers
        required = config.audit == "required"
        log = None if config.audit == "off" else AuditLog(store, node.id, is_required=required)
        clock = clock or SystemClock()
        audit = LoginAudit(log, clock)
        self.logins = ServiceLogins(store, clock, audit)
        self.keys = Keys(config.logins, store, clock, audit)
        notes = ServiceNotes()
        self.pins = Pins(store, clock, config.pins_mode, notes.add)
        self._leases = browser_logins_of(config, store, clock, audit, self._groups_of)
        self.own_ports = set[int]() if port is None else {port}
        """The ports that this process serves: no page of a session can reach them."""
        self.logins.own_ports = self.own_ports
        settings = config.enabled_services()
        core = Core.create(
            store,
            node,
            {name: self._build_service(name, each) for name, each in settings.items()},
            policy=config.policy(),
            clock=clock,
            file_bytes=partial(bytes_of_files, config.data),
            metrics=Metrics(has_tools=config.metrics.tools),
        )
        summarize = partial(ask_summary_command, config.summary) if config.summary.command else None
        self.registry = Registry(core, summarize=summarize)
        if has_local_callers:
            self.logins.spawn = self.registry.spawn
        self.registry.on_purged.append(self._forget_files)
        self.services = core.services
        self.console_address = ConsoleAddress(config.server.public_url)
        self.audit = Audit(log, core.clock)
        approvals = Approvals(core, self.console_address.of_approval, self._admit_of)
        self.router = Router(self.registry, notes, approvals)
        self.browser_logins = BrowserLogins(config, self.registry, self.router, self._leases)
        self.own_tool_calls = OwnToolCalls(self.registry, self.router.guard)
        self.pinned_sessions = PinnedSessions(self.registry, config.namespace)
        self.on_resource_changed: list[ResourceChangeCallback] = []
        self._names_being_added: set[str] = set()
        self._is_storing_names = False
        self._added_services = AddedServices()
        own_tools = build_own_tools(
            self.registry,
            store,
            config.toolsets,
            services=self.describe_services,
            console=self.console_address,
            shares=config.needs_token,
            lend=None if self._leases is None else self.browser_logins.lend,
        )
        self.names = HeldNames(config)
        """The names of tools and prompts that clients know."""
        self.prompt_renames: Mapping[str, str] = {}
        """A line about the renamed prompts of each service that has some."""
        self.tools = ToolList(config, settings, own_tools, self.names)
        updates = ListUpdates()
        self.probes = Probes(self.services, self.tools, updates, self.orphans_resumed)
        self._watcher = ListWatcher(
            self.services, updates, self.probes, self.notify_resource_changed, self.registry.spawn
        )
        self.probes.ask_again = self._watcher.ask_again

    def _build_service(self, name: str, settings: ServiceConfig) -> AnyService:
        return service_of(
            name,
            settings,
            self.config,
            self.ledger,
            has_local_callers=self._has_local_callers,
            own_ports=self.own_ports,
            hosts_of=self._hosts_of,
            on_changed=self._notify_change,
            logins=self.logins,
            keys=self.keys,
            pins=self.pins,
            browser_logins=self._leases,
        )

    async def admit_items(
        self, service: str, session_id: str, kind: Kind, key: str, items: Sequence[JSON]
    ) -> Sequence[JSON]:
        """Return the items of a service in a session but for those that are held back. Raises ServiceUnavailable."""
        upstream = await self._pinned(service, session_id)
        return items if upstream is None else await upstream.pins.admit_items(kind, key, items)

    async def admit_page(self, service: str, session_id: str, uri: str, result: JSON) -> None:
        """Pin what a session reads if a tool names it as its page. Raises NotAllowed, ServiceUnavailable."""
        upstream = await self._pinned(service, session_id)
        if upstream is not None and "contents" in result and upstream.names_page(uri):
            await upstream.pins.admit_page(uri, result)

    async def _pinned(self, service: str, session_id: str) -> UpstreamService | None:
        """Return the service of a session if its definitions are pinned: they are not those of an account of its owner."""
        upstream, session = self.services.get(service), self.registry.directory.get(session_id)
        if not isinstance(upstream, UpstreamService):
            return None
        if session is not None and await upstream.separates(session.record.owner):
            return None
        return upstream

    async def accept_pins(self, service: str) -> None:
        """Offer what a person has accepted of a service. Raises ServiceUnavailable."""
        upstream = self.services.get(service)
        if isinstance(upstream, UpstreamService):
            await self._watcher.renew(upstream)

    def _admit_of(self, principal: Principal) -> AdmitRequest:
        actor = Actor(principal=principal, name="a person at a client", transport="mcp")
        return partial(self.audit.admit, actor)

    def _groups_of(self, owner: str) -> Sequence[str]:
        return self.registry.core.limits.membership(owner).groups

    def _hosts_of(self, owner: str) -> tuple[str, ...] | None:
        return self.registry.core.limits.of(owner).browser_hosts

    def _notify_change(
        self, service: UpstreamService, method: str, connection: UpstreamConnection, params: JSON
    ) -> None:
        # The watcher updates the lists of the services, so they are built before it.
        self._watcher.handle_notification(service, method, connection, params)

    def _forget_files(self, session_id: str) -> None:
        self.registry.spawn(forget, cast("dict[str, AnyService]", self.services), session_id)

    def notify_resource_changed(self, service: str, session_id: str | None, uri: str) -> None:
        """Call `on_resource_changed` with a changed resource. Does not block."""
        for notify in self.on_resource_changed:
            notify(service, session_id, uri)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            # Before the registry: services outlive the connections that it closes when it drains.
            await stack.enter_async_context(self._added_services)
            for service in self.services.values():
                if isinstance(service, AbstractAsyncContextManager):
                    await stack.enter_async_context(service)  # pyright: ignore[reportUnknownArgumentType]
            await stack.enter_async_context(self.registry)
            self._stack = stack.pop_all()
        self.names.on_changed = self._store_names
        self._store_names()
        self.registry.spawn(self.probes.run)
        if self.pins.mode == "strict":
            self.registry.spawn(self.pins.run, self.accept_pins)
        self.opening.complete()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self.probes.end()
        self.names.on_changed = None
        with anyio.CancelScope(shield=True):
            await self._write_names()
        return await self._stack.__aexit__(kind, error, traceback)

    def _store_names(self) -> None:
        if self.names.is_changed and not self._is_storing_names:
            self._is_storing_names = True
            self.registry.spawn(self._write_names)

    async def _write_names(self) -> None:
        try:
            while self.names.is_changed:
                await anyio.to_thread.run_sync(self.names.write)
        finally:
            self._is_storing_names = False

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

    def describe_services(self) -> list[JSON]:
        """The status of each service, for service_list."""
        return [self._describe_service(name, service) for name, service in self.services.items()]

    def _describe_service(self, name: str, service: Service) -> JSON:
        tools, problem = self.tools.known(name), self.probes.problems.get(name)
        renames = self.tools.renames(name), self.prompt_renames.get(name)
        status = "starting" if tools is None else "available"
        return {
            "service": name,
            "status": status if problem is None else "unavailable",
            "problem": problem,
            "renamed": "; ".join(filter(None, renames)) or None,
            "tools": None if tools is None else len(tools),
            "scope": service.scope,
            "pause": service.pause,
        }

    async def recall(self) -> None:
        """Offer the tools that are known before anything is started; called once, before the gateway is opened.

        If the tools of any service are not known, its probe cannot wait: request the opening.
        """
        await anyio.to_thread.run_sync(self.names.read)
        if not await self.probes.recall():
            self.opening.request()

    async def add_service(self, name: str, settings: ServiceConfig) -> None:
        """Offer one more service from now on. New sessions use it; existing sessions have to be bound to it.

        Raises:
            InvalidArgument: there is a service of that name.
            ServiceUnavailable: it cannot be opened, or does not list its tools; it was not added.
        """
        if name in self.services or name in self._names_being_added:
            raise InvalidArgument(
                f"services.{name}: there is a service of that name; choose another name."
            )
        self._names_being_added.add(name)
        try:
            service = self._build_service(name, settings)
            tools = await service.tools()
            async with self._added_services.open(service):
                self._register_service(name, settings, service, tools)
        finally:
            self._names_being_added.discard(name)
        self.probes.wake_waiters()
        await self.tools.notify_changed()

    def _register_service(
        self, name: str, settings: ServiceConfig, service: AnyService, tools: Sequence[ToolSpec]
    ) -> None:
        try:
            self.tools.add_service(name, settings)
            self.probes.list(name, tools)
        except BaseException:
            self.tools.drop_service(name)
            raise
        services = {**self.config.services, name: settings}
        self.config = self.config.model_copy(update={"services": services})
        self.services[name] = service
        self.registry.core.metrics.add_service(name)


def readiness_of(gateway: Gateway) -> tuple[int, str]:
    """Return the HTTP status of `/readyz`, and its word: whether a proxy is to send requests to this process."""
    if gateway.registry.draining or gateway.node.is_draining:
        return 404, "draining"
    return (503, "failing") if _trouble_of(gateway) is not None else (200, "ok")


def health_of(gateway: Gateway) -> JSON:
    """Return the body of `/health`, which needs no token: counts, no names and no ids.

    The status is `ok`, `draining`, or `failing` with a `reason` when the store refuses writes or the disk is full.
    """
    trouble = _trouble_of(gateway)
    statuses = [service["status"] for service in gateway.describe_services()]
    return {
        "status": "draining" if gateway.registry.draining else "failing" if trouble else "ok",
        "services": {
            "ok": statuses.count("available"),
            "unavailable": statuses.count("unavailable"),
        },
        **({} if trouble is None else {"reason": trouble}),
    }


def _trouble_of(gateway: Gateway) -> str | None:
    """Return why sessions cannot be served, in one line without secrets; None when they can."""
    if not gateway.node.may_act():
        return "The lease of this node is over: its database does not answer."
    return gateway.store.trouble


def ttl_ms(gateway: Gateway) -> int:
    """Return for how long a client may keep a list: not at all while a service starts, or where one can change its list."""
    if not gateway.probes.are_services_known or any(map(_changes_lists, gateway.services.values())):
        return 0
    return STEADY_MS


def _changes_lists(service: Service) -> bool:
    """Whether a service declares that its lists may change while it runs."""
    if not isinstance(service, UpstreamService):
        return False
    profile = service.profile
    if profile is None:
        return True
    declared = (profile.peer.capabilities.get(kind) for kind in ("tools", "prompts"))
    return any(
        isinstance(part, dict) and bool(cast("JSON", part).get("listChanged")) for part in declared
    )
