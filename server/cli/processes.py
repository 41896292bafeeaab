"""The processes that serve a data folder, for `statehold status`."""

from __future__ import annotations

import anyio

from ...sessions.records import NodeRecord
from ..config.model import Config
from ..gateway.stores import may_exist, store_of
from .nodes import LiveNodes


def read_processes(config: Config) -> list[NodeRecord]:
    """Return the processes of the data folder that answer on this machine.

    Raises:
        StoreUnavailable: the store cannot be opened.
        ConfigError: `store.url` names no database.
    """
    if config.ephemeral or not may_exist(config):
        return []
    return anyio.run(_read, config)


async def _read(config: Config) -> list[NodeRecord]:
    async with store_of(config) as store:
        nodes = await store.nodes()
    live = LiveNodes(config.data, nodes)
    await live.ask(node.id for node in nodes)
    return [node for node in nodes if live.answers(node.id)]


__all__ = ["read_processes"]
