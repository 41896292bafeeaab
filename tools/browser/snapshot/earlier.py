"""The session storage of tabs for origins that they do not show now; a tab that returns to an origin finds it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from ....sessions.json_codec import JSON
from .doorstep import stand
from .watch import ContextWatch
from .world import WorldError, origin_of

if TYPE_CHECKING:
    from playwright.async_api import Page

    from .model import SavedTab

TAB_BYTES: Final = 2**20
"""The most characters kept for one tab. The origins visited last are kept first."""
NOTHING: Final = '{"session":[],'
"""The beginning of an entry of page/state.js without session storage."""
STATE: Final = '],"state":'
"""The separator between session storage and the rest of an entry; inside a string its quotes would be escaped."""


class SessionStorages:
    """The session storage of the tabs of a context, as far as it was read. Lives as long as the context."""

    def __init__(self, watch: ContextWatch) -> None:
        self.copying = True
        """Whether tabs may be copied to read session storage; in a window a person would see that."""
        self._watch = watch
        self._kept: WeakKeyDictionary[Page, dict[str, str]] = WeakKeyDictionary()
        self._cut: WeakKeyDictionary[Page, set[str]] = WeakKeyDictionary()

    def adopt(self, page: Page, kept: Mapping[str, str]) -> None:
        """Set the session storage of a tab from a snapshot."""
        if kept:
            self._kept[page] = dict(kept)

    def note(self, page: Page, found: JSON) -> None:
        """Set the session storage of a tab for one origin from a result of page/state.js."""
        origin, entry = found["origin"], found["entry"]
        kept = self._kept.setdefault(page, {})
        cut = self._cut.setdefault(page, set())
        kept.pop(origin, None)
        cut.discard(origin)
        if "session storage" in found["cut"]:
            cut.add(origin)
        elif entry is not None and not entry.startswith(NOTHING):
            # Drop history state and name: they belong to the window, not to each origin that it has shown.
            kept[origin] = entry.partition(STATE)[0] + STATE + '"null"}'
        size = sum(map(len, kept.values()))
        for oldest in list(kept):
            if size <= TAB_BYTES:
                break
            size -= len(kept.pop(oldest))
            cut.add(oldest)

    def cleared(self, origin: str) -> None:
        """Mark the session storage for an origin as unread, after its site had the browser clear it."""
        for page in [page for page, kept in self._kept.items() if origin in kept]:
            self._watch.note_been(origin, page)

    def left(self, page: Page, *, but: Collection[str]) -> list[str]:
        """Return the origins that a tab has shown since its session storage for them was last read."""
        return sorted(set(self._watch.been.get(page, ())) - set(but))

    def of(self, page: Page, *, at: str | None) -> dict[str, str]:
        """Return the session storage of a tab by origin, without that of the origin `at`."""
        return {key: text for key, text in self._kept.get(page, {}).items() if key != at}

    def unsaved(self, page: Page, *, at: str | None, read: Collection[str]) -> list[str]:
        """Return, in words, the session storage of other origins that of() lacks or has in an older state."""
        cut = sorted(self._cut.get(page, set()) - {at})
        late = [origin for origin in self.left(page, but=read) if origin != at]
        return [
            *(f"session storage of {origin} (too much)" for origin in cut),
            *(f"the latest session storage of {origin}" for origin in late),
        ]

    async def put_back(self, page: Page, *, at: str | None) -> list[str]:
        """Restore the session storage of a tab, whose page is inside `nowhere`. Return, in words, what failed.

        Raises:
            playwright's Error: The page is gone.
        """
        from playwright.async_api import Error

        lost: list[str] = []
        for origin, text in self.of(page, at=at).items():
            try:
                await stand(page, origin + "/")
                await (await self._watch.world(page)).run("restoreEntry", origin, text)
            except (Error, WorldError):
                if page.is_closed():
                    raise
                lost.append(f"session storage of {origin}")
        # The tab loaded these origins only to restore them.
        self._watch.been.pop(page, None)
        return lost


def without(tab: SavedTab, origins: Collection[str]) -> SavedTab:
    """Return a saved tab without its session storage for some origins."""
    entry = tab.entry
    if entry is not None and origin_of(tab.url) in origins:
        entry = NOTHING + STATE.removeprefix("],") + entry.partition(STATE)[2]
    kept = {origin: text for origin, text in tab.sessions.items() if origin not in origins}
    return replace(tab, entry=entry, sessions=kept)


__all__ = ["SessionStorages", "without"]
