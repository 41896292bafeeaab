"""The sessions of this node when its lease lapses or is lost, and when the database may have lost commits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import anyio

from ..core import Core
from ..live.connector import Connector
from ..live.directory import Directory
from ..live.session import LiveSession
from .close import Closing, cancel_calls
from .pause import Pausing

logger = logging.getLogger("statehold.sessions")


class Suspension:
    """The sessions of one registry under the lease of its node; it lives as long as the registry.

    `on_beat` is called with each renewal of the lease.
    """

    def __init__(
        self,
        core: Core,
        directory: Directory,
        connector: Connector,
        pausing: Pausing,
        closing: Closing,
        on_beat: Callable[[], None],
    ) -> None:
        self._core = core
        self._directory = directory
        self._connector = connector
        self._pausing = pausing
        self._closing = closing
        self._on_beat = on_beat

    def __len__(self) -> int:
        return len(self._directory)

    def epochs(self) -> dict[str, int]:
        return {session.id: session.record.epoch for session in self._directory}

    def record_beat(self) -> None:
        self._on_beat()

    def record_dead_node(self) -> None:
        self._core.tasks.spawn(self._core.node.recover)

    def record_lapse(self) -> None:
        """End the calls in flight: soon another node may run calls of these sessions. The connections stay open."""
        for session in self._directory:
            cancel_calls(session)

    def compare(self, held: Mapping[str, int], stored: Mapping[str, int]) -> None:
        """Drop the sessions of which the database does not know that they are open here, and release the opposite."""
        for session in self._directory:
            epoch = held.get(session.id)
            is_ending = session.released or session.ownership_ended.is_set()
            if epoch is None or is_ending or epoch != session.record.epoch:
                continue
            if stored.get(session.id) != epoch:
                logger.error("session %s is lost: the database lost commits", session.id)
                session.fenced = True
                self._core.tasks.spawn(self._closing.drop, session)
        for session_id in stored.keys() - held.keys():
            self._core.tasks.spawn(self.release, session_id)

    async def release(self, session_id: str) -> None:
        """Release a session that the database has for this node, and that is not open here."""
        record = await self._core.store.get(session_id)
        if record is None or record.node != self._core.node.id or self._directory.get(session_id):
            return
        await self._directory.claim(record)
        session = self._directory.get(session_id)
        if session is not None:
            await self._pausing.give_back(session)

    async def abandon(self) -> None:
        """Close all connections without saving: this node was declared dead, and other nodes take its sessions over."""
        async with anyio.create_task_group() as tasks:
            for session in self._directory:
                session.fenced = True
                tasks.start_soon(self._drop, session)
            tasks.start_soon(self._connector.close_shared)

    async def _drop(self, session: LiveSession) -> None:
        try:
            await self._closing.drop(session)
        except Exception:
            logger.exception("session %s was not dropped", session.id)
