"""Commands on the store: `statehold nodes list|drain|remove` and `statehold backup`."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import anyio

from ..access.config.types import ConfigError
from ..server.config.model import Config
from ..server.exit_codes import BUSY, FAILURE, NOT_FOUND, OK
from ..server.gateway.stores import is_remote, may_exist, store_of
from ..server.operate.nodes import ANSWER_SECONDS, describe_seen, read_nodes
from ..server.printing import complain
from ..sessions.cluster.lease import SeenNode
from ..sessions.errors import StoreUnavailable
from ..sessions.records import NodeRecord
from ..sessions.store.file.file_backup import back_up
from ..sessions.store.leases import PostgresLeases
from ..sessions.store.sql import SQLStore
from ..sessions.times import span
from .output import say, say_json, table
from .parser import CommandLine
from .progress import ProgressBar


def run_nodes(config: Config, arguments: CommandLine) -> int:
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
            return _show(await read_nodes(store), arguments)
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


def _show(nodes: Iterable[SeenNode], arguments: CommandLine) -> int:
    nodes = list(nodes)
    described = [describe_seen(node) for node in nodes]
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


async def _drain(leases: PostgresLeases, record: NodeRecord) -> int:
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


_TOOLS = {
    "postgresql": "pg_dump --format=custom --file=FILE DATABASE",
    "mysql": "mariadb-dump --single-transaction --result-file=FILE DATABASE",
}


def run_backup(config: Config, arguments: CommandLine) -> int:
    """Make the copy and return the exit code."""
    target = Path(arguments.file).expanduser().absolute()
    try:
        with ProgressBar(f"copying the database to {target.name}", is_json=arguments.json) as bar:
            size = _copy(config, target, bar)
    except FileExistsError:
        return _report_failure(arguments, f"{target} is there already; name a new file")
    except StoreUnavailable as error:
        return _report_failure(arguments, str(error))
    if arguments.json:
        say_json({"file": str(target), "bytes": size})
    else:
        say(f"{target}: {size:,} bytes")
    return OK


def _copy(config: Config, target: Path, bar: ProgressBar) -> int:
    if config.ephemeral:
        raise ConfigError("--ephemeral: nothing is kept, so there is nothing to copy; drop it")
    if is_remote(config):
        database = store_of(config).location
        command = _TOOLS[database.partition(" ")[0]]
        raise StoreUnavailable(
            f"The sessions are in {database}. Its own tools copy it while it is used: {command}"
        )
    if not target.parent.is_dir():
        raise StoreUnavailable(f"There is no folder {target.parent}. Make it, or name another one.")
    return back_up(config.data, target, report=bar.update)


def _report_failure(arguments: CommandLine, problem: str) -> int:
    if arguments.json:
        say_json({"error": {"code": "backup_failed", "message": problem}})
    return complain(problem, FAILURE)
