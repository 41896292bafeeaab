"""Foreign texts inside lines of ours: they cannot end a line or control a terminal."""

from __future__ import annotations

import re
from typing import Final

_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters, line separators, marks that reorder text, and half surrogate pairs."""

_FOLDERS: Final = re.compile(r"(?<![\w:/.~])~?/(?:[^/\s:;,'\"]+/)*(?=[^/\s:;,'\"])")
"""Matches the folders of an absolute path. The path of a URL has its host before it."""


def escape_controls(text: str) -> str:
    r"""Return a text with its control characters written as `\n`, `\x1b` or `\u2028`."""
    return _UNSAFE.sub(_escape, text)


def one_line(text: str) -> str:
    """Return a text as one line: a blank for each line break, other control characters written out."""
    return escape_controls(" ".join(text.split())) if not text.isprintable() else text


def without_folders(text: str) -> str:
    """Return a text in which each absolute path has become its last part: callers need not know the folders of a machine.

    Of a folder whose name has a blank, the part after the blank stays. Where a path is at hand, use its name instead.
    """
    return _FOLDERS.sub("", text)


def _escape(match: re.Match[str]) -> str:
    return repr(match[0])[1:-1] if match[0] != "\x7f" else r"\x7f"


__all__ = ["escape_controls", "one_line", "without_folders"]
