"""What the origins of a context store: localStorage and IndexedDB, as far as it was read, and what of it is still asleep."""

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
"""Empty pages at once at most. Each site needs a renderer process of its own: more than the cores gain nothing."""
DATABASE_SECONDS: Final = 3.0
RESTORE_SECONDS: Final = 8.0
"""How long putting back one database may take; it takes longer than reading it."""
READ_SECONDS: Final = 4.0
KNOWN_BYTES: Final = 64 * 2**20
KNOWN_ORIGINS: Final = 500
"""How much is kept of all origins together, and of how many: in memory, in a snapshot, and at the gate."""
NOTED: Final = 5000
"""Of how many origins it is known that something of them is lost: of the last ones."""
TOLD: Final = 10
"""Of how many origins it is said by their names that something is lost."""
WORDS: Final = 100
"""How many characters are told of what is lost of an origin: databases may have long names."""
DATABASES: Final = '],"databases":['
"""What stands between the items and the databases of an origin: within a string the quotes would be escaped."""
NEXT: Final = ",\n"
"""What stands between two databases: within a string the end of the line would be escaped."""


class OriginStorage:
    """The storage of one context, kept beside it for as long as it lives.

    A restored origin sleeps until something is about to load a document of it: the gate of the browser then wakes it first.
    What is asleep is saved again as it is. Waking is safe under concurrency and happens once.
    """

    def __init__(self, context: BrowserContext, *, asleep: Mapping[str, str] | None = None) -> None:
        self.watch = ContextWatch(context)
        self.known: dict[str, str] = dict(asleep or {})
        """What each origin stored when it was last read, as page/state.js wrote it."""
        self.asleep: set[str] = set(self.known)
        self.trouble: list[str] = []
        """What could not be put back since somebody last took it out, in words."""
        self.remarks: dict[str, list[str]] = {}
        """What each origin has that cannot be saved, in words."""
        self.cut: dict[str, list[str]] = {}
        """What of each origin is not in `known`, because there was too much of it, in words."""
        self.stale: dict[str, list[str]] = {}
        """What of each origin is in `known` as it was before it was last read, in words."""
        self.unloaded: WeakKeyDictionary[Page, SavedTab] = WeakKeyDictionary()
        """Tabs that could not be loaded again: what was saved of them is not on their pages."""
        self.failing: WeakKeyDictionary[Page, SavedTab] = WeakKeyDictionary()
        """Tabs in whose place their site shows that it fails, until they go on: what was saved is not on their pages."""
        self.read: WeakKeyDictionary[Page, SavedTab] = WeakKeyDictionary()
        """Tabs as they were read last."""
        self.filled: WeakKeyDictionary[Page, float] = WeakKeyDictionary()
        """When what was done on pages was put back."""
        self.earlier = SessionStorages(self.watch)
        self.cleared: dict[str, None] = {}
        """Origins by whose word the browser forgot what they stored, which tabs that sleep do not know."""
        self.watch.on_cleared.append(self._forget_cleared)
        self.behind = 0
        """How many origins the last saving had no time for."""
        self._dropped: dict[str, None] = {}
        """What is not in `known`, because there was too much of others after it."""
        self._context_id = ""
        self._waking: dict[str, anyio.Lock] = {}
        self._gate: Gate | None = None

    def __repr__(self) -> str:
        return f"<OriginStorage known={len(self.known)} asleep={len(self.asleep)}>"

    def note_failing(self, page: Page, saved: SavedTab) -> None:
        """Keep what was saved of the page of a tab as long as its site's error stays."""
        _keep(self.failing, page, saved)

    def note_unloaded(self, page: Page, saved: SavedTab) -> None:
        """Keep what was saved of a tab until it goes anywhere."""
        _keep(self.unloaded, page, saved)

    async def attach(self, page: Page) -> None:
        """Learn from any page of the context which one it is, and put the gate up. What loads before passes it."""
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
        """Put back what an origin stored, by an empty page of ours or by one that stands on an empty document of it."""
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
        """Put back everything, one origin after the other, so that the gate can go. For when nothing else is to be done.

        Costs a renderer process for each origin. May be cancelled at any time.
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
            # Dropped meanwhile.
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
        # Otherwise a worker of the site would answer instead of us.
        await (await self.watch.world(page)).bypass_workers()
        async with nowhere(page):
            yield

    async def forget(self) -> None:
        """Give up all that is asleep, because something else takes its place."""
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
        """Take over what page/state.js read of an origin."""
        origin, cut = storage["origin"], list(storage["cut"])
        if origin in self.asleep:
            return
        _put(self.remarks, origin, storage["other"])
        if cut and not whole and origin in self.known:
            # A checkpoint reads less; what it has no room for is kept as it was read before.
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
        """Keep what an origin stored, at the cost of those that were read longest ago."""
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
        """Say what of what was read is not in `known`."""
        sites: dict[str, list[str]] = {}
        for how, told in (("", self.cut), ("", self.remarks), ("the latest of ", self.stale)):
            for origin, parts in told.items():
                for what in parts:
                    sites.setdefault(how + what[:WORDS], []).append(origin)
        found = listed("storage", list(self._dropped), " (too much)")
        return found + [line for what, its in sites.items() for line in listed(what, its)]

    def unread(self, *, but: Collection[str]) -> list[str]:
        """Return which origins were visited since they were last read, besides those of open pages."""
        return sorted(self.watch.touched - self.asleep - set(but))

    async def read_left(self, limits: Mapping[str, Any], *, but: Collection[str]) -> None:
        """Read origins that were visited since they were last read, but not those of open pages. May be cancelled."""
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
        """Read what a tab keeps for origins that it left since they were last read, by a copy of it. May be cancelled."""
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
    """Say of which origins something is lost; of very many the first, and how many more."""
    lines = [f"{what} of {origin}{why}" for origin in origins[:TOLD]]
    more = len(origins) - len(lines)
    return [*lines, f"{what} of {more} more sites{why}"] if more else lines


def _put(told: dict[str, list[str]], origin: str, words: Collection[str]) -> None:
    told.pop(origin, None)
    if words:
        _note(told, origin, list(words))


def _note(noted: dict[str, T], origin: str, what: T) -> None:
    """Note something of an origin, and of too many what was noted first no more."""
    noted[origin] = what
    if len(noted) > NOTED:
        del noted[next(iter(noted))]


def _keep(kept: WeakKeyDictionary[Page, SavedTab], page: Page, saved: SavedTab) -> None:
    def go_on(frame: Frame) -> None:
        # What stands in place of a page that cannot be loaded is not where the tab went.
        if frame.parent_frame is None and not frame.url.startswith("chrome-error:"):
            page.remove_listener("framenavigated", go_on)
            kept.pop(page, None)

    kept[page] = saved
    page.on("framenavigated", go_on)


def _merged(before: str, now: str | None, cut: Collection[str]) -> tuple[str, list[str]]:
    """Take from what was read before what could not be read now; return also which databases never were."""
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
    """Return how page/state.js calls a database that it could not read."""
    name = json.JSONDecoder().raw_decode(database, len('{"name":'))[0]
    return f"the database {name[:1000]}"


__all__ = ["DATABASE_SECONDS", "READ_SECONDS", "OriginStorage", "listed"]
