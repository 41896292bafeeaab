"""What tabs keep in their session storage for sites that they are not at now: a tab that comes back to one finds it."""

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
"""How much of it is kept of one tab. What the tab was at last is kept rather than what it was at before."""
NOTHING: Final = '{"session":[],'
"""How what page/state.js wrote begins when there is none."""
STATE: Final = '],"state":'
"""What stands between session storage and the rest: within a string the quotes would be escaped."""


class SessionStorages:
    """The session storage of the tabs of a context, as far as it was read. Lives as long as the context."""

    def __init__(self, watch: ContextWatch) -> None:
        self.copying = True
        """Whether tabs may be copied to read it, which a person would see in a window."""
        self._watch = watch
        self._kept: WeakKeyDictionary[Page, dict[str, str]] = WeakKeyDictionary()
        self._cut: WeakKeyDictionary[Page, set[str]] = WeakKeyDictionary()

    def adopt(self, page: Page, kept: Mapping[str, str]) -> None:
        """Take over what was saved of a tab."""
        if kept:
            self._kept[page] = dict(kept)

    def note(self, page: Page, found: JSON) -> None:
        """Take over what page/state.js read of a tab at an origin."""
        origin, entry = found["origin"], found["entry"]
        kept = self._kept.setdefault(page, {})
        cut = self._cut.setdefault(page, set())
        kept.pop(origin, None)
        cut.discard(origin)
        if "session storage" in found["cut"]:
            cut.add(origin)
        elif entry is not None and not entry.startswith(NOTHING):
            # History and name are those of the window, and not of all that it was at.
            kept[origin] = entry.partition(STATE)[0] + STATE + '"null"}'
        size = sum(map(len, kept.values()))
        for oldest in list(kept):
            if size <= TAB_BYTES:
                break
            size -= len(kept.pop(oldest))
            cut.add(oldest)

    def cleared(self, origin: str) -> None:
        """Have read anew what tabs keep for an origin that had the browser forget it."""
        for page in [page for page, kept in self._kept.items() if origin in kept]:
            self._watch.note_been(origin, page)

    def left(self, page: Page, *, but: Collection[str]) -> list[str]:
        """Return the origins that a tab was at since they were last read of it."""
        return sorted(set(self._watch.been.get(page, ())) - set(but))

    def of(self, page: Page, *, at: str | None) -> dict[str, str]:
        """Return what a tab keeps for other origins than the one that it is at."""
        return {key: text for key, text in self._kept.get(page, {}).items() if key != at}

    def unsaved(self, page: Page, *, at: str | None, read: Collection[str]) -> list[str]:
        """Say what of other origins is not in `of()`, or as it was before."""
        cut = sorted(self._cut.get(page, set()) - {at})
        late = [origin for origin in self.left(page, but=read) if origin != at]
        return [
            *(f"session storage of {origin} (too much)" for origin in cut),
            *(f"the latest session storage of {origin}" for origin in late),
        ]

    async def put_back(self, page: Page, *, at: str | None) -> list[str]:
        """Put what is kept into a tab that is nowhere. Returns what could not be put back, in words.

        Raises:
            playwright's Error: the page is gone.
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
        # The tab was there to put it back, and no more.
        self._watch.been.pop(page, None)
        return lost


def without(tab: SavedTab, origins: Collection[str]) -> SavedTab:
    """Return a saved tab without what it keeps for some origins."""
    entry = tab.entry
    if entry is not None and origin_of(tab.url) in origins:
        entry = NOTHING + STATE.removeprefix("],") + entry.partition(STATE)[2]
    kept = {origin: text for origin, text in tab.sessions.items() if origin not in origins}
    return replace(tab, entry=entry, sessions=kept)


__all__ = ["SessionStorages", "without"]
