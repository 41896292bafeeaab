"""Tabs, addresses, dialogs, files and failures of pages while a person has control over the page of the console."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import psutil
import pytest
from lab import Lab
from playwright.async_api import Error, Locator, Page
from support.agent import Agent
from support.console_page import BLUE, ConsolePage, browser_of, page_of
from support.waiting import until

from statehold.server.gateway.gateway import Gateway
from statehold.tools.browser.devtools.world import send_command

BUTTON = """<!doctype html><body style="margin:0"><button id=go style="position:absolute;left:0;top:0;width:300px;
height:200px;border:0;background:#f00" onclick="{}"></button><script>log = []</script>"""


def tabs_of(eve: ConsolePage) -> Locator:
    return eve.page.locator(".tab > button[aria-pressed]")


async def until_tabs(eve: ConsolePage, count: int) -> None:
    async def has_tabs() -> bool:
        return await tabs_of(eve).count() == count

    await until(has_tabs)


async def until_address(eve: ConsolePage, text: str) -> None:
    """Wait until the current tab is at an address with a text, which the address bar shows."""

    async def has_address() -> bool:
        tab = await eve.page.locator(".tab.current button").first.get_attribute("title") or ""
        return text in tab and text in await eve.page.get_by_label("Address").input_value()

    await until(has_address)


async def go(eve: ConsolePage, address: str) -> None:
    await eve.page.get_by_label("Address").fill(address)
    await eve.page.keyboard.press("Enter")


@pytest.mark.thorough
async def test_addresses_and_history_obey_and_refuse(
    eve: ConsolePage, site: Lab, gateway: Gateway, ada: Agent
) -> None:
    page = eve.page
    await go(eve, f"{site.url}/counter")
    await until_address(eve, "/counter")
    await go(eve, f"{site.url}/form")
    await until_address(eve, "/form")
    await page.get_by_role("button", name="back").click()
    await until_address(eve, "/counter")
    await page.get_by_role("button", name="forward").click()
    await until_address(eve, "/form")
    await page_of(gateway, ada.session).wait_for_load_state()
    await page_of(gateway, ada.session).evaluate("globalThis.isOld = true")
    await page.get_by_role("button", name="reload").click()

    async def is_loaded_again() -> bool:
        with suppress(Error):
            return await page_of(gateway, ada.session).evaluate("!globalThis.isOld")
        return False

    await until(is_loaded_again)
    for address in ("javascript:document.title='hit'", "file:///etc/passwd", "chrome://settings"):
        await go(eve, address)
        await page.locator(".screen .notice").wait_for()
        # The page shows a refusal also while the mouse moves.
        await page.mouse.move(700, 500)
        assert await page.locator(".screen .notice").count() == 1
        shown = page_of(gateway, ada.session)
        assert shown.url == f"{site.url}/form"
        assert await shown.title() != "hit"
        await until_address(eve, "/form")
    # The navigations did not end the control.
    assert await page.get_by_text("You have control.").count() == 1


@pytest.mark.thorough
async def test_tabs_are_opened_selected_and_closed_and_popups_are_tabs(
    eve: ConsolePage, watched: Page, gateway: Gateway, ada: Agent, site: Lab
) -> None:
    page = eve.page
    await eve.show(watched, BUTTON.format(f"window.open('{site.url}/counter')"))
    await eve.click_color()
    await until_tabs(eve, 2)
    await until_address(eve, "/counter")
    assert page_of(gateway, ada.session).url == f"{site.url}/counter"
    await tabs_of(eve).nth(0).click()
    await eve.find()
    assert page_of(gateway, ada.session) == watched
    await page.get_by_role("button", name="New tab").click()
    await until_tabs(eve, 3)
    await page.get_by_role("button", name="Close tab 2").click()
    await until_tabs(eve, 2)
    await page.get_by_role("button", name="Close tab 2").click()
    await until_tabs(eve, 1)
    # A page closes its own tab, with the person in it.
    await eve.show(watched, BUTTON.format("open('about:blank').close()"))
    await eve.click_color()
    await eve.page.keyboard.press("a")
    await until_tabs(eve, 1)


@pytest.mark.thorough
async def test_dialogs_are_answered(eve: ConsolePage, watched: Page, site: Lab) -> None:
    page = eve.page
    asks = "log.push([alert('Hello'), confirm('Sure?'), prompt('Name?', 'Bo'), prompt('Town?')].join())"
    await eve.show(watched, BUTTON.format(asks))
    await eve.click_color()
    dialog = page.get_by_role("alertdialog")
    await dialog.get_by_text("Hello").wait_for()
    await dialog.get_by_role("button", name="OK").click()
    await dialog.get_by_text("Sure?").wait_for()
    await dialog.get_by_role("button", name="Cancel").click()
    await dialog.get_by_text("Name?").wait_for()
    assert await dialog.get_by_label("Answer").input_value() == "Bo"
    # The answer has the focus, so keys alone do it.
    await page.keyboard.press("Control+a")
    await page.keyboard.type("Eve")
    await page.keyboard.press("Enter")
    await dialog.get_by_text("Town?").wait_for()
    await page.keyboard.press("Escape")
    await watched.wait_for_function("log.length")
    assert await watched.evaluate("log") == [",false,Eve,"]
    # After the last answer the keys are the page's again.
    await watched.evaluate("void (onkeydown = event => log.push(event.key))")
    await page.keyboard.press("q")
    await watched.wait_for_function("log.includes('q')")

    await watched.evaluate("void (onbeforeunload = event => event.preventDefault())")
    await go(eve, f"{site.url}/counter")
    await dialog.get_by_role("button", name="Cancel").click()
    await dialog.wait_for(state="detached")
    assert "counter" not in watched.url
    await go(eve, f"{site.url}/counter")
    await dialog.get_by_role("button", name="OK").click()
    await until_address(eve, "/counter")


