"""The browser of one configuration; installed in the background if it is missing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread

from ....sessions.errors import ServiceUnavailable
from ..config import BrowserConfig
from .choice import BrowserChoice, NoBrowser, find_browser, read_version
from .executables import Machine
from .install import Say, install_browser, may_install, say_on_stderr

RETRY_SECONDS: Final = 300.0
"""Seconds for which the error of a failed installation is repeated before another one may begin."""


class BrowserComing(ServiceUnavailable):
    """Raised when a browser is being installed and takes longer than the caller waits."""

    recovery = "Call again in a minute: a browser is being installed."


class Browsers:
    """Finds the browser of one configuration and its version at each call; if it is missing, installs it once.

    The installation runs in `spawn`, because it takes longer than callers wait, and goes on when they stop waiting. After a
    failure the same error is raised for RETRY_SECONDS of `clock`, so that not every call starts another download.
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
        self._installing: anyio.Event | None = None
        self._failure: tuple[float, NoBrowser] | None = None
        self._versions: dict[tuple[str, int], str | None] = {}
        """The versions of browsers, by path and time of the last change."""

    async def get(self, *, seconds: float) -> BrowserChoice:
        """Return a browser that can be started.

        Raises:
            NoBrowser: There is no browser, and none could be or was allowed to be installed.
            BrowserComing: A browser is still being installed after `seconds` seconds.
        """
        try:
            return await self._find()
        except NoBrowser:
            if not may_install(self._config, self._machine):
                raise
        installing = self._installing or self._begin()
        with anyio.move_on_after(seconds):
            await installing.wait()
        if not installing.is_set():
            raise BrowserComing("A browser is being installed.", retry_after=60.0)
        self._raise_recent()
        return await self._find()

    async def _find(self) -> BrowserChoice:
        # The search reads folders and may start the browser once for its version, which blocks.
        return await anyio.to_thread.run_sync(self._find_with_version)

    def _find_with_version(self) -> BrowserChoice:
        choice = find_browser(self._config, self._machine)
        if choice.version is not None or choice.path is None:
            return choice
        try:
            key = (choice.path, os.stat(choice.path).st_mtime_ns)
        except OSError:
            return choice
        if key not in self._versions:
            self._versions[key] = read_version(choice)
        return replace(choice, version=self._versions[key])

    def _begin(self) -> anyio.Event:
        self._raise_recent()
        self._installing = installing = anyio.Event()
        self._spawn(partial(self._install, installing))
        return installing

    def _raise_recent(self) -> None:
        if self._failure is not None and self._clock() < self._failure[0]:
            raise NoBrowser(self._failure[1].message)

    async def _install(self, over: anyio.Event) -> None:
        try:
            await install_browser(self._say, config=self._config, machine=self._machine)
            self._failure = None
        except NoBrowser as error:
            self._failure = (self._clock() + RETRY_SECONDS, error)
        finally:
            self._installing = None
            over.set()
