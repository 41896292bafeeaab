"""Browser faults: each is limited in time and reported, and affects no other session."""

from __future__ import annotations

import gc
import os
import re
import signal
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import psutil
import pytest
from lab import Lab
from playwright.async_api import Error
from support.browsing import (
    Browse,
    new_view,
    opened,
    pid_of,
    process_of,
    running,
    section,
    text_of,
    until_pages_closed,
)
from support.process_exit import until_gone
from support.selection import matrix
from support.waiting import until

from statehold.sessions.errors import ConnectionLost, OutcomeUnknown, ServiceUnavailable
from statehold.tools.browser.devtools.world import send_command
from statehold.tools.browser.process import driver
from statehold.tools.browser.service import BrowserService
from statehold.tools.browser.session import session as sessions
from statehold.tools.browser.session.tab import MAX_DIALOGS, Tab
from statehold.tools.browser.session.tab_list import Entry
from statehold.tools.browser.tool import BrowserTool
from statehold.tools.browser.tools import navigation
from statehold.tools.processes import procfs

FOREVER = "() => new Promise(() => {})"
ENDLESS = "() => { while (true) {} }"


def browser_pid(browse: Browse) -> int:
    return pid_of(process_of(browse), "browser")


def driver_pid(browse: Browse) -> int:
    return pid_of(process_of(browse), "driver")


def part_of(browse: Browse, kind: str) -> psutil.Process:
    return next(
        child
        for child in psutil.Process(browser_pid(browse)).children(recursive=True)
        if f"--utility-sub-type={kind}" in child.cmdline()
    )


async def in_flight(browse: Browse, fault: Any) -> BaseException:
    """Return the error of a call during which a fault happens."""
    raised: list[BaseException] = []

    async def call() -> None:
        try:
            await browse.call("evaluate", function=FOREVER)
        except Exception as error:
            raised.append(error)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            fault()
    return raised[0]


@pytest.mark.parametrize("which", matrix("browser", "driver"))
async def test_a_call_in_flight_is_answered_when_what_it_needs_is_killed(
    data: Path, shell: str, which: str, leaks: Any
) -> None:
    async with running(data, shell, keep_seconds=60) as service:
        async with opened(service) as browse:
            await browse.text("navigate", url="about:blank")
            driver = driver_pid(browse)
            pid = pid_of(process_of(browse), which)
            raised = await in_flight(browse, lambda: os.kill(pid, signal.SIGKILL))
            assert isinstance(raised, OutcomeUnknown)
            assert browse.connection.lost.is_set()
            assert browse.connection.reason
            with pytest.raises(ConnectionLost):
                await browse.call("snapshot")
        async with opened(service) as browse:
            assert "about:blank" in await browse.text("navigate", url="about:blank")
            # It takes as long to start as a browser.
            assert (driver_pid(browse) == driver) is (which == "browser")
    await leaks.check()
    assert list((data / "browser" / "temporary").iterdir()) == []


@pytest.mark.thorough
@pytest.mark.parametrize("which", ["browser", "driver"])
async def test_a_browser_that_dies_during_a_save_saves_nothing(
    data: Path, shell: str, lab: str, which: str
) -> None:
    """An earlier snapshot is better than pages whose content could no longer be read."""
    async with running(data, shell) as service, opened(service) as browse:
        await browse.text("navigate", url=f"{lab}/counter")
        await browse.page.evaluate("setTimeout(() => { while (true); })")
        refused: list[BaseException] = []

        async def save() -> None:
            try:
                await browse.connection.checkpoint()
            except ConnectionLost as error:
                refused.append(error)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(save)
                await anyio.lowlevel.checkpoint()
                # Answers come in order: the cookies that are saved were read before these.
                await browse.connection.session.context.cookies()
                os.kill(pid_of(process_of(browse), which), signal.SIGKILL)
        assert refused


async def test_a_crashed_page_is_reported_and_the_session_goes_on(browse: Browse) -> None:
    await browse.text("navigate", url="data:text/html,<title>before</title>")
    tab = browse.connection.session.tabs[0]
    assert isinstance(tab, Tab)
    with suppress(Error):
        await tab.page.goto("chrome://crash")
    with anyio.fail_after(5):
        await tab.modal.wait()
    text = await browse.text("snapshot")
    assert "had crashed" in section(text, "Events")
    assert "about:blank" in section(text, "Page")
    assert "after" in await browse.text("navigate", url="data:text/html,<title>after</title>")


