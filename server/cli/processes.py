"""The processes of a data folder that answer on this machine, found by their sockets: no store is opened for it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..sockets.request import Exchange, Refused, Unanswered, Unreachable, send_request

NODES: Final = "nodes"
"""The folder of the sockets; see sessions/node.py. A test compares them."""
PROCESS: Final = "process"
SECONDS: Final = 3.0


def read_processes(data: str | os.PathLike[str]) -> list[Mapping[str, Any]]:
    """Return pid and address of each process of a data folder."""
    return [_content(exchange) for exchange in ask_each(data, PROCESS, {}, seconds=SECONDS)]


def list_nodes(data: str | os.PathLike[str]) -> list[str]:
    """Return the ids of the processes that have a socket in a data folder, those that were killed included."""
    try:
        names = sorted(os.listdir(os.path.join(data, NODES)))
    except OSError:
        return []
    return [name.removesuffix(".sock") for name in names if name.endswith(".sock")]


def ask_each(
    data: str | os.PathLike[str], verb: str, members: Mapping[str, Any], *, seconds: float
) -> Iterator[Exchange]:
    """Ask the processes of a data folder one after the other; yield the answers of those that know the verb.

    Raises:
        Refused: a process answered with an error other than that it does not serve the verb.
    """
    folder = os.path.join(data, NODES)
    for node in list_nodes(data):
        try:
            yield send_request(folder, node, verb, members, seconds=seconds)
        except (Unreachable, Unanswered):
            # It was killed, or hangs.
            continue
        except Refused as error:
            if error.code != "unknown_verb":
                raise


def _content(exchange: Exchange) -> Mapping[str, Any]:
    exchange.connection.close()
    return exchange.content


__all__ = ["NODES", "ask_each", "list_nodes", "read_processes"]
