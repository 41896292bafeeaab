"""The output of the commands."""

from __future__ import annotations

import time

import pytest

from statehold.sessions.times import ago, span, until
from statehold.shell.output import pairs, plain, table


def test_table_is_aligned_without_its_empty_columns() -> None:
    assert table(("A", "B", "C"), [("x", None, "1"), ("long", "", "22")]) == (
        "A     C\nx     1\nlong  22"
    )
    assert pairs([("a", 1), ("long", "x"), ("none", None)]) == "a     1\nlong  x"


def test_text_of_a_session_cannot_steer_the_terminal() -> None:
    assert plain("\x1b[2Jhé\n\u202e") == r"\x1b[2Jhé\n\u202e"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (59, "59 s"), (61, "1 min"), (3600, "1 h"), (100_000, "28 h"), (604_800, "7 d")],
)
def test_times_have_one_unit(seconds: float, text: str) -> None:
    now = time.time()
    assert span(seconds) == text
    assert ago(now - seconds, now) == f"{text} ago"
    assert until(now + seconds, now) == ("now" if seconds <= 0 else f"in {text}")
    assert ago(None, now) == until(None, now) == ""
