"""The processes that the pool of browsers keeps, and the faults that it survives."""

from __future__ import annotations

import gc
import os
import signal
import weakref
from contextlib import closing
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from playwright.async_api import Error
from support.browsing import Browse, new_view, opened, pid_of, process_of, running, running_in_hosts
from support.process_exit import until_gone
from support.selection import matrix
from support.waiting import until

from statehold.sessions.errors import ServiceUnavailable
from statehold.tools.browser.process import browser_launch
from statehold.tools.browser.process.browser_process import BrowserProcess
from statehold.tools.browser.process.driver import Driver
from statehold.tools.processes.keeper_command import KeeperCommand


@pytest.mark.thorough
async def test_a_browser_whose_caller_was_cancelled_is_closed_beside_others_of_its_owner(
    data: Path, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    whole = BrowserProcess.identify

    async def identify(self: BrowserProcess) -> None:
        await whole(self)
        started.append(pid_of(self, "browser"))
        scope.cancel()
        await anyio.lowlevel.checkpoint()

    # With this permission each session has a browser of its own.
    async with (
        running(data, shell, permissions=["clipboard-read"]) as service,
        opened(service) as browse,
    ):
        with monkeypatch.context() as patch, anyio.CancelScope() as scope:
            patch.setattr(BrowserProcess, "identify", identify)
            await service.open(new_view(), None)
        await until_gone(*started)
        assert len(started) == 1
        assert "about:blank" in await browse.text("navigate", url="about:blank")


@pytest.mark.thorough
async def test_an_error_while_a_browser_closes_ends_nothing_else(
    data: Path, shell: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failed = anyio.Event()
    whole = Driver.aclose

    async def close(self: Driver) -> None:
        await whole(self)
        failed.set()
        raise OSError("no file descriptor is left")

    async with running(data, shell, keep_seconds=0) as service:
        with monkeypatch.context() as patch:
            patch.setattr(Driver, "aclose", close)
            async with opened(service):
                pass
            with anyio.fail_after(20):
                await failed.wait()
        async with opened(service) as browse:
            assert "about:blank" in await browse.text("navigate", url="about:blank")
    assert "background work on browsers failed" in caplog.text


@pytest.mark.thorough
async def test_an_error_while_a_session_closes_keeps_no_browser(data: Path, shell: str) -> None:
    def fail() -> None:
        raise OSError("it cannot be removed")

    async with running(data, shell, keep_seconds=0) as service:
        connection = await service.open(new_view(), None)
        pid = pid_of(process_of(Browse(connection, service, new_view())), "browser")
        connection.on_closed.append(fail)
        with pytest.raises(OSError, match="cannot be removed"):
            await connection.aclose()
        await until_gone(pid)


@pytest.mark.parametrize("which", matrix("browser", "driver"))
async def test_a_dead_browser_leaves_no_object_in_memory(
    data: Path, shell: str, which: str
) -> None:
    async def die() -> weakref.ref[object]:
        async with opened(service) as browse:
            process = process_of(browse)
            os.kill(pid_of(process, which), signal.SIGKILL)
            with anyio.fail_after(10):
                await process.lost.wait()
            return weakref.ref(process.browser)

    async with running(data, shell, keep_seconds=0) as service:
        browser = await die()

        def is_collected() -> bool:
            gc.collect()
            return browser() is None

        await until(is_collected)


@pytest.mark.thorough
async def test_a_browser_whose_start_fails_after_it_is_connected_is_closed(
    data: Path, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise Error("the driver ended")

    monkeypatch.setattr(browser_launch, "register", fail)
    async with running_in_hosts(data, shell) as service:
        with pytest.raises(ServiceUnavailable, match="did not start"):
            await service.open(new_view(), None)
        with closing(KeeperCommand(data)) as keeper:
            assert not keeper.status().children


@pytest.mark.thorough
async def test_an_idle_browser_in_a_host_ends_with_its_driver(data: Path, shell: str) -> None:
    async with running_in_hosts(data, shell) as service:
        async with opened(service) as browse:
            process = process_of(browse)
            browser, driver = (pid_of(process, which) for which in ("browser", "driver"))
        os.kill(driver, signal.SIGKILL)
        await until_gone(browser)
