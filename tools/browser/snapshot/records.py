"""The content of what was read last from a context, and the parts that could not be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary

from .model import SavedTab, StoredOrigin

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page

T = TypeVar("T")

KNOWN_BYTES: Final = 64 * 2**20
KNOWN_ORIGINS: Final = 500
"""With KNOWN_BYTES, the limits for all origins together: in memory, in a snapshot, and at the interceptor."""
NOTED: Final = 5000
"""The number of origins for which losses are remembered; the oldest are dropped."""
TOLD: Final = 10
"""The number of origins that a message about losses names."""
WORDS: Final = 100
"""The most characters of a lost part in a message: databases may have long names."""


class StorageRecords:
    """The storage of the origins of a context as it was read last. Lives as long as the context."""

    def __init__(self, known: Mapping[str, StoredOrigin]) -> None:
        self.known = dict(known)
        self.asleep = set(known)
        """The origins whose storage is not restored in the browser yet."""
        self._lost: dict[str, list[str]] = {}
        """By origin, the parts that `known` lacks or has in an older state, in words."""
        self._dropped: dict[str, None] = {}
        """Origins dropped from `known` to make room for origins that were read later."""

    def __repr__(self) -> str:
        return f"<StorageRecords known={len(self.known)} asleep={len(self.asleep)}>"

    def replace(self, origins: Mapping[str, StoredOrigin]) -> None:
        """Take other storage for all origins; none of it is in the browser yet."""
        self.known, self.asleep = dict(origins), set(origins)
        self._lost.clear()
        self._dropped.clear()

    def note(self, found: Mapping[str, Any]) -> None:
        """Update an origin with a result of page/storage.js. Parts that were not read stay as they were before."""
        origin = found["origin"]
        if origin in self.asleep:
            return
        before = self.known.get(origin, StoredOrigin())
        missing: list[str] = []
        stale: list[str] = []
        items, databases = found["items"], found["databases"]
        if items is None:
            (missing if before.items is None else stale).append("local storage")
            items = before.items
        if databases is None:
            (stale if before.databases else missing).append("databases")
            databases = dict(before.databases)
        for name in found["cut"]:
            (stale if name in before.databases else missing).append(f"the database {name}")
            if name in before.databases:
                databases[name] = before.databases[name]
        lost = [*missing, *found["other"], *(f"the latest of {what}" for what in stale)]
        self._lost.pop(origin, None)
        if lost:
            _note(self._lost, origin, lost)
        self._keep(origin, StoredOrigin(items, databases))

    def _keep(self, origin: str, stored: StoredOrigin) -> None:
        """Keep the storage of an origin; beyond the limits, drop the origins that were read longest ago."""
        self.known.pop(origin, None)
        self._dropped.pop(origin, None)
        if not stored:
            return
        self.known[origin] = stored
        size = sum(each.size for each in self.known.values())
        for oldest in list(self.known)[:-1]:
            if size <= KNOWN_BYTES and len(self.known) <= KNOWN_ORIGINS:
                break
            size -= self.known.pop(oldest).size
            self.asleep.discard(oldest)
            _note(self._dropped, oldest, None)

    def unsaved(self) -> list[str]:
        """Return, in words, the stored data that `known` lacks or has in an older state."""
        sites: dict[str, list[str]] = {}
        for origin, parts in self._lost.items():
            for what in parts:
                sites.setdefault(what[:WORDS], []).append(origin)
        found = listed("storage", list(self._dropped), " (too much)")
        return found + [line for what, its in sites.items() for line in listed(what, its)]


class TabRecords:
    """The tabs of a context as they were read last, or as they were saved before. Lives as long as the context."""

    def __init__(self) -> None:
        self.read: WeakKeyDictionary[Page, SavedTab] = WeakKeyDictionary()
        """Tabs as they were read last."""
        self.unloaded: WeakKeyDictionary[Page, SavedTab] = WeakKeyDictionary()
        """Saved tabs that could not be loaded again, until they navigate."""
        self.failing: WeakKeyDictionary[Page, SavedTab] = WeakKeyDictionary()
        """Saved tabs that show an error page of their site, until they navigate; the saved state is not on their pages."""

    def note_unloaded(self, page: Page, saved: SavedTab) -> None:
        _keep_until_navigation(self.unloaded, page, saved)

    def note_failing(self, page: Page, saved: SavedTab) -> None:
        _keep_until_navigation(self.failing, page, saved)


def listed(what: str, origins: Sequence[str], why: str = "") -> list[str]:
    """Return messages that `what` of some origins is lost: one for each of the first TOLD, and one for the rest."""
    lines = [f"{what} of {origin}{why}" for origin in origins[:TOLD]]
    more = len(origins) - len(lines)
    return [*lines, f"{what} of {more} more sites{why}"] if more else lines


def _note(noted: dict[str, T], origin: str, what: T) -> None:
    """Set the value of an origin; beyond NOTED origins, drop the oldest."""
    noted[origin] = what
    if len(noted) > NOTED:
        del noted[next(iter(noted))]


def _keep_until_navigation(
    kept: WeakKeyDictionary[Page, SavedTab], page: Page, saved: SavedTab
) -> None:
    def drop(frame: Frame) -> None:
        # The browser's error page in place of a page is not a navigation of the tab.
        if frame.parent_frame is None and not frame.url.startswith("chrome-error:"):
            page.remove_listener("framenavigated", drop)
            kept.pop(page, None)

    kept[page] = saved
    page.on("framenavigated", drop)


__all__ = ["StorageRecords", "TabRecords", "listed"]
