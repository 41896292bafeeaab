"""The `statehold serve` that the demo starts, kills and starts again, in a temporary folder."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from subprocess import DEVNULL

import anyio
import anyio.to_thread
from anyio.abc import Process

from ...server.sockets.request import Refused
from ...tools.browser.config import BrowserConfig
from ...tools.browser.process.choice import NoBrowser, find_browser
from ...tools.processes import procfs
from ..console import console_address

STOP_SECONDS = 20.0

CONFIG = """\
[services.notebook]
command = {python}
args = ["-m", "statehold.shell.demo.server"]
exclude = ["set_notes"]

[services.notebook.recipe]
restores = "the notes"
loses = "the counter"

[[services.notebook.recipe.save]]
tool = "read_notes"
keep = {{ notes = "/notes" }}

[[services.notebook.recipe.restore]]
tool = "set_notes"
arguments = {{ notes = "{{notes}}" }}
"""
"""The configuration of examples/notebook.toml, with the interpreter that runs the demo."""

BROWSER_CONFIG = """
[services.browser]
"""


class DemoFailed(Exception):
    """Raised when a step failed. Its text names the step and the unexpected result."""


class DemoServer:
    """One `statehold serve` at a time. `aclose()` ends it, with SIGTERM first, and may be called twice."""

    def __init__(self, folder: Path) -> None:
        """`folder` is for its files. It has a browser if one is installed."""
        self._config = folder / "notebook.toml"
        self._data = folder / "data"
        self._log = folder / "log"
        self.has_browser = _has_browser()
        config = CONFIG.format(python=json.dumps(sys.executable))
        self._config.write_text(config + (BROWSER_CONFIG if self.has_browser else ""))
        self._process: Process | None = None
        self.url = ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def last_log_lines(self) -> list[str]:
        """Return the last lines of its log."""
        if not self._log.exists():
            return []
        return self._log.read_text(errors="replace").splitlines()[-20:]

    async def start(self) -> None:
        """Start it and wait until it listens; the caller sets the limit of time.

        Raises:
            DemoFailed: it ended.
        """
        files = ["--config", str(self._config), "--data", str(self._data)]
        command = [sys.executable, "-m", "statehold", "serve", *files, "--port", "0"]
        # The user's own settings do not apply to the tour.
        environ = {k: v for k, v in os.environ.items() if not k.startswith("STATEHOLD_")}
        with self._log.open("wb") as log:
            self._process = await anyio.open_process(
                command,
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=log,
                env=environ,
                start_new_session=True,
            )
        self.url = ""
        while not self.url:
            if self._process.returncode is not None:
                raise DemoFailed(f"the server ended with the exit code {self._process.returncode}")
            await anyio.sleep(0.02)
            self.url = self._read_url()

    def _read_url(self) -> str:
        match = re.search(
            r"^Statehold listens on (\S+)\n", self._log.read_text("utf-8", "replace"), re.M
        )
        return match[1] if match else ""

    async def console_address(self) -> str:
        """Return the address at which one browser can log in to its console, within two minutes.

        Raises:
            DemoFailed: it serves none.
        """
        try:
            address = await anyio.to_thread.run_sync(console_address, self._data)
        except Refused as error:
            raise DemoFailed(str(error)) from None
        if address is None:
            raise DemoFailed("the server does not answer")
        return address

    async def kill(self) -> None:
        """Kill it with SIGKILL and wait until it is gone."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    async def stop(self) -> int | None:
        """Send SIGTERM and return the exit code; None when it had to be killed."""
        if self._process is None:
            return None
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        with anyio.move_on_after(STOP_SECONDS):
            return await self._process.wait()
        await self.kill()
        return None

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            await self.stop()


def _has_browser() -> bool:
    try:
        find_browser(BrowserConfig())
    except NoBrowser:
        return False
    return True


async def wait_until_gone(pids: Iterable[int], *, within: float = 5.0) -> float:
    """Wait until these processes are gone and return the seconds that took.

    Raises:
        DemoFailed: one of them is still there.
    """
    started_at, remaining = anyio.current_time(), list(pids)
    while remaining := [pid for pid in remaining if procfs.start_time(pid) is not None]:
        if anyio.current_time() - started_at > within:
            raise DemoFailed(f"still running: {', '.join(map(str, remaining))}")
        await anyio.sleep(0.005)
    return anyio.current_time() - started_at
