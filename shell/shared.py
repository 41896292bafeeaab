"""`statehold --shared`, and the server that a command starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..server.config.data_folder import find_data_folder
from ..server.exit_codes import FAILURE, OK, USAGE
from ..server.printing import complain
from ..server.shared.connection import ServerUnavailable, connect
from ..server.shared.folder import REPLY_SECONDS, SharedFolder
from ..server.shared.pipe import Pipe
from ..server.shared.request import VERB, ClientRequest, build_id
from ..server.shared.requested_settings import SESSION_VARIABLE, requested_settings
from ..server.sockets.request import Exchange, Refused
from ..sessions.errors import InvalidArgument, ServiceUnavailable, SessionError
from .command_line import SETTINGS, CommandLine, attribute_of

if TYPE_CHECKING:
    pass

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
        folder = find_folder(arguments)
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
    flags = {flag: getattr(arguments, attribute_of(flag), None) for flag in SETTINGS}
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


def find_folder(arguments: CommandLine) -> SharedFolder:
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
