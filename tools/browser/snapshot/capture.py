"""Saving a browser context: cookies, storage and tabs as plain JSON, while its pages go on."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import anyio

from ....sessions.errors import ConnectionLost
from ....sessions.json_codec import JSON
from .earlier import without
from .model import ContextSnapshot, DormantTab, SavedTab
from .storage import DATABASE_SECONDS, READ_SECONDS, OriginStorage, listed
from .world import WorldError, origin_of, without_login

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

PROBE_SECONDS: Final = 2.0
"""A page that does not answer for so long is saved by its address alone."""
HISTORY: Final = 50
ADDRESS: Final = 32 * 2**10
KIB: Final = 2**10
MIB: Final = 2**20

UNANSWERED: Final = "what was on it (it did not answer)"
AWAITED: Final = "what its site was about to answer (what was sent may have taken effect)"
WRITTEN: Final = "!!(document.title || document.body?.innerHTML)"
"""Whether there is anything on a page."""

_QUESTION: Final = f"statehold-{secrets.token_hex(8)}"
_ANSWER_ONCE: Final = f"""document.addEventListener("{_QUESTION}", () =>
  document.dispatchEvent(new CustomEvent("{_QUESTION}!", {{ detail: window.history.state }})), {{ once: true }})"""
"""Lets a page tell our script once what only it may look at."""

TAB_LIMITS: Final[Mapping[str, Any]] = {
    "fields": 2000,
    "fieldBytes": 256 * KIB,
    "pageBytes": 2 * MIB,
    "sessionBytes": MIB,
    "milliseconds": 300,
}
"""What our script takes of one page at most; more is said to be lost."""
STORAGE_LIMITS: Final[Mapping[str, Any]] = {
    "bytes": 16 * MIB,
    "milliseconds": DATABASE_SECONDS * 1000,
    "whole": True,
}
LIGHT_STORAGE_LIMITS: Final[Mapping[str, Any]] = {
    "bytes": 2 * MIB,
    "milliseconds": 300,
    "whole": False,
}


async def saved(
    context: BrowserContext,
    pages: Sequence[Page | DormantTab],
    current: int,
    *,
    light: bool,
    seconds: float,
    origins: OriginStorage,
) -> ContextSnapshot:
    """Save a context within `seconds`, leaving it as it is.

    A page that does not answer is saved by its address. `light` is for checkpoints: of databases it reads only small ones,
    and takes over what it does not read from what was read before.

    Raises:
        ConnectionLost: the browser is gone or does not answer at all.
    """
    reading = _Reading(origins, light=light, probe=min(PROBE_SECONDS, seconds / 2))
    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reading.take_cookies, context)
            for number, page in enumerate(pages):
                tasks.start_soon(reading.take, number, page)
        if reading.silent:
            # The browser may have died meanwhile: then what was saved before is worth more than this.
            reading.cookies = None
            await reading.take_cookies(context)
        if reading.cookies is not None:
            await reading.read_left()
    if reading.cookies is None:
        raise ConnectionLost("The browser does not answer, so that nothing could be saved.")
    unread = origins.unread(but=reading.claimed)
    origins.behind = len(unread)
    origins.watch.look_again()
    numbers = sorted(reading.tabs)
    return ContextSnapshot(
        cookies=reading.cookies,
        origins=dict(origins.known),
        tabs=[reading.with_sessions(number, pages[number]) for number in numbers],
        current=sum(number < current for number in numbers),
        lost=origins.unsaved() + listed("the latest storage", unread),
    )


class _Reading:
    """One pass over the pages of a context."""

    def __init__(self, origins: OriginStorage, *, light: bool, probe: float) -> None:
        self.cookies: list[JSON] | None = None
        self.tabs: dict[int, SavedTab] = {}
        self.claimed: set[str] = set()
        """Origins that an open page is asked about, so that no other has to be."""
        self.at: dict[Page, set[str]] = {}
        """Where pages that answered are, and their frames: what they keep for these origins was read."""
        self.silent = False
        """Whether a page did not answer."""
        self._again: set[Page] = set()
        """Pages that went on while they were asked, and are asked once more."""
        self._origins = origins
        self.limits = LIGHT_STORAGE_LIMITS if light else STORAGE_LIMITS
        """What is taken of one origin at most."""
        self._probe = probe

    async def take_cookies(self, context: BrowserContext) -> None:
        from playwright.async_api import Error

        with anyio.move_on_after(self._probe), suppress(Error):
            self.cookies = [dict(cookie) for cookie in await context.cookies()]

    async def take(self, number: int, page: Page | DormantTab) -> None:
        from playwright.async_api import Error, Page

        if not isinstance(page, Page):
            self.tabs[number] = page.saved
            return
        if (unloaded := self._origins.unloaded.get(page)) is not None:
            self.tabs[number] = without(unloaded, self._origins.cleared)
            return
        with anyio.move_on_after(self._probe), suppress(Error):
            self.tabs[number] = await self._addressed(page)
        if number not in self.tabs:
            self.silent = True
            if not page.is_closed():
                self.tabs[number] = SavedTab(without_login(page.url))
        if number in self.tabs:
            tab = self.tabs[number]
            # Should the time be over before it has answered.
            self.tabs[number] = replace(tab, lost=[UNANSWERED])
            self.tabs[number] = tab = await self._filled(tab, page)
            origin = origin_of(tab.url)
            # Not before: what is on the page must not be lost because a database takes its time.
            if origin and origin in self.at.get(page, ()) and origin not in self.claimed:
                await self._stored(origin, page)

    async def _addressed(self, page: Page) -> SavedTab:
        """What the browser knows of a tab, whether its page answers or not."""
        entries, index = await (await self._origins.watch.world(page)).history()
        first = max(0, index - HISTORY)
        addresses = [without_login(str(entry["url"])) for entry in entries[first : index + HISTORY]]
        here = addresses[index - first]
        before = [url for url in addresses[: index - first] if _replayable(url)]
        after = [url for url in addresses[index - first + 1 :] if _replayable(url)]
        viewport = page.viewport_size
        if len(here) > ADDRESS:
            return SavedTab("about:blank", lost=["the page (its address is too long)"])
        return SavedTab(
            url=here,
            title=str(entries[index].get("title", ""))[:300],
            history=[*before, here, *after],
            place=len(before),
            viewport=[viewport["width"], viewport["height"]] if viewport else None,
            media=dict(self._origins.watch.media.get(page, {})),
            posted=self._origins.watch.posted(page),
        )

    async def _filled(self, tab: SavedTab, page: Page) -> SavedTab:
        """Add what is on the page itself, if it answers in time."""
        from playwright.async_api import Error

        origin = origin_of(tab.url)
        if origin is None:
            return await self._unaddressed(tab, page)
        limits = self._limits_of(page, storage=False)
        found: JSON | None = None
        with anyio.move_on_after(self._probe), suppress(Error, WorldError):
            world = await self._origins.watch.world(page)
            with suppress(Error, WorldError):
                await world.ask(_ANSWER_ONCE)
            found = await world.run("savedTab", limits)
        if found is None:
            self.silent = True
            # Its storage can still be read by others, or by an empty page.
            self._origins.watch.touched.add(origin)
            before = self._origins.read.get(page)
            if before is not None and before.url == tab.url:
                lost = ["what happened on it last (it did not answer)"]
                return replace(
                    tab, status=before.status, page=before.page, entry=before.entry, lost=lost
                )
            return replace(tab, lost=[UNANSWERED])
        if found["origin"] != origin:
            return await self._elsewhere(tab, page, found)
        self.at[page] = {origin}
        self._note(page, found)
        # The page may have moved on since the browser was asked.
        here = without_login(str(found["url"]))
        tab = replace(
            tab,
            url=here,
            status=found["status"],
            page=found["page"],
            entry=found["entry"],
            lost=_missing(found) + await self._framed(page),
        )
        before = self._origins.failing.get(page)
        if before is not None:
            tab = replace(tab, page=before.page, status=before.status)
        self._origins.read[page] = tab
        return tab

    async def _stored(self, origin: str, page: Page) -> None:
        """Read what an origin stores, by a page of it."""
        from playwright.async_api import Error

        self.claimed.add(origin)
        with anyio.move_on_after(READ_SECONDS), suppress(Error, WorldError):
            world = await self._origins.watch.world(page)
            storage = await world.run("savedStorage", dict(self.limits))
            if storage is None:
                return
            if storage["origin"] == origin:
                self._origins.note(storage, whole=bool(self.limits["whole"]))
                return
        # It can still be read by others, or by an empty page.
        self.claimed.discard(origin)
        self._origins.watch.touched.add(origin)

    async def _elsewhere(self, tab: SavedTab, page: Page, found: JSON) -> SavedTab:
        """Save a tab whose document is not of the origin of its address."""
        from playwright.async_api import Error

        self.at[page] = set()
        if origin_of(found["url"]) == origin_of(tab.url):
            # A site may have its pages kept apart from what it stores.
            lost = _missing({**found, "untold": ["history state"] if found["entry"] else []})
            return replace(tab, status=found["status"], page=found["page"], lost=lost)
        if found["url"].startswith("chrome-error:"):
            return tab
        # It went on while it was asked.
        if page in self._again:
            return replace(tab, lost=["what was on it (it went on to another page)"])
        self._again.add(page)
        with anyio.move_on_after(self._probe), suppress(Error):
            tab = await self._addressed(page)
        return await self._filled(tab, page)

    async def _unaddressed(self, tab: SavedTab, page: Page) -> SavedTab:
        """Say what is lost of a page that no site sent."""
        from playwright.async_api import Error

        written = False
        with anyio.move_on_after(self._probe), suppress(Error, WorldError):
            if tab.url in ("", "about:blank"):
                written = await (await self._origins.watch.world(page)).ask(WRITTEN)
            self.at[page] = set()
        return replace(tab, lost=["what scripts had written into it"]) if written else tab

    async def _framed(self, page: Page) -> list[str]:
        """Read what frames of other origins store that pages of these share. Returns what is lost of them, in words."""
        from playwright.async_api import Error

        lost: list[str] = []
        if not (related := self._origins.watch.framed(page)):
            return lost
        with anyio.move_on_after(self._probe), suppress(Error, WorldError):
            world = await self._origins.watch.world(page)
            for frame, origin in await world.frames():
                if origin not in related:
                    continue
                limits = self._limits_of(page, storage=origin not in self.claimed)
                found = await world.at(frame).run("savedTab", limits)
                if found["origin"] != origin:
                    continue
                self._note(page, found)
                self.claimed.add(origin)
                self.at[page].add(origin)
                if found["fields"] or found["withheld"] or found["done"]:
                    lost.append(f"what was typed or chosen in a frame of {origin}")
        return lost

    async def read_left(self) -> None:
        """Read what was stored for origins that no tab is at any more."""
        from playwright.async_api import Error

        for page, at in self.at.items():
            with suppress(Error):
                await self._origins.attach(page)
                await self._origins.read_earlier(page, self._limits_of(page), but=at)
        with suppress(Error):
            await self._origins.read_left(self.limits, but=self.claimed)

    def _limits_of(self, page: Page, *, storage: bool = True) -> JSON:
        """Return what is taken of a page at most, with or without the storage of its origin."""
        return {
            **TAB_LIMITS,
            "question": _QUESTION,
            "sent": self._origins.watch.sent(page),
            "storage": dict(self.limits) if storage else None,
        }

    def _note(self, page: Page, found: JSON) -> None:
        if found["storage"] is not None:
            self._origins.note(found["storage"], whole=bool(self.limits["whole"]))
        self._origins.earlier.note(page, found)

    def with_sessions(self, number: int, page: Page | DormantTab) -> SavedTab:
        """Return a tab with what it keeps for sites that it is not at."""
        from playwright.async_api import Page

        tab = self.tabs[number]
        if not isinstance(page, Page) or page in self._origins.unloaded:
            return tab
        awaited = [AWAITED] if self._origins.watch.awaits(page) else []
        # A page that is kept apart from its origin does not say what the tab keeps for it.
        at = None if self.at.get(page) == set() else origin_of(tab.url)
        earlier = self._origins.earlier
        lost = earlier.unsaved(page, at=at, read=self.at.get(page, ()))
        sessions = earlier.of(page, at=None if tab.entry is None else at)
        return replace(tab, sessions=sessions, lost=[*tab.lost, *awaited, *lost])


def _replayable(url: str) -> bool:
    return len(url) <= ADDRESS and origin_of(url) is not None


def _missing(found: JSON) -> list[str]:
    lost: list[str] = []
    if found["withheld"]:
        lost.append("what was typed into password and other secret fields")
    if found["done"]:
        lost.append("what was ticked or chosen and sent at once (the site has it)")
    if found["files"]:
        lost.append(f"{found['files']} chosen {'file' if found['files'] == 1 else 'files'}")
    return lost + found["untold"] + [f"{what} (too much)" for what in found["cut"]]


__all__ = ["ContextSnapshot", "SavedTab", "saved"]
