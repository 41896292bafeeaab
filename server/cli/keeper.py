"""The keeper of a data folder for `statehold status`, `stop` and `doctor`: the processes that it holds, and their end."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import anyio

from ...sessions.plural import plural
from ...tools.processes import procfs
from ...tools.processes.keeper import KeeperClient, KeeperStatus, KeeperUnreachable, KeptChild
from ..exit_codes import OK
from .output import complain, say, span, table

END_SECONDS: Final = 10.0
"""Seconds that `statehold stop --all` waits for the end of the keeper."""


def read_keeper(data: Path) -> KeeperStatus | None:
    """Return what the keeper of a data folder holds; None without a keeper.

    Raises:
        KeeperUnreachable: it does not answer.
    """
    return anyio.run(_read, data)


async def _read(data: Path) -> KeeperStatus | None:
    async with aclosing(KeeperClient(data, None)) as client:
        return await client.status()


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
        return anyio.run(_end_unattended, data)
    except KeeperUnreachable as error:
        return complain(f"the keeper of {data}: {error}")


async def _end_unattended(data: Path) -> int:
    async with aclosing(KeeperClient(data, None)) as client:
        keeper = await client.status()
        if keeper is None:
            say(f"no keeper runs for {data}")
            return OK
        without_node = [child for child in keeper.children if not child.has_node]
        ended = sum([await client.end(child) for child in without_node])
    say(f"ended {plural(ended, 'process', 'processes')} that no node had")
    if keeper.nodes:
        say(f"the keeper (pid {keeper.pid}) goes on for {plural(keeper.nodes, 'node')}")
        return OK
    with anyio.move_on_after(END_SECONDS):
        await procfs.wait_for_exit(keeper.pid)
        say(f"the keeper (pid {keeper.pid}) has ended")
        return OK
    return complain(f"the keeper (pid {keeper.pid}) is still ending")


__all__ = [
    "KeeperUnreachable",
    "end_unattended",
    "keeper_to_json",
    "print_keeper",
    "read_keeper",
]
