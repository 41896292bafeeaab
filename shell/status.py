"""`statehold status` and `statehold stop`: the servers of a data folder, its other processes, and the keeper."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from ..server.exit_codes import OK, USAGE
from ..server.printing import complain
from ..server.shared.folder import SharedFolder
from ..server.shared.request import STOP
from ..server.sockets.processes import NODES, read_processes
from ..server.sockets.request import Unreachable, send_request
from ..sessions.one_line import plural
from ..sessions.times import ago, span
from ..tools.processes import procfs
from ..tools.processes.keeper_command import (
    KeeperCommand,
    KeeperStatus,
    KeeperUnreachable,
    KeptChild,
    NoKeeper,
)
from .output import pairs, say, say_json, table
from .parser import CommandLine
from .shared import find_folder

if TYPE_CHECKING:
    from ..server.config.model import Config

END_SECONDS = 60.0
"""Seconds that `statehold stop` waits for the end of the server."""
STOP_SECONDS = 20.0
"""Seconds until a server has to answer that it ends."""
KEEPER_SECONDS: Final = 10.0
"""Seconds that `statehold stop --all` waits for the end of the keeper."""


def show_status(arguments: CommandLine) -> int:
    """Print the server, the other processes and the keeper of the data folder. Return the exit code."""
    folder = _shared_folder(arguments)
    if folder is None:
        return USAGE
    others = read_processes(folder.data)
    status = next((each for each in others if each.get("kind")), None)
    if status is not None:
        others.remove(status)
    keeper, problem = None, ""
    try:
        keeper = read_keeper(folder.data)
    except KeeperUnreachable as error:
        problem = f"the keeper of {folder.data}: {error}"
    if arguments.json:
        server = {"running": status is not None, "data": str(folder.data), **(status or {})}
        held = None if keeper is None else _keeper_to_json(keeper)
        say_json({**server, "processes": others, "keeper": held})
    else:
        if status is not None or not others:
            _print_server(folder, status)
        for each in others:
            say(f"running for {folder.data}: {_name(each)}")
        _print_keeper(keeper)
    return complain(problem) if problem else OK


def _name(process: Mapping[str, Any]) -> str:
    return str(process.get("address") or f"pid {process.get('pid')}")


def _print_server(folder: SharedFolder, status: Mapping[str, Any] | None) -> None:
    if status is None:
        say(f"no server runs for {folder.data}")
        return
    rows = [
        ("pid", status.get("pid")),
        ("address", status.get("address")),
        ("version", status.get("version")),
        ("started", ago(status.get("started_at"), time.time())),
        ("clients", status.get("clients")),
        ("live sessions", status.get("live_sessions")),
        ("data", folder.data),
        ("log", status.get("log")),
    ]
    say(pairs([row for row in rows if row[1] is not None]))


def report_background_server(config: Config) -> None:
    """Write a line if a background server runs for the folder that `serve` is about to serve too."""
    for each in () if config.ephemeral else read_processes(config.data):
        if each.get("kind") == "background":
            complain(
                f"a background server runs for {config.data} too ({_name(each)}) and keeps its clients; commands and new "
                "clients use this server from now on. `statehold stop` ends both"
            )


def stop(arguments: CommandLine) -> int:
    """End the servers of the data folder, which pause their sessions first. Return the exit code.

    With `--all`, end the child processes that no node holds as well.
    """
    folder = _shared_folder(arguments)
    if folder is None:
        return USAGE
    code = _stop_servers(folder)
    if code == OK and arguments.all:
        return _end_unattended(folder.data)
    return code


def _stop_servers(folder: SharedFolder) -> int:
    servers = [each for each in read_processes(folder.data) if each.get("kind")]
    # A signal to one worker, or to their parent, ends all workers; a second one would cut their calls short.
    for each in {each["supervisor"]: each for each in servers}.values():
        with suppress(Unreachable):
            _ask_to_stop(folder, str(each["node"]))
    if folder.path.is_dir() and all(each["kind"] != "background" for each in servers):
        servers += _stop_holder(folder)
    for each in servers:
        if not folder.wait_ended(str(each.get("node")), within=END_SECONDS):
            return complain(f"the server of {folder.data} ({_name(each)}) is still ending")
    for each in {each["supervisor"]: each for each in servers}.values():
        say(f"stopped the server of {folder.data} ({_name(each)})")
    others = [each for each in read_processes(folder.data) if not each.get("kind")]
    for each in others:
        say(f"running for {folder.data}: {_name(each)}; it ends with its client")
    if not servers and not others:
        say(f"no server runs for {folder.data}")
    return OK


def _ask_to_stop(folder: SharedFolder, node: str) -> None:
    members = {"pid": os.getpid()}
    send_request(folder.data / NODES, node, STOP, members, seconds=STOP_SECONDS).connection.close()


def _stop_holder(folder: SharedFolder) -> list[Mapping[str, Any]]:
    """End a background server that does not answer: it starts, hangs, or is of a version with another socket."""
    pid = folder.lock_holder()
    if pid is None:
        return []
    os.kill(pid, signal.SIGTERM)
    return [{"supervisor": pid, "address": f"an older one, or one that does not answer, pid {pid}"}]


def _shared_folder(arguments: CommandLine) -> SharedFolder | None:
    """Return the folder that a command line means. None after a mistake in the settings, which it explains."""
    try:
        return find_folder(arguments)
    except ValueError as error:
        complain(str(error), USAGE)
        return None


def read_keeper(data: Path) -> KeeperStatus | None:
    """Return what the keeper of a data folder holds; None without a keeper.

    Raises:
        KeeperUnreachable: it does not answer.
    """
    try:
        with closing(KeeperCommand(data)) as keeper:
            return keeper.status()
    except NoKeeper:
        return None


def _keeper_to_json(keeper: KeeperStatus) -> dict[str, Any]:
    return {
        "pid": keeper.pid,
        "nodes": keeper.nodes,
        "linger_seconds": keeper.linger_seconds,
        "children": [
            {
                "session": child.session,
                "service": child.service,
                "pid": child.pid,
                "has_node": child.has_node,
                "alone_seconds": child.alone_seconds,
                "code": child.code,
            }
            for child in keeper.children
        ],
    }


def _print_keeper(keeper: KeeperStatus | None) -> None:
    """Print the keeper and a table of its children; nothing without a keeper."""
    if keeper is None:
        return
    say(f"\nkeeper: pid {keeper.pid}, {plural(len(keeper.children), 'process', 'processes')}")
    if keeper.children:
        rows = [
            (child.session, child.service, child.pid, _describe_state(child, keeper))
            for child in keeper.children
        ]
        say(table(("SESSION", "SERVICE", "PID", "STATE"), rows))


def _describe_state(child: KeptChild, keeper: KeeperStatus) -> str:
    if child.has_node:
        return "a node has it"
    if child.alone_seconds is None:
        return "is being ended"
    state = "no node" if child.code is None else f"ended with {child.code}, no node"
    remaining = keeper.linger_seconds - child.alone_seconds
    return f"{state} for {span(child.alone_seconds)}, {span(remaining)} left"


def _end_unattended(data: Path) -> int:
    """End the children that no node holds, and the keeper unless a node uses it. Return the exit code."""
    try:
        with closing(KeeperCommand(data)) as command:
            keeper = command.status()
            without_node = [child for child in keeper.children if not child.has_node]
            ended = sum([command.end(child) for child in without_node])
    except NoKeeper:
        say(f"no keeper runs for {data}")
        return OK
    except KeeperUnreachable as error:
        return complain(f"the keeper of {data}: {error}")
    say(f"ended {plural(ended, 'process', 'processes')} that no node had")
    if keeper.nodes:
        say(f"the keeper (pid {keeper.pid}) goes on for {plural(keeper.nodes, 'node')}")
        return OK
    if anyio.run(_wait_for_end, keeper.pid):
        say(f"the keeper (pid {keeper.pid}) has ended")
        return OK
    return complain(f"the keeper (pid {keeper.pid}) is still ending")


async def _wait_for_end(pid: int) -> bool:
    with anyio.move_on_after(KEEPER_SECONDS):
        await procfs.wait_for_exit(pid)
        return True
    return False
