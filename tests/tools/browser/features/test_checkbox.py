"""Checkboxes and radio buttons that a page hides and draws anew."""

from __future__ import annotations

import pytest
from support.browsing import Browse, section
from support.selection import matrix

pytestmark = pytest.mark.peer

HIDDEN = "position: absolute; width: 1px; height: 1px; margin: -1px; overflow: hidden; clip: rect(0 0 0 0)"
DRAWN = "<span style='display: inline-block; width: 20px; height: 20px; border: 2px solid'></span>"
LINK = "<a href='/elsewhere' style='display: inline-block; width: 80%'>the terms</a>"
INSIDE = f"<label><input type=checkbox id=box style='{HIDDEN}'>{DRAWN} News</label>"
BESIDE = f"<input type=checkbox id=box style='{HIDDEN}'><label for=box>{DRAWN} News</label>"
LINKED = f"<label style='display: block'><input type=checkbox id=box style='{HIDDEN}'>{DRAWN}{LINK}</label>"
COVERED = (
    "<label style='position: relative'><input type=checkbox id=box>"
    "<span style='position: absolute; inset: 0; background: silver'></span> News</label>"
)
GONE = f"<label><input type=checkbox id=box style='display: none'>{DRAWN} News</label>"
PLAIN = "<label><input type=checkbox id=box> News</label>"
BOXES = {
    "inside": INSIDE,
    "beside": BESIDE,
    "linked": LINKED,
    "covered": COVERED,
    "gone": GONE,
    "plain": PLAIN,
}


async def show(browse: Browse, lab: str, body: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.page.set_content(body)


async def is_checked(browse: Browse) -> bool:
    return await browse.value("() => document.querySelector('input').checked")


@pytest.mark.parametrize("name", matrix(*BOXES))
async def test_a_form_ticks_a_drawn_checkbox(browse: Browse, lab: str, name: str) -> None:
    await show(browse, lab, BOXES[name])
    field = {"target": "#box", "name": "News", "type": "checkbox"}
    for value in ("true", "true", "false"):
        text = await browse.text("fill_form", fields=[field | {"value": value}])
        assert f"{'check' if value == 'true' else 'uncheck'}()" in text
        assert await is_checked(browse) == (value == "true")
    assert browse.page.url == f"{lab}/frame"


FILES = {
    "inside": f"<label><input type=file style='{HIDDEN}'><span>Attach</span></label>",
    "beside": f"<input type=file id=f style='{HIDDEN}'><label for=f><span>Attach</span></label>",
    "seen": "<label>Attach <input type=file></label>",
    "transparent": (
        "<label style='position: relative; display: block; height: 40px'>"
        "<input type=file style='opacity: 0; position: absolute'>"
        "<span style='position: absolute; inset: 0; width: 300px; height: 40px'>Attach</span></label>"
    ),
}


@pytest.mark.parametrize("name", matrix(*FILES))
async def test_a_click_on_a_drawn_file_input_opens_its_chooser(
    browse: Browse, lab: str, name: str
) -> None:
    await show(browse, lab, FILES[name])
    text = await browse.text("click", target=await browse.ref('button "Attach'))
    assert "[File chooser]" in text


@pytest.mark.parametrize("by_ref", matrix(True, False))
async def test_a_click_ticks_a_drawn_checkbox(browse: Browse, lab: str, by_ref: bool) -> None:
    await show(browse, lab, INSIDE)
    target = await browse.ref("News") if by_ref else "#box"
    text = await browse.text("click", target=target)
    assert "[checked]" in section(text, "Snapshot")


NONE = "position: absolute; width: 0; height: 0; opacity: 0"
SIZELESS = {
    "empty": f"<label><input type=checkbox style='{NONE}'>{DRAWN} News</label>",
    "bare": f"<label><input type=checkbox style='appearance: none; margin: 0'>{DRAWN} News</label>",
    "scaled": f"<label><input type=radio style='transform: scale(0)'>{DRAWN} News</label>",
    "switch": f"<input type=checkbox role=switch id=s style='{NONE}'><label for=s>{DRAWN} News: \"all\"</label>",
    "framed": f"<iframe srcdoc=\"<label><input type=checkbox style='{NONE}'>News</label>\"></iframe>",
}


@pytest.mark.parametrize("name", matrix(*SIZELESS))
async def test_a_checkbox_without_a_size_has_a_ref(browse: Browse, lab: str, name: str) -> None:
    await show(browse, lab, SIZELESS[name])
    text = await browse.text("click", target=await browse.ref(' "News'))
    assert "[checked]" in section(text, "Snapshot")


@pytest.mark.thorough
async def test_checkboxes_without_a_size_and_of_one_name_have_no_refs(
    browse: Browse, lab: str
) -> None:
    await show(browse, lab, SIZELESS["empty"] * 2)
    text = await browse.text("snapshot")
    assert text.count('checkbox "News"\n') == 2


@pytest.mark.thorough
async def test_the_ref_of_a_checkbox_without_a_size_ends_with_it(browse: Browse, lab: str) -> None:
    await show(browse, lab, SIZELESS["empty"])
    target = await browse.ref('checkbox "News')
    await show(browse, lab, PLAIN.replace("News", "Offers"))
    assert "is not on the page any more" in await browse.error("click", target=target)


@pytest.mark.thorough
async def test_a_form_chooses_a_drawn_radio_button(browse: Browse, lab: str) -> None:
    radio = INSIDE.replace("checkbox", "radio")
    await show(browse, lab, radio)
    field = {"target": "#box", "name": "News", "type": "radio", "value": "true"}
    await browse.text("fill_form", fields=[field])
    assert await is_checked(browse)


@pytest.mark.thorough
async def test_a_checkbox_that_its_page_sets_back_is_reported(browse: Browse, lab: str) -> None:
    await show(
        browse, lab, INSIDE + "<script>box.onchange = () => { box.checked = false }</script>"
    )
    field = {"target": "#box", "name": "News", "type": "checkbox", "value": "true"}
    assert "News: A click on its label did not" in await browse.error("fill_form", fields=[field])
