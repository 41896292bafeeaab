"""Marks on elements, and going through actions step by step."""

from __future__ import annotations

import pytest
from support.browsing import Browse, section

pytestmark = pytest.mark.peer


async def picture(browse: Browse) -> bytes:
    return await browse.page.screenshot()


async def test_an_element_is_marked_until_the_mark_is_taken_away(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    before = await picture(browse)
    ref = await browse.ref('button "Tell"')
    text = await browse.text("highlight", target=ref, element="the button", style="outline: red")
    assert section(text, "Result") == "Highlighted the button"
    assert await picture(browse) != before
    assert "Hid highlight for the button" in await browse.text(
        "hide_highlight", target=ref, element="the button"
    )
    assert await picture(browse) == before


@pytest.mark.thorough
async def test_all_marks_are_taken_away_at_once(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    before = await picture(browse)
    await browse.text("highlight", target="button")
    await browse.text("highlight", target="h1")
    assert "Hid page highlight" in await browse.text("hide_highlight")
    assert await picture(browse) == before


async def test_nothing_paused_is_nothing_to_resume(browse: Browse) -> None:
    assert "Nothing is paused" in await browse.error("resume")
    assert "Nothing is paused" in await browse.error("resume", location="a.py:3")
    assert "write it as file:line" in await browse.error("resume", location="a.py")


async def test_a_step_holds_the_next_action_back_until_it_is_resumed(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    await browse.text("resume", step=True)
    assert browse.connection.busy == "a pause before the next action is on"
    held = await browse.text("click", target="text=Increment")
    assert "can be handled by browser_resume" in section(held, "Modal state")
    assert await browse.value("() => window.count") == 0
    assert "has to wait" in await browse.error("evaluate", function="() => 1")
    assert "[Held back" in str(browse.connection.busy)

    resumed = await browse.text("resume")
    assert section(resumed, "Result") == "Resumed."
    assert 'status [ref=e11]: "1"' in section(resumed, "Snapshot")
    assert browse.connection.busy is None
    await browse.text("click", target="text=Increment")


@pytest.mark.thorough
async def test_actions_run_step_by_step(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    await browse.text("resume", step=True)
    await browse.text("click", target="text=Increment")
    await browse.text("resume", step=True)
    text = await browse.text("click", target="text=Increment")
    assert "can be handled by browser_resume" in section(text, "Modal state")
    assert '"2"' in section(await browse.text("resume"), "Snapshot")


@pytest.mark.thorough
async def test_an_action_that_was_held_back_may_open_a_dialog(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/dialogs")
    await browse.text("resume", step=True)
    await browse.text("click", target="text='Alert'")
    text = await browse.text("resume")
    assert "can be handled by browser_handle_dialog" in section(text, "Modal state")
    await browse.text("handle_dialog", accept=True)
