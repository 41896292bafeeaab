"""Addresses that a person opens, the history of a tab, and the tabs of a session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio

from ....sessions.json_codec import JSON
from ..devtools.world import send_command
from ..errors import BrowserToolFailed
from ..tools.navigation import parse_url
from .events import HistoryInput, TabInput

if TYPE_CHECKING:
    from ..session.session import BrowserSession
    from ..session.tab import Tab

HISTORY_SECONDS: Final = 3.0


async def open_address(session: BrowserSession, tab: Tab, address: str) -> None:
    """Begin to open an address in a tab, by the rules for the agent's addresses. The person sees whether it arrives.

    Raises:
        BrowserToolFailed: It may not be opened.
    """
    url = parse_url(address)
    if password := urlsplit(url).password:
        session.secrets.add(password)
    if tab.crashed:
        tab = await session.tabs.replace(tab)
    # In the background: the person may stop a navigation that takes long.
    milliseconds = session.config.navigation_seconds * 1000
    go = partial(tab.page.goto, url, wait_until="commit", timeout=milliseconds)
    session.spawn(_run_unlogged, go)


async def _run_unlogged(navigate: Callable[[], Awaitable[object]]) -> None:
    """Navigate. A failure is not logged: its text would contain what the person typed, and the page shows it."""
    with suppress(Exception):
        await navigate()


async def move_in_history(session: BrowserSession, tab: Tab, event: HistoryInput) -> None:
    """Go back or forward, load the page again, or stop loading it.

    Raises:
        BrowserToolFailed: There is no such page, or the browser does not answer.
        playwright's Error: The page is gone.
    """
    if event.action == "renew":
        milliseconds = session.config.navigation_seconds * 1000
        if refusal := await session.scripts.renew(milliseconds=milliseconds):
            raise BrowserToolFailed(refusal)
        return
    if tab.crashed:
        await open_address(session, tab, tab.url)
        return
    with anyio.move_on_after(HISTORY_SECONDS) as scope:
        world = await session.watch.world(tab.page)
        if event.action == "stop":
            await world.stop()
        elif event.action == "reload":
            await _send(session, tab, "Page.reload", {})
        else:
            entries, index = await world.history()
            wanted = index - 1 if event.action == "back" else index + 1
            if not 0 <= wanted < len(entries):
                raise BrowserToolFailed(f"There is no page to go {event.action} to.")
            entry = entries[wanted]
            if "id" in entry:
                await _send(session, tab, "Page.navigateToHistoryEntry", {"entryId": entry["id"]})
            elif event.action == "forward":
                await open_address(session, tab, entry["url"])
            else:
                load = partial(tab.load_history_entry, world, parse_url(entry["url"]))
                milliseconds = session.config.navigation_seconds * 1000
                session.spawn(_run_unlogged, partial(load, milliseconds=milliseconds))
    if scope.cancelled_caught:
        raise BrowserToolFailed("The browser does not answer.")


async def _send(session: BrowserSession, tab: Tab, method: str, params: JSON) -> None:
    devtools = await session.watch.devtools(tab.page)
    try:
        await send_command(devtools, method, params)
    finally:
        await session.watch.detach(tab.page, devtools)


async def change_tabs(session: BrowserSession, event: TabInput) -> None:
    """Open a tab, select one, or close one.

    Raises:
        BrowserToolFailed: There is no such tab, or there are too many.
        playwright's Error: The browser is gone.
    """
    tabs = session.tabs
    if event.action == "open":
        try:
            await tabs.open()
        except IndexError as error:
            raise BrowserToolFailed(f"No new tab: {error}.") from None
        return
    if event.index is None or event.index >= len(tabs):
        raise BrowserToolFailed(f"There is no tab {event.index}; there are {len(tabs)}.")
    entry = tabs[event.index]
    if event.action == "close":
        await tabs.close(entry)
        return
    tab = await tabs.select(entry)
    if session.is_attached:
        # Its window paints only the tab in front.
        with anyio.move_on_after(HISTORY_SECONDS):
            await tab.page.bring_to_front()
