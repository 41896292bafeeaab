"""Updates of the tool and prompt lists of services that change while Statehold runs."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from hashlib import sha256
from typing import Final, Literal, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import anyio
import anyio.lowlevel

from ...sessions.errors import SessionError
from ...sessions.json_codec import JSON
from ...sessions.services import Service, ToolSpec
from ...tools.upstream.change_stream import RENEWAL_SECONDS, changing_lists, quiet_lists
from ...tools.upstream.connection import UpstreamConnection
from ...tools.upstream.probe import list_prompts, list_tools
from ...tools.upstream.resource_updates import InternalContext
from ...tools.upstream.service import UpstreamService
from .list_updates import ListUpdate, ListUpdates
from .probing import Probes

logger = logging.getLogger("statehold.server")

DEBOUNCE_SECONDS = 1.0
"""Seconds between two requests of one list; the changes between them need one request."""

TOOLS: Final = "notifications/tools/list_changed"
PROMPTS: Final = "notifications/prompts/list_changed"
RESOURCES: Final = "notifications/resources/list_changed"
UPDATED: Final = "notifications/resources/updated"

MAX_ASKED_CONNECTIONS: Final = 20
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
            for connection in connections[:MAX_ASKED_CONNECTIONS]:
                self.handle_notification(service, f"notifications/{kind}/list_changed", connection)
            if not connections and service.transport != "stdio":
                self._spawn(self.probe, service, TOOLS if kind == "tools" else PROMPTS)
        await anyio.lowlevel.checkpoint()
        await self._updates.settle()

    async def probe(self, service: UpstreamService, method: str = TOOLS) -> None:
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

    async def renew(self, service: UpstreamService) -> None:
        """Ask a service for all its lists once more, also over the connections of its sessions."""
        await self._updates.settle()
        await self.probe(service)
        connections = [each for each in service.live_tools.connections if each.is_open]
        for connection in connections[:MAX_ASKED_CONNECTIONS]:
            for method in (TOOLS, PROMPTS):
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
                self._updates.record_applied(key, announced)
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
            if connection.peer.modern:
                # A server of 2026-07-28 may begin to declare more at any time.
                answer = await connection.request("server/discover", {}, InternalContext())
                known = service.profile
                service.profile = known and known.declaring("modern", answer.get("capabilities"))
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
        learn: Callable[[UpstreamConnection, Iterable[ItemT]], Awaitable[None]],
    ) -> None:
        """Add the items that connections list now to a service.

        The service is probed again if a connection lists an item of a fresh connection differently or not at all, unless it
        did so before, or if the connection of a session does not answer although it announced a change. The lists of a
        connection with the login of a principal are theirs alone, and are not added.
        """
        lists: dict[UpstreamConnection, dict[str, ItemT]] = {}
        changed_lists: list[dict[str, ItemT]] = []
        is_incomplete = False
        for connection in connections:
            try:
                with anyio.fail_after(service.connect_seconds):
                    items = await list_items(connection)
            except (SessionError, TimeoutError) as error:
                # The connection has closed since, or is busy with a call that waits for input.
                logger.debug("a connection of %s did not list its items: %s", service.name, error)
                was_live = connection in service.live_tools.connections
                is_incomplete |= was_live and kind in changing_lists(connection.peer)
                continue
            if connection.owner and await service.separates(connection.owner):
                # Known by now: the login went with the request.
                is_incomplete = True
                continue
            lists[connection] = items
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
            await learn(connection, new_items.values())
