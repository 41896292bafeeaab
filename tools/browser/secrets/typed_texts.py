"""Texts that a person typed into the pages of a session, which nobody else is to read.

The texts themselves are in the memory of the process only. What outlives it is a digest of each, with a key of the session:
it finds the text, and does not tell it. Digests find less: a text of letters only at the beginning of a word.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from html import escape
from typing import Any, Final
from urllib.parse import quote, quote_plus

from ....sessions.json_codec import JSON
from ....sessions.owned_map import BoundedMap
from .spellings import MASK, Spellings, loose_expression

SHORTEST: Final = 4
"""The shortest text that is masked everywhere."""
MAX_CHARACTERS: Final = 500
"""Characters of a text; a longer one is remembered in pieces."""
MAX_PIECES: Final = 60
"""Pieces that are remembered of one text."""
MAX_TEXTS: Final = 200
"""Texts that are remembered. Beyond them, the one typed longest ago is forgotten."""
PART: Final = 1 << 16
"""Characters that are searched for a digest at once; other threads run between two parts."""

_WORDS: Final = """alert article banner button caption cell checkbox code column combobox complementary contentinfo
    definition dialog document figure form generic grid gridcell group heading iframe image link list listbox listitem main
    menu menubar menuitem meter navigation note option paragraph progressbar radio radiogroup region row rowgroup rowheader
    search searchbox separator slider spinbutton status strong switch table tablist tabpanel term text textbox time timer
    toolbar tooltip tree treeitem active checked disabled expanded level pressed selected cursor pointer http https true
    false null"""
PUBLIC: Final = frozenset(_WORDS.split())
"""Words of every answer about a page. Masks in their place would take the page from the agent and tell the word."""

_SAVED: Final = 60
"""Digests that are kept for a later process, the newest."""
_CLASSES: Final = {"l": "[A-Za-z]", "d": "[0-9]", "o": "[^A-Za-z0-9]"}
_RUN: Final = re.compile(r"(.)\1*")


class TypedTexts:
    """The texts of one session."""

    def __init__(self) -> None:
        self._spellings = BoundedMap[str, Spellings](MAX_TEXTS)
        self._longest_first: list[str] = []
        self._key = secrets.token_bytes(16)
        self._digests: dict[str, set[str]] = {}
        """The digests of texts of earlier processes, by the classes of their characters."""
        self._saved: list[tuple[str, str]] = []

    def __bool__(self) -> bool:
        return bool(self._spellings or self._digests)

    @property
    def is_slow(self) -> bool:
        """Whether mask() takes long for a long text."""
        return bool(self._digests)

    def add(self, text: str) -> None:
        """Remember a text of at least SHORTEST characters."""
        lines = [line.strip() for line in text.splitlines()]
        pieces = [
            line[at : at + MAX_CHARACTERS]
            for line in lines
            for at in range(0, len(line), MAX_CHARACTERS)
        ]
        for piece in pieces[:MAX_PIECES]:
            if len(piece) < SHORTEST or piece in self._spellings or piece.lower() in PUBLIC:
                continue
            self._spellings[piece] = Spellings(
                {piece: MASK}, are_typed=True, is_word=_is_short_word(piece)
            )
            self._record_digests(piece)
        # A text may be a part of another one.
        self._longest_first = sorted(self._spellings, key=len, reverse=True)

    def extend(self, other: TypedTexts) -> None:
        """Remember the texts of another connection of the session too. Its digests are those of the snapshot."""
        for text in other._spellings:
            self.add(text)

    def mask(self, text: str) -> str:
        """Return a text without them, in either case, also as URLs, JSON and HTML spell them."""
        lower = text.lower() if self._longest_first else ""
        for typed in self._longest_first:
            if self._spellings[typed].may_be_in(lower):
                text = self._spellings[typed].replace(text)
        return self._mask_by_digest(text) if self._digests else text

    def mask_name(self, name: str) -> str:
        """Return the name of a file without them, also where their signs became others."""
        for typed in self._longest_first:
            if sum(map(str.isalnum, typed)) >= SHORTEST:
                name = re.sub(loose_expression(typed), MASK, name, flags=re.IGNORECASE)
        return name

    def mask_bytes(self, data: bytes) -> bytes:
        """Return the bytes of a text without them."""
        lower = data.lower() if self._longest_first else b""
        for typed in self._longest_first:
            if self._spellings[typed].may_be_in_bytes(lower):
                data = self._spellings[typed].replace_bytes(data)
        if self._digests:
            data = self._mask_by_digest(data.decode(errors="surrogateescape")).encode(
                errors="surrogateescape"
            )
        return data

    def to_json(self) -> JSON:
        """Return the digests, which keep no text."""
        return (
            {"key": self._key.hex(), "digests": [list(each) for each in self._saved]}
            if self
            else {}
        )

    def restore(self, saved: Any) -> None:
        """Take over what to_json() returned in an earlier process. Anything else is ignored."""
        try:
            key, digests = (
                bytes.fromhex(saved["key"]),
                [(str(a), str(b)) for a, b in saved["digests"]],
            )
        except (KeyError, TypeError, ValueError):
            return
        self._key, self._saved = key, digests[-_SAVED:]
        for classes, digest in self._saved:
            self._digests.setdefault(classes, set()).add(digest)

    def _record_digests(self, text: str) -> None:
        for form in _forms(text):
            entry = _classes_of(form), self._digest(form)
            if entry not in self._saved:
                self._saved.append(entry)
        del self._saved[:-_SAVED]

    def _digest(self, text: str) -> str:
        return blake2b(
            text.lower().encode(errors="surrogatepass"), key=self._key, digest_size=16
        ).hexdigest()

    def _mask_by_digest(self, text: str) -> str:
        for classes, digests in self._digests.items():
            parts, begin = list[str](), 0
            for start, end in self._find(text, classes, digests):
                parts += text[begin:start], MASK
                begin = end
            text = "".join([*parts, text[begin:]])
        return text

    def _find(self, text: str, classes: str, digests: set[str]) -> Iterator[tuple[int, int]]:
        pattern, length = _pattern_of(classes), len(classes)
        at = 0
        for part in range(0, len(text), PART):
            end = part + PART + length - 1
            at = max(at, part)
            while (match := pattern.search(text, at, end)) is not None:
                if self._digest(match[1]) in digests:
                    yield match.span(1)
                    at = match.end(1)
                else:
                    at = match.start() + 1


def _forms(text: str) -> Sequence[str]:
    """Return a text as it is, and as JSON, addresses and HTML write it."""
    as_json = json.dumps(text)[1:-1]
    return tuple(
        dict.fromkeys((text, as_json, quote(text, safe=""), quote_plus(text), escape(text)))
    )


def _classes_of(text: str) -> str:
    return "".join(
        "o" if not sign.isascii() or not sign.isalnum() else "d" if sign.isdigit() else "l"
        for sign in text
    )


def _pattern_of(classes: str) -> re.Pattern[str]:
    runs = (f"{_CLASSES[run[1]]}{{{len(run[0])}}}" for run in _RUN.finditer(classes))
    # Letters stand at nearly every place of a text.
    begin = "" if {"d", "o"} & set(classes) else "(?<![A-Za-z])"
    return re.compile(f"{begin}(?=({''.join(runs)}))")


def _is_short_word(text: str) -> bool:
    """Whether a text is so short a word that it is a part of many others."""
    return len(text) == SHORTEST and text.isalpha()
