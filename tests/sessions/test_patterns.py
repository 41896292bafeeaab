"""Patterns in the schema of a state: their expanded size, and a limit on the time of each comparison."""

from __future__ import annotations

from typing import Any

import pytest

from statehold.sessions.errors import InvalidArgument, StateInvalid
from statehold.sessions.state import patterns
from statehold.sessions.state.patterns import (
    HEAVIEST,
    LONGEST,
    NOT,
    WIDE,
    WORK,
    checked,
    matches,
    weight_of,
)
from statehold.sessions.state.schema import new_shape, shape_of


@pytest.mark.parametrize(
    ("pattern", "weight"),
    [
        ("", 0),
        ("abc", 3),
        ("^[a-z]+$", 4),
        ("a{60000}", 60_000),
        ("a{2,}", 3),
        ("a{0,9}b", 10),
        ("a{ 2 , 7 }", 7),
        ("(ab|c){100}", 400),
        ("((a{10}){10}){10}", 1000),
        ("(?:a{10}b){2}", 22),
        ("(?P<name>x){3}", 3),
        ("(?i:x){3}", 3),
        (r"\w{64}", 64 * WIDE),
        (r"[\w-]{2}", 2 * WIDE),
        ("[^a]{2}", 2 * NOT),
        (".{3}", 3 * NOT),
        (r"\p{Greek}{2}", 2 * WIDE),
        (r"[a\]{9}]{2}", 2),
        (r"\(a\){9}", 11),
        (r"\x{1F600}{3}", 3),
        (r"\{9}", 3),
        ("[]a]{4}", 4),
        ("[[:alpha:]]{2}", 2 * WIDE),
        # Broken: whatever they weigh, they are looked at without a fault.
        (")a{3}", 3),
        ("{5}", 0),
    ],
)
def test_a_pattern_weighs_what_it_is_written_out(pattern: str, weight: int) -> None:
    assert weight_of(pattern) == weight


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("a{60000}", "repeats too much"),
        ("((a{100}){100}){100}", "repeats too much"),
        (r"\w{300}", "repeats too much"),
        ("(?x)[ # ]\n a{9}", "the x flag"),
        ("(?ix: a)", "the x flag"),
        ("(?=a)b", "looks around"),
        ("(", "broken"),
        ("a" * (LONGEST + 1), "characters"),
    ],
)
async def test_a_pattern_that_cannot_be_bounded_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        checked(pattern)
    schemas: list[dict[str, Any]] = [{"pattern": pattern}, {"patternProperties": {pattern: {}}}]
    for schema in schemas:
        with pytest.raises(InvalidArgument, match=why):
            await new_shape({"properties": {"a": schema}})


@pytest.mark.parametrize("pattern", [r"^\w{1,64}$", r"^[A-Z]{2}\d{6}$", r"^[^@]{1,64}@.{1,190}$"])
async def test_patterns_as_people_write_them_are_used(pattern: str) -> None:
    await new_shape({"properties": {"a": {"pattern": pattern}}})


async def test_patterns_that_are_too_much_together_are_refused() -> None:
    each = {f"n{n}": {"pattern": f"a{{{HEAVIEST // 2}}}{n}"} for n in range(3)}
    await new_shape({"properties": {"n0": each["n0"]}})
    with pytest.raises(InvalidArgument, match="together"):
        await new_shape({"properties": each})


async def test_a_text_is_compared_with_as_much_pattern_as_a_moment_allows() -> None:
    weight = HEAVIEST // 8
    pattern, longest = f"a{{{weight}}}", WORK // weight
    assert matches(pattern, "a" * longest)
    shape = await new_shape({"properties": {"a": {"pattern": pattern}}})
    await shape.check({"a": "a" * longest}, longest)
    with pytest.raises(StateInvalid, match="too long for"):
        await shape.check({"a": "a" * (longest + 1)}, longest)


async def test_few_compiled_patterns_are_kept_and_the_others_compiled_again() -> None:
    first = "^first$"
    shape = await new_shape({"properties": {"a": {"pattern": first}}})
    assert patterns.is_compiled(first)
    for number in range(patterns.KEPT):
        checked(f"^{number}$")
    assert not patterns.is_compiled(first)
    await shape.check({"a": "first"}, 10)
    assert patterns.is_compiled(first)
    with pytest.raises(StateInvalid, match="/a"):
        await shape_of({"properties": {"a": {"pattern": first}}}).check({"a": "second"}, 10)
