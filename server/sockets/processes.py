"""The processes of a data folder that answer on this machine, found by their sockets: no store is opened for it.

Everything that looks for a running process looks here, in one order, so commands and clients agree on one server: a
`statehold serve` comes before the background server, and of several the one that was started last comes first. Imports few
modules: `statehold call` takes as long as its imports.
"""

from __future__ import annotations

import os

from .request import UNKNOWN_VERB, Exchange, Refused, Unanswered, Unreachable, send_request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

NODES = "nodes"
"""The folder of the sockets; see sessions/node.py. A test compares them."""
PROCESS = "process"
"""The verb that every process answers: with its pid and its address, a server also with its clients and its kind."""
SECONDS = 3.0
ENDING = "ending"
"""The code of an error: the server ends, and the next one is to be asked."""


def read_processes(data: str | os.PathLike[str]) -> list[Mapping[str, Any]]:
    """Return the description of each process of a data folder; those with `kind` serve commands and clients."""
    return [_content(exchange) for exchange in ask_each(data, PROCESS, {}, seconds=SECONDS)]


def list_nodes(data: str | os.PathLike[str]) -> list[str]:
    """Return the ids of the processes that have a socket in a data folder, killed ones included, the latest first.

    A background server comes last: it sets the time of its socket back.
    """
    folder = os.path.join(data, NODES)
    try:
        names = [name for name in os.listdir(folder) if name.endswith(".sock")]
    except OSError:
        return []
    names.sort(key=lambda name: _bound_at(os.path.join(folder, name)), reverse=True)
    return [name.removesuffix(".sock") for name in names]


def _bound_at(path: str) -> int:
    """Return when a socket was bound, in nanoseconds since 1970; 0 if its process has just removed it."""
    try:
        return os.lstat(path).st_mtime_ns
    except OSError:
        return 0


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
            if error.code != UNKNOWN_VERB:
                raise


def ask_server(
    data: str | os.PathLike[str],
    verb: str,
    members: Mapping[str, Any],
    *,
    seconds: float,
    following: bytes = b"",
) -> Exchange:
    """Return the answer of the server of a data folder: the first process that serves the verb.

    `following` are the first bytes for the handler of the verb.

    Raises:
        Refused: the server answered with an error.
        Unanswered: no process answered, and at least one that may serve the verb hangs.
        Unreachable: no server runs, or the one that runs is ending.
    """
    folder = os.path.join(data, NODES)
    silent: Unanswered | None = None
    for node in list_nodes(data):
        try:
            return send_request(folder, node, verb, members, seconds=seconds, following=following)
        except Unreachable:
            continue
        except Unanswered as error:
            silent = silent or error
        except Refused as error:
            if error.code not in (UNKNOWN_VERB, ENDING):
                raise
    if silent is not None:
        raise silent
    raise Unreachable("no server runs")


def _content(exchange: Exchange) -> Mapping[str, Any]:
    exchange.connection.close()
    return exchange.content
