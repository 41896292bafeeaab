"""Browsers that die while a session is opened in them, and the errors of Playwright: neither counts as a fault of ours."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from playwright.async_api import Browser, Error
from support.browsing import Browse, new_view, opened, pid_of, process_of, running, saved
from support.loop_clock import LoopClock
from support.selection import matrix

from statehold.sessions.errors import OutcomeUnknown, ServiceUnavailable
from statehold.tools.browser import opening
from statehold.tools.browser.call import BrowserCall
from statehold.tools.browser.connection import LATE_SAVE_SECONDS
from statehold.tools.browser.devtools.world import World, send_command
from statehold.tools.browser.egress.session_access import EgressAccess
from statehold.tools.browser.process.browser_process import BrowserProcess
from statehold.tools.browser.process.driver import Driver
from statehold.tools.browser.service import BrowserService


def kill(process: BrowserProcess, which: str = "browser") -> None:
    os.kill(pid_of(process, which), signal.SIGKILL)


@dataclass
class Deadly:
    """Kills browsers while a session is opened in them."""

    left: int = 0
    """The number of browsers still to kill."""
    which: str = "browser"
    grants: list[EgressAccess] = field(default_factory=list[EgressAccess])
    """The egress access of each opened session."""


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch) -> Deadly:
    deadly = Deadly()
    whole = opening.BrowserOpening._prepare  # pyright: ignore[reportPrivateUsage]

    async def prepare(
        self: opening.BrowserOpening, process: BrowserProcess, grant: EgressAccess, *rest: Any
    ) -> None:
        await whole(self, process, grant, *rest)
        deadly.grants.append(grant)
        if deadly.left:
            deadly.left -= 1
            kill(process, deadly.which)

    monkeypatch.setattr(opening.BrowserOpening, "_prepare", prepare)
    return deadly


@pytest.mark.thorough
async def test_a_browser_that_died_unnoticed_is_replaced_by_another(
    data: Path, shell: str, lab: str
) -> None:
    async with running(data, shell, keep_seconds=60) as service:
        snapshot, process = await saved(service, f"{lab}/counter")
        kill(process)
        async with opened(service, new_view(generation=2), snapshot) as browse:
            assert process_of(browse) is not process
            assert "Counter" in await browse.text("snapshot")


@pytest.mark.thorough
async def test_a_death_that_is_noticed_after_its_error_is_handled_as_a_death(
    data: Path, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(data, shell, keep_seconds=60) as service:
        async with opened(service) as browse:
            process = process_of(browse)

        async def refuse(*_: object, **__: object) -> None:
            patch.undo()
            kill(process)
            raise Error("Target closed")

        with monkeypatch.context() as patch:
            patch.setattr(Browser, "new_context", refuse)
            async with opened(service) as browse:
                assert process_of(browse) is not process


@pytest.mark.parametrize("which", matrix("browser", "driver"))
async def test_a_browser_or_driver_that_dies_while_a_session_is_opened_is_replaced(
    data: Path, shell: str, lab: str, deadly: Deadly, which: str, leaks: Any
) -> None:
    async with running(data, shell) as service:
        snapshot, _ = await saved(service, f"{lab}/counter")
        deadly.left, deadly.which = 1, which
        async with opened(service, new_view(generation=2), snapshot) as browse:
            assert deadly.left == 0
            assert "Counter" in await browse.text("snapshot")
            assert "1 tab" in browse.connection.restore_report.restored
            # The context of a dead driver is never closed.
            assert [g.listening.cancel_called for g in deadly.grants[-2:]] == [True, False]
    await leaks.check()


@pytest.mark.thorough
async def test_a_browser_that_dies_while_a_page_is_restored_is_replaced(
    data: Path, shell: str, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[BrowserProcess] = []
    run = World.run

    async def die(self: World, function: str, *arguments: object) -> Any:
        if function != "restoreTab" or killed:
            return await run(self, function, *arguments)
        killed.append(process)
        kill(process)
        # The caller must see this error before the opening is given up.
        with anyio.CancelScope(shield=True), anyio.fail_after(5):
            await process.lost.wait()
            return await run(self, function, *arguments)

    async with running(data, shell, keep_seconds=60) as service:
        async with opened(service) as browse:
            await browse.text("navigate", url=f"{lab}/counter")
            await browse.value("() => { sessionStorage.step = 2 }")
            snapshot, process = await browse.connection.snapshot(), process_of(browse)
        monkeypatch.setattr(World, "run", die)
        async with opened(service, new_view(generation=2), snapshot) as browse:
            assert killed == [process]
            assert await browse.value("() => sessionStorage.step") == "2"


@pytest.mark.parametrize("step", matrix("restoreTab", "restorePage"))
async def test_a_page_that_crashes_while_it_is_restored_is_reported_at_once(
    service: BrowserService,
    lab: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    step: str,
) -> None:
    run = World.run

    async def crash(self: World, function: str, *arguments: object) -> Any:
        if function == step:
            with suppress(Error), anyio.move_on_after(1):
                await send_command(self._session, "Page.crash")  # pyright: ignore[reportPrivateUsage]
        return await run(self, function, *arguments)

    async with opened(service) as browse:
        await browse.text("navigate", url=f"{lab}/frame?name=one")
        await browse.value("() => { sessionStorage.step = 2 }")
        await browse.text("type", target="#word", text="typed")
        snapshot = await browse.saved()
    monkeypatch.setattr(World, "run", crash)
    with anyio.fail_after(8):
        async with opened(service, browse.next_view(), snapshot) as resumed:
            assert (
                f"the page of tab 0 ({lab}/frame crashed)" in resumed.connection.restore_report.lost
            )
            assert (await resumed.saved()).data["tabs"][0]["url"] == f"{lab}/frame?name=one"
            assert "crashed" in await resumed.text("snapshot")
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.thorough
async def test_a_browser_that_is_closed_while_it_is_checked_is_not_reported_as_hanging(
    data: Path, shell: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked_now, may_answer = anyio.Event(), anyio.Event()

    async def check(_: object) -> bool:
        asked_now.set()
        await may_answer.wait()
        return True

    async with running(data, shell) as service:
        async with opened(service) as browse:
            process = process_of(browse)
        monkeypatch.setattr(Driver, "check", check)
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(process.check)
            await asked_now.wait()
            await process.aclose()
            may_answer.set()
    assert "hangs" not in caplog.text


@pytest.mark.thorough
async def test_browsers_that_die_one_after_the_other_are_reported(
    data: Path, shell: str, lab: str, deadly: Deadly
) -> None:
    async with running(data, shell) as service:
        snapshot, _ = await saved(service, f"{lab}/counter")
        deadly.left = 2
        with pytest.raises(ServiceUnavailable) as caught:
            await service.open(new_view(generation=2), snapshot)
        assert "died while the session was opened: the browser ended" in caught.value.message
        assert deadly.left == 0
        async with opened(service, new_view(generation=2), snapshot) as browse:
            assert "Counter" in await browse.text("snapshot")


async def test_a_refusal_of_the_browser_is_reported_and_costs_no_other_session_anything(
    service: BrowserService, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise Error("Browser.new_context: Not today\nCall log:\n  - asked")

    with monkeypatch.context() as patch:
        patch.setattr(Browser, "new_context", refuse)
        with pytest.raises(ServiceUnavailable) as caught:
            await service.open(new_view(), None)
    assert caught.value.message == "The browser could not open the session: Not today."
    assert "about:blank" in await browse.text("navigate", url="about:blank")


async def test_a_browser_elsewhere_that_hangs_while_a_session_is_opened_is_reported(
    service: BrowserService, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The browser is not ours to kill, so there is no notice of its end."""

    async def hang(_: object) -> bool:
        return False

    async def refuse(*_: object, **__: object) -> None:
        raise Error("Timeout")

    monkeypatch.setattr(opening, "DEATH_SECONDS", 0.01)
    monkeypatch.setattr(BrowserProcess, "check", hang)
    monkeypatch.setattr(Browser, "new_context", refuse)
    with anyio.fail_after(5), pytest.raises(ServiceUnavailable, match="could not open the session"):
        await service.open(new_view(), None)


