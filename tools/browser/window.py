"""The browser of a session as a window that a person works in. Its state is saved before the window is gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio

from ...sessions.concurrency import RaceLost, race
from ...sessions.errors import ConnectionLost
from ...sessions.services import Snapshot
from .egress.policy import scheme_allowed
from .human_control import Shown
from .session.tab import Tab
from .snapshot.model import ContextSnapshot, SavedTab

if TYPE_CHECKING:
    from playwright.async_api import Page

    from .connection import BrowserConnection
    from .snapshot.encryption import Encryption

CHECKPOINT_SECONDS: Final = 1.0
"""Seconds between two saves of a window; once it is closed, its pages can no longer be read."""
STORE_SECONDS: Final = 5.0
"""Seconds between two durable saves, in case this process dies before the window is closed."""


class Window:
    """A window of a connection whose browser is not headless. It lives until the person closes it, or the browser dies.

    The connection stays open, so that cookies can be read when the window is gone. The caller that opened it closes it.
    """

    def __init__(
        self,
        connection: BrowserConnection,
        *,
        encryption: Encryption | None = None,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        store_seconds: float = STORE_SECONDS,
    ) -> None:
        self.closed = anyio.Event()
        self.last: Snapshot | None = None
        """The last snapshot that was taken while the window was open."""
        self._connection = connection
        self._session = connection.session
        self._encryption = encryption
        self._checkpoint_seconds = checkpoint_seconds
        self._store_seconds = store_seconds
        self._closings = 0
        self._pages: set[Page] = set()
        """The tabs that are open."""
        self._order: list[Page] = []
        """The pages at the last save and those opened since, whether they are still open or not."""
        self._pages_saved: list[Page] = []
        self._latest: Page | None = None

    async def show(self) -> None:
        """Open all tabs of the session in the window, the current one in front."""
        tabs = self._session.tabs
        self._session.context.on("page", self._follow)
        current = await self._session.current()
        for entry in tabs.entries:
            self._follow((await tabs.select(entry)).page)
        await tabs.select(current)
        with suppress(Exception):
            await current.page.bring_to_front()

    async def go(self, url: str) -> None:
        """Open an address: in the current tab if it is empty, else in a new one. The person sees it if the page fails."""
        from playwright.async_api import Error

        tab = await self._session.current()
        if tab.page.url != "about:blank":
            tab = await self._session.tabs.open()
            self._follow(tab.page)
        with suppress(Error):
            await tab.page.goto(url, wait_until="commit")

    def _follow(self, page: Page) -> None:
        if page in self._pages:
            return
        tab = next((tab for tab in self._session.tabs if tab.page is page), None)
        if tab is None:
            # A hidden page that reads storage, or a tab beyond the limit.
            return
        self._pages.add(page)
        self._order.append(page)
        tab.ignore_choosers()
        page.on("close", self._on_close)
        page.on(
            "framenavigated",
            lambda frame: self._note_front_tab(tab) if frame is page.main_frame else None,
        )

    def _note_front_tab(self, tab: Tab) -> None:
        # The browser does not report the tab in front: assume the one that navigated last.
        self._session.tabs.current = tab
        self._latest = tab.page

    def _on_close(self, page: Page) -> None:
        self._closings += 1
        self._pages.discard(page)
        if not self._pages:
            self.closed.set()

    async def save_until_closed(self, store: Callable[[Snapshot], Awaitable[None]]) -> None:
        """Wait until the window is closed or lost, and save it meanwhile; `store` makes a snapshot durable.

        Raises:
            Exception: `store` raised it.
        """
        stored_at = float("-inf")
        while not self._is_over():
            if (
                await self._take_checkpoint()
                and anyio.current_time() - stored_at >= self._store_seconds
            ):
                assert self.last is not None
                await store(self.last)
                stored_at = anyio.current_time()
            with anyio.move_on_after(self._checkpoint_seconds):
                await self._wait_for_end()

    def _is_over(self) -> bool:
        return self.closed.is_set() or self._connection.lost.is_set()

    async def _wait_for_end(self) -> None:
        with suppress(RaceLost):
            await race(self.closed.wait, self._connection.lost.wait)

    async def _take_checkpoint(self) -> bool:
        """Take a checkpoint of the window. Return whether all tabs stayed open meanwhile."""
        closings, pages = self._closings, [page for page in self._order if page in self._pages]
        try:
            snapshot = await self._connection.checkpoint()
        except ConnectionLost:
            return False
        # A window that is being closed loses its tabs one by one, so a closed tab makes the snapshot incomplete.
        if snapshot is None or self._is_over() or closings != self._closings:
            return False
        self.last = snapshot
        self._order = [page for page in self._order if page in self._pages]
        self._pages_saved = pages
        return True

    async def final_snapshot(self) -> Snapshot | None:
        """Return the final snapshot: the tabs as last seen, with the data that the browser stores now."""
        if self._connection.lost.is_set():
            return self.last
        try:
            snapshot = await self._connection.snapshot()
        except ConnectionLost:
            return self.last
        if snapshot is None:
            return self.last
        state = ContextSnapshot.from_snapshot(snapshot, self._encryption)
        if self.closed.is_set():
            last = ContextSnapshot()
            if self.last is not None:
                last = ContextSnapshot.from_snapshot(self.last, self._encryption)
            state = self._with_tabs(state, last)
        return _without_browser_pages(state).to_snapshot(self._encryption)

    @property
    def shown(self) -> Shown | None:
        """The pages that a closed window showed last; None while it is open."""
        if not self.closed.is_set():
            return None
        return Shown([page.url for page in self._order], self._latest.url if self._latest else "")

    def _with_tabs(self, state: ContextSnapshot, last: ContextSnapshot) -> ContextSnapshot:
        """Add the tabs of a closed window, as last seen; a tab that has navigated since is saved by its address only."""
        pages = self._order
        tabs_by_page = dict(zip(self._pages_saved, last.tabs, strict=False))
        tabs: list[SavedTab] = []
        for page in pages:
            tab = tabs_by_page.get(page)
            tabs.append(tab if tab is not None and tab.url == page.url else SavedTab(page.url))
        current = pages.index(self._latest) if self._latest in pages else last.current
        return replace(state, tabs=tabs, current=current)


def _without_browser_pages(context_snapshot: ContextSnapshot) -> ContextSnapshot:
    """Return the state without tabs that a session cannot have, such as the browser's own pages."""
    indexes = [n for n, tab in enumerate(context_snapshot.tabs) if scheme_allowed(tab.url)]
    current = sum(n < context_snapshot.current for n in indexes)
    tabs = [context_snapshot.tabs[n] for n in indexes]
    return replace(context_snapshot, tabs=tabs, current=min(current, max(len(tabs) - 1, 0)))
