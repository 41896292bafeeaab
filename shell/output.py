"""The output of commands: tables and values for people, documents for programs, and their errors."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from ..server.exit_codes import CODES, FAILURE, USAGE
from ..server.printing import flush, is_terminal, write, write_error, write_json_text
from ..sessions.errors import SessionError
from ..sessions.one_line import without_controls
from ..sessions.wording import SHELL, next_step

if TYPE_CHECKING:
    from ..sessions.records import SessionRecord

_COLOURS = {"green": "32", "red": "31", "yellow": "33", "cyan": "36", "dim": "2"}


def say(text: str) -> None:
    """Print a line to stdout."""
    write(f"{text}\n", is_styled=True)


def is_uv_run() -> bool:
    """Whether `uv run` started this process, as in a clone."""
    return "UV_RUN_RECURSION_DEPTH" in os.environ


def as_typed(command: str) -> str:
    """Return a command of ours as its user types it."""
    return f"uv run {command}" if is_uv_run() else command


def confirm(question: str) -> bool:
    """Ask a question at the terminal, on stderr, and return whether the answer is yes."""
    flush()
    write_error(f"{question} [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def say_json(document: object) -> None:
    """Print one JSON document."""
    write_json_text(json.dumps(document, indent=2, ensure_ascii=True, default=str))


CUT_RANK = 5
"""The rank from which other columns are cut before a column is left out."""


class Column:
    """A column of a table. Where the terminal is narrow, columns of a low rank are left out, and wide ones are cut."""

    def __init__(
        self,
        head: str,
        values: Sequence[Any],
        *,
        rank: int,
        least: int | None = None,
        colours: Sequence[str] = (),
    ) -> None:
        """`least`: the width down to which it may be cut; None for one that is whole or left out."""
        self.head = head
        self.cells = [plain(value) for value in values]
        self.rank = rank
        self.least = least
        self.colours = colours
        self.width = max([len(head), *map(len, self.cells)])

    def line(self, row: int) -> str:
        """Return a cell in the width of the column, with its colour."""
        cell = self.cells[row]
        if len(cell) > self.width:
            cell = f"{cell[: self.width - 1]}\u2026"
        text = cell.ljust(self.width)
        return colour(text, self.colours[row]) if self.colours else text


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows in aligned columns. Columns in which every row is empty are left out."""
    columns = [Column(text, [row[n] for row in rows], rank=0) for n, text in enumerate(head)]
    return _aligned([column for column in columns if any(column.cells)])


def fitted_table(columns: Sequence[Column]) -> str:
    """Return aligned columns in the width of the terminal. Columns in which every cell is empty are left out."""
    shown = [column for column in columns if any(column.cells)]
    _fit(shown, terminal_width())
    return _aligned(shown)


def _aligned(shown: Sequence[Column]) -> str:
    rows = range(len(shown[0].cells)) if shown else range(0)
    head = "  ".join(column.head.ljust(column.width) for column in shown).rstrip()
    return "\n".join(
        [head, *("  ".join(column.line(row) for column in shown).rstrip() for row in rows)]
    )


def _fit(columns: list[Column], width: int) -> None:
    """Cut columns, and leave out those of a low rank, until they fit into a width."""

    def excess() -> int:
        return sum(column.width + 2 for column in columns) - 2 - width

    while (too_much := excess()) > 0 and columns:
        if (least := min(columns, key=lambda each: each.rank)).rank < CUT_RANK:
            columns.remove(least)
            continue
        cuttable = [each for each in columns if each.least is not None and each.width > each.least]
        room = sum(each.width - (each.least or 0) for each in cuttable)
        if room < too_much and len(columns) > 1:
            columns.remove(min(columns, key=lambda each: each.rank))
            continue
        if not cuttable:
            return
        widest = max(cuttable, key=lambda each: each.width)
        widest.width -= 1


def terminal_width() -> int:
    """Return the columns of the terminal; very many if the output goes elsewhere."""
    if not is_terminal(sys.stdout):
        return 1 << 20
    return shutil.get_terminal_size().columns


def colour(text: str, name: str) -> str:
    """Return a text in a colour where stdout is a terminal that shows colours (https://no-color.org)."""
    code = _COLOURS.get(name)
    if (
        code is None
        or not is_terminal(sys.stdout)
        or "NO_COLOR" in os.environ
        or os.environ.get("TERM") == "dumb"
    ):
        return text
    return f"\x1b[{code}m{text}\x1b[0m"


def pairs(values: Sequence[tuple[str, Any]]) -> str:
    """Return name and value, one per line, without the empty ones."""
    filled = [(name, plain(value)) for name, value in values if plain(value)]
    width = max((len(name) for name, _ in filled), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in filled)


def split_owner(owner: str) -> tuple[str, str]:
    """Return the subject and the issuer of an owner in a document of a session; see Principal.key.

    Not by Principal: its module takes longer to import than such a command runs.
    """
    sizes, colon, rest = owner.partition(":")
    length, dot, _ = sizes.partition(".")
    if not colon or not dot or not length.isdecimal():
        return owner.removeprefix(":"), ""
    return rest[int(length) :], rest[: int(length)]


def plain(value: Any) -> str:
    """Return a value as text without control characters for the terminal; None is empty."""
    return "" if value is None else without_controls(str(value), "")


def plain_lines(text: str) -> str:
    """Return a text of several lines with plain() applied to each."""
    return "\n".join(map(plain, text.splitlines()))


class CommandError(Exception):
    """Raised when a command cannot read or change a session. Its text says what to do.

    The exit code is that of its code, as for `statehold call`; `exit_code` is for codes that are not those of a session.
    """

    def __init__(self, code: str, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.exit_code = CODES.get(code, FAILURE) if exit_code is None else exit_code

    @classmethod
    def usage(cls, message: str) -> Self:
        """Return the error of a command line that cannot be carried out."""
        return cls("usage", message, USAGE)

    @classmethod
    def session_unknown(cls, ref: str, data: object, message: str = "") -> Self:
        """Return the error of a session that does not exist. `message` says more, such as a name that is near."""
        text = message or f"There is no session {ref}."
        message = f"{text[0].lower()}{text[1:]} The data folder is {data}; see: statehold sessions list --all"
        return cls("session_not_found", message)

    @classmethod
    def session_closed(cls, record: SessionRecord) -> Self:
        """Return the error of a session that is closed."""
        return cls(
            "session_closed",
            f"{record.id} is closed; make a new session: statehold call NAME TOOL",
        )

    @classmethod
    def of(cls, record: SessionRecord, code: str, message: str, recovery: str) -> Self:
        """Return the error with which a tool refused to act on a session."""
        step = next_step(recovery, SHELL, record.name or record.id)
        text = f"{record.id}: {message} {step}".strip()
        return cls(code, text)

    @classmethod
    def of_session(cls, record: SessionRecord, error: SessionError) -> Self:
        """Return the error of a session as that of a command."""
        return cls.of(record, error.code, error.message, error.recovery)
