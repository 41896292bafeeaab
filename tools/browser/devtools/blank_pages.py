"""Blank documents of any origin, in which storage can be read and written without a request to the site."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import anyio

from ....sessions.json_codec import JSON
from .pages import close_if_cancelled, new_page
from .world import send_command

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, CDPSession, Page, Route

logger = logging.getLogger("statehold.browser")

CLOSE_SECONDS: Final = 2.0


@asynccontextmanager
async def without_network(page: Page) -> AsyncGenerator[None]:
    """While the block runs, answer all requests of a page with a blank document, so that none reaches the network."""

    async def answer(route: Route) -> None:
        with suppress(Exception):
            await route.fulfill(body="<!doctype html>", content_type="text/html")

    await page.route("**/*", answer)
    try:
        yield
    finally:
        with anyio.move_on_after(CLOSE_SECONDS, shield=True), suppress(Exception):
            await page.unroute("**/*", answer)


async def load_blank(page: Page, url: str) -> None:
    """Load the blank document of an address in a page inside `without_network`."""
    await page.goto(url, wait_until="commit")


class BlankPages:
    """Opens pages of a context that are not tabs of the session. Lives as long as the context.

    hidden() recognizes such a page as soon as the context reports it.
    """

    def __init__(self, context: BrowserContext) -> None:
        self._context = context
        self._address = f"about:blank#{secrets.token_hex(16)}"
        self._pages: set[Page] = set()
        self._opening = anyio.Lock()
        self._page_opened = anyio.Event()
        self._latest: Page | None = None
        """The blank page that appeared last, whether it is still open or not."""
        self._opens_alone = False
        """Whether every page that opens now is an empty one of ours."""
        context.on("page", self._on_page)

    def is_hidden(self, page: Page) -> bool:
        return page in self._pages or page.url == self._address

    def _on_page(self, page: Page) -> None:
        if page.url == self._address or self._opens_alone:
            self._pages.add(page)
            page.on("close", lambda _: self._pages.discard(page))
            self._latest = page
            self._page_opened.set()

    @asynccontextmanager
    async def open(self, browser: CDPSession, context_id: str) -> AsyncGenerator[Page]:
        """Open a blank page by the DevTools session of the browser; it is closed at the end, within CLOSE_SECONDS."""
        options = {"url": self._address, "browserContextId": context_id, "background": True}

        async def close(target: JSON) -> None:
            await send_command(browser, "Target.closeTarget", target)

        async with self._opening:
            self._page_opened = anyio.Event()
            target = await close_if_cancelled(
                send_command(browser, "Target.createTarget", options), close
            )
            try:
                await self._page_opened.wait()
            except BaseException:
                with anyio.move_on_after(CLOSE_SECONDS, shield=True), suppress(Exception):
                    await close(target)
                raise
            assert self._latest is not None
            page = self._latest
        try:
            yield page
        finally:
            await _close(page)

    @asynccontextmanager
    async def open_first(self) -> AsyncGenerator[Page]:
        """Open a blank page in a context without tabs. No other page may be opened meanwhile."""
        self._opens_alone = True
        try:
            page = await new_page(self._context)
        finally:
            self._opens_alone = False
        try:
            yield page
        finally:
            await _close(page)


async def _close(page: Page) -> None:
    with anyio.move_on_after(CLOSE_SECONDS, shield=True) as scope, suppress(Exception):
        await page.close()
    if scope.cancelled_caught:
        logger.warning("a blank page did not close within %g seconds", CLOSE_SECONDS)
