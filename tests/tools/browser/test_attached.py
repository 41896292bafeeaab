"""A person's own browser: connecting changes nothing in it, and a session may work in the tabs that are open there."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from playwright.async_api import Dialog, Page, async_playwright
from pydantic import ValidationError
from support.browsing import Browse, lost, new_view, opened, running, section
from support.listening import run_until_line
from support.waiting import until

from statehold.sessions.errors import ServiceUnavailable
from statehold.tools.browser.config import BrowserConfig
from statehold.tools.browser.service import BrowserService

LOOKS = """() => ({
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
  size: [innerWidth, innerHeight, screen.width, devicePixelRatio],
  agent: navigator.userAgent,
  left: window.left ?? null,
})"""
"""The changes that a person would notice: the looks of the page, and that it was not loaded again."""


@pytest.fixture
def own_browser(shell: str, tmp_path: Path) -> Generator[str]:
    """The DevTools address of a person's browser, which prefers dark pages."""
    options = ["--remote-debugging-port=0", "--blink-settings=preferredColorScheme=0"]
    command = [shell, "--no-sandbox", "--headless", f"--user-data-dir={tmp_path / 'profile'}"]
    with run_until_line([*command, *options, "about:blank"], "DevTools listening on ") as address:
        yield address


@pytest.fixture
async def page(own_browser: str, lab: str) -> AsyncGenerator[Page]:
    """The page that the person has open."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(own_browser, no_defaults=True)
        [page] = browser.contexts[0].pages
        await page.goto(f"{lab}/counter")
        await page.evaluate("() => { window.left = 'here'; }")
        yield page


@pytest.fixture
async def attached(own_browser: str, tmp_path: Path, page: Page) -> AsyncGenerator[BrowserService]:
    async with running(tmp_path / "data", None, cdp_endpoint=own_browser, attach="tabs") as service:
        yield service


async def current(browse: Browse) -> str:
    return section(await browse.text("tabs", action="list"), "Result")


@pytest.mark.thorough
async def test_a_context_of_its_own_changes_nothing_in_the_tabs_that_are_open(
    own_browser: str, tmp_path: Path, page: Page, lab: str
) -> None:
    before = await page.evaluate(LOOKS)
    assert before["dark"]
    async with (
        running(tmp_path / "data", None, cdp_endpoint=own_browser) as service,
        opened(service) as browse,
    ):
        await browse.text("navigate", url=f"{lab}/form")
        assert "Counter" not in await current(browse)
        assert await page.evaluate(LOOKS) == before
    assert await page.evaluate(LOOKS) == before


async def test_a_session_works_in_the_open_tabs_and_leaves_them_open(
    attached: BrowserService, page: Page, lab: str
) -> None:
    before = await page.evaluate(LOOKS)
    async with opened(attached) as browse:
        assert await current(browse) == f"- 0: (current) [Counter - Lab]({lab}/counter)"
        await browse.text("click", target=await browse.ref("Increment"))
        assert await page.evaluate(LOOKS) == before
        await browse.text("tabs", action="new", url=f"{lab}/form")
        assert "stay open" in await browse.text("close")
        assert await browse.connection.snapshot() is None
    assert "1" in await page.inner_text("#said")
    assert await page.evaluate(LOOKS) == before
    assert [other.url for other in page.context.pages] == [f"{lab}/counter", f"{lab}/form"]


@pytest.mark.thorough
async def test_one_session_at_a_time_is_attached(attached: BrowserService, page: Page) -> None:
    async with opened(attached) as browse:
        with pytest.raises(ServiceUnavailable, match="in use by another session"):
            await attached.open(new_view("another"), None)
        assert "Increment" in await browse.text("snapshot")
    async with opened(attached, new_view("another", generation=2)) as again:
        assert "Increment" in await again.text("snapshot")
        assert "nothing is saved or restored of a person's own browser" in lost(again)


async def test_a_dialog_that_the_person_closes_is_closed_for_the_session(
    attached: BrowserService, page: Page
) -> None:
    dialogs: list[Dialog] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog))
    async with opened(attached) as browse:
        ask = "() => { setTimeout(() => { document.title = confirm('go on?'); }); }"
        text = await browse.text("evaluate", function=ask)
        assert "go on?" in section(text, "Modal state")
        await until(lambda: dialogs)
        await dialogs[0].accept()
        await until(lambda: browse.tab.modal_text is None)
        assert "Page Title: true" in await browse.text("snapshot")
        await browse.text("click", target=await browse.ref("Increment"))


@pytest.mark.thorough
async def test_pages_of_the_browser_itself_are_listed_and_left_alone(
    attached: BrowserService, page: Page, lab: str
) -> None:
    await page.goto("data:text/html,<title>mine</title>")
    own = await page.context.new_page()
    await own.goto("file:///etc/hostname")
    async with opened(attached) as browse:
        lines = (await current(browse)).splitlines()
        [number] = [n for n, line in enumerate(lines) if "(file:///etc/hostname)" in line]
        await browse.text("tabs", action="select", index=number)
        assert "select or open another tab" in await browse.error("snapshot")
        assert "select or open another tab" in await browse.error("navigate", url=f"{lab}/form")
        await browse.text("tabs", action="select", index=1 - number)
        await browse.text("navigate", url=f"{lab}/form")
    assert own.url == "file:///etc/hostname"


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({}, "attach"),
        ({"cdp_endpoint": "http://127.0.0.1:9222", "viewport": [800, 600]}, "viewport"),
        ({"cdp_endpoint": "http://127.0.0.1:9222", "allow": ["a.example"]}, "allow"),
    ],
)
def test_settings_that_cannot_hold_for_open_tabs_are_refused(
    settings: dict[str, object], field: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        BrowserConfig.model_validate({"attach": "tabs", **settings})
    assert caught.value.errors()[0].get("ctx", {})["field"] == field
