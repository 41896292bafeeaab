"""Secrets of one call, to be removed from values that repeat them: as they are, as code, as JSON and in addresses.

The time is bounded: only so many secrets are searched for. Beyond it, every text counts as a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, cast

from .secret_names import REDACTED

MAX_LEVELS: Final = 50
"""Levels of a value that are read."""
SLACK: Final = 256
"""Characters of a secret that are searched for. With a longer one, all text after its beginning is removed too."""
BEGINNING: Final = 32
"""The same in addresses. With a longer one, the rest of the address is removed too."""
LEAST: Final = 4
"""Characters of the shortest secret that is searched for elsewhere; a shorter one occurs in ordinary words."""
MAX_TEXTS: Final = 500
"""Secrets that are searched for in one entry."""
MAX_CHARACTERS: Final = 8192
"""Their length in total, each counted up to SLACK characters."""
MAX_MEMBERS: Final = 50_000
"""Members of a value that are searched for secrets."""

_ENCODED: Final = re.compile("((?:%[0-9A-Fa-f]{2})+)")

Span = tuple[int, int]


class SecretTexts:
    """Removes secrets from texts. `complete` is False if there are too many: then nothing of any text is kept."""

    def __init__(self, texts: Iterable[str] | None) -> None:
        """None stands for secrets that could not be collected within the bound."""
        self.texts: frozenset[str] = frozenset()
        self.complete = texts is not None
        found: set[str] = set()
        length = 0
        for text in texts or ():
            if not text or text in found:
                continue
            found.add(text)
            length += min(len(text), SLACK)
            if len(found) > MAX_TEXTS or length > MAX_CHARACTERS:
                self.complete = False
                break
        if not self.complete:
            return
        self.texts = frozenset(found)
        long_enough = [text for text in found if len(text) >= LEAST]
        self._forms = {form[:SLACK] for text in long_enough for form in code_forms(text)}
        self._address_forms = {form for text in long_enough for form in _address_forms(text)}

    def __bool__(self) -> bool:
        return bool(self.texts) or not self.complete

    def joined(self, texts: Iterable[str] | None) -> SecretTexts:
        """Return these secrets with others."""
        if not self.complete or texts is None:
            return SecretTexts(None)
        return SecretTexts(chain(self.texts, texts))

    def hide(self, text: str, *, was_cut: bool = False) -> str:
        """Return a text without them. If the text was `was_cut`, also remove the beginning of one at its end.

        A text that equals one of them is replaced however short it is.
        """
        if not self.complete or text in self.texts:
            return REDACTED
        if not self.texts:
            return text
        spans = sorted(chain(self._spans(text), self._address_spans(text)))
        if spans:
            text = _replace(text, spans)
        if not was_cut:
            return text
        ends = (_matching_end_length(text, form) for form in self._forms)
        return text[: len(text) - max(ends, default=0)]

    def _spans(self, text: str) -> Iterator[Span]:
        for form in self._forms:
            for start in _positions(text, form):
                if len(form) == SLACK:
                    yield start, len(text)
                    break
                yield start, start + len(form)

    def _address_spans(self, text: str) -> Iterator[Span]:
        if "%" not in text and "+" not in text:
            return
        decoded, positions = _decode(text)
        for form in self._address_forms:
            for start in _positions(decoded, form):
                end = positions[start + len(form)]
                if len(form) == BEGINNING:
                    end = next((i for i in range(end, len(text)) if text[i].isspace()), len(text))
                yield positions[start], end


def hide_forms(text: str, forms: Iterable[str], mask: str = REDACTED) -> str:
    """Return a text with `mask` in place of every form in it; forms that overlap are replaced as one."""
    found = [form for form in forms if form in text]
    if not found:
        return text
    spans = ((start, start + len(form)) for form in found for start in _positions(text, form))
    return _replace(text, sorted(spans), mask)


def code_forms(text: str) -> Iterator[str]:
    """Yield a text as it is, as in Python's code, and as in JSON."""
    yield text
    yield repr(text)[1:-1]
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]


def texts_under(
    names: Collection[str], value: object, *, levels: int = MAX_LEVELS
) -> list[str] | None:
    """Return the texts under these names in a JSON value, at any level; None if it has too many members to search."""
    texts: list[str] = []
    room = MAX_MEMBERS

    def walk(item: object, levels: int) -> None:
        nonlocal room
        room -= 1
        if levels == 0 or room < 0:
            return
        if isinstance(item, list):
            for member in cast("list[object]", item):
                walk(member, levels - 1)
                if room < 0:
                    return
        elif isinstance(item, Mapping):
            for key, member in cast("Mapping[object, object]", item).items():
                if isinstance(member, str) and key in names:
                    texts.append(member)
                walk(member, levels - 1)
                if room < 0:
                    return

    if names:
        walk(value, levels)
    return texts if room >= 0 else None


def _replace(text: str, spans: list[Span], mask: str = REDACTED) -> str:
    """Replace sorted spans, those that overlap as one."""
    parts: list[str] = []
    kept, end = 0, -1
    for start, stop in spans:
        if start < end:
            end = max(end, stop)
            kept = end
            continue
        parts += text[kept:start], mask
        kept = end = stop
    return "".join((*parts, text[kept:]))


def _positions(text: str, form: str) -> Iterator[int]:
    start = text.find(form)
    while start >= 0:
        yield start
        start = text.find(form, start + len(form))


def _address_forms(text: str) -> Iterator[str]:
    """Yield a text as it is in a decoded address. Each part of an address percent-encodes other characters."""
    yield text[:BEGINNING].replace("+", " ")
    yield _decode(text)[0][:BEGINNING]


def _decode(text: str) -> tuple[str, list[int]]:
    """Return a text without percent-encoding, and the position in the text of each of its characters."""
    parts: list[str] = []
    positions: list[int] = []
    place = 0
    for index, part in enumerate(_ENCODED.split(text)):
        if index % 2:
            for character in bytes.fromhex(part.replace("%", "")).decode(errors="surrogateescape"):
                parts.append(character)
                positions.append(place)
                place += 3 * len(character.encode(errors="surrogateescape"))
        else:
            parts.append(part)
            positions.extend(range(place, place + len(part)))
            place += len(part)
    return "".join(parts).replace("+", " "), [*positions, place]


def _matching_end_length(text: str, form: str) -> int:
    """Return how many characters at the end of a text are the beginning of `form`."""
    longest = min(len(form) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if text.endswith(form[:n])), 0)
