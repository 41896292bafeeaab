"""`statehold sessions list` and `show` by a process that runs: it has the store open, which takes a command a second."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from ...server.config.data_folder import find_data_folder
from ...server.exit_codes import CODES
from ...server.printing import complain
from ...server.sockets.processes import ask_each
from ...server.sockets.request import Refused
from ..output import CommandError, say_json
from ..parser import CommandLine
from .listing import print_list, print_session

VERB: Final = "sessions"
SECONDS: Final = 6.0
"""Seconds that one process may take: those in which it asks the others, and some for its store."""
_ARGUMENTS: Final = (
    *("all", "status", "owner", "name", "metadata", "since", "query", "limit", "ref", "last"),
    *("user", "agent", "team", "workflow"),
)


def run_quickly(arguments: CommandLine) -> int | None:
    """Run the command by a process of the data folder and return its exit code; None if no process can."""
    try:
        data = find_data_folder(
            data=getattr(arguments, "data", None),
            config=getattr(arguments, "config", None),
            environ=os.environ,
        )
    except ValueError:
        return None
    given = vars(arguments)
    members = {name: given[name] for name in _ARGUMENTS if given.get(name) is not None}
    request = {"action": arguments.action, "arguments": members}
    try:
        for exchange in ask_each(data, VERB, request, seconds=SECONDS):
            exchange.connection.close()
            return _print(exchange.content, arguments, data)
    except Refused as error:
        if error.code in ("session_not_found", "invalid_argument"):
            return _complain(error, arguments, data)
    return None


def _print(content: Mapping[str, Any], arguments: CommandLine, data: str) -> int:
    if arguments.action == "list":
        return print_list(content, arguments, data)
    return print_session(content, arguments)


def _complain(error: Refused, arguments: CommandLine, data: str) -> int:
    code, message = error.code, str(error)
    if code == "session_not_found":
        message = str(CommandError.session_unknown(arguments.ref, data, message))
    else:
        code = "ambiguous" if arguments.action == "show" else "usage"
    if arguments.json:
        say_json({"error": {"code": code, "message": message}})
    return complain(message, CODES[error.code])
