"""Updates of the lists of services that change while Statehold runs."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

import anyio

from ...sessions.errors import SessionError
from ...sessions.json_codec import JSON
from ...sessions.services import ToolSpec
from ...tools.upstream.connection import UpstreamConnection
from ...tools.upstream.probe import listed_prompts, listed_tools
from ...tools.upstream.service import UpstreamService
from .gateway import Gateway

logger = logging.getLogger("statehold.server")

DEBOUNCE_SECONDS = 1.0
"""Seconds between two requests of one list; the changes between them need one request."""

TOOLS: Final = "notifications/tools/list_changed"
PROMPTS: Final = "notifications/prompts/list_changed"
RESOURCES: Final = "notifications/resources/list_changed"
UPDATED: Final = "notifications/resources/updated"

ItemT = TypeVar("ItemT")


class ListWatcher:
    """Updates the merged list when a live connection announces a changed list. Lives as long as the gateway.

    It asks the connection for its current list. Tools and prompts beyond those of a fresh connection are offered to all
    clients, since the list must be the same for all. One that the connection no longer lists is dropped when neither a fresh
    connection nor another open one lists it.
    """

    def __init__(self, gateway: Gateway, *, debounce: float = DEBOUNCE_SECONDS) -> None:
        self._gateway = gateway
        self._debounce = debounce
        self._heard: dict[tuple[str, str], dict[UpstreamConnection, None]] = {}
        """The connections, in order, whose lists have to be requested. A list with a running _follow() has an entry."""

    def heard(
        self,
        service: UpstreamService,
        method: str,
        connection: UpstreamConnection,
        params: JSON | None = None,
    ) -> None:
        """Take note of a notification of a service. Does not block."""
        if method in (RESOURCES, UPDATED):
            uri: str = str((params or {}).get("uri")) if method == UPDATED else ""
            for tell in self._gateway.on_resources:
                tell(service.name, connection.session_id, uri)
            return
        if method not in (TOOLS, PROMPTS):
            return
        followed = (service.name, method) in self._heard
        self._heard.setdefault((service.name, method), {})[connection] = None
        if not followed:
            self._gateway.registry.spawn(self._follow, service, method)

    async def _follow(self, service: UpstreamService, method: str) -> None:
        """Ask for a list at once, and again after a while, as long as it changed meanwhile."""
        key = (service.name, method)
        follow = self._follow_tools if method == TOOLS else self._follow_prompts
        try:
            while connections := self._heard[key]:
                self._heard[key] = {}
                try:
                    await follow(service, connections)
                except SessionError as error:
                    logger.debug("what changed at %s is not known: %s", service.name, error)
                await anyio.sleep(self._debounce)
        finally:
            del self._heard[key]

    async def _follow_tools(
        self, service: UpstreamService, connections: Iterable[UpstreamConnection]
    ) -> None:
        async def listed(connection: UpstreamConnection) -> dict[str, ToolSpec]:
            return {spec.name: spec for spec in await listed_tools(connection)}

        def fresh() -> dict[str, ToolSpec]:
            profile = service.profile
            return {} if profile is None else {spec.name: spec for spec in profile.tools}

        await _learn(service, connections, listed, fresh, service.learn_tools)
        await self._gateway.update_tools(service.name, await service.tools())

    async def _follow_prompts(
        self, service: UpstreamService, connections: Iterable[UpstreamConnection]
    ) -> None:
        async def listed(connection: UpstreamConnection) -> dict[str, JSON]:
            return {prompt["name"]: prompt for prompt in await listed_prompts(connection)}

        def fresh() -> dict[str, JSON]:
            profile = service.profile
            return {} if profile is None else {prompt["name"]: prompt for prompt in profile.prompts}

        before = service.prompts
        await _learn(service, connections, listed, fresh, service.learn_prompts)
        if service.prompts != before:
            await self._gateway.prompts_changed()


async def _learn(
    service: UpstreamService,
    connections: Iterable[UpstreamConnection],
    listed: Callable[[UpstreamConnection], Awaitable[dict[str, ItemT]]],
    fresh: Callable[[], dict[str, ItemT]],
    learn: Callable[[UpstreamConnection, dict[str, ItemT]], None],
) -> None:
    """Add the items that connections list now to a service; probe it again when they lack one of a fresh connection."""
    found: dict[UpstreamConnection, dict[str, ItemT]] = {}
    unanswered = False
    for connection in connections:
        try:
            with anyio.fail_after(service.connect_seconds):
                found[connection] = await listed(connection)
        except (SessionError, TimeoutError) as error:
            # It is gone by now, or busy with a call that waits for input.
            logger.debug("a connection of %s does not show its list: %s", service.name, error)
            unanswered = True
    known = fresh()
    if unanswered or any(
        items.get(name) != item for items in found.values() for name, item in known.items()
    ):
        await service.refresh()
        known = fresh()
    for connection, items in found.items():
        learn(connection, {name: item for name, item in items.items() if name not in known})


__all__ = ["ListWatcher"]
