"""Actions that end halfway: no result claims an action that did not happen, and no key stays pressed or unreported."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import anyio
import pytest
from support.browsing import Browse, section
from support.selection import matrix

pytestmark = pytest.mark.peer


async def shown(browse: Browse, lab: str, body: str) -> None:
    await browse.text("navigate", url=f"{lab}/frame")
    await browse.value(f"() => {{ document.body.innerHTML = {json.dumps(body)}; }}")


@pytest.mark.thorough
async def test_a_drag_onto_what_takes_nothing_fails_and_lets_go_of_the_mouse(
    browse: Browse, lab: str
) -> None:
    await shown(browse, lab, "<button id=a>a</button><p id=z hidden>z</p><p id=log></p>")
    await browse.value("""() => {
      for (const kind of ["mousedown", "mouseup", "click"])
        addEventListener(kind, e => { document.querySelector("#log").textContent += `${kind}-${e.target.id} `; });
      addEventListener("mousemove", e => { window.pressed = e.buttons; });
    }""")
    config = browse.service.config.model_copy(update={"action_seconds": 0.5})
    browse.connection.session.config = config
    text = await browse.error("drag", startTarget="#a", endTarget="#z")
    assert "element is not visible" in section(text, "Error")
    assert "mousedown-a mouseup-" in text
    assert "click-a" not in text
    await browse.text("hover", target="#log")
    assert await browse.value("() => window.pressed") == 0


@pytest.mark.thorough
async def test_a_drag_that_is_cancelled_lets_go_of_the_mouse(browse: Browse, lab: str) -> None:
    await shown(browse, lab, "<button id=a>a</button><p id=z hidden>z</p><p id=log>log</p>")
    await browse.value("""() => {
      addEventListener("mousedown", () => { window.down = true; });
      addEventListener("mousemove", e => { window.pressed = e.buttons; });
    }""")
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(browse.call, "drag", startTarget="#a", endTarget="#z"))
            await browse.page.wait_for_function("() => window.down && window.pressed")
            tasks.cancel_scope.cancel()
    await browse.text("hover", target="#log")
    assert await browse.value("() => window.pressed") == 0


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "value"), [("checkbox", "true"), ("radio", "true")])
async def test_a_box_that_its_page_does_not_tick_is_an_error(
    browse: Browse, lab: str, kind: str, value: str
) -> None:
    await shown(browse, lab, f'<input type={kind} id=box onclick="return false">')
    field = {"name": "the box", "type": kind, "target": "#box", "value": value}
    text = await browse.error("fill_form", fields=[field])
    assert "the box: Clicking the checkbox did not change its state." in section(text, "Error")


@pytest.mark.thorough
async def test_a_key_that_is_none_leaves_no_other_one_held_down(browse: Browse, lab: str) -> None:
    await shown(browse, lab, '<button onclick="window.held = event.ctrlKey">b</button>')
    text = await browse.error("press_key", key="Control+Retrun")
    assert 'Unknown key: "Retrun". Keys are named such as Enter' in section(text, "Error")
    await browse.text("click", target="button")
    assert await browse.value("() => window.held") is False


@pytest.mark.parametrize(
    ("script", "value"),
    matrix(
        ("() => confirm('go?') ? 'YES' : 'NO'", '"YES"'),
        ("async () => { alert('one'); return [1]; }", "[1]"),
    ),
)
async def test_the_value_of_a_script_comes_with_the_answer_to_its_dialog(
    browse: Browse, lab: str, script: str, value: str
) -> None:
    await shown(browse, lab, "")
    text = await browse.text("evaluate", function=script)
    assert "### Result" not in text
    assert "has not returned yet" in section(text, "Events")
    text = await browse.text("handle_dialog", accept=True)
    events = "".join(section(text, "Events").split())
    assert f"-Thescriptthathadwaitedreturned{value}" in events


async def test_a_dialog_in_a_form_leaves_the_other_fields_empty(browse: Browse, lab: str) -> None:
    await shown(browse, lab, "<input id=a oninput=\"alert('typed')\"><input id=b><input id=c>")
    fields: list[dict[str, Any]] = [
        {"name": f"field {name}", "type": "textbox", "target": f"#{name}", "value": "1"}
        for name in "abc"
    ]
    text = await browse.text("fill_form", fields=fields)
    left = "- Not filled in: field b, field c, because the page asks something first."
    assert left in section(text, "Events")
    await browse.text("handle_dialog", accept=True)
    await browse.text("fill_form", fields=fields[1:])
    values = "() => [...document.querySelectorAll('input')].map(e => e.value)"
    assert await browse.value(values) == ["1", "1", "1"]


@pytest.mark.thorough
async def test_enter_is_not_pressed_where_the_page_asks_something_first(
    browse: Browse, lab: str
) -> None:
    await shown(browse, lab, "<input id=a oninput=\"alert('typed')\">")
    text = await browse.text("type", target="#a", text="x", submit=True)
    assert "- Enter was not pressed, because" in section(text, "Events")
    assert "press('Enter')" not in text
    await browse.text("handle_dialog", accept=True)


@pytest.mark.thorough
async def test_a_slider_says_what_it_made_of_a_value(browse: Browse, lab: str) -> None:
    await shown(browse, lab, "<input type=range min=0 max=10 step=2>")
    field = {"name": "Level", "type": "slider", "target": "input", "value": "50"}
    text = await browse.text("fill_form", fields=[field])
    assert "- Level: the field made 10 of 50." in section(text, "Events")
    text = await browse.text("fill_form", fields=[{**field, "value": "4"}])
    assert "### Events" not in text


async def test_an_empty_form_is_refused(browse: Browse) -> None:
    with pytest.raises(Exception, match="at least 1"):
        await browse.call("fill_form", fields=[])
