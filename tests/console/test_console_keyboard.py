"""Everything that the page of the console offers can be done by keyboard alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lab import Lab
from playwright.async_api import Browser, Page
from support.agent import agent
from support.console_client import console_address
from support.gateway_process import JSON, Running, Way

MAX_TABS = 60
NAME = """() => {
    const element = document.activeElement;
    return element.getAttribute("aria-label") || element.labels?.[0]?.innerText || element.innerText || "";
}"""


@pytest.fixture(scope="module")
def settings(headless_shell: str) -> JSON:
    return {"services": {"browser": {"executable": headless_shell, "private": True}}}


async def press(page: Page, *keys: str) -> None:
    for key in keys:
        await page.keyboard.press(key)


async def tab_to(page: Page, name: str) -> None:
    """Press Tab until the element with a name has the focus, which has to be visible there."""
    seen: list[str] = []
    for _ in range(MAX_TABS):
        await page.keyboard.press("Tab")
        current = str(await page.evaluate(NAME)).strip()
        if current.startswith(name):
            assert await page.evaluate("() => document.activeElement.matches(':focus-visible')")
            return
        seen.append(current[:30])
    raise AssertionError(f"Tab does not reach {name!r}; it reached {seen}")


@pytest.mark.thorough
async def test_a_session_is_found_driven_shared_renamed_and_paused_without_a_mouse(
    server: Running, config_file: Path, browser: Browser, lab_site: Lab
) -> None:
    way = Way("http", "modern", config_file, server.data, url=server.url)
    async with agent(way, name="shop") as ada:
        await ada.said("browser_navigate", url=f"{lab_site.url}/counter")
        await ada.evaluate(
            "{document.body.innerHTML='<input id=name autofocus>';document.querySelector('#name').focus()}"
        )
        page = await browser.new_page(viewport={"width": 1440, "height": 900})
        await page.goto(console_address(server.data))
        await page.get_by_role("button", name="Log out").wait_for()
        await tab_to(page, "Skip to the content")

        await tab_to(page, "Search")
        await page.keyboard.type("nothing like this")
        await page.get_by_role("button", name="Show all").wait_for()
        await tab_to(page, "Show all")
        await press(page, "Enter")
        await page.get_by_role("link", name="shop").wait_for()
        await tab_to(page, "Order")
        await press(page, "ArrowDown")
        await page.wait_for_url(re.compile("sort="))
        await tab_to(page, "Choose shop")
        await press(page, "Space")
        await tab_to(page, "None")
        await press(page, "Enter")
        await page.get_by_text("1 chosen").wait_for(state="detached")
        await press(page, "Escape", "/")
        await page.keyboard.type("sho")
        await press(page, "Enter")
        await page.get_by_role("button", name="Take over").wait_for()

        await tab_to(page, "Full screen")
        await press(page, "Enter")
        await page.locator(".screen:fullscreen").wait_for()
        await press(page, "Enter")
        await page.locator(".screen:fullscreen").wait_for(state="detached")
        await page.evaluate("document.activeElement.blur(), window.scrollTo(0, 0)")
        await tab_to(page, "Take over")
        await press(page, "Enter")
        await page.locator("button:enabled", has_text="Could not").wait_for()
        await page.keyboard.type("by keys")
        await press(page, "F6")
        await press(page, "Enter")
        await page.get_by_role("button", name="Take over").wait_for()
        spelled = await ada.evaluate("[...document.querySelector('#name').value].join('-')")
        assert "b-y- -k-e-y-s" in spelled

        await tab_to(page, "Services")
        await press(page, "ArrowRight")
        await page.get_by_role("tab", name="State", selected=True).wait_for()
        await page.locator("sh-timeline summary").first.wait_for()
        await page.locator("sh-timeline summary").first.focus()
        await press(page, "Enter")
        await page.locator("sh-timeline details[open]").wait_for()

        await page.evaluate("document.activeElement.blur(), window.scrollTo(0, 0)")
        await tab_to(page, "Share")
        await press(page, "Enter")
        await tab_to(page, "Make a link")
        await press(page, "Enter")
        await page.get_by_role("button", name="Copy").wait_for()
        await press(page, "Escape")
        await page.get_by_role("dialog").wait_for(state="hidden")

        await tab_to(page, "More")
        await press(page, "Enter")
        await page.get_by_role("button", name="Rename").wait_for()
        await press(page, "Enter")
        await page.get_by_role("dialog").wait_for()
        await press(page, "Control+a")
        await page.keyboard.type("market")
        await press(page, "Enter")
        await page.get_by_role("heading", name="market").wait_for()

        await tab_to(page, "Pause")
        await press(page, "Enter")
        await page.get_by_role("button", name="Resume").wait_for()
        await page.evaluate("document.activeElement.blur()")
        await press(page, "Escape")
        await page.get_by_role("heading", name="Sessions").wait_for()
        await tab_to(page, "Log out")
        await press(page, "Enter")
        await page.get_by_text("logs you in").wait_for()
