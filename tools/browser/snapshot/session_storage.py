"""The sessionStorage of tabs, also for origins that they have left; a tab that returns to an origin finds it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from ....sessions.json_codec import JSON
from .blank_pages import load_blank
from .records import listed
from .watch import ContextWatch
from .world import WorldError

if TYPE_CHECKING:
    from playwright.async_api import Page

    from .model import SavedTab

TAB_BYTES: Final = 2**20
"""The most characters kept for one tab. The origins visited last are kept first."""


class SessionStorage:
    """The session storage of the tabs of a context, as it was read last. Lives as long as the context.

    Only the origin that a tab shows can be read. The latest changes before it left an origin are reported lost.
    """

    def __init__(self, watch: ContextWatch) -> None:
        self._watch = watch
        self._kept: WeakKeyDictionary[Page, dict[str, str]] = WeakKeyDictionary()
        self._cut: WeakKeyDictionary[Page, set[str]] = WeakKeyDictionary()

    def adopt(self, page: Page, kept: Mapping[str, str]) -> None:
        """Set the session storage of a tab from a snapshot."""
        if kept:
            self._kept[page] = dict(kept)

    def note(self, page: Page, found: JSON) -> None:
        """Set the session storage of a tab for one origin from a result of page/tab.js."""
        origin = found["origin"]
        kept = self._kept.setdefault(page, {})
        cut = self._cut.setdefault(page, set())
        kept.pop(origin, None)
        cut.discard(origin)
        if "session storage" in found["cut"]:
            cut.add(origin)
        elif found["session"] is not None:
            kept[origin] = found["session"]
        size = sum(map(len, kept.values()))
        for oldest in list(kept)[:-1]:
            if size <= TAB_BYTES:
                break
            size -= len(kept.pop(oldest))
            cut.add(oldest)

    def forget(self, origin: str) -> None:
        """Drop the session storage for an origin, after its site had the browser clear it."""
        for kept in self._kept.values():
            kept.pop(origin, None)

    def of(self, page: Page) -> dict[str, str]:
        """Return the session storage of a tab by origin."""
        return dict(self._kept.get(page, {}))

    def unsaved(self, page: Page, *, at: str | None) -> list[str]:
        """Return, in words, the session storage that of() lacks or has in an older state, but for the origin `at`."""
        cut = self._cut.get(page, set()) - {at}
        left = set(self._watch.visited.get(page, ())) - cut - {at}
        lost = listed("session storage", sorted(cut), " (too much)")
        return [*lost, "the latest session storage of left sites"] if left else lost

    async def put_back(self, page: Page, *, at: str | None) -> list[str]:
        """Restore the session storage of a tab but for the origin `at`. Return, in words, what failed.

        The page is inside `without_network`.

        Raises:
            playwright's Error: The page is gone.
        """
        from playwright.async_api import Error

        lost: list[str] = []
        for origin, text in self.of(page).items():
            if origin == at:
                continue
            try:
                await load_blank(page, origin + "/")
                await (await self._watch.world(page)).run("restoreTab", origin, text, None)
            except (Error, WorldError):
                if page.is_closed():
                    raise
                lost.append(f"session storage of {origin}")
        # The tab loaded these origins only to restore them.
        self._watch.visited.pop(page, None)
        return lost


def without(tab: SavedTab, origins: Collection[str]) -> SavedTab:
    """Return a saved tab without its session storage for some origins."""
    kept = {origin: text for origin, text in tab.sessions.items() if origin not in origins}
    return replace(tab, sessions=kept)


__all__ = ["SessionStorage", "without"]
