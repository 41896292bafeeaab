"""Shared parts of the tests of saving and restoring: a session's context, actions in it, and checks of the result."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from statehold.sessions.services import Snapshot
from statehold.tools.browser.snapshot.capture import capture
from statehold.tools.browser.snapshot.model import ContextSnapshot
from statehold.tools.browser.snapshot.restore import RestoredContext, restore_context
from statehold.tools.browser.snapshot.saved_storage import OriginStorage
from statehold.tools.browser.snapshot.saved_tab import DormantTab

FLAGS = ["--no-sandbox"] if os.geteuid() == 0 else []
SECONDS = 15.0


@asynccontextmanager
async def launch(shell: str) -> AsyncGenerator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shell, args=FLAGS)
        yield browser
        await browser.close()


async def save(
    restored: RestoredContext, *pages: Page | DormantTab, current: int = 0, light: bool = False
) -> ContextSnapshot:
    """Save and read back, as a stored snapshot would be."""
    with anyio.fail_after(20):
        saved = await capture(
            restored.context,
            pages or restored.context.pages,
            current,
            light=light,
            seconds=SECONDS,
            origins=restored.origins,
        )
    snapshot = saved.to_snapshot()
    return ContextSnapshot.from_snapshot(
        Snapshot(json.loads(json.dumps(snapshot.data)), snapshot.blobs)
    )


@asynccontextmanager
async def resume(
    browser: Browser,
    snapshot: ContextSnapshot | None = None,
    *,
    prepare: Callable[[BrowserContext, OriginStorage], Awaitable[None]] | None = None,
    pages: list[Page] | None = None,
) -> AsyncGenerator[RestoredContext]:
    """Open a context, and close it again. `pages` gets each page of it that is not ours alone."""

    async def prepare_context(context: BrowserContext, origins: OriginStorage) -> None:
        def note_page(page: Page) -> None:
            if pages is not None and not origins.watch.is_hidden(page):
                pages.append(page)

        context.on("page", note_page)
        if prepare is not None:
            await prepare(context, origins)

    with anyio.fail_after(20):
        restored = await restore_context(
            browser, snapshot, context_options={}, prepare=prepare_context, seconds=SECONDS
        )
    try:
        yield restored
    finally:
        await restored.context.close()


def page_of(restored: RestoredContext) -> Page:
    page = restored.tabs[restored.current]
    assert isinstance(page, Page)
    return page


def dormant_tab(restored: RestoredContext, number: int) -> DormantTab:
    tab = restored.tabs[number]
    assert isinstance(tab, DormantTab)
    return tab


async def fill_everything(page: Page) -> None:
    for selector in ("#text", "#mirrored", "#deep", "#late"):
        await page.fill(selector, f"typed into {selector}")
    for selector in ("#password", "#shown", "#card", "#code"):
        await page.fill(selector, f"hunter2 {selector}")
    await page.fill("#area", "first\nsecond")
    await page.select_option("#one", "c")
    await page.select_option("#many", ["b", "c"])
    await page.select_option("#month", "2")
    await page.check("#tick")
    await page.uncheck("#untick")
    await page.check("#r2")
    await page.fill("#editor", "typed into an element")
    await page.frame_locator("#frame").locator("#framed").fill("typed into a frame")
    await page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"a"})
    await page.evaluate(
        """() => { scrollTo(0, 1500); box.scrollTop = 700; sessionStorage.s = "session"; localStorage.l = "local";
        history.replaceState({at: [1, NaN]}, "") }"""
    )


async def open_filled(restored: RestoredContext, url: str) -> Page:
    """Open a page and fill everything that it has."""
    page = await restored.context.new_page()
    # Its script notes edits.
    await restored.origins.watch.world(page)
    await page.goto(url)
    await fill_everything(page)
    return page


LOG_IN = """value => new Promise(resolve => {
  localStorage.setItem("login", value);
  sessionStorage.setItem("login", value);
  const opening = indexedDB.open("accounts", 1);
  opening.onsuccess = () => {
    const transaction = opening.result.transaction("users", "readwrite");
    transaction.objectStore("users").put(value, "login");
    transaction.oncomplete = () => resolve();
  };
})"""


async def log_in(context: BrowserContext, page: Page, at: str, name: str) -> None:
    await page.goto(at + "/account")
    await page.wait_for_function("window.ready")
    await page.evaluate(LOG_IN, name)
    cookie = {"name": "login", "value": name, "url": at, "httpOnly": name == "secret"}
    await context.add_cookies([cookie])  # pyright: ignore[reportArgumentType]


async def logged_in(page: Page) -> dict[str, Any]:
    """Return the values that the scripts of the page read when they started."""
    await page.wait_for_function("window.ready")
    return await page.evaluate("started")
