"""The processes that a browser consists of, as it tells itself."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio

from ...processes import procfs

if TYPE_CHECKING:
    from playwright.async_api import Browser

BROWSER: Final = "browser"
ZYGOTE: Final = "zygote"
NETWORK: Final = "network.mojom.NetworkService"
NEEDED: Final = {
    NETWORK: "its network process ended",
    "storage.mojom.StorageService": "its storage process ended",
    ZYGOTE: "the process that starts its pages ended",
}
"""Without which it is no use any more, and tells nobody. The first two hold what pages have stored, such as cookies, and
Chromium starts an empty one in the place of one that ended; without the last it opens no page any more."""


class HelperProcesses:
    """The processes of one browser here. It lives as long as the browser."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._session: Any = None

    async def start_network(self, *, within: float) -> None:
        """Have the browser start its network process, unless it does not within some seconds. Never raises.

        A headless shell starts it when it is first needed. Started later than the guard looks, its end goes unnoticed.
        """
        with suppress(Exception), anyio.move_on_after(within):
            await (await self._devtools()).send("Storage.getCookies")

    async def _devtools(self) -> Any:
        if self._session is None:
            self._session = await self._browser.new_browser_cdp_session()
        return self._session

    async def now(self, *, within: float) -> list[tuple[str, int]]:
        """Return kind and pid of each that runs; nothing when the browser does not say within some seconds. Never raises."""
        with suppress(Exception), anyio.move_on_after(within):
            found: Any = await (await self._devtools()).send("SystemInfo.getProcessInfo")
            parts = [(part["type"], part["id"]) for part in found["processInfo"]]
            return [*parts, *((ZYGOTE, zygote) for zygote in _zygotes(dict(parts)[BROWSER]))]
        return []


def _zygotes(browser: int) -> list[int]:
    """Return the processes that all others of a browser are forked from, which it does not tell itself; Linux only."""
    children = procfs.children(browser)
    return [child for child in children if f"--type={ZYGOTE}" in procfs.command_line(child)]


__all__ = ["BROWSER", "NEEDED", "NETWORK", "HelperProcesses"]
