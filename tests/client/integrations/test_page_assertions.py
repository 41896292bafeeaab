"""The assertions for tests of pytest, on results as servers send them; test_recording.py has those on pages."""

from __future__ import annotations

from typing import Any

import pytest

from statehold.client import CallResult
from statehold.client.integrations.testing import (
    ID,
    TIME,
    has_file,
    matches,
    require_arguments,
    require_variable,
    says,
    value_at,
)

CHANGES = """### Page
- Page URL: http://shop.test/cart
### Snapshot
```diff
   - heading "Cart" [level=1] [ref=e2]
-  - status [ref=e3]: "Cart: 1 items"
+  - status [ref=e16]: Order A-6a1657 placed at 12:03
```"""


def result(text: str = "", *blocks: Any, **content: Any) -> CallResult:
    return CallResult(
        {"content": [{"type": "text", "text": text}, *blocks], "structuredContent": content or None}
    )


@pytest.mark.parametrize(
    "pattern",
    [
        "Page URL: http://shop.test/cart",
        "heading Cart",
        f"status: Order {ID} placed at {TIME}",
        r"- heading \"Cart\" \[level=1\] \[ref=e\d\]",
    ],
)
def test_a_line_of_a_result_is_found_as_it_is_and_as_it_reads(pattern: str) -> None:
    says(result(CHANGES), pattern)


@pytest.mark.parametrize("pattern", ["status: Cart: 1 items", "Cart", "status: Order .*, 12:03"])
def test_removed_lines_and_parts_of_lines_are_not_said(pattern: str) -> None:
    with pytest.raises(AssertionError) as caught:
        says(result(CHANGES), pattern)
    assert "### Page" in str(caught.value)
    assert caught.traceback[1].ishidden(caught)


def test_a_failure_names_the_closest_line() -> None:
    with pytest.raises(AssertionError, match="closest is 'status: Order A-6a1657 placed at 12:03'"):
        says(result(CHANGES), r"status: Order A-6a1657 refused at 12:03")


def test_values_are_found_by_their_pointers() -> None:
    found = result(rows=[{"a/b": 1, "~": [None]}], count=12)
    assert value_at(found, "/rows/0/a~1b") == 1
    assert value_at(found, "/rows/0/~0/0") is None
    assert matches(value_at(found, "/count"), r"\d+")
    assert not matches("A-1 ", ID)
    for pointer in ("/rows/1", "/rows/x", "/count/0", "/none"):
        with pytest.raises(AssertionError, match=f"nothing at {pointer}"):
            value_at(found, pointer)


def test_files_are_found_by_their_names() -> None:
    link = {"type": "resource_link", "uri": "x:1", "name": "invoice-7.pdf"}
    has_file(result("", link), r"invoice-\d\.pdf")
    with pytest.raises(AssertionError, match=r"invoice-7\.pdf"):
        has_file(result("", link), r"invoice")


def test_a_test_without_its_variable_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_PASSWORD", raising=False)
    with pytest.raises(pytest.skip.Exception, match="set TEST_PASSWORD"):
        require_variable("TEST_PASSWORD")
    monkeypatch.setenv("TEST_PASSWORD", '{"a": 1}')
    assert require_arguments("TEST_PASSWORD") == {"a": 1}
    monkeypatch.setenv("TEST_PASSWORD", "[]")
    with pytest.raises(TypeError, match="TEST_PASSWORD"):
        require_arguments("TEST_PASSWORD")
