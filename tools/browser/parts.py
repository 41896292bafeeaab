"""The processes that a browser consists of, as it tells itself."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio

if TYPE_CHECKING:
    from playwright.async_api import Browser

BROWSER: Final = "browser"
HOLDERS: Final = {
    "network.mojom.NetworkService": "its network process ended",
    "storage.mojom.StorageService": "its storage process ended",
}
"""Which hold what pages have stored, such as cookies. Chromium starts an empty one in the place of one that ended, and
tells nobody."""


class Parts:
    """The processes of one browser here. It lives as long as the browser."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._session: Any = None

    async def now(self, *, within: float) -> list[tuple[str, int]]:
        """Return kind and pid of each that runs; nothing when the browser does not say within some seconds. Never raises."""
        with suppress(Exception), anyio.move_on_after(within):
            if self._session is None:
                self._session = await self._browser.new_browser_cdp_session()
            found: Any = await self._session.send("SystemInfo.getProcessInfo")
            return [(part["type"], part["id"]) for part in found["processInfo"]]
        return []


__all__ = ["BROWSER", "HOLDERS", "Parts"]
