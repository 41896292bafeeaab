"""URL patterns of callers, matched in a time that grows with the URL alone."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Final, TypeAlias

LONGEST: Final = 1000
"""The longest pattern, in characters."""
ALTERNATIVES: Final = 64
"""How many patterns without braces one with braces may stand for."""
URL: Final = 16 * 2**10
"""The longest URL that is matched, in characters; a longer one matches nothing."""

_ANY: Final = re.compile("(?s:.)")
_OF_SEGMENT: Final = re.compile("[^/]")
Part: TypeAlias = str | re.Pattern[str]
"""A character, or what any number of characters may be."""

_PARTS: Final = re.compile(r"\\(.)|(\*\*+)(/?)|(\*)|(\{[^{}]*\})|([{}])|(.)", re.DOTALL)
_HOST: Final = re.compile(r"\w+://[^/*{?#]*")


class Glob:
    """A pattern as Playwright has it: `*` is anything but a slash, `**` is anything, `{a,b}` is a or b, `\\` takes the next
    character as it is.

    Playwright makes a regular expression of it, some of which never end for some URLs, in its driver and here.
    """

    def __init__(self, pattern: str) -> None:
        """Raises ValueError when it is no pattern."""
        if len(pattern) > LONGEST:
            raise ValueError(f"a pattern has at most {LONGEST} characters")
        host = _HOST.match(pattern)
        if host is not None:
            # As browsers write it.
            slash = "/" if host.end() == len(pattern) else ""
            pattern = host[0].lower() + slash + pattern[host.end() :]
        self._alternatives = _alternatives(pattern)

    def __call__(self, url: str) -> bool:
        """Return whether a URL matches."""
        return len(url) <= URL and any(_matches(parts, url) for parts in self._alternatives)


def _alternatives(pattern: str) -> list[list[Part]]:
    choices: list[list[list[Part]]] = []
    before, number = "", 1
    for match in _PARTS.finditer(pattern):
        escaped, stars, slash, star, group, brace, character = match.groups()
        if brace:
            raise ValueError(f"{brace} has no counterpart, or is inside of others")
        if stars:
            some: list[Part] = [_ANY, *slash]
            # Between slashes it may be nothing at all.
            choices.append([some, []] if slash and before == "/" else [some])
        elif star:
            choices.append([[_OF_SEGMENT]])
        elif group:
            choices.append([_alternatives(one)[0] for one in group[1:-1].split(",")])
        else:
            choices.append([[escaped or character]])
        number *= len(choices[-1])
        if number > ALTERNATIVES:
            raise ValueError(f"it stands for more than {ALTERNATIVES} patterns")
        before = match[0][-1]
    return [list(itertools.chain(*chosen)) for chosen in itertools.product(*choices)]


def _matches(parts: Sequence[Part], text: str) -> bool:
    """Follow all the ways of reading a text at once."""
    places = _reached({0}, parts)
    for character in text:
        after: set[int] = set()
        for place in places:
            part = parts[place] if place < len(parts) else ""
            if isinstance(part, str):
                if part == character:
                    after.add(place + 1)
            elif part.match(character):
                after.add(place)
        if not after:
            return False
        places = _reached(after, parts)
    return len(parts) in places


def _reached(places: set[int], parts: Sequence[Part]) -> set[int]:
    """Add the places that are reached without another character."""
    found = set(places)
    for place in places:
        while place < len(parts) and not isinstance(parts[place], str):
            place += 1
            found.add(place)
    return found


__all__ = ["Glob"]
