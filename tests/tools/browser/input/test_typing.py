"""Keys, compositions, pastes and copies of a person; addresses, history, tabs, dialogs and files."""

from __future__ import annotations

import base64
from typing import Any

import anyio
import pytest
from pydantic import ValidationError
from support.browsing import Browse
from support.pixels import COUNTER
from support.selection import matrix
from support.taking_over import Person, press
from support.waiting import until

from statehold.sessions.errors import ControlRefused, ServiceUnavailable
from statehold.tools.browser.input.events import InputBatch
from statehold.tools.browser.screencast.frames import PageCondition

FIELDS = """<body><input id=name autofocus><input id=password type=password><textarea id=text></textarea>
<div id=rich contenteditable></div>
<script>log = []; for (const kind of ["compositionstart", "compositionend", "paste"])
  addEventListener(kind, event => log.push(kind + (event.data ?? event.clipboardData?.getData("text") ?? "")));
</script>"""


async def shown(person: Person, html: str) -> Any:
    page = (await person.connection.session.current()).page
    await page.set_content(html)
    return page


async def value_of(page: Any, field: str) -> str:
    return await page.locator(f"#{field}").evaluate("e => e.value ?? e.textContent")


async def test_keys_type_edit_and_move(person: Person) -> None:
    page = await shown(person, FIELDS)
    await page.focus("#name")
    await person.type("Ada Löveläce €ñ日")
    assert await value_of(page, "name") == "Ada Löveläce €ñ日"
    await person.act(*press("Backspace"), *press("Home"), *press("Delete"))
    assert await value_of(page, "name") == "da Löveläce €ñ"
    await person.act(*press("Tab"))
    assert await page.evaluate("document.activeElement.id") == "password"
    await person.act(*press("Tab", modifiers=8), *press("a", code="KeyA", modifiers=2))
    await person.type("x")
    assert await value_of(page, "name") == "x"
    await page.focus("#text")
    await person.act(*press("1"), *press("Enter"), *press("2"))
    assert await value_of(page, "text") == "1\n2"


async def test_pages_see_keys_as_of_a_keyboard(person: Person) -> None:
    page = await shown(person, FIELDS)
    await page.focus("#name")
    await page.evaluate(
        """() => { keys = []; document.querySelector("#name").addEventListener("keydown", e =>
             keys.push([e.key, e.code, e.keyCode, e.shiftKey, e.repeat, e.location])); }"""
    )
    await person.act(
        *press("A", code="KeyA", modifiers=8),
        *press("Escape", code="Escape"),
        *press("5", code="Numpad5", key_code=101, location=3),
        *press("é", code="Digit2", key_code=50),
        *press("@", code="KeyQ", modifiers=3),
    )
    assert await page.evaluate("keys") == [
        ["A", "KeyA", 65, True, False, 0],
        ["Escape", "Escape", 27, False, False, 0],
        ["5", "Numpad5", 101, False, False, 3],
        ["é", "Digit2", 50, False, False, 0],
        ["@", "KeyQ", 81, False, False, 0],
    ]
    assert await value_of(page, "name") == "A5é@"


async def test_a_dead_key_and_an_input_method_compose_text(person: Person) -> None:
    page = await shown(person, FIELDS)
    await page.focus("#text")
    await person.act(
        *press("Dead", code="BracketLeft"),
        {"type": "composition", "text": "^", "start": 1, "end": 1},
        {"type": "text", "text": "ê"},
        {"type": "composition", "text": "にほ", "start": 2, "end": 2},
    )
    assert await value_of(page, "text") == "êにほ"
    await person.act({"type": "text", "text": "日本"})
    assert await value_of(page, "text") == "ê日本"
    await person.act({"type": "composition", "text": "か"}, {"type": "composition", "text": ""})
    assert await value_of(page, "text") == "ê日本"
    log = await page.evaluate("log")
    assert log.count("compositionstart") == 3
    assert "compositionend日本" in log


async def test_a_paste_is_an_event_and_a_text(person: Person) -> None:
    page = await shown(person, FIELDS)
    await page.focus("#rich")
    await person.act({"type": "paste", "text": "one\ntwo"})
    assert "one" in await value_of(page, "rich")
    assert await page.evaluate("log") == ["pasteone\ntwo"]
    await page.evaluate("() => { text.onpaste = event => event.preventDefault(); }")
    await page.focus("#text")
    await person.act({"type": "paste", "text": "refused"})
    assert await value_of(page, "text") == ""


