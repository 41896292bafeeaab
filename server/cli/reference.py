"""The reference of all commands, written from the parser, so that the documentation cannot lack one."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from .exit_codes import EXIT_CODES
from .parser import GLOBAL_FLAGS, Parser, build_parser, walk


def markdown() -> str:
    """Return the reference as docs/cli.md holds it."""
    parts = [_command(parser) for parser in walk(build_parser())]
    parts.append("### Settings, accepted before and after every command")
    parts.append(_table(["flag", "meaning"], _settings()))
    parts.append("### Exit codes")
    parts.append(_table(["code", "meaning"], ((f"`{c}`", text) for c, text in EXIT_CODES.items())))
    return "\n\n".join(parts) + "\n"


def _command(parser: Parser) -> str:
    lines = [f"### `{parser.prog}`", parser.description or ""]
    rows = [(f"`{_spell(action)}`", action.help or "") for action in parser.arguments()]
    if rows:
        lines.append(_table(["argument", "meaning"], rows))
    lines.append(f"```console\n{_example(parser)}\n```")
    return "\n\n".join(lines)


def _example(parser: Parser) -> str:
    epilog = (parser.epilog or "").splitlines()
    return epilog[epilog.index("example:") + 1].strip()


def _spell(action: argparse.Action) -> str:
    value = action.metavar or ("|".join(action.choices) if action.choices else "")
    name = ", ".join(action.option_strings)
    text = " ".join(part for part in (name, str(value)) if part)
    return f"{text} ..." if action.nargs in ("+", "*") else text


def _settings() -> Iterator[tuple[str, str]]:
    for names, details in GLOBAL_FLAGS:
        value = f" {details['metavar']}" if "metavar" in details else ""
        yield f"`{names[0]}{value}`", details["help"]


def _table(head: list[str], rows: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines)
