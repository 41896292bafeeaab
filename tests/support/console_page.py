"""A person in tests who uses the page of the console in a real browser, while it shows the page of a session."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from playwright.async_api import Browser, CDPSession, Page

from statehold.console.app import Console
from statehold.server.gateway.gateway import Gateway
from statehold.tools.browser.connection import BrowserConnection

from .waiting import until

RED, BLUE = (255, 0, 0), (0, 0, 255)
_FIND = """color => {
  const canvas = document.querySelector("sh-screen canvas");
  const {width, height} = canvas;
  const {data} = canvas.getContext("2d").getImageData(0, 0, width, height);
  let [left, top, right, bottom] = [Infinity, Infinity, -1, -1];
  for (let at = 0; at < data.length; at += 4) {
    if (color.some((part, index) => Math.abs(data[at + index] - part) > 60)) continue;
    const [x, y] = [at / 4 % width, Math.floor(at / 4 / width)];
    [left, top] = [Math.min(left, x), Math.min(top, y)];
    [right, bottom] = [Math.max(right, x), Math.max(bottom, y)];
  }
  if (right < 0) return null;
  const box = canvas.getBoundingClientRect();
  const scale = Math.min(box.width / width, box.height / height);
  return [box.x + (box.width - width * scale) / 2 + (left + right + 1) / 2 * scale,
    box.y + (box.height - height * scale) / 2 + (top + bottom + 1) / 2 * scale];
}"""
"""Returns the place on the screen of the middle of all that has a colour in the picture."""


@dataclass
class ConsolePage:
    """The console in a browser, and what it shows."""

    page: Page
    errors: list[str] = field(default_factory=list[str])
    """The errors that the page reported."""

    async def open_session(self, session_id: str) -> None:
        await self.page.evaluate("id => { location.hash = `#/s/${id}`; }", session_id)
        await self.page.locator("sh-screen canvas").wait_for()

    async def take(self) -> None:
        """Take control, and wait until the buttons of the person may be used."""
        await self.page.get_by_role("button", name="Take over").click()
        await self.page.locator("button:enabled", has_text="Could not").wait_for()

    async def give_back(self) -> None:
        await self.page.get_by_role("button", name="Done").click()
        await self.page.locator("button:enabled", has_text="Take over").wait_for()

    async def find(self, color: Sequence[int] = RED) -> tuple[float, float]:
        """Return the place on the screen of what has a colour in the picture, as soon as there is such a thing."""

        async def look() -> Any:
            return await self.page.evaluate(_FIND, color)

        x, y = await until(look)
        return x, y

    async def show(self, watched: Page, html: str) -> None:
        """Have a watched page show HTML, after the picture has nothing of before any more."""
        await watched.evaluate("scrollTo(0, 0)")
        await watched.set_content("<body>")

        async def is_empty() -> bool:
            return not any([await self.page.evaluate(_FIND, color) for color in (RED, BLUE)])

        await until(is_empty)
        await watched.set_content(html)

    async def click_color(self, color: Sequence[int] = RED) -> None:
        """Click on what has a colour."""
        await self.page.mouse.click(*await self.find(color))

    async def devtools(self) -> CDPSession:
        return await self.page.context.new_cdp_session(self.page)


@asynccontextmanager
async def opened_console(
    browser: Browser, url: str, console: Console, session_id: str | None = None, **options: Any
) -> AsyncGenerator[ConsolePage]:
    """Log in as the user of the machine in a browser of its own, and open a session."""
    shape: dict[str, Any] = {"viewport": {"width": 1440, "height": 900}, **options}
    context = await browser.new_context(**shape)
    try:
        page = await context.new_page()
        shown = ConsolePage(page)
        page.on("pageerror", lambda error: shown.errors.append(str(error)))
        await page.goto(f"{url}/console#code={await console.logins.mint_code()}")
        await page.get_by_role("button", name="Log out").wait_for()
        if session_id is not None:
            await shown.open_session(session_id)
        yield shown
    finally:
        await context.close()


def browser_of(gateway: Gateway, session_id: str) -> BrowserConnection:
    """Return the browser of a session of this process."""
    live = next(s for s in gateway.registry.owned_sessions() if s.id == session_id)
    connection = live.bindings["browser"].live
    assert connection is not None
    return cast("BrowserConnection", connection.connection)


def page_of(gateway: Gateway, session_id: str) -> Page:
    """Return the page that the agent uses in a session of this process."""
    tab = browser_of(gateway, session_id).session.tabs.current
    assert tab is not None
    return tab.page


@asynccontextmanager
async def console(
    browser: Browser, address: str, *, width: int = 1440, **options: Any
) -> AsyncGenerator[Page]:
    """A page that is logged in. It must report no error of its scripts."""
    size: Any = {"width": width, "height": 900}
    context = await browser.new_context(viewport=size, **options)
    page = await context.new_page()
    page.set_default_timeout(15_000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    await page.goto(address)
    await page.get_by_role("button", name="Log out").wait_for()
    yield page
    assert errors == []
    await context.close()


__all__ = ["BLUE", "RED", "ConsolePage", "browser_of", "console", "opened_console", "page_of"]
