"""The comparison of the times of answers about foreign and unknown sessions."""

from __future__ import annotations

import sys
from pathlib import Path

# `benchmarks` is no part of the installed package.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.access.timing import area_under_curve


def test_the_area_under_the_curve_is_the_chance_of_a_longer_answer() -> None:
    assert area_under_curve([1.0, 2.0], [1.0, 2.0]) == 0.5
    assert area_under_curve([3.0, 4.0], [1.0, 2.0]) == 1.0
    assert area_under_curve([1.0, 4.0], [2.0, 3.0]) == 0.5
    assert area_under_curve([1.0, 1.0], [1.0, 2.0]) == 0.25
