"""The outline of a snapshot that is too large to be shown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as some

from statehold.tools.browser.answers.outline import outline

ROWS = "\n".join(
    f'      - row "Order {n} paid" [ref=e{1000 + 3 * n}]:\n'
    f"        - cell [ref=e{1001 + 3 * n}]: Order {n} {'of many words ' * 5}\n"
    f'        - button "Open" [ref=e{1002 + 3 * n}] [cursor=pointer]'
    for n in range(400)
)
PAGE = f"""\
- generic [active] [ref=e1]:
  - banner [ref=e2]:
    - generic [ref=e3]:
      - link [ref=e4] [cursor=pointer]:
        - /url: /
        - img "Harbour" [ref=e5]
  - navigation "Pages" [ref=e6]:
{chr(10).join(f'    - link "Page {n}" [ref=e{10 + n}] [cursor=pointer]' for n in range(300))}
  - main [ref=e400]:
    - 'heading "Orders: all" [level=1] [ref=e401]'
    - paragraph [ref=e402]: {"Words. " * 200}
    - textbox "Filter" [ref=e403]:
      - /placeholder: Name
      - text: berth
    - generic [ref=e404] [cursor=pointer]: Sort
    - status [ref=e405]: 400 orders
    - table "Orders" [ref=e406]:
{ROWS}
    - heading "Help" [level=2] [ref=e2500]
    - button "{"Long " * 100}" [ref=e2501]
  - dialog "Cookies" [ref=e2600]:
    - paragraph [ref=e2601]: We use them.
    - button "Agree" [ref=e2602]
  - contentinfo [ref=e2700]: The end"""
REFS = set(re.findall(r"\[ref=(\w+)\]", PAGE))


def test_it_keeps_structure_dialogs_and_as_many_interactive_elements_as_fit() -> None:
    lines = outline(PAGE, 8000).split("\n")
    text = "\n".join(lines)
    assert len(text) <= 8000
    for line in (
        "- banner [ref=e2]:",
        "  - link [ref=e4]: Harbour",
        '- navigation "Pages" [ref=e6]:',
        '  - link "Page 0" [ref=e10]',
        "- main [ref=e400]:",
        "  - 'heading \"Orders: all\" [level=1] [ref=e401]'",
        '  - textbox "Filter" [ref=e403]: berth',
        "  - generic [ref=e404] [cursor=pointer]: Sort",
        "  - status [ref=e405]: 400 orders",
        '  - row "Order 0 paid" [ref=e1000]:',
        '    - button "Open" [ref=e1002]',
        '  - heading "Help" [level=2] [ref=e2500]',
        '- dialog "Cookies" [ref=e2600]:',
        "  - paragraph [ref=e2601]: We use them.",
        '  - button "Agree" [ref=e2602]',
        "- contentinfo [ref=e2700]: The end",
    ):
        assert line in lines, line
    assert "Words." not in text
    assert set(re.findall(r"\[ref=(\w+)\]", text)) <= REFS
    # The main content does not wait for the end of a long navigation.
    assert text.count("- link") < 30 < text.count("- button")


def test_it_counts_the_rest_and_says_how_to_get_it() -> None:
    text = outline(PAGE, 8000)
    shown_refs = len(re.findall(r"\[ref=", text))
    interactive = 300 + 400 + 5
    shown = len(re.findall(r"- (?:link|button|textbox|generic)", text))
    assert text.split("\n")[-1] == (
        f"# An outline. Left out: {len(REFS) - shown_refs} elements, {interactive - shown} of them interactive, and texts."
        " browser_find searches them for a text; browser_snapshot shows those below a ref (target), or writes all to a"
        " file (filename)."
    )


def test_texts_fill_what_is_left_where_they_are_wanted() -> None:
    text = outline(PAGE, 70_000, texts=True)
    assert 69_000 < len(text) <= 70_000
    assert f"paragraph [ref=e402]: {'Words. ' * 200}" in text
    assert "cell [ref=e1001]: Order 0 of many words" in text
    assert "Words." not in outline(PAGE, 70_000)


def test_long_names_are_cut() -> None:
    text = outline(PAGE, 40_000)
    assert f'- button "{("Long " * 100)[:80]}..." [ref=e2501]' in text


def test_headings_leave_room_for_interactive_elements() -> None:
    headings = (f'- heading "Part {n}" [level={2 + n % 2}] [ref=e{n}]' for n in range(1000))
    text = outline("\n".join([*headings, '- button "Go" [ref=e2000]']), 4000)
    assert '- button "Go" [ref=e2000]' in text
    assert '"Part 0"' in text
    assert text.count("level=2") > 3 * text.count("level=3")


@given(
    some.lists(
        some.tuples(
            some.integers(0, 6),
            some.sampled_from(
                ["main", "dialog", "button", 'link "a"', "generic", "text: x", "heading", 'row "r"']
            ),
        ),
        max_size=60,
    ),
    some.integers(400, 1200),
)
def test_no_snapshot_makes_an_outline_larger_than_its_budget(
    elements: list[tuple[int, str]], limit: int
) -> None:
    lines = [f"{'  ' * depth}- {role} [ref=e{n}]" for n, (depth, role) in enumerate(elements)]
    text = outline("\n".join(lines), limit, "e7")
    assert len(text) <= limit
    refs = re.findall(r"\[ref=(\w+)\]", text)
    assert len(refs) == len(set(refs))


@pytest.mark.parametrize("text", ["", "- ", "no snapshot", '- button "half', "- 'a [ref=e1]"])
def test_an_invalid_snapshot_has_an_outline_too(text: str) -> None:
    assert outline(text, 1000, "e1").split("\n")[-1].startswith("# An outline.")
