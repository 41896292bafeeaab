"""How a service gets its browsers: found and started, connected to elsewhere, or installed first."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from ...sessions.errors import ServiceUnavailable
from .config import BrowserConfig
from .find import Found, NoBrowser, find_browser, launch_options
from .install import can_install, install_browser
from .places import Machine
from .policy import BROWSER_ARGS
from .switches import with_settings

if TYPE_CHECKING:
    from playwright.async_api import Browser, Error, Playwright

logger = logging.getLogger("statehold.browser")

STILL: Final = ("--disable-smooth-scrolling",)
"""What nobody sees takes no time: a key that scrolls has scrolled when its call ends."""

_CAUSE: Final = re.compile(
    r"\bE[A-Z]{4,}\b|\b[45]\d\d\b(?: [A-Z][A-Za-z ]+)?|\bTimeout \d+ms exceeded"
)
"""What may be told of a connection that failed; the rest of the message has the address, and what is secret in it."""


class Launcher:
    """Gets browsers for one service. `spawn` starts work that goes on when whoever waits for it gives up."""

    def __init__(
        self, config: BrowserConfig, *, seconds: float, spawn: Callable[..., object]
    ) -> None:
        self._config = config
        self._seconds = seconds
        self._spawn = spawn
        self._installing: anyio.Event | None = None
        self._failure: NoBrowser | None = None

    async def __call__(self, playwright: Playwright) -> Browser:
        """Start a browser, or connect to one.

        Raises:
            ServiceUnavailable: there is none, or it cannot be reached.
        """
        playwright.selectors.set_test_id_attribute(self._config.test_id_attribute)
        if self._config.remote:
            return await self._connected(playwright)
        options = launch_options(await self._found(), self._config)
        still = STILL if self._config.headless else ()
        args = [*options.get("args", ()), *BROWSER_ARGS, *still]
        options["args"] = with_settings(args, headless=self._config.headless)
        return await playwright.chromium.launch(**options)

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

    async def _found(self) -> Found:
        try:
            return await anyio.to_thread.run_sync(find_browser, self._config)
        except NoBrowser:
            if not can_install(self._config, Machine()):
                raise
        await self._installed()
        return await anyio.to_thread.run_sync(find_browser, self._config)

    async def _installed(self) -> None:
        """Wait for the installation, which begins with the first who needs it."""
        if self._installing is None:
            self._installing = anyio.Event()
            self._spawn(self._install, self._installing)
        with anyio.move_on_after(self._seconds):
            await self._installing.wait()
            if self._failure is not None:
                raise self._failure
            return
        raise ServiceUnavailable(
            "A browser is being installed.", recovery="Try again in a minute or two."
        )

    async def _install(self, over: anyio.Event) -> None:
        self._failure = None
        try:
            await install_browser(config=self._config)
        except NoBrowser as error:
            self._failure = error
        finally:
            over.set()
            self._installing = None


def _cause(error: Error) -> str:
    found = _CAUSE.search(str(error))
    return found[0].strip() if found else "it did not answer as a browser does"


__all__ = ["Launcher"]
