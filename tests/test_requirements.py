"""tests/requirements.md names tests that exist, or a reason, for each promise of other session systems."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS / "requirements.md"


def rows() -> list[list[str]]:
    """Return the cells of each row: id, promise, tests, reason."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    found = [
        re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if re.match(r"\| [A-Z]{2}-", line)
    ]
    return [[cell.strip() for cell in cells] for cells in found]


@cache
def functions(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    found = (
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return {node.name for node in found}


def test_each_promise_has_a_test_that_exists_or_a_reason() -> None:
    found = rows()
    assert len(found) > 200
    assert len({row for row, *_ in found}) == len(found)
    for row, _, tests, reason in found:
        named = [test.split("::") for test in re.findall(r"`([^`]+)`", tests)]
        assert named or reason, row
        assert [[file, name] for file, name in named if name not in functions(file)] == [], row
