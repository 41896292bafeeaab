"""`statehold nodes`: the processes of a store, also on other machines."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

import anyio

from ...sessions.cluster.leases import Leases, SeenNode
from ...sessions.json_codec import JSON
from ...sessions.records import NodeRecord
from ...sessions.store.sql import SQLStore
from ...sessions.views import timestamp
from ..config.model import Config
from ..exit_codes import BUSY, FAILURE, NOT_FOUND, OK
from ..gateway.stores import may_exist, store_of
from .command_line import CommandLine
from .output import complain, say, say_json, span, table

ANSWER_SECONDS: Final = 5.0
"""Seconds that the database may take to answer."""


def run(config: Config, arguments: CommandLine) -> int:
    """Run one of the commands about nodes, and return the exit code."""
    if config.ephemeral or not may_exist(config):
        if arguments.action == "list":
            return _show([], arguments)
        return complain("there is no such node", NOT_FOUND)
    return anyio.run(_run, config, arguments)


async def _run(config: Config, arguments: CommandLine) -> int:
    store = store_of(config)
    async with store:
        if arguments.action == "list":
            return _show(await _nodes(store), arguments)
        if not store.has_leases:
            return complain("the nodes of this store have no leases; see [cluster]", FAILURE)
        async with store.leases() as leases:
            seen = {node.record.id: node for node in await leases.look(within=ANSWER_SECONDS)}
            node = seen.get(arguments.node)
            if node is None:
                return complain(f"there is no node {arguments.node}", NOT_FOUND)
            if arguments.action == "drain":
                return await _drain(leases, node.record)
            return await _remove(store, node, force=arguments.force)


async def _nodes(store: SQLStore) -> list[SeenNode]:
    if not store.has_leases:
        return [SeenNode(record, 0, False) for record in await store.nodes()]
    async with store.leases() as leases:
        return await leases.look(within=ANSWER_SECONDS)


def _show(nodes: Iterable[SeenNode], arguments: CommandLine) -> int:
    nodes = list(nodes)
    described = [_describe(node) for node in nodes]
    if arguments.json:
        say_json({"nodes": described})
        return OK
    head = ["NODE", "STATE", "SESSIONS", "CAPACITY", "SINCE", "PEER", "ADDRESS", "VERSION"]
    rows = [
        [
            *(node["node"], node["state"], node["sessions"], node["capacity"]),
            *(span(time.time() - seen.record.started_at), node["peer"], node["address"]),
            node["version"],
        ]
        for node, seen in zip(described, nodes, strict=True)
    ]
    say(table(head, rows) if rows else "No node is running.")
    return OK


def _describe(node: SeenNode) -> JSON:
    record = node.record
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


async def _drain(leases: Leases, record: NodeRecord) -> int:
    await leases.set_draining(record.id, within=ANSWER_SECONDS)
    say(f"{record.id} takes on no more sessions, and gives up those it has.")
    return OK


async def _remove(store: SQLStore, node: SeenNode, *, force: bool) -> int:
    record = node.record
    if record.lease_seconds and not node.is_expired and not force:
        return complain(
            f"{record.id} lives: its lease is valid. Stop it, or give --force when you know that it is gone",
            BUSY,
        )
    await store.declare_dead(record.id)
    paused = await store.adopt([record.id], time.time())
    say(f"{record.id} is removed; {len(paused)} of its sessions are paused.")
    return OK


__all__ = ["run"]
