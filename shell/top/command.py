"""`statehold top`: a screen at a terminal, one table elsewhere."""

from __future__ import annotations

import os
import sys
from typing import Final

from ...server.config.data_folder import find_data_folder
from ...server.exit_codes import FAILURE, USAGE
from ...server.printing import complain, is_terminal
from ..call.words import WrongUsage
from ..command_line import CommandLine
from .local import LocalSource
from .sample import Source

_SETTINGS: Final = ("config", "services", "data")
"""The settings that `statehold sessions open` gets."""


def run(arguments: CommandLine) -> int:
    """Run the command and return its exit code."""
    try:
        source = _source(arguments)
    except (WrongUsage, ValueError) as error:
        return complain(str(error), USAGE)
    first = source.read(None)
    if first.problem:
        return complain(first.problem, FAILURE)
    if not _is_terminal():
        from .table import print_table

        return print_table(source, first)
    from .program import Program

    return Program(source, _open_command(arguments)).run(first)


def _source(arguments: CommandLine) -> Source:
    if arguments.url is not None:
        from .remote import RemoteSource

        return RemoteSource(arguments.url, arguments.token_file)
    data = find_data_folder(
        data=getattr(arguments, "data", None),
        config=getattr(arguments, "config", None),
        environ=os.environ,
    )
    return LocalSource(os.fspath(data))


def _open_command(arguments: CommandLine) -> list[str] | None:
    """Return the command that opens a session, whose name follows; None if the sessions are on another machine."""
    if arguments.url is not None:
        return None
    given = [(name, getattr(arguments, name, None)) for name in _SETTINGS]
    settings = [f"--{name}={value}" for name, value in given if value is not None]
    # -P: nothing is imported from the working folder.
    return [sys.executable, "-P", "-m", "statehold", *settings, "sessions", "open"]


def _is_terminal() -> bool:
    return is_terminal(sys.stdin) and is_terminal(sys.stdout) and os.environ.get("TERM") != "dumb"
