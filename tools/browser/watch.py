"""What has to be noted of a context while it lives, so that it can be saved."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import anyio

from .doorstep import Doorstep
from .world import World, origin_of

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Frame, Page, Request


class Watch:
    """Follows the pages of a context from the moment it is made until the context closes."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.doorstep = Doorstep(context)
        self.touched: set[str] = set()
        """Origins of documents that were there since somebody last took them out."""
        self._making: WeakKeyDictionary[Page, anyio.Lock] = WeakKeyDictionary()
        self._worlds: WeakKeyDictionary[Page, World] = WeakKeyDictionary()
        self._asked: WeakKeyDictionary[Page, tuple[str, str]] = WeakKeyDictionary()
        for page in context.pages:
            self._follow(page)
        context.on("page", self._follow)

    def hidden(self, page: Page) -> bool:
        """Whether a page is none of the session's tabs."""
        return self.doorstep.hidden(page)

    async def world(self, page: Page) -> World:
        if page not in self._worlds:
            # Two would each open a DevTools session, of which one would be forgotten.
            async with self._making.setdefault(page, anyio.Lock()):
                if page not in self._worlds:
                    self._worlds[page] = await World.of(page)
        return self._worlds[page]

    def posted(self, page: Page) -> bool:
        """Whether what a page shows is the answer to a form, which its address alone does not bring back."""
        method, url = self._asked.get(page, ("GET", ""))
        return method != "GET" and url == page.url.partition("#")[0]

    def _follow(self, page: Page) -> None:
        if self.hidden(page):
            return
        page.on("framenavigated", self._navigated)
        page.on("request", self._requested)
        self._navigated(page.main_frame)

    def _navigated(self, frame: Frame) -> None:
        origin = origin_of(frame.url)
        if origin is not None and (
            frame.parent_frame is None or _related(frame.url, frame.page.url)
        ):
            self.touched.add(origin)

    def _requested(self, request: Request) -> None:
        if not request.is_navigation_request():
            return
        # A popup's first request comes before its frame.
        with suppress(Exception):
            if request.frame.parent_frame is None:
                self._asked[request.frame.page] = (request.method, request.url.partition("#")[0])


def _related(url: str, top: str) -> bool:
    """Whether a frame may share the storage of its origin with pages of that origin. When in doubt: yes."""
    one, other = (urlsplit(u).hostname or "" for u in (url, top))
    return one.split(".")[-2:] == other.split(".")[-2:]


__all__ = ["Watch"]
