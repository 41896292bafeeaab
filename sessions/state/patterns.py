"""The regular expressions of a state's schema: which may be used, and their bounded comparison with a text.

Rust's engine never goes back, but its time is in proportion to the text times the pattern, with every counted repetition
written out: `a{60000}` is short, and takes two minutes for a text of 60 kB. So what a pattern weighs, written out, is
estimated before it is compiled, and it is compared with as much text only as it may take a moment for.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from typing import Final

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

LONGEST: Final = 1000
"""Characters of a pattern."""
HEAVIEST: Final = 4000
"""What a pattern, and all of a schema together, may weigh: one for a character."""
NOT: Final = 5
"""The weight of a dot, and of a class of all but some characters."""
WIDE: Final = 40
"""The weight of a class of Unicode, such as \\w, whose tables are large."""
KEPT: Final = 64
"""Compiled patterns, of which each may take megabytes."""
WORK: Final = 2_000_000
"""What the weight of a pattern times the length of a text may be: some 0.2 s at worst."""

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
    """Return about how large a pattern is with its counted repetitions written out; rather too much than too little."""
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
    """Return what a pattern weighs.

    Raises:
        ValueError: it cannot be used, and why.
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
    """Whether it can be compared at once."""
    return pattern in _compiled


def compiled(pattern: str) -> tuple[SchemaValidator, int]:
    """Return a pattern ready for use, and what it weighs. The last KEPT are kept."""
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
        ValueError: the text is too long for it.
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
