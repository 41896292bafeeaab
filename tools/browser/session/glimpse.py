"""A look at a page while it is waited for: when the page did not change meanwhile, it is the look that was wanted."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..snapshot.world import World, WorldError

if TYPE_CHECKING:
    from .tab import Tab

SMALL: Final = 500
"""Of a page with more elements than this, a look that may be in vain costs more than it saves."""
LARGE: Final = 3000
"""Of a page with more, a look takes longer than it is waited for."""
KEPT: Final = 200
"""How many addresses of calm pages are known."""

_COUNT: Final = f"""(function count(root, found) {{
  for (const element of root.querySelectorAll("*")) {{
    if (++found > {LARGE}) break;
    if (element.shadowRoot) found = count(element.shadowRoot, found);
  }}
  return found;
}})(document, 0)"""


class SettledAddresses:
    """The addresses whose pages stayed as they were when they were waited for last. It lives as long as a session."""

    def __init__(self) -> None:
        self._urls: dict[str, None] = {}

    def __contains__(self, url: str) -> bool:
        return url in self._urls

    def note(self, url: str, *, same: bool) -> None:
        """Note whether the page at an address stayed the same this time; of many only the latest are known."""
        self._urls.pop(url, None)
        if same:
            self._urls[url] = None
        if len(self._urls) > KEPT:
            del self._urls[next(iter(self._urls))]


@dataclass(slots=True)
class PageSample:
    """What was seen of a page. Worth nothing until it is known that the page stayed as it was."""

    tab: Tab
    calm: SettledAddresses
    title: object = None
    """What the page says that its title is."""
    snapshot: str | None = None

    @property
    def is_whole(self) -> bool:
        return isinstance(self.title, str) and self.snapshot is not None

    async def take(self, world: World) -> None:
        """Look at the page, if it will hardly be in vain. Never raises; one that does not answer is not seen."""
        from playwright.async_api import Error

        # What an earlier look saw may be of another page.
        self.snapshot = None
        with suppress(Error, WorldError):
            if await world.ask(_COUNT) <= (LARGE if self.tab.page.url in self.calm else SMALL):
                self.snapshot = await self.tab.page.aria_snapshot(mode="ai")


async def prepare(tab: Tab) -> None:
    """Make ready what a snapshot needs in each document, which takes longer than the snapshot of a small one."""
    from playwright.async_api import Error

    with suppress(Error):
        await tab.page.locator(":root").count()


__all__ = ["SettledAddresses", "PageSample", "prepare"]
