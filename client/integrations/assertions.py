"""Assertions on results and pages for tests of pytest, such as those that `statehold sessions test` writes.

A pattern is a regular expression of a whole line. A line of a page is an element with its name and its text, such as
`heading Cart`, `textbox Email: ada@example.org` or `checkbox Gift, checked`.
"""

from __future__ import annotations

import difflib
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NoReturn, cast

import anyio

from ...sessions.journal.wildcards import AGO, DATE, DURATION, ID, NUMBER, TIME
from ...tools.browser.answers.outline import line_text
from ..results import CallResult
from ..session import Session

PAGE_SECONDS = 5.0
"""Seconds that a page may take until it says something."""
PAUSES: Final = (0.02, 0.05, 0.1)
"""Seconds between looks at a page; the last one is repeated."""
SHOWN: Final = 4000
"""Characters of a result or a page in a message."""
ALL_TOKENS: Final = 10_000_000
"""As many as no page has, so that it comes as a whole and not as an outline."""


def says(result: CallResult, pattern: str) -> None:
    """Fail unless a line of a result matches a pattern; of changes of a page, the new lines count."""
    __tracebackhide__ = True
    if not _match_line(result.text, pattern):
        _fail(f"no line of the result matches {pattern!r}", pattern, result.text)


async def page_says(
    session: Session,
    pattern: str,
    result: CallResult | None = None,
    *,
    seconds: float | None = None,
) -> None:
    """Fail unless a line of the page matches a pattern within some seconds (5), or a line of the result of a step did.

    The lines of a page also have its address and title, as `Page URL: http://shop.test/` and `Page Title: Shop`.
    """
    __tracebackhide__ = True
    if result is not None and _match_line(result.text, pattern):
        return
    text = await _wait_for_line(session, pattern, seconds, is_there=True)
    if text is not None:
        _fail(f"no line of the page matches {pattern!r}", pattern, text)


async def page_lacks(session: Session, pattern: str, *, seconds: float | None = None) -> None:
    """Fail unless within some seconds (5) no line of the page matches a pattern."""
    __tracebackhide__ = True
    text = await _wait_for_line(session, pattern, seconds, is_there=False)
    if text is not None:
        _fail(f"a line of the page matches {pattern!r}", pattern, text)


async def _wait_for_line(
    session: Session, pattern: str, seconds: float | None, *, is_there: bool
) -> str | None:
    """Return None as soon as the page has a line, or has it no more; else what the browser answers at the end."""
    deadline = anyio.current_time() + (PAGE_SECONDS if seconds is None else seconds)
    arguments = {"max_tokens": ALL_TOKENS}
    for pause in itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])):
        page = await session.call_tool("browser_snapshot", arguments, check=False)
        if not page.is_error and _match_line(page.text, pattern) is is_there:
            return None
        if anyio.current_time() >= deadline:
            return page.text
        await anyio.sleep(pause)
    return None


def has_file(result: CallResult, pattern: str) -> None:
    """Fail unless the name of a file in a result, such as a download, matches a pattern."""
    __tracebackhide__ = True
    names = [str(block.get("name")) for block in result.blocks if block["type"] == "resource_link"]
    if not any(re.fullmatch(pattern, name) for name in names):
        _fail(f"no file of the result matches {pattern!r}", pattern, "\n".join(names))


def value_at(result: CallResult, pointer: str) -> Any:
    """Return the value at a JSON pointer in the structured content of a result."""
    __tracebackhide__ = True
    value: Any = cast("Any", result.structured_content)
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        try:
            value = value[int(key) if key.isdecimal() and not isinstance(value, dict) else key]
        except (KeyError, IndexError, TypeError, ValueError):
            _fail(f"the result has nothing at {pointer}", pointer, result.structured_text)
    return value


def matches(value: object, pattern: str) -> bool:
    """Return whether a value as text matches a pattern as a whole."""
    return re.fullmatch(pattern, str(value)) is not None


def require_variable(name: str) -> str:
    """Return an environment variable that a test needs, such as a secret. Without it the test is skipped."""
    import pytest

    value = os.environ.get(name)
    if not value:
        pytest.skip(f"set {name}: the recording does not have this value")
    return value


def require_arguments(name: str) -> dict[str, Any]:
    """Return arguments of a tool from an environment variable with a JSON object. Without it the test is skipped."""
    value: object = json.loads(require_variable(name))
    if not isinstance(value, dict):
        raise TypeError(f"{name} is to hold a JSON object, the arguments of a tool")
    return cast("dict[str, Any]", value)


def _match_line(text: str, pattern: str) -> bool:
    expression = re.compile(pattern)
    return any(expression.fullmatch(line) for line in _lines(text))


def _lines(text: str) -> Iterator[str]:
    """Yield each line of a result as it is and as line_text() writes it, without the removed lines of a page."""
    is_diff = False
    for whole in text.splitlines():
        if whole.startswith("```"):
            is_diff = whole == "```diff"
            continue
        if is_diff and whole.startswith(("-", "@@")):
            continue
        line = (whole[1:] if is_diff else whole).strip()
        yield line
        described = line_text(line)
        if described != line:
            yield described


def _fail(problem: str, pattern: str, text: str) -> NoReturn:
    """Raise an error with the line of a text that is most like a pattern, and with the text."""
    __tracebackhide__ = True
    plain = re.sub(r"\\(.)", r"\1", pattern)
    near = difflib.get_close_matches(plain, _unique(_lines(text[: 20 * SHOWN])), n=1, cutoff=0.5)
    closest = f"; the closest is {near[0]!r}" if near else ""
    raise AssertionError(f"{problem}{closest}\n\n{text[:SHOWN]}")


def _unique(lines: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(lines))


__all__ = [
    "AGO",
    "DATE",
    "DURATION",
    "ID",
    "NUMBER",
    "TIME",
    "has_file",
    "matches",
    "page_lacks",
    "page_says",
    "require_arguments",
    "require_variable",
    "says",
    "value_at",
]
