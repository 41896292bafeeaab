"""Saving a browser context: cookies, storage and tabs as plain JSON, while its pages keep running."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import anyio

from ....sessions.errors import ConnectionLost
from ....sessions.json_codec import JSON
from ....sessions.one_line import plural
from .. import errors
from ..devtools.world import WorldError, origin_of, without_login
from .model import ContextSnapshot, SavedTab
from .saved_storage import DATABASE_SECONDS, READ_SECONDS, OriginStorage
from .session_storage import without_sessions
from .storage_records import describe_origins

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

    from .saved_tab import DormantTab

PROBE_SECONDS: Final = 2.0
"""Seconds without an answer after which a page is saved by its address alone."""
HISTORY: Final = 50
ADDRESS: Final = 32 * 2**10
KIB: Final = 2**10
MIB: Final = 2**20

UNANSWERED: Final = "what was on it (it did not answer)"
HAS_CONTENT: Final = "!!(document.title || document.body?.innerHTML)"
"""An expression that is true if a page has content."""

_QUESTION: Final = f"statehold-{secrets.token_hex(8)}"
_REPORT_STATE_ONCE: Final = f"""document.addEventListener("{_QUESTION}", () =>
  document.dispatchEvent(new CustomEvent("{_QUESTION}!", {{ detail: window.history.state }})), {{ once: true }})"""
"""Makes the page's own world answer, once, with its history.state; see shownState() in page/tab.js."""

TAB_LIMITS: Final[Mapping[str, Any]] = {
    "fields": 2000,
    "fieldBytes": 256 * KIB,
    "pageBytes": 2 * MIB,
    "sessionBytes": MIB,
    "milliseconds": 300,
}
"""The limits of what our script reads from one page; a larger part is reported as lost."""
STORAGE_LIMITS: Final[Mapping[str, Any]] = {
    "bytes": 16 * MIB,
    "milliseconds": DATABASE_SECONDS * 1000,
}
LIGHT_STORAGE_LIMITS: Final[Mapping[str, Any]] = {
    "bytes": 2 * MIB,
    "milliseconds": 300,
}


async def capture(
    context: BrowserContext,
    pages: Sequence[Page | DormantTab],
    current: int,
    *,
    light: bool,
    seconds: float,
    origins: OriginStorage,
) -> ContextSnapshot:
    """Save a context within `seconds`, without changing it.

    A page that does not answer is saved by its address. `light` is for checkpoints: it reads only small databases, and uses
    the last known content for all that it does not read.

    Raises:
        ConnectionLost: The browser is gone or does not answer at all.
    """
    progress = _Capture(origins, light=light, probe=min(PROBE_SECONDS, seconds / 2))
    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(progress.read_cookies, context)
            for number, page in enumerate(pages):
                tasks.start_soon(progress.read_tab, number, page)
        if progress.page_was_silent:
            # The browser may have died meanwhile: the previous snapshot is then better than this one.
            progress.cookies = None
            await progress.read_cookies(context)
        if progress.cookies is not None:
            await progress.read_unread()
    if progress.cookies is None:
        raise ConnectionLost("The browser does not answer, so that nothing could be saved.")
    unread = origins.unread(but=progress.claimed_origins)
    origins.unread_count = len(unread)
    origins.watch.mark_frames_unread()
    numbers = sorted(progress.tabs)
    return ContextSnapshot(
        cookies=progress.cookies,
        origins=dict(origins.records.stored),
        tabs=[progress.tab_with_sessions(number, pages[number]) for number in numbers],
        current=sum(number < current for number in numbers),
        lost=origins.records.describe_losses() + describe_origins("the latest storage", unread),
    )


