"""URL patterns from callers. The time of a match grows only with the length of the URL."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Final, TypeAlias

LONGEST: Final = 1000
"""The longest pattern, in characters."""
ALTERNATIVES: Final = 64
"""The most patterns without braces to which one with braces may expand."""
URL: Final = 16 * 2**10
"""The longest URL that is matched, in characters; a longer one matches no pattern."""

_ANY: Final = re.compile("(?s:.)")
_OF_SEGMENT: Final = re.compile("[^/]")
Part: TypeAlias = str | re.Pattern[str]
"""One literal character, or a pattern for any number of characters."""

_PARTS: Final = re.compile(r"\\(.)|(\*\*+)(/?)|(\*)|(\{[^{}]*\})|([{}])|(.)", re.DOTALL)
_HOST: Final = re.compile(r"\w+://[^/*{?#]*")


class Glob:
    """A glob with Playwright's syntax: `*` is any text without a slash, `**` any text, `{a,b}` is a or b, and `\\` makes the
    next character literal.

    It replaces Playwright's own matching by regular expressions, which takes practically for ever on some URLs.
    """

    def __init__(self, pattern: str) -> None:
        """Parse a pattern.

        Raises:
            ValueError: It is no valid pattern.
        """
        if len(pattern) > LONGEST:
            raise ValueError(f"a pattern has at most {LONGEST} characters")
        host = _HOST.match(pattern)
        if host is not None:
            # Normalize the origin as browsers do.
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
            # Between slashes `**` may match nothing, with one slash.
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
    """Match a text by tracking all possible positions in the pattern at once."""
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
    """Add the positions that are reached without consuming a character."""
    found = set(places)
    for place in places:
        while place < len(parts) and not isinstance(parts[place], str):
            place += 1
            found.add(place)
    return found


__all__ = ["Glob"]
