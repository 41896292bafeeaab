"""Installing a missing browser: its callers see the progress, and the installation continues without them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from statehold.tools.browser.config import BrowserConfig
from statehold.tools.browser.process import browsers
from statehold.tools.browser.process.browser_launch import Launcher
from statehold.tools.browser.process.browsers import RETRY_SECONDS, BrowserComing
from statehold.tools.browser.process.choice import BrowserChoice, NoBrowser
from statehold.tools.browser.process.executables import Machine as Place
from statehold.tools.browser.process.install import Say


class Machine:
    """A machine that installs a browser when the test sets `end`."""

    def __init__(self) -> None:
        self.found: BrowserChoice | None = None
        self.begun = anyio.Event()
        self.end = anyio.Event()
        self.works = True
        self.installations = 0
        self.now = 100.0

    def find(self, config: BrowserConfig, place: Place) -> BrowserChoice:
        if self.found is None:
            raise NoBrowser("No browser was found: run `install it`.")
        return self.found

    async def install(self, say: Say, *, config: BrowserConfig, machine: Place) -> BrowserChoice:
        self.installations += 1
        self.begun.set()
        await self.end.wait()
        if not self.works:
            raise NoBrowser("No browser was found, and installing one failed: run `install it`.")
        self.found = BrowserChoice("/nowhere/chromium", None, "chromium")
        return self.found


class StartedBrowser(str):
    """A browser that is known by its path, and its DevTools session."""

    version = "156.0.0.1"

    async def new_browser_cdp_session(self) -> StartedBrowser:
        return self

    async def send(self, method: str, params: object) -> None: ...

    async def detach(self) -> None: ...


class Chromium:
    """Playwright, as far as it is used."""

    def __init__(self) -> None:
        self.chromium = self
        self.selectors = self

    def set_test_id_attribute(self, name: str) -> None: ...

    async def launch(self, **options: Any) -> StartedBrowser:
        return StartedBrowser(options["executable_path"])


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(browsers, "find_browser", machine.find)
    monkeypatch.setattr(browsers, "install_browser", machine.install)
    return machine


@asynccontextmanager
async def launcher(
    machine: Machine, *, seconds: float = 20.0, **settings: Any
) -> AsyncGenerator[Callable[[], Any]]:
    async with anyio.create_task_group() as tasks:
        config = BrowserConfig.model_validate({"install": True, **settings})
        launch = Launcher(
            config, seconds=seconds, spawn=tasks.start_soon, clock=lambda: machine.now
        )
        playwright: Any = Chromium()
        yield lambda: launch(playwright)
        tasks.cancel_scope.cancel()


async def test_a_caller_that_waits_too_long_gets_an_error_and_the_next_one_the_browser(
    machine: Machine,
):
    async with launcher(machine, seconds=0.05) as launch:
        for _ in range(2):
            with pytest.raises(BrowserComing, match=r"^A browser is being installed\.") as caught:
                await launch()
            assert caught.value.retryable
            assert caught.value.recovery.startswith("Call again in a minute")
        machine.end.set()
        assert (await launch()).browser == "/nowhere/chromium"
        assert machine.installations == 1


async def test_failed_installation_is_not_repeated_by_every_call(machine: Machine):
    machine.works = False
    machine.end.set()
    async with launcher(machine) as launch:
        for passed in (0.0, 1.0, 1.0, 1.0, RETRY_SECONDS - 4):
            machine.now += passed
            with pytest.raises(NoBrowser, match="installing one failed: run `install it`"):
                await launch()
        assert machine.installations == 1
        machine.now += 1
        machine.works = True
        assert (await launch()).browser == "/nowhere/chromium"
    assert machine.installations == 2


async def test_browser_put_there_by_hand_ends_the_error_at_once(machine: Machine):
    machine.works = False
    machine.end.set()
    async with launcher(machine) as launch:
        with pytest.raises(NoBrowser):
            await launch()
        machine.found = BrowserChoice("/nowhere/chrome", None, "chrome")
        assert (await launch()).browser == "/nowhere/chrome"
    assert machine.installations == 1


async def test_failed_installation_says_what_to_run(machine: Machine):
    machine.works = False
    machine.end.set()
    async with launcher(machine) as launch:
        with pytest.raises(NoBrowser) as caught:
            await launch()
    assert "run `install it`" in caught.value.message


async def test_nothing_is_installed_where_that_is_not_wanted(machine: Machine):
    unwanted: list[dict[str, Any]] = [{"install": False}, {"executable": "/nowhere/chrome"}]
    for settings in unwanted:
        async with launcher(machine, **settings) as launch:
            with pytest.raises(NoBrowser):
                await launch()
    assert machine.installations == 0
