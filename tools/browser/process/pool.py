"""The browser processes: one per trust domain, shared by its sessions and closed after the last of them."""

from __future__ import annotations

import gc
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import anyio
from anyio.abc import TaskGroup

from ....sessions.errors import ConnectionLost, ServiceUnavailable, SessionError
from ...processes.ledger import Ledger
from ..devtools.pages import close_context
from ..devtools.sdk import guid_of
from ..errors import explain_failed_start, output_lines
from .browser_process import CLOSE_SECONDS, BrowserProcess, Domain, HelperProcesses, while_alive
from .driver import RECOVERY, Driver

if TYPE_CHECKING:
    from playwright.async_api import Playwright

    from .browser_launch import Launched
    from .host import HostAddress

logger = logging.getLogger("statehold.browser")

Launch = Callable[["Playwright", "HostAddress | None"], Awaitable["Launched"]]

CLAIM_SECONDS: Final = 60.0
"""Seconds for sessions to take over their contexts in an adopted browser; then the rest is closed."""


class BrowserDied(ServiceUnavailable):
    """Raised when the browser or its driver ended while a session was opened in it. A retry gets a new browser."""


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
        self._current: dict[str, Driver] = {}
        """The driver for new browsers, by owner."""
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
        self._tasks = None
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
        with anyio.move_on_after(CLAIM_SECONDS):
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

    async def _driver_of(self, owner: str) -> Driver:
        async with self._lock(owner):
            driver = self._current.get(owner)
            if driver is None or driver.exited.is_set() or driver.at_context_limit:
                driver = self._current[owner] = await Driver.start(self._folder, self._ledger)
                self._drivers.add(driver)
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
