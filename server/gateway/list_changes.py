"""The lists of tools, prompts and resources of services that change while Statehold runs, and how long clients keep them."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

import anyio
import anyio.lowlevel

from ...sessions.errors import SessionError
from ...sessions.json_codec import JSON
from ...sessions.services import Service, ToolSpec
from ...tools.upstream.connection import UpstreamConnection
from ...tools.upstream.list_changes import RENEWAL_SECONDS, changing_lists, quiet_lists
from ...tools.upstream.probe import list_prompts, list_tools
from ...tools.upstream.service import UpstreamService
from .gateway import Gateway
from .probing import Probes

STEADY_MS: Final = 60_000
"""The time for lists that depend on the configuration only, in milliseconds."""


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


SETTLE_SECONDS: Final = 5.0
"""Seconds that a request for a list waits for the changes that services have announced."""

ListKey: TypeAlias = tuple[str, str]
"""The name of a service, and the notification that announces a change of its list."""


@dataclass(slots=True)
class ListUpdate:
    """The update of one list. It lives until the list did not change for the debounce time."""

    connections: dict[UpstreamConnection, None] = field(
        default_factory=dict["UpstreamConnection", None]
    )
    """The connections that announced a change and were not asked since, in order."""
    announced: int = 0
    """The number of changes that were announced."""
    applied: int = 0
    """The number of them that are in the list."""
    wanted: anyio.Event = field(default_factory=anyio.Event)
    """Set when a caller waits for the list."""

    def announce(self, connection: UpstreamConnection) -> None:
        self.announced += 1
        self.connections[connection] = None

    def begin(self) -> Iterable[UpstreamConnection]:
        """Return the connections to ask now; none when no change was announced since."""
        connections, self.connections = self.connections, {}
        self.wanted = anyio.Event()
        return connections


class ListUpdates:
    """The updates of one gateway that run now. It lives as long as the gateway.

    ListWatcher runs them, and a request for a list waits for them with settle().
    """

    def __init__(self) -> None:
        self._updates: dict[ListKey, ListUpdate] = {}
        self._updated = anyio.Event()
        """Set, and replaced by a new event, when a list was requested."""
        self._slow: set[ListKey] = set()
        """The lists for which a caller waited in vain, until they are renewed."""

    def get(self, key: ListKey) -> ListUpdate | None:
        """Return the update that runs for a list."""
        return self._updates.get(key)

    def add(self, key: ListKey) -> ListUpdate:
        update = self._updates[key] = ListUpdate()
        return update

    def note_applied(self, key: ListKey, count: int) -> None:
        """Note that the first `count` announced changes are in the list, or that it could not be requested."""
        self._updates[key].applied = count
        self._slow.discard(key)
        self._wake_waiters()

    def end(self, key: ListKey) -> None:
        """End an update, and all waits for it."""
        update = self._updates.pop(key)
        update.applied = update.announced
        self._wake_waiters()

    async def settle(self) -> None:
        """Wait, at most SETTLE_SECONDS, until the changes that were announced so far are in the lists.

        A list that is not renewed in that time delays no other caller before it is renewed.
        """
        announced = [
            (key, update, update.announced)
            for key, update in self._updates.items()
            if key not in self._slow
        ]
        with anyio.move_on_after(SETTLE_SECONDS) as wait:
            for _, update, count in announced:
                while update.applied < count:
                    update.wanted.set()
                    await self._updated.wait()
        if wait.cancelled_caught:
            self._slow |= {key for key, update, count in announced if update.applied < count}

    def _wake_waiters(self) -> None:
        self._updated.set()
        self._updated = anyio.Event()


logger = logging.getLogger("statehold.server")

DEBOUNCE_SECONDS = 1.0
"""Seconds between two requests of one list; the changes between them need one request."""

TOOLS: Final = "notifications/tools/list_changed"
PROMPTS: Final = "notifications/prompts/list_changed"
RESOURCES: Final = "notifications/resources/list_changed"
UPDATED: Final = "notifications/resources/updated"

ASKED_CONNECTIONS: Final = 20
"""Connections of one service that are asked for a list because a client knows an item that is not listed."""

Kind: TypeAlias = Literal["tools", "prompts"]
ItemT = TypeVar("ItemT")

ResourceChangeCallback = Callable[[str, str | None, str], None]
"""Called with a changed resource: service, session (None: any), URI. Must not block.

