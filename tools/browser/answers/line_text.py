"""The text of a line of a snapshot as a person reads it, for the assertions of tests."""

from __future__ import annotations

import json
import re
from typing import Final

_LINE: Final = re.compile(
    r"""(?:- )?(?P<quote>')?(?P<role>[\w-]+)(?: "(?P<name>(?:[^"\\]|\\.)*)")?(?P<states>(?: \[[^\]]*\])*)(?(quote)')"""
    r"(?::(?: (?P<value>.*))?)?"
)
_STATES: Final = frozenset({"checked", "disabled", "expanded", "invalid", "pressed", "selected"})
"""The marks of a line that tell a state of the element. The others are its ref, its level and where the pointer is."""


def line_text(line: str) -> str:
    """Return a line of a snapshot without its ref, its place and its quotes: `textbox Email: ada`, `checkbox Gift, checked`.

    A line of another form comes back without the blanks around it and the sign before it.
    """
    line = line.strip()
    match = _LINE.fullmatch(line)
    if match is None:
        return line.removeprefix("- ")
    name, value = match["name"] or "", match["value"] or ""
    if match["quote"]:
        name = name.replace("''", "'")
    states = [state for state in re.findall(r"\[([^\]]*)\]", match["states"]) if _is_state(state)]
    head = " ".join(filter(None, (match["role"], _unquote(f'"{name}"'))))
    head = ", ".join([head, *states])
    return f"{head}: {_unquote(value)}" if value else head


def _is_state(mark: str) -> bool:
    return mark.partition("=")[0] in _STATES


def _unquote(text: str) -> str:
    """Return a text of YAML without its quotes."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            return str(json.loads(text, strict=False))
        except ValueError:
            return text[1:-1]
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text
