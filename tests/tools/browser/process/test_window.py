"""A window in which a person works: the session is saved when the window closes. The pages are real, without a screen."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from support.browsing import Browse, new_view, opened, running

from statehold.sessions.services import Snapshot
from statehold.tools.browser.service import BrowserService
from statehold.tools.browser.snapshot.encryption import Encryption
from statehold.tools.browser.snapshot.model import ContextSnapshot
from statehold.tools.browser.window import Window

KEY = "a key of a test, long enough"


class StoredSnapshots:
    """The snapshots that a window stored."""

    def __init__(self, seal: Encryption | None = None) -> None:
        self.saved: list[ContextSnapshot] = []
        self._seal = seal
        self._more = anyio.Event()

    async def __call__(self, snapshot: Snapshot) -> None:
        self.saved.append(ContextSnapshot.from_snapshot(snapshot, self._seal))
        self._more.set()
        self._more = anyio.Event()

    async def until(self, *urls: str) -> None:
        """Wait until a snapshot with these tabs was stored."""
        with anyio.fail_after(20):
            while not self.saved or addresses(self.saved[-1]) != list(urls):
                await self._more.wait()


def addresses(hibernated: ContextSnapshot) -> list[str]:
    return [tab.url for tab in hibernated.tabs]


@asynccontextmanager
async def window_of(
    browse: Browse, seal: Encryption | None = None
) -> AsyncGenerator[tuple[Window, StoredSnapshots]]:
    """Show a session; leaving waits until its window is closed."""
    window = Window(browse.connection, encryption=seal, checkpoint_seconds=0.05, store_seconds=0.0)
    snapshots = StoredSnapshots(seal)
    await window.show()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(window.save_until_closed, snapshots)
        yield window, snapshots


@pytest.mark.thorough
async def test_tabs_are_saved_as_they_were_before_the_window_closed(
    service: BrowserService, lab: str
) -> None:
    view = new_view()
    async with opened(service, view) as browse:
        await browse.text("navigate", url=f"{lab}/form")
        context = browse.connection.session.context
        async with window_of(browse) as (window, snapshots):
            page = await context.new_page()
            await page.goto(f"{lab}/routes")
            await snapshots.until(f"{lab}/form", f"{lab}/routes")
            await page.goto(f"{lab}/keys")
            await context.add_cookies([{"name": "late", "value": "1", "url": lab}])
            for each in list(context.pages):
                await each.close()
        snapshot = await window.final_snapshot()
    assert snapshot is not None
    state = ContextSnapshot.from_snapshot(snapshot)
    assert addresses(state) == [f"{lab}/form", f"{lab}/keys"]
    assert "late" in [cookie["name"] for cookie in state.cookies]
    async with opened(service, new_view(generation=2, id=view.id), snapshot) as again:
        # The session continues in the tab that was used last.
        assert f"Page URL: {lab}/keys" in await again.text("snapshot")


async def test_tab_that_was_closed_alone_stays_closed(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/form")
    context = browse.connection.session.context
    async with window_of(browse) as (window, snapshots):
        page = await context.new_page()
        await page.goto(f"{lab}/routes")
        await snapshots.until(f"{lab}/form", f"{lab}/routes")
        await page.close()
        await snapshots.until(f"{lab}/form")
        await context.pages[0].close()
    snapshot = await window.final_snapshot()
    assert snapshot is not None
    assert addresses(ContextSnapshot.from_snapshot(snapshot)) == [f"{lab}/form"]


@pytest.mark.thorough
async def test_sleeping_tabs_are_awake_in_a_window(service: BrowserService, lab: str) -> None:
    view = new_view()
    async with opened(service, view) as browse:
        await browse.text("navigate", url=f"{lab}/form")
        await browse.text("tabs", action="new", url=f"{lab}/routes")
        before = await browse.connection.snapshot()
    async with opened(service, new_view(generation=2, id=view.id), before) as browse:
        assert len(browse.connection.session.context.pages) == 1
        async with window_of(browse):
            pages = browse.connection.session.context.pages
            assert sorted(page.url for page in pages) == [f"{lab}/form", f"{lab}/routes"]
            for page in list(pages):
                await page.close()


@pytest.mark.thorough
async def test_browser_asks_a_person_for_files_itself(browse: Browse, lab: str) -> None:
    await browse.text("navigate", url=f"{lab}/upload")
    async with window_of(browse):
        tab = await browse.connection.session.current()
        await tab.page.locator("input[type=file]").first.click()
        # A page that waited for a caller would not answer this.
        assert await tab.page.evaluate("1 + 1") == 2
        assert tab.modal_text is None
        await tab.page.close()


@pytest.mark.thorough
async def test_the_last_checkpoint_of_a_browser_that_died_is_stored(
    tmp_path: Path, shell: str, lab: str
) -> None:
    async with running(tmp_path / "data", shell, key=KEY) as service, opened(service) as browse:
        await browse.text("navigate", url=f"{lab}/form")
        async with window_of(browse, Encryption(KEY)) as (window, snapshots):
            await snapshots.until(f"{lab}/form")
            process = browse.connection._process  # pyright: ignore[reportPrivateUsage]
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
        snapshot = await window.final_snapshot()
    assert snapshot is not None
    assert addresses(ContextSnapshot.from_snapshot(snapshot, Encryption(KEY))) == [f"{lab}/form"]


async def test_an_address_opens_beside_the_page_and_is_saved_if_the_window_closes_at_once(
    browse: Browse, lab: str
) -> None:
    window = Window(browse.connection)
    await window.show()
    await window.go(f"{lab}/frame?name=one")
    await window.go(f"{lab}/frame?name=two")
    for page in list(browse.connection.session.context.pages):
        # Playwright may wait for ever for the end of a page that it closes while its document arrives.
        await page.wait_for_load_state()
        await page.close()
    with anyio.fail_after(10):
        await window.closed.wait()
    snapshot = await window.final_snapshot()
    assert snapshot is not None
    state = ContextSnapshot.from_snapshot(snapshot)
    assert addresses(state) == [f"{lab}/frame?name=one", f"{lab}/frame?name=two"]
    assert state.current == 1
