"""The tabs of one session: their order, the current one, and their limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias
from weakref import WeakSet

import anyio

from ..devtools.pages import new_page
from ..devtools.world import origin_of
from ..snapshot.saved_tab import DormantTab
from .tab import Level, Tab, TabEvents

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Dialog, Download, Page, Request

    from ..snapshot.saved_storage import OriginStorage

Entry: TypeAlias = Tab | DormantTab

RESTORE_SECONDS: Final = 10.0
EXPECT_SECONDS: Final = 1.0
"""Seconds within which a new window has to send a request or become a page. Some windows never become one."""

CLOSED_AGAIN: Final = "A tab opened and closed again."


class Tabs:
    """The tabs of a context, in the order in which they opened. Lives as long as the context.

    A page that a page opens becomes a tab, but not the current one: only the caller changes the current tab. Pages beyond
    `limit` are closed at once, and the next answer says so. Tabs of a restored session are dormant until they are selected:
    they count, but have no page yet. Iterating yields the tabs that have a page.
    """

    def __init__(
        self,
        context: BrowserContext,
        *,
        limit: int,
        spawn: Callable[..., None],
        on_download: Callable[[Tab, Download], None],
        is_hidden: Callable[[Page], bool] = lambda _: False,
        console_level: Level = "error",
        are_foreign: bool = False,
        cut: Callable[[str, int], str] = lambda text, most: text[:most],
    ) -> None:
        """`is_hidden` returns whether a page of the context is no tab; `cut` see Tab.

        `are_foreign`: the pages are those of a person, and none is closed without a call for it.
        """
        self._are_foreign = are_foreign
        self.context = context
        self._current: Tab | None = None
        self.on_current: Callable[[], None] = _do_nothing
        """Called when another tab becomes the current one."""
        self.event_lines = TabEvents()
        self._open_events: dict[Tab, str] = {}
        """The event line about each tab that a page opened."""
        self._windows: WeakSet[Page] = WeakSet()
        """Pages that are known to be opened by other pages, except those closed by close()."""
        self.on_tab: Callable[[Tab], None] = lambda _: None
        """Is called with each new tab that has a page."""
        self.refused_count = 0
        self.before_close: Callable[[Page], Awaitable[None]] = _nothing
        """Called with each page before close() closes it."""
        self._limit = limit
        self._console_level: Level = console_level
        self._cut = cut
        self._spawn = spawn
        self._on_download = on_download
        self._opening = 0
        self._is_hidden = is_hidden
        self._entries: list[Entry] = []
        self._count = 0
        """The number of tabs made so far."""
        self._next: DormantTab | None = None
        """The dormant tab that becomes the current one when a current tab is needed."""
        self._first_requests: set[Request] = set()
        """First requests of new windows: Playwright reports their pages only after the answer."""
        self._expected_windows: dict[str, None] = {}
        """Ids of the windows that pages are opening."""
        self._window_change = anyio.Event()
        self._loading_pages: list[Page] = []
        """Tabs that pages opened since the last arrived()."""
        self._other_pages: list[Page] = []
        """Pages that appeared while open() or select() opened one: all others were opened by pages."""
        context.on("request", self._on_request)
        context.on("page", self._on_page)
        for page in context.pages:
            self._on_page(page)

    def __iter__(self) -> Iterator[Tab]:
        return (tab for tab in self._entries if isinstance(tab, Tab))

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: int) -> Entry:
        return self._entries[index]

    @property
    def entries(self) -> Sequence[Entry]:
        return tuple(self._entries)

    def index(self, tab: Entry) -> int:
        return self._entries.index(tab)

    @property
    def current(self) -> Tab | None:
        return self._current

    @current.setter
    def current(self, tab: Tab | None) -> None:
        self._current = tab
        self.on_current()

    @property
    def is_unused(self) -> bool:
        """Whether there is no tab and never was one."""
        return not self._count and not self._entries

    @property
    def current_index(self) -> int:
        """The index of the current tab; 0 if there is none."""
        current = self.current or self._next
        return self._entries.index(current) if current in self._entries else 0

    @property
    def pages(self) -> list[Page | DormantTab]:
        """The pages and dormant tabs in order, as a snapshot is made from them."""
        return [tab.page if isinstance(tab, Tab) else tab for tab in self._entries]

    def adopt(self, entries: Sequence[Page | DormantTab], current: int) -> None:
        """Put the restored tabs into their former order; tabs that their pages opened meanwhile follow."""
        restored = [e if isinstance(e, DormantTab) else self._tab_of(e) for e in entries]
        self._entries = [*restored, *(tab for tab in self if tab not in restored)]
        chosen = restored[current] if restored else None
        self.current = chosen if isinstance(chosen, Tab) else self.current
        self.event_lines.clear()

    async def ensure(self) -> Tab:
        """Return the current tab; open one if there is none."""
        if self.current is not None:
            return self.current
        return await self.open() if self._next is None else await self.select(self._next)

    async def select(self, tab: Entry) -> Tab:
        """Make a tab the current one. A dormant tab is restored; events report parts that could not be restored."""
        self.current = tab if isinstance(tab, Tab) else await self._restore_tab(tab)
        self._next = None
        return self.current

    async def _restore_tab(self, dormant: DormantTab) -> Tab:
        # Its index may have changed since the snapshot, as other tabs were closed.
        dormant.number = self._entries.index(dormant)
        tab = self._tab_of(await self._await_own_page(dormant.open(seconds=RESTORE_SECONDS)))
        self._entries.remove(tab)
        self._entries[self._entries.index(dormant)] = tab
        self.event_lines += [f"Not restored: {what}." for what in dormant.report.lost]
        return tab

    async def open(self) -> Tab:
        """Open an empty tab and make it the current one.

        Raises:
            IndexError: The limit is reached.
        """
        if len(self._entries) >= self._limit:
            raise IndexError(f"there may be at most {self._limit} tabs; close one first")
        return await self.select(self._tab_of(await self._await_own_page(new_page(self.context))))

    async def replace(self, tab: Tab) -> Tab:
        """Close a tab, open an empty one in its place, and make that the current one."""
        new = self._tab_of(await self._await_own_page(new_page(self.context)))
        if tab in self._entries:
            self._entries.remove(new)
            self._entries[self._entries.index(tab)] = new
        await self.close(tab)
        return await self.select(new)

    async def restore(self, tab: Tab, origins: OriginStorage) -> Tab:
        """Close a tab whose page crashed, and open it in its place as it was saved last. Make that the current one.

        A page that crashes again gives an empty tab. Events say what was not restored.
        """
        saved_tab = origins.last_known(tab.page)
        dormant = DormantTab(saved_tab, 0, self.context, origins)
        index = self._entries.index(tab) if tab in self._entries else len(self._entries)
        self._entries[index : index + 1] = [dormant]
        # If the call ends meanwhile, the next one opens the dormant tab.
        self.current, self._next = None, dormant
        await self.close(tab)
        self.event_lines.append(
            f"The page {self._cut(tab.url, 500)} had crashed; it was loaded again as it was last saved, without what its"
            " scripts held in memory."
        )
        restored = await self.select(dormant)
        if not restored.crashed:
            return restored
        self.event_lines.append("It crashed again; its tab was replaced by an empty one.")
        return await self.replace(restored)

    async def _await_own_page(self, opening: Awaitable[Page]) -> Page:
        """Wait for a page that we open, and report those that pages opened meanwhile."""
        self._opening += 1
        try:
            page = await opening
            self._other_pages = [other for other in self._other_pages if other != page]
            return page
        finally:
            self._opening -= 1
            if not self._opening:
                others, self._other_pages = self._other_pages, []
                for other in others:
                    self._match_window(other)
                    if not other.is_closed():
                        self._report_opened(self._tab_of(other))

    async def close(self, tab: Entry) -> None:
        """Close a tab, even if its page hangs. If it was the current one, the next tab becomes current, or else the last."""
        if isinstance(tab, Tab):
            self._windows.discard(tab.page)
            with suppress(Exception):
                await self.before_close(tab.page)
            await self._close(tab.page)
        self._remove(tab)

    async def _close(self, page: Page) -> None:
        with suppress(Exception):
            await page.close()

    def _on_flood(self, tab: Tab) -> None:
        if self._are_foreign:
            return
        self.event_lines.append(
            f"The page {self._cut(tab.url, 500)} did more at once than a page may (requests, messages, errors), and was"
            " closed."
        )
        self._spawn(self.close, tab)

    def _tab_of(self, page: Page) -> Tab:
        tab = next((tab for tab in self if tab.page == page), None)
        if tab is None:
            self._count += 1
            tab = Tab(
                page,
                self._count,
                spawn=self._spawn,
                on_download=self._on_download,
                on_flood=self._on_flood,
                console_level=self._console_level,
                cut=self._cut,
            )
            self._entries.append(tab)
            self.on_tab(tab)
            page.on("close", lambda _: self._remove(tab))
            page.on("crash", lambda _: self._report_crash(tab))
        return tab

    def _on_page(self, page: Page) -> None:
        self._first_requests = {
            r for r in self._first_requests if not _has_page(r) and r.failure is None
        }
        self._notify_window_change()
        if self._is_hidden(page):
            return
        is_known = any(tab.page == page for tab in self)
        from_page = not is_known and not self._opening
        if from_page:
            self._match_window(page)
        if from_page and len(self._entries) >= self._limit and not self._are_foreign:
            self.refused_count += 1
            if self.refused_count == 1:
                self.event_lines.append(
                    f"A page tried to open more than {self._limit} tabs; the rest was closed."
                )
            self._spawn(self._close, page)
            return
        tab = self._tab_of(page)
        if self.current is None and self._next is None:
            self.current = tab
        elif from_page:
            self._report_opened(tab)
        elif not is_known:
            self._other_pages.append(page)

    def _match_window(self, page: Page) -> None:
        if self._expected_windows:
            # There is no telling which window this page is; only the number of expected windows matters.
            self.stop_expecting(next(iter(self._expected_windows)))
            self._windows.add(page)

    def _report_opened(self, tab: Tab) -> None:
        self._open_events[tab] = f"A new tab opened ({self.index(tab)})."
        self.event_lines.append(self._open_events[tab])
        self._loading_pages.append(tab.page)

    def _report_crash(self, tab: Tab) -> None:
        if tab is self.current:
            self.event_lines.append("The page crashed.")
        elif tab in self._entries:
            self.event_lines.append(
                f"The page of tab {self.index(tab)} crashed: {self._cut(tab.url, 500)}"
            )

    def _on_request(self, request: Request) -> None:
        first = request.redirected_from is None and request.is_navigation_request()
        if first and not _has_page(request):
            self._first_requests.add(request)
        if worker := request.service_worker:
            # A service worker has no page of its own: charge its requests to the tabs of its site, which keep it alive.
            for tab in list(self):
                if origin_of(tab.url) == origin_of(worker.url):
                    tab.count_request(request)

    def expect_window(self, window: str) -> None:
        """Record that a page is opening a window."""
        self._expected_windows[window] = None

    def stop_expecting(self, window: str) -> None:
        """Stop expecting a window: it has become a page, or never will."""
        if window in self._expected_windows:
            del self._expected_windows[window]
            self._notify_window_change()

    def record_closed(self, window: str) -> None:
        """Record that a window is gone; it may never have become a page."""
        if window in self._expected_windows:
            self.event_lines.append(CLOSED_AGAIN)
            self.stop_expecting(window)

    def _notify_window_change(self) -> None:
        self._window_change.set()
        self._window_change = anyio.Event()

    async def wait_for_windows(self, *, seconds: float) -> None:
        """Wait, at most `seconds`, until the windows that pages are opening are tabs with a document.

        Later windows are reported with a later answer.
        """
        if not (self._first_requests or self._expected_windows or self._loading_pages):
            return
        with anyio.move_on_after(seconds):
            # Once a tab beyond the limit was closed, do not wait for the others: one report is enough.
            while (self._first_requests or self._expected_windows) and not self.refused_count:
                change = self._window_change
                with anyio.move_on_after(None if self._first_requests else EXPECT_SECONDS):
                    await change.wait()
                if not change.is_set() and not self._first_requests:
                    break
            while self._loading_pages:
                page = self._loading_pages.pop(0)
                with suppress(Exception):
                    await page.wait_for_load_state("domcontentloaded", timeout=seconds * 1000)
        self._first_requests.clear()
        self._expected_windows.clear()
        self._loading_pages.clear()

    def _remove(self, tab: Entry) -> None:
        if isinstance(tab, Tab):
            tab.closed = True
            if tab.page in self._loading_pages:
                self._loading_pages.remove(tab.page)
            line = self._open_events.pop(tab, "")
            if line in self.event_lines:
                self.event_lines.remove(line)
                if tab.page in self._windows:
                    self.event_lines.append(CLOSED_AGAIN)
        if tab not in self._entries:
            return
        index = self._entries.index(tab)
        self._entries.remove(tab)
        if tab not in (self.current, self._next):
            return
        successor = self._entries[min(index, len(self._entries) - 1)] if self._entries else None
        self.current = successor if isinstance(successor, Tab) else None
        self._next = successor if isinstance(successor, DormantTab) else None
        if successor is not None:
            self.event_lines.append("The current tab closed; another one is current now.")

    def take_events(self) -> TabEvents:
        events, self.event_lines, self.refused_count = self.event_lines, TabEvents(), 0
        self._open_events.clear()
        return events


def _has_page(request: Request) -> bool:
    try:
        return bool(request.frame)
    except Exception:
        return False


async def dismiss_dialog(dialog: Dialog) -> None:
    """Answer a dialog of a page that is no tab, as Playwright does without a listener."""
    with suppress(Exception):
        await (dialog.accept() if dialog.type == "beforeunload" else dialog.dismiss())


async def _nothing(page: Page) -> None:
    """Do nothing: the default of `before_close`."""


def _do_nothing() -> None:
    """Do nothing: the default of `on_current`."""
