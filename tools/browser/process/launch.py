"""How a service gets its browsers: found and started, connected to elsewhere, or installed first."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ....sessions.errors import ServiceUnavailable
from ..config import BrowserConfig
from ..egress.policy import BROWSER_ARGS
from .browsers import Browsers
from .find import launch_options
from .flags import with_settings

if TYPE_CHECKING:
    from playwright.async_api import Browser, Error, Playwright

STILL: Final = ("--disable-smooth-scrolling",)
"""What nobody sees takes no time: a key that scrolls has scrolled when its call ends."""

_CAUSE: Final = re.compile(
    r"\bE[A-Z]{4,}\b|\b[45]\d\d\b(?: [A-Z][A-Za-z ]+)?|\bTimeout \d+ms exceeded"
)
"""What may be told of a connection that failed; the rest of the message has the address, and what is secret in it."""


class Launcher:
    """Gets browsers for one service, and waits `seconds` for one that is elsewhere or being installed.

    `spawn` starts work that goes on when whoever waits for it gives up.
    """

    def __init__(
        self,
        config: BrowserConfig,
        *,
        seconds: float,
        spawn: Callable[..., object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._seconds = seconds
        self._browsers = Browsers(config, spawn, clock=clock)

    async def __call__(self, playwright: Playwright) -> Browser:
        """Start a browser, or connect to one.

        Raises:
            NoBrowser: there is none, and none could be installed, or it was not allowed.
            BrowserComing: one is still being installed.
            ServiceUnavailable: the one elsewhere cannot be reached.
        """
        playwright.selectors.set_test_id_attribute(self._config.test_id_attribute)
        if self._config.remote:
            return await self._connected(playwright)
        found = await self._browsers.get(patience=self._seconds)
        options = launch_options(found, self._config)
        still = STILL if self._config.headless else ()
        args = [*options.get("args", ()), *BROWSER_ARGS, *still]
        options["args"] = with_settings(args, headless=self._config.headless)
        return await playwright.chromium.launch(**options, timeout=self._seconds * 1000)

    async def _connected(self, playwright: Playwright) -> Browser:
        from playwright.async_api import Error

        config, chromium = self._config, playwright.chromium
        try:
            if config.ws_endpoint is not None:
                return await chromium.connect(config.ws_endpoint, timeout=self._seconds * 1000)
            assert config.cdp_endpoint is not None
            return await chromium.connect_over_cdp(
                config.cdp_endpoint, headers=config.cdp_headers, timeout=self._seconds * 1000
            )
        except Error as error:
            raise ServiceUnavailable(
                f"The browser at {config.place} cannot be used ({_cause(error)})."
            ) from None


def _cause(error: Error) -> str:
    found = _CAUSE.search(str(error))
    return found[0].strip() if found else "it did not answer as a browser does"


__all__ = ["Launcher"]
