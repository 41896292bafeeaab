"""The browser processes: one per trust domain, shared by its sessions and closed after the last of them."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias
from weakref import WeakValueDictionary

import anyio
from anyio.abc import TaskGroup

from ....sessions.errors import ConnectionLost, ServiceUnavailable, SessionError
from ...processes import procfs
from ...processes.ledger import Ledger
from ..session.clipboard import ClipboardTurns
from ..session.failures import explain_failed_start, output_lines
from ..session.pages import close_context
from ..session.popups import Popups
from ..snapshot.interception import RequestInterceptor
from .driver import CHECK_SECONDS, RECOVERY, Driver
from .helpers import BROWSER, NEEDED, NETWORK, HelperProcesses
from .liveness import while_alive
from .sdk import guid_of

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Playwright

    from .host import HostAddress
    from .launch import Launched

logger = logging.getLogger("statehold.browser")

Launch = Callable[["Playwright", "HostAddress | None"], Awaitable["Launched"]]

Domain: TypeAlias = tuple[str, str]
"""The key of a browser process: an owner, and the id of a session if that session has a process to itself, else ""."""

CLOSE_SECONDS: Final = 5.0
CLAIM_SECONDS: Final = 60.0
"""Seconds for sessions to take over their contexts in an adopted browser; then the rest is closed."""
ENDING_SECONDS: Final = 0.3
GUARD_SECONDS: Final = 1.0
"""Seconds for a browser to report its processes; after a timeout the next guard() asks again."""


class BrowserDied(ServiceUnavailable):
    """Raised when the browser or its driver ended while a session was opened in it. A retry gets a new browser."""


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
            if self.pid is not None and not self.is_left:
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
        if self.is_left:
            # It belongs to the next process by now.
            return
        if self.host is not None:
            self.host.kill()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    @property
    def is_left(self) -> bool:
        """Whether the next process has its host, or may adopt it."""
        return self.host is not None and self.host.is_left

    async def leave(self) -> None:
        """Leave the host to the next process. The sessions that are still here go on. May be called twice."""
        if self.host is not None:
            await self.host.leave()

    async def aclose(self) -> None:
        """Close the browser within a bound, or detach from it if its host was left.

        If that fails, kill its driver with all browsers.
        """
        self.closing = True
        # Called here, since the death of a driver raises no event.
        RequestInterceptor.forget(self.browser)
        self._whole = self.whole
        self._needed.close()
        if self.host is not None and not self.host.is_left:
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


class Pool:
    """Hands out browser processes by trust domain. `async with` opens it; leaving it closes every browser and driver.

    Contexts of one process share the clipboard, and a page can keep a driver so busy that it answers no other caller. So
    callers who do not trust each other share neither process nor driver.
    """

    def __init__(
        self,
        launch: Launch,
        *,
        folder: Path,
        ledger: Ledger | None,
        keep_seconds: float,
        remote: bool = False,
    ) -> None:
        self._launch = launch
        self._remote = remote
        self._folder = folder
        self._ledger = ledger
        self._keep_seconds = keep_seconds
        self._claim_seconds = CLAIM_SECONDS
        self._current: dict[str, Driver] = {}
        """The driver for new browsers, by owner."""
        self._unused_driver: Driver | None = None
        """A driver without an owner; the next owner without a driver gets it."""
        self._drivers: set[Driver] = set()
        self._processes: dict[Domain, BrowserProcess] = {}
        """The process for new sessions, by domain."""
        self._old_processes: set[BrowserProcess] = set()
        """Processes that still have sessions but get no new ones."""
        self._locks: WeakValueDictionary[str | Domain, anyio.Lock] = WeakValueDictionary()
        """Locks for the driver of an owner and for the process of a domain; kept while a task holds or awaits them."""
        self._tasks: TaskGroup | None = None
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Pool:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._close_all)
            self._tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(self._tasks.cancel_scope.cancel)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(self, *details: object) -> None:
        # The task group is not passed the error of its user, so that it does not wrap it.
        await self._exit.aclose()

    async def _close_all(self) -> None:
        with anyio.CancelScope(shield=True):
            for process in self._running():
                await process.aclose()
            for driver in list(self._drivers):
                await _run_logging_failure(driver.aclose)
        self._tasks = self._unused_driver = None
        self._processes.clear()
        self._old_processes.clear()

    def _spawn(self, work: Callable[..., Awaitable[object]], *args: object) -> None:
        """Run `work` in the background. Its errors are logged; they must not end the pool and the task group around it."""
        if self._tasks is not None:
            self._tasks.start_soon(_run_logging_failure, work, *args)

    def _running(self) -> list[BrowserProcess]:
        return [*self._processes.values(), *self._old_processes]

    def statistics(self) -> dict[str, int]:
        """Return the current counts, for tests and logs."""
        return {
            "drivers": len(self._drivers),
            "browsers": len(self._running()),
            "sessions": sum(process.sessions for process in self._running()),
        }

    async def acquire(self, owner: str, session_id: str = "") -> BrowserProcess:
        """Return the process of an owner; start one if there is none. Give it back with release().

        `session_id` names a session whose process shares only the driver with the owner's other sessions.

        Raises:
            BrowserDied: The driver ended meanwhile.
            ServiceUnavailable: No browser starts.
        """
        domain = (owner, session_id)
        async with self._lock(domain):
            process = self._processes.get(domain)
            if (
                process is None
                or process.lost.is_set()
                or process.closing
                or process.is_left
                or process.driver.at_context_limit
            ):
                if process is not None:
                    # The old process runs on until its sessions have ended.
                    self._old_processes.add(process)
                process = await self._start(domain)
                self._processes[domain] = process
            _add_session(process)
            return process

    async def adopt(self, owner: str, session_id: str, address: HostAddress) -> BrowserProcess:
        """Return the process in a host that outlived an earlier server. Give it back with release().

        Raises:
            ConnectionLost: It is gone.
            BrowserDied, ServiceUnavailable: As acquire() does.
        """
        domain = (owner, session_id)
        async with self._lock(domain):
            process = next(
                (p for p in self._running() if p.host is not None and p.host.address == address),
                None,
            )
            if process is None:
                process = await self._start(domain, address)
                contexts = process.browser.contexts
                process.unclaimed_contexts = {guid_of(context): context for context in contexts}
                if self._processes.setdefault(domain, process) is not process:
                    self._old_processes.add(process)
                self._spawn(self._close_unclaimed, process)
            elif process.lost.is_set() or process.closing:
                raise ConnectionLost("The browser did not outlive its server.")
            _add_session(process)
            return process

    async def _close_unclaimed(self, process: BrowserProcess) -> None:
        """Close the contexts whose sessions ended, or were opened elsewhere, while no server ran."""
        with anyio.move_on_after(self._claim_seconds):
            await process.lost.wait()
        contexts, process.unclaimed_contexts = process.unclaimed_contexts, {}
        for context in contexts.values():
            with suppress(Exception), anyio.move_on_after(CLOSE_SECONDS):
                await close_context(context)

    def _lock(self, key: str | Domain) -> anyio.Lock:
        return self._locks.setdefault(key, anyio.Lock())

    def release(self, process: BrowserProcess) -> None:
        """Give a process back. After `keep_seconds` without sessions it is closed."""
        process.sessions -= 1
        if process.sessions == 0:
            process.idle.set()
            self._spawn(self._close_later, process)

    async def _close_later(self, process: BrowserProcess) -> None:
        idle = process.idle
        with anyio.move_on_after(self._keep_seconds):
            await process.lost.wait()
        async with self._lock(process.domain):
            if process.sessions or process.idle is not idle:
                return
            if self._processes.get(process.domain) is process:
                del self._processes[process.domain]
            self._old_processes.discard(process)
            await process.aclose()
        if process.lost.is_set():
            # Keep the driver for a while: the sessions will want a new browser, and a driver starts as slowly as a browser.
            with anyio.move_on_after(self._keep_seconds):
                await process.driver.exited.wait()
        await self._release_driver(process.driver)

    async def _start(self, domain: Domain, address: HostAddress | None = None) -> BrowserProcess:
        driver = await self._driver_of(domain[0])
        process: BrowserProcess | None = None
        try:
            launched = await while_alive(
                partial(self._launch, driver.playwright, address),
                driver.exited,
                driver.check,
                self._spawn,
            )
            # Process ids from another machine mean nothing here.
            helpers = None if self._remote else HelperProcesses(launched.browser)
            process = BrowserProcess(launched, driver, helpers, self._spawn, domain)
            await process.identify()
        except BaseException as error:
            try:
                if not isinstance(error, Exception) or isinstance(error, SessionError):
                    raise
                if not await driver.check():
                    raise BrowserDied("The browser did not start: its driver ended.") from error
                logger.warning(
                    "a browser did not start: %s", "; ".join(output_lines(error)) or error
                )
                reason = explain_failed_start(error)
                raise ServiceUnavailable(
                    f"The browser did not start: {reason}.", recovery=RECOVERY
                ) from error
            finally:
                with anyio.CancelScope(shield=True):
                    if process is not None:
                        await process.aclose()
                    await self._release_driver(driver)
        self._spawn(self._watch, process)
        verb = "started" if address is None else "was taken over"
        logger.info("a browser %s (%s)", verb, process.browser.version)
        return process

    async def _watch(self, process: BrowserProcess) -> None:
        # The driver's death raises no event of its own.
        await process.driver.exited.wait()
        process.die("the Playwright driver ended")

    async def prepare_adoption(self, seconds: float) -> None:
        """Start the driver for the sessions that another process gives up within `seconds`. Failures are logged.

        The next owner without a driver gets it. If none comes, it is closed when the sessions can no longer come.
        """
        self._claim_seconds += seconds
        if self._unused_driver is None:
            try:
                driver = self._unused_driver = await Driver.start(self._folder, self._ledger)
            except ServiceUnavailable as error:
                logger.warning("no driver was prepared: %s", error.message)
            else:
                self._drivers.add(driver)
                self._spawn(self._close_unused, driver)

    async def _close_unused(self, driver: Driver) -> None:
        with anyio.move_on_after(self._claim_seconds):
            await driver.exited.wait()
        if self._unused_driver is driver:
            self._unused_driver = None
            self._drivers.discard(driver)
            await driver.aclose()

    async def _driver_of(self, owner: str) -> Driver:
        async with self._lock(owner):
            driver = self._current.get(owner)
            if driver is None or driver.exited.is_set() or driver.at_context_limit:
                driver, self._unused_driver = self._unused_driver, None
                if driver is None or driver.exited.is_set():
                    driver = await Driver.start(self._folder, self._ledger)
                    self._drivers.add(driver)
                self._current[owner] = driver
            driver.browsers += 1
            return driver

    async def _release_driver(self, driver: Driver) -> None:
        """Note that a browser of a driver is gone; stop the driver after its last browser."""
        driver.browsers -= 1
        if driver.browsers:
            return
        self._current = {
            owner: other for owner, other in self._current.items() if other is not driver
        }
        self._drivers.discard(driver)
        await driver.aclose()
        # Playwright's objects for the driver form a reference cycle, which Python by itself would collect much later.
        gc.collect()


def _add_session(process: BrowserProcess) -> None:
    process.sessions += 1
    process.idle = anyio.Event()
    process.driver.contexts += 1


async def _run_logging_failure(work: Callable[..., Awaitable[object]], *args: object) -> None:
    try:
        await work(*args)
    except Exception:
        logger.exception("background work on browsers failed")


__all__ = ["BrowserDied", "BrowserProcess", "Launch", "Pool"]
