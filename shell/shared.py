"""`statehold --shared`, and `statehold status` and `statehold stop` for the servers of a data folder and the keeper."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..server.config.data_folder import find_data_folder
from ..server.exit_codes import FAILURE, OK, USAGE
from ..server.printing import complain
from ..server.shared.connection import ServerUnavailable, connect
from ..server.shared.folder import REPLY_SECONDS, SharedFolder
from ..server.shared.pipe import Pipe
from ..server.shared.request import STOP, VERB, ClientRequest, build_id
from ..server.shared.requested_settings import SESSION_VARIABLE, requested_settings
from ..server.sockets.processes import NODES, read_processes
from ..server.sockets.request import Exchange, Refused, Unreachable, send_request
from ..sessions.errors import InvalidArgument, ServiceUnavailable, SessionError
from ..sessions.times import ago
from .command_line import CommandLine
from .commands import SETTINGS
from .output import pairs, say, say_json

if TYPE_CHECKING:
    from ..server.config.model import Config

END_SECONDS = 60.0
"""Seconds that `statehold stop` waits for the end of the server."""
STOP_SECONDS = 20.0
"""Seconds until a server has to answer that it ends."""
_NOT_COMPARED = frozenset(
    {
        *("--data", "--session", "--shared"),
        *("--host", "--port", "--workers", "--token-file", "--session-header"),
    }
)
"""Flags that each client has for itself, that name the server, or that are for HTTP only."""


def run_pipe(arguments: CommandLine) -> int:
    """Connect this client to the server of the data folder, and carry lines until the client ends. Return the exit code.

    Without a server the client gets its errors as answers, also to `initialize`: many clients show nothing of stderr.
    """
    try:
        folder = _find_folder(arguments)
    except ValueError as error:
        return refuse_client(str(error))
    command = _server_command(arguments, folder.data)
    build, lines = build_id(), set[str]()

    def connect_again() -> Exchange:
        nonlocal build
        # The files of settings may have changed since the last server was started.
        session = getattr(arguments, "session", None) or os.environ.get(SESSION_VARIABLE)
        request = ClientRequest(build, session=session, settings=settings_of(arguments))
        try:
            exchange = connect(folder, VERB, request.members(), command)
        except (Refused, ServerUnavailable, OSError) as reason:
            error = _error_of(reason, folder)
            _complain_once(f"{error.message} {error.recovery}", lines)
            raise error from None
        build = ""
        _complain_once(str(exchange.content.get("note") or ""), lines)
        return exchange

    error = Pipe(connect_again, folder.is_expected).carry()
    return OK if error is None else USAGE if isinstance(error, InvalidArgument) else FAILURE


def refuse_client(problem: str) -> int:
    """Answer each request of a client over stdio with a mistake in the settings, until it leaves. Return the exit code."""
    complain(problem, USAGE)

    def refuse() -> Exchange:
        raise InvalidArgument(f"{problem}.", recovery="Correct it, then start this client again.")

    Pipe(refuse, lambda: False).carry()
    return USAGE


def _complain_once(line: str, lines: set[str]) -> None:
    if line and line not in lines:
        lines.add(line)
        complain(line)


def _error_of(reason: Refused | ServerUnavailable | OSError, folder: SharedFolder) -> SessionError:
    """Return the answer to the requests of a client that no server takes."""
    if isinstance(reason, Refused):
        kind = InvalidArgument if reason.code == InvalidArgument.code else ServiceUnavailable
        return kind(reason.message, recovery=reason.recovery)
    text = _describe(reason, folder) if isinstance(reason, OSError) else str(reason)
    return ServiceUnavailable(
        f"{text}.", recovery="The request was not sent. Correct this, then try it again."
    )


def show_status(arguments: CommandLine) -> int:
    """Print the server, the other processes and the keeper of the data folder. Return the exit code."""
    # Imported here: the pipe does not need it.
    from .keeper import KeeperUnreachable, keeper_to_json, print_keeper, read_keeper

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
        held = None if keeper is None else keeper_to_json(keeper)
        say_json({**server, "processes": others, "keeper": held})
    else:
        if status is not None or not others:
            _print_server(folder, status)
        for each in others:
            say(f"running for {folder.data}: {_name(each)}")
        print_keeper(keeper)
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
        from .keeper import end_unattended

        return end_unattended(folder.data)
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


def start_and_send(
    data: str | Path,
    arguments: CommandLine,
    verb: str,
    members: Mapping[str, Any],
    following: bytes = b"",
    *,
    seconds: float = REPLY_SECONDS,
) -> Exchange:
    """Send a request of a command to the server of a data folder, which is started with its settings if there is none.

    The server has to answer within `seconds`.

    Raises:
        Refused: the server refuses it.
        RuntimeError: no server can be reached or started. Its text is one line.
    """
    folder = SharedFolder(Path(data))
    command = _server_command(arguments, folder.data)
    try:
        return connect(folder, verb, members, command, following=following, seconds=seconds)
    except ServerUnavailable as error:
        raise RuntimeError(str(error)) from None
    except OSError as error:
        raise RuntimeError(_describe(error, folder)) from None


def settings_of(arguments: CommandLine) -> dict[str, str]:
    """Return digests of the settings that a command line and the environment ask of a server."""
    return requested_settings(_flags(arguments), os.environ)


def _flags(arguments: CommandLine) -> dict[str, object]:
    """Return the values of the flags of the server that a command line gives."""
    flags = {setting.opts[0]: getattr(arguments, setting.name or "", None) for setting in SETTINGS}
    return {
        flag: value
        for flag, value in flags.items()
        if value is not None and flag not in _NOT_COMPARED
    }


def _server_command(arguments: CommandLine, data: Path) -> list[str]:
    flags = [f if value is True else f"{f}={value}" for f, value in _flags(arguments).items()]
    # -P: nothing is imported from the folder of the client.
    program = [sys.executable, "-P", "-m", "statehold"]
    return [*program, "serve", "--shared", f"--data={data}", *flags]


def _shared_folder(arguments: CommandLine) -> SharedFolder | None:
    """Return the folder that a command line means. None after a mistake in the settings, which it explains."""
    try:
        return _find_folder(arguments)
    except ValueError as error:
        complain(str(error), USAGE)
        return None


def _find_folder(arguments: CommandLine) -> SharedFolder:
    """Return the folder that a command line means. Raises ValueError after a mistake in the settings."""
    data, config = getattr(arguments, "data", None), getattr(arguments, "config", None)
    try:
        return SharedFolder(Path(find_data_folder(data=data, config=config, environ=os.environ)))
    except (OSError, ValueError):
        # Imported here: loading the settings takes long. It explains the mistake.
        from ..access.config.types import ConfigError
        from ..server.config.load import load_for

        try:
            return SharedFolder(load_for(arguments).data)
        except ConfigError as error:
            raise ValueError(str(error)) from None


def _describe(error: OSError, folder: SharedFolder) -> str:
    return f"{error.filename or folder.path}: {error.strerror}"
