"""Clicking, hovering, dragging and dropping."""

from __future__ import annotations

from contextlib import suppress

import anyio
import pytest
from playwright.async_api import Error, Route
from support.browsing import Browse, ref_of, section
from support.selection import matrix

pytestmark = pytest.mark.peer

CARD = "position: absolute; left: 20px; width: 120px; height: 40px; background: silver"
OVERLAY = f"""
<div id=card role=button aria-label=Card style="{CARD}; top: 20px">Card</div>
<div id=zone role=region aria-label=Zone style="{CARD}; top: 300px">Zone</div><output></output><script>
let overlay;
card.onpointerdown = () => {{
  let start;
  onpointermove = event => {{
    start ??= event;
    if (Math.hypot(event.x - start.x, event.y - start.y) < 8) return;
    if (!overlay) document.body.append(overlay = card.cloneNode(true));
    overlay.id = "overlay";
    overlay.style.position = "fixed";
    overlay.style.left = event.x - 60 + "px";
    overlay.style.top = event.y - 20 + "px";
  }};
}};
onpointerup = event => {{
  onpointermove = null;
  const box = zone.getBoundingClientRect(), over = overlay?.getBoundingClientRect();
  const middle = over && over.top + over.height / 2;
  document.querySelector("output").textContent =
    overlay && middle > box.top && middle < box.bottom ? "dropped on the zone" : "dropped beside";
  overlay?.remove();
}};
</script>"""
"""A copy of the card follows the pointer and lies on what is below, as the overlay of dnd-kit."""
CAPTURED = """
<style>li { height: 40px; width: 200px; touch-action: none; position: relative }</style>
<ul id=list><li>One</li><li>Two</li><li>Three</li><li>Four</li></ul><output></output><script type=module>
let row, from, moved = 0;
list.onpointerdown = event => {
  row = event.target;
  from = event.y;
  row.setPointerCapture(event.pointerId);
};
list.onpointermove = event => {
  if (!row?.hasPointerCapture(event.pointerId)) return;
  row.style.zIndex = 1;
  row.style.top = event.y - from + "px";
  const next = list.children[moved + 1];
  if (next && event.y - from > 40 * moved + 20) {
    next.style.top = "-40px";
    moved += 1;
  }
};
list.onpointerup = () => {
  list.children[moved].after(row);
  document.querySelector("output").textContent = [...list.children].map(e => e.textContent).join(" ");
};
</script>"""
"""A list whose rows take the pointer and trade places one by one."""
POLLED = f"""
<div id=card role=button aria-label=Card style="{CARD}; top: 20px">Card</div>
<div id=zone role=region aria-label=Zone style="{CARD}; top: 300px">Zone</div><output></output><script>
let last, over = "beside", timer;
card.onpointerdown = () => {{
  onpointermove = event => {{ last = event; }};
  timer = setInterval(() => {{
    if (last) over = document.elementFromPoint(last.x, last.y).id;
  }}, 50);
}};
onpointerup = () => {{
  clearInterval(timer);
  document.querySelector("output").textContent = "dropped on the " + over;
}};
</script>"""
"""Looks every 50 ms at what is below the pointer, as SortableJS does without native drag and drop."""
PULSING = (
    OVERLAY
    + "<style>@keyframes p { to { transform: scale(1.1) } } #zone { animation: p 1s infinite }</style>"
)
FAR = (
    OVERLAY.replace("top: 300px", "top: 3000px") + "<style>html { scroll-behavior: smooth }</style>"
)