The URI is empty when the list of resources changed. It is a notification when a service announced a change of another list
that is still the same.
"""


class ListWatcher:
    """Updates the merged list when a live connection announces a changed list. Lives as long as the gateway.

    It requests the current list of that connection. Tools and prompts beyond those of a fresh connection are offered to all
    clients, since the list must be the same for all. An item that the connection no longer lists is dropped if neither a
    fresh connection nor another open one lists it.
    """

    def __init__(
        self,
        services: Mapping[str, Service],
        updates: ListUpdates,
        probes: Probes,
        on_resource_changed: ResourceChangeCallback,
        spawn: Callable[..., None],
    ) -> None:
        self._services = services
        self._updates = updates
        self._probes = probes
        self._on_resource_changed = on_resource_changed
        self._spawn = spawn
        self._asked_at: dict[tuple[str, Kind], float] = {}
        """When ask_again() asked each service for each list."""
        self._digests = WeakKeyDictionary[UpstreamConnection, dict[Kind, bytes]]()
        """The digest of each list that a connection gave when it was last asked."""

    async def ask_again(self, kind: Kind) -> None:
        """Ask services that announce no changes of a list for it, because a client knows an item that is not listed.

        Each is asked at most once in RENEWAL_SECONDS: over the connections of its sessions, or without any over a new
        connection, unless that takes a process. Waits for the answers, at most SETTLE_SECONDS.
        """
        now = anyio.current_time()
        for service in tuple(self._services.values()):
            if not isinstance(service, UpstreamService) or service.profile is None:
                continue
            is_quiet = kind in quiet_lists(service.profile.peer)
            key = service.name, kind
            if not is_quiet or now < self._asked_at.get(key, -math.inf) + RENEWAL_SECONDS:
                continue
            self._asked_at[key] = now
            connections = [each for each in service.live_tools.connections if each.is_open]
            for connection in connections[:ASKED_CONNECTIONS]:
                self.handle_notification(service, f"notifications/{kind}/list_changed", connection)
            if not connections and service.transport != "stdio":
                self._spawn(self._update, service, TOOLS if kind == "tools" else PROMPTS)
        await anyio.lowlevel.checkpoint()
        await self._updates.settle()

    async def _update(self, service: UpstreamService, method: str) -> None:
        """Probe a service again, and change the lists."""
        key = (service.name, method)
        if self._updates.get(key) is not None:
            return
        update = self._updates.add(key)
        update.announced = 1
        try:
            before = service.prompts
            await service.refresh()
            await self._probes.update_tools(service.name, await service.tools())
            if service.prompts != before:
                await self._probes.notify_prompts_changed()
        finally:
            connections = update.begin()
            self._updates.end(key)
            for connection in connections:
                self.handle_notification(service, method, connection)

    def handle_notification(
        self,
        service: UpstreamService,
        method: str,
        connection: UpstreamConnection,
        params: JSON | None = None,
    ) -> None:
        """Handle a notification of a service. Does not block: lists are requested in the background."""
        if method in (RESOURCES, UPDATED):
            uri: str = str((params or {}).get("uri")) if method == UPDATED else ""
            self._on_resource_changed(service.name, connection.session_id, uri)
            return
        if method not in (TOOLS, PROMPTS):
            return
        key = (service.name, method)
        update = self._updates.get(key)
        if update is None:
            update = self._updates.add(key)
            self._spawn(self._update_list, service, method, update)
        update.announce(connection)

    async def _update_list(self, service: UpstreamService, method: str, update: ListUpdate) -> None:
        """Request a list at once, and again when it changed meanwhile: after the debounce time, or if a caller waits."""
        key = (service.name, method)
        request = self._update_tools if method == TOOLS else self._update_prompts
        try:
            while connections := update.begin():
                announced, is_new = update.announced, False
                try:
                    is_new = await request(service, connections)
                except SessionError as error:
                    logger.debug(
                        "the changed list of %s could not be read: %s", service.name, error
                    )
                self._updates.note_applied(key, announced)
                if not is_new:
                    self._pass_on(service, method, connections)
                with anyio.move_on_after(DEBOUNCE_SECONDS):
                    await update.wanted.wait()
        finally:
            self._updates.end(key)

    def _pass_on(
        self, service: UpstreamService, method: str, connections: Iterable[UpstreamConnection]
    ) -> None:
        """Notify the sessions whose connections announced a change of a list that is the same for all clients."""
        kind = "tools" if method == TOOLS else "prompts"
        for connection in connections:
            if kind in changing_lists(connection.peer):
                self._on_resource_changed(service.name, connection.session_id, method)

    async def _update_tools(
        self, service: UpstreamService, connections: Iterable[UpstreamConnection]
    ) -> bool:
        """Update the tools of a service. Return whether clients were notified."""

        async def list_items(connection: UpstreamConnection) -> dict[str, ToolSpec]:
            return {spec.name: spec for spec in await list_tools(connection)}

        def list_fresh_items() -> dict[str, ToolSpec]:
            profile = service.profile
            return {} if profile is None else {spec.name: spec for spec in profile.tools}

        await self._learn(
            service, "tools", connections, list_items, list_fresh_items, service.learn_tools
        )
        return await self._probes.update_tools(service.name, await service.tools())

    async def _update_prompts(
        self, service: UpstreamService, connections: Iterable[UpstreamConnection]
    ) -> bool:
        """Update the prompts of a service. Return whether clients were notified."""

        async def list_items(connection: UpstreamConnection) -> dict[str, JSON]:
            return {prompt["name"]: prompt for prompt in await list_prompts(connection)}

        def list_fresh_items() -> dict[str, JSON]:
            profile = service.profile
            return {} if profile is None else {prompt["name"]: prompt for prompt in profile.prompts}

        before = service.prompts
        await self._learn(
            service, "prompts", connections, list_items, list_fresh_items, service.learn_prompts
        )
        if service.prompts == before:
            return False
        await self._probes.notify_prompts_changed()
        return True

    async def _learn(
        self,
        service: UpstreamService,
        kind: Kind,
        connections: Iterable[UpstreamConnection],
        list_items: Callable[[UpstreamConnection], Awaitable[dict[str, ItemT]]],
        list_fresh_items: Callable[[], dict[str, ItemT]],
        learn: Callable[[UpstreamConnection, dict[str, ItemT]], None],
    ) -> None:
        """Add the items that connections list now to a service.

        The service is probed again if a connection lists an item of a fresh connection differently or not at all, unless it
        did so before, or does not answer although it announced a change.
        """
        lists: dict[UpstreamConnection, dict[str, ItemT]] = {}
        changed_lists: list[dict[str, ItemT]] = []
        is_incomplete = False
        for connection in connections:
            try:
                with anyio.fail_after(service.connect_seconds):
                    items = lists[connection] = await list_items(connection)
            except (SessionError, TimeoutError) as error:
                # The connection has closed since, or is busy with a call that waits for input.
                logger.debug("a connection of %s did not list its items: %s", service.name, error)
                is_incomplete = is_incomplete or kind in changing_lists(connection.peer)
                continue
            digest = sha256(repr(items).encode(errors="surrogatepass")).digest()
            digests = self._digests.setdefault(connection, {})
            if digests.get(kind) != digest:
                digests[kind] = digest
                changed_lists.append(items)
        fresh_items = list_fresh_items()
        if is_incomplete or any(
            items.get(name) != item for items in changed_lists for name, item in fresh_items.items()
        ):
            await service.refresh()
            fresh_items = list_fresh_items()
        for connection, items in lists.items():
            new_items = {name: item for name, item in items.items() if name not in fresh_items}
            learn(connection, new_items)
