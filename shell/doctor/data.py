"""The doctor's checks of the data folder: permissions, the database, running processes, children left behind, the keeper."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio

from ...access.config.types import ConfigError
from ...server.config.model import Config
from ...server.gateway.stores import is_remote, may_exist, store_of
from ...server.operate.nodes import LiveNodes
from ...sessions.errors import StoreUnavailable
from ...sessions.one_line import plural
from ...sessions.records import NodeRecord
from ...sessions.store.dialect import FILE_NAME
from ...sessions.store.file.store_folder import DAMAGED, LEAST_FREE
from ...sessions.store.file.wal import is_orphaned
from ...sessions.store.sql import SQLStore
from ...tools.processes import procfs
from ...tools.processes.keeper_command import KeeperUnreachable, KeptChild
from ...tools.processes.launch import find_setpriv
from ...tools.processes.ledger import ChildRecord
from ..status import read_keeper
from .system import Finding

_LOW_SPACE = 200 * 1024 * 1024
_LISTED_CHILDREN = 5


def check_folder(config: Config) -> Iterator[Finding]:
    """Look at the owner, the permissions and the space of the data folder."""
    folder = config.data
    if not folder.exists():
        yield _check_new_folder(folder)
        return
    status = folder.stat()
    if os.name == "posix" and status.st_mode & 0o077:
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        yield Finding(
            "data folder", "fail", f"{folder}: others may enter ({mode})", f"chmod 700 {folder}"
        )
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        remedy = "run as its owner, or choose another folder with --data"
        yield Finding("data folder", "fail", f"{folder}: cannot be written", remedy)
    else:
        yield Finding("data folder", "ok", str(folder))
    yield from _check_file_modes(folder)
    free = shutil.disk_usage(folder).free
    remedy = "free some space, or choose another folder with --data"
    if free < LEAST_FREE:
        yield Finding("disk", "fail", "full", remedy)
    elif free < _LOW_SPACE:
        yield Finding("disk", "warn", f"{free // 1024 // 1024} MiB free", remedy)


def _check_new_folder(folder: Path) -> Finding:
    above = next(parent for parent in folder.parents if parent.exists())
    if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        return Finding("data folder", "ok", f"{folder} (will be made)")
    remedy = "choose another folder with --data"
    return Finding("data folder", "fail", f"{folder} cannot be made in {above}", remedy)


def _check_file_modes(folder: Path) -> Iterator[Finding]:
    files = [path for path in folder.glob(f"{FILE_NAME}*") if path.stat().st_mode & 0o077]
    if os.name == "posix" and files:
        names = " ".join(str(path) for path in files)
        yield Finding("data files", "fail", "others may read the database", f"chmod 600 {names}")


def check_store(config: Config) -> Iterator[Finding]:
    """Open the database, have it checked, and count its contents and its users."""
    for path in sorted(config.data.glob(f"{FILE_NAME}{DAMAGED}*[0-9]")):
        remedy = (
            f"sqlite3 {path} .dump shows its readable part; remove the file when you do not need it"
        )
        yield Finding("store", "warn", f"{path.name} was damaged and set aside", remedy)
    if not may_exist(config) and not is_orphaned(config.data / FILE_NAME):
        yield Finding("store", "ok", "empty")
        return
    try:
        store = store_of(config)
        problems, refusal, counts, nodes = anyio.run(_ask_store, store)
    except (StoreUnavailable, ConfigError) as error:
        yield _store_failure(str(error))
        return
    for problem in problems:
        what = "the database" if is_remote(config) else str(config.data / FILE_NAME)
        yield Finding("store", "fail", problem, f"restore a copy of {what}, or move it away")
    if refusal is not None:
        yield _store_failure(refusal)
    elif not problems:
        open_ones = sum(count for status, count in counts.items() if status != "closed")
        closed_count = counts.get("closed", 0)
        where = f"{store.location}: " if is_remote(config) else ""
        yield Finding(
            "store", "ok", f"{where}{plural(open_ones, 'open session')}, {closed_count} closed"
        )
    yield from anyio.run(_check_processes, config, nodes)


def _store_failure(message: str) -> Finding:
    what, _, advice = message.partition(". ")
    return Finding("store", "fail", what.rstrip("."), advice or "see the message")


async def _ask_store(
    store: SQLStore,
) -> tuple[list[str], str | None, dict[str, int], list[NodeRecord]]:
    async with store:
        problems = await store.check()
        refusal = None if problems else await store.check_writes()
        return problems, refusal, await store.counts(), await store.nodes()


async def _check_processes(config: Config, nodes: list[NodeRecord]) -> list[Finding]:
    live = LiveNodes(config.data, nodes)
    await live.ask(node.id for node in nodes)
    running = [node for node in nodes if live.answers(node.id)]
    silent = [node for node in nodes if not live.answers(node.id) and procfs.start_time(node.pid)]
    findings: list[Finding] = []
    if running:
        addresses = ", ".join(node.address or f"pid {node.pid}" for node in running)
        findings.append(Finding("processes", "ok", f"{len(running)} running: {addresses}"))
    for node in silent:
        remedy = f"look whether process {node.pid} hangs; end it if so"
        findings.append(
            Finding("processes", "warn", f"{node.address or node.id} does not answer", remedy)
        )
    return findings


def check_children(config: Config) -> Iterator[Finding]:
    """Look for children that outlived the process that started them."""
    leftovers = [child for child in _children(config.data) if _is_leftover(child)]
    if not leftovers:
        yield Finding("leftover children", "ok", "none")
        return
    remedy = "start Statehold once with this data folder: it ends them"
    yield Finding("leftover children", "fail", _list_children(leftovers), remedy)


def check_keeper(config: Config) -> Iterator[Finding]:
    """Look whether a keeper can run, and ask it, if one runs, for the children that no node has."""
    if procfs.LINUX and config.keeper.linger_seconds != 0 and find_setpriv() is None:
        detail = "no setpriv with --pdeathsig: the processes of stdio servers end with Statehold"
        yield Finding("keeper", "warn", detail, "install util-linux")
        return
    try:
        keeper = read_keeper(config.data)
    except KeeperUnreachable as error:
        remedy = (
            "look whether its process hangs; end it with kill -9 if so, its children end with it"
        )
        yield Finding("keeper", "fail", str(error), remedy)
        return
    if keeper is None:
        return
    without_node = [child for child in keeper.children if not child.has_node]
    if not without_node:
        yield Finding(
            "keeper",
            "ok",
            f"pid {keeper.pid}, {plural(len(keeper.children), 'process', 'processes')}",
        )
        return
    remedy = "start Statehold with this data folder to go on with them, or end them: statehold stop --all"
    yield Finding("keeper", "warn", f"no node has {_list_children(without_node)}", remedy)


def _list_children(children: Sequence[ChildRecord] | Sequence[KeptChild]) -> str:
    listed = [f"pid {child.pid} of {child.service}" for child in children[:_LISTED_CHILDREN]]
    more = len(children) - _LISTED_CHILDREN
    return ", ".join(listed) + (f" and {more} more" if more > 0 else "")


def _children(data: Path) -> Iterator[ChildRecord]:
    for file in sorted(data.glob("children/*/*.json")):
        try:
            yield ChildRecord(**json.loads(file.read_text()))
        except (OSError, ValueError, TypeError):
            continue


def _is_leftover(child: ChildRecord) -> bool:
    if child.machine != procfs.machine_id():
        return False
    owner = procfs.start_time(child.owner_pid)
    if child.owner_started is not None and owner == child.owner_started:
        return False
    return child.started is not None and procfs.start_time(child.pid) == child.started
