"""The output of the commands: aligned tables with readable times, or one JSON document."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from ..exit_codes import FAILURE


def complain(message: str, code: int = FAILURE) -> int:
    """Print one line to stderr and return the exit code."""
    sys.stderr.write(f"statehold: {message}\n")
    return code


def say(text: str) -> None:
    """Print a line to stdout; characters that its encoding lacks are replaced."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding) + "\n")


def say_json(document: object) -> None:
    """Print one JSON document."""
    say(json.dumps(document, indent=2, ensure_ascii=True, default=str))


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows in aligned columns. Columns in which every row is empty are left out."""
    cells = [[plain(value) for value in row] for row in rows]
    columns = [n for n in range(len(head)) if any(row[n] for row in cells)]
    lines = [[head[n] for n in columns], *([row[n] for n in columns] for row in cells)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def pairs(values: Sequence[tuple[str, Any]]) -> str:
    """Return name and value, one per line, without the empty ones."""
    filled = [(name, plain(value)) for name, value in values if plain(value)]
    width = max((len(name) for name, _ in filled), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in filled)


def plain(value: Any) -> str:
    """Return a value as text without control characters for the terminal; None is empty."""
    if value is None:
        return ""
    return "".join(char if char.isprintable() else "?" for char in str(value))


def plain_lines(text: str) -> str:
    """Return a text of several lines with plain() applied to each."""
    return "\n".join(map(plain, text.splitlines()))


def span(seconds: float) -> str:
    """Return a duration with one unit: `3 min`."""
    seconds = max(0.0, seconds)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size * (2 if unit == "d" else 1):
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def ago(then: float | None, now: float) -> str:
    """Return the time since a moment as text, empty for never."""
    return "" if then is None else f"{span(now - then)} ago"


def until(then: float | None, now: float) -> str:
    """Return the time until a moment as text, empty for never."""
    if then is None:
        return ""
    return "now" if then <= now else f"in {span(then - now)}"
