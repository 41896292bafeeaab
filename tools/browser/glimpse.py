"""A look at a page while it is waited for: when the page did not change meanwhile, it is the look that was wanted."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .world import World, WorldError

if TYPE_CHECKING:
    from .tab import Tab

SMALL: Final = 500
"""Of a page with more elements than this, a look that may be in vain costs more than it saves."""

_IS_SMALL: Final = f"""(function count(root, found) {{
  for (const element of root.querySelectorAll("*")) {{
    if (++found > {SMALL}) break;
    if (element.shadowRoot) found = count(element.shadowRoot, found);
  }}
  return found;
}})(document, 0) <= {SMALL}"""


@dataclass(slots=True)
class Glimpse:
    """What was seen of a page. Worth nothing until it is known that the page stayed as it was."""

    tab: Tab
    title: object = None
    """What the page says that its title is."""
    snapshot: str | None = None

    @property
    def is_whole(self) -> bool:
        return isinstance(self.title, str) and self.snapshot is not None

    async def prepare(self) -> None:
        """Make ready what a snapshot needs in each document, which takes longer than the snapshot of a small one."""
        from playwright.async_api import Error

        with suppress(Error):
            await self.tab.page.locator(":root").count()

    async def take(self, world: World) -> None:
        """Look at the page, if it is small. Never raises; a page that does not answer is seen in part or not at all."""
        from playwright.async_api import Error

        # What an earlier look saw may be of another page.
        self.snapshot = None
        with suppress(Error, WorldError):
            if await world.ask(_IS_SMALL):
                self.snapshot = await self.tab.page.aria_snapshot(mode="ai")


__all__ = ["Glimpse"]
