"""The content of what was read last from a context, and the parts that could not be read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from ....sessions.one_line import plural
from ....sessions.owned_map import BoundedMap
from ..devtools.world import without_login
from .model import SavedTab, StoredOrigin

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page

STORED_BYTES: Final = 64 * 2**20
MAX_STORED_ORIGINS: Final = 500
"""With KNOWN_BYTES, the limits for all origins together: in memory, in a snapshot, and at the interceptor."""
MAX_REMEMBERED_ORIGINS: Final = 5000
"""The number of origins for which losses are remembered; the oldest are dropped."""
MAX_NAMED_ORIGINS: Final = 10
"""The number of origins that a message about losses names."""


class StorageRecords:
    """The storage of the origins of a context as it was read last. Lives as long as the context."""

    def __init__(self, stored: Mapping[str, StoredOrigin]) -> None:
        self.stored = dict(stored)
        self.dormant = set(stored)
        """The origins whose storage is not restored in the browser yet."""
        self._losses = BoundedMap[str, list[str]](MAX_REMEMBERED_ORIGINS)
        """By origin, the parts that `stored` lacks or has in an older state, in words."""
        self._dropped = BoundedMap[str, None](MAX_REMEMBERED_ORIGINS)
        """Origins dropped from `stored` to make room for origins that were read later."""

    def __repr__(self) -> str:
        return f"<StorageRecords stored={len(self.stored)} dormant={len(self.dormant)}>"

    def replace(self, origins: Mapping[str, StoredOrigin]) -> None:
        """Take other storage for all origins; none of it is in the browser yet."""
        self.stored, self.dormant = dict(origins), set(origins)
        self._losses.clear()
        self._dropped.clear()

    def add(self, origins: Mapping[str, StoredOrigin]) -> None:
        """Take storage for some origins; none of it is in the browser yet."""
        for origin, storage in origins.items():
            if storage:
                self._store(origin, storage)
                self.dormant.add(origin)

    def drop(self, origins: Collection[str]) -> None:
        """Forget the storage of some origins, which was cleared."""
        for origin in origins:
            self.stored.pop(origin, None)
            self.dormant.discard(origin)
            self._losses.pop(origin, None)

    def note(self, state: Mapping[str, Any]) -> None:
        """Update an origin with a result of page/storage.js. Parts that were not read stay as they were before."""
        origin = state["origin"]
        if origin in self.dormant:
            return
        before = self.stored.get(origin, StoredOrigin())
        missing: list[str] = []
        stale: list[str] = []
        items, databases = state["items"], state["databases"]
        if items is None:
            (missing if before.items is None else stale).append("local storage")
            items = before.items
        if databases is None:
            (stale if before.databases else missing).append("databases")
            databases = dict(before.databases)
        kept = {name: text for name, text in before.databases.items() if name in state["cut"]}
        databases |= kept
        # By number: a name is a text of the page, and a loss gets into our notes.
        if kept:
            stale.append(plural(len(kept), "database"))
        if missing_count := len(state["cut"]) - len(kept):
            missing.append(plural(missing_count, "database"))
        losses = [*missing, *state["other"], *(f"the latest of {part}" for part in stale)]
        self._losses.pop(origin, None)
        if losses:
            self._losses[origin] = losses
        self._store(origin, StoredOrigin(items, databases))

    def _store(self, origin: str, storage: StoredOrigin) -> None:
        """Keep the storage of an origin; beyond the limits, drop the origins that were read longest ago."""
        self.stored.pop(origin, None)
        self._dropped.pop(origin, None)
        if not storage:
            return
        self.stored[origin] = storage
        size = sum(entry.size for entry in self.stored.values())
        for oldest in list(self.stored)[:-1]:
            if size <= STORED_BYTES and len(self.stored) <= MAX_STORED_ORIGINS:
                break
            size -= self.stored.pop(oldest).size
            self.dormant.discard(oldest)
            self._dropped[oldest] = None

    def describe_losses(self) -> list[str]:
        """Return, in words, the stored data that `stored` lacks or has in an older state."""
        sites: dict[str, list[str]] = {}
        for origin, parts in self._losses.items():
            for part in parts:
                sites.setdefault(part, []).append(origin)
        lines = describe_origins("storage", list(self._dropped), " (too much)")
        return lines + [
            line for part, origins in sites.items() for line in describe_origins(part, origins)
        ]


class TabRecords:
    """The tabs of a context as they were read last, or as they were saved before. Lives as long as the context."""

    def __init__(self) -> None:
        self.last_read: WeakKeyDictionary[Page, SavedTab] = WeakKeyDictionary()
        """Tabs as they were read last."""
        self.unloadable: WeakKeyDictionary[Page, SavedTab] = WeakKeyDictionary()
        """Saved tabs that could not be loaded again, until they navigate."""
        self.failing: WeakKeyDictionary[Page, SavedTab] = WeakKeyDictionary()
        """Saved tabs that show an error page of their site, until they navigate; the saved state is not on their pages."""

    def last_known(self, page: Page) -> SavedTab:
        """Return a tab whose page does not answer: as it was read last, or by its address and the history before it."""
        url, before = without_login(page.url), self.last_read.get(page)
        if page in self.unloadable:
            return self.unloadable[page]
        if before is None or before.url == url:
            return before or SavedTab(url)
        history = [*before.history[: before.position + 1], url]
        tab = SavedTab(url, history=history, position=len(history) - 1)
        return replace(tab, viewport=before.viewport, media=before.media)

    def record_unloadable(self, page: Page, saved_tab: SavedTab) -> None:
        _keep_until_navigation(self.unloadable, page, saved_tab)

    def record_failing(self, page: Page, saved_tab: SavedTab) -> None:
        _keep_until_navigation(self.failing, page, saved_tab)


def describe_origins(part: str, origins: Sequence[str], suffix: str = "") -> list[str]:
    """Return messages that `part` of some origins is lost: one for each of the first TOLD, and one for the rest."""
    lines = [f"{part} of {origin}{suffix}" for origin in origins[:MAX_NAMED_ORIGINS]]
    more = len(origins) - len(lines)
    return [*lines, f"{part} of {more} more sites{suffix}"] if more else lines


def _keep_until_navigation(
    tabs: WeakKeyDictionary[Page, SavedTab], page: Page, saved_tab: SavedTab
) -> None:
    def drop(frame: Frame) -> None:
        # The browser's error page in place of a page is not a navigation of the tab.
        if frame.parent_frame is None and not frame.url.startswith("chrome-error:"):
            page.remove_listener("framenavigated", drop)
            tabs.pop(page, None)

    tabs[page] = saved_tab
    page.on("framenavigated", drop)
