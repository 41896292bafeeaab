"""The forms of texts that differ at each run: times, dates, durations, ids and long numbers. Pure, and for any text.

Each form is a regular expression that finds such texts, and a looser one that stands for them later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_MONTH: Final = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?)\.?"
)
_WEEKDAY: Final = r"(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?\.?"
_DAY: Final = r"\d{1,2}(?:st|nd|rd|th)?\.?"

TIME: Final = (
    r"\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:\s?[AaPp]\.?[Mm]\.?)?(?:Z|\s?[+-]\d\d:?\d\d)?"
)
"""A time of day, such as 9:30, 23:59:07.5 or 11:30 PM."""
DATE: Final = (
    rf"(?:{_WEEKDAY}\s{_MONTH}\s+\d{{1,2}}\s{TIME}(?:\s[A-Z]{{1,5}})?\s\d{{4}}|\d{{4}}-\d\d-\d\d(?:T{TIME})?"
    r"|\d{4}/\d\d?/\d\d?|\d\d?[./-]\d\d?[./-]\d{2,4}"
    rf"|(?:{_WEEKDAY},?\s)?(?:{_DAY}\s{_MONTH}(?:,?\s\d{{4}})?|{_MONTH}\s{_DAY}(?:,?\s\d{{4}})?|{_MONTH}\s\d{{4}})"
    rf"|(?:[^\W\d_]+,\s)?{_DAY}\s[^\W\d_]+\s\d{{4}}"
    rf"|{_WEEKDAY})"
)
"""A date, such as 2026-11-28, 28.11.2026, Saturday, 28 November or Nov 28, 2026, or a day of the week."""
AGO: Final = r"(?:just now|\d+\s\w+\sago|in\s\d+\s\w+)"
"""A time from now, such as 2 minutes ago."""
DURATION: Final = r"\d+(?:[.,]\d+)?\s?(?:ms|us|ns|s|secs?|seconds?|milliseconds?)"
"""A duration below a minute, such as 0.13s or 40 ms."""
ID: Final = r"[\w-]+"
"""A generated id, such as A-6a1657 or a UUID."""
NUMBER: Final = r"\d+"
"""A long number."""

_UUID: Final = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_HEX: Final = r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,}|(?=[A-F]*\d)(?=\d*[A-F])[0-9A-F]{8,}"
_PREFIXED: Final = (
    r"[A-Za-z]{1,8}(?=[-_](?!\d{4}-\d\d-\d\d))(?=[\w-]*[-_](?:[0-9a-fA-F]*\d[0-9a-fA-F]{2}|[0-9a-f]{6}))"
    r"(?:[-_][0-9a-fA-F]+)+"
)
_MIXED: Final = (
    r"(?=\w*\d\w*\d)(?=\w*[A-Za-z])\w{16,}"
    r"|(?=[A-Z\d]*[A-Z]\d)(?=[A-Z\d]*\d[A-Z])[A-Z\d]{6,}|(?=[a-z\d]*[a-z]\d)(?=[a-z\d]*\d[a-z])[a-z\d]{6,}"
)
_NUMBERED: Final = "|".join(
    rf"(?<={word} )"
    for word in ("[Oo]rder", "[Tt]icket", "[Ii]nvoice", "[Nn]umber", r"[Nn]o\.", "ID", "ID:")
)
"""Matches the place after a word for something with a number."""

_FORMS: Final[dict[str, str]] = {
    "DATE": DATE,
    "TIME": TIME,
    "AGO": r"just now|\d+\s(?:second|minute|hour)s?\sago|in\s\d+\s(?:second|minute|hour)s?",
    "ID": f"{_UUID}|{_PREFIXED}|{_HEX}|{_MIXED}",
    "DURATION": DURATION,
    # A price of five digits has cents after it.
    "NUMBER": rf"(?:(?<=#)|{_NUMBERED})\d{{3,}}|(?<![.,])\d{{5,}}(?![.,]\d)",
}
WILDCARDS: Final = frozenset(_FORMS)
_ANY: Final = re.compile(
    rf"(?<![^\W_])(?:{'|'.join(f'(?P<{name}>{form})' for name, form in _FORMS.items())})(?![^\W_])"
)


@dataclass(frozen=True, slots=True)
class Wildcard:
    """The place of a text that differs at each run. `name` is that of its form in this module."""

    name: str


def split_at_wildcards(text: str) -> Iterator[str | Wildcard]:
    """Yield the parts of a text: those that stay as they are, and wildcards for the others."""
    end = 0
    for match in _ANY.finditer(text):
        if match.start() > end:
            yield text[end : match.start()]
        assert match.lastgroup is not None
        yield Wildcard(match.lastgroup)
        end = match.end()
    if end < len(text):
        yield text[end:]