async def test_an_error_of_playwright_at_the_end_of_a_call_is_an_unknown_outcome(
    browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def finish(_: object) -> None:
        raise Error("Page.title: Target crashed")

    monkeypatch.setattr(BrowserCall, "finish", finish)
    with pytest.raises(OutcomeUnknown, match="Target crashed"):
        await browse.call("navigate", url="about:blank")


async def test_an_error_of_playwright_while_a_session_is_saved_is_reported(
    browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def save(*_: object) -> None:
        raise Error("BrowserContext.cookies: Not today")

    monkeypatch.setattr(browse.connection, "_save", save)
    with pytest.raises(ServiceUnavailable, match="could not be saved: Not today"):
        await browse.connection.snapshot()
    assert browse.connection.unsaved


async def test_a_request_of_a_page_after_a_call_makes_its_session_unsaved(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    await browse.connection.snapshot()
    notified = anyio.Event()
    browse.connection.report_changes(notified.set)
    await browse.text("evaluate", function="() => { window.ask = () => fetch('/counter') }")
    assert browse.connection.unsaved
    assert not notified.is_set()
    await browse.connection.checkpoint()
    assert not browse.connection.unsaved
    await browse.value("() => { ask() }")
    with anyio.fail_after(5):
        await notified.wait()
    assert browse.connection.unsaved


async def test_a_session_is_saved_again_some_time_after_a_call(
    browse: Browse, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = browse.connection
    await browse.text("navigate", url=f"{lab}/counter")
    for _ in range(2):
        await browse.text("evaluate", function="() => { localStorage.n = 1 }")
        await connection.checkpoint()
        assert not connection.unsaved
        clock = LoopClock(monkeypatch)
        for seconds in LATE_SAVE_SECONDS:
            notified = anyio.Event()
            connection.report_changes(notified.set)
            await clock.by(seconds)
            with anyio.fail_after(5):
                await notified.wait()
            await connection.checkpoint()
        monkeypatch.undo()
    await browse.text("snapshot")
    assert not connection.unsaved
