"""The regular expressions of a state's schema: the allowed ones, and matching them within bounds.

Rust's engine never backtracks, but its time is in proportion to the text times the pattern, with every counted repetition
written out: `a{60000}` is short, and takes two minutes for a text of 60 kB. So the weight of a pattern, its size written
out, is estimated before it is compiled, and bounds the length of the texts it is matched with.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from typing import Final

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

LONGEST: Final = 1000
"""Most characters of a pattern."""
HEAVIEST: Final = 4000
"""Largest weight of a pattern, and of all patterns of a schema together. A character weighs one."""
NOT: Final = 5
"""Weight of a dot, and of a negated class."""
WIDE: Final = 40
"""Weight of a class of Unicode, such as \\w, whose tables are large."""
KEPT: Final = 64
"""Compiled patterns that are kept; each may take megabytes."""
WORK: Final = 2_000_000
"""Largest product of a pattern's weight and a text's length: some 0.2 s at worst."""

_TOKEN: Final = re.compile(
    r"(?P<wide>\\[pP](?:\{[^}]*\}|.)|\\[wWdDsSbB])"
    r"|(?P<class>\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\])"
    r"|(?P<open>\((?:\?(?:P?<\w+>|[a-zA-Z-]*:?))?)|(?P<close>\))"
    r"|(?P<times>\{\s*(?P<least>\d+)\s*(?P<range>,\s*(?P<most>\d*)\s*)?\})"
    r"|(?P<one>\\[xuU]\{[^}]*\}|\\.|.)",
    re.DOTALL,
)
_UNICODE: Final = re.compile(r"\\[pPwWdDsS]|\[:")


def weight_of(pattern: str) -> int:
    """Estimate the size of a pattern with its counted repetitions written out, rather too high than too low."""
    sums, last = [0], 0
    for token in _TOKEN.finditer(pattern):
        if token["times"]:
            times = int(token["most"] or token["least"]) + (token["most"] == "")
            sums[-1] += last * max(times - 1, 0)
            last *= max(times, 1)
            continue
        if token["open"]:
            sums.append(0)
            continue
        if token["close"]:
            last = sums.pop() if len(sums) > 1 else 0
        elif token["wide"] or (token["class"] and _UNICODE.search(token["class"])):
            last = WIDE
        elif token["one"] == "." or (token["class"] or "").startswith("[^"):
            last = NOT
        else:
            last = 1
        sums[-1] += last
    return sum(sums)


def checked(pattern: str) -> int:
    """Return the weight of a pattern.

    Raises:
        ValueError: it cannot be used; the message says why.
    """
    if len(pattern) > LONGEST:
        raise ValueError(f"it has more than {LONGEST} characters")
    if re.search(r"\(\?[a-zA-Z-]*x", pattern):
        raise ValueError("the x flag is not supported")
    weight = weight_of(pattern)
    if weight > HEAVIEST:
        raise ValueError("it repeats too much")
    try:
        compiled(pattern)
    except SchemaError:
        raise ValueError("it is broken, too large, or looks around or back") from None
    return weight


_compiled: Final[OrderedDict[str, tuple[SchemaValidator, int]]] = OrderedDict()
_lock: Final = threading.Lock()


def is_compiled(pattern: str) -> bool:
    """Whether a pattern is compiled, so that it can be matched at once."""
    return pattern in _compiled


def compiled(pattern: str) -> tuple[SchemaValidator, int]:
    """Return a compiled pattern and its weight. The last KEPT are kept."""
    with _lock:
        if (found := _compiled.get(pattern)) is not None:
            _compiled.move_to_end(pattern)
            return found
    schema = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
    made = SchemaValidator(schema), weight_of(pattern)
    with _lock:
        _compiled[pattern] = made
        if len(_compiled) > KEPT:
            _compiled.popitem(last=False)
    return made


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern is found in a text.

    Raises:
        ValueError: the text is too long for the pattern.
    """
    engine, weight = compiled(pattern)
    if weight * len(text) > WORK:
        raise ValueError(f"a text of {len(text)} characters is too long for {pattern!r:.100}")
    try:
        engine.validate_python(text)
    except ValidationError:
        return False
    return True


__all__ = ["HEAVIEST", "LONGEST", "WORK", "checked", "is_compiled", "matches", "weight_of"]
