"""Sessions that a crowded node gives up, so that their next calls find a node with more room."""

from __future__ import annotations

from typing import Final

from ..cluster.placement import excess
from ..core import Core
from ..lifecycle import Status
from ..live.directory import Directory
from ..live.session import LiveSession
from .pause import NODE_CROWDED, Pausing, may_pause

AT_ONCE: Final = 4
"""Most sessions that are given up with one heartbeat."""
IDLE_SECONDS: Final = 10.0
"""Seconds without a call before a session is given up."""


class Rebalancing:
    """Pauses the sessions of one registry that were idle for longest while its node owns many more than others."""

    def __init__(self, core: Core, directory: Directory, pausing: Pausing) -> None:
        self._core = core
        self._directory = directory
        self._pausing = pausing

    def rebalance(self) -> None:
        """Start to give up a few sessions if the node is crowded. Called with each heartbeat."""
        node = self._core.node
        count = min(AT_ONCE, excess(len(self._directory), node.up_nodes()))
        if not count or node.is_draining:
            return
        idle_before = self._core.clock.now() - IDLE_SECONDS
        idle = [
            session
            for session in self._directory
            if session.status is Status.IDLE
            and session.idle_since < idle_before
            and may_pause(session, NODE_CROWDED)
        ]
        for session in sorted(idle, key=lambda session: session.idle_since)[:count]:
            self._core.tasks.spawn(self._give_up, session)

    async def _give_up(self, session: LiveSession) -> None:
        await self._pausing.pause(session, NODE_CROWDED)
