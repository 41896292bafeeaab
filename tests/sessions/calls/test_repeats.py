"""Whether a call that may have run may be sent again."""

from __future__ import annotations

from typing import Any

import pytest

from statehold.sessions.repeats import may_repeat


@pytest.mark.parametrize(
    ("hints", "is_repeatable"),
    [
        ({"readOnlyHint": True}, True),
        ({"idempotentHint": True}, True),
        ({"readOnlyHint": False, "idempotentHint": True}, True),
        ({"readOnlyHint": False, "idempotentHint": False}, False),
        ({"readOnlyHint": "true", "idempotentHint": 1}, False),
        ({"destructiveHint": True}, False),
        ({}, False),
        (None, False),
        ("readOnlyHint", False),
    ],
)
def test_one_decision_for_the_hints_of_each_tool(hints: Any, *, is_repeatable: bool) -> None:
    tool = {"name": "tool", "annotations": hints}
    assert may_repeat(tool) is is_repeatable
    assert not may_repeat(tool, has_operation_id=True)
    assert not may_repeat({"name": "without annotations"})
