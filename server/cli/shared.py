"""`statehold --shared`, and `statehold status` and `statehold stop` for the background server and the keeper."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..config.data_folder import find_data_folder
from ..exit_codes import OK, USAGE
from ..printing import complain
from ..shared.connection import ServerUnavailable, connect
from ..shared.conversation import NotResumed
from ..shared.folder import SERVER_LOCK, SharedFolder
from ..shared.pipe import Pipe
from ..shared.request import STATUS, STOP, VERB, ClientRequest
from ..shared.requested_settings import SESSION_VARIABLE, requested_settings
from ..sockets.request import Exchange, Refused, Unanswered, Unreachable
from .command_line import CommandLine
from .commands import SETTINGS, parse_command_line
from .output import ago, pairs, say, say_json

END_SECONDS = 60.0
"""Seconds that `statehold stop` waits for the end of the server."""
_OF_CLIENTS = frozenset({"--data", "--session", "--shared"})
"""Flags that each client has for itself, or that name the server."""


def run_pipe(arguments: CommandLine) -> int:
    """Connect this client to the background server, and carry lines until the client ends. Return the exit code."""
    folder = _shared_folder(arguments)
    if folder is None:
        return USAGE
    command = _server_command(arguments, folder.data)

    def connect_again() -> Exchange:
        # The files of settings may have changed since the last server was started.
        session = getattr(arguments, "session", None) or os.environ.get(SESSION_VARIABLE)
        request = ClientRequest(session=session, settings=settings_of(arguments))
        return connect(folder, VERB, request.members(), command)

    try:
        Pipe(connect_again, folder.is_published).carry(connect_again())
    except Refused as error:
        return complain(str(error), USAGE)
    except (ServerUnavailable, NotResumed) as error:
        return complain(str(error))
    except OSError as error:
        return complain(_describe(error, folder))
    return OK


def show_status(arguments: CommandLine) -> int:
    """Print the background server, the other processes and the keeper of the data folder. Return the exit code."""
    # Imported here: the pipe does not need it.
    from .keeper import KeeperUnreachable, keeper_to_json, print_keeper, read_keeper
    from .processes import read_processes

    folder = _shared_folder(arguments)
    if folder is None:
        return USAGE
    try:
        status = _ask(folder, STATUS)
    except ServerUnavailable as error:
        return complain(str(error))
    keeper, problem = None, ""
    server_pid = None if status is None else status.get("pid")
    others = [each for each in read_processes(folder.data) if each.get("pid") != server_pid]
    try:
        keeper = read_keeper(folder.data)
    except KeeperUnreachable as error:
        problem = f"the keeper of {folder.data}: {error}"
    if arguments.json:
        server = {"running": status is not None, "data": str(folder.data), **(status or {})}
        held = None if keeper is None else keeper_to_json(keeper)
        say_json({**server, "processes": others, "keeper": held})
    else:
        if status is not None or not others:
            _print_server(folder, status)
        for each in others:
            name = each.get("address") or "pid " + str(each.get("pid"))
            say(f"running for {folder.data}: {name}")
        print_keeper(keeper)
    return complain(problem) if problem else OK


def _print_server(folder: SharedFolder, status: Mapping[str, Any] | None) -> None:
    if status is None:
        say(f"no server runs for {folder.data}")
        return
    rows = [
        ("pid", status.get("pid")),
        ("version", status.get("version")),
        ("started", ago(status.get("started_at"), time.time())),
        ("clients", status.get("clients")),
        ("live sessions", status.get("live_sessions")),
        ("data", folder.data),
        ("log", status.get("log")),
    ]
    say(pairs(rows))


def stop(arguments: CommandLine) -> int:
    """End the server of the data folder, which pauses its sessions first. Return the exit code.

    With `--all`, end the child processes that no node holds as well.
    """
    folder = _shared_folder(arguments)
    if folder is None:
        return USAGE
    code = _stop_server(folder)
    if code == OK and arguments.all:
        from .keeper import end_unattended

        return end_unattended(folder.data)
    return code


def _stop_server(folder: SharedFolder) -> int:
    try:
        status = _ask(folder, STOP)
    except ServerUnavailable as error:
        return complain(str(error))
    if status is None:
        say(f"no server runs for {folder.data}")
        return OK
    pid = status.get("pid")
    with folder.lock(SERVER_LOCK, within=END_SECONDS) as has_ended:
        if has_ended:
            say(f"stopped the server of {folder.data} (pid {pid})")
            return OK
    return complain(f"the server of {folder.data} (pid {pid}) is still ending; see {folder.log}")


def _ask(folder: SharedFolder, verb: str) -> Mapping[str, Any] | None:
    """Return the answer of the server, None if there is none.

    Raises:
        ServerUnavailable: it does not answer.
    """
    try:
        exchange = folder.send(verb, {"pid": os.getpid()})
    except Unreachable:
        return None
    except (Unanswered, Refused) as error:
        raise ServerUnavailable(f"the server of {folder.data}: {error}") from None
    exchange.connection.close()
    return exchange.content


def start_and_send(
    data: str, settings: Sequence[str], verb: str, members: Mapping[str, Any], following: bytes
) -> Exchange:
    """Send a request of a command to the server of a data folder, which is started with `settings` if there is none.

    Raises:
        Refused: the server refuses it.
        RuntimeError: no server can be reached or started. Its text is one line.
    """
    folder = SharedFolder(Path(data))
    command = _server_command(parse_command_line(["status", *settings]), folder.data)
    try:
        return connect(folder, verb, members, command, following=following)
    except ServerUnavailable as error:
        raise RuntimeError(str(error)) from None
    except OSError as error:
        raise RuntimeError(_describe(error, folder)) from None


def settings_of_words(words: Sequence[str]) -> dict[str, str]:
    """Return digests of the settings that some words of a command line and the environment ask of a server."""
    return settings_of(parse_command_line(["status", *words]))


def settings_of(arguments: CommandLine) -> dict[str, str]:
    """Return digests of the settings that a command line and the environment ask of a server."""
    return requested_settings(_flags(arguments), os.environ)


def _flags(arguments: CommandLine) -> dict[str, object]:
    """Return the values of the flags of the server that a command line gives."""
    flags = {setting.opts[0]: getattr(arguments, setting.name or "", None) for setting in SETTINGS}
    return {
        flag: value
        for flag, value in flags.items()
        if value is not None and flag not in _OF_CLIENTS
    }


def _server_command(arguments: CommandLine, data: Path) -> list[str]:
    flags = [f if value is True else f"{f}={value}" for f, value in _flags(arguments).items()]
    # -P: nothing is imported from the folder of the client.
    program = [sys.executable, "-P", "-m", "statehold.server"]
    return [*program, "serve", "--shared", f"--data={data}", *flags]


def _shared_folder(arguments: CommandLine) -> SharedFolder | None:
    """Return the folder of the server that a command line means. None after a mistake in the settings, which it explains."""
    data, config = getattr(arguments, "data", None), getattr(arguments, "config", None)
    try:
        path = find_data_folder(data=data, config=config, environ=os.environ)
        return SharedFolder(Path(path))
    except (OSError, ValueError):
        # Imported here: loading the settings takes long. It explains the mistake.
        from ..config.load import load_for
        from ..config.model import ConfigError

        try:
            return SharedFolder(load_for(arguments).data)
        except ConfigError as error:
            complain(str(error), USAGE)
            return None


def _describe(error: OSError, folder: SharedFolder) -> str:
    return f"{error.filename or folder.path}: {error.strerror}"


__all__ = [
    "run_pipe",
    "settings_of",
    "settings_of_words",
    "show_status",
    "start_and_send",
    "stop",
]
