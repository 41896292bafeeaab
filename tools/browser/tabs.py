"""The pages of one session: which there are, which is the current one, and how many there may be."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from .tab import Tab

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Download, Page

logger = logging.getLogger("statehold.browser")


class Tabs:
    """The tabs of a context, in the order in which they opened. Lives as long as the context.

    A page that a page opens becomes a tab, but not the current one: what the caller looks at changes by the caller's doing
    only. Pages beyond `limit` are closed at once, and that is told.
    """

    def __init__(
        self,
        context: BrowserContext,
        *,
        limit: int,
        spawn: Callable[..., None],
        on_download: Callable[[Tab, Download], None],
    ) -> None:
        self.context = context
        self.current: Tab | None = None
        self.news: list[str] = []
        self.refused = 0
        self._limit = limit
        self._spawn = spawn
        self._on_download = on_download
        self._opening = 0
        self._tabs: list[Tab] = []
        context.on("page", self._opened)
        for page in context.pages:
            self._opened(page)

    def __iter__(self) -> Iterator[Tab]:
        return iter(self._tabs)

    def __len__(self) -> int:
        return len(self._tabs)

    def __getitem__(self, index: int) -> Tab:
        return self._tabs[index]

    def index(self, tab: Tab) -> int:
        return self._tabs.index(tab)

    async def ensure(self) -> Tab:
        """Return the current tab, opening one when there is none."""
        return self.current or await self.open()

    async def open(self) -> Tab:
        """Open an empty tab and make it the current one.

        Raises:
            IndexError: there may be no more.
        """
        if len(self._tabs) >= self._limit:
            raise IndexError(f"there may be at most {self._limit} tabs; close one first")
        self._opening += 1
        try:
            page = await self.context.new_page()
        finally:
            self._opening -= 1
        self.current = self._of(page)
        return self.current

    async def close(self, tab: Tab) -> None:
        """Close a tab, also one whose page hangs; the one before it becomes the current one."""
        with suppress(Exception):
            await tab.page.close()
        self._gone(tab)

    def _of(self, page: Page) -> Tab:
        found = next((tab for tab in self._tabs if tab.page == page), None)
        if found is None:
            found = Tab(page, on_download=self._on_download)
            self._tabs.append(found)
            page.on("close", lambda _: self._gone(found))
        return found

    def _opened(self, page: Page) -> None:
        known = any(tab.page == page for tab in self._tabs)
        if not known and len(self._tabs) >= self._limit:
            self.refused += 1
            if self.refused == 1:
                self.news.append(
                    f"A page tried to open more than {self._limit} tabs; the rest was closed."
                )
            self._spawn(self._close_quietly, page)
            return
        tab = self._of(page)
        if self.current is None:
            self.current = tab
        elif not known and not self._opening:
            self.news.append(f"A new tab opened ({self.index(tab)}).")

    async def _close_quietly(self, page: Page) -> None:
        with suppress(Exception):
            await page.close()

    def _gone(self, tab: Tab) -> None:
        tab.closed = True
        if tab not in self._tabs:
            return
        at = self._tabs.index(tab)
        self._tabs.remove(tab)
        if self.current is tab:
            self.current = self._tabs[min(at, len(self._tabs) - 1)] if self._tabs else None
            if self.current is not None:
                self.news.append("The current tab closed; another one is current now.")

    def take_news(self) -> list[str]:
        found, self.news, self.refused = self.news, [], 0
        return found


__all__ = ["Tabs"]