@pytest.mark.thorough
async def test_a_page_that_crashes_in_the_background_is_reported_at_once(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    await browse.text("tabs", action="new", url=f"{lab}/form")
    crashed = browse.tab
    await browse.text("tabs", action="new", url=f"{lab}/hover")
    await browse.text("tabs", action="select", index=0)
    with suppress(Error):
        await crashed.page.goto("chrome://crash")
    with anyio.fail_after(5):
        await crashed.modal.wait()
    text = await browse.text("snapshot")
    assert section(text, "Events") == f"- The page of tab 1 crashed: {lab}/form"
    assert f"- 1: []({lab}/form) [crashed]" in section(text, "Open tabs")
    text = await browse.text("tabs", action="select", index=1)
    assert re.search(
        r"^- 1: \(current\) \[.*\) \[crashed\]$", section(text, "Result"), re.MULTILINE
    )
    text = await browse.text("snapshot")
    assert f"- 1: (current) [Long form - Lab]({lab}/form)" in section(text, "Open tabs")
    assert section(text, "Events").startswith(f"- The page {lab}/form had crashed; it was loaded")


async def crash(tab: Tab) -> None:
    """Crash the page of a tab, and wait until the tab knows."""
    devtools = await tab.page.context.new_cdp_session(tab.page)
    with suppress(Error), anyio.move_on_after(5):
        await send_command(devtools, "Page.crash")
    with anyio.fail_after(5):
        await tab.modal.wait()


async def test_a_crashed_page_comes_back_with_its_fields_and_history(
    browse: Browse, lab: str
) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    await browse.text("navigate", url=f"{lab}/frame?name=a")
    await browse.text("type", target="#word", text="typed before")
    await browse.value("() => sessionStorage.setItem('cart', '3')")
    await browse.saved(light=True)
    await crash(browse.tab)
    text = await browse.text("click", target="text=Tell")
    assert "heard typed before" in section(text, "Snapshot")
    assert "had crashed; it was loaded again" in section(text, "Events")
    assert await browse.value("() => sessionStorage.getItem('cart')") == "3"
    await browse.text("navigate_back")
    assert browse.page.url == f"{lab}/counter"
    assert len(browse.connection.session.tabs) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("tool", ["snapshot", "evaluate"])
async def test_a_page_that_crashed_after_its_last_save_is_loaded_at_its_address(
    browse: Browse, lab: str, tool: str
) -> None:
    await browse.text("navigate", url=f"{lab}/counter")
    await browse.saved(light=True)
    await browse.text("navigate", url=f"{lab}/form")
    await crash(browse.tab)
    await browse.saved(light=True)
    await browse.text(tool, **({"function": "() => 1"} if tool == "evaluate" else {}))
    assert browse.page.url == f"{lab}/form"
    await browse.text("navigate_back")
    assert browse.page.url == f"{lab}/counter"


@pytest.mark.thorough
async def test_a_page_that_crashes_again_gives_an_empty_tab(
    browse: Browse, lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    tabs = browse.connection.session.tabs
    real = tabs.select

    async def select(entry: Entry) -> Tab:
        tab = await real(entry)
        await crash(tab)
        monkeypatch.undo()
        return tab

    await crash(browse.tab)
    monkeypatch.setattr(tabs, "select", select)
    text = await browse.text("snapshot")
    assert "crashed again" in section(text, "Events")
    assert browse.page.url == "about:blank"
    assert len(tabs) == 1


def _half_a_second(*_: object) -> float:
    return 0.5


async def test_a_script_without_end_is_stopped_and_reported(
    service: BrowserService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "PROBE_SECONDS", 0.5)
    async with opened(service) as browse, opened(service) as other:
        await browse.text("navigate", url="data:text/html,<title>busy</title>")
        monkeypatch.setattr(BrowserTool, "seconds", _half_a_second)
        with anyio.fail_after(20):
            text = await browse.error("evaluate", function=ENDLESS)
        assert "did not end within" in section(text, "Error")
        assert "did not end, and was stopped" in section(text, "Events")
        monkeypatch.undo()
        assert "Page Title: busy" in section(await browse.text("snapshot"), "Page")
        assert not browse.connection.lost.is_set()
        assert "2" in await other.text("evaluate", function="() => 2")


LOG_IN = "() => { document.cookie = 'login=1; max-age=9999'; localStorage.login = '1' }"
LOGGED_IN = "() => [document.cookie, localStorage.login]"


@pytest.mark.thorough
@pytest.mark.skipif(not procfs.LINUX, reason="other systems do not tell")
async def test_a_browser_that_lost_its_storage_is_closed(data: Path, lab: str, whole: str) -> None:
    """Chromium continues with a new process without any logins, and would have that state saved."""
    async with running(data, whole) as service:
        async with opened(service) as browse:
            await browse.text("navigate", url=f"{lab}/counter")
            await browse.value(LOG_IN)
            saved = await browse.connection.snapshot()
            part_of(browse, "storage.mojom.StorageService").kill()
            with anyio.fail_after(5):
                await browse.connection.lost.wait()
            assert "storage" in (browse.connection.reason or "")
            with pytest.raises(ConnectionLost):
                await browse.connection.checkpoint()
            await until_gone(browser_pid(browse))
        async with opened(service, new_view(generation=2), saved) as browse:
            assert await browse.value(LOGGED_IN) == ["login=1", "1"]


def zygote_of(browse: Browse) -> psutil.Process:
    return next(
        child
        for child in psutil.Process(browser_pid(browse)).children()
        if "--type=zygote" in " ".join(child.cmdline())
        and "--no-zygote-sandbox" not in " ".join(child.cmdline())
    )


@pytest.mark.thorough
@pytest.mark.skipif(not procfs.LINUX, reason="other systems have no such process")
async def test_a_browser_that_can_start_no_page_any_more_is_replaced(
    data: Path, shell: str
) -> None:
    """Chromium continues without the process that starts its pages, and never opens a page again."""
    async with running(data, shell) as service:
        async with opened(service) as browse:
            zygote_of(browse).kill()
            with anyio.fail_after(5):
                await browse.connection.lost.wait()
        with anyio.fail_after(20):
            async with opened(service) as browse:
                assert "2" in await browse.text("evaluate", function="() => 2")


@pytest.mark.thorough
@pytest.mark.skipif(not procfs.LINUX, reason="other systems open links in another way")
async def test_a_link_starts_no_program_of_the_machine(
    data: Path, tmp_path: Path, whole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "output"
    os.mkfifo(output)
    machines, ours = tmp_path / "xdg-open", tmp_path / "nothing"
    for program, says in ((machines, "the machine's"), (ours, "ours")):
        program.write_text(f'#!/bin/sh\necho "{says}: $@" > {output}\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(driver, "NOTHING", str(ours))
    async with running(data, whole) as service, opened(service) as browse:
        await browse.text("navigate", url="data:text/html,<a href='mailto:a@b.c'>write</a>")
        await browse.text("click", target=await browse.ref("write"))
        with anyio.fail_after(10):
            started = await anyio.to_thread.run_sync(output.read_text, abandon_on_cancel=True)
    assert started == "ours: mailto:a@b.c\n"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PROBE_SECONDS", 0.5)
    monkeypatch.setattr(navigation, "HANGS_SECONDS", 0.5)


@pytest.mark.thorough
@pytest.mark.usefixtures("impatient")
async def test_an_endless_script_started_by_a_click_is_stopped_and_reported(
    data: Path, shell: str, lab: str
) -> None:
    async with running(data, shell, action_seconds=1) as service, opened(service) as browse:
        await browse.text("navigate", url=f"{lab}/endless")
        await browse.value("() => { window.mark = 1; }")
        result = await browse.call("click", target="text=Never return")
        assert "did not end, and was stopped" in section(text_of(result), "Events")
        assert await browse.value("() => window.mark") == 1
        assert "Counter" in await browse.text("navigate", url=f"{lab}/counter")


@pytest.mark.thorough
@pytest.mark.usefixtures("impatient")
async def test_a_page_opens_after_one_that_hangs(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/endless")
    await browse.value("() => { setTimeout(() => { for (;;); }); }")

    async def hangs() -> bool:
        with anyio.move_on_after(0.5) as scope:
            await browse.value("() => 1")
        return scope.cancelled_caught

    await until(hangs)
    with anyio.fail_after(30):
        text = await browse.text("navigate", url=f"{lab}/counter")
    assert "Increment" in section(text, "Snapshot")
    assert "did not answer any more and was closed" in section(text, "Events")


@pytest.mark.thorough
@pytest.mark.usefixtures("impatient")
async def test_a_page_that_cannot_be_interrupted_is_closed_and_reported(
    data: Path, shell: str, lab_site: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "CLOSE_SECONDS", 1.0)
    lab = lab_site.url
    async with running(data, shell, action_seconds=1) as service, opened(service) as browse:
        await browse.text("navigate", url=f"{lab}/counter")
        await browse.value("""() => { document.querySelector("button").onclick = () => {
            const request = new XMLHttpRequest();
            request.open("GET", "/api/gate/never", false);
            request.send();
        } }""")
        result = await browse.call("click", target="button >> nth=0")
        assert "did not answer any more and was closed" in section(text_of(result), "Events")
        assert "Counter" in await browse.text("navigate", url=f"{lab}/counter")
        lab_site.open("never")


@pytest.mark.thorough
async def test_a_page_that_is_too_large_for_a_snapshot_is_kept(
    data: Path, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "PROBE_SECONDS", 0.1)
    # On a busy machine the page takes its time to answer after the interrupt.
    monkeypatch.setattr(sessions, "CLOSE_SECONDS", 20.0)
    async with running(data, shell, action_seconds=0.3) as service, opened(service) as browse:
        await browse.text("navigate", url="about:blank")
        await browse.value(
            "() => { document.body.innerHTML = '<p id=part>some</p>' + '<button>x</button>'.repeat(6000); }"
        )
        text = await browse.error("snapshot")
        assert "longer than 0.3 seconds" in section(text, "Error")
        assert "some" in await browse.text("snapshot", target="#part")
        assert await browse.value("() => document.querySelectorAll('button').length") == 6000


async def answered(browse: Browse, lab: str, button: str) -> str:
    """Answer every dialog of a storm that is shown, and return the text after the last one."""
    await browse.text("navigate", url=f"{lab}/alerts")
    text = await browse.text("click", target=f"button >> text={button}")
    for number in range(1, MAX_DIALOGS + 1):
        assert f'"Alert {number}"' in section(text, "Modal state")
        text = await browse.text("handle_dialog", accept=True)
    return section(text, "Events")


async def test_a_storm_of_dialogs_is_cut_off(browse: Browse, lab: str) -> None:
    assert "they are dismissed" in await answered(browse, lab, "Alert storm")
    assert "survived" in await browse.text("snapshot")


@pytest.mark.thorough
async def test_a_storm_of_popups_is_cut_off(
    service: BrowserService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "config", service.config.model_copy(update={"tabs": 5}))
    async with opened(service) as browse:
        await browse.text("navigate", url="about:blank")
        script = "() => { for (let i = 0; i < 9; i++) window.open('about:blank') }"
        text = await browse.text("evaluate", function=script)
        assert "more than 5 tabs" in section(text, "Events")
        assert len(browse.connection.session.tabs) == 5
        await until_pages_closed(browse.connection.session.context, 5)


@pytest.mark.thorough
async def test_sessions_with_a_browser_each_share_the_driver_of_their_owner(
    data: Path, shell: str
) -> None:
    async with (
        running(data, shell, permissions=["clipboard-read"]) as service,
        opened(service) as one,
        opened(service) as two,
    ):
        assert browser_pid(one) != browser_pid(two)
        assert driver_pid(one) == driver_pid(two)


@pytest.mark.thorough
async def test_a_driver_that_had_many_sessions_is_replaced_and_ends_with_its_last(
    data: Path, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "MAX_CONTEXTS", 2)
    async with running(data, shell, keep_seconds=0) as service:
        async with opened(service) as one, opened(service) as two, opened(service) as three:
            worn = driver_pid(one)
            assert worn == driver_pid(two) != driver_pid(three)
            for browse in (one, two, three):
                assert "Fresh" in await browse.text("navigate", url="data:text/html,Fresh")
        await until_gone(worn)


@pytest.mark.thorough
async def test_cycles_of_opening_and_closing_leave_nothing(
    data: Path, shell: str, leaks: Any
) -> None:
    async with running(data, shell, keep_seconds=0) as service:
        for _ in range(2):
            async with anyio.create_task_group() as tasks:
                for number in range(4):
                    tasks.start_soon(_cycle, service, number)
    await leaks.check()
    assert list((data / "browser" / "temporary").iterdir()) == []


class Owner(str):
    """An owner of whom it can be seen whether anything of them is kept."""


@pytest.mark.thorough
async def test_nothing_is_kept_of_owners_whose_sessions_have_ended(data: Path, shell: str) -> None:
    async def visit() -> weakref.ref[Owner]:
        owner = Owner("gone")
        async with opened(service, new_view(owner)):
            return weakref.ref(owner)

    async with running(data, shell, keep_seconds=0, permissions=["clipboard-read"]) as service:
        owner = await visit()

        def is_collected() -> bool:
            gc.collect()
            return owner() is None

        await until(is_collected)


async def _cycle(service: BrowserService, number: int) -> None:
    # Number 3 takes the browser that number 1 uses as well.
    with suppress(OutcomeUnknown, ServiceUnavailable):
        await _visit(service, number)


async def _visit(service: BrowserService, number: int) -> None:
    async with opened(service, new_view(f"owner {number % 2}")) as browse:
        await browse.text("navigate", url=f"data:text/html,<title>{number}</title>")
        if number == 3:
            os.kill(browser_pid(browse), signal.SIGKILL)
            await browse.connection.lost.wait()
