"""Foreign texts inside lines and beside sentences of ours, and counts in texts. Imports little, for quick commands."""

from __future__ import annotations

import re
import unicodedata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final


def plural(count: int, noun: str, several: str = "") -> str:
    """Return a count with its noun; `several` is the noun's plural if that does not end in s."""
    return f"{count} {noun if count == 1 else several or noun + 's'}"


_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters, line separators, marks that reorder text, invisible letters, and half surrogate pairs."""

_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
"""Controls, overrides of the direction and invisible tags: a person sees another text than a model reads."""

_BLANKS: Final = "\n\t\u00a0\u202f\u3000"

_FOLDERS: Final = re.compile(r"(?<![\w:/.~])~?/(?:[^/\s:;,'\"]+/)*(?=[^/\s:;,'\"])")
"""Matches the folders of an absolute path. The path of a URL has its host before it."""

NAME_CHARACTERS: Final = 30
_QUOTES: Final = (
    "\"'`\u00b4\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2039\u203a\u00ab\u00bb"
    "\u300c\u300d\u300e\u300f\u301d\u301e\u301f\uff02\uff07\uff62\uff63"
)
_INVISIBLE: Final = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
"""Characters that count as letters or marks and show nothing, beside those that are not printable."""
_OMITTED: Final = re.compile(f"[{_QUOTES}{_INVISIBLE}\ufe00-\ufe0f\U000e0100-\U000e01ef]")
MAX_MARKS: Final = 2
"""Combining marks on one letter. More of them cover the lines around it."""


def escape_controls(text: str) -> str:
    r"""Return a text with its control characters written as `\n`, `\x1b` or `\u2028`."""
    return _UNSAFE.sub(_escape, text)


def one_line(text: str) -> str:
    """Return a text as one line: a blank for each line break, other control characters written out."""
    return escape_controls(" ".join(text.split())) if not text.isprintable() else text


def cut_line(text: str, most: int) -> str:
    """Return a text as one line, cut after `most` characters. Its control characters stay."""
    line = " ".join(text[: most + 1].split())
    return f"{line[:most]}..." if len(text) > most else line


def without_controls(text: str, kept: str = _BLANKS) -> str:
    """Return a text whose control characters are written out, but for those in `kept`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in kept else _escaped(char) for char in text)


def has_hidden(text: str) -> bool:
    """Whether without_hidden() would remove something."""
    return _HIDDEN.search(text) is not None


def without_hidden(text: str) -> str:
    """Return a text for a model, without controls, overrides of the direction and invisible tags."""
    return _HIDDEN.sub("", text)


def escape_hidden(text: str) -> str:
    """Return a text for a person, in which what without_hidden() removes is written out."""
    return _HIDDEN.sub(_escape, text)


def plain_name(text: str, most: int = NAME_CHARACTERS) -> str:
    """Return a name that a stranger has chosen for people to read, in at most `most` characters.

    It has no quotes, with which it could leave its place in a sentence, nothing invisible, and no marks that reorder text.
    """
    characters: list[str] = []
    marks = 0
    for character in _OMITTED.sub("", " ".join(unicodedata.normalize("NFC", text).split())):
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        if character.isprintable() and marks <= MAX_MARKS:
            characters.append(character)
    name = " ".join("".join(characters).split())
    return name if len(name) <= most else f"{name[: most - 1].rstrip()}…"


def without_folders(text: str) -> str:
    """Return a text in which each absolute path has become its last part: callers need not know the folders of a machine.

    Of a folder whose name has a blank, the part after the blank stays. Where a path is at hand, use its name instead.
    """
    return _FOLDERS.sub("", text)


def _escape(match: re.Match[str]) -> str:
    return _escaped(match[0])


def _escaped(character: str) -> str:
    return repr(character)[1:-1]
