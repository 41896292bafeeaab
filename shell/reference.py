"""The reference of all commands, written from their definitions, so that the documentation cannot lack one."""

from __future__ import annotations

from collections.abc import Sequence

from ..server.exit_codes import EXIT_CODES
from .commands import SETTINGS, build_commands
from .parser import Command, Group, ParserSetting, help_of, spell, walk


def markdown() -> str:
    """Return the reference as docs/reference/cli.md holds it."""
    parts = [_command(path, command) for path, command in walk(build_commands())]
    parts.append("### Settings, accepted before and after every command")
    parts.append(_table(["flag", "meaning"], [(f"`{spell(s)}`", help_of(s)) for s in SETTINGS]))
    parts.append("### Exit codes")
    codes = [(f"`{code}`", text) for code, text in EXIT_CODES.items()]
    parts.append(_table(["code", "meaning"], codes))
    return "\n\n".join(parts) + "\n"


def _command(path: str, command: Command | Group) -> str:
    lines = [f"### `{path}`", command.help or ""]
    own = [param for param in command.params if not isinstance(param, ParserSetting)]
    rows = [(f"`{spell(param).replace(', -', '`, `-')}`", help_of(param)) for param in own]
    if rows:
        lines.append(_table(["argument", "meaning"], rows))
    lines.append(f"```console\n{command.example}\n```")
    return "\n\n".join(lines)


def _table(head: Sequence[str], rows: Sequence[tuple[str, str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines)
