"""localStorage and IndexedDB of the origins of a context: restored before an origin is used, and read to be saved."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import anyio

from .. import errors
from ..devtools.blank_pages import load_blank, without_network
from ..devtools.interception import RequestInterceptor
from ..devtools.world import WorldError, origin_of
from .model import NO_ITEMS, SavedTab, StoredOrigin
from .session_storage import SessionStorage
from .storage_records import StorageRecords, TabRecords
from .storage_watch import ContextWatch

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

logger = logging.getLogger("statehold.browser")

MAX_PARALLEL: Final = 2
"""The most concurrent blank pages. Each site needs a renderer process, so more pages than cores are no faster."""
DATABASE_SECONDS: Final = 3.0
RESTORE_SECONDS: Final = 8.0
"""Seconds to restore one database, which takes longer than to read it."""
READ_SECONDS: Final = 4.0
FRAME_SECONDS: Final = 0.5
_CLEARED: Final = "local_storage,indexeddb,cache_storage,service_workers,file_systems"

_WORKERS: Final = "cache_storage,service_workers"


class OriginStorage:
    """The storage of the origins of one context. Lives as long as the context.

    A restored origin is dormant until a document of it is about to load; the interceptor of the browser then restores its
    storage first. The storage of a dormant origin is saved again unchanged. Concurrent calls of restore_origin() restore it
    once.
    """

    def __init__(
        self, context: BrowserContext, *, dormant: Mapping[str, StoredOrigin] | None = None
    ) -> None:
        self.watch = ContextWatch(context)
        self.records = StorageRecords(dormant or {})
        self.tabs = TabRecords()
        self.sessions = SessionStorage(self.watch)
        self.failures: list[str] = []
        """The parts that could not be restored since the last take_failures(), in words."""
        self.cleared_origins: dict[str, None] = {}
        """Origins whose sites had the browser clear their storage; dormant tabs must not restore it."""
        self.unread_count = 0
        """The number of origins that the last save had no time for."""
        self.blocked = frozenset[str]()
        """The origins that the context may send no request to; see block()."""
        self._context_id = ""
        self._restoring: dict[str, anyio.Lock] = {}
        self._interceptor: RequestInterceptor | None = None
        self.watch.on_cleared.append(self._forget_cleared)

    def __repr__(self) -> str:
        return f"<OriginStorage stored={len(self.records.stored)} dormant={len(self.dormant)}>"

    @property
    def dormant(self) -> Collection[str]:
        return self.records.dormant

    async def attach(self, page: Page) -> None:
        """Read the id of the context from one of its pages and register it at the interceptor.

        Documents that load before this are not paused.
        """
        if self._interceptor is not None:
            return
        browser = page.context.browser
        assert browser is not None
        self._context_id = (await self.watch.world(page)).context
        self._interceptor = RequestInterceptor.for_browser(browser)
        page.context.on("close", self._on_close)
        await self._interceptor.add_context(self._context_id, self)

    async def _attach_first(self) -> None:
        if self._interceptor is None:
            async with self.watch.blank_pages.open_first() as page:
                await self.attach(page)

    async def _on_close(self, context: BrowserContext) -> None:
        self.records.dormant.clear()
        if self._interceptor is not None:
            try:
                await self._interceptor.remove_context(self._context_id)
            except Exception:
                logger.debug("the interceptor did not answer", exc_info=True)

    def last_known(self, page: Page) -> SavedTab:
        """Return a tab whose page crashed, with its session storage, as it was read last."""
        return replace(self.tabs.last_known(page), sessions=self.sessions.of(page), lost=[])

    def take_failures(self) -> list[str]:
        failures, self.failures = self.failures, []
        return failures

    def _forget_cleared(self, origin: str) -> None:
        self.cleared_origins[origin] = None
        self.sessions.forget(origin)

    async def restore_origin(self, origin: str, page: Page | None = None) -> None:
        """Restore the storage of an origin: through `page`, which shows a document of it, or a new blank page."""
        async with self._restoring.setdefault(origin, anyio.Lock()):
            if origin not in self.dormant:
                return
            if page is not None:
                await self._restore_through(origin, page)
            else:
                async with self._blank_page() as blank_page:
                    await load_blank(blank_page, origin + "/")
                    await self._restore_through(origin, blank_page)
            self.records.dormant.discard(origin)
        if self._interceptor is not None:
            await self._interceptor.update_patterns()

    async def _restore_through(self, origin: str, page: Page) -> None:
        world = await self.watch.world(page)
        if (storage := self.records.stored.get(origin)) is None:
            # The origin was dropped meanwhile.
            return
        parts = (storage.items or NO_ITEMS, dict(storage.databases), RESTORE_SECONDS * 1000)
        failed_parts = await world.run("restoreStorage", origin, *parts)
        self.failures += [f"{part} of {origin}" for part in failed_parts]

    @asynccontextmanager
    async def _blank_page(self) -> AsyncGenerator[Page]:
        assert self._interceptor is not None, "attach() comes first"
        browser = await self._interceptor.session()
        opening = self.watch.blank_pages.open(browser, self._context_id)
        async with opening as page:
            # Otherwise a service worker of the site would answer instead of us.
            await (await self.watch.world(page)).bypass_workers()
            async with without_network(page):
                yield page

    async def replace(
        self, origins: Mapping[str, StoredOrigin], *, shown_origins: Collection[str]
    ) -> None:
        """Replace the storage of all origins. Storage of the origins in `shown_origins` is restored at once.

        Raises:
            playwright's Error: The browser refuses, or is gone.
        """
        await self._attach_first()
        previous = {*self.records.stored, *self.watch.unread_origins, *shown_origins}
        async with self._blank_page() as page:
            world = await self.watch.world(page)
            for origin in sorted(previous):
                await world.clear_storage(origin, _CLEARED)
        self.records.replace(origins)
        self.watch.unread_origins.clear()
        self.watch.unread_origins.update(shown_origins)
        assert self._interceptor is not None
        await self._interceptor.update_patterns()
        for origin in {*shown_origins} & {*origins}:
            await self.restore_origin(origin)

    async def block(self, origins: Collection[str] = ()) -> None:
        """Fail the requests of the context to these origins, from now on and instead of those given before.

        Raises:
            playwright's Error: The browser is gone.
        """
        await self._attach_first()
        assert self._interceptor is not None
        self.blocked = frozenset(origins)
        await self._interceptor.update_patterns()

    async def put(self, stored: Mapping[str, StoredOrigin], *, instead_of: Collection[str]) -> None:
        """Clear the storage of the origins `instead_of`, and put other storage in place, at once where a page shows it.

        Raises:
            playwright's Error: The browser refuses, or is gone.
        """
        await self._attach_first()
        async with self._page_of_context() as page:
            world = await self.watch.world(page)
            for origin in sorted(instead_of):
                await world.clear_storage(origin, _CLEARED)
        self.records.drop(instead_of)
        for origin in instead_of:
            self._forget_cleared(origin)
            self.watch.unread_origins.discard(origin)
        self.records.add(stored)
        assert self._interceptor is not None
        await self._interceptor.update_patterns()
        shown = {origin_of(page.url): page for page in self.watch.context.pages}
        for origin in {*stored} & {*shown}:
            # A page that answers makes a blank one unnecessary, which takes 200 ms.
            with anyio.move_on_after(READ_SECONDS), suppress(WorldError, errors.Error):
                await self.restore_origin(origin, shown[origin])
            await self.restore_origin(origin)

    async def read_now(
        self, origins: Collection[str], limits: Mapping[str, Any], *, deep: bool
    ) -> dict[str, StoredOrigin]:
        """Return the storage of some origins, read through the pages that show them; `deep`: also of left ones.

        Parts that cannot be read are as they were read last.
        """
        read = set[str]()
        for page in self.watch.context.pages:
            origin = origin_of(page.url)
            if origin is None or origin not in origins or origin in read:
                continue
            with anyio.move_on_after(READ_SECONDS), suppress(WorldError, errors.Error):
                if await self.read(origin, page, limits):
                    read.add(origin)
        if deep:
            others = self.watch.unread_origins - set(origins)
            await self.read_unread(limits, but=read | others)
        return {each: self.records.stored[each] for each in origins if each in self.records.stored}

    async def has_frame(self, frame: str) -> bool:
        """Return whether a page of the context shows a frame, by its DevTools id. A page that does not answer does not."""
        for page in self.watch.context.pages:
            with anyio.move_on_after(FRAME_SECONDS), suppress(errors.Error):
                if await (await self.watch.world(page)).has_frame(frame):
                    return True
        return False

    @asynccontextmanager
    async def _page_of_context(self) -> AsyncGenerator[Page]:
        """Yield any page of the context; a new one only if there is none."""
        pages = self.watch.context.pages
        if pages:
            yield pages[0]
            return
        async with self._blank_page() as page:
            yield page

    async def clear_workers(self, origins: Collection[str]) -> None:
        """Clear the service workers, and their caches, of some origins and of all that are known to have storage.

        Raises:
            playwright's Error: The browser refuses, or is gone.
        """
        await self._attach_first()
        async with self._blank_page() as page:
            world = await self.watch.world(page)
            for origin in sorted({*self.records.stored, *self.watch.unread_origins, *origins}):
                await world.clear_storage(origin, _WORKERS)

    def unread(self, *, but: Collection[str]) -> list[str]:
        """Return the origins that were visited since they were last read, without those in `but` and the dormant ones."""
        return sorted(self.watch.unread_origins - set(self.dormant) - set(but))

    async def read_unread(self, limits: Mapping[str, Any], *, but: Collection[str]) -> None:
        """Read the origins that were visited since they were last read, without those in `but`. May be cancelled."""
        waiting = self.unread(but=but)
        if not waiting:
            return
        await self._attach_first()
        async with anyio.create_task_group() as tasks:
            for _ in range(min(MAX_PARALLEL, 1 + len(waiting) // 4)):
                tasks.start_soon(self._read_all, waiting, limits)

    async def _read_all(self, waiting: list[str], limits: Mapping[str, Any]) -> None:
        try:
            async with self._blank_page() as page:
                while waiting:
                    origin = waiting.pop()
                    with anyio.move_on_after(READ_SECONDS), suppress(WorldError):
                        await load_blank(page, origin + "/")
                        await self.read(origin, page, limits)
                        self.watch.unread_origins.discard(origin)
        except errors.Error:
            logger.debug("the storage of sites was not read", exc_info=True)

    async def read(self, origin: str, page: Page, limits: Mapping[str, Any]) -> bool:
        """Read the storage of an origin through a page of it. Return whether it could be read.

        Raises:
            WorldError: The page navigated.
            playwright's Error: The page is gone.
        """
        state = await (await self.watch.world(page)).run("savedStorage", dict(limits))
        if state is None or state["origin"] != origin:
            return state is None
        self.records.note(state)
        return True