async def test_the_selection_is_copied_from_fields_and_frames_but_not_passwords(
    person: Person,
) -> None:
    page = await shown(
        person, FIELDS + "<iframe srcdoc='<input id=inner value=within autofocus>'></iframe>"
    )
    copy = {"type": "copy"}
    everything = press("a", code="KeyA", modifiers=2)
    for field, text, copied in (("name", "some", "some"), ("password", "secret", "")):
        await page.fill(f"#{field}", text)
        await page.focus(f"#{field}")
        assert (await person.act(*everything, copy)).copied == copied
    await page.frames[1].focus("#inner")
    assert (await person.act(*everything, copy)).copied == "within"


COPY = """<button style="position: fixed; inset: 0 auto auto 0; width: 100px; height: 40px"
  onclick="navigator.clipboard.writeText('of a button').then(() => textContent = 'Copied!')">Copy</button>"""
PLACE = {"x": 50, "y": 20}
TAP = [{"id": 1, "x": 50, "y": 20}]
GESTURES: dict[str, list[Any]] = {
    "click": [
        {"type": "mouse", "action": action, "button": "left", **PLACE} for action in ("down", "up")
    ],
    "tap": [
        {"type": "touch", "action": "start", "points": TAP},
        {"type": "touch", "action": "end", "points": []},
    ],
    "Enter": press("Enter"),
    "space": press(" ", code="Space"),
}


@pytest.mark.parametrize("gesture", matrix(*GESTURES))
async def test_a_copy_button_copies_for_the_person_and_the_session(
    person: Person, lab: str, gesture: str
) -> None:
    page = (await person.connection.session.current()).page
    await page.goto(f"{lab}/frame")
    await page.set_content(FIELDS + COPY)
    await page.focus("button")
    assert (await person.act(*GESTURES[gesture])).copied == "of a button"
    await until(lambda: page.get_by_text("Copied!").count())
    await page.focus("#text")
    assert (await person.act(*press("v", code="KeyV", modifiers=2))).copied is None
    await until(lambda: value_of(page, "text"))
    assert await value_of(page, "text") == "of a button"


async def test_copied_text_stays_with_the_session(person: Person) -> None:
    page = await shown(person, FIELDS)
    await page.fill("#name", "mine")
    await page.focus("#name")
    await person.act(*press("a", code="KeyA", modifiers=2), *press("c", code="KeyC", modifiers=2))
    await page.focus("#text")
    await person.act(*press("v", code="KeyV", modifiers=2))
    await until(lambda: value_of(page, "text"))
    assert await value_of(page, "text") == "mine"


async def test_addresses_obey_the_rules_of_the_agent(person: Person, lab: str) -> None:
    page = await shown(person, FIELDS)
    for address in ("file:///etc/passwd", "javascript:alert(1)", "chrome://version", ""):
        outcome = await person.act({"type": "address", "address": address})
        assert len(outcome.refusals) == 1
    assert page.url == "about:blank"
    await person.act({"type": "address", "address": f"{lab}/counter"})
    await page.wait_for_url("**/counter")
    await person.act({"type": "address", "address": f"{lab}/links"})
    await page.wait_for_url("**/links")
    for action, address in (("back", "counter"), ("forward", "links")):
        await person.act({"type": "history", "action": action})
        await page.wait_for_url(f"**/{address}")
    await page.evaluate("document.title = 'changed'")
    await person.act({"type": "history", "action": "reload"})
    await page.wait_for_function("document.title !== 'changed'")
    assert (await person.act({"type": "history", "action": "forward"})).refusals


async def test_a_popup_becomes_a_tab_that_the_person_can_use(person: Person) -> None:
    session = person.connection.session
    page = await shown(
        person,
        "<button style='position:fixed;left:0;top:0;width:99px;height:99px'"
        " onclick=\"window.open('about:blank').document.write('<input autofocus id=a>')\">open",
    )
    async with page.expect_popup() as popup:
        await person.click(50, 50)
    await until(lambda: len(session.tabs) == 2)
    await person.act({"type": "tab", "action": "select", "index": 1})
    current = await session.current()
    assert current.page == await popup.value
    await current.page.focus("#a")
    await person.act(*press("z"), tab=current.number)
    assert await current.page.evaluate("a.value") == "z"
    await person.act({"type": "tab", "action": "close", "index": 1})
    assert (await person.act(*press("z"), tab=current.number)).refusals
    await person.act({"type": "tab", "action": "open"})
    assert len(session.tabs) == 2
    assert (await person.act({"type": "tab", "action": "select", "index": 9})).refusals


