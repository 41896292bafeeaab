"""A person types over the console: keys, input methods, keyboards of phones, the clipboard."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import CDPSession, Page
from support.console_page import ConsolePage
from support.waiting import until

from statehold.tools.browser.devtools.world import send_command

FIELD = """<!doctype html><body style="margin:0"><textarea id=text autofocus
style="position:absolute;left:0;top:0;width:600px;height:300px;border:0;background:#f00"></textarea>
<input id=next style="position:absolute;left:0;top:400px"><script>log = [];
for (const kind of ["keydown", "keyup", "compositionstart", "compositionend", "paste", "copy"])
  addEventListener(kind, event => log.push(event.key ? `${kind} ${event.key} ${event.repeat}` : kind));
</script>"""


@pytest.fixture
async def field(eve: ConsolePage, watched: Page) -> Page:
    """The page with a text field, which the person has clicked."""
    await eve.show(watched, FIELD)
    await eve.click_color()
    await watched.wait_for_function("document.activeElement.id === 'text'")
    return watched


async def until_text(page: Page, text: str) -> None:
    async def has_text() -> bool:
        return await page.evaluate("text.value") == text

    try:
        await until(has_text, within=10)
    except TimeoutError:
        assert await page.evaluate("text.value") == text


@pytest.mark.thorough
async def test_letters_are_keys_and_shortcuts_edit(eve: ConsolePage, field: Page) -> None:
    keys = eve.page.keyboard
    await keys.type("Ada Löw 2")
    await until_text(field, "Ada Löw 2")
    log = await field.evaluate("log")
    assert log[:2] == ["keydown A false", "keyup A false"]
    await keys.press("Backspace")
    await keys.press("Enter")
    await keys.type("x")
    await until_text(field, "Ada Löw \nx")
    await keys.press("ArrowUp")
    await keys.press("Home")
    await keys.type("-")
    await keys.press("Control+ArrowRight")
    await keys.press("Shift+End")
    await keys.type("!")
    await until_text(field, "-Ada!\nx")
    await keys.press("Control+a")
    await keys.type("new")
    await until_text(field, "new")
    await keys.press("Control+z")
    await field.wait_for_function("text.value !== 'new'")
    await keys.press("Tab")
    await field.wait_for_function("document.activeElement.id === 'next'")
    await keys.press("Escape")
    await field.wait_for_function("log.includes('keydown Escape false')")
    assert "/s/" in eve.page.url


@pytest.mark.thorough
async def test_a_held_key_repeats_and_is_released_with_the_focus(
    eve: ConsolePage, field: Page
) -> None:
    keys = eve.page.keyboard
    for _ in range(3):
        await keys.down("k")
    await until_text(field, "kkk")
    log: list[str] = await field.evaluate("log")
    assert log.count("keydown k true") == 2
    assert "keyup k false" not in log
    await eve.page.evaluate("window.dispatchEvent(new Event('blur'))")
    await field.wait_for_function("log.includes('keyup k false')")
    await keys.up("k")


async def compose(devtools: CDPSession, text: str) -> None:
    params = {"text": text, "selectionStart": len(text), "selectionEnd": len(text)}
    await send_command(devtools, "Input.imeSetComposition", params)


@pytest.mark.thorough
async def test_an_input_method_composes_in_the_page(eve: ConsolePage, field: Page) -> None:
    devtools = await eve.devtools()
    for text in ("n", "に", "にほ", "にほん"):
        await compose(devtools, text)
    # The person sees it before it is final.
    await until_text(field, "にほん")
    assert "compositionend" not in await field.evaluate("log")
    await send_command(devtools, "Input.insertText", {"text": "日本"})
    await until_text(field, "日本")
    await compose(devtools, "abc")
    await until_text(field, "日本abc")
    await compose(devtools, "")
    await until_text(field, "日本")
    await eve.page.keyboard.type("!")
    await until_text(field, "日本!")


async def press(devtools: CDPSession, **key: Any) -> None:
    kind = "keyDown" if key.get("text") else "rawKeyDown"
    await send_command(devtools, "Input.dispatchKeyEvent", {"type": kind, **key})
    up = {name: value for name, value in key.items() if name != "text"}
    await send_command(devtools, "Input.dispatchKeyEvent", {"type": "keyUp", **up})


@pytest.mark.thorough
async def test_a_dead_key_makes_one_letter(eve: ConsolePage, field: Page) -> None:
    devtools = await eve.devtools()
    await press(devtools, key="Dead", code="Equal", windowsVirtualKeyCode=221)
    await press(devtools, key="ê", code="KeyE", windowsVirtualKeyCode=69, text="ê")
    await until_text(field, "ê")
    # Two letters at once, where the second takes no accent.
    await press(devtools, key="Dead", code="Equal", windowsVirtualKeyCode=221)
    await press(devtools, key="x", code="KeyX", windowsVirtualKeyCode=88, text="^x")
    await until_text(field, "ê^x")
    await eve.page.keyboard.type("y")
    await until_text(field, "ê^xy")


@pytest.mark.thorough
async def test_the_keyboard_of_a_phone_types_deletes_and_enters(
    eve: ConsolePage, field: Page
) -> None:
    devtools = await eve.devtools()

    async def edit(command: str, text: str = "") -> None:
        """Do what a phone does: a key without a name, then a change of the text field."""
        await press(devtools, key="Unidentified", windowsVirtualKeyCode=229)
        script = "([command, text]) => document.execCommand(command, false, text)"
        assert await eve.page.evaluate(script, [command, text])

    for letter in "cat":
        await edit("insertText", letter)
    await until_text(field, "cat")
    for _ in range(2):
        await edit("delete")
    await until_text(field, "c")
    await edit("insertLineBreak")
    await until_text(field, "c\n")
    assert "keydown Enter false" in await field.evaluate("log")
    assert "keydown Backspace false" in await field.evaluate("log")
    # Words are composed, and shortened while they are.
    for text in ("h", "he", "hex", "he", "hey"):
        await compose(devtools, text)
    await send_command(devtools, "Input.insertText", {"text": "hey"})
    await edit("insertText", " ")
    await until_text(field, "c\nhey ")
    for _ in range(30):
        await edit("delete")
    await until_text(field, "")


@pytest.mark.thorough
async def test_text_is_pasted_copied_and_cut(eve: ConsolePage, field: Page) -> None:
    page, keys = eve.page, eve.page.keyboard
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.evaluate("navigator.clipboard.writeText('from outside')")
    await page.keyboard.press("Control+v")
    await until_text(field, "from outside")
    assert "paste" in await field.evaluate("log")

    async def clipboard() -> str:
        return await page.evaluate("navigator.clipboard.readText()")

    await keys.type(" and inside")
    await keys.press("Control+a")
    await keys.press("Control+c")

    async def has_copied() -> bool:
        return await clipboard() == "from outside and inside"

    await until(has_copied)
    await keys.press("Shift+Home")
    await keys.press("Control+a")
    await keys.press("Control+x")
    await until_text(field, "")
    await keys.press("Control+v")
    await until_text(field, "from outside and inside")


@pytest.mark.thorough
async def test_keys_reach_a_page_without_a_field_and_from_nowhere(
    eve: ConsolePage, watched: Page
) -> None:
    await watched.set_content("<script>log = []; onkeydown = event => log.push(event.key)</script>")
    await eve.page.evaluate("document.activeElement.blur()")
    await eve.page.keyboard.press("j")
    await watched.wait_for_function("log.join() === 'j'")
    await eve.page.keyboard.press("/")
    await watched.wait_for_function("log.join() === 'j,/'")
    await eve.page.keyboard.press("F6")
    assert "Done" in await eve.page.evaluate("document.activeElement.textContent")
