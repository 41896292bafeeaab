"""URL patterns from callers. The time of a match grows only with the length of the URL."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Final, TypeAlias

MAX_CHARACTERS: Final = 1000
"""The longest pattern, in characters."""
MAX_ALTERNATIVES: Final = 64
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
        if len(pattern) > MAX_CHARACTERS:
            raise ValueError(f"a pattern has at most {MAX_CHARACTERS} characters")
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
        literal, stars, slash, star, group, brace, character = match.groups()
        if brace:
            raise ValueError(f"{brace} has no counterpart, or is inside of others")
        if stars:
            parts: list[Part] = [_ANY, *slash]
            # Between slashes `**` may match nothing, with one slash.
            choices.append([parts, []] if slash and before == "/" else [parts])
        elif star:
            choices.append([[_OF_SEGMENT]])
        elif group:
            choices.append([_alternatives(branch)[0] for branch in group[1:-1].split(",")])
        else:
            choices.append([[literal or character]])
        number *= len(choices[-1])
        if number > MAX_ALTERNATIVES:
            raise ValueError(f"it stands for more than {MAX_ALTERNATIVES} patterns")
        before = match[0][-1]
    return [list(itertools.chain(*choice)) for choice in itertools.product(*choices)]


def _matches(parts: Sequence[Part], text: str) -> bool:
    """Match a text by tracking all possible positions in the pattern at once."""
    positions = _skip_wildcards({0}, parts)
    for character in text:
        reached: set[int] = set()
        for position in positions:
            part = parts[position] if position < len(parts) else ""
            if isinstance(part, str):
                if part == character:
                    reached.add(position + 1)
            elif part.match(character):
                reached.add(position)
        if not reached:
            return False
        positions = _skip_wildcards(reached, parts)
    return len(parts) in positions


def _skip_wildcards(positions: set[int], parts: Sequence[Part]) -> set[int]:
    """Add the positions that are reached without consuming a character."""
    reached = set(positions)
    for position in positions:
        while position < len(parts) and not isinstance(parts[position], str):
            position += 1
            reached.add(position)
    return reached