async def test_a_click_by_ref_answers_with_what_it_changed(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    text = await browse.text("click", element="the button", target=await browse.ref("Increment"))
    assert 'status [ref=e11]: "1"' in section(text, "Snapshot")
    assert 'await page.get_by_role("button", name="Increment").click()' in text


async def test_a_click_has_buttons_modifiers_and_a_second_click(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/pad")
    await browse.text("click", target="#pad", doubleClick=True, modifiers=["Shift"])
    text = await browse.text("click", target="#pad", button="right")
    assert "dblclick" in text
    assert "contextmenu" in text
    assert "click(button='right')" in text


async def test_a_selector_has_to_match_one_element(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    many = await browse.error("click", target="button")
    assert "matches 6 elements" in many
    assert "Increment" in section(many, "Snapshot")
    assert "matches no element" in await browse.error("click", target="#nothing")
    assert "no selector" in await browse.error("click", target="[[")


async def test_a_ref_that_is_gone_is_answered_at_once_with_a_fresh_snapshot(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    old = await browse.ref("Old")
    await browse.text("click", target="text=Redraw")
    browse.connection.session.config = browse.service.config.model_copy(
        update={"action_seconds": 1000.0}
    )
    text = await browse.error("click", target=old, element="the old button")
    assert f"Ref {old} (the old button) is not on the page any more" in section(text, "Error")
    assert 'button "Fresh"' in section(text, "Snapshot")


@pytest.mark.thorough
async def test_a_ref_of_the_page_before_is_no_ref_of_this_one(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    old = await browse.ref("Increment")
    await browse.text("navigate", url=f"{lab}/form")
    assert f"Ref {old} is not on the page any more" in await browse.error("click", target=old)


@pytest.mark.parametrize(
    ("name", "reason"), matrix(("Disabled", "not enabled"), ("Outside", "outside of the viewport"))
)
async def test_an_element_that_cannot_be_clicked_says_why(
    browse: Browse, lab: str, name: str, reason: str
) -> None:
    browse.connection.session.config = browse.service.config.model_copy(
        update={"action_seconds": 0.3}
    )
    await browse.text("navigate", url=f"{lab}/counter")
    text = await browse.error("click", target=f"text={name}")
    assert reason in section(text, "Error")
    assert "Call log" not in text


async def test_hovering_opens_a_menu(browse: Browse, lab: str) -> None:
    before = await browse.text("navigate", url=f"{lab}/hover")
    assert "Second" not in before
    text = await browse.text("hover", target=await browse.ref("Menu"))
    assert 'link "Second"' in section(text, "Snapshot")


async def test_dragging_one_element_onto_another(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/drag")
    start, end = await browse.ref("Parcel"), await browse.ref("Shelf")
    text = await browse.text(
        "drag", startTarget=start, endTarget=end, startElement="parcel", endElement="shelf"
    )
    assert "dropped parcel" in section(text, "Snapshot")
    assert ".drag_to(page.get_by_role(" in text


async def show(browse: Browse, lab: str, body: str) -> None:
    async def answer(route: Route) -> None:
        await route.fulfill(body=f"<!doctype html>{body}", content_type="text/html")

    await browse.text("navigate", url=f"{lab}/frame")
    await browse.page.route("**/drag-page", answer)
    await browse.text("navigate", url=f"{lab}/drag-page")


@pytest.mark.parametrize(
    "body",
    matrix(
        pytest.param(OVERLAY, id="overlay"),
        pytest.param(POLLED, id="polled"),
        pytest.param(PULSING, id="pulsing"),
        pytest.param(FAR, id="far"),
    ),
)
async def test_a_card_is_dropped_on_a_zone(browse: Browse, lab: str, body: str) -> None:
    await show(browse, lab, body)
    start, end = await browse.ref("Card"), await browse.ref("Zone")
    text = await browse.text("drag", startTarget=start, endTarget=end)
    assert "dropped on the zone" in section(text, "Snapshot")


async def test_a_row_that_captures_the_pointer_is_moved_past_others(
    browse: Browse, lab: str
) -> None:
    await show(browse, lab, CAPTURED)
    text = await browse.text("drag", startTarget="text=One", endTarget="text=Three")
    assert "Two Three One Four" in section(text, "Snapshot")


async def test_dropping_texts_and_files_of_the_session(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/drag")
    text = await browse.text("drop", target="#to", data={"text/plain": "a word"})
    assert "dropped a word" in text
    await browse.connection.session.files.write("note.txt", b"12345")
    text = await browse.text("drop", target="#to", paths=["note.txt"])
    assert "note.txt: 5" in section(text, "Snapshot")
    assert 'At least one of "paths" or "data"' in await browse.error("drop", target="#to")
    assert "no file of this session" in await browse.error(
        "drop", target="#to", paths=["/etc/hosts"]
    )


async def test_a_ref_of_another_tab_is_refused(browse: Browse, lab: str) -> None:
    """Each page numbers its elements anew: it may name something else there."""
    await browse.text("navigate", url=f"{lab}/counter")
    first = await browse.ref("Increment")
    await browse.text("tabs", action="new", url=f"{lab}/counter")
    text = await browse.error("click", target=first, element="the counter")
    assert f"Ref {first} (the counter) is of another tab" in section(text, "Error")
    second = ref_of(section(text, "Snapshot"), "Increment")
    assert second.startswith("t2")
    assert 'get_by_role("button", name="Increment")' in await browse.text("click", target=second)
    await browse.text("tabs", action="select", index=0)
    assert "or select that tab first" in await browse.error("click", target=second)
    await browse.text("click", target=first)
    await browse.text("tabs", action="close", index=1)
    text = section(await browse.error("click", target=second), "Error")
    assert text.startswith(f"Ref {second} is of another tab, which is closed; use a ref of")


@pytest.mark.thorough
async def test_a_ref_of_a_page_that_crashed_is_refused(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    old = await browse.ref("Increment")
    tab = browse.tab
    with suppress(Error):
        await tab.page.goto("chrome://crash")
    with anyio.fail_after(5):
        await tab.modal.wait()
    await browse.text("navigate", url=f"{lab}/counter")
    assert "is of another tab" in await browse.error("click", target=old)
