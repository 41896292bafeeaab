"""Lines of snapshots as a person reads them."""

from __future__ import annotations

import pytest

from statehold.tools.browser.answers.outline import line_text

LINES = {
    '  - heading "Cart (2)" [level=1] [ref=e2]': "heading Cart (2)",
    '- status [ref=e16]: "Cart: 1 items"': "status: Cart: 1 items",
    'status: "Cart: 1 items"': "status: Cart: 1 items",
    "- generic [active] [ref=e1]:": "generic",
    """- 'row "Total: 5" [ref=e3]':""": "row Total: 5",
    """- 'button "Ada''s: \\"x\\"" [ref=e3] [cursor=pointer]'""": 'button Ada\'s: "x"',
    """- listitem [ref=e3]: 'it''s: x'""": "listitem: it's: x",
    '- checkbox "Gift" [checked] [active] [ref=e3]': "checkbox Gift, checked",
    '- button "Menu" [expanded] [disabled] [ref=e3]:': "button Menu, expanded, disabled",
    '- textbox "Email" [ref=f2e5]: ada@example.org': "textbox Email: ada@example.org",
    "- text: Tea - 3.20": "text: Tea - 3.20",
    "- Page Title: Shop": "Page Title: Shop",
    "total 12 (of 20)": "total 12 (of 20)",
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_has_its_name_its_states_and_its_text(line: str) -> None:
    assert line_text(line) == LINES[line]
    # The lines of facts have no refs, but are lines of the same page.
    assert line_text(LINES[line]) == LINES[line]
