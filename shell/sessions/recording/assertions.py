"""The facts of a step as lines of a test: what the page says after it, and the values of its result."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

from ....sessions.journal.facts import LINE, TEXT
from ....sessions.json_codec import JSON
from ....tools.browser.answers.outline import line_text
from .literals import Part, literal
from .parameters import Parameters

RESULT: Final = "result"
"""The name of the result of a step, where an assertion is about it."""

_VARIES: Final = re.compile(
    r"(?:\A|[_/])(?:at|duration|elapsed|ms|pid|port|seconds|time|timestamp|took)\Z", re.IGNORECASE
)
"""Matches the JSON pointers of numbers that differ at each run."""
_OF_MANY: Final = re.compile(r"(?:cell|generic|link|listitem|paragraph|row|text)\b")
"""Matches the lines of which a page has many, so that a new one does not replace another one."""
_CONTROL: Final = re.compile(r"(?:button|checkbox|combobox|option|radio|slider|switch|textbox)\b")


class StepAssertions:
    """Writes the assertions of one test, in the order of its steps. It knows the page that the last step left."""

    def __init__(self, parameters: Parameters) -> None:
        self.helpers: set[str] = set()
        """The functions that the assertions call."""
        self._parameters = parameters
        self._url: object = None
        self._title: object = None

    def on_page(self, facts: JSON, *, has_result: bool = True) -> Iterator[str]:
        """Yield the assertions on the page after a step of the browser, and on the questions and files of its result.

        Without a result, the step is none of the test, but the page is to say the same.
        """
        if has_result:
            for name in _unique(facts, "files"):
                yield self._line("has_file", *self._pattern(name))
        if asks := facts.get("asks"):
            # The page answers nothing else until its question is answered.
            if has_result:
                yield self._line("says", ".*", *self._pattern(asks), ".*")
            return
        url, title = facts.get("url", self._url), facts.get("title", self._title)
        is_new = url != self._url
        if is_new:
            yield self._line("page_says", "Page URL: ", *self._pattern(str(url)))
        if title != self._title:
            yield self._line("page_says", "Page Title: ", *self._pattern(str(title)))
        self._url, self._title = url, title
        appeared = [line for line in _unique(facts, "appeared") if _tells(line)]
        for line in appeared:
            pattern = self._pattern_of_line(line)
            # The answer has also what the page says for a moment only.
            yield self._line("page_says", *pattern, and_result=has_result)
        for line in () if is_new else _unique(facts, "gone"):
            pattern = self._pattern_of_line(line)
            if not has_wildcard(pattern) and not _is_replaced(line, appeared):
                yield self._line("page_lacks", *pattern)

    def on_result(self, facts: JSON) -> Iterator[str]:
        """Yield the assertions on the result of another service."""
        values: JSON = facts.get("values") or {}
        for pointer, value in values.items():
            if isinstance(value, str | bool | None) or not _VARIES.search(pointer):
                yield self._value(pointer, value)
        lines: list[str] = [facts[name] for name in ("first", "last") if facts.get(name)]
        for line in dict.fromkeys(lines):
            end = (".*",) if len(line) >= TEXT else ()
            yield self._line("says", *self._pattern(line), *end)

    def _value(self, pointer: str, value: object) -> str:
        self.helpers.add("value_at")
        place = f"value_at({RESULT}, {literal([pointer])})"
        if value is None or isinstance(value, bool):
            return f"assert {place} is {value}"
        pattern = self._pattern(str(value))
        expected = literal(self._parameters.text(value)) if isinstance(value, str) else repr(value)
        if not has_wildcard(pattern):
            return f"assert {place} == {expected}"
        self.helpers.add("matches")
        return f"assert matches({place}, {literal(pattern)})"

    def _line(self, helper: str, *pattern: Part, and_result: bool = False) -> str:
        self.helpers.add(helper)
        is_of_page = helper.startswith("page_")
        items = ["s" if is_of_page else RESULT, literal(pattern), *[RESULT] * and_result]
        return f"{'await ' * is_of_page}{helper}({', '.join(items)})"

    def _pattern(self, text: str) -> tuple[Part, ...]:
        return self._parameters.pattern(text)

    def _pattern_of_line(self, line: str) -> tuple[Part, ...]:
        if len(line) < LINE:
            return self._pattern(line_text(line))
        # The journal cut it, so a quote may be open.
        return (*self._pattern(line_text(line + '"' * (line.count('"') % 2))), ".*")


def _unique(facts: JSON, key: str) -> list[str]:
    lines: list[str] = facts.get(key) or []
    return list(dict.fromkeys(lines))


def is_about_result(assertion: str) -> bool:
    """Return whether an assertion is about the result of a step, not about the page alone."""
    return not assertion.startswith("await page_") or assertion.endswith(f", {RESULT})")


def has_wildcard(pattern: Collection[Part]) -> bool:
    """Return whether a pattern has a part that differs at each run."""
    return any(".*" in part if isinstance(part, str) else part.code.isupper() for part in pattern)


def _tells(line: str) -> bool:
    """Return whether a line that appeared is an effect. An option that is not chosen is none, nor is a property."""
    return not line.startswith(("option ", "/")) or "[selected]" in line


def _is_replaced(line: str, appeared: Collection[str]) -> bool:
    """Return whether a line that is gone needs no assertion, since it is a control or a new line has its place."""
    if _CONTROL.match(line):
        return True
    head = line.partition(":")[0]
    return not _OF_MANY.match(line) and any(new.partition(":")[0] == head for new in appeared)