class _Capture:
    """One pass over the pages of a context."""

    def __init__(self, origins: OriginStorage, *, light: bool, probe: float) -> None:
        self.cookies: list[JSON] | None = None
        self.tabs: dict[int, SavedTab] = {}
        self.claimed_origins: set[str] = set()
        """Origins whose storage is read through an open page, so that no other page has to read it."""
        self.origin_by_page: dict[Page, str | None] = {}
        """The origin of each page that answered, whose session storage for it was read; None if it belongs to none."""
        self.page_was_silent = False
        """Whether a page did not answer."""
        self._read_again: set[Page] = set()
        """Pages that navigated while they were read, and are read once more."""
        self._origins = origins
        self.limits = LIGHT_STORAGE_LIMITS if light else STORAGE_LIMITS
        """The limits of what is read from one origin."""
        self._probe = probe

    async def read_cookies(self, context: BrowserContext) -> None:
        with anyio.move_on_after(self._probe), suppress(errors.Error):
            self.cookies = [dict(cookie) for cookie in await context.cookies()]

    async def read_tab(self, number: int, page: Page | DormantTab) -> None:
        from playwright.async_api import Error, Page

        if not isinstance(page, Page):
            self.tabs[number] = page.saved_tab
            return
        if (saved_tab := self._origins.tabs.unloadable.get(page)) is not None:
            self.tabs[number] = without_sessions(saved_tab, self._origins.cleared_origins)
            return
        with anyio.move_on_after(self._probe), suppress(Error):
            self.tabs[number] = await self._read_address(page)
        if number not in self.tabs:
            self.page_was_silent = True
            if not page.is_closed():
                self.tabs[number] = self._origins.tabs.last_known(page)
        if number in self.tabs:
            tab = self.tabs[number]
            # For the case that the time is over before the page has answered.
            self.tabs[number] = replace(tab, lost=[UNANSWERED])
            self.tabs[number] = tab = await self._read_page(tab, page)
            origin = origin_of(tab.url)
            # Last, so that a slow database does not make the state of the page be lost.
            if (
                origin
                and origin == self.origin_by_page.get(page)
                and origin not in self.claimed_origins
            ):
                await self._read_storage(origin, page)

    async def _read_address(self, page: Page) -> SavedTab:
        """Return the facts that the browser itself knows about a tab, whether its page answers or not."""
        entries, index = await (await self._origins.watch.world(page)).history()
        start = max(0, index - HISTORY)
        addresses = [without_login(str(entry["url"])) for entry in entries[start : index + HISTORY]]
        current = addresses[index - start]
        before = [url for url in addresses[: index - start] if _replayable(url)]
        after = [url for url in addresses[index - start + 1 :] if _replayable(url)]
        viewport = page.viewport_size
        if len(current) > ADDRESS:
            return SavedTab("about:blank", lost=["the page (its address is too long)"])
        return SavedTab(
            url=current,
            title=str(entries[index].get("title", ""))[:300],
            history=[*before, current, *after],
            position=len(before),
            viewport=[viewport["width"], viewport["height"]] if viewport else None,
            media=dict(self._origins.watch.media.get(page, {})),
            posted=self._origins.watch.shows_form_answer(page),
        )

    async def _read_page(self, tab: SavedTab, page: Page) -> SavedTab:
        """Add the state of the page itself, if it answers in time."""
        origin = origin_of(tab.url)
        if origin is None:
            return await self._record_lost_content(tab, page)
        limits = {**TAB_LIMITS, "question": _QUESTION, "sent": self._origins.watch.times_sent(page)}
        state: JSON | None = None
        with anyio.move_on_after(self._probe), suppress(errors.Error, WorldError):
            world = await self._origins.watch.world(page)
            with suppress(errors.Error, WorldError):
                await world.evaluate(_REPORT_STATE_ONCE)
            state = await world.run("savedTab", limits)
        if state is None:
            self.page_was_silent = True
            # Its storage can still be read through another page, or an empty one.
            self._origins.watch.unread_origins.add(origin)
            before = self._origins.tabs.last_read.get(page)
            if before is not None and before.url == tab.url:
                losses = ["what happened on it last (it did not answer)"]
                return replace(
                    tab, status=before.status, page=before.page, entry=before.entry, lost=losses
                )
            return replace(tab, lost=[UNANSWERED])
        if state["origin"] != origin:
            return await self._read_other_document(tab, page, state)
        self.origin_by_page[page] = origin
        self._origins.sessions.note(page, state)
        # The page may have navigated since the browser was asked.
        url = without_login(str(state["url"]))
        tab = replace(
            tab,
            url=url,
            status=state["status"],
            page=state["page"],
            entry=state["entry"],
            lost=_describe_losses(state),
        )
        before = self._origins.tabs.failing.get(page)
        if before is not None:
            tab = replace(tab, page=before.page, status=before.status)
        self._origins.tabs.last_read[page] = tab
        return tab

    async def _read_storage(self, origin: str, page: Page) -> None:
        """Read the storage of an origin through a page of that origin."""
        self.claimed_origins.add(origin)
        with anyio.move_on_after(READ_SECONDS), suppress(errors.Error, WorldError):
            if await self._origins.read(origin, page, self.limits):
                return
        # The storage can still be read through another page, or an empty one.
        self.claimed_origins.discard(origin)
        self._origins.watch.unread_origins.add(origin)

    async def _read_other_document(self, tab: SavedTab, page: Page, state: JSON) -> SavedTab:
        """Save a tab whose document does not belong to the origin of its address."""
        self.origin_by_page[page] = None
        if origin_of(state["url"]) == origin_of(tab.url):
            # The site isolates its page from its own origin, for example by a CSP sandbox.
            losses = _describe_losses(
                {**state, "untold": ["history state"] if state["entry"] else []}
            )
            return replace(tab, status=state["status"], page=state["page"], lost=losses)
        if state["url"].startswith("chrome-error:"):
            return tab
        # The page navigated while it was read.
        if page in self._read_again:
            return replace(tab, lost=["what was on it (it went on to another page)"])
        self._read_again.add(page)
        with anyio.move_on_after(self._probe), suppress(errors.Error):
            tab = await self._read_address(page)
        return await self._read_page(tab, page)

    async def _record_lost_content(self, tab: SavedTab, page: Page) -> SavedTab:
        """Record the loss of content that scripts wrote into a page without a site, such as about:blank."""
        has_content = False
        with anyio.move_on_after(self._probe), suppress(errors.Error, WorldError):
            if tab.url in ("", "about:blank"):
                has_content = await (await self._origins.watch.world(page)).evaluate(HAS_CONTENT)
            self.origin_by_page[page] = None
        return replace(tab, lost=["what scripts had written into it"]) if has_content else tab

    async def read_unread(self) -> None:
        """Read the storage of origins that no tab shows any more."""
        with suppress(errors.Error):
            await self._origins.read_unread(self.limits, but=self.claimed_origins)

    def tab_with_sessions(self, number: int, page: Page | DormantTab) -> SavedTab:
        """Return a tab with its session storage."""
        from playwright.async_api import Page

        tab = self.tabs[number]
        if not isinstance(page, Page) or page in self._origins.tabs.unloadable:
            return tab
        # A page that is isolated from its origin cannot read the session storage of that origin.
        is_isolated = page in self.origin_by_page and self.origin_by_page[page] is None
        losses = self._origins.sessions.describe_losses(
            page, but=None if is_isolated else origin_of(tab.url)
        )
        return replace(tab, sessions=self._origins.sessions.of(page), lost=[*tab.lost, *losses])


def _replayable(url: str) -> bool:
    return len(url) <= ADDRESS and origin_of(url) is not None


def _describe_losses(state: JSON) -> list[str]:
    losses: list[str] = []
    if state["withheld"]:
        losses.append("what was typed into password and other secret fields")
    if state["done"]:
        losses.append("what was ticked or chosen and sent at once (the site has it)")
    if state["files"]:
        losses.append(plural(state["files"], "chosen file"))
    return losses + state["untold"] + [f"{part} (too much)" for part in state["cut"]]
