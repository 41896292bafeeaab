"""The words that a shell completes behind `statehold`: commands, sessions, tools, arguments and their values.

The scripts of ../completion.py call `statehold complete -- WORD...` with the words of the line up to the cursor. Words go
to the shell as they are, one a line, and no shell evaluates them. A server is asked only if it runs.
"""

from __future__ import annotations

from ...server.exit_codes import OK
from ...server.printing import write
from ...server.sockets.request import as_object
from .connection import Failure, LocalConnection, OutOfTime, RequestFailed, ServerLost
from .questions import CallQuestion
from .tasks import open_calls
from .tools import list_tools
from .words import OPTIONS, Words, WrongUsage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
    """Return the words that may follow; none where the shell completes files."""
    command = before[0] if before else ""
    try:
        if command not in OPTIONS:
            return _of_help(words, before, last)
        if last.startswith("-"):
            return list(OPTIONS[command])
        try:
            # The options of the line say which server is asked.
            line = Words(command, [*words.settings, *before[1:]])
        except WrongUsage:
            return _sessions(words, last) if before[-1] == "--session" else []
        match command, len(line.rest):
            case ("call", 0):
                return _sessions(line, last)
            case ("call", 1) | ("tools", _):
                return [tool["name"] for tool in _tools(line)]
            case ("call", _):
                return _arguments(line, line.rest[1], last)
            case ("answer", _):
                return _answers(line, line.rest)
            case ("tasks", 0):
                return ["wait", "cancel", "answer"]
            case ("tasks", _) if line.rest[0] == "answer":
                return _answers(line, line.rest[1:])
            case ("tasks", 1):
                return [str(each["task_id"]) for each in open_calls(line)]
            case _:
                return []
    except (Failure, OutOfTime, ServerLost, RequestFailed, OSError):
        return []


def _of_help(words: Words, before: list[str], last: str) -> list[str]:
    """Return the commands, the options of a command, or the sessions where it takes one."""
    # Imported here: a call is completed without click.
    import click

    from ..commands import build_commands

    command: click.Command = build_commands()
    rest = [word for word in before if not word.startswith("-")]
    while isinstance(command, click.Group) and rest:
        if rest[0] not in command.commands:
            return []
        command = command.commands[rest.pop(0)]
    if last.startswith("-"):
        return [name for param in command.params for name in param.opts if name.startswith("-")]
    if isinstance(command, click.Group):
        return list(command.commands)
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    current = arguments[min(len(rest), len(arguments) - 1)] if arguments else None
    if current is None or (len(rest) >= len(arguments) and current.nargs != -1):
        return []
    return _sessions(words, last) if current.metavar in ("SESSION", "CHILD") else []


def _answers(words: Words, rest: list[str]) -> list[str]:
    """Return the tasks that ask, or the fields of the question of one."""
    if not rest:
        return [str(each["task_id"]) for each in open_calls(words) if each["question"]]
    connection = LocalConnection(words, None, starts=False)
    try:
        task = connection.request("tasks/get", {"taskId": rest[0]}, seconds=SECONDS)
    finally:
        connection.close()
    return [f"{name}=" for name in CallQuestion(task).fields()]


def _tools(words: Words) -> list[dict[str, Any]]:
    connection = LocalConnection(words, None, starts=False)
    try:
        return list_tools(connection)
    finally:
        connection.close()


def _sessions(words: Words, last: str) -> list[str]:
    """Return the names of the open sessions; also all ids once an id is begun."""
    # Imported here: no other completion needs it.
    from ...sessions.ids import ID_PREFIX

    connection = LocalConnection(words, None, starts=False)
    try:
        connection.request("server/discover", {}, seconds=SECONDS)
        return [*connection.names, *(connection.ids if last.startswith(ID_PREFIX) else ())]
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