async def test_a_dialog_that_a_click_opens_is_seen_and_answered(person: Person) -> None:
    button = "<button style='position:fixed;left:0;top:100px;width:99px;height:99px' onclick=\"answer = prompt('Name?')\">"
    page = await shown(person, COUNTER + button)
    async with person.connection.screencast.watch() as viewer:
        for answer, expected in (
            ({"accept": True, "text": "Ada"}, "Ada"),
            ({"accept": False}, None),
        ):
            with anyio.fail_after(20):
                await person.click(50, 150)
                async for update in viewer:
                    if update.condition is PageCondition.DIALOG:
                        break
                assert (await person.act(*press("x"))).refusals
                await person.act({"type": "dialog", **answer})
                async for update in viewer:
                    if update.condition is PageCondition.LIVE:
                        break
            assert await page.evaluate("answer") == expected
    assert (await person.act({"type": "dialog", "accept": True})).refusals


async def test_a_file_chooser_takes_files_of_both_sides(person: Person) -> None:
    page = await shown(
        person,
        "<input type=file multiple style='position:fixed;left:0;top:0;width:300px;height:90px'>",
    )
    files = person.connection.session.files
    await files.write("kept.txt", b"of the session")
    contents = """async () => Object.fromEntries(await Promise.all(
      [...document.querySelector("input").files].map(async file => [file.name, await file.text()])))"""

    async def choose(**answer: Any) -> Any:
        await person.click(50, 45)
        await until(lambda: person.connection.session.tabs.current.chooser)  # pyright: ignore[reportOptionalMemberAccess]
        return await person.act({"type": "files", **answer})

    upload = {"name": "mine.txt", "content": base64.b64encode(b"of the person").decode()}
    assert not (await choose(uploads=[upload])).refusals
    assert await page.evaluate(contents) == {"mine.txt": "of the person"}
    assert not (await choose(names=["kept.txt"])).refusals
    assert await page.evaluate(contents) == {"kept.txt": "of the session"}
    await choose()
    assert await page.evaluate(contents) == {"kept.txt": "of the session"}
    assert (await choose(names=["/etc/passwd"])).refusals
    assert (await person.act({"type": "files", "names": ["kept.txt"]})).refusals == ()
    assert (await person.act({"type": "files"})).refusals


async def test_a_batch_of_another_epoch_does_nothing(browse: Browse) -> None:
    await browse.connection.session.current()
    person = Person(browse.connection)
    page = await shown(person, FIELDS)
    await page.focus("#text")
    with pytest.raises(ServiceUnavailable):
        await person.act(*press("a"))
    await browse.connection.begin_human_control()
    with pytest.raises(ControlRefused):
        await person.act(*press("b"), epoch=2)
    await person.act(*press("c"))
    await browse.connection.end_human_control()
    with pytest.raises(ServiceUnavailable):
        await person.act(*press("d"))
    assert await value_of(page, "text") == "c"


async def test_control_that_ends_during_a_batch_ends_the_batch(browse: Browse) -> None:
    await browse.connection.session.current()
    await browse.connection.begin_human_control()
    person = Person(browse.connection)
    page = await shown(person, FIELDS)
    await page.focus("#text")
    refused = anyio.Event()

    async def type_all() -> None:
        with pytest.raises(ControlRefused):
            await person.act(*(event for _ in range(100) for event in press("a")))
        refused.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(type_all)
        await page.wait_for_function("text.value.length > 2")
        await browse.connection.end_human_control()
        typed = await value_of(page, "text")
        await refused.wait()
        assert 2 < len(typed) < 100
        assert await value_of(page, "text") == typed


@pytest.mark.parametrize(
    "event",
    [
        {"type": "mouse", "action": "move", "x": float("nan"), "y": 0},
        {"type": "mouse", "action": "jump", "x": 0, "y": 0},
        {"type": "key", "action": "down", "key": "a" * 101},
        {"type": "script", "code": "1"},
        {"type": "text"},
    ],
)
def test_malformed_events_are_refused(event: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        InputBatch.model_validate({"epoch": 1, "events": [event]})
