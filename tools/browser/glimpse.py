"""A look at a page while it is waited for: when the page did not change meanwhile, it is the look that was wanted."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from .tab import Tab

SMALL: Final = 500
"""Of a page with more elements than this, a look that may be in vain costs more than it saves."""


@dataclass(slots=True)
class Glimpse:
    """What was seen of a page. Worth nothing until it is known that the page stayed as it was."""

    tab: Tab
    title: str | None = None
    snapshot: str | None = None

    @property
    def is_whole(self) -> bool:
        return self.title is not None and self.snapshot is not None

    async def take(self, loaded: anyio.Event) -> None:
        """Look at the page once it is loaded, if it is small, and make ready before what that needs.

        Never raises; a page that does not answer is seen in part or not at all.
        """
        from playwright.async_api import Error

        page = self.tab.page
        # What an earlier look saw may be of another page.
        self.title = self.snapshot = None
        with suppress(Error):
            # Not asked of the page itself, so that it also makes ready what the snapshot needs.
            if await page.locator("*").count() > SMALL:
                return
            await loaded.wait()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._entitle)
                with suppress(Error):
                    self.snapshot = await page.aria_snapshot(mode="ai")

    async def _entitle(self) -> None:
        from playwright.async_api import Error

        with suppress(Error):
            self.title = await self.tab.page.title()


__all__ = ["Glimpse"]
