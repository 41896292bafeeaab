"""The browser that one configuration means, installed in the background when there is none."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio

from ...sessions.errors import ServiceUnavailable
from .config import BrowserConfig
from .find import Found, NoBrowser, find_browser
from .install import Say, can_install, install_browser, say_on_stderr
from .places import Machine

RETRY_SECONDS: Final = 300.0
PATIENCE_SECONDS: Final = 20.0
"""Less than a service has to open, so that the caller hears what it is waiting for."""


class BrowserComing(ServiceUnavailable):
    """Raised when a browser is being installed and takes longer than the caller waits."""

    recovery = "Call again in a minute: a browser is being installed."


class Browsers:
    """The browser of one configuration: found each time, installed once when there is none.

    The installation is given to `spawn`, because it takes longer than callers wait: it goes on when they stop waiting.
    After a failure the same error answers for some minutes, so that not every new session starts another download.
    """

    def __init__(
        self,
        config: BrowserConfig,
        spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], object],
        *,
        say: Say = say_on_stderr,
        machine: Machine | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._spawn = spawn
        self._say = say
        self._machine = machine or Machine()
        self._clock = clock
        self._installed: anyio.Event | None = None
        self._failure: tuple[float, NoBrowser] | None = None

    async def get(self, *, patience: float = PATIENCE_SECONDS) -> Found:
        """Return a browser that can be started.

        Raises:
            NoBrowser: there is none, and none could be installed, or it was not allowed.
            BrowserComing: it is still being installed after `patience` seconds.
        """
        try:
            return find_browser(self._config, self._machine)
        except NoBrowser:
            if not can_install(self._config, self._machine):
                raise
        if self._installed is None:
            self._raise_recent()
            self._installed = anyio.Event()
            self._spawn(self._install)
        with anyio.move_on_after(patience):
            await self._installed.wait()
            self._raise_recent()
            return find_browser(self._config, self._machine)
        raise BrowserComing("A browser is being installed for the first session.", retry_after=60.0)

    def _raise_recent(self) -> None:
        if self._failure is not None and self._clock() < self._failure[0]:
            raise NoBrowser(self._failure[1].message)

    async def _install(self) -> None:
        assert self._installed is not None
        try:
            await install_browser(self._say, config=self._config, machine=self._machine)
            self._failure = None
        except NoBrowser as error:
            self._failure = (self._clock() + RETRY_SECONDS, error)
        finally:
            self._installed.set()
            self._installed = None


__all__ = ["BrowserComing", "Browsers"]
