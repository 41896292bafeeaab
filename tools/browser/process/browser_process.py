"""The helper processes of a browser, as the browser reports them."""

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
"""The processes whose end makes a browser unusable without any event, with the reason to report.

The first two hold the data stored by pages, such as cookies; Chromium replaces one that ended by an empty one. Without the
zygote it opens no more pages.
"""


class HelperProcesses:
    """The helper processes of one browser on this machine. Lives as long as the browser."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._session: Any = None

    async def start_network(self, *, within: float) -> None:
        """Make the browser start its network process; wait at most `within` seconds. Never raises.

        A headless shell starts that process on first use. If it started after the guard has looked, its end would go
        unnoticed.
        """
        with suppress(Exception), anyio.move_on_after(within):
            await (await self._devtools()).send("Storage.getCookies")

    async def _devtools(self) -> Any:
        if self._session is None:
            self._session = await self._browser.new_browser_cdp_session()
        return self._session

    async def list_processes(self, *, within: float) -> list[tuple[str, int]]:
        """Return kind and pid of each running process; empty if the browser does not answer in time. Never raises."""
        with suppress(Exception), anyio.move_on_after(within):
            info: Any = await (await self._devtools()).send("SystemInfo.getProcessInfo")
            parts = [(part["type"], part["id"]) for part in info["processInfo"]]
            return [*parts, *((ZYGOTE, zygote) for zygote in _zygotes(dict(parts)[BROWSER]))]
        return []


def _zygotes(browser: int) -> list[int]:
    """Return the zygotes, from which a browser forks its pages and which it does not report itself. Linux only."""
    children = procfs.children(browser)
    return [child for child in children if f"--type={ZYGOTE}" in procfs.command_line(child)]


__all__ = ["BROWSER", "NEEDED", "NETWORK", "HelperProcesses"]
