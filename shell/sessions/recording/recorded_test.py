"""A test for pytest from the steps of a recorded session. Pure: journal entries go in, source comes out."""

from __future__ import annotations

import keyword
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ....sessions.records import JournalRecord
from .assertions import RESULT, StepAssertions, is_about_result
from .literals import INDENT, escape, literal, value_source
from .parameters import Parameters
from .steps import LeftOut, RecordedStep, StepReader, without_passing_lines

MODULE: Final = "statehold.client.integrations.testing"
LINE: Final = 96
"""Characters of a line of a docstring."""
NAME: Final = 60
"""Characters of the name of a session or a tool there."""


@dataclass(frozen=True, slots=True)
class RecordedTest:
    """The source of a test, with what its reader has to know."""

    source: str
    steps: int
    left_out: Sequence[LeftOut]
    required: Collection[str]
    """The environment variables that it needs."""

    @property
    def left_out_groups(self) -> dict[tuple[str, str], list[int]]:
        """The positions of the entries that were left out, by their tool and the reason."""
        return _grouped(self.left_out)


def write_test(
    entries: Iterable[JournalRecord], reader: StepReader, parameters: Parameters, *, name: str
) -> RecordedTest:
    """Return the test of entries of calls, the oldest first; an empty one if none of them is a step.

    `name` is that of the session.
    """
    assertions = StepAssertions(parameters)
    read_entries = [reader.read(entry) for entry in entries]
    body: list[str] = []
    was_alone = False
    previous: list[str] = []
    for step, facts in zip(read_entries, without_passing_lines(read_entries), strict=True):
        if isinstance(step, LeftOut):
            lines = list(assertions.on_page(facts, has_result=False))
            # A page that was read again says the same again.
            lines, previous = [] if lines == previous else lines, lines
            was_alone = was_alone and not lines
        else:
            lines = list((assertions.on_page if step.is_browser else assertions.on_result)(facts))
            # Calls without assertions stand together.
            body += [""] if body and not (was_alone and not lines) else []
            body.append(INDENT + _call(step, has_result=any(map(is_about_result, lines))))
            was_alone, previous = not lines, []
        body += [INDENT + line for line in lines]
    steps = [step for step in read_entries if isinstance(step, RecordedStep)]
    left_out = [step for step in read_entries if isinstance(step, LeftOut)]
    if not steps:
        return RecordedTest("", 0, left_out, ())
    test = _Test(parameters, assertions.helpers, steps, left_out)
    source = "\n".join([*test.head(name), *body]) + "\n"
    return RecordedTest(source, len(steps), left_out, parameters.required)


def _call(step: RecordedStep, *, has_result: bool) -> str:
    if isinstance(step.arguments, str):
        arguments = [step.arguments]
    elif all(map(_is_keyword, step.arguments)):
        arguments = [f"{key}={value_source(value)}" for key, value in step.arguments.items()]
    else:
        arguments = [value_source(step.arguments)]
    items = ", ".join([literal([step.tool]), *arguments])
    return f"{f'{RESULT} = ' * has_result}await s.call({items})"


def _is_keyword(key: str) -> bool:
    # run_id is an option of the call itself.
    return key.isidentifier() and not keyword.iskeyword(key) and key != "run_id"


