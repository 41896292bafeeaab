"""The words that a shell completes behind `statehold`: commands, sessions, tools, arguments and their values.

The scripts of cli/completion.py call `statehold complete -- WORD...` with the words of the line up to the cursor. Words go
to the shell as they are, one a line, and no shell evaluates them. A server is asked only if it runs.
"""

from __future__ import annotations

from ..exit_codes import OK
from ..printing import write
from ..sockets.request import as_object
from .connection import Failure, LocalConnection, RequestFailed, ServerLost
from .tools import list_tools
from .words import OPTIONS, Words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COMMANDS = (
    *(
        "answer",
        "audit",
        "backup",
        "call",
        "completion",
        "console",
        "demo",
        "doctor",
        "login",
        "nodes",
        "principals",
        "serve",
    ),
    *("services", "sessions", "skill", "status", "stop", "tokens", "tools", "top"),
)
SECONDS = 2.0


def complete(words: Words) -> int:
    """Print the words that may stand at the end of a command line. Return the exit code."""
    *before, last = words.rest or [""]
    for word in _candidates(words, before, last):
        # A line break would be two words, and other control characters would reach the terminal.
        if word.startswith(last) and word.isprintable():
            write(f"{word}\n")
    return OK


def _candidates(words: Words, before: list[str], last: str) -> list[str]:
    if not before:
        return list(COMMANDS)
    command = before[0]
    if last.startswith("-"):
        return list(OPTIONS.get(command, {}))
    # The options of the line say which server is asked.
    names = [word for word in before[1:] if not word.startswith("-")]
    try:
        match command, len(names):
            case ("call", 0):
                return _sessions(words)
            case ("call", 1) | ("tools", _):
                return [tool["name"] for tool in _tools(words)]
            case ("call", _):
                return _arguments(words, names[1], last)
            case _:
                return []
    except (Failure, ServerLost, RequestFailed, OSError):
        return []


def _tools(words: Words) -> list[dict[str, Any]]:
    connection = LocalConnection(words, None, starts=False)
    try:
        return list_tools(connection)
    finally:
        connection.close()


def _sessions(words: Words) -> list[str]:
    connection = LocalConnection(words, None, starts=False)
    try:
        connection.request("server/discover", {}, seconds=SECONDS)
        return connection.names
    finally:
        connection.close()


def _arguments(words: Words, tool: str, last: str) -> list[str]:
    """Return `key=` for each argument, and `key=value` for each value of the one that is written."""
    for each in _tools(words):
        if each["name"] != tool:
            continue
        properties = as_object(as_object(each.get("inputSchema")).get("properties"))
        key, equals, _ = last.partition("=")
        if not equals:
            return [f"{name}=" for name in properties]
        schema = as_object(properties.get(key))
        values = ["yes", "no"] if schema.get("type") == "boolean" else schema.get("enum") or []
        return [f"{key}={value}" for value in values]
    return []


__all__ = ["complete"]
