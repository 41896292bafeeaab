"""The Playwright driver: the node process that starts and controls browsers."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from ....sessions.errors import ServiceUnavailable
from ...processes import procfs
from ...processes.launch import find_setpriv
from ...processes.ledger import Ledger
from .. import errors
from ..devtools.sdk import attach_client, driver_command, driver_environment
from .scratch import ScratchFolder
from .user_agent import HOOK as USER_AGENT_HOOK

if TYPE_CHECKING:
    from playwright.async_api import Playwright

logger = logging.getLogger("statehold.browser")

MAX_CONTEXTS: Final = 2000
"""A driver leaks a little memory per context. After so many contexts, new sessions get a new driver and browser."""
START_SECONDS: Final = 20.0
CHECK_SECONDS: Final = 10.0
"""Seconds without an answer after which a driver counts as hung; on an overloaded machine answers take long."""
STOP_SECONDS: Final = 3.0

RECOVERY: Final = "Ask the operator of the server: `statehold doctor` tries the browser, and the log has what it said."

LEAN: Final = ("--max-semi-space-size=4",)
"""The space for new objects in MiB, instead of 16 or more: saves some 50 MiB and is no slower."""

HOOKS: Final = (
    *("--require", str(USER_AGENT_HOOK)),
    *("--require", str(Path(__file__).with_name("hooks") / "registry.cjs")),
)
"""The scripts that a process of Playwright loads first."""

OPENER: Final = "xdg-open"
"""The program that Chromium starts on Linux, without asking, when a mailto: link is clicked."""
NOTHING: Final = "/bin/false"

NO_INSPECTOR: Final = {"PW_CODEGEN_NO_INSPECTOR": "1"}
"""Keeps Playwright from opening a window of its own when a browser that counts as headed stops at an action."""

BYPASSES: Final = (
    "PLAYWRIGHT_DISABLE_FORCED_CHROMIUM_PROXIED_LOOPBACK",
    "PLAYWRIGHT_PROXY_BYPASS_FOR_TESTING",
)
"""Environment variables that let pages bypass the proxy."""

LOGGING: Final = (
    *("DEBUG", "DEBUG_FILE", "NODE_DEBUG"),
    *("PWDEBUG", "PWDEBUGIMPL", "PWTEST_PRINT_WS_ENDPOINT"),
)
"""Environment variables, often set for other programs of Node, with which Playwright writes its messages to the log, with
cookies, typed secrets and the addresses of browsers in them.
"""

ELSEWHERE: Final = "SELENIUM_REMOTE_"
"""The beginning of the names of variables with which Playwright starts browsers on a Selenium Grid, without the proxy."""


class Driver:
    """A running driver. It lives until aclose(), or until its process ends, which sets `exited`.

    Playwright raises no event when the driver dies, so the process is watched here. The browsers are its children and end
    with it. On Linux the kernel kills the driver when this process dies, even a driver that hangs.
    """

    def __init__(self, folder: Path, ledger: Ledger | None) -> None:
        self._folder = folder
        self._scratch: ScratchFolder | None = None
        self.exited = anyio.Event()
        self.contexts = 0
        """The number of contexts made so far; see MAX_CONTEXTS."""
        self.browsers = 0
        """The number of browsers that run under it or are being started."""
        self._ledger = ledger
        self._mark = ledger.mark() if ledger is not None else f"none:{os.getpid()}-{id(self)}"
        self._process: asyncio.subprocess.Process | None = None
        self._client: Any = None
        self._playwright: Playwright | None = None

    def __repr__(self) -> str:
        return f"<Driver pid={self.pid} contexts={self.contexts}>"

    @property
    def at_context_limit(self) -> bool:
        """Whether it has had so many contexts that it takes no new sessions."""
        return self.contexts >= MAX_CONTEXTS

    @property
    def pid(self) -> int | None:
        """The id of its process; None before it is started."""
        return None if self._process is None else self._process.pid

    @property
    def folder(self) -> Path | None:
        """The folder for temporary files of the driver and its browsers."""
        return None if self._scratch is None else self._scratch.path

    @property
    def playwright(self) -> Playwright:
        """The Playwright object that starts browsers. It is unusable once `exited` is set."""
        assert self._playwright is not None, "the driver was never started"
        return self._playwright

    @classmethod
    async def start(cls, folder: Path, ledger: Ledger | None = None) -> Driver:
        """Start a driver. It and its browsers keep temporary files in a folder of their own, if possible below `folder`.

        Raises:
            ServiceUnavailable: The driver does not start.
        """
        driver = cls(folder, ledger)
        try:
            with anyio.fail_after(START_SECONDS):
                with anyio.CancelScope(shield=True):
                    await driver._spawn()
                # The import takes as long as the driver needs to start: run it meanwhile, outside the event loop.
                await anyio.to_thread.run_sync(import_module, "playwright.async_api")
                await driver._connect()
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await driver.aclose()
            if not _is_start_failure(error):
                raise
            raise ServiceUnavailable(
                f"The Playwright driver did not start: {driver._failure_reason(error)}.",
                recovery=RECOVERY,
            ) from error
        return driver

    def _failure_reason(self, error: BaseException) -> str:
        """Return why the driver did not start. Call it after aclose(), so that the exit code is known."""
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
        code = None if self._process is None else self._process.returncode
        if type(error) is Exception and code is not None and code >= 0:
            return f"its process ended with exit code {code}"
        return str(error) or f"no answer within {START_SECONDS:g} seconds"

    async def _connect(self) -> None:
        from playwright.async_api import Playwright

        assert self._process is not None
        self._client, starting = attach_client(self._process, self._on_exit)
        # If cancelled, it would leave a task behind that fails when the driver ends; asyncio would report its error.
        self._playwright = Playwright(await asyncio.shield(starting))

    async def _spawn(self) -> None:
        node, program = driver_command()
        setpriv = find_setpriv() if procfs.LINUX else None
        prefix = [] if setpriv is None else [setpriv, "--pdeathsig", "KILL", "--"]
        self._scratch = await anyio.to_thread.run_sync(ScratchFolder.make, self._folder)
        environment = program_environment(self._scratch.path) | {procfs.MARK: self._mark}
        self._process = await asyncio.create_subprocess_exec(
            *prefix,
            node,
            *LEAN,
            *HOOKS,
            program,
            "run-driver",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=32768,
            env=environment,
            start_new_session=True,
        )
        if self._ledger is not None:
            self._ledger.add(self._process.pid, self._mark, "browser")

    def _on_exit(self, _: object) -> None:
        self.exited.set()

    async def check(self) -> bool:
        """Kill the driver if it does not answer. Return whether it answers."""
        if self.exited.is_set():
            return False
        with suppress(Exception), anyio.move_on_after(CHECK_SECONDS):
            # The driver answers this without a browser.
            await (await self.playwright.request.new_context()).dispose()
            return True
        if not self.exited.is_set():
            logger.warning("a Playwright driver hangs and is killed")
            self.kill()
        return False

    def kill(self) -> None:
        """Kill the driver and its browsers, for a driver that no longer answers."""
        if self._process is not None and self._process.returncode is None:
            procfs.signal_group(self._process.pid, signal.SIGKILL)

    async def aclose(self) -> None:
        """Stop the driver and its browsers within a bound. May be called twice."""
        process = self._process
        with anyio.move_on_after(STOP_SECONDS, shield=True), suppress(Exception):
            if self._client is not None and not self.exited.is_set() and process is not None:
                await self._client.stop()
        self.kill()
        if process is not None:
            with anyio.move_on_after(STOP_SECONDS, shield=True):
                await process.wait()
                await anyio.to_thread.run_sync(procfs.kill_marked, [self._mark])
            if self._ledger is not None and process.returncode is not None:
                self._ledger.remove(process.pid)
        if self._scratch is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._scratch.remove)


def _is_start_failure(error: BaseException) -> bool:
    # Playwright raises a plain Exception when the process ends. Without Playwright there are no errors of its own.
    return isinstance(error, ImportError | OSError | TimeoutError) or (
        type(error) is Exception or isinstance(error, errors.Error)
    )


def program_environment(folder: Path) -> dict[str, str]:
    """Return the environment of a program that starts browsers, with a new folder for its temporary files."""
    environment = _without_ours(driver_environment()) | {"TMPDIR": str(folder), **NO_INSPECTOR}
    if procfs.LINUX:
        environment["PATH"] = _without_opener(folder, environment.get("PATH"))
    return environment


def _without_ours(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without our own variables and without those that bypass the proxy or log secrets.

    Variables that the configuration refers to as `${NAME}` stay in it.
    """
    return {
        key: value
        for key, value in environment.items()
        if not key.upper().startswith(("STATEHOLD_", ELSEWHERE))
        and key.upper() not in (*BYPASSES, *LOGGING)
    }


def _without_opener(folder: Path, path: str | None) -> str:
    """Return a search path on which a program that does nothing hides the one that opens links on the machine."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / OPENER).symlink_to(NOTHING)
    return f"{programs}{os.pathsep}{path or os.defpath}"
