"""Following the lists of services that change while Statehold runs."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

import anyio

from ..sessions.errors import SessionError
from ..sessions.services import JSON, ToolSpec
from ..tools.upstream.connection import UpstreamConnection
from ..tools.upstream.probe import listed_tools
from ..tools.upstream.service import UpstreamService
from .gateway import Gateway

logger = logging.getLogger("statehold.server")

DEBOUNCE_SECONDS = 1.0
"""How long after a notification the list is asked for; what comes meanwhile is covered by the same question."""

TOOLS: Final = "notifications/tools/list_changed"
PROMPTS: Final = "notifications/prompts/list_changed"
RESOURCES: Final = "notifications/resources/list_changed"
UPDATED: Final = "notifications/resources/updated"


class ListWatcher:
    """Hears from live connections that a list changed, and has the merged list follow. Lives as long as the gateway.

    What counts is the list that the connection shows by then. Tools that it has beyond those of a fresh connection are
    offered to everybody, since the list must be the same for all; a tool that it no longer shows is dropped when neither a
    fresh connection nor another open one shows it. Prompts are those of a fresh connection.
    """

    def __init__(self, gateway: Gateway, *, debounce: float = DEBOUNCE_SECONDS) -> None:
        self._gateway = gateway
        self._debounce = debounce
        self._heard: dict[tuple[str, str], dict[UpstreamConnection, None]] = {}
        """The connections, in order, of which the lists are to be asked for."""

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
        waiting = (service.name, method) in self._heard
        self._heard.setdefault((service.name, method), {})[connection] = None
        if not waiting:
            self._gateway.registry.spawn(self._follow, service, method)

    async def _follow(self, service: UpstreamService, method: str) -> None:
        await anyio.sleep(self._debounce)
        connections = self._heard.pop((service.name, method))
        try:
            if method == TOOLS:
                await self._follow_tools(service, connections)
            else:
                await self._follow_prompts(service)
        except SessionError as error:
            logger.debug("what changed at %s is not known: %s", service.name, error)

    async def _follow_tools(
        self, service: UpstreamService, connections: Iterable[UpstreamConnection]
    ) -> None:
        shown = {connection: await _shown(service, connection) for connection in connections}
        fresh = () if service.profile is None else service.profile.tools
        if any(
            tools is None or any(tools.get(spec.name) != spec for spec in fresh)
            for tools in shown.values()
        ):
            await service.refresh()
        fresh = () if service.profile is None else service.profile.tools
        known = {spec.name for spec in fresh}
        for connection, tools in shown.items():
            if tools is not None:
                more = (spec for spec in tools.values() if spec.name not in known)
                service.learn(connection, more)
        await self._gateway.update_tools(service.name, await service.tools())

    async def _follow_prompts(self, service: UpstreamService) -> None:
        before = () if service.profile is None else service.profile.prompts
        await service.refresh()
        if service.profile is not None and service.profile.prompts != before:
            await self._gateway.prompts_changed()


async def _shown(
    service: UpstreamService, connection: UpstreamConnection
) -> dict[str, ToolSpec] | None:
    """Return the tools a connection shows now; None when it is gone by now, or busy with a call that waits for input."""
    try:
        with anyio.fail_after(service.connect_seconds):
            return {spec.name: spec for spec in await listed_tools(connection)}
    except (SessionError, TimeoutError) as error:
        logger.debug("a connection of %s does not show its tools: %s", service.name, error)
        return None


__all__ = ["ListWatcher"]
