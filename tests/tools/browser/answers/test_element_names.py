"""An element is named from the snapshot as a test would name it."""

from __future__ import annotations

import pytest
from support.browsing import Browse, ref_of

from statehold.tools.browser.answers.naming import code_of, role_of

SNAPSHOT = """\
- main [ref=e1]:
  - button "Save" [ref=e2] [cursor=pointer]
  - button "Save as" [ref=e14]
  - link "More" [ref=e4]:
    - /url: /more
  - link "More" [ref=e5]
  - generic [ref=e6]: Nothing
  - textbox "Say \\"hi\\"" [active] [ref=g2t3e7]
  - 'button "a: b" [ref=e8]'
  - iframe [ref=e9]:
    - generic [ref=f1e1]:
      - button "Pay" [ref=f1e2]
  - checkbox "Pay" [ref=e10]"""


@pytest.mark.parametrize(
    ("ref", "code"),
    [
        ("e2", 'get_by_role("button", name="Save", exact=True)'),
        ("e14", 'get_by_role("button", name="Save as")'),
        ("g2t3e7", 'get_by_role("textbox", name="Say \\"hi\\"")'),
        ("e10", 'get_by_role("checkbox", name="Pay")'),
    ],
)
def test_role_and_name_are_enough_where_no_other_has_them(ref: str, code: str) -> None:
    assert code_of(SNAPSHOT, ref) == code


@pytest.mark.parametrize("ref", ["e4", "e5", "e6", "e8", "f1e2", "e1", "e99", "e", "1"])
def test_an_element_without_a_unique_name_has_no_code(ref: str) -> None:
    assert code_of(SNAPSHOT, ref) is None


def test_a_long_name_and_an_empty_snapshot_name_nothing() -> None:
    assert code_of(f'- button "{"x" * 101}" [ref=e1]', "e1") is None
    assert code_of("", "e1") is None


def test_a_name_and_a_text_that_look_like_a_ref_are_none() -> None:
    snapshot = """\
- heading "Not [ref=e5] here" [ref=e2]
- 'link "it''s: [ref=e5]" [ref=e3]'
- generic [ref=e4]: "[ref=e5]"
- button "Save" [ref=e5]"""
    assert code_of(snapshot, "e5") == 'get_by_role("button", name="Save")'
    assert role_of(snapshot, "e5") == "button"
    assert role_of(snapshot, "e3") == "link"


async def test_the_page_finds_the_named_element(browse: Browse, lab: str) -> None:
    snapshot = await browse.text("navigate", url=f"{lab}/counter")
    for name in ("Increment", "Vanish", "Redraw"):
        ref = ref_of(snapshot, name)
        code = code_of(snapshot, ref)
        assert code == f'get_by_role("button", name="{name}")'
        assert f'get_by_role("button", name="{name}")' in str(
            await browse.page.get_by_ref(ref).normalize()
        )


async def test_elements_without_a_name_are_named_by_the_page(browse: Browse) -> None:
    page = "data:text/html,<button>Go</button><button>Go</button><div onclick='0'>Word</div>"
    snapshot = await browse.text("navigate", url=page)
    text = await browse.text("click", target=ref_of(snapshot, "Word"))
    assert 'get_by_text("Word")' in text
    text = await browse.text("click", target=ref_of(snapshot, "Go"))
    assert 'get_by_role("button", name="Go").first' in text
