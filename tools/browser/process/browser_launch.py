"""The launch of browsers for a service: started, connected to by an endpoint, or installed first."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from ....sessions.errors import ServiceUnavailable
from .. import errors
from ..config import BrowserConfig
from ..egress.network_policy import BROWSER_ARGS
from .browsers import Browsers
from .choice import BrowserChoice, launch_options
from .flags import with_settings
from .node_js import register_endpoint
from .user_agent import register, user_agent, with_version

if TYPE_CHECKING:
    from playwright.async_api import Browser, Error, Playwright

    from ...processes.ledger import Ledger
    from .host import BrowserHost, HostAddress

CLOSE_SECONDS: Final = 5.0
NO_SMOOTH_SCROLLING: Final = ("--disable-smooth-scrolling",)
"""Without smooth scrolling, a key that scrolls has its full effect when the call ends."""

_CAUSE: Final = re.compile(
    r"\bE[A-Z]{4,}\b|\b[45]\d\d\b(?: [A-Z][A-Za-z ]+)?|\bTimeout \d+ms exceeded"
)
"""The parts of a connection error that may be reported; the rest contains the address, which may hold secrets."""


@dataclass(frozen=True, slots=True)
class HostPlace:
    """The place of the hosts of one service: the ledger with its keeper, and the folder for temporary files."""

    ledger: Ledger
    service: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Launched:
    """A browser, and the host that it runs in; None if it has none."""

    browser: Browser
    host: BrowserHost | None = None

    async def aclose(self) -> None:
        """Close the browser and its host within CLOSE_SECONDS. Cancellation does not interrupt it."""
        with anyio.move_on_after(CLOSE_SECONDS, shield=True), suppress(Exception):
            await (self.browser.close() if self.host is None else self.host.aclose())


class Launcher:
    """Gets browsers for one service. Waits at most `seconds` for a browser that starts, connects or is being installed.

    `spawn` starts work that goes on when its caller is cancelled. With `hosts`, browsers run in hosts.
    """

    def __init__(
        self,
        config: BrowserConfig,
        *,
        seconds: float,
        spawn: Callable[..., object],
        hosts: HostPlace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._seconds = seconds
        self._hosts = hosts
        self._browsers = Browsers(config, spawn, clock=clock)

    async def __call__(
        self, playwright: Playwright, address: HostAddress | None = None
    ) -> Launched:
        """Start a browser, or connect to one: with `address`, to the browser of that host.

        Raises:
            NoBrowser: There is no browser, and none could be or was allowed to be installed.
            BrowserComing: A browser is still being installed.
            ServiceUnavailable: The browser at the configured endpoint cannot be reached.
            ConnectionLost: The host at `address` is gone.
        """
        playwright.selectors.set_test_id_attribute(self._config.test_id_attribute)
        if self._config.remote:
            return Launched(await self._connect(playwright))
        choice = await self._browsers.get(seconds=self._seconds)
        options = launch_options(choice, self._config)
        scroll_flags = NO_SMOOTH_SCROLLING if self._config.headless else ()
        args = [*options.get("args", ()), *BROWSER_ARGS, *scroll_flags]
        options["args"] = with_settings(args, headless=self._config.headless)
        launched = await self._launch(playwright, options, address)
        try:
            await self._register_user_agent(playwright, launched.browser, choice)
        except BaseException:
            await launched.aclose()
            raise
        return launched

    async def _launch(
        self, playwright: Playwright, options: dict[str, Any], address: HostAddress | None
    ) -> Launched:
        timeout = self._seconds * 1000
        if address is None and self._hosts is None:
            return Launched(await playwright.chromium.launch(**options, timeout=timeout))
        from .host import BrowserHost

        assert self._hosts is not None
        ledger, service, folder = self._hosts.ledger, self._hosts.service, self._hosts.folder
        if address is None:
            host = await BrowserHost.start(
                ledger, folder, options, service=service, seconds=self._seconds
            )
        else:
            host = await BrowserHost.adopt(ledger, address, service=service)
        try:
            browser = await playwright.chromium.connect(host.address.endpoint, timeout=timeout)
        except BaseException:
            await host.aclose()
            raise
        register_endpoint(browser, host.address.endpoint)
        return Launched(browser, host)

    async def _register_user_agent(
        self, playwright: Playwright, browser: Browser, choice: BrowserChoice
    ) -> None:
        config = self._config
        agent, is_own = config.user_agent, False
        if agent is None and config.emulated_device is not None:
            untyped: Any = playwright
            device = untyped.devices.get(config.emulated_device, {})
            agent = with_version(device.get("user_agent", ""), browser.version) or None
        if agent is None and config.headless:
            agent, is_own = user_agent(browser.version, choice.brand), True
        if agent is not None:
            await register(browser, agent, choice.brand, shell=choice.shell, is_own=is_own)

    async def _connect(self, playwright: Playwright) -> Browser:
        config, chromium = self._config, playwright.chromium
        try:
            if config.ws_endpoint is not None:
                return await chromium.connect(config.ws_endpoint, timeout=self._seconds * 1000)
            assert config.cdp_endpoint is not None
            return await chromium.connect_over_cdp(
                config.cdp_endpoint,
                headers=config.cdp_headers,
                # The tabs that are open there belong to somebody: leave their media, focus and downloads alone.
                no_defaults=True,
                timeout=self._seconds * 1000,
            )
        except errors.Error as error:
            raise ServiceUnavailable(
                f"The browser at {config.place} cannot be used ({_cause(error)})."
            ) from None


def _cause(error: Error) -> str:
    match = _CAUSE.search(str(error))
    return match[0].strip() if match else "it did not answer as a browser does"
