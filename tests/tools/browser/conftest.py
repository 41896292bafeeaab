"""A running browser service for all modules, a session per test, and the site they visit."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest
from keeping import Keeping
from playwright.async_api import Browser
from support.browsing import Browse, opened, running_in_hosts
from support.listening import run_listening, run_until_line
from support.pixels import Pixels
from support.saved_contexts import launch

from statehold.tools.browser.service import BrowserService

LAB = Path(__file__).resolve().parents[2] / "site" / "lab.py"


@pytest.fixture(scope="session")
def shell(headless_shell: str) -> str:
    """The path of the headless shell."""
    return headless_shell


@pytest.fixture(scope="package")
def whole() -> str:
    """The path of a whole Chromium."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("there is no whole Chromium here")
    return path


@pytest.fixture(scope="session")
def lab() -> Generator[str]:
    """The address of the site for browsers, as http://127.0.0.1:PORT."""
    with run_listening([sys.executable, str(LAB), "--port", "0"]) as port:
        yield f"http://127.0.0.1:{port}"


CAPS = ["config", "devtools", "network", "pdf", "storage", "testing", "vision"]
"""All but the one that is unsafe."""


@pytest.fixture(scope="package")
def anyio_backend() -> Any:
    return "asyncio"


@pytest.fixture(scope="package")
async def service(
    anyio_backend: Any, tmp_path_factory: pytest.TempPathFactory, shell: str
) -> AsyncGenerator[BrowserService]:
    """The service of all these modules: starting one takes longer than most tests on it.

    A fixture of a module that opens a service too asks for this one: it has to be opened first, as it is closed last.
    """
    data = tmp_path_factory.mktemp("data")
    async with running_in_hosts(data, shell, caps=CAPS) as service:
        yield service


@pytest.fixture
async def browse(service: BrowserService) -> AsyncGenerator[Browse]:
    """The browser of a session of this test's own."""
    async with opened(service) as browse:
        yield browse


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture(scope="package")
async def browser(anyio_backend: Any, shell: str) -> AsyncGenerator[Browser]:
    """A browser without our service around it, one for all modules."""
    async with launch(shell) as browser:
        # Some of its processes start with its first page, and are none that a test leaves behind.
        await (await browser.new_page()).close()
        yield browser


@pytest.fixture
async def pixels(browser: Browser) -> AsyncGenerator[Pixels]:
    """A page that reads pictures."""
    page = await browser.new_page()
    yield Pixels(page)
    await page.close()


@pytest.fixture
def by_devtools(shell: str, tmp_path: Path) -> Generator[str]:
    """The address of a browser elsewhere, by its DevTools."""
    options = ["--remote-debugging-port=0", f"--user-data-dir={tmp_path / 'profile'}"]
    command = [shell, "--no-sandbox", "--headless", *options, "about:blank"]
    with run_until_line(command, "DevTools listening on ") as address:
        yield address


@pytest.fixture
def site() -> Generator[Keeping]:
    """The site that keeps logins; a new one for each test."""
    with Keeping() as site:
        yield site
