"""Keeps our notes distinguishable: a text of a server that begins like one gets the name of its author.

The mark `statehold/notice` in the `_meta` of a result says that the note in it is ours. Clients that show texts only see the
note as the beginning of the first text, so a text of others that begins with the words of a note, however they are spaced,
marked up and spelled, is shown with its author. Words further on in a text are not searched.
"""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections.abc import Callable
from typing import Any, Final, cast

NOTE: Final = "Note from Statehold"
"""The beginning of every note of ours."""
NOTICE_META: Final = "statehold/notice"
"""The key in the `_meta` of a result that repeats the block that is our note, so that a client can tell it from the tool's
own text.
"""
NOTICE_MEMBER: Final = "statehold_notice"
"""The member of structured content that repeats our note, for clients that show structured content only."""
LAST_WORDS: Final = "; it last said: "
"""Separates our reason for a loss from the last words of the server, which a note of ours does not repeat."""

BEGINNING: Final = 2000
"""Characters of a text, after its first signs, in which its first words are looked for."""
_SIGNS: Final = re.compile(r"[\W_]+")
_LOOK_ALIKES: Final = str.maketrans(
    "\u0430\u03b14\u0435\u03b53\u0433\u04555\u0442\u03c47\u043d\u04bb\u043e\u03bf0\u043c\u03bc\u043f\u03b7\u03bd\u0131\u0456i\u04cf1\u0441\u0440",
    "aaaeeerssttthhooommnnnlllllcp",
)
"""The letters and digits that look most like a letter of a note, and that Unicode does not decompose to it."""


def notice_member(notice: str, *, is_first: bool = False) -> str:
    """Return our note as a member of a JSON text, behind the other members of its object unless it is the first."""
    return f'{"" if is_first else ", "}"{NOTICE_MEMBER}": {json.dumps(notice)}'


def attribute_text(text: str, author: str) -> str:
    """Return a text, behind `[author] ` if it begins like a note."""
    return f"[{author}] {text}" if _begins(text, _NOTE_WORDS) else text


def attribute_value(value: Any, author: str) -> Any:
    """Return a JSON value whose own texts are attributed, and no member of which has the name of our notice."""
    if isinstance(value, str):
        return attribute_text(value, author)
    if isinstance(value, list):
        return [
            attribute_text(member, author) if isinstance(member, str) else member
            for member in cast("list[Any]", value)
        ]
    if not isinstance(value, dict):
        return value
    members: dict[str, Any] = {}
    for name, member in cast("dict[str, Any]", value).items():
        if _begins(name, _NOTICE_WORDS):
            name = f"[{author}] {name}"
        members[name] = attribute_text(member, author) if isinstance(member, str) else member
    return members


def similar(*headings: str) -> Callable[[str], bool]:
    """Return a function that finds whether a text begins with one of these headings, however it is spelled."""
    words = tuple(map(_fold, headings))
    return lambda text: _fold(text).startswith(words)


def _begins(text: str, words: str) -> bool:
    """Whether a text begins with folded words. Most texts are not read further than their first letter."""
    if text[:1] in ORDINARY_BEGINNINGS:
        return False
    signs = _SIGNS.match(text)
    first = "" if signs is None else text[signs.end() : signs.end() + 1]
    return (not first or first not in ORDINARY_BEGINNINGS) and _fold(text).startswith(words)


def _fold(text: str) -> str:
    """Return the letters and digits at the beginning of a text, as they look in lower case."""
    signs = _SIGNS.match(text)
    start = 0 if signs is None else signs.end()
    text = unicodedata.normalize("NFKD", text[start : start + BEGINNING]).casefold()
    return _SIGNS.sub("", text.translate(_LOOK_ALIKES))


_NOTE_WORDS: Final = _fold(NOTE)
_NOTICE_WORDS: Final = _fold(NOTICE_MEMBER)
ORDINARY_BEGINNINGS: Final = frozenset(
    character
    for character in ("", *string.ascii_letters, *string.digits)
    if _fold(character) not in (_NOTE_WORDS[0], _NOTICE_WORDS[0])
)
"""The characters with which most texts and names begin, and no note: such texts are not read further."""
