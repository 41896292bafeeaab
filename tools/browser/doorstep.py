"""Empty documents of any origin: where storage can be read and written without the site being asked."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import anyio

from .world import asked

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, CDPSession, Page, Route

logger = logging.getLogger("statehold.browser")

CLOSE_SECONDS: Final = 2.0


@asynccontextmanager
async def nowhere(page: Page) -> AsyncGenerator[None]:
    """Answer everything that a page asks for with an empty document, so that no request leaves; then let it go."""

    async def answer(route: Route) -> None:
        with suppress(Exception):
            await route.fulfill(body="<!doctype html>", content_type="text/html")

    await page.route("**/*", answer)
    try:
        yield
    finally:
        with anyio.move_on_after(CLOSE_SECONDS, shield=True), suppress(Exception):
            await page.unroute("**/*", answer)


async def stand(page: Page, url: str) -> None:
    """Let a page that is nowhere show the empty document of an address."""
    await page.goto(url, wait_until="commit")


class Doorstep:
    """Opens pages of a context that are no tabs of anybody's. Lives as long as the context.

    `hidden` tells such pages from others as soon as the context speaks of them.
    """

    def __init__(self, context: BrowserContext) -> None:
        self._context = context
        self._address = f"about:blank#{secrets.token_hex(16)}"
        self._pages: set[Page] = set()
        self._opening = anyio.Lock()
        self._arrived = anyio.Event()
        context.on("page", self._opened)

    def hidden(self, page: Page) -> bool:
        return page in self._pages or page.url == self._address

    def _opened(self, page: Page) -> None:
        if page.url == self._address:
            self._pages.add(page)
            page.on("close", lambda _: self._pages.discard(page))
            self._arrived.set()

    @asynccontextmanager
    async def open(self, browser: CDPSession, context_id: str) -> AsyncGenerator[Page]:
        """Open such a page by the DevTools session of the browser; it is closed at the end, within a bound."""
        page = await self._open(browser, context_id)
        try:
            yield page
        finally:
            await _close(page)

    async def _open(self, browser: CDPSession, context_id: str) -> Page:
        async with self._opening:
            self._arrived = anyio.Event()
            before = set(self._pages)
            wanted = {"url": self._address, "browserContextId": context_id, "background": True}
            target = (await asked(browser, "Target.createTarget", wanted))["targetId"]
            try:
                await self._arrived.wait()
            except BaseException:
                with anyio.move_on_after(CLOSE_SECONDS, shield=True), suppress(Exception):
                    await asked(browser, "Target.closeTarget", {"targetId": target})
                raise
            return (self._pages - before).pop()


async def _close(page: Page) -> None:
    with anyio.move_on_after(CLOSE_SECONDS, shield=True) as scope, suppress(Exception):
        await page.close()
    if scope.cancelled_caught:
        logger.warning("an empty page did not close within %g seconds", CLOSE_SECONDS)


__all__ = ["Doorstep", "nowhere", "stand"]
