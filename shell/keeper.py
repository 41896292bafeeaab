"""The keeper of a data folder for `statehold status`, `stop` and `doctor`: the processes that it holds, and their end."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, Final

import anyio

from ..server.exit_codes import OK
from ..server.printing import complain
from ..sessions.one_line import plural
from ..sessions.times import span
from ..tools.processes import procfs
from ..tools.processes.keeper_command import (
    KeeperCommand,
    KeeperStatus,
    KeeperUnreachable,
    KeptChild,
    NoKeeper,
)
from .output import say, table

END_SECONDS: Final = 10.0
"""Seconds that `statehold stop --all` waits for the end of the keeper."""


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


def keeper_to_json(keeper: KeeperStatus) -> dict[str, Any]:
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


def print_keeper(keeper: KeeperStatus | None) -> None:
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


def end_unattended(data: Path) -> int:
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
    with anyio.move_on_after(END_SECONDS):
        await procfs.wait_for_exit(pid)
        return True
    return False
