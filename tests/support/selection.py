"""Parameters of tests in the two selections: the first is quick, the others are thorough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from _pytest.mark.structures import ParameterSet


def matrix(*values: Any, quick: int = 1) -> list[Any]:
    """Return the parameters with all but the first `quick` marked as thorough.

    A tuple is one set of several parameters. A `pytest.param` keeps its id and marks.
    """
    return [*values[:quick], *map(_thorough, values[quick:])]


def matrix_of(values: Sequence[Any]) -> list[Any]:
    """Do the same for parameters each of which is one value, also a tuple."""
    return matrix(*map(pytest.param, values))


def _thorough(value: Any) -> Any:
    mark = pytest.mark.thorough
    if isinstance(value, ParameterSet):
        return pytest.param(*value.values, marks=(*value.marks, mark), id=value.id)
    if isinstance(value, tuple):
        return pytest.param(*cast("tuple[Any, ...]", value), marks=mark)
    return pytest.param(value, marks=mark)


__all__ = ["matrix", "matrix_of"]