@pytest.mark.thorough
async def test_a_file_chooser_takes_real_files(
    eve: ConsolePage, watched: Page, tmp_path: Path
) -> None:
    await eve.show(
        watched,
        """<!doctype html><body style="margin:0"><input type=file id=file style="display:none">
        <button onclick="file.click()" style="width:300px;height:200px;border:0;background:#f00"></button>
        <script>log = []; file.onchange = async () => log.push(file.files[0].name, file.files[0].size)</script>""",
    )
    await eve.click_color()
    chooser = eve.page.locator("sh-question input[type=file]")
    await chooser.wait_for()
    assert await chooser.get_attribute("multiple") is None
    huge = tmp_path / "huge.bin"
    huge.write_bytes(bytes(3_100_000))
    await chooser.set_input_files(huge)
    await eve.page.get_by_text("may have 3 MB together").wait_for()
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(os.urandom(2_000_000))
    await chooser.set_input_files(photo)
    await watched.wait_for_function("log.length")
    assert await watched.evaluate("log") == ["photo.jpg", 2_000_000]
    await chooser.wait_for(state="detached")
    await eve.click_color()
    await eve.page.get_by_role("alertdialog").get_by_role("button", name="Cancel").click()
    await chooser.wait_for(state="detached")
    assert await watched.evaluate("log.length") == 2


@pytest.mark.thorough
async def test_a_download_is_seen_and_becomes_a_file_of_the_session(
    eve: ConsolePage, watched: Page, gateway: Gateway, ada: Agent, site: Lab
) -> None:
    await watched.goto(f"{site.url}/downloads")
    await eve.show(watched, BUTTON.format(f"location='{site.url}/file/small'"))
    await eve.click_color()
    link = eve.page.locator(".screen .notice a[download]")
    await link.wait_for()
    name = await link.inner_text()
    async with eve.page.expect_download() as saved:
        await link.click()
    path = await (await saved.value).path()
    files = browser_of(gateway, ada.session).session.files
    assert path.read_bytes() == (files.folder / name).read_bytes()
    assert name in await files.names()


@contextmanager
def stopped_renderers(gateway: Gateway, ada: Agent) -> Generator[None]:
    """Stop the processes that paint the pages of the agent's browser, but not the browser."""
    process = browser_of(gateway, ada.session)._process  # pyright: ignore[reportPrivateUsage]
    assert process.pid is not None
    below = psutil.Process(process.pid).children(recursive=True)
    renderers = [each for each in below if "--type=renderer" in each.cmdline()]
    assert renderers
    try:
        for each in renderers:
            os.kill(each.pid, signal.SIGSTOP)
        yield
    finally:
        for each in renderers:
            os.kill(each.pid, signal.SIGCONT)


@pytest.mark.thorough
async def test_a_frozen_page_is_not_shown_as_live(
    eve: ConsolePage, watched: Page, gateway: Gateway, ada: Agent
) -> None:
    await eve.show(watched, BUTTON.format("log.push(1)"))
    await eve.find()
    veil = eve.page.locator("sh-screen .veil")
    assert await veil.count() == 0
    with stopped_renderers(gateway, ada):
        await veil.get_by_text("The page does not answer").wait_for()
        await veil.get_by_text("s old").wait_for()

        async def age() -> int:
            return int((await veil.inner_text()).partition("Picture is ")[2].partition(" s old")[0])

        first = await age()
        with anyio.fail_after(10):
            while await age() <= first:
                pass
        assert await eve.page.locator("sh-screen .stale").count() == 1
    await veil.wait_for(state="detached")
    await eve.click_color()
    await watched.wait_for_function("log.length")


@pytest.mark.thorough
async def test_a_crash_is_shown_and_reloading_helps(
    eve: ConsolePage, gateway: Gateway, ada: Agent, site: Lab
) -> None:
    await go(eve, f"{site.url}/counter")
    await until_address(eve, "/counter")
    page = page_of(gateway, ada.session)
    devtools = await page.context.new_cdp_session(page)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send_command, devtools, "Page.crash")
        await eve.page.locator("sh-screen .veil").get_by_text("The page crashed").wait_for()
        tasks.cancel_scope.cancel()
    await eve.page.get_by_role("button", name="reload").click()
    await eve.page.locator("sh-screen .veil").wait_for(state="detached")
    after = page_of(gateway, ada.session)
    assert after != page
    await after.wait_for_url("**/counter")
    await eve.show(after, BUTTON.format("log.push(1)"))
    await eve.click_color()
    await after.wait_for_function("log.length")
    assert await eve.page.get_by_text("You have control.").count() == 1


@pytest.mark.thorough
async def test_a_closed_tab_of_the_picture_takes_no_clicks(
    eve: ConsolePage, gateway: Gateway, ada: Agent
) -> None:
    await eve.page.get_by_role("button", name="New tab").click()
    await until_tabs(eve, 2)
    second = page_of(gateway, ada.session)
    await eve.show(second, BUTTON.format("log.push(1)").replace("#f00", "#00f"))
    place = await eve.find(BLUE)
    await second.close()
    await eve.page.mouse.click(*place)
    await until_tabs(eve, 1)
    await eve.show(page_of(gateway, ada.session), BUTTON.format("log.push(1)"))
    await eve.click_color()
    await page_of(gateway, ada.session).wait_for_function("log.length === 1")
