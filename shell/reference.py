"""The list of all commands, written from their definitions, so that the documentation cannot lack one."""

from __future__ import annotations

from collections.abc import Sequence

from ..server.exit_codes import EXIT_CODES
from .commands import build_commands
from .parser import Group, walk


def markdown() -> str:
    """Return the tables of commands and exit codes as docs/reference/cli.md holds them."""
    commands = [
        (f"`{path}`", command.help or "")
        for path, command in walk(build_commands())
        if not (isinstance(command, Group) and not command.has_default)
    ]
    codes = [(f"`{code}`", text) for code, text in EXIT_CODES.items()]
    tables = [
        _table(["command", "effect"], commands),
        "### Exit codes",
        _table(["code", "meaning"], codes),
    ]
    return "\n\n".join(tables) + "\n"


def _table(head: Sequence[str], rows: Sequence[tuple[str, str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines)
