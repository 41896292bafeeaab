"""Browsers and drivers that stop without ending: the next session that needs one kills and replaces it."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import psutil
import pytest
from support.browsing import new_view, opened, pid_of, process_of, running, saved
from support.process_exit import alive
from support.selection import matrix

from statehold.sessions.errors import ConnectionLost, OutcomeUnknown
from statehold.tools.browser import connection
from statehold.tools.browser.process import browser_process, driver
from statehold.tools.browser.process.browser_process import BrowserProcess
from statehold.tools.browser.snapshot import capture

FOREVER = "() => new Promise(() => {})"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (connection, "CLOSE"),
        (connection, "PROBE"),
        (connection, "WATCH"),
        (capture, "PROBE"),
        (browser_process, "DOUBT"),
        (driver, "CHECK"),
        (browser_process, "CHECK"),
    ):
        monkeypatch.setattr(module, f"{name}_SECONDS", 0.5)


@contextmanager
def stopped(process: BrowserProcess, which: str) -> Generator[int]:
    """Stop the browser or the driver with a signal, which raises no event. It is resumed at the end in any case."""
    pid = pid_of(process, which)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def ended(pid: int) -> bool:
    return not alive(pid)


WHICH = pytest.mark.parametrize("which", matrix("browser", "driver"))


@WHICH
async def test_a_hanging_browser_or_driver_is_killed(
    data: Path, shell: str, which: str, leaks: Any
) -> None:
    async with (
        running(data, shell) as service,
        opened(service, new_view("ann")) as browse,
        opened(service, new_view("ben")) as other,
    ):
        await browse.text("navigate", url="about:blank")
        with stopped(process_of(browse), which) as pid:
            with anyio.fail_after(20), pytest.raises(OutcomeUnknown):
                await browse.call("evaluate", function=FOREVER)
            assert browse.connection.lost.is_set()
            assert ended(pid)
        assert not other.connection.lost.is_set()
        await other.text("navigate", url="about:blank")
    await leaks.check()


@pytest.mark.thorough
@WHICH
async def test_a_browser_that_hangs_between_calls_is_replaced_for_the_next_session(
    data: Path, shell: str, lab: str, which: str, leaks: Any
) -> None:
    async with running(data, shell, keep_seconds=60) as service:
        snapshot, process = await saved(service, f"{lab}/counter")
        with stopped(process, which) as pid, anyio.fail_after(20):
            async with opened(service, new_view("somebody else")) as other:
                await other.text("navigate", url="about:blank")
                assert not ended(pid)
            async with opened(service, new_view(generation=2), snapshot) as browse:
                assert "Counter" in await browse.text("snapshot")
                assert ended(pid)
    await leaks.check()


@pytest.mark.thorough
@pytest.mark.parametrize("which", ["driver"])
async def test_a_cancelled_caller_has_a_hanging_driver_killed_all_the_same(
    data: Path, shell: str, lab: str, which: str
) -> None:
    """Otherwise callers that give up and ask again would never get an answer."""
    async with running(data, shell, keep_seconds=60) as service:
        snapshot, process = await saved(service, f"{lab}/counter")
        with stopped(process, which):
            with anyio.move_on_after(0.6) as scope:
                await service.open(new_view(generation=2), snapshot)
            assert scope.cancelled_caught
            with anyio.fail_after(10):
                await process.lost.wait()


@pytest.mark.thorough
@pytest.mark.parametrize("which", ["browser"])
async def test_a_session_that_cannot_be_saved_has_its_hanging_browser_killed(
    data: Path, shell: str, which: str
) -> None:
    async with running(data, shell, keep_seconds=60) as service, opened(service) as browse:
        await browse.text("navigate", url="about:blank")
        process = process_of(browse)
        with stopped(process, which), anyio.fail_after(20):
            with pytest.raises(ConnectionLost):
                await browse.connection.snapshot()
            await process.lost.wait()


@pytest.mark.thorough
@pytest.mark.parametrize("which", ["driver"])
async def test_a_session_that_cannot_be_closed_has_its_hanging_driver_killed(
    data: Path, shell: str, which: str
) -> None:
    async with running(data, shell, keep_seconds=60) as service, opened(service) as browse:
        process = process_of(browse)
        with stopped(process, which), anyio.fail_after(20):
            await browse.connection.aclose()
            await process.lost.wait()


@pytest.mark.thorough
async def test_a_browser_elsewhere_that_hangs_is_given_up(
    data: Path, by_devtools: str, lab: str
) -> None:
    """Such a browser cannot be killed, but without a limit its callers would wait without end, as on a cut connection."""
    port = urlsplit(by_devtools).port
    listens = (c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN)
    pid = next(one.pid for one in listens if tuple(one.laddr)[1:] == (port,))
    assert pid is not None
    async with running(data, None, cdp_endpoint=by_devtools, keep_seconds=60) as service:
        async with opened(service) as browse:
            await browse.text("navigate", url=f"{lab}/counter")
            snapshot = await browse.saved()
            os.kill(pid, signal.SIGSTOP)
            try:
                with anyio.fail_after(20), pytest.raises(OutcomeUnknown):
                    await browse.call("evaluate", function=FOREVER)
                assert browse.connection.lost.is_set()
            finally:
                os.kill(pid, signal.SIGCONT)
        async with opened(service, browse.next_view(), snapshot) as browse:
            assert "Counter" in await browse.text("snapshot")
