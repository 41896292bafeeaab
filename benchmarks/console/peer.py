"""The dashboard of playwright-cli, `show`: a session of its own, and the page of the dashboard that watches it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import psutil
from playwright.async_api import Browser, Page

from ..browser.bare import shell
from ..processes import accepting, free_port, run_program

PICTURE = "img.display"


class Dashboard:
    """A session of playwright-cli that is watched. `viewer` is the page of the dashboard."""

    def __init__(self, command: list[str], folder: Path, viewer: Page, pids: list[int]) -> None:
        self._command = command
        self._folder = folder
        self.viewer = viewer
        self.pids = pids
        """The processes that serve the session, its browser and the dashboard."""

    async def go(self, url: str) -> object:
        return await _run([*self._command, "goto", url], self._folder)

    async def painted(self, function: str) -> dict[str, float]:
        text = await _run([*self._command, "eval", function], self._folder)
        return json.loads(text[text.index("{") : text.index("}") + 1])


def installed() -> str | None:
    return shutil.which("playwright-cli")


@asynccontextmanager
async def dashboard(folder: Path, person: Browser, url: str) -> AsyncGenerator[Dashboard]:
    """Open an address in a session, and watch it as long as the block runs."""
    program = installed()
    assert program is not None
    await anyio.Path(folder).mkdir(parents=True, exist_ok=True)
    command, port = [program, "-s=bench"], free_port()
    before = set(psutil.pids())
    await _run([*command, "open", url], folder)
    ours = set(psutil.pids()) - before
    pids = [pid for pid in ours if _is_theirs(pid)]
    show = [program, "show", "--port", str(port)]
    try:
        with run_program(show, log=folder / "show.log", env=_environment()) as process:
            await accepting(port, process)
            viewer = await person.new_page()
            await viewer.goto(f"http://localhost:{port}")
            await viewer.get_by_text("Painting").first.click()
            await viewer.wait_for_function(f"document.querySelector('{PICTURE}')?.naturalWidth")
            tree = psutil.Process(process.pid).children(recursive=True)
            yield Dashboard(
                command, folder, viewer, [*pids, process.pid, *(child.pid for child in tree)]
            )
            await viewer.close()
    finally:
        await _run([*command, "close"], folder)


def _is_theirs(pid: int) -> bool:
    with suppress(psutil.Error):
        words = " ".join(psutil.Process(pid).cmdline())
        return "playwright" in words or "chrom" in words
    return False


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PLAYWRIGHT_MCP_EXECUTABLE_PATH": shell() or "",
        "PLAYWRIGHT_MCP_BROWSER": "chromium",
        "PLAYWRIGHT_MCP_NO_SANDBOX": "true",
    }


async def _run(command: list[str], folder: Path) -> str:
    with anyio.fail_after(60):
        done = await anyio.run_process(
            command, cwd=folder, env=_environment(), stdin=subprocess.DEVNULL
        )
    return done.stdout.decode()
