"""A Statehold with a counter and a browser, and people at its console: one over HTTP, others in a Chromium of their own."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from playwright.async_api import Browser, Page, async_playwright

from ..asking import Asking
from ..browser.bare import shell
from ..gateways import http_server, statehold, statehold_config
from ..plan import COUNTER, TESTS
from ..processes import accepting, free_port

# The tests are no part of the installed package.
sys.path.append(str(TESTS))

from support.console_client import ConsoleClient, console_address, operator

BROWSER = """
[services.browser]
executable = "{shell}"
private = true
"""
WIDTH, HEIGHT = 1440, 900


@dataclass(frozen=True, slots=True)
class Serving:
    """A running server. `pid` is that of its process, without the browsers that it starts."""

    pid: int
    url: str
    data: Path
    agent: Asking
    """Calls of an agent."""

    async def open_console(self, browser: Browser, at: str = "") -> Page:
        """Return the console in a new context of a browser, logged in, at an address such as `s/SESSION`."""
        context = await browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
        page = await context.new_page()
        await page.goto(console_address(self.data, self.url))
        await page.get_by_role("button", name="Log out").wait_for()
        await self.go(page, at)
        return page

    async def open_tab(self, page: Page, at: str = "") -> Page:
        """Return another page with the login of the first."""
        tab = await page.context.new_page()
        await self.go(tab, at)
        return tab

    async def go(self, page: Page, at: str) -> None:
        await page.goto(f"{self.url}/console/#/{at}")
        await page.get_by_role("button", name="Log out").wait_for()


@asynccontextmanager
async def serving(folder: Path) -> AsyncGenerator[Serving]:
    """Serve a data folder, `folder / "data"`, as long as the block runs."""
    config = statehold_config(folder, COUNTER, more=BROWSER.format(shell=shell()))
    data, port = folder / "data", free_port()
    with http_server(statehold(data, config, "serve", "--port", str(port)), folder) as process:
        await accepting(port, process)
        async with Asking(port) as agent:
            with anyio.fail_after(60):
                await agent.first("session_list", {"limit": 1})
            yield Serving(process.pid, f"http://127.0.0.1:{port}", data, agent)


@asynccontextmanager
async def person_browser() -> AsyncGenerator[Browser]:
    """Start the Chromium in which people open the console."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shell(), chromium_sandbox=False)
        yield browser
        await browser.close()


__all__ = ["ConsoleClient", "Serving", "operator", "person_browser", "serving"]
