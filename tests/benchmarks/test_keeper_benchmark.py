"""The checks of the keeper's test detect their faults."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

# `benchmarks` is no part of the installed package.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.keeper.callers import Caller, Kind

ONCE = {"a-1": 1, "a-2": 1, "a-3": 1}
NONE: list[str] = []


@pytest.mark.parametrize(
    ("counts", "runs", "found"),
    [
        ([1, 2, 3], ONCE, (0, NONE, 0)),
        ([1, 2, 1], ONCE, (1, NONE, 0)),
        ([1, 2, 3], {**ONCE, "a-2": 2, "b-1": 2}, (0, NONE, 1)),
        ([1, 2, 3], {"a-1": 1, "a-2": 1}, (0, ["a-3"], 0)),
        ([1, 2], ONCE, (0, ["a-3"], 0)),
    ],
    ids=["no fault", "a counter began again", "double run", "never run", "outcome unknown"],
)
def test_faults_are_found(
    counts: list[int], runs: dict[str, int], found: tuple[int, list[str], int]
) -> None:
    caller = Caller(Kind("counter", "inc"), "a", 0, Random(0), sent=3)
    caller.counts = {f"a-{number}": count for number, count in enumerate(counts, 1)}
    caller.unknown = [f"a-{number}" for number in range(len(counts) + 1, 4)]
    log = Counter(runs)
    assert (caller.repeated_counts, caller.lost(log), caller.double_runs(log)) == found


def test_an_unknown_outcome_over_http_is_no_lost_answer() -> None:
    caller = Caller(Kind("web", "inc", over_http=True), "a", 0, Random(0), sent=3)
    caller.counts, caller.unknown, caller.unanswered = {"a-1": 1}, ["a-2"], ["a-3"]
    assert caller.lost(Counter({"a-2": 1})) == ["a-3", "a-1"]


def test_a_count_beyond_the_number_of_calls_is_a_double_run() -> None:
    caller = Caller(Kind("notebook", "count", logs=False), "a", 0, Random(0), sent=2)
    caller.counts = {"a-1": 1, "a-2": 3}
    assert caller.double_runs(Counter()) == 1
