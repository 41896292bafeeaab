"""The localStorage and IndexedDB of the origins of a context, as last read, and the restored part that is still asleep."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary

import anyio

from .doorstep import nowhere, stand
from .earlier import SessionStorages
from .gate import Gate
from .watch import ContextWatch
from .world import WorldError

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Frame, Page

    from .model import SavedTab

T = TypeVar("T")

logger = logging.getLogger("statehold.browser")

PARALLEL: Final = 2
"""The most concurrent empty pages. Each site needs a renderer process, so more pages than cores are no faster."""
DATABASE_SECONDS: Final = 3.0
RESTORE_SECONDS: Final = 8.0
"""Seconds to restore one database, which takes longer than to read it."""
READ_SECONDS: Final = 4.0
KNOWN_BYTES: Final = 64 * 2**20
KNOWN_ORIGINS: Final = 500
"""With KNOWN_BYTES, the limits for all origins together: in memory, in a snapshot, and at the gate."""
NOTED: Final = 5000
"""The number of origins for which losses are remembered; the oldest are dropped."""
TOLD: Final = 10
"""The number of origins that a message about losses names."""
WORDS: Final = 100
"""The most characters of a lost part in a message: databases may have long names."""
DATABASES: Final = '],"databases":['
"""The separator between the items and the databases of an origin; inside a string its quotes would be escaped."""
NEXT: Final = ",\n"
"""The separator between two databases; inside a string the end of the line would be escaped."""


class OriginStorage:
    """The storage of the origins of one context. Lives as long as the context.

    A restored origin is asleep until a document of it is about to load; the gate of the browser then restores its storage
    first. The storage of a sleeping origin is saved again unchanged. Concurrent wake() calls restore an origin once.
    """

    def __init__(self, context: BrowserContext, *, asleep: Mapping[str, str] | None = None) -> None:
        self.watch = ContextWatch(context)
        self.known: dict[str, str] = dict(asleep or {})
        """The storage of each origin when it was last read, as page/state.js wrote it."""
        self.asleep: set[str] = set(self.known)
        self.trouble: list[str] = []
        """The parts that could not be restored since the last take_trouble(), in words."""
        self.remarks: dict[str, list[str]] = {}
        """By origin, the kinds of stored data that cannot be saved, in words."""
        self.cut: dict[str, list[str]] = {}
        """By origin, the parts missing from `known` because they were too large, in words."""
        self.stale: dict[str, list[str]] = {}
        """By origin, the parts of `known` that the last read had no room for and that are older, in words."""
        self.unloaded: WeakKeyDictionary[Page, SavedTab] = WeakKeyDictionary()
        """Saved tabs that could not be loaded again, so that their pages do not show the saved state."""
        self.failing: WeakKeyDictionary[Page, SavedTab] = WeakKeyDictionary()
        """Saved tabs whose site answered with a server error, until they navigate; the saved state is not on their pages."""
        self.read: WeakKeyDictionary[Page, SavedTab] = WeakKeyDictionary()
        """Tabs as they were read last."""
        self.filled: WeakKeyDictionary[Page, float] = WeakKeyDictionary()
        """The time at which the fields of each page were restored, on anyio's clock."""
        self.earlier = SessionStorages(self.watch)
        self.cleared: dict[str, None] = {}
        """Origins whose sites had the browser clear their storage; sleeping tabs must not restore it."""
        self.watch.on_cleared.append(self._forget_cleared)
        self.behind = 0
        """The number of origins that the last save had no time for."""
        self._dropped: dict[str, None] = {}
        """Origins dropped from `known` to make room for origins that were read later."""
        self._context_id = ""
        self._waking: dict[str, anyio.Lock] = {}
        self._gate: Gate | None = None

    def __repr__(self) -> str:
        return f"<OriginStorage known={len(self.known)} asleep={len(self.asleep)}>"

    def note_failing(self, page: Page, saved: SavedTab) -> None:
        """Keep the saved state of a tab as long as the error page of its site is shown."""
        _keep(self.failing, page, saved)

    def note_unloaded(self, page: Page, saved: SavedTab) -> None:
        """Keep the saved state of a tab until the tab navigates."""
        _keep(self.unloaded, page, saved)

    async def attach(self, page: Page) -> None:
        """Read the id of the context from one of its pages and register it at the gate.

        Documents that load before this are not paused.
        """
        if self._gate is not None:
            return
        browser = page.context.browser
        assert browser is not None
        self._context_id = (await self.watch.world(page)).context
        self._gate = Gate.of(browser)
        page.context.on("close", self._closed)
        await self._gate.admit(self._context_id, self)

    async def _closed(self, context: BrowserContext) -> None:
        self.asleep.clear()
        if self._gate is not None:
            try:
                await self._gate.leave(self._context_id)
            except Exception:
                logger.debug("the gate did not answer", exc_info=True)

    # Waking.

    async def wake(self, origin: str, page: Page | None = None) -> None:
        """Restore the storage of an origin: through `page`, which shows an empty document of it, or a new empty page."""
        async with self._waking.setdefault(origin, anyio.Lock()):
            if origin not in self.asleep:
                return
            if page is not None:
                await self._restore(origin, page)
            else:
                async with self._empty_page() as own:
                    await stand(own, origin + "/")
                    await self._restore(origin, own)
            self.asleep.discard(origin)
        if self._gate is not None:
            await self._gate.changed()

    async def wake_all(self) -> None:
        """Restore all sleeping origins, one after the other. The gate then no longer pauses documents of this context.

        Starts a renderer process for each origin. May be cancelled at any time.
        """
        if not self.asleep or self._gate is None:
            return
        async with self._empty_page() as page:
            for origin in sorted(self.asleep):
                await stand(page, origin + "/")
                await self.wake(origin, page)

    async def _restore(self, origin: str, page: Page) -> None:
        world = await self.watch.world(page)
        if (text := self.known.get(origin)) is None:
            # The origin was dropped meanwhile.
            return
        failed = await world.run("restoreStorage", origin, text, RESTORE_SECONDS * 1000)
        self.trouble += [f"{what} of {origin}" for what in failed]

    @asynccontextmanager
    async def _empty_page(self) -> AsyncGenerator[Page]:
        assert self._gate is not None, "attach() comes first"
        browser = await self._gate.session()
        opened = self.watch.doorstep.open(browser, self._context_id)
        async with opened as page, self._nowhere(page):
            yield page

    @asynccontextmanager
    async def _nowhere(self, page: Page) -> AsyncGenerator[None]:
        # Otherwise a service worker of the site would answer instead of us.
        await (await self.watch.world(page)).bypass_workers()
        async with nowhere(page):
            yield

    async def forget(self) -> None:
        """Drop the storage of all origins, because other storage replaces it."""
        self.asleep.clear()
        self.known.clear()
        for told in (self.remarks, self.cut, self.stale):
            told.clear()
        if self._gate is not None:
            await self._gate.changed()

    def _forget_cleared(self, origin: str) -> None:
        _note(self.cleared, origin, None)
        self.earlier.cleared(origin)

    def take_trouble(self) -> list[str]:
        found, self.trouble = self.trouble, []
        return found

    # Reading.

    def note(self, storage: Mapping[str, Any], *, whole: bool) -> None:
        """Update an origin with a result of page/state.js."""
        origin, cut = storage["origin"], list(storage["cut"])
        if origin in self.asleep:
            return
        _put(self.remarks, origin, storage["other"])
        if cut and not whole and origin in self.known:
            # A checkpoint reads less; parts that it has no room for are kept as they were read before.
            text, never = _merged(self.known[origin], storage["text"], cut)
            self._know(origin, text)
            never = [w for w in cut if w in never or w in self.cut.get(origin, ())]
            _put(self.cut, origin, never)
            _put(self.stale, origin, [w for w in cut if w not in never])
            return
        self.stale.pop(origin, None)
        if storage["text"] is None:
            self.known.pop(origin, None)
            self._dropped.pop(origin, None)
        else:
            self._know(origin, storage["text"])
        _put(self.cut, origin, cut)

    def _know(self, origin: str, text: str) -> None:
        """Keep the storage of an origin; beyond the limits, drop the origins that were read longest ago."""
        self.known.pop(origin, None)
        self._dropped.pop(origin, None)
        self.known[origin] = text
        size = sum(map(len, self.known.values()))
        for oldest in list(self.known)[:-1]:
            if size <= KNOWN_BYTES and len(self.known) <= KNOWN_ORIGINS:
                break
            size -= len(self.known.pop(oldest))
            self.asleep.discard(oldest)
            _note(self._dropped, oldest, None)

    def unsaved(self) -> list[str]:
        """Return, in words, the stored data that `known` lacks or has in an older state."""
        sites: dict[str, list[str]] = {}
        for how, told in (("", self.cut), ("", self.remarks), ("the latest of ", self.stale)):
            for origin, parts in told.items():
                for what in parts:
                    sites.setdefault(how + what[:WORDS], []).append(origin)
        found = listed("storage", list(self._dropped), " (too much)")
        return found + [line for what, its in sites.items() for line in listed(what, its)]

    def unread(self, *, but: Collection[str]) -> list[str]:
        """Return the origins that were visited since they were last read, without those in `but` and the sleeping ones."""
        return sorted(self.watch.touched - self.asleep - set(but))

    async def read_left(self, limits: Mapping[str, Any], *, but: Collection[str]) -> None:
        """Read the origins that were visited since they were last read, without those in `but`. May be cancelled."""
        waiting = self.unread(but=but)
        if not waiting:
            return
        if self._gate is None:
            async with self.watch.doorstep.first() as page:
                await self.attach(page)
        async with anyio.create_task_group() as tasks:
            for _ in range(min(PARALLEL, 1 + len(waiting) // 4)):
                tasks.start_soon(self._read_all, waiting, limits)

    async def read_earlier(
        self, page: Page, limits: Mapping[str, Any], *, but: Collection[str]
    ) -> None:
        """Read, through a copy of a tab, its session storage for origins that it has left since. May be cancelled."""
        left = self.earlier.left(page, but=but)
        if not left or not self.earlier.copying:
            return
        been = self.watch.been[page]
        with anyio.move_on_after(READ_SECONDS), suppress(WorldError):
            world = await self.watch.world(page)
            async with self.watch.doorstep.copy_of(world) as own, self._nowhere(own):
                for origin in left:
                    await stand(own, origin + "/")
                    found = await (await self.watch.world(own)).run("savedTab", dict(limits))
                    if found["origin"] != origin:
                        continue
                    self.earlier.note(page, found)
                    been.pop(origin, None)
                    if found["storage"] is not None:
                        self.note(found["storage"], whole=bool(limits["storage"]["whole"]))
                        self.watch.touched.discard(origin)

    async def _read_all(self, waiting: list[str], limits: Mapping[str, Any]) -> None:
        from playwright.async_api import Error

        try:
            async with self._empty_page() as page:
                while waiting:
                    origin = waiting.pop()
                    with anyio.move_on_after(READ_SECONDS), suppress(WorldError):
                        await self._read(origin, page, limits)
        except Error:
            logger.debug("the storage of sites was not read", exc_info=True)

    async def _read(self, origin: str, page: Page, limits: Mapping[str, Any]) -> None:
        await stand(page, origin + "/")
        storage = await (await self.watch.world(page)).run("savedStorage", dict(limits))
        if storage is not None and storage["origin"] == origin:
            self.note(storage, whole=bool(limits["whole"]))
        self.watch.touched.discard(origin)


def listed(what: str, origins: Sequence[str], why: str = "") -> list[str]:
    """Return messages that `what` of some origins is lost: one for each of the first TOLD, and one for the rest."""
    lines = [f"{what} of {origin}{why}" for origin in origins[:TOLD]]
    more = len(origins) - len(lines)
    return [*lines, f"{what} of {more} more sites{why}"] if more else lines


def _put(told: dict[str, list[str]], origin: str, words: Collection[str]) -> None:
    told.pop(origin, None)
    if words:
        _note(told, origin, list(words))


def _note(noted: dict[str, T], origin: str, what: T) -> None:
    """Set the value of an origin; beyond NOTED origins, drop the oldest."""
    noted[origin] = what
    if len(noted) > NOTED:
        del noted[next(iter(noted))]


def _keep(kept: WeakKeyDictionary[Page, SavedTab], page: Page, saved: SavedTab) -> None:
    def go_on(frame: Frame) -> None:
        # The browser's error page in place of a page is not a navigation of the tab.
        if frame.parent_frame is None and not frame.url.startswith("chrome-error:"):
            page.remove_listener("framenavigated", go_on)
            kept.pop(page, None)

    kept[page] = saved
    page.on("framenavigated", go_on)


def _merged(before: str, now: str | None, cut: Collection[str]) -> tuple[str, list[str]]:
    """Return a text in which the parts of `cut` come from `before`, and the databases that are in neither text."""
    items, databases = _parts(now or f'{{"items":[{DATABASES}]}}')
    known_items, known = _parts(before)
    if "local storage" in cut:
        items = known_items
    if "databases" in cut:
        return _whole(items, known), []
    kept = {_named(text): text for text in known}
    missed = [what for what in cut if what != "local storage"]
    databases += [kept[what] for what in missed if what in kept]
    return _whole(items, databases), [what for what in missed if what not in kept]


def _parts(text: str) -> tuple[str, list[str]]:
    """Return the items of an origin and its databases, as page/state.js wrote them."""
    items, _, databases = text.partition(DATABASES)
    return items, [each for each in databases.removesuffix("]}").split(NEXT) if each]


def _whole(items: str, databases: Collection[str]) -> str:
    return f"{items}{DATABASES}{NEXT.join(databases)}]}}"


def _named(database: str) -> str:
    """Return the words by which page/state.js refers to a database that it could not read."""
    name = json.JSONDecoder().raw_decode(database, len('{"name":'))[0]
    return f"the database {name[:1000]}"


__all__ = ["DATABASE_SECONDS", "READ_SECONDS", "OriginStorage", "listed"]
