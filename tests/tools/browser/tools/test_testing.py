"""Tools that check the content of a page."""

from __future__ import annotations

import pytest
from support.browsing import Browse, section

from statehold.sessions.errors import InvalidArgument

pytestmark = pytest.mark.peer


async def test_an_element_is_named_as_a_test_would(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    text = await browse.text("generate_locator", target=await browse.ref('textbox "Email"'))
    assert section(text, "Result") == 'get_by_role("textbox", name="Email")'
    by_selector = await browse.text("generate_locator", target="[name=email]", element="Email")
    assert section(by_selector, "Result") == 'get_by_role("textbox", name="Email")'
    assert "is not on the page any more" in await browse.error("generate_locator", target="e999")


async def test_an_element_is_seen_by_role_and_name(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    text = await browse.text("verify_element_visible", role="button", accessibleName="Send")
    assert section(text, "Result") == "Done"
    assert "expect(page.get_by_role('button', name='Send')).to_be_visible()" in text
    gone = await browse.error("verify_element_visible", role="button", accessibleName="Nope")
    assert 'Element with role "button" and accessible name "Nope" not found' in gone


async def test_an_element_that_is_hidden_is_there_but_not_visible(browse: Browse) -> None:
    """A link around content that floats has no size, and is seen all the same."""
    page = """<button hidden>Save</button><a href='/'><b style='float:left'>Home</b></a>"""
    await browse.text("navigate", url=f"data:text/html,{page}")
    element = {"role": "button", "accessibleName": "Save"}
    error = section(await browse.error("verify_element_visible", **element), "Error")
    assert "is there, but not visible" in error
    await browse.text("verify_element_visible", role="link", accessibleName="Home")


@pytest.mark.thorough
async def test_an_element_in_a_frame_is_seen(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/iframes")
    button = {"role": "Button", "accessibleName": "Tell"}
    for tool, arguments, end in (
        ("verify_element_visible", button, '.get_by_role("button", name="Tell")).to_be_visible()'),
        ("verify_text_visible", {"text": "Frame inner"}, ".to_be_visible()"),
        ("wait_for", {"text": "Frame inner"}, ".wait_for(state='visible')"),
    ):
        code = section(await browse.text(tool, **arguments), "Ran Playwright code")
        assert "page.locator(" in code, tool
        assert ".content_frame." in code, tool
        assert end in code, tool


async def test_a_role_is_a_word(browse: Browse) -> None:
    with pytest.raises(InvalidArgument):
        await browse.call("verify_element_visible", role="a][b", accessibleName="x")


async def test_a_text_is_seen_unless_it_is_hidden(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    assert "Done" in await browse.text("verify_text_visible", text="Long form")
    await browse.value("() => { document.querySelector('h1').hidden = true }")
    assert "Text not found" in await browse.error("verify_text_visible", text="Long form")


async def test_a_list_shows_its_items(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/scroll")
    text = await browse.text(
        "verify_list_visible", element="items", target="ol", items=["Item 1", "Item 2"]
    )
    assert section(text, "Result") == "Done"
    assert '- listitem: "Item 1"' in text
    missing = await browse.error(
        "verify_list_visible", element="items", target="ol", items=["Item 1", "Nothing"]
    )
    assert 'Item "Nothing" not found' in missing


async def test_a_field_has_its_value(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    for kind, name, value, actual in (
        ("slider", "level", "50", None),
        ("textbox", "first", "", None),
        ("textbox", "first", "wrong", ""),
        ("checkbox", "news", "false", None),
        ("checkbox", "news", "true", "false"),
        ("combobox", "country", "Norway", None),
        ("combobox", "country", "Japan", "Norway"),
    ):
        arguments = {"type": kind, "element": name, "target": f"[name={name}]", "value": value}
        if actual is None:
            assert "Done" in await browse.text("verify_value", **arguments)
        else:
            text = await browse.error("verify_value", **arguments)
            assert f'Expected value "{value}", but got "{actual}"' in text


@pytest.mark.thorough
async def test_a_choice_has_the_value_and_the_words_that_are_shown_for_it(browse: Browse) -> None:
    page = "<select><option value=no>Norway</option></select>"
    await browse.text("navigate", url=f"data:text/html,{page}")
    for value in ("no", "Norway"):
        await browse.text(
            "verify_value", type="combobox", element="c", target="select", value=value
        )


@pytest.mark.thorough
async def test_a_field_that_is_no_input_has_a_value_too(browse: Browse) -> None:
    page = """<b role=slider aria-valuenow=7>seven</b><div role=textbox contenteditable>free</div>
<i role=combobox>red</i><p></p>"""
    await browse.text("navigate", url=f"data:text/html,{page}")
    for kind, target, value, call in (
        ("slider", "b", "7", "to_have_attribute('aria-valuenow', '7')"),
        ("textbox", "div", "free", "to_have_text('free')"),
        ("combobox", "i", "red", "to_have_text('red')"),
    ):
        arguments = {"type": kind, "element": "field", "target": target}
        code = f"await expect(page.locator({target!r})).{call}"
        assert code in await browse.text("verify_value", value=value, **arguments)
    text = await browse.error("verify_value", type="textbox", element="p", target="p", value="")
    assert "It is no field" in section(text, "Error")
