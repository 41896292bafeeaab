"""The lines about what happened in a session since its last answer, within a budget."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

EVENT_LINES: Final = 50
"""The most events of the session, such as downloads, that one answer lists."""
NEWS_LENGTH: Final = 2000
"""The most characters about messages and requests of pages in one answer: 500 tokens."""
LINE: Final = 300
"""The most characters of one such line."""

_REST_LENGTH: Final = 150
_NUMBER: Final = re.compile(r"\d+")


def summarize(events: Iterable[str], *, omitted: int = 0) -> list[str]:
    """Return the lines about events: equal ones joined, and beyond EVENT_LINES only the number of the rest.

    `omitted` is the number of events that `events` lacks.
    """
    lines = [_counted(line, n) for line, n in Counter(events).items()]
    more = max(0, len(lines) - EVENT_LINES) + omitted
    return [*lines[:EVENT_LINES], f"({more} more)"] if more else lines


@dataclass(frozen=True, slots=True)
class News:
    """Lines about one kind of events in pages. Beyond its share of an answer, a tool shows them."""

    lines: list[str]
    omitted: int
    """The number of events that `lines` lacks."""
    tool: str


def summarize_news(news: Iterable[News]) -> list[str]:
    """Return lines of at most NEWS_LENGTH characters about events in pages, the first kinds first.

    Lines that differ in numbers only are joined. The last line tells how many are missing, and the tools that show them.
    """
    lines: list[str] = []
    missing: Counter[str] = Counter()
    room = NEWS_LENGTH - _REST_LENGTH
    for kind in news:
        missing[kind.tool] += kind.omitted
        for line, count in _groups(kind.lines):
            room -= len(line) + 3
            if room < 0:
                missing[kind.tool] += count
            else:
                lines.append(line)
    rest = [f"{count} more in {tool}" for tool, count in missing.items() if count]
    return [*lines, f"({', '.join(rest)})"] if rest else lines


def _groups(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield the first of the lines that differ in numbers only, with their number."""
    groups: dict[str, list[str]] = {}
    for line in lines:
        groups.setdefault(_NUMBER.sub("0", line), []).append(line)
    for group in groups.values():
        first = group[0] if len(group[0]) <= LINE else f"{group[0][:LINE]}..."
        is_equal = all(line == group[0] for line in group)
        yield _counted(first, len(group), "" if is_equal else ", with other numbers"), len(group)


def _counted(line: str, count: int, more: str = "") -> str:
    return f"{line} ({count} times{more})" if count > 1 else line