class _Test:
    """The parts of a test in front of its steps."""

    def __init__(
        self,
        parameters: Parameters,
        helpers: Collection[str],
        steps: Sequence[RecordedStep],
        left_out: Sequence[LeftOut],
    ) -> None:
        self._parameters = parameters
        self._helpers = helpers
        self._steps = steps
        self._left_out = left_out

    def head(self, name: str) -> Iterator[str]:
        """Yield the lines up to the first step."""
        yield from self._docstring(name)
        yield "from __future__ import annotations\n"
        if self._parameters.uses_escape:
            yield "import re\n"
        yield "import pytest\n"
        yield "from statehold.client import Session"
        yield from self._imports()
        yield "\n"
        yield "@pytest.mark.anyio"
        services = list(dict.fromkeys(step.entry.service or "" for step in self._steps))
        listed = value_source([(service,) for service in services])
        yield f"@pytest.mark.statehold(services={listed})"
        yield from self._parametrization()
        arguments = ["statehold_session: Session"]
        arguments += [f"{name}: str" for name in self._parameters.values]
        yield f"async def test_{slug_of(name)}({', '.join(arguments)}) -> None:"
        yield f"{INDENT}s = statehold_session"
        for value in self._parameters.required.values():
            yield f"{INDENT}{value.variable} = {value.helper}({literal([value.environment_name])})"
        yield ""

    def _imports(self) -> Iterator[str]:
        names = {*self._helpers, *self._parameters.wildcards}
        names |= {value.helper for value in self._parameters.required.values()}
        # As isort orders them: constants first.
        ordered = sorted(names, key=lambda name: (not name.isupper(), name))
        if ordered:
            yield f"from {MODULE} import {', '.join(ordered)}"

    def _parametrization(self) -> Iterator[str]:
        values = self._parameters.values
        if not values:
            return
        names = ", ".join(literal([name]) for name in values)
        texts = ", ".join(literal([value]) for value in values.values())
        if len(values) > 1:
            names, texts = f"({names})", f"({texts})"
        yield f"@pytest.mark.parametrize({names}, [{texts}])"

    def _docstring(self, name: str) -> Iterator[str]:
        first, last = self._steps[0].entry, self._steps[-1].entry
        day = datetime.fromtimestamp(first.started_at, UTC).date()
        yield f'"""The steps of session {_docstring_text(name)}, recorded on {day}.'
        yield ""
        source = f"entries {first.seq} to {last.seq} of {first.session_id}"
        yield from _paragraph(f"Written by `statehold sessions test` from {source}.")
        if secrets := sorted(self._parameters.secrets):
            yield from _paragraph(f"The server has to know these secrets: {', '.join(secrets)}.")
        if fragile := [str(step.entry.seq) for step in self._steps if step.is_fragile]:
            places = ", ".join(fragile)
            yield from _paragraph(f"Locators that go by a place or a number, of entries: {places}.")
        if required := self._parameters.required:
            yield ""
            yield from _paragraph(
                "The recording has no values of these environment variables; without them the test is skipped:"
            )
            for value in required.values():
                yield from _item(value.environment_name, value.entries)
        if self._left_out:
            yield "\nLeft out:"
            for (tool, reason), entries in _grouped(self._left_out).items():
                yield from _item(f"{_docstring_text(tool)}: {reason}", entries)
        yield '"""\n'


def _grouped(left_out: Iterable[LeftOut]) -> dict[tuple[str, str], list[int]]:
    groups: dict[tuple[str, str], list[int]] = {}
    for each in left_out:
        groups.setdefault((each.entry.tool or "", each.reason), []).append(each.entry.seq)
    return groups


def _item(text: str, entries: Collection[int]) -> Iterator[str]:
    """Yield an item of a list with the entries that it is about."""
    places = ", ".join(map(str, entries))
    line = f"{text} ({'entry' if len(entries) == 1 else 'entries'} {places})"
    yield from textwrap.wrap(line, LINE, initial_indent=INDENT, subsequent_indent=INDENT * 2)


def _paragraph(text: str) -> Iterator[str]:
    yield from textwrap.wrap(text, LINE, break_long_words=False, break_on_hyphens=False)


def _docstring_text(text: str) -> str:
    """Return the beginning of a text as it may stand in a docstring."""
    short = " ".join(text.split())[:NAME]
    while len(escaped := escape(short)) > NAME:
        short = short[:-1]
    return escaped.replace('"', "'")


def slug_of(name: str) -> str:
    """Return the name of a session as a part of the name of a function."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower())[:NAME].strip("_") or "session"
