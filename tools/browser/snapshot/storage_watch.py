"""Events of a context that have to be recorded while it lives, so that it can be saved."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import anyio

from ....sessions.json_codec import JSON
from ..devtools.blank_pages import BlankPages
from ..devtools.world import World, origin_of, send_command

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, CDPSession, Frame, Page, Request, Response

MAX_VISITED_ORIGINS: Final = 20
"""The number of visited origins that are remembered for each page."""
MAX_SENT_REQUESTS: Final = 500
"""The number of requests to its own site that are remembered for each page."""
MAX_EARLY_REQUESTS: Final = 20
EMULATION_SECONDS: Final = 1.0


class ContextWatch:
    """Follows the pages of a context from the moment it is made until the context closes."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.blank_pages = BlankPages(context)
        self.unread_origins: set[str] = set()
        """Origins of documents that were loaded since their storage was last read; the reader removes them."""
        self.visited_origins: WeakKeyDictionary[Page, dict[str, None]] = WeakKeyDictionary()
        """By page, the origins it has shown since it was opened or restored, the latest last."""
        self.media: WeakKeyDictionary[Page, dict[str, str]] = WeakKeyDictionary()
        """The media features that pages emulate, by the names that Playwright's emulate_media gives them."""
        self.is_offline = False
        self._devtools: WeakKeyDictionary[Page, list[CDPSession]] = WeakKeyDictionary()
        """By page, the DevTools sessions beside Playwright's."""
        self.on_cleared: list[Callable[[str], None]] = []
        """Called with each origin whose site has the browser clear its storage."""
        self._world_locks: WeakKeyDictionary[Page, anyio.Lock] = WeakKeyDictionary()
        self._worlds: WeakKeyDictionary[Page, World] = WeakKeyDictionary()
        self._requested_documents: WeakKeyDictionary[Page, tuple[str, str]] = WeakKeyDictionary()
        self._shown_documents: WeakKeyDictionary[Page, tuple[str, str]] = WeakKeyDictionary()
        self._sent_at: WeakKeyDictionary[Page, deque[float]] = WeakKeyDictionary()
        self._early_requests: deque[Request] = deque(maxlen=MAX_EARLY_REQUESTS)
        """Navigation requests of windows that Playwright has not reported as pages yet."""
        for page in context.pages:
            self._follow(page)
        context.on("page", self._follow)
        context.on("request", self._on_request)
        context.on("response", self._on_response)

    def is_hidden(self, page: Page) -> bool:
        """Return whether a page is not one of the session's tabs."""
        return self.blank_pages.is_hidden(page)

    async def world(self, page: Page) -> World:
        if page not in self._worlds:
            # Two concurrent calls would each open a DevTools session, and one of them would be lost.
            async with self._world_locks.setdefault(page, anyio.Lock()):
                if page not in self._worlds:
                    self._worlds[page] = await World.of(await self.devtools(page))
        return self._worlds[page]

    async def devtools(self, page: Page) -> CDPSession:
        """Open a DevTools session of a page, which emulates what Playwright's own emulates.

        A new renderer takes the medium and the network state of each of its sessions in turn, and would so lose those that
        only one of them has.

        Raises:
            playwright's Error: The page is gone.
        """
        session = await page.context.new_cdp_session(page)
        self._devtools.setdefault(page, []).append(session)
        if self.is_offline or "media" in self.media.get(page, {}):
            await self.share_emulation(page)
        return session

    async def detach(self, page: Page, session: CDPSession) -> None:
        """Detach such a session, which ends the emulation for a moment.

        Raises:
            playwright's Error: The page is gone.
        """
        self._devtools.get(page, [session]).remove(session)
        await session.detach()
        if self.is_offline or "media" in self.media.get(page, {}):
            await self.share_emulation(page)

    async def share_emulation(self, page: Page) -> None:
        """Give the DevTools sessions of a page its emulated medium and network state. A blocked page gets them later."""
        throughput = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        commands: dict[str, JSON] = {
            "Network.overrideNetworkState": {"offline": self.is_offline, **throughput},
            "Emulation.setEmulatedMedia": {"media": self.media.get(page, {}).get("media", "")},
        }
        with anyio.move_on_after(EMULATION_SECONDS), suppress(Exception):
            for session in list(self._devtools.get(page, ())):
                for method, params in commands.items():
                    await send_command(session, method, params)

    def shows_form_answer(self, page: Page) -> bool:
        """Return whether a page shows the answer to a form, so that its address alone does not load it again."""
        method, url = self._shown_documents.get(page, ("GET", ""))
        return method != "GET" and url == page.url.partition("#")[0]

    def times_sent(self, page: Page) -> list[float]:
        """Return the times at which a page sent data to its own site, in milliseconds since the epoch."""
        return list(self._sent_at.get(page, ()))

    def _follow(self, page: Page) -> None:
        if self.is_hidden(page):
            return
        page.on("framenavigated", self._on_navigation)
        unknown = [
            request for request in self._early_requests if not self._record_navigation(request)
        ]
        self._early_requests = deque(unknown, maxlen=MAX_EARLY_REQUESTS)
        self._on_navigation(page.main_frame)

    def _on_navigation(self, frame: Frame) -> None:
        origin = origin_of(frame.url)
        document = self._requested_documents.get(frame.page)
        if frame.parent_frame is None and document and document[1] == frame.url.partition("#")[0]:
            # Set only now: a requested document that became a download is never shown.
            self._shown_documents[frame.page] = self._requested_documents.pop(frame.page)
        if origin is not None and (
            frame.parent_frame is None or _same_site(frame.url, frame.page.url)
        ):
            self._record_visit(origin, frame.page)

    def _record_visit(self, origin: str, page: Page) -> None:
        self.unread_origins.add(origin)
        origins = self.visited_origins.setdefault(page, {})
        origins.pop(origin, None)
        origins[origin] = None
        for oldest in list(origins)[:-MAX_VISITED_ORIGINS]:
            del origins[oldest]

    def _on_response(self, response: Response) -> Awaitable[None] | None:
        # Return a coroutine, which becomes a task, only for the few answers that are documents.
        request, origin = response.request, origin_of(response.url)
        if (
            origin is None
            or not request.is_navigation_request()
            or not _obeys_clear_site_data(origin)
        ):
            return None
        frame = _frame_of(request)
        if frame is not None and frame.parent_frame is not None:
            return None
        return self._record_cleared(origin, response)

    async def _record_cleared(self, origin: str, response: Response) -> None:
        # The page may be gone by now.
        with suppress(Exception):
            # The browser leaves this header out of the event; the driver can fetch it.
            header = await response.header_value("clear-site-data") or ""
            if '"storage"' in header or '"*"' in header:
                # A logout that redirects at once never shows a document of its own.
                self.unread_origins.add(origin)
                for callback in self.on_cleared:
                    callback(origin)

    def mark_frames_unread(self) -> None:
        """Mark the storage of frames as unread again: they may write to it after it was read."""
        for page in self.context.pages:
            if self.is_hidden(page):
                continue
            for frame in page.frames:
                if frame.parent_frame is not None and _same_site(frame.url, page.url):
                    origin = origin_of(frame.url)
                    if origin is not None and origin != origin_of(page.url):
                        self.unread_origins.add(origin)

    def _on_request(self, request: Request) -> None:
        # Navigation requests count, too: a form may be sent into a frame, or get an answer that does not replace the page.
        self._record_sent(request)
        if request.is_navigation_request() and not self._record_navigation(request):
            self._early_requests.append(request)

    def _record_navigation(self, request: Request) -> bool:
        """Record the method and address of a navigation request. Return whether its frame is known."""
        frame = _frame_of(request)
        if frame is not None and frame.parent_frame is None:
            self._requested_documents[frame.page] = (request.method, request.url.partition("#")[0])
        return frame is not None

    def _record_sent(self, request: Request) -> None:
        # A beacon reports that a click took place, not its effect.
        if request.method in ("GET", "HEAD", "OPTIONS") or request.resource_type == "ping":
            return
        # Only requests to related sites count: data sent to others, such as visitor statistics, does not change the site.
        if (frame := _frame_of(request)) is not None and _same_site(request.url, frame.page.url):
            self._sent_at.setdefault(frame.page, deque(maxlen=MAX_SENT_REQUESTS)).append(
                time.time() * 1000
            )


def _frame_of(request: Request) -> Frame | None:
    """Return the frame of a request; None for the first request of a window, which precedes its frame, and for workers."""
    with suppress(Exception):
        return request.frame
    return None


def _obeys_clear_site_data(origin: str) -> bool:
    """Return whether the browser obeys Clear-Site-Data from an origin: only if its connection is secure or local."""
    host = urlsplit(origin).hostname or ""
    if origin.startswith("https:") or f".{host}".endswith(".localhost"):
        return True
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return False


def _same_site(url: str, top: str) -> bool:
    """Return whether a frame may share the storage of its origin with pages of that origin; True in doubt."""
    host, top_host = (urlsplit(u).hostname or "" for u in (url, top))
    return host.split(".")[-2:] == top_host.split(".")[-2:]
