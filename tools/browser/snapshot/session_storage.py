"""The sessionStorage of tabs, also for origins that they have left; a tab that returns to an origin finds it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from ....sessions.json_codec import JSON
from .. import errors
from ..devtools.blank_pages import load_blank
from ..devtools.world import WorldError
from .storage_records import describe_origins
from .storage_watch import ContextWatch

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
        self._by_page: WeakKeyDictionary[Page, dict[str, str]] = WeakKeyDictionary()
        self._too_large: WeakKeyDictionary[Page, set[str]] = WeakKeyDictionary()

    def adopt(self, page: Page, by_origin: Mapping[str, str]) -> None:
        """Set the session storage of a tab from a snapshot."""
        if by_origin:
            self._by_page[page] = dict(by_origin)

    def note(self, page: Page, state: JSON) -> None:
        """Set the session storage of a tab for one origin from a result of page/tab.js."""
        origin = state["origin"]
        by_origin = self._by_page.setdefault(page, {})
        too_large = self._too_large.setdefault(page, set())
        by_origin.pop(origin, None)
        too_large.discard(origin)
        if "session storage" in state["cut"]:
            too_large.add(origin)
        elif state["session"] is not None:
            by_origin[origin] = state["session"]
        size = sum(map(len, by_origin.values()))
        for oldest in list(by_origin)[:-1]:
            if size <= TAB_BYTES:
                break
            size -= len(by_origin.pop(oldest))
            too_large.add(oldest)

    def forget(self, origin: str) -> None:
        """Drop the session storage for an origin, after its site had the browser clear it."""
        for by_origin in self._by_page.values():
            by_origin.pop(origin, None)

    def of(self, page: Page) -> dict[str, str]:
        """Return the session storage of a tab by origin."""
        return dict(self._by_page.get(page, {}))

    def describe_losses(self, page: Page, *, but: str | None) -> list[str]:
        """Return, in words, the session storage that of() lacks or has in an older state, but for the origin `but`."""
        too_large = self._too_large.get(page, set()) - {but}
        departed = set(self._watch.visited_origins.get(page, ())) - too_large - {but}
        losses = describe_origins("session storage", sorted(too_large), " (too much)")
        return [*losses, "the latest session storage of left sites"] if departed else losses

    async def restore(self, page: Page, *, but: str | None) -> list[str]:
        """Restore the session storage of a tab but for the origin `but`. Return, in words, what failed.

        The page is inside `without_network`.

        Raises:
            playwright's Error: The page is gone.
        """
        losses: list[str] = []
        for origin, text in self.of(page).items():
            if origin == but:
                continue
            try:
                await load_blank(page, origin + "/")
                await (await self._watch.world(page)).run("restoreTab", origin, text, None)
            except (errors.Error, WorldError):
                if page.is_closed():
                    raise
                losses.append(f"session storage of {origin}")
        # The tab loaded these origins only to restore them.
        self._watch.visited_origins.pop(page, None)
        return losses


def without_sessions(tab: SavedTab, origins: Collection[str]) -> SavedTab:
    """Return a saved tab without its session storage for some origins."""
    sessions = {origin: text for origin, text in tab.sessions.items() if origin not in origins}
    return replace(tab, sessions=sessions)
