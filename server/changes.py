"""Following the lists of services that change while Statehold runs."""

from __future__ import annotations

import logging

import anyio

from ..sessions.errors import SessionError
from ..tools.upstream.connection import UpstreamConnection
from ..tools.upstream.probe import listed_tools
from ..tools.upstream.service import UpstreamService
from .gateway import Gateway

logger = logging.getLogger("statehold.server")

DEBOUNCE_SECONDS = 1.0
"""How long after a notification the list is asked for; what comes meanwhile is covered by the same question."""


class ListWatcher:
    """Hears from live connections that a list changed, and has the merged list follow. Lives as long as the gateway.

    What counts is the list that the connection shows by then. Tools that it has beyond those of a fresh connection are
    offered to everybody, since the list must be the same for all; a tool that it no longer shows is dropped when a fresh
    connection does not show it either.
    """

    def __init__(self, gateway: Gateway, *, debounce: float = DEBOUNCE_SECONDS) -> None:
        self._gateway = gateway
        self._debounce = debounce
        self._heard: dict[str, UpstreamConnection] = {}

    def heard(self, service: UpstreamService, method: str, connection: UpstreamConnection) -> None:
        """Take note of a notification of a service. Does not block."""
        if method == "notifications/tools/list_changed":
            waiting = service.name in self._heard
            self._heard[service.name] = connection
            if not waiting:
                self._gateway.registry.spawn(self._follow, service)
        elif method == "notifications/prompts/list_changed":
            self._gateway.registry.spawn(self._ask_again, service)

    async def _follow(self, service: UpstreamService) -> None:
        await anyio.sleep(self._debounce)
        connection = self._heard.pop(service.name)
        try:
            with anyio.fail_after(service.connect_seconds):
                shown = {spec.name: spec for spec in await listed_tools(connection)}
            fresh = () if service.profile is None else service.profile.tools
            if any(shown.get(spec.name) != spec for spec in fresh):
                await service.refresh()
            fresh = () if service.profile is None else service.profile.tools
            known = {spec.name for spec in fresh}
            service.learn(spec for spec in shown.values() if spec.name not in known)
            tools = await service.tools()
        except (SessionError, TimeoutError) as error:
            logger.debug("the changed tools of %s are not known: %s", service.name, error)
            return
        await self._gateway.update_tools(service.name, tools)

    async def _ask_again(self, service: UpstreamService) -> None:
        try:
            await service.refresh()
        except SessionError as error:
            logger.debug("the changed prompts of %s are not known: %s", service.name, error)


__all__ = ["ListWatcher"]
