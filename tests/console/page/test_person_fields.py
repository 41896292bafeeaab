"""Fields whose choices a browser draws outside the picture, and files and pictures that a person gives to a page."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from playwright.async_api import Locator, Page
from support.agent import Agent
from support.console_page import BLUE, RED, ConsolePage, opened_console
from support.selection import matrix
from support.waiting import until

LOG = """<script>log = []; for (const kind of ["input", "change"])
  addEventListener(kind, event => log.push(`${kind} ${event.target.value}`), true)</script>"""
AT = "position:absolute;left:40px;top:60px;width:240px;height:48px;border:0;appearance:none;background:#f00;color:#f00"
COUNTRIES = """<optgroup label="North"><option value=no>Norway<option value=se hidden>Sweden</optgroup>
<optgroup label="South"><option value=gr>Greece<option value=it disabled>Italy</optgroup>"""
LIST = f"""<!doctype html><body style="margin:0">
<select id=field aria-label="Country" style="{AT}">{COUNTRIES}</select>{LOG}"""
IN_SHADOW = f"""<!doctype html><body style="margin:0"><div id=host></div><script>
host.attachShadow({{mode: "open"}}).innerHTML = `<select id=field style="{AT}">{COUNTRIES}</select>`;</script>
{LOG.replace("addEventListener", "host.shadowRoot.addEventListener")}"""
BEHIND_LABEL = f"""<!doctype html><body style="margin:0"><label style="{AT}">Country
<select id=field style="position:absolute;left:400px;top:200px">{COUNTRIES}</select></label>{LOG}"""
TRACKED = f"""{LIST}<script>Object.defineProperty(field, "value", {{
  get: () => field.options[field.selectedIndex].value, set: () => {{ throw new Error("tracked"); }} }})</script>"""
CHOSEN = (
    "(document.querySelector('select') ?? host.shadowRoot.querySelector('select')).selectedIndex"
)
PAGES = {"list": LIST, "shadow": IN_SHADOW, "label": BEHIND_LABEL, "tracked": TRACKED}
DROP = """async ([x, y, names, selector]) => {
  const dataTransfer = new DataTransfer();
  for (const name of names) dataTransfer.items.add(new File(["<svg/>"], name, {type: "image/svg+xml"}));
  const options = {dataTransfer, clientX: x, clientY: y, bubbles: true, cancelable: true};
  const target = document.querySelector(selector);
  return ["dragover", "drop"].map(type => !target.dispatchEvent(new DragEvent(type, options)));
}"""
"""Returns for each event whether the browser is kept from opening the file."""
PASTE = """() => {
  const clipboardData = new DataTransfer();
  clipboardData.items.add(new File([new Uint8Array(9)], "image.png", {type: "image/png"}));
  const options = {clipboardData, bubbles: true, cancelable: true};
  document.querySelector("textarea.keys").dispatchEvent(new ClipboardEvent("paste", options));
}"""
TAKES = """<!doctype html><body style="margin:0;height:100vh;background:#f00" contenteditable><script>log = [];
const note = transfer => log.push(...[...transfer.files].map(file => `${file.name} ${file.type} ${file.size}`));
ondragover = event => event.preventDefault();
ondrop = event => { event.preventDefault(); note(event.dataTransfer); };
document.onpaste = event => { event.preventDefault(); note(event.clipboardData); };</script>"""


def choices(eve: ConsolePage) -> Locator:
    return eve.page.get_by_role("dialog", name="Field of the page")


async def until_log(watched: Page, *lines: str) -> None:
    await watched.wait_for_function("count => log.length >= count", arg=len(lines))
    assert await watched.evaluate("log") == list(lines)


@pytest.mark.parametrize("shape", matrix(*PAGES))
async def test_the_console_shows_the_choices_of_a_list_and_sets_one(
    eve: ConsolePage, watched: Page, shape: str
) -> None:
    await eve.show(watched, PAGES[shape])
    await eve.click_color()
    options = choices(eve).get_by_role("option")
    await options.first.wait_for()
    assert await options.all_inner_texts() == ["Norway", "Greece", "Italy"]
    await options.nth(1).click()
    await until_log(watched, "input gr", "change gr")
    await choices(eve).wait_for(state="detached")
    assert await watched.evaluate(CHOSEN) == 2


@pytest.mark.thorough
async def test_a_list_is_opened_chosen_from_and_left_by_keys_alone(
    eve: ConsolePage, watched: Page
) -> None:
    keys = eve.page.keyboard
    await eve.show(watched, LIST)
    await watched.evaluate("field.focus()")
    await eve.page.evaluate("document.querySelector('textarea.keys').focus()")
    for opener in ("Space", "Alt+ArrowDown", "F4"):
        await keys.press(opener)
        await choices(eve).wait_for()
        await keys.press("Escape")
        await choices(eve).wait_for(state="detached")
    await keys.press("Enter")
    await choices(eve).wait_for()
    await keys.press("ArrowDown")
    await keys.press("Enter")
    await until_log(watched, "input gr", "change gr")
    # The keys are the page's again.
    await watched.evaluate("void (onkeydown = event => log.push(event.key))")
    await keys.press("q")
    await watched.wait_for_function("log.includes('q')")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("date", "2031-05-06"),
        ("time", "07:08"),
        ("month", "2031-05"),
        ("week", "2031-W07"),
        ("datetime-local", "2031-05-06T07:08"),
        ("color", "#102030"),
    ],
)
async def test_the_console_shows_a_field_for_each_kind_of_value(
    eve: ConsolePage, watched: Page, ada: Agent, kind: str, value: str
) -> None:
    field = f'<input id=field type={kind} style="{AT}">'
    cover = f'<div style="{AT};pointer-events:none"></div>'
    await eve.show(watched, f'<!doctype html><body style="margin:0">{field}{cover}{LOG}')
    await eve.click_color()
    control = choices(eve).locator("input")
    await control.wait_for()
    assert await control.get_attribute("type") == kind
    await control.fill(value)
    await choices(eve).get_by_role("button", name="Set").click()
    await until_log(watched, f"input {value}", f"change {value}")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "html",
    [
        f'<select id=field size=3 style="{AT}">{COUNTRIES}</select>',
        f'<select id=field multiple style="{AT}">{COUNTRIES}</select>',
        f'<fieldset disabled><select id=field style="{AT}">{COUNTRIES}</select></fieldset>',
        f'<input id=field type=date readonly style="{AT}">',
        f'<input id=field style="{AT}">',
    ],
)
async def test_fields_whose_choices_are_in_the_picture_get_none(
    eve: ConsolePage, watched: Page, html: str
) -> None:
    cover = f'<div style="{AT};pointer-events:none"></div>'
    page = f'<!doctype html><body style="margin:0">{html}{cover}<script>log = []</script>'
    await eve.show(watched, page)
    await watched.evaluate("addEventListener('mouseup', () => log.push('up'))")
    async with eve.page.expect_response(lambda r: '"up"' in (r.request.post_data or "")) as sent:
        await eve.click_color()
    answer: Any = await (await sent.value).json()
    assert answer["field"] is None


@pytest.mark.thorough
async def test_the_choices_of_a_hostile_page_are_text_and_cut(
    eve: ConsolePage, watched: Page
) -> None:
    await eve.show(watched, LIST)
    await watched.evaluate(
        """() => { field.ariaLabel = "<img src=x onerror=document.title=1>" + "w".repeat(9999);
          field.replaceChildren(...Array.from({length: 3000}, (_, index) =>
            new Option("<img src=x onerror=document.title=1>" + "w".repeat(index)))); }"""
    )
    await eve.click_color()
    options = choices(eve).get_by_role("option")
    await options.first.wait_for()
    assert await options.count() == 1000
    assert len(await options.last.inner_text()) == 200
    assert await eve.page.evaluate("document.documentElement.scrollWidth") <= 1440
    assert await eve.page.locator("img[src=x]").count() == 0
    assert await eve.page.title() == "Statehold"
    await eve.page.keyboard.press("Escape")
    # A page that lies about its lists opens nothing.
    await watched.evaluate("Object.defineProperty(field, 'selectedIndex', {get: () => 'x'})")
    async with eve.page.expect_response(lambda r: "down" in (r.request.post_data or "")) as sent:
        await eve.click_color()
    answer: Any = await (await sent.value).json()
    assert answer["field"] is None
    assert eve.errors == []


async def test_a_page_gets_dropped_files_and_pasted_pictures(
    eve: ConsolePage, watched: Page
) -> None:
    await eve.show(watched, TAKES)
    x, y = await eve.find()
    assert await eve.page.evaluate(DROP, [x, y, ["a.svg", "b.svg"], ".surface"]) == [True, True]
    await until_log(watched, "a.svg image/svg+xml 6", "b.svg image/svg+xml 6")
    await eve.page.evaluate(PASTE)
    await watched.wait_for_function("log.length === 3")
    assert await watched.evaluate("log.at(-1)") == "image.png image/png 9"


@pytest.mark.thorough
async def test_a_page_without_a_place_for_files_refuses_them_and_the_console_stays(
    eve: ConsolePage, watched: Page
) -> None:
    page = eve.page
    await eve.show(watched, '<!doctype html><body style="margin:0;background:#f00;height:100vh">')
    x, y = await eve.find()
    assert await page.evaluate(DROP, [x, y, ["a.svg"], ".surface"]) == [True, True]
    await page.get_by_text("takes no file there").wait_for()
    await page.evaluate(PASTE)
    await page.get_by_text("takes no picture there").wait_for()
    await eve.show(
        watched,
        f"""<!doctype html><body style="margin:0"><label style="{AT}">Photo
        <input type=file id=file style="position:absolute;left:400px"></label>
        <script>log = []; file.onchange = () => log.push(file.files[0].name)</script>""",
    )
    x, y = await eve.find()
    await page.evaluate(DROP, [x, y, ["photo.svg"], ".surface"])
    await until_log(watched, "photo.svg")
    await eve.give_back()
    assert await page.evaluate(DROP, [x, y, ["a.svg"], ".surface"]) == [True, True]
    await page.get_by_text("Take over, then drop the file again.").wait_for()


@pytest.mark.thorough
async def test_shortcuts_go_to_the_page_and_nothing_moves_with_control_and_dialogs(
    eve: ConsolePage, watched: Page
) -> None:
    async def top() -> float:
        box = await eve.page.locator("sh-screen canvas").bounding_box()
        assert box is not None
        return round(box["y"])

    await eve.show(
        watched, '<!doctype html><body style="background:#f00"><script>log = []</script>'
    )
    before = await top()
    await watched.evaluate("void (onkeydown = e => e.key === 'Enter' && log.push(e.ctrlKey))")
    await eve.click_color()
    await eve.page.keyboard.press("Control+Enter")
    await until_log(watched, True)  # pyright: ignore[reportArgumentType]
    await watched.evaluate("void setTimeout(() => alert('Hello'))")
    dialog = eve.page.get_by_role("alertdialog")
    await dialog.wait_for()
    assert await top() == before
    await dialog.get_by_role("button", name="OK").click()
    await dialog.wait_for(state="detached")
    await eve.give_back()
    assert await top() == before


@pytest.mark.thorough
async def test_a_page_gets_the_size_of_the_window_until_the_control_ends(
    eve: ConsolePage, watched: Page
) -> None:
    before = watched.viewport_size
    await eve.page.get_by_role("button", name="Give the page the size of this window").click()
    await until(lambda: watched.viewport_size != before)
    await eve.show(watched, '<!doctype html><body style="background:#f00;margin:0">')
    await watched.evaluate("void (onclick = event => { at = event.clientX; })")
    await eve.click_color(RED)
    await watched.wait_for_function("window.at > 0")
    await eve.give_back()
    await until(lambda: watched.viewport_size == before)


@pytest.mark.thorough
async def test_tabs_have_titles_and_addresses_their_letters(
    eve: ConsolePage, watched: Page, site: Any
) -> None:
    await watched.goto(f"{site.url}/counter?u=ada%E6%97%A5&evil=%E2%80%AE")
    await watched.evaluate("document.title = '<b>Ada 日</b>'")
    await eve.page.locator(".tab.current", has_text="<b>Ada 日</b>").wait_for()
    address = eve.page.get_by_label("Address")
    assert "%E2%80%AE" in await address.input_value()
    await watched.goto(f"{site.url}/counter?u=ada%E6%97%A5")

    async def is_readable() -> bool:
        return (await address.input_value()).endswith("?u=ada日")

    await until(is_readable)
    await address.focus()
    assert (await address.input_value()).endswith("%E6%97%A5")


@pytest.mark.thorough
async def test_a_row_of_keys_moves_through_the_page_of_a_phone(
    eve: ConsolePage, watched: Page, browser: Any, url: str, console: Any, ada: Agent
) -> None:
    await eve.show(watched, "<!doctype html><script>log = []</script>")
    await watched.evaluate("void (onkeydown = event => log.push(event.key))")
    await eve.give_back()
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    async with opened_console(browser, url, console, ada.session, **phone) as hand:
        await hand.take()
        row = hand.page.get_by_role("group", name="Keys")
        names = ["Tab", "Escape", "ArrowLeft", "ArrowUp", "ArrowDown", "ArrowRight", "Enter"]
        for name in names:
            await row.get_by_role("button", name=name.removesuffix("ape"), exact=True).tap()
        await until_log(watched, *names)
        await eve.show(watched, LIST.replace("#f00", "#00f"))
        await hand.page.touchscreen.tap(*await hand.find(BLUE))
        control = choices(hand).locator("select")
        await control.wait_for()
        await control.select_option("Greece")
        with anyio.fail_after(10):
            await until_log(watched, "input gr", "change gr")
        await hand.give_back()
