"""One browser with its helper processes, which it reports, and the driver that it runs under."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import anyio

from ....sessions.concurrency import RaceLost, race
from ...processes import procfs
from ..devtools.interception import RequestInterceptor
from ..session.clipboard import ClipboardTurns
from ..session.popups import Popups
from .driver import CHECK_SECONDS, Driver

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext

    from .browser_launch import Launched

T = TypeVar("T")

DOUBT_SECONDS: Final = 3.0
"""Seconds of waiting after which the process is checked, again and again."""


class ProcessGone(Exception):
    """Raised when a process ended during work that needs it."""


async def while_alive(
    work: Callable[[], Awaitable[T]],
    end: anyio.Event,
    check: Callable[[], Awaitable[object]],
    spawn: Callable[..., object],
) -> T:
    """Return the result of `work`, or cancel it when the process that it needs is `end`.

    Playwright waits without limit for a hung process, and raises no event when its driver dies. So during long work the
    process is checked; `check` kills a process that does not answer. The checks run in a task of `spawn`, because a check
    under way must finish even if the caller is cancelled.

    Raises:
        Gone: The process ended before the work did.
        Exception: `work` raised it.
    """
    over = anyio.Event()

    async def doubt() -> None:
        while not over.is_set():
            with anyio.move_on_after(DOUBT_SECONDS):
                await over.wait()
            if not over.is_set():
                await check()

    spawn(doubt)
    try:
        return await race(end.wait, work)
    except RaceLost:
        raise ProcessGone from None
    finally:
        over.set()


logger = logging.getLogger("statehold.browser")

Domain: TypeAlias = tuple[str, str]
"""The key of a browser process: an owner, and the id of a session if that session has a process to itself, else ""."""

CLOSE_SECONDS: Final = 5.0
ENDING_SECONDS: Final = 0.3
GUARD_SECONDS: Final = 1.0
"""Seconds for a browser to report its processes; after a timeout the next guard() asks again."""

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


class BrowserProcess:
    """One browser and the driver it runs under. It lives until aclose(); `lost` is set, with `reason`, if either dies."""

    def __init__(
        self,
        launched: Launched,
        driver: Driver,
        helpers: HelperProcesses | None,
        spawn: Callable[..., object],
        domain: Domain,
    ) -> None:
        self.browser = browser = launched.browser
        self.host = launched.host
        """The process that the browser runs in, which outlives ours; None if it runs under the driver."""
        self.unclaimed_contexts: dict[str, BrowserContext] = {}
        """The contexts of an adopted host that no session has taken over yet, by their ids."""
        self.domain = domain
        self.pid: int | None = None
        """The id of its process; None for a browser at an endpoint."""
        self._helpers = helpers
        self._spawn = spawn
        self._whole = True
        self._needed = procfs.RunningProcesses()
        """The processes that it needs."""
        self._network_guarded = False
        self._checking = anyio.Lock()
        self.driver = driver
        self.sessions = 0
        self.lost = anyio.Event()
        self.reason = ""
        self.closing = False
        self.idle = anyio.Event()
        self.on_lost: list[Callable[[str], None]] = []
        self.clipboard_turns = ClipboardTurns(browser)
        """The turns of its sessions at the clipboard."""
        self.popups = Popups(browser)
        browser.on("disconnected", lambda _: self.die("the browser ended"))

    @property
    def folder(self) -> Path | None:
        """The folder for temporary files of the browser."""
        return self.driver.folder if self.host is None else self.host.folder

    def __repr__(self) -> str:
        return f"<BrowserProcess {self.browser.version} sessions={self.sessions}>"

    @property
    def whole(self) -> bool:
        """Whether all guarded processes still run, as the operating system reports now.

        Without one of them, stored data that the browser reports may be wrong, and so may pages shown since.
        """
        self._whole = self._whole and self._needed.all_run()
        return self._whole

    @property
    def known_whole(self) -> bool:
        """Whether it is whole and its network process is guarded. On systems without guards the latter is not required."""
        reports_helpers = self._helpers is not None and procfs.LINUX
        return self.whole and (self._network_guarded or not reports_helpers)

    def die(self, reason: str) -> None:
        """Set `lost` and call `on_lost`. Only the first reason counts."""
        if self.closing or self.lost.is_set():
            return
        self.reason = reason
        self.lost.set()
        logger.warning("a browser with %d sessions is gone: %s", self.sessions, reason)
        for callback in list(self.on_lost):
            callback(reason)

    async def check(self) -> bool:
        """Kill the driver with all its browsers, or this browser alone, if it does not answer. Return whether both answer.

        A browser at an endpoint is not killed but given up, and its driver is killed.
        """
        if self.lost.is_set() or self.closing:
            return False
        async with self._checking:
            if not await self.driver.check():
                return False
            with suppress(Exception), anyio.move_on_after(CHECK_SECONDS):
                await (await self.browser.new_browser_cdp_session()).detach()
                return True
            if self.lost.is_set() or self.closing:
                # Requests to a browser that is being closed fail as well.
                return False
            if self.pid is not None:
                logger.warning("a browser hangs and is killed")
                self._kill(self.pid)
            else:
                # A broken connection raises no event, and only the end of the driver closes our end of it.
                self.die("the browser does not answer")
                self.driver.kill()
            return False

    def check_soon(self) -> None:
        """Start check() in the background, so that a hung browser is found before the next call needs it."""
        if not (self.lost.is_set() or self.closing):
            self._spawn(self.check)

    async def identify(self) -> None:
        """Find the process ids and guard the needed processes. Call it before any data is stored in the browser."""
        if self._helpers is not None:
            await self._helpers.start_network(within=CHECK_SECONDS)
            self._guard(await self._helpers.list_processes(within=CHECK_SECONDS))

    async def guard(self) -> None:
        """Guard the needed processes: when one of them ends, the browser counts as lost.

        Call it from time to time, because some of them start late.
        """
        if self._helpers is None:
            return
        self._guard(await self._helpers.list_processes(within=GUARD_SECONDS))

    def _guard(self, parts: Iterable[tuple[str, int]]) -> None:
        processes = list(parts)
        self.pid = self.pid or dict(processes).get(BROWSER)
        for kind, pid in processes:
            if procfs.LINUX and kind in NEEDED and pid not in self._needed and not self.closing:
                # A process that ended before it could be guarded was needed, too.
                self._whole = self._needed.add(pid) and self._whole
                self._network_guarded |= kind == NETWORK
                self._spawn(self._end_with, pid, NEEDED[kind])

    async def _end_with(self, pid: int, reason: str) -> None:
        assert self.pid is not None
        if not await procfs.wait_for_exit(pid) or self.closing:
            return
        self._whole = False
        # A browser that ends loses its helpers first; wait for the actual reason.
        with anyio.move_on_after(ENDING_SECONDS):
            await self.lost.wait()
        if not self.lost.is_set() and procfs.start_time(self.pid) is not None:
            self.die(reason)
            self._kill(self.pid)

    def _kill(self, pid: int) -> None:
        if self.host is not None:
            self.host.kill()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    async def aclose(self) -> None:
        """Close the browser within a bound. If that fails, kill its driver with all browsers."""
        self.closing = True
        # Called here, since the death of a driver raises no event.
        RequestInterceptor.forget(self.browser)
        self._whole = self.whole
        self._needed.close()
        if self.host is not None:
            await self.host.aclose()
            return
        if self.lost.is_set() or self.driver.exited.is_set():
            return
        is_closed = False
        with anyio.move_on_after(CLOSE_SECONDS, shield=True), suppress(Exception):
            await self.browser.close()
            is_closed = True
        if not is_closed:
            logger.warning("a browser did not close within %g seconds", CLOSE_SECONDS)
            self.driver.kill()
