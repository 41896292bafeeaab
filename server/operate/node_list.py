"""The processes of a store, also on other machines, as JSON documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...sessions.cluster.lease import SeenNode
from ...sessions.json_codec import JSON
from ...sessions.records import NodeRecord
from ...sessions.views import timestamp

if TYPE_CHECKING:
    from ...sessions.store.sql import SQLStore

ANSWER_SECONDS: Final = 5.0
"""Seconds that the database may take to answer."""


async def read_nodes(store: SQLStore) -> list[SeenNode]:
    """Return the processes that are not dead."""
    if not store.has_leases:
        return [SeenNode(record, 0, False) for record in await store.nodes()]
    async with store.leases() as leases:
        return await leases.look(within=ANSWER_SECONDS)


def describe_seen(node: SeenNode) -> JSON:
    """Return a process with its sessions at its last heartbeat."""
    record: NodeRecord = node.record
    return {
        "node": record.id,
        "state": "silent" if record.lease_seconds and node.is_expired else record.state.value,
        "sessions": record.sessions if record.lease_seconds else None,
        "capacity": record.capacity,
        "started_at": timestamp(record.started_at),
        "peer": record.peer or None,
        "address": record.address,
        "version": record.version or None,
    }
